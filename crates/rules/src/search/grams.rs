//! Finds many words by short parts of them: one probe of a bit map at each place, and a check of the few places that pass.
//! Words that are too short, or share their parts with too many others, are left to another search.

use std::collections::HashMap;

use super::{
    ScanControl,
    hashing::BuildFastHasher,
    keys::{CLASSES, Class, Entry, KeyedWord, Keys, Probe, at},
    maps::{Coarse, Marks, bit, hash},
    passes::group_into_probes,
};

/// Maximum number of words of four and five bytes that are searched at every second place. Parts of so few bytes are common,
/// so checking the hits of many words costs more than probing every place for longer parts.
const MAX_SHORT_WORDS: usize = 128;

/// Maximum number of words with the same key, each of which is checked wherever the key occurs.
const MAX_SHARED_KEY: u32 = 12;

/// Fewer words are left to the other search, because two passes over a text cost more than one.
const MIN_WORDS: usize = 8;

/// Places of a text that are probed together.
const BLOCK: usize = 16;
const WINDOW: usize = BLOCK + 7;

/// Answers that are collected before they are checked, one bit for each probed place, and keys that are collected before
/// they are looked up. The tables lie in slow memory, and reads that do not wait for each other overlap.
const ANSWERS: usize = 4;
const BATCH: usize = 64;

#[derive(Debug)]
pub(crate) struct Grams {
    probes: Vec<Probe>,
    /// `starts[bucket]..starts[bucket + 1]` are the entries of a bucket.
    starts: Box<[u32]>,
    shift: u32,
    entries: Box<[Entry]>,
    words: Box<[u8]>,
}

/// Last places of a text. Fewer bytes than a window follow them, but they may still begin words.
struct Tail {
    bytes: [u8; BLOCK + WINDOW],
    windows: usize,
}

impl Tail {
    fn new(text: &[u8]) -> Self {
        let full_blocks = if text.len() < WINDOW { 0 } else { (text.len() - WINDOW) / BLOCK + 1 };
        let tail = &text[full_blocks * BLOCK..];
        let mut bytes = [0; BLOCK + WINDOW];
        bytes[..tail.len()].copy_from_slice(tail);
        Self { bytes, windows: tail.len().div_ceil(BLOCK) }
    }

    fn windows(&self) -> impl Iterator<Item = &[u8; WINDOW]> {
        let window = |nth: usize| self.bytes[nth * BLOCK..nth * BLOCK + WINDOW].try_into().ok();
        (0..self.windows).filter_map(window)
    }
}

/// Places of a part of a text that pass a coarse map.
struct Span {
    /// First place.
    from: usize,
    /// Number of blocks probed.
    blocks: usize,
    answers: [u64; ANSWERS],
}

impl Span {
    fn at(from: usize) -> Self {
        Self { from, blocks: 0, answers: [0; ANSWERS] }
    }

    /// Adds the answers of a block. Returns true if no further block fits.
    #[inline]
    fn add<const STRIDE: usize>(&mut self, answers: u64) -> bool {
        let first = self.blocks * (BLOCK / STRIDE);
        self.answers[first / 64 % ANSWERS] |= answers << (first % 64);
        self.blocks += 1;
        self.blocks == ANSWERS * 64 / (BLOCK / STRIDE)
    }

    fn end(&self) -> usize {
        self.from + self.blocks * BLOCK
    }
}

/// Eight bytes from a place on, with zeros beyond the end of the text.
#[inline]
fn eight_bytes_at(text: &[u8], place: usize) -> u64 {
    match text.get(place..place + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or_default()),
        None => text.get(place..).map_or(0, |rest| at(rest, 0, rest.len())),
    }
}

/// Bytes of a word that its entry holds.
const ENTRY_BYTES: usize = 16;

fn leading_bytes(word: &[u8]) -> u128 {
    let mut bytes = [0; ENTRY_BYTES];
    let length = word.len().min(ENTRY_BYTES);
    bytes[..length].copy_from_slice(&word[..length]);
    u128::from_le_bytes(bytes)
}

impl Grams {
    /// Builds the table for the suitable words, if they are worth a pass, and returns the numbers of the others.
    pub(crate) fn new(words: &[&[u8]]) -> (Option<Self>, Vec<u32>) {
        let mut sharing: HashMap<u64, u32, BuildFastHasher> = HashMap::default();
        let mut entries = Vec::with_capacity(words.len());
        let mut unsuitable_words = Vec::new();
        let mut bytes = Vec::new();
        // Long words can choose among many keys, so they choose last.
        let mut order: Vec<u32> = (0_u32..).zip(words).map(|(nth, _)| nth).collect();
        order.sort_by_key(|nth| words[*nth as usize].len());
        let short = words.iter().filter(|word| matches!(word.len(), 4 | 5)).count();
        let classes = |class: &Class| class.stride == 1 || class.width > 4 || short <= MAX_SHORT_WORDS;
        for nth in order {
            let word = words[nth as usize];
            let choice = choose_key(word, &sharing, classes);
            let (length, from) = (u16::try_from(word.len()), u32::try_from(bytes.len()));
            let (Some((class, first)), Ok(length), Ok(from)) = (choice, length, from) else {
                unsuitable_words.push(nth);
                continue;
            };
            let key = at(word, first, CLASSES[class].key());
            *sharing.entry(key).or_default() += 1;
            let offset = u16::try_from(first).unwrap_or(length);
            let entry = Entry { first: leading_bytes(word), from, word: nth, length, offset };
            entries.push(KeyedWord { key, class, entry });
            bytes.extend_from_slice(word);
        }
        if entries.len() < MIN_WORDS {
            return (None, (0..).take(words.len()).collect());
        }
        let probes = group_into_probes(words, &entries);
        // One or two entries for each bucket, because the starts of the buckets lie in slow memory too.
        let shift = 64 - entries.len().next_power_of_two().trailing_zeros().clamp(5, 24) + 1;
        let (starts, entries) = sort_into_buckets(entries, shift);
        let words = bytes.into();
        (Some(Self { probes, starts, shift, entries, words }), unsuitable_words)
    }

    pub(crate) fn memory(&self) -> usize {
        let fine = |probe: &Probe| probe.keys.iter().map(|keys| keys.fine.memory()).sum::<usize>();
        let probe_bytes = |probe: &Probe| probe.map.memory() + probe.marks.memory() + fine(probe);
        let maps: usize = self.probes.iter().map(probe_bytes).sum();
        maps + size_of_val(&*self.starts) + size_of_val(&*self.entries) + self.words.len()
    }

    pub(crate) fn scan(&self, text: &[u8], visit: &mut impl FnMut(u32, usize) -> ScanControl) -> ScanControl {
        // The last places are copied into a padded buffer, because no full window is left there.
        let tail = &Tail::new(text);
        for probe in &self.probes {
            let next = match &probe.map {
                Coarse::Tiny(bits) => self.pass(bits, probe, (text, tail), visit),
                Coarse::Small(bits) => self.pass(bits, probe, (text, tail), visit),
                Coarse::Middle(bits) => self.pass(bits, probe, (text, tail), visit),
                Coarse::Large(bits) => self.pass(bits, probe, (text, tail), visit),
                Coarse::Huge(bits) => self.pass(bits, probe, (text, tail), visit),
            };
            if next == ScanControl::Stop {
                return ScanControl::Stop;
            }
        }
        ScanControl::Continue
    }

    fn pass<const N: usize>(
        &self,
        bits: &[u64; N],
        probe: &Probe,
        texts: (&[u8], &Tail),
        visit: &mut impl FnMut(u32, usize) -> ScanControl,
    ) -> ScanControl {
        match probe.stride {
            1 => self.pass_by::<N, 1>(bits, probe, texts, visit),
            _ => self.pass_by::<N, 2>(bits, probe, texts, visit),
        }
    }

    fn pass_by<const N: usize, const STRIDE: usize>(
        &self,
        bits: &[u64; N],
        probe: &Probe,
        (text, tail): (&[u8], &Tail),
        visit: &mut impl FnMut(u32, usize) -> ScanControl,
    ) -> ScanControl {
        let mut span = Span::at(0);
        for window in text.windows(WINDOW).step_by(BLOCK) {
            let Ok(window) = window.try_into() else { continue };
            if span.add::<STRIDE>(probe_block::<N, STRIDE>(bits, probe.mask, window)) {
                if self.check_marks::<STRIDE>(probe, &span, text, visit) == ScanControl::Stop {
                    return ScanControl::Stop;
                }
                span = Span::at(span.end());
            }
        }
        for window in tail.windows() {
            if span.add::<STRIDE>(probe_block::<N, STRIDE>(bits, probe.mask, window)) {
                if self.check_marks::<STRIDE>(probe, &span, text, visit) == ScanControl::Stop {
                    return ScanControl::Stop;
                }
                span = Span::at(span.end());
            }
        }
        if span.answers == [0; ANSWERS] {
            ScanControl::Continue
        } else {
            self.check_marks::<STRIDE>(probe, &span, text, visit)
        }
    }

    /// Checks the keys at places that pass the coarse map: first the marks of all, then the fine maps of the keys with
    /// marks. A rejected candidate is written too and then overwritten, which is cheaper than a branch because no read waits
    /// for another.
    #[inline(never)]
    fn check_marks<const STRIDE: usize>(
        &self,
        probe: &Probe,
        span: &Span,
        text: &[u8],
        visit: &mut impl FnMut(u32, usize) -> ScanControl,
    ) -> ScanControl {
        // Place, and number of the key at it.
        let mut candidates = [0_u64; BATCH];
        let mut count = 0;
        for (nth, answers) in span.answers.iter().enumerate() {
            let mut answers = *answers;
            while answers != 0 {
                let place = span.from + (64 * nth + answers.trailing_zeros() as usize) * STRIDE;
                answers &= answers - 1;
                let mut remaining_marks = probe.marks.at(hash(eight_bytes_at(text, place) & probe.mask));
                let mut push_lowest = |marks: &mut u32| {
                    candidates[count % BATCH] = (place as u64) << 8 | u64::from(marks.trailing_zeros());
                    count += usize::from(*marks != 0);
                    *marks &= marks.wrapping_sub(1);
                };
                // More than two marks are very rare, so two are pushed without a branch.
                push_lowest(&mut remaining_marks);
                push_lowest(&mut remaining_marks);
                while remaining_marks != 0 {
                    push_lowest(&mut remaining_marks);
                }
                if count > BATCH - 2 * CLASSES.len() {
                    if self.check_keys(probe, &candidates[..count.min(BATCH)], text, visit)
                        == ScanControl::Stop
                    {
                        return ScanControl::Stop;
                    }
                    count = 0;
                }
            }
        }
        self.check_keys(probe, &candidates[..count.min(BATCH)], text, visit)
    }

    fn check_keys(
        &self,
        probe: &Probe,
        candidates: &[u64],
        text: &[u8],
        visit: &mut impl FnMut(u32, usize) -> ScanControl,
    ) -> ScanControl {
        // Start of each key, and its bucket.
        let mut keys = [0_u64; BATCH];
        let mut count = 0;
        for candidate in candidates {
            let (class, part) = Marks::class_and_part(*candidate & 0xff);
            let Some(Keys { mask, fine }) = probe.keys.get(class) else { continue };
            let start = usize::try_from(*candidate >> 8).unwrap_or_default().saturating_sub(part);
            let hash = hash(eight_bytes_at(text, start) & mask);
            keys[count % BATCH] = (start as u64) << 32 | hash >> self.shift;
            count += usize::from(fine.may_contain(hash));
        }
        self.compare_entries(&keys[..count.min(BATCH)], text, visit)
    }

    fn compare_entries(
        &self,
        keys: &[u64],
        text: &[u8],
        visit: &mut impl FnMut(u32, usize) -> ScanControl,
    ) -> ScanControl {
        for key in keys {
            let (place, bucket) = ((key >> 32) as usize, (key & 0xffff_ffff) as usize);
            let (from, to) = (self.starts[bucket] as usize, self.starts[bucket + 1] as usize);
            for entry in &self.entries[from..to] {
                let Some(start) = place.checked_sub(entry.offset.into()) else { continue };
                if self.is_at(entry, text, start) && visit(entry.word, start) == ScanControl::Stop {
                    return ScanControl::Stop;
                }
            }
        }
        ScanControl::Continue
    }

    #[inline]
    fn is_at(&self, entry: &Entry, text: &[u8], start: usize) -> bool {
        let length = usize::from(entry.length);
        let compared_bytes = length.min(ENTRY_BYTES);
        let text_bytes = match text.get(start..).and_then(|text| text.first_chunk()) {
            // Bytes after the word are masked out of the comparison.
            Some(chunk) => u128::from_le_bytes(*chunk) & u128::MAX >> (8 * (ENTRY_BYTES - compared_bytes)),
            None => text.get(start..start + compared_bytes).map_or(!entry.first, leading_bytes),
        };
        if text_bytes != entry.first || length <= ENTRY_BYTES {
            return text_bytes == entry.first;
        }
        let from = entry.from as usize;
        text.get(start + compared_bytes..start + length)
            == Some(&self.words[from + compared_bytes..from + length])
    }
}

#[inline]
fn eight_bytes(window: &[u8; WINDOW], nth: usize) -> u64 {
    u64::from_le_bytes(window[nth..nth + 8].try_into().unwrap_or_default())
}

/// Places of a block that pass the map: one bit for each probed place.
#[inline]
fn probe_block<const N: usize, const STRIDE: usize>(
    bits: &[u64; N],
    mask: u64,
    window: &[u8; WINDOW],
) -> u64 {
    let mut answers = 0;
    for nth in (0..BLOCK).step_by(STRIDE) {
        answers |= bit(bits, hash(eight_bytes(window, nth) & mask)) << (nth / STRIDE);
    }
    answers
}

/// Chooses the class, as an index in `CLASSES`, by which a word is found, and the start of its key in the word.
fn choose_key(
    word: &[u8],
    key_counts: &HashMap<u64, u32, BuildFastHasher>,
    suits: impl Fn(&Class) -> bool,
) -> Option<(usize, usize)> {
    let nth = CLASSES.iter().position(|class| class.key() <= word.len() && suits(class))?;
    let width = CLASSES[nth].key();
    let key = |first: usize| at(word, first, width);
    let words_with_key = |first: usize| key_counts.get(&key(first)).copied().unwrap_or_default();
    let first = (0..=word.len() - width)
        .min_by_key(|first| (words_with_key(*first), key_commonness(key(*first), width)))?;
    (words_with_key(first) < MAX_SHARED_KEY).then_some((nth, first))
}

/// Estimates how common a key is in texts from its bytes.
fn key_commonness(key: u64, width: usize) -> u32 {
    key.to_le_bytes()[..width].iter().map(|byte| super::commonness(*byte)).sum()
}

/// Sorts the entries by bucket, and returns the start of each bucket.
fn sort_into_buckets(mut entries: Vec<KeyedWord>, shift: u32) -> (Box<[u32]>, Box<[Entry]>) {
    let bucket = |keyed: &KeyedWord| hash(keyed.key) >> shift;
    // A stable sort keeps the words of a bucket in their order.
    entries.sort_by_key(bucket);
    let mut starts = Vec::new();
    for (nth, entry) in (0_u32..).zip(&entries) {
        while starts.len() as u64 <= bucket(entry) {
            starts.push(nth);
        }
    }
    let buckets = 1_usize << (64 - shift);
    starts.resize(buckets + 1, u32::try_from(entries.len()).unwrap_or(u32::MAX));
    (starts.into(), entries.into_iter().map(|keyed| keyed.entry).collect())
}
