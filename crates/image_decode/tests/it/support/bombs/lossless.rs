//! Writes a lossless WebP bit by bit, with empty pixels and any number of code groups.

#![allow(dead_code, clippy::unwrap_used, clippy::cast_possible_truncation)]

/// Bits, from the lowest of each byte up.
#[derive(Clone, Default)]
struct Bits {
    bytes: Vec<u8>,
    left: u32,
}

impl Bits {
    fn put_bits(&mut self, value: u32, count: u32) {
        for bit in 0..count {
            if self.left == 0 {
                self.bytes.push(0);
                self.left = 8;
            }
            *self.bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (8 - self.left);
            self.left -= 1;
        }
    }

    /// A code of one symbol.
    fn one(&mut self, symbol: u8) {
        self.put_bits(0b101, 3);
        self.put_bits(symbol.into(), 8);
    }

    /// A code of two symbols with the words 0 and 1.
    fn two(&mut self, zero: u8, one: u8) {
        self.put_bits(0b111, 3);
        self.put_bits(zero.into(), 8);
        self.put_bits(one.into(), 8);
    }

    /// A code of the symbol 0, in four bits.
    fn zero(&mut self) {
        self.put_bits(1, 4);
    }

    /// A code of as many symbols as have words of one length, in nine bytes.
    fn uniform(&mut self, length: u32) {
        self.put_bits(0, 1);
        let place = ORDER.iter().position(|symbol| *symbol == length).unwrap() as u32;
        self.put_bits(place.max(3) - 3, 4);
        (0..=place.max(3)).for_each(|at| self.put_bits((at == place).into(), 3));
        self.put_bits(1, 1);
        self.put_bits(5, 3);
        self.put_bits((1 << length) - 2, 12);
    }

    /// A code with explicit lengths.
    fn of_lengths(&mut self, lengths: &[u8]) {
        self.put_bits(0b1_1110, 5);
        ORDER.iter().for_each(|symbol| self.put_bits(if *symbol < 16 { 4 } else { 0 }, 3));
        self.put_bits(0, 1);
        lengths.iter().for_each(|length| self.put_bits(u32::from(length.reverse_bits() >> 4), 4));
    }
}

const ORDER: [u32; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Codes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Of one symbol each.
    Least,
    /// Of all symbols of a cache of 2,048 colours: the most memory a byte.
    Cache,
    /// Of words of every length up to ten bits.
    Tables,
    /// Of all symbols, most of them with long words: the most memory a group.
    Trees,
}

/// Data before the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    /// One of each, which have pixels that are written, copied and cached, and make four pixels one.
    Transforms,
}

/// Both sides of every picture here.
pub(crate) const SIDE: u32 = 64;

/// The content of a chunk `VP8L`.
pub(crate) fn vp8l(before: Before, groups: u32, codes: Codes) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put_bits(0x2f, 8);
    bits.put_bits(SIDE - 1, 14);
    bits.put_bits(SIDE - 1, 14);
    bits.put_bits(0, 4);
    [bits.bytes, stream(before, groups, codes)].concat()
}

/// Writes the stream after the size: the number of groups stated by the last block, and pixels of zero bits.
pub(crate) fn stream(before: Before, groups: u32, codes: Codes) -> Vec<u8> {
    let mut bits = Bits::default();
    let width = if before == Before::Transforms { transforms(&mut bits) } else { SIDE };
    bits.put_bits(0, 1);
    bits.put_bits(1 | 11 << 1, 5);
    // Blocks of 4 x 4.
    bits.put_bits(1, 4);
    bits.put_bits(0, 1);
    let [low, high, ..] = (groups - 1).to_le_bytes();
    bits.two(low, 0);
    [high, 0, 0, 0].into_iter().for_each(|symbol| bits.one(symbol));
    (1..width / 4 * (SIDE / 4)).for_each(|_| bits.put_bits(1, 1));
    bits.put_bits(0, 1);
    (0..groups).for_each(|_| group(&mut bits, codes));
    bits.bytes.extend([0; (SIDE * SIDE * 2) as usize]);
    bits.bytes
}

/// Writes the transforms. Returns the remaining width.
fn transforms(bits: &mut Bits) -> u32 {
    // The predictor of each 4 x 4: one is written, 193 are copied, and the others are read from a cache of two colours.
    bits.put_bits(1, 6);
    bits.put_bits(1 | 1 << 1, 5);
    let mut green = [0; 256 + 24 + 2];
    (green[5], green[256 + 15], green[281]) = (1, 2, 2);
    bits.of_lengths(&green);
    (0..3).for_each(|_| bits.zero());
    bits.two(1, 13);
    bits.put_bits(0, 1);
    bits.put_bits(0b01, 2 + 6);
    // From one pixel before, as it is said for pictures without rows.
    bits.put_bits(1 | 24 << 1, 1 + 5);
    (1 + 193..256).for_each(|_| bits.put_bits(0b11, 2));
    // The colours of all, less green, and by a table of four.
    for (kind, more, length) in [(1, 7, 3), (2, 0, 0), (3, 3, 8)] {
        bits.put_bits(1 | kind << 1, 3);
        bits.put_bits(more, length);
        if length > 0 {
            bits.put_bits(0, 1);
            (0..5).for_each(|_| bits.zero());
        }
    }
    SIDE / 4
}

fn group(bits: &mut Bits, codes: Codes) {
    match codes {
        Codes::Least => (0..5).for_each(|_| bits.zero()),
        Codes::Cache => {
            bits.uniform(11);
            (0..4).for_each(|_| bits.zero());
        }
        Codes::Tables => {
            for alphabet in [256 + 24 + 2048, 256, 256, 256, 40] {
                let mut lengths = [0; 2328];
                lengths[..11].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]);
                bits.of_lengths(&lengths[..alphabet]);
            }
        }
        Codes::Trees => [256 + 24 + 2048, 256, 256, 256, 40].into_iter().for_each(|alphabet| {
            bits.of_lengths(&longest(alphabet));
        }),
    }
}

/// Lengths of a code of all symbols with the longest possible words.
fn longest(alphabet: usize) -> Vec<u8> {
    let mut free = 1_u32 << 15;
    let length_of = |at| {
        let remaining_symbols = (alphabet - 1 - at) as u32;
        let length = (1..15).find(|length| free - remaining_symbols >= 1 << (15 - length)).unwrap_or(15);
        free -= 1 << (15 - length);
        length
    };
    (0..alphabet).map(length_of).collect()
}
