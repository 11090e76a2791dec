//! Prefix codes of a lossless WebP: computes the memory of their tables in `image-webp`, and reads symbols.
//!
//! Accepts the same codes as `image-webp`, which are more than the format allows. Otherwise a code could escape the count.

use super::bits::Bits;

/// Size of the largest alphabet: literals, lengths and a cache of 2,048 colours.
pub(super) const MAX_SYMBOLS: usize = 256 + 24 + 2048;

/// Word length of each symbol. All codes share one buffer, because most of them are only counted.
pub(super) type Lengths = [u8; MAX_SYMBOLS];

/// Number of words of each length.
type Counts = [u32; 16];

/// Definition of a code in the file.
pub(super) enum Definition {
    One(u16),
    Two([u16; 2]),
    Many(Counts),
    /// More words than a code can have. The 16-bit sum of `image-webp` wraps and accepts it, and its tree can have any
    /// size.
    Overflow,
}

/// A code for reading symbols.
pub(super) enum Code {
    One(u16),
    Many(WordTable),
}

impl Definition {
    /// True if the next definition has no list of lengths.
    pub(super) fn is_simple(bits: &Bits<'_>) -> bool {
        bits.peek() & 1 == 1
    }

    /// Reads a definition and stores its lengths in `lengths`; `None` if it is invalid or the data ends.
    pub(super) fn read(bits: &mut Bits<'_>, alphabet: usize, lengths: &mut Lengths) -> Option<Self> {
        let lengths = lengths.get_mut(..alphabet)?;
        if bits.read(1)? == 1 {
            return Self::simple(bits, alphabet);
        }
        let counts = read_lengths(bits, lengths)?;
        Self::from_counts(counts, lengths)
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

    fn from_counts(counts: Counts, lengths: &[u8]) -> Option<Self> {
        // The only word of a code needs no bits, so its length is irrelevant.
        if counts.iter().sum::<u32>() == 1 {
            let symbol = lengths.iter().position(|length| *length > 0)?;
            return Some(Self::One(u16::try_from(symbol).ok()?));
        }
        let longest = counts.iter().rposition(|count| *count > 0)?;
        let words: u32 =
            (1..).zip(&counts[1..=longest]).map(|(length, count)| count << (longest + 1 - length)).sum();
        let complete_words = 2 << longest;
        if words == complete_words {
            Some(Self::Many(counts))
        } else {
            (words & 0xffff == complete_words & 0xffff).then_some(Self::Overflow)
        }
    }

    /// Returns the memory of the table (up to 10 bits, 4 bytes an entry) and of the tree for longer words (two nodes of 16
    /// bytes a word).
    pub(super) fn table_bytes(&self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Two(_) => 3 * 16 + 2 * 4,
            Self::Many(counts) => {
                let longest = counts.iter().rposition(|count| *count > 0).unwrap_or_default();
                let long_words: u32 = counts[11..].iter().sum();
                (4 << longest.min(10)) + 2 * 16 * u64::from(long_words)
            }
            Self::Overflow => u64::MAX,
        }
    }

    /// Builds the code from the lengths stored by `read`; `None` for an overflow.
    pub(super) fn code(self, lengths: &[u8]) -> Option<Code> {
        let (counts, symbols) = match self {
            Self::One(symbol) => return Some(Code::One(symbol)),
            Self::Two(symbols) => {
                let mut counts = Counts::default();
                counts[1] = 2;
                (counts, symbols.to_vec())
            }
            Self::Many(counts) => (counts, sort_symbols(lengths)),
            Self::Overflow => return None,
        };
        Some(Code::Many(WordTable::new(counts, symbols)))
    }
}

fn sort_symbols(lengths: &[u8]) -> Vec<u16> {
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

/// Number of bits resolved by one look-up.
const SHORT_BITS: usize = 7;

pub(super) struct WordTable {
    counts: Counts,
    /// Symbols in the order of their words.
    symbols: Vec<u16>,
    /// Indexed by the next bits. The low 12 bits are the symbol, the higher bits the length of its word; 0 for a longer
    /// word.
    short_words: Vec<u16>,
}

impl WordTable {
    fn new(counts: Counts, symbols: Vec<u16>) -> Self {
        let mut short_words = vec![0; 1 << SHORT_BITS];
        let (mut word, mut remaining_symbols) = (0_u8, symbols.iter());
        for (length, count) in (1_u16..).zip(&counts[1..=SHORT_BITS]) {
            for symbol in remaining_symbols.by_ref().take(*count as usize) {
                let entry = symbol | length << 12;
                let first = usize::from(word.reverse_bits() >> (8 - length));
                short_words[first..].iter_mut().step_by(1 << length).for_each(|slot| *slot = entry);
                word = word.wrapping_add(1);
            }
            word <<= 1;
        }
        Self { counts, symbols, short_words }
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let mut next_bits = bits.peek();
        let entry = usize::from(self.short_words[(next_bits & ((1 << SHORT_BITS) - 1)) as usize]);
        if entry > 0 {
            bits.consume(entry >> 12)?;
            return Some(entry & 0xfff);
        }
        // Canonical codes: words of one length are consecutive numbers. `first` is the first of them, `index` its symbol's
        // place.
        let (mut word, mut first, mut index) = (0, 0, 0);
        for (length, count) in (1..).zip(&self.counts[1..]) {
            word |= u32::from(next_bits & 1 == 1);
            if word < first + count {
                bits.consume(length)?;
                return self.symbols.get((index + word - first) as usize).map(|symbol| (*symbol).into());
            }
            index += count;
            first = (first + count) << 1;
            word <<= 1;
            next_bits >>= 1;
        }
        None
    }
}

/// Order of symbols in the definition of the code for lengths.
const ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Reads the lengths of a code and returns the count of each length above 0.
fn read_lengths(bits: &mut Bits<'_>, lengths: &mut [u8]) -> Option<Counts> {
    let (mut counts, mut code_lengths) = (Counts::default(), [0; ORDER.len()]);
    let count = 4 + bits.read(4)?;
    for symbol in ORDER.get(..count)? {
        let length = bits.read(3)?;
        code_lengths[*symbol] = u8::try_from(length).ok()?;
        counts[length] += u32::from(length > 0);
    }
    let code = Definition::from_counts(counts, &code_lengths)?.code(&code_lengths)?;
    counts = Counts::default();
    let mut remaining = lengths.len();
    if bits.read(1)? == 1 {
        let width = 2 + 2 * bits.read(3)?;
        remaining = bits.read(width).filter(|count| *count <= lengths.len() - 2)? + 2;
    }
    lengths.fill(0);
    if let Code::One(length @ ..16) = code {
        // Fast path: a file can define thousands of such codes in a few bytes, so their cost here must be small.
        lengths[..remaining].fill(u8::try_from(length).ok()?);
        counts[usize::from(length)] = u32::try_from(remaining).ok().filter(|_| length > 0)?;
        return Some(counts);
    }
    let (mut at, mut last) = (0, 8);
    while at < lengths.len() && remaining > 0 {
        remaining -= 1;
        let symbol = code.symbol(bits)?;
        let (length, repetitions) = match symbol {
            16 => (last, 3 + bits.read(2)?),
            17 => (0, 3 + bits.read(3)?),
            18 => (0, 11 + bits.read(7)?),
            length => (u8::try_from(length).ok()?, 1),
        };
        if length > 0 {
            last = length;
            counts[usize::from(length)] += u32::try_from(repetitions).ok()?;
        }
        lengths.get_mut(at..at + repetitions)?.fill(length);
        at += repetitions;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts with one word of every length up to 14, two of length 15, and `more` additional words of one bit.
    fn counts(more: u32) -> Counts {
        let mut counts = [1; 16];
        (counts[0], counts[1], counts[15]) = (0, 1 + more, 2);
        counts
    }

    #[test]
    fn overfull_code_is_detected_even_if_its_count_wraps() {
        let bytes =
            |more| Definition::from_counts(counts(more), &[]).map(|definition| definition.table_bytes());
        assert_eq!(bytes(0), Some(4 * 1024 + 6 * 32));
        assert_eq!(bytes(1), None);
        // Twice the number of words that fit: 0 in 16 bits.
        assert_eq!(bytes(2), Some(u64::MAX));
    }
}
