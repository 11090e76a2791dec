//! A prefix code of a lossless WebP: what its table takes in `image-webp`, and symbols read by it.
//!
//! The limits are those of `image-webp`, not of the format: what it takes for a code must be one here.

use super::bits::Bits;

/// Of the largest alphabet: literals, lengths and a cache of 2,048 colours.
pub(super) const MOST: usize = 256 + 24 + 2048;

/// Lengths of words by symbol: room that codes share, because most of them are only counted.
pub(super) type Lengths = [u8; MOST];

/// How many words there are of each length.
type Counts = [u32; 16];

/// A code as it is written.
pub(super) enum Written {
    One(u16),
    Two([u16; 2]),
    Many(Counts),
    /// More words than fit. `image-webp` counts in 16 bits, which can hide it, and its tree is of any size then.
    TooMany,
}

/// A code that symbols are read by.
pub(super) enum Code {
    One(u16),
    Many(Words),
}

impl Written {
    /// Without a list of lengths.
    pub(super) fn is_simple(bits: &Bits<'_>) -> bool {
        bits.ahead() & 1 == 1
    }

    /// Nothing where it breaks a rule or ends. Lengths are left in `lengths`.
    pub(super) fn read(bits: &mut Bits<'_>, alphabet: usize, lengths: &mut Lengths) -> Option<Self> {
        let lengths = lengths.get_mut(..alphabet)?;
        if bits.read(1)? == 1 {
            return Self::simple(bits, alphabet);
        }
        let counts = read_lengths(bits, lengths)?;
        Self::of(counts, lengths)
    }

    fn simple(bits: &mut Bits<'_>, alphabet: usize) -> Option<Self> {
        let (is_two, is_byte) = (bits.read(1)? == 1, bits.read(1)?);
        let mut symbol = |width| {
            let symbol = bits.read(width).filter(|symbol| *symbol < alphabet)?;
            u16::try_from(symbol).ok()
        };
        let first = symbol(1 + 7 * is_byte)?;
        Some(if is_two { Self::Two([first, symbol(8)?]) } else { Self::One(first) })
    }

    fn of(counts: Counts, lengths: &[u8]) -> Option<Self> {
        if counts.iter().sum::<u32>() == 1 {
            let symbol = lengths.iter().position(|length| *length > 0)?;
            return Some(Self::One(u16::try_from(symbol).ok()?));
        }
        let longest = counts.iter().rposition(|count| *count > 0)?;
        let words: u32 =
            (1..).zip(&counts[1..=longest]).map(|(length, count)| count << (longest + 1 - length)).sum();
        let whole = 2 << longest;
        if words == whole {
            Some(Self::Many(counts))
        } else {
            (words & 0xffff == whole & 0xffff).then_some(Self::TooMany)
        }
    }

    /// A table of up to 10 bits, each entry of 4 bytes, and a tree of the longer words, two nodes of 16 bytes a word.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Two(_) => 3 * 16 + 2 * 4,
            Self::Many(counts) => {
                let longest = counts.iter().rposition(|count| *count > 0).unwrap_or_default();
                let long: u32 = counts[11..].iter().sum();
                (4 << longest.min(10)) + 2 * 16 * u64::from(long)
            }
            Self::TooMany => u64::MAX,
        }
    }

    /// With the lengths that were left. Nothing of a code that nobody can read by.
    pub(super) fn code(self, lengths: &[u8]) -> Option<Code> {
        let (counts, symbols) = match self {
            Self::One(symbol) => return Some(Code::One(symbol)),
            Self::Two(symbols) => {
                let mut counts = Counts::default();
                counts[1] = 2;
                (counts, symbols.to_vec())
            }
            Self::Many(counts) => (counts, sorted(lengths)),
            Self::TooMany => return None,
        };
        Some(Code::Many(Words::new(counts, symbols)))
    }
}

fn sorted(lengths: &[u8]) -> Vec<u16> {
    let mut symbols: Vec<u16> =
        (0..).zip(lengths).filter(|(_, length)| **length > 0).map(|(at, _)| at).collect();
    symbols.sort_by_key(|symbol| lengths[usize::from(*symbol)]);
    symbols
}

impl Code {
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> Option<usize> {
        match self {
            Self::One(symbol) => Some((*symbol).into()),
            Self::Many(words) => words.symbol(bits),
        }
    }
}

/// Bits of a word that one look-up reads.
const SHORT: usize = 7;

pub(super) struct Words {
    counts: Counts,
    /// In the order of their words.
    symbols: Vec<u16>,
    /// By the next bits: a symbol, and above 12 bits the length of its word; 0 if that is longer.
    short: Vec<u16>,
}

impl Words {
    fn new(counts: Counts, symbols: Vec<u16>) -> Self {
        let mut short = vec![0; 1 << SHORT];
        let (mut word, mut left) = (0_u8, symbols.iter());
        for (length, count) in (1_u16..).zip(&counts[1..=SHORT]) {
            for symbol in left.by_ref().take(*count as usize) {
                let entry = symbol | length << 12;
                let first = usize::from(word.reverse_bits() >> (8 - length));
                short[first..].iter_mut().step_by(1 << length).for_each(|place| *place = entry);
                word = word.wrapping_add(1);
            }
            word <<= 1;
        }
        Self { counts, symbols, short }
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let mut ahead = bits.ahead();
        let entry = usize::from(self.short[(ahead & ((1 << SHORT) - 1)) as usize]);
        if entry > 0 {
            bits.pass(entry >> 12)?;
            return Some(entry & 0xfff);
        }
        // The word so far, the first one of its length, and where the symbols of that begin.
        let (mut word, mut first, mut place) = (0, 0, 0);
        for (length, count) in (1..).zip(&self.counts[1..]) {
            word |= u32::from(ahead & 1 == 1);
            if word < first + count {
                bits.pass(length)?;
                return self.symbols.get((place + word - first) as usize).map(|symbol| (*symbol).into());
            }
            place += count;
            first = (first + count) << 1;
            word <<= 1;
            ahead >>= 1;
        }
        None
    }
}

/// Lengths are written by a code of their own, whose lengths come in this order.
const ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// How many there are of each but 0.
fn read_lengths(bits: &mut Bits<'_>, lengths: &mut [u8]) -> Option<Counts> {
    let (mut counts, mut of_code) = (Counts::default(), [0; ORDER.len()]);
    let count = 4 + bits.read(4)?;
    for place in ORDER.get(..count)? {
        let length = bits.read(3)?;
        of_code[*place] = u8::try_from(length).ok()?;
        counts[length] += u32::from(length > 0);
    }
    let code = Written::of(counts, &of_code)?.code(&of_code)?;
    counts = Counts::default();
    let mut left = lengths.len();
    if bits.read(1)? == 1 {
        let width = 2 + 2 * bits.read(3)?;
        left = bits.read(width).filter(|more| *more <= lengths.len() - 2)? + 2;
    }
    lengths.fill(0);
    if let Code::One(length @ ..16) = code {
        // Bits are not asked for the same again: a thousand codes of this kind are hardly any bytes.
        lengths[..left].fill(u8::try_from(length).ok()?);
        counts[usize::from(length)] = u32::try_from(left).ok().filter(|_| length > 0)?;
        return Some(counts);
    }
    let (mut at, mut last) = (0, 8);
    while at < lengths.len() && left > 0 {
        left -= 1;
        let symbol = code.symbol(bits)?;
        let (length, repeated) = match symbol {
            16 => (last, 3 + bits.read(2)?),
            17 => (0, 3 + bits.read(3)?),
            18 => (0, 11 + bits.read(7)?),
            length => (u8::try_from(length).ok()?, 1),
        };
        if length > 0 {
            last = length;
            counts[usize::from(length)] += u32::try_from(repeated).ok()?;
        }
        lengths.get_mut(at..at + repeated)?.fill(length);
        at += repeated;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word of every length up to 15, the last one twice, and as many more of one bit.
    fn counts(more: u32) -> Counts {
        let mut counts = [1; 16];
        (counts[0], counts[1], counts[15]) = (0, 1 + more, 2);
        counts
    }

    #[test]
    fn a_code_has_as_many_words_as_fit_and_one_that_wraps_is_told() {
        let bytes = |more| Written::of(counts(more), &[]).map(|written| written.bytes());
        assert_eq!(bytes(0), Some(4 * 1024 + 6 * 32));
        assert_eq!(bytes(1), None);
        // Twice the words that fit, which is none in 16 bits.
        assert_eq!(bytes(2), Some(u64::MAX));
    }
}
