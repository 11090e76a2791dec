//! Prefix codes of a lossless WebP: the memory that their tables take in `image-webp`, and symbols read by them.
//!
//! The limits are those of `image-webp`, not of the format: what it accepts as a code must be accepted here.

use super::bits::Bits;

/// Size of the largest alphabet: literals, lengths and a cache of 2,048 colours.
pub(super) const MAX_SYMBOLS: usize = 256 + 24 + 2048;

/// Lengths of words by symbol. All codes share one buffer, because most of them are only counted.
pub(super) type Lengths = [u8; MAX_SYMBOLS];

/// Number of words of each length.
type Counts = [u32; 16];

/// A code as the file defines it.
pub(super) enum Definition {
    One(u16),
    Two([u16; 2]),
    Many(Counts),
    /// More words than fit. `image-webp` counts in 16 bits, which can hide that, and its tree may then have any size.
    Overflow,
}

/// A code that symbols are read with.
pub(super) enum Code {
    One(u16),
    Many(WordTable),
}

impl Definition {
    /// True if the next code is defined without a list of lengths.
    pub(super) fn is_simple(bits: &Bits<'_>) -> bool {
        bits.peek() & 1 == 1
    }

    /// Reads a definition and leaves the lengths in `lengths`; `None` if it breaks a rule or the data ends.
    pub(super) fn read(bits: &mut Bits<'_>, alphabet: usize, lengths: &mut Lengths) -> Option<Self> {
        let lengths = lengths.get_mut(..alphabet)?;
        if bits.read(1)? == 1 {
            return Self::simple(bits, alphabet);
        }
        let counts = read_lengths(bits, lengths)?;
        Self::of_counts(counts, lengths)
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

    fn of_counts(counts: Counts, lengths: &[u8]) -> Option<Self> {
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
            (words & 0xffff == whole & 0xffff).then_some(Self::Overflow)
        }
    }

    /// Returns the memory of a table of up to 10 bits, 4 bytes an entry, and of a tree for the longer words, two nodes of 16
    /// bytes a word.
    pub(super) fn table_bytes(&self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Two(_) => 3 * 16 + 2 * 4,
            Self::Many(counts) => {
                let longest = counts.iter().rposition(|count| *count > 0).unwrap_or_default();
                let long: u32 = counts[11..].iter().sum();
                (4 << longest.min(10)) + 2 * 16 * u64::from(long)
            }
            Self::Overflow => u64::MAX,
        }
    }

    /// Builds the code from the lengths that `read` left; `None` if symbols cannot be read with it.
    pub(super) fn code(self, lengths: &[u8]) -> Option<Code> {
        let (counts, symbols) = match self {
            Self::One(symbol) => return Some(Code::One(symbol)),
            Self::Two(symbols) => {
                let mut counts = Counts::default();
                counts[1] = 2;
                (counts, symbols.to_vec())
            }
            Self::Many(counts) => (counts, sorted(lengths)),
            Self::Overflow => return None,
        };
        Some(Code::Many(WordTable::new(counts, symbols)))
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

/// Bits of a word that one look-up resolves.
const SHORT: usize = 7;

pub(super) struct WordTable {
    counts: Counts,
    /// Symbols in the order of their words.
    symbols: Vec<u16>,
    /// Indexed by the next bits: a symbol, and above 12 bits the length of its word; 0 if the word is longer.
    short: Vec<u16>,
}

impl WordTable {
    fn new(counts: Counts, symbols: Vec<u16>) -> Self {
        let mut short = vec![0; 1 << SHORT];
        let (mut word, mut rest) = (0_u8, symbols.iter());
        for (length, count) in (1_u16..).zip(&counts[1..=SHORT]) {
            for symbol in rest.by_ref().take(*count as usize) {
                let entry = symbol | length << 12;
                let first = usize::from(word.reverse_bits() >> (8 - length));
                short[first..].iter_mut().step_by(1 << length).for_each(|slot| *slot = entry);
                word = word.wrapping_add(1);
            }
            word <<= 1;
        }
        Self { counts, symbols, short }
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let mut ahead = bits.peek();
        let entry = usize::from(self.short[(ahead & ((1 << SHORT) - 1)) as usize]);
        if entry > 0 {
            bits.consume(entry >> 12)?;
            return Some(entry & 0xfff);
        }
        // The word so far, the first word of its length, and the index of that word's symbol.
        let (mut word, mut first, mut index) = (0, 0, 0);
        for (length, count) in (1..).zip(&self.counts[1..]) {
            word |= u32::from(ahead & 1 == 1);
            if word < first + count {
                bits.consume(length)?;
                return self.symbols.get((index + word - first) as usize).map(|symbol| (*symbol).into());
            }
            index += count;
            first = (first + count) << 1;
            word <<= 1;
            ahead >>= 1;
        }
        None
    }
}

/// Order in which a file lists the lengths of the code that encodes lengths.
const ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Reads the lengths of a code and returns their counts, without that of 0.
fn read_lengths(bits: &mut Bits<'_>, lengths: &mut [u8]) -> Option<Counts> {
    let (mut counts, mut of_code) = (Counts::default(), [0; ORDER.len()]);
    let count = 4 + bits.read(4)?;
    for symbol in ORDER.get(..count)? {
        let length = bits.read(3)?;
        of_code[*symbol] = u8::try_from(length).ok()?;
        counts[length] += u32::from(length > 0);
    }
    let code = Definition::of_counts(counts, &of_code)?.code(&of_code)?;
    counts = Counts::default();
    let mut remaining = lengths.len();
    if bits.read(1)? == 1 {
        let width = 2 + 2 * bits.read(3)?;
        remaining = bits.read(width).filter(|more| *more <= lengths.len() - 2)? + 2;
    }
    lengths.fill(0);
    if let Code::One(length @ ..16) = code {
        // A shortcut: a file can define a thousand codes of this kind in hardly any bytes.
        lengths[..remaining].fill(u8::try_from(length).ok()?);
        counts[usize::from(length)] = u32::try_from(remaining).ok().filter(|_| length > 0)?;
        return Some(counts);
    }
    let (mut at, mut last) = (0, 8);
    while at < lengths.len() && remaining > 0 {
        remaining -= 1;
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

    /// Counts of a word of every length up to 15, the last one twice, and of some more of one bit.
    fn counts(more: u32) -> Counts {
        let mut counts = [1; 16];
        (counts[0], counts[1], counts[15]) = (0, 1 + more, 2);
        counts
    }

    #[test]
    fn overfull_code_is_detected_even_if_its_count_wraps() {
        let bytes =
            |more| Definition::of_counts(counts(more), &[]).map(|definition| definition.table_bytes());
        assert_eq!(bytes(0), Some(4 * 1024 + 6 * 32));
        assert_eq!(bytes(1), None);
        // Twice the words that fit, which is none in 16 bits.
        assert_eq!(bytes(2), Some(u64::MAX));
    }
}
