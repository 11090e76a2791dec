//! Finds many words by short parts of them: one probe of a bit map at each place, and a look at the few that answer.
//!
//! It leaves out words that are too short, or share their parts with too many others; another search finds those.

use std::collections::HashMap;

use super::scanner::Next;

/// How words are found: by a part of so many bytes, looked for at every place or at every second one. A word that is
/// looked for at every second place needs two parts, one byte apart: one of them begins at an even place.
const CLASSES: [Class; 5] =
    [Class::new(7, 2), Class::new(5, 2), Class::new(4, 1), Class::new(3, 1), Class::new(2, 1)];

#[derive(Clone, Copy, Debug)]
struct Class {
    width: usize,
    stride: usize,
}

impl Class {
    const fn new(width: usize, stride: usize) -> Self {
        Self { width, stride }
    }

    /// Bytes of the shortest word that it finds.
    const fn least(self) -> usize {
        self.width + self.stride - 1
    }
}

/// Words that may share a part: each is looked at wherever the part occurs.
const CROWD: u32 = 12;

/// Fewer words than this are left to the other search: two passes over a text cost more than one.
const LEAST: usize = 8;

/// Places of a text that are probed together.
const BLOCK: usize = 8;
const WINDOW: usize = BLOCK + 7;

#[derive(Debug)]
pub(crate) struct Grams {
    bits: Bits,
    /// The widths of parts that are looked for at every place, as masks of the eight bytes there.
    every: Vec<u64>,
    /// Those that are looked for at every second place.
    second: Vec<u64>,
    /// `starts[bucket]..starts[bucket + 1]` are the entries of a bucket.
    starts: Box<[u32]>,
    shift: u32,
    entries: Box<[Entry]>,
    words: Box<[u8]>,
}

#[derive(Debug)]
enum Bits {
    Small(Box<[u64; 1 << 11]>),
    Middle(Box<[u64; 1 << 14]>),
    Large(Box<[u64; 1 << 16]>),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    gram: u64,
    /// Where the word's bytes are.
    from: u32,
    length: u16,
    /// How far inside of the word the part is.
    offset: u16,
    word: u32,
}

fn hash(gram: u64) -> u64 {
    gram.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - 8 * width)
}

/// The bytes at a place as one number; beyond the end there are zeros.
fn at(word: &[u8], offset: usize, width: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(&word[offset..offset + width]);
    u64::from_le_bytes(bytes)
}

impl Grams {
    /// The table for the words that are fit for it, if they are worth a pass, and the places of the others.
    pub(crate) fn new(words: &[&[u8]]) -> (Option<Self>, Vec<u32>) {
        let mut sharing: HashMap<u64, u32> = HashMap::new();
        let mut entries = Vec::with_capacity(words.len());
        let mut rest = Vec::new();
        let mut used = [false; CLASSES.len()];
        let mut bytes = Vec::new();
        // Long words have the choice between many parts, so they come last.
        let mut order: Vec<u32> = (0_u32..).zip(words).map(|(nth, _)| nth).collect();
        order.sort_by_key(|nth| words[*nth as usize].len());
        for nth in order {
            let word = words[nth as usize];
            let choice = choose(word, &sharing);
            let (length, from) = (u16::try_from(word.len()), u32::try_from(bytes.len()));
            let (Some((class, first)), Ok(length), Ok(from)) = (choice, length, from) else {
                rest.push(nth);
                continue;
            };
            used[class] = true;
            for (offset, gram) in parts(word, CLASSES[class], first) {
                *sharing.entry(gram).or_default() += 1;
                entries.push(Entry {
                    gram,
                    from,
                    length,
                    offset: u16::try_from(offset).unwrap_or(length),
                    word: nth,
                });
            }
            bytes.extend_from_slice(word);
        }
        if entries.len() < LEAST {
            return (None, (0..).take(words.len()).collect());
        }
        let masks = |stride: usize| {
            let used = CLASSES.iter().zip(used).filter(|(class, used)| *used && class.stride == stride);
            used.map(|(class, _)| mask(class.width)).collect()
        };
        let (every, second) = (masks(1), masks(2));
        let bits = Bits::of(&entries);
        let shift = 64 - (entries.len() * 2).next_power_of_two().trailing_zeros().clamp(4, 24);
        let (starts, entries) = bucketed(&entries, shift);
        (Some(Self { bits, every, second, starts, shift, entries, words: bytes.into() }), rest)
    }

    pub(crate) fn memory(&self) -> usize {
        let bits = match &self.bits {
            Bits::Small(bits) => size_of_val(&**bits),
            Bits::Middle(bits) => size_of_val(&**bits),
            Bits::Large(bits) => size_of_val(&**bits),
        };
        bits + size_of_val(&*self.starts) + size_of_val(&*self.entries) + self.words.len()
    }

    pub(crate) fn scan(&self, text: &[u8], found: &mut impl FnMut(u32, usize) -> Next) -> Next {
        match &self.bits {
            Bits::Small(bits) => self.scan_with(bits, text, found),
            Bits::Middle(bits) => self.scan_with(bits, text, found),
            Bits::Large(bits) => self.scan_with(bits, text, found),
        }
    }

    fn scan_with<const N: usize>(
        &self,
        bits: &[u64; N],
        text: &[u8],
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        match *self.every.as_slice() {
            [] => self.scan_at(bits, [], text, found),
            [a] => self.scan_at(bits, [a], text, found),
            [a, b] => self.scan_at(bits, [a, b], text, found),
            [a, b, c] => self.scan_at(bits, [a, b, c], text, found),
            _ => Next::Go,
        }
    }

    fn scan_at<const N: usize, const E: usize>(
        &self,
        bits: &[u64; N],
        every: [u64; E],
        text: &[u8],
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        match *self.second.as_slice() {
            [] => self.probe(bits, every, [], text, found),
            [a] => self.probe(bits, every, [a], text, found),
            [a, b] => self.probe(bits, every, [a, b], text, found),
            _ => Next::Go,
        }
    }

    fn probe<const N: usize, const E: usize, const S: usize>(
        &self,
        bits: &[u64; N],
        every: [u64; E],
        second: [u64; S],
        text: &[u8],
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        let mut place = 0;
        for window in text.windows(WINDOW).step_by(BLOCK) {
            if let Ok(window) = window.try_into()
                && self.block(bits, every, second, window, text, place, found) == Next::Stop
            {
                return Next::Stop;
            }
            place += BLOCK;
        }
        // What is left has fewer bytes than a window, and may still hold words.
        while place < text.len() {
            let mut window = [0; WINDOW];
            let left = (text.len() - place).min(WINDOW);
            window[..left].copy_from_slice(&text[place..place + left]);
            if self.block(bits, every, second, &window, text, place, found) == Next::Stop {
                return Next::Stop;
            }
            place += BLOCK;
        }
        Next::Go
    }

    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all of them in registers, in the innermost loop")]
    fn block<const N: usize, const E: usize, const S: usize>(
        &self,
        bits: &[u64; N],
        every: [u64; E],
        second: [u64; S],
        window: &[u8; WINDOW],
        text: &[u8],
        place: usize,
        found: &mut impl FnMut(u32, usize) -> Next,
    ) -> Next {
        let mut eights = [0_u64; BLOCK];
        for (eight, bytes) in eights.iter_mut().zip(window.windows(8)) {
            let mut copy = [0; 8];
            copy.copy_from_slice(bytes);
            *eight = u64::from_le_bytes(copy);
        }
        let mut answers = 0_u64;
        for (k, mask) in every.iter().enumerate() {
            for (nth, eight) in eights.iter().enumerate() {
                answers |= bit(bits, hash(eight & mask)) << (k * BLOCK + nth);
            }
        }
        for (k, mask) in second.iter().enumerate() {
            for (nth, eight) in eights.iter().enumerate().step_by(2) {
                answers |= bit(bits, hash(eight & mask)) << ((E + k) * BLOCK + nth);
            }
        }
        while answers != 0 {
            let answer = answers.trailing_zeros() as usize;
            answers &= answers - 1;
            let (k, nth) = (answer / BLOCK, answer % BLOCK);
            let mask = if k < E { every[k] } else { second[k - E] };
            if self.look(eights[nth] & mask, text, place + nth, found) == Next::Stop {
                return Next::Stop;
            }
        }
        Next::Go
    }

    /// The words of which this part is at this place.
    fn look(&self, gram: u64, text: &[u8], place: usize, found: &mut impl FnMut(u32, usize) -> Next) -> Next {
        let bucket = usize::try_from(hash(gram) >> self.shift).unwrap_or_default();
        let entries = &self.entries[self.starts[bucket] as usize..self.starts[bucket + 1] as usize];
        for entry in entries.iter().filter(|entry| entry.gram == gram) {
            let Some(start) = place.checked_sub(entry.offset.into()) else { continue };
            let length = usize::from(entry.length);
            let word = &self.words[entry.from as usize..entry.from as usize + length];
            if text.get(start..start + length) == Some(word) && found(entry.word, start) == Next::Stop {
                return Next::Stop;
            }
        }
        Next::Go
    }
}

/// Where a part's word of the bit map is, and its two bits in it: two say no more often than one, and cost one look.
#[inline]
fn bits_of<const N: usize>(hash: u64) -> (usize, u32, u32) {
    // The highest bits are the best mixed; N is a power of two, so the mask keeps the index inside.
    let place = usize::try_from(hash >> (64 - N.trailing_zeros())).unwrap_or_default() & (N - 1);
    (place, (hash >> 32 & 63) as u32, (hash >> 26 & 63) as u32)
}

#[inline]
fn bit<const N: usize>(bits: &[u64; N], hash: u64) -> u64 {
    let (place, a, b) = bits_of::<N>(hash);
    let word = bits[place];
    word >> a & word >> b & 1
}

impl Bits {
    fn of(entries: &[Entry]) -> Self {
        // At least 32 bits an entry while the map fits into a core's own cache.
        match entries.len() {
            ..4_096 => Self::Small(filled(entries)),
            4_096..32_768 => Self::Middle(filled(entries)),
            _ => Self::Large(filled(entries)),
        }
    }
}

fn filled<const N: usize>(entries: &[Entry]) -> Box<[u64; N]> {
    // By way of a vector, because half a megabyte does not belong on the stack.
    let mut bits: Box<[u64; N]> =
        vec![0; N].into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("made with N words"));
    for entry in entries {
        let (place, a, b) = bits_of::<N>(hash(entry.gram));
        bits[place] |= 1 << a | 1 << b;
    }
    bits
}

/// The class (as a place in `CLASSES`) by which a word will be found, and where in the word its parts begin.
fn choose(word: &[u8], sharing: &HashMap<u64, u32>) -> Option<(usize, usize)> {
    let nth = CLASSES.iter().position(|class| class.least() <= word.len())?;
    let class = CLASSES[nth];
    let shared = |gram: u64| sharing.get(&gram).copied().unwrap_or_default();
    let crowd =
        |first: usize| parts(word, class, first).map(|(_, gram)| shared(gram)).max().unwrap_or_default();
    let common =
        |first: usize| parts(word, class, first).map(|(_, gram)| common(gram, class.width)).sum::<u32>();
    let first = (0..=word.len() - class.least()).min_by_key(|first| (crowd(*first), common(*first)))?;
    (crowd(first) < CROWD).then_some((nth, first))
}

/// The parts of a word from a place on, with their places.
fn parts(word: &[u8], class: Class, first: usize) -> impl Iterator<Item = (usize, u64)> {
    (first..first + class.stride).map(move |offset| (offset, at(word, offset, class.width)))
}

/// How common a part may be in texts, by the bytes in it.
fn common(gram: u64, width: usize) -> u32 {
    gram.to_le_bytes()[..width].iter().map(|byte| super::rarity::commonness(*byte)).sum()
}

/// The entries sorted by bucket, and where each bucket starts.
fn bucketed(entries: &[Entry], shift: u32) -> (Box<[u32]>, Box<[Entry]>) {
    let bucket = |entry: &Entry| hash(entry.gram) >> shift;
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
    (starts.into(), entries.into())
}
