//! Finds many words by short parts of them: one probe of a bit map at each place, and a look at the few that answer.
//!
//! It leaves out words that are too short, or share their parts with too many others; another search finds those.

use std::{collections::HashMap, ops::Range};

use super::{
    hashing::Quickly,
    maps::{Coarse, Fine, bit, hash},
    scanner::Next,
};

/// How words are found: by a part of so many bytes, looked for at every place or at every second one. A word that is
/// looked for at every second place needs two parts, one byte apart: one of them begins at an even place. Both lie in
/// its key, which is what is looked up where one of them was seen.
const CLASSES: [Class; 8] = [
    Class::new(7, 2),
    Class::new(6, 2),
    Class::new(5, 2),
    Class::new(4, 2),
    Class::new(3, 2),
    Class::new(4, 1),
    Class::new(3, 1),
    Class::new(2, 1),
];

/// Words of four and five bytes are looked for at every second place if there are no more of them than this: parts of
/// so few bytes are common, and looking at all of many costs more than to probe every place for longer ones.
const FEW_SHORT: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Class {
    width: usize,
    stride: usize,
}

impl Class {
    const fn new(width: usize, stride: usize) -> Self {
        Self { width, stride }
    }

    /// Bytes of the key, and of the shortest word that it finds.
    const fn key(self) -> usize {
        self.width + self.stride - 1
    }
}

/// Words that may share a key: each is looked at wherever the key occurs.
const CROWD: u32 = 12;

/// Fewer words than this are left to the other search: two passes over a text cost more than one.
const LEAST: usize = 8;

/// Places of a text that are probed together.
const BLOCK: usize = 16;
const WINDOW: usize = BLOCK + 7;

/// Places that are gathered before any of them is looked at, and keys before any is looked up: what they are held
/// against lies in far memory, and looks that do not wait for each other overlap.
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

/// One pass for the words of one or several classes: each place is held against a map of what their parts begin with.
#[derive(Debug)]
struct Probe {
    mask: u64,
    stride: usize,
    /// Of each class.
    keys: Vec<Keys>,
    map: Coarse,
}

/// The keys of a class: of how many bytes they are, and which there are. Those of rare classes have a small map, so that
/// asking for them everywhere costs little.
#[derive(Debug)]
struct Keys {
    mask: u64,
    fine: Fine,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The word's first bytes, so that most others are told apart here.
    first: u64,
    /// Where all of its bytes are.
    from: u32,
    word: u32,
    length: u16,
    /// How far inside of the word the key is.
    offset: u16,
}

/// A word, and what it is found by.
#[derive(Clone, Copy, Debug)]
struct Keyed {
    key: u64,
    /// In `CLASSES`.
    class: usize,
    entry: Entry,
}

impl Keyed {
    /// Of which one stands at an even place wherever the word does, or the only one.
    fn parts(&self) -> impl Iterator<Item = u64> {
        let Class { width, stride } = CLASSES[self.class];
        (0..stride).map(move |offset| self.key >> (8 * offset) & mask(width))
    }
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

/// The places that a coarse map knows.
struct Places {
    places: [u32; GATHERED],
    count: usize,
}

fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - 8 * width)
}

/// The bytes at a place as one number.
fn at(word: &[u8], offset: usize, width: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(&word[offset..offset + width]);
    u64::from_le_bytes(bytes)
}

/// Eight bytes from a place on; beyond the end there are zeros.
#[inline]
fn eight_at(text: &[u8], place: usize) -> u64 {
    match text.get(place..place + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or_default()),
        None => text.get(place..).map_or(0, |rest| at(rest, 0, rest.len())),
    }
}

impl Grams {
    /// The table for the words that are fit for it, if they are worth a pass, and the places of the others.
    pub(crate) fn new(words: &[&[u8]]) -> (Option<Self>, Vec<u32>) {
        let mut sharing: HashMap<u64, u32, Quickly> = HashMap::default();
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
            let entry = Entry { first: eight_at(word, 0), from, word: nth, length, offset };
            entries.push(Keyed { key, class, entry });
            bytes.extend_from_slice(word);
        }
        if entries.len() < LEAST {
            return (None, (0..).take(words.len()).collect());
        }
        let probes = probes(words, &entries);
        // One or two entries a bucket: what says where a bucket begins is far memory too.
        let shift = 64 - entries.len().next_power_of_two().trailing_zeros().clamp(5, 24) + 1;
        let (starts, entries) = bucketed(&entries, shift);
        let words = bytes.into();
        (Some(Self { probes, starts, shift, entries, words }), rest)
    }

    pub(crate) fn memory(&self) -> usize {
        let fine = |probe: &Probe| probe.keys.iter().map(|keys| keys.fine.memory()).sum::<usize>();
        let maps: usize = self.probes.iter().map(|probe| probe.map.memory() + fine(probe)).sum();
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
        let mask = probe.mask;
        let mut places = Places { places: [0; GATHERED], count: 0 };
        let mut place = 0;
        for window in text.windows(WINDOW).step_by(BLOCK) {
            if let Ok(window) = window.try_into() {
                let answers = answers::<N, STRIDE>(bits, mask, window);
                if answers != 0 && self.gather(answers, probe, text, place, &mut places, found) == Next::Stop
                {
                    return Next::Stop;
                }
            }
            place += BLOCK;
        }
        for window in tail.windows() {
            let answers = answers::<N, STRIDE>(bits, mask, window);
            if answers != 0 && self.gather(answers, probe, text, place, &mut places, found) == Next::Stop {
                return Next::Stop;
            }
            place += BLOCK;
        }
        if places.count == 0 { Next::Go } else { self.look(probe, &mut places, text, found) }
    }

    /// Keeps the places of a block that the coarse map knows.
    #[inline(never)]
    fn gather(
        &self,
        mut answers: u64,
        probe: &Probe,
        text: &[u8],
        place: usize,
        places: &mut Places,
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        while answers != 0 {
            places.places[places.count % GATHERED] = place.saturating_add(answers.trailing_zeros());
            places.count += 1;
            answers &= answers - 1;
        }
        if places.count > GATHERED - BLOCK { self.look(probe, places, text, found) } else { Next::Go }
    }

    /// Looks at the keys beside places that were gathered: first at all of them in the fine map, then at what that has
    /// let pass.
    #[inline(never)]
    fn look(
        &self,
        probe: &Probe,
        places: &mut Places,
        text: &[u8],
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        // Where a key is, and its bucket.
        let mut keys = [0_u64; GATHERED];
        let mut count = 0;
        for place in &places.places[..std::mem::take(&mut places.count).min(GATHERED)] {
            let place = *place as usize;
            let mut keep = |place: usize| {
                let eight = eight_at(text, place);
                for Keys { mask, fine } in &probe.keys {
                    let hash = hash(eight & mask);
                    // Written in any case, and then written over: cheaper than to decide, because nothing has to wait.
                    keys[count % GATHERED] = (place as u64) << 32 | hash >> self.shift;
                    count += usize::from(fine.holds(hash));
                }
            };
            keep(place);
            if probe.stride == 2 && place > 0 {
                keep(place - 1);
            }
            if count > GATHERED - 2 * CLASSES.len() {
                if self.look_up(&keys[..count.min(GATHERED)], text, found) == Next::Stop {
                    return Next::Stop;
                }
                count = 0;
            }
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
        if eight_at(text, start) & mask(length.min(8)) != entry.first {
            return false;
        }
        let (from, rest) = (entry.from as usize, 8.min(length));
        text.get(start + rest..start + length) == Some(&self.words[from + rest..from + length])
    }
}

#[inline]
fn eight(window: &[u8; WINDOW], nth: usize) -> u64 {
    u64::from_le_bytes(window[nth..nth + 8].try_into().unwrap_or_default())
}

/// Which places of a block the map knows.
#[inline]
fn answers<const N: usize, const STRIDE: usize>(bits: &[u64; N], mask: u64, window: &[u8; WINDOW]) -> u64 {
    let mut answers = 0;
    for nth in (0..BLOCK).step_by(STRIDE) {
        answers |= bit(bits, hash(eight(window, nth) & mask)) << nth;
    }
    answers
}

/// The class (as a place in `CLASSES`) by which a word will be found, and where in the word its key begins.
fn choose(
    word: &[u8],
    sharing: &HashMap<u64, u32, Quickly>,
    suits: impl Fn(&Class) -> bool,
) -> Option<(usize, usize)> {
    let nth = CLASSES.iter().position(|class| class.key() <= word.len() && suits(class))?;
    let width = CLASSES[nth].key();
    let key = |first: usize| at(word, first, width);
    let crowd = |first: usize| sharing.get(&key(first)).copied().unwrap_or_default();
    let first = (0..=word.len() - width).min_by_key(|first| (crowd(*first), common(key(*first), width)))?;
    (crowd(first) < CROWD).then_some((nth, first))
}

/// How common a key may be in texts, by the bytes in it.
fn common(key: u64, width: usize) -> u32 {
    key.to_le_bytes()[..width].iter().map(|byte| super::rarity::commonness(*byte)).sum()
}

/// What an answer of the coarse map costs beside a probe, and each class that it may be of. Less than it takes: pieces
/// of words are guessed to be several times as common in texts as they turn out to be.
const ANSWER: f64 = 1.0;
const PART: f64 = 0.5;

/// Each byte that may follow a part.
const BYTES: usize = 256;

/// Classes share a probe if that is cheaper: a probe for what the parts of several classes begin with is answered more
/// often than probes for each whole part.
fn probes(words: &[&[u8]], entries: &[Keyed]) -> Vec<Probe> {
    let mut counts = [0_usize; CLASSES.len()];
    for entry in entries {
        counts[entry.class] += CLASSES[entry.class].stride;
    }
    let grouped = |stride: usize| {
        // From the shortest parts to the longest.
        let used = (0..CLASSES.len()).rev().filter(|class| CLASSES[*class].stride == stride);
        let used: Vec<_> =
            used.map(|class| (CLASSES[class].width, counts[class])).filter(|(_, count)| *count > 0).collect();
        let alike: Vec<f64> = used.iter().map(|(width, _)| likeness(words, *width)).collect();
        let all = |range: &Range<usize>| used[range.clone()].iter().map(|(_, count)| count).sum::<usize>();
        // Few parts that are a byte too short stand in the map with each byte that may follow: that costs less than a
        // pass of their own.
        let padded = |range: &Range<usize>| {
            let (width, count) = used[range.start];
            range.len() > 1 && used[range.start + 1].0 == width + 1 && count * BYTES <= all(range)
        };
        let group = |range: Range<usize>| {
            let (start, count) = if padded(&range) {
                (range.start + 1, all(&range) + used[range.start].1 * (BYTES - 1))
            } else {
                (range.start, all(&range))
            };
            #[expect(clippy::cast_precision_loss, reason = "a guess")]
            let (count, classes) = (count as f64, range.len() as f64);
            1.0 + (1.0 - (-count * alike[start]).exp()) * (ANSWER + PART * classes)
        };
        // Each bit says whether a new probe begins before a class; there are at most six of one stride.
        let splits = |split: usize| {
            let mut starts: Vec<usize> =
                (0..used.len()).filter(|nth| *nth == 0 || split >> nth & 1 == 1).collect();
            starts.push(used.len());
            starts.windows(2).map(|ends| ends[0]..ends[1]).collect::<Vec<_>>()
        };
        let cost = |split: &usize| splits(*split).into_iter().map(group).sum::<f64>();
        let best = (0..1 << used.len()).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default();
        let probe = |range: Range<usize>| {
            let width = used[range.start + usize::from(padded(&range))].0;
            let mut beginnings = Vec::with_capacity(all(&range));
            for keyed in entries {
                let class = CLASSES[keyed.class];
                if class.stride != stride
                    || !used[range.clone()].iter().any(|(width, _)| *width == class.width)
                {
                    continue;
                }
                if class.width < width {
                    let follow =
                        |part: u64| (0..BYTES as u64).map(move |byte| byte << (8 * class.width) | part);
                    beginnings.extend(keyed.parts().flat_map(follow));
                } else {
                    beginnings.extend(keyed.parts().map(|part| part & mask(width)));
                }
            }
            let keys = |(width, _): &(usize, usize)| {
                let of = |keyed: &&Keyed| {
                    CLASSES[keyed.class].width == *width && CLASSES[keyed.class].stride == stride
                };
                let keys: Vec<u64> = entries.iter().filter(of).map(|keyed| keyed.key).collect();
                Keys { mask: mask(width + stride - 1), fine: Fine::of(&keys) }
            };
            let keys = used[range].iter().map(keys).collect();
            Probe { mask: mask(width), stride, keys, map: Coarse::of(&beginnings) }
        };
        splits(best).into_iter().map(probe).collect::<Vec<_>>()
    };
    [grouped(2), grouped(1)].into_iter().flatten().collect()
}

/// How likely two pieces of so many bytes are equal, guessed from the words: nothing else is known of the texts.
fn likeness(words: &[&[u8]], width: usize) -> f64 {
    const SAMPLE: usize = 4_096;
    let long: Vec<&&[u8]> = words.iter().filter(|word| word.len() >= width).collect();
    let step = long.len().div_ceil(SAMPLE).max(1);
    let mut pieces: Vec<u64> = (0_u64..)
        .zip(long.into_iter().step_by(step))
        .map(|(nth, word)| {
            let choices = u64::try_from(word.len() - width + 1).unwrap_or(1);
            at(word, usize::try_from((hash(nth + 1) >> 32) % choices).unwrap_or_default(), width)
        })
        .collect();
    pieces.sort_unstable();
    let pairs = |count: usize| count * count.saturating_sub(1) / 2;
    let equal: usize = pieces.chunk_by(|a, b| a == b).map(|equal| pairs(equal.len())).sum();
    #[expect(clippy::cast_precision_loss, reason = "a guess")]
    let share = equal as f64 / pairs(pieces.len()).max(1) as f64;
    share
}

/// The entries sorted by bucket, and where each bucket starts.
fn bucketed(entries: &[Keyed], shift: u32) -> (Box<[u32]>, Box<[Entry]>) {
    let bucket = |keyed: &Keyed| hash(keyed.key) >> shift;
    let mut entries = entries.to_vec();
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
