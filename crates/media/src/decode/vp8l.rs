//! What the prefix codes of a lossless WebP cost its decoder: a picture of one pixel may have 65,536 groups of five.
//!
//! The stream is read as `image-webp` reads it, as far as the last code. Nothing is kept of its pixels: of the smaller
//! pictures before the codes only the largest number of a group counts.

mod bits;
mod prefix;

use self::{
    bits::Bits,
    prefix::{Code, Lengths, MOST, Written},
};

/// What codes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Codes {
    /// Memory for the tables of one picture.
    pub(super) bytes: u64,
    /// How many pixels are decoded in the time that building them takes.
    pub(super) pixels: u64,
}

/// Bytes of a group beside the tables of its codes: it lies in a list that doubles, and is copied then.
const GROUP_BYTES: u64 = 1024;

/// Symbols of a code beside colours of a cache: literals or lengths and green, red, blue, alpha, distances.
const ALPHABETS: [usize; 5] = [256 + 24, 256, 256, 256, 40];

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A chunk `VP8L`, with a head that says its own size.
    Chunk,
    /// `ALPH`, behind its first byte.
    Alpha,
}

/// Of a picture of a size that is allowed, or one that is no larger. What is beyond `most` bytes is not read.
pub(super) fn codes(content: &[u8], place: Place, (width, height): (u32, u32), most: u64) -> Codes {
    let mut reader = Reader { bits: Bits::new(content), lengths: [0; MOST], codes: Codes::default(), most };
    // Where it breaks a rule or ends, its decoder ends, too: what was counted so far is what it takes.
    reader.picture(place, width as usize, height as usize);
    reader.codes
}

struct Reader<'a> {
    bits: Bits<'a>,
    lengths: Lengths,
    codes: Codes,
    most: u64,
}

impl Reader<'_> {
    fn picture(&mut self, place: Place, width: usize, height: usize) -> Option<()> {
        let (width, height) = match place {
            Place::Chunk => self.size().filter(|size| size.0 <= width && size.1 <= height)?,
            Place::Alpha => (width, height),
        };
        let width = self.transforms(width, height)?;
        let cache = self.cache()?;
        let groups = if self.bits.read(1)? == 1 { self.blocks(width, height)? + 1 } else { 1 };
        for _ in 0..groups {
            self.codes.bytes = self.codes.bytes.saturating_add(GROUP_BYTES);
            for alphabet in alphabets(cache) {
                self.written(alphabet)?;
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

    /// The width of what follows: several indices into a table of few colours are one pixel.
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

    /// A picture of a pixel for each block.
    fn blocks(&mut self, width: usize, height: usize) -> Option<usize> {
        let side = 4 << self.bits.read(3)?;
        self.image(width.div_ceil(side) * height.div_ceil(side))
    }

    /// How many symbols stand for colours of the cache.
    fn cache(&mut self) -> Option<usize> {
        if self.bits.read(1)? == 0 {
            return Some(0);
        }
        let bits = self.bits.read(4)?;
        (1..=11).contains(&bits).then_some(1 << bits)
    }

    /// Reads over a picture; the largest number in its red and green. What is copied from elsewhere in it, or from the
    /// cache, was a literal before, so where it comes from does not matter.
    fn image(&mut self, pixels: usize) -> Option<usize> {
        let cache = self.cache()?;
        let mut codes = Vec::with_capacity(ALPHABETS.len());
        for alphabet in alphabets(cache) {
            codes.push(self.written(alphabet)?.code(&self.lengths[..alphabet])?);
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
                self.copied_from(distance)?;
            } else {
                at += 1;
            }
        }
        (at == pixels).then_some(largest)
    }

    fn copied_from(&mut self, distance: &Code) -> Option<()> {
        let symbol = distance.symbol(&mut self.bits)?;
        self.number(symbol).map(drop)
    }

    /// A length or a distance: the symbol, and bits that follow.
    fn number(&mut self, symbol: usize) -> Option<usize> {
        if symbol < 4 {
            return Some(symbol + 1);
        }
        let more = (symbol - 2) / 2;
        Some(((2 + symbol % 2) << more) + self.bits.read(more)? + 1)
    }

    fn written(&mut self, alphabet: usize) -> Option<Written> {
        let listed = if Written::is_simple(&self.bits) { 0 } else { alphabet };
        let written = Written::read(&mut self.bits, alphabet, &mut self.lengths)?;
        let bytes = written.bytes();
        self.codes.bytes = self.codes.bytes.saturating_add(bytes);
        self.codes.pixels += pixels(listed, bytes);
        (self.codes.bytes <= self.most).then_some(written)
    }
}

/// Lengths are read and sorted one by one, and entries filled. Codes of eight kinds took a quarter of it at most.
fn pixels(listed: usize, bytes: u64) -> u64 {
    32 + 4 * listed as u64 + bytes.min(1 << 32) / 8
}

fn alphabets(cache: usize) -> [usize; 5] {
    let [green, others @ ..] = ALPHABETS;
    let [red, blue, alpha, distance] = others;
    [green + cache, red, blue, alpha, distance]
}

#[cfg(test)]
#[path = "../../tests/bombs/lossless.rs"]
mod lossless;

#[cfg(test)]
mod tests {
    use super::{lossless::Before, *};

    #[test]
    fn codes_are_counted_to_the_byte_and_no_further_than_asked_for() {
        let stream = lossless::stream(Before::Nothing, 500, lossless::Codes::Cache);
        let bytes = |most| codes(&stream, Place::Alpha, (64, 64), most).bytes;
        let (of_group, of_blocks) = (GROUP_BYTES + 4 * 1024 + 2048 * 32, 3 * 16 + 2 * 4);
        assert_eq!(bytes(u64::MAX), 500 * of_group + of_blocks);
        assert_eq!(bytes(1 << 20), 15 * of_group + of_blocks);
    }
}
