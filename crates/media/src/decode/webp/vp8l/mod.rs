//! Counts what the prefix codes of a lossless WebP cost its decoder: a picture of one pixel may have 65,536 groups of
//! five.
//!
//! The stream is read as `image-webp` reads it, as far as the last code. Pixels are read over: of the smaller pictures
//! before the codes, only the largest group number counts.

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
    /// Number of pixels that are decoded in the time that building the tables takes.
    pub(in super::super) pixels: u64,
}

/// Bytes of a group beside the tables of its codes. Groups lie in a vector, which is copied when it doubles.
const GROUP_BYTES: u64 = 1024;

/// Symbols of each code, without those for cached colours: green or lengths, red, blue, alpha, distances.
const ALPHABETS: [usize; 5] = [256 + 24, 256, 256, 256, 40];

/// Chunk that a stream comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// `VP8L`, whose head states its own size.
    Chunk,
    /// `ALPH`, without its first byte.
    Alpha,
}

/// Returns the cost of a picture that is no larger than the given size. Counting stops beyond `max_bytes`.
pub(super) fn code_cost(
    content: &[u8],
    kind: StreamKind,
    (width, height): (u32, u32),
    max_bytes: u64,
) -> CodeCost {
    let cost = CodeCost::default();
    let mut reader = Reader { bits: Bits::new(content), lengths: [0; MAX_SYMBOLS], cost, max_bytes };
    // Where the stream breaks a rule or ends, its decoder stops, too, so the cost so far is the cost of all.
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

    /// Reads the transforms and returns the width of what follows: with few colours, several indices share one pixel.
    fn transforms(&mut self, mut width: usize, height: usize) -> Option<usize> {
        let mut has = [false; 4];
        while self.bits.read(1)? == 1 {
            let kind = self.bits.read(2)?;
            if std::mem::replace(has.get_mut(kind)?, true) {
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

    /// Reads over a picture that has one pixel for each block.
    fn blocks(&mut self, width: usize, height: usize) -> Option<usize> {
        let side = 4 << self.bits.read(3)?;
        self.image(width.div_ceil(side) * height.div_ceil(side))
    }

    /// Reads the number of symbols that stand for cached colours.
    fn cache(&mut self) -> Option<usize> {
        if self.bits.read(1)? == 0 {
            return Some(0);
        }
        let bits = self.bits.read(4)?;
        (1..=11).contains(&bits).then_some(1 << bits)
    }

    /// Reads over a picture and returns the largest number that red and green make. Copied and cached pixels were literals
    /// before, so their sources do not matter.
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

    /// Reads a length or a distance, which is a symbol and the bits that follow.
    fn number(&mut self, symbol: usize) -> Option<usize> {
        if symbol < 4 {
            return Some(symbol + 1);
        }
        let extra = (symbol - 2) / 2;
        Some(((2 + symbol % 2) << extra) + self.bits.read(extra)? + 1)
    }

    /// Reads the definition of a code and counts its cost; `None` beyond the maximum.
    fn definition(&mut self, alphabet: usize) -> Option<Definition> {
        let listed = if Definition::is_simple(&self.bits) { 0 } else { alphabet };
        let definition = Definition::read(&mut self.bits, alphabet, &mut self.lengths)?;
        let bytes = definition.table_bytes();
        self.cost.bytes = self.cost.bytes.saturating_add(bytes);
        self.cost.pixels += build_pixels(listed, bytes);
        (self.cost.bytes <= self.max_bytes).then_some(definition)
    }
}

/// Returns the time for building a code, in pixels: lengths are read and sorted one by one, and entries filled. Measured
/// codes of eight kinds took at most a quarter of it.
fn build_pixels(listed: usize, bytes: u64) -> u64 {
    32 + 4 * listed as u64 + bytes.min(1 << 32) / 8
}

fn alphabets(cache: usize) -> [usize; 5] {
    let [green, others @ ..] = ALPHABETS;
    let [red, blue, alpha, distance] = others;
    [green + cache, red, blue, alpha, distance]
}

#[cfg(test)]
#[path = "../../../../tests/it/support/bombs/lossless.rs"]
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
