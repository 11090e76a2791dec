//! Computes the cost of the prefix codes of a lossless WebP. A hostile picture of one pixel can define 65,536 groups of
//! five codes each.
//!
//! Parses the stream like `image-webp`, up to the last code. The pixels of embedded pictures are skipped; only the largest
//! group number matters.

mod bits;
mod prefix;

use self::{
    bits::Bits,
    prefix::{Definition, Lengths, MAX_SYMBOLS},
};

/// Cost of prefix codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct CodeCost {
    /// Memory for the tables of one picture.
    pub(in super::super) bytes: u64,
    /// Time for building the tables, as a number of decoded pixels.
    pub(in super::super) pixels: u64,
}

/// Bytes of a group in addition to its tables. The groups are in a vector, which is copied whenever it grows.
const GROUP_BYTES: u64 = 1024;

/// Alphabet sizes without cached colours: green or lengths, red, blue, alpha, distances.
const ALPHABETS: [usize; 5] = [256 + 24, 256, 256, 256, 40];

/// Chunk type of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// `VP8L`, which states its own size.
    Chunk,
    /// `ALPH`, without its first byte.
    Alpha,
}

/// Returns the cost of a picture of at most the given size. Stops counting above `max_bytes`.
pub(super) fn code_cost(
    content: &[u8],
    kind: StreamKind,
    (width, height): (u32, u32),
    max_bytes: u64,
) -> CodeCost {
    let cost = CodeCost::default();
    let mut reader = Reader { bits: Bits::new(content), lengths: [0; MAX_SYMBOLS], cost, max_bytes };
    // The decoder also stops where the stream ends or is invalid, so the cost up to there is the total cost.
    reader.picture(kind, width as usize, height as usize);
    reader.cost
}

struct Reader<'a> {
    bits: Bits<'a>,
    lengths: Lengths,
    cost: CodeCost,
    max_bytes: u64,
}

impl Reader<'_> {
    fn picture(&mut self, kind: StreamKind, width: usize, height: usize) -> Option<()> {
        let (width, height) = match kind {
            StreamKind::Chunk => self.size().filter(|size| size.0 <= width && size.1 <= height)?,
            StreamKind::Alpha => (width, height),
        };
        let width = self.transforms(width, height)?;
        let cache = self.cache()?;
        let groups = if self.bits.read(1)? == 1 { self.blocks(width, height)? + 1 } else { 1 };
        for _ in 0..groups {
            self.cost.bytes = self.cost.bytes.saturating_add(GROUP_BYTES);
            for alphabet in alphabets(cache) {
                self.definition(alphabet)?;
            }
        }
        Some(())
    }

    fn size(&mut self) -> Option<(usize, usize)> {
        let is_marked = self.bits.read(8)? == 0x2f;
        let (width, height) = (self.bits.read(14)? + 1, self.bits.read(14)? + 1);
        let (_alpha, version) = (self.bits.read(1)?, self.bits.read(3)?);
        (is_marked && version == 0).then_some((width, height))
    }

    /// Reads the transforms and returns the width of the coded picture. With few colours, one pixel packs several indices.
    fn transforms(&mut self, mut width: usize, height: usize) -> Option<usize> {
        let mut seen_kinds = [false; 4];
        while self.bits.read(1)? == 1 {
            let kind = self.bits.read(2)?;
            // Each transform may occur once; decoders refuse a repetition.
            if std::mem::replace(seen_kinds.get_mut(kind)?, true) {
                return None;
            }
            if kind < 2 {
                self.blocks(width, height)?;
            } else if kind == 3 {
                let colours = self.bits.read(8)? + 1;
                self.image(colours)?;
                width = width.div_ceil(match colours {
                    1..=2 => 8,
                    3..=4 => 4,
                    5..=16 => 2,
                    _ => 1,
                });
            }
        }
        Some(width)
    }

    /// Skips a picture with one pixel for each block, and returns the largest number in it.
    fn blocks(&mut self, width: usize, height: usize) -> Option<usize> {
        let side = 4 << self.bits.read(3)?;
        self.image(width.div_ceil(side) * height.div_ceil(side))
    }

    /// Reads the number of symbols for cached colours.
    fn cache(&mut self) -> Option<usize> {
        if self.bits.read(1)? == 0 {
            return Some(0);
        }
        let bits = self.bits.read(4)?;
        (1..=11).contains(&bits).then_some(1 << bits)
    }

    /// Skips a picture and returns the largest number formed by red and green. Copied and cached pixels repeat earlier
    /// literals, so they cannot exceed the maximum.
    fn image(&mut self, pixels: usize) -> Option<usize> {
        let cache = self.cache()?;
        let mut codes = Vec::with_capacity(ALPHABETS.len());
        for alphabet in alphabets(cache) {
            codes.push(self.definition(alphabet)?.code(&self.lengths[..alphabet])?);
        }
        let [green, red, blue, alpha, distance] = &codes[..] else { return None };
        let (mut at, mut largest) = (0, 0);
        while at < pixels {
            let symbol = green.symbol(&mut self.bits)?;
            if symbol < 256 {
                largest = largest.max(red.symbol(&mut self.bits)? << 8 | symbol);
                blue.symbol(&mut self.bits)?;
                alpha.symbol(&mut self.bits)?;
                at += 1;
            } else if symbol < ALPHABETS[0] {
                at += self.number(symbol - 256)?;
                let symbol = distance.symbol(&mut self.bits)?;
                self.number(symbol)?;
            } else {
                at += 1;
            }
        }
        (at == pixels).then_some(largest)
    }

    /// Reads a length or a distance: a symbol with extra bits.
    fn number(&mut self, symbol: usize) -> Option<usize> {
        if symbol < 4 {
            return Some(symbol + 1);
        }
        let extra_bits = (symbol - 2) / 2;
        Some(((2 + symbol % 2) << extra_bits) + self.bits.read(extra_bits)? + 1)
    }

    /// Reads the definition of a code and adds its cost; `None` above the maximum.
    fn definition(&mut self, alphabet: usize) -> Option<Definition> {
        let listed_lengths = if Definition::is_simple(&self.bits) { 0 } else { alphabet };
        let definition = Definition::read(&mut self.bits, alphabet, &mut self.lengths)?;
        let bytes = definition.table_bytes();
        self.cost.bytes = self.cost.bytes.saturating_add(bytes);
        self.cost.pixels += build_pixels(listed_lengths, bytes);
        (self.cost.bytes <= self.max_bytes).then_some(definition)
    }
}

/// Returns the time for building a code, in pixels: for reading and sorting lengths, and for filling entries. An upper
/// bound: codes of eight kinds were measured to take at most a quarter of it.
fn build_pixels(listed_lengths: usize, bytes: u64) -> u64 {
    32 + 4 * listed_lengths as u64 + bytes.min(1 << 32) / 8
}

fn alphabets(cache: usize) -> [usize; 5] {
    let [green, smaller_alphabets @ ..] = ALPHABETS;
    let [red, blue, alpha, distance] = smaller_alphabets;
    [green + cache, red, blue, alpha, distance]
}

#[cfg(test)]
#[path = "../../../tests/it/support/bombs/lossless.rs"]
mod lossless;

#[cfg(test)]
mod tests {
    use super::{lossless::Before, *};

    #[test]
    fn codes_are_counted_to_the_byte_up_to_the_maximum() {
        let stream = lossless::stream(Before::Nothing, 500, lossless::Codes::Cache);
        let bytes = |max| code_cost(&stream, StreamKind::Alpha, (64, 64), max).bytes;
        let (of_group, of_blocks) = (GROUP_BYTES + 4 * 1024 + 2048 * 32, 3 * 16 + 2 * 4);
        assert_eq!(bytes(u64::MAX), 500 * of_group + of_blocks);
        assert_eq!(bytes(1 << 20), 15 * of_group + of_blocks);
    }
}
