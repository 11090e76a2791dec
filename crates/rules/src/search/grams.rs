//! Finds many words by short parts of them: one probe of a bit map at each place, and a look at the few that answer.
//!
//! It leaves out words that are too short, or share their parts with too many others; another search finds those.

use std::collections::HashMap;

use super::{
    Next,
    hashing::BuildFastHasher,
    keys::{CLASSES, Class, Entry, Keyed, Keys, Probe, at},
    maps::{Coarse, Marks, bit, hash},
    passes::passes,
};

/// Words of four and five bytes are looked for at every second place if there are no more of them than this: parts of
/// so few bytes are common, and looking at all of many costs more than to probe every place for longer ones.
const FEW_SHORT: usize = 128;

/// Words that may share a key: each is looked at wherever the key occurs.
const CROWD: u32 = 12;

/// Fewer words than this are left to the other search: two passes over a text cost more than one.
const LEAST: usize = 8;

/// Places of a text that are probed together.
const BLOCK: usize = 16;
const WINDOW: usize = BLOCK + 7;

/// Answers of places that are gathered before any of them is looked at, a bit for each that is probed, and keys before
/// any is looked up: what they are held against lies in far memory, and looks that do not wait for each other overlap.
const ANSWERS: usize = 4;
const GATHERED: usize = 64;

#[derive(Debug)]
pub(crate) struct Grams {
    probes: Vec<Probe>,
    /// `starts[bucket]..starts[bucket + 1]` are the entries of a bucket.
    starts: Box<[u32]>,
    shift: u32,
    entries: Box<[Entry]>,
    words: Box<[u8]>,
}

/// The last places of a text, which have fewer bytes behind them than a window, and may still hold words.
struct Tail {
    bytes: [u8; BLOCK + WINDOW],
    windows: usize,
}

impl Tail {
    fn of(text: &[u8]) -> Self {
        let whole = if text.len() < WINDOW { 0 } else { (text.len() - WINDOW) / BLOCK + 1 };
        let rest = &text[whole * BLOCK..];
        let mut bytes = [0; BLOCK + WINDOW];
        bytes[..rest.len()].copy_from_slice(rest);
        Self { bytes, windows: rest.len().div_ceil(BLOCK) }
    }

    fn windows(&self) -> impl Iterator<Item = &[u8; WINDOW]> {
        let window = |nth: usize| self.bytes[nth * BLOCK..nth * BLOCK + WINDOW].try_into().ok();
        (0..self.windows).filter_map(window)
    }
}

/// Finds the places of a part of a text that a coarse map knows.
struct Span {
    /// The first place.
    from: usize,
    /// Blocks that have been probed.
    blocks: usize,
    answers: [u64; ANSWERS],
}

impl Span {
    fn at(from: usize) -> Self {
        Self { from, blocks: 0, answers: [0; ANSWERS] }
    }

    /// Adds the answers of a block; whether there is no room for another.
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

/// Eight bytes from a place on; beyond the end there are zeros.
#[inline]
fn eight_at(text: &[u8], place: usize) -> u64 {
    match text.get(place..place + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or_default()),
        None => text.get(place..).map_or(0, |rest| at(rest, 0, rest.len())),
    }
}

/// Bytes of a word that its entry holds.
const FIRST: usize = 16;

fn first_of(word: &[u8]) -> u128 {
    let mut bytes = [0; FIRST];
    let length = word.len().min(FIRST);
    bytes[..length].copy_from_slice(&word[..length]);
    u128::from_le_bytes(bytes)
}

impl Grams {
    /// The table for the words that are fit for it, if they are worth a pass, and the places of the others.
    pub(crate) fn new(words: &[&[u8]]) -> (Option<Self>, Vec<u32>) {
        let mut sharing: HashMap<u64, u32, BuildFastHasher> = HashMap::default();
        let mut entries = Vec::with_capacity(words.len());
        let mut rest = Vec::new();
        let mut bytes = Vec::new();
        // Long words have the choice between many keys, so they come last.
        let mut order: Vec<u32> = (0_u32..).zip(words).map(|(nth, _)| nth).collect();
        order.sort_by_key(|nth| words[*nth as usize].len());
        let short = words.iter().filter(|word| matches!(word.len(), 4 | 5)).count();
        let classes = |class: &Class| class.stride == 1 || class.width > 4 || short <= FEW_SHORT;
        for nth in order {
            let word = words[nth as usize];
            let choice = choose(word, &sharing, classes);
            let (length, from) = (u16::try_from(word.len()), u32::try_from(bytes.len()));
            let (Some((class, first)), Ok(length), Ok(from)) = (choice, length, from) else {
                rest.push(nth);
                continue;
            };
            let key = at(word, first, CLASSES[class].key());
            *sharing.entry(key).or_default() += 1;
            let offset = u16::try_from(first).unwrap_or(length);
            let entry = Entry { first: first_of(word), from, word: nth, length, offset };
            entries.push(Keyed { key, class, entry });
            bytes.extend_from_slice(word);
        }
        if entries.len() < LEAST {
            return (None, (0..).take(words.len()).collect());
        }
        let probes = passes(words, &entries);
        // One or two entries a bucket: what says where a bucket begins is far memory too.
        let shift = 64 - entries.len().next_power_of_two().trailing_zeros().clamp(5, 24) + 1;
        let (starts, entries) = bucketed(entries, shift);
        let words = bytes.into();
        (Some(Self { probes, starts, shift, entries, words }), rest)
    }

    pub(crate) fn memory(&self) -> usize {
        let fine = |probe: &Probe| probe.keys.iter().map(|keys| keys.fine.memory()).sum::<usize>();
        let of = |probe: &Probe| probe.map.memory() + probe.marks.memory() + fine(probe);
        let maps: usize = self.probes.iter().map(of).sum();
        maps + size_of_val(&*self.starts) + size_of_val(&*self.entries) + self.words.len()
    }

    pub(crate) fn scan(&self, text: &[u8], found: &mut impl FnMut(u32, usize) -> Next) -> Next {
        let tail = &Tail::of(text);
        for probe in &self.probes {
            let next = match &probe.map {
                Coarse::Tiny(bits) => self.pass(bits, probe, (text, tail), found),
                Coarse::Small(bits) => self.pass(bits, probe, (text, tail), found),
                Coarse::Middle(bits) => self.pass(bits, probe, (text, tail), found),
                Coarse::Large(bits) => self.pass(bits, probe, (text, tail), found),
                Coarse::Huge(bits) => self.pass(bits, probe, (text, tail), found),
            };
            if next == Next::Stop {
                return Next::Stop;
            }
        }
        Next::Go
    }

    fn pass<const N: usize>(
        &self,
        bits: &[u64; N],
        probe: &Probe,
        texts: (&[u8], &Tail),
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        match probe.stride {
            1 => self.pass_by::<N, 1>(bits, probe, texts, found),
            _ => self.pass_by::<N, 2>(bits, probe, texts, found),
        }
    }

    fn pass_by<const N: usize, const STRIDE: usize>(
        &self,
        bits: &[u64; N],
        probe: &Probe,
        (text, tail): (&[u8], &Tail),
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        let mut span = Span::at(0);
        for window in text.windows(WINDOW).step_by(BLOCK) {
            let Ok(window) = window.try_into() else { continue };
            if span.add::<STRIDE>(answers::<N, STRIDE>(bits, probe.mask, window)) {
                if self.look::<STRIDE>(probe, &span, text, found) == Next::Stop {
                    return Next::Stop;
                }
                span = Span::at(span.end());
            }
        }
        for window in tail.windows() {
            if span.add::<STRIDE>(answers::<N, STRIDE>(bits, probe.mask, window)) {
                if self.look::<STRIDE>(probe, &span, text, found) == Next::Stop {
                    return Next::Stop;
                }
                span = Span::at(span.end());
            }
        }
        if span.answers == [0; ANSWERS] { Next::Go } else { self.look::<STRIDE>(probe, &span, text, found) }
    }

    /// Looks at the keys beside places that the coarse map knows: first at the marks of all of them, then at the fine
    /// maps of those keys that may be there. What comes to nothing is written in any case, and then written over:
    /// cheaper than to decide, because no look has to wait for another.
    #[inline(never)]
    fn look<const STRIDE: usize>(
        &self,
        probe: &Probe,
        span: &Span,
        text: &[u8],
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        // A place, and which key is beside it.
        let mut beside = [0_u64; GATHERED];
        let mut count = 0;
        for (nth, answers) in span.answers.iter().enumerate() {
            let mut answers = *answers;
            while answers != 0 {
                let place = span.from + (64 * nth + answers.trailing_zeros() as usize) * STRIDE;
                answers &= answers - 1;
                let mut left = probe.marks.at(hash(eight_at(text, place) & probe.mask));
                let mut keep = |left: &mut u32| {
                    beside[count % GATHERED] = (place as u64) << 8 | u64::from(left.trailing_zeros());
                    count += usize::from(*left != 0);
                    *left &= left.wrapping_sub(1);
                };
                // Hardly ever are there more than two.
                keep(&mut left);
                keep(&mut left);
                while left != 0 {
                    keep(&mut left);
                }
                if count > GATHERED - 2 * CLASSES.len() {
                    if self.look_closer(probe, &beside[..count.min(GATHERED)], text, found) == Next::Stop {
                        return Next::Stop;
                    }
                    count = 0;
                }
            }
        }
        self.look_closer(probe, &beside[..count.min(GATHERED)], text, found)
    }

    fn look_closer(
        &self,
        probe: &Probe,
        beside: &[u64],
        text: &[u8],
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        // Where a key is, and its bucket.
        let mut keys = [0_u64; GATHERED];
        let mut count = 0;
        for one in beside {
            let (class, part) = Marks::class_and_part(*one & 0xff);
            let Some(Keys { mask, fine }) = probe.keys.get(class) else { continue };
            let start = usize::try_from(*one >> 8).unwrap_or_default().saturating_sub(part);
            let hash = hash(eight_at(text, start) & mask);
            keys[count % GATHERED] = (start as u64) << 32 | hash >> self.shift;
            count += usize::from(fine.holds(hash));
        }
        self.look_up(&keys[..count.min(GATHERED)], text, found)
    }

    fn look_up(&self, keys: &[u64], text: &[u8], found: &mut impl FnMut(u32, usize) -> Next) -> Next {
        for key in keys {
            let (place, bucket) = ((key >> 32) as usize, (key & 0xffff_ffff) as usize);
            let (from, to) = (self.starts[bucket] as usize, self.starts[bucket + 1] as usize);
            for entry in &self.entries[from..to] {
                let Some(start) = place.checked_sub(entry.offset.into()) else { continue };
                if self.is_at(entry, text, start) && found(entry.word, start) == Next::Stop {
                    return Next::Stop;
                }
            }
        }
        Next::Go
    }

    #[inline]
    fn is_at(&self, entry: &Entry, text: &[u8], start: usize) -> bool {
        let length = usize::from(entry.length);
        let first = length.min(FIRST);
        let there = match text.get(start..).and_then(|text| text.first_chunk()) {
            Some(there) => u128::from_le_bytes(*there) & u128::MAX >> (8 * (FIRST - first)),
            None => text.get(start..start + first).map_or(!entry.first, first_of),
        };
        if there != entry.first || length <= FIRST {
            return there == entry.first;
        }
        let from = entry.from as usize;
        text.get(start + first..start + length) == Some(&self.words[from + first..from + length])
    }
}

#[inline]
fn eight(window: &[u8; WINDOW], nth: usize) -> u64 {
    u64::from_le_bytes(window[nth..nth + 8].try_into().unwrap_or_default())
}

/// Finds the places of a block that the map knows: a bit for each that is probed.
#[inline]
fn answers<const N: usize, const STRIDE: usize>(bits: &[u64; N], mask: u64, window: &[u8; WINDOW]) -> u64 {
    let mut answers = 0;
    for nth in (0..BLOCK).step_by(STRIDE) {
        answers |= bit(bits, hash(eight(window, nth) & mask)) << (nth / STRIDE);
    }
    answers
}

/// The class (as a place in `CLASSES`) by which a word will be found, and where in the word its key begins.
fn choose(
    word: &[u8],
    sharing: &HashMap<u64, u32, BuildFastHasher>,
    suits: impl Fn(&Class) -> bool,
) -> Option<(usize, usize)> {
    let nth = CLASSES.iter().position(|class| class.key() <= word.len() && suits(class))?;
    let width = CLASSES[nth].key();
    let key = |first: usize| at(word, first, width);
    let crowd = |first: usize| sharing.get(&key(first)).copied().unwrap_or_default();
    let first = (0..=word.len() - width).min_by_key(|first| (crowd(*first), common(key(*first), width)))?;
    (crowd(first) < CROWD).then_some((nth, first))
}

/// Guess of how common a key is in texts, by the bytes in it.
fn common(key: u64, width: usize) -> u32 {
    key.to_le_bytes()[..width].iter().map(|byte| super::commonness(*byte)).sum()
}

/// The entries sorted by bucket, and where each bucket starts.
fn bucketed(mut entries: Vec<Keyed>, shift: u32) -> (Box<[u32]>, Box<[Entry]>) {
    let bucket = |keyed: &Keyed| hash(keyed.key) >> shift;
    // Stable: words of a bucket stay in their order.
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
