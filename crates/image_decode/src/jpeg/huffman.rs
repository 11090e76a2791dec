//! Huffman codes: reads their definitions, and builds tables that look up a code together with its value.

use super::bits::Bits;

/// Number of bits resolved by one look-up. Longer codes are rare.
const LOOKAHEAD_BITS: u32 = 11;

/// Number of codes readable after one fill of the bits.
pub(super) const CODES_PER_FILL: usize = 3;

/// Definition of a code: the number of words of each length, and the symbols in order.
#[derive(Clone)]
pub(super) struct Codes {
    counts: [u8; 16],
    symbols: [u8; 256],
}

impl Codes {
    /// Reads a definition, and returns it with the remaining bytes of the segment.
    pub(super) fn read(segment: &[u8]) -> Option<(Self, &[u8])> {
        let (counts, rest) = segment.split_first_chunk::<16>()?;
        let count = counts.iter().map(|count| usize::from(*count)).sum();
        let (symbols, rest) = rest.split_at_checked(count)?;
        Some((Self::new(*counts, symbols)?, rest))
    }

    pub(super) fn new(counts: [u8; 16], used_symbols: &[u8]) -> Option<Self> {
        let mut symbols = [0; 256];
        symbols.get_mut(..used_symbols.len())?.copy_from_slice(used_symbols);
        Some(Self { counts, symbols })
    }

    /// Returns the code for refinement scans, in which every new coefficient has one bit.
    pub(super) fn for_refinement(&self) -> Self {
        let mut codes = self.clone();
        for symbol in &mut codes.symbols {
            if *symbol & 15 > 1 {
                *symbol = *symbol & 0xf0 | 1;
            }
        }
        codes
    }

    /// True if all symbols are valid sizes of a first coefficient's difference.
    pub(super) fn are_sizes(&self) -> bool {
        self.symbols.iter().all(|symbol| *symbol < 16)
    }
}

/// Packed meaning of a code: number of bits to consume, number of coefficients to skip, and the value, or the size of a
/// value outside of the looked-up bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    const IS_OPEN: u32 = 0x80;
    const UNKNOWN: Self = Self(Self::IS_OPEN);

    fn new(code_length: u32, symbol: u8) -> Self {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        match (run, size) {
            (15, 0) => Self(code_length | 15 << 8),
            (_, 0) => Self(code_length | (BLOCK_END | run) << 8),
            _ => Self(code_length | Self::IS_OPEN | run << 8 | size << 16),
        }
    }

    /// Adds the value if the looked-up bits contain all of it.
    fn with_value(self, bits: u32) -> Self {
        let (length, size) = (self.length(), self.size());
        if !self.is_open() || length + size > LOOKAHEAD_BITS {
            return self;
        }
        let value = (bits >> (LOOKAHEAD_BITS - length - size)).cast_signed() & ((1 << size) - 1);
        let value = if value >> (size - 1) == 0 { value + (-1 << size) + 1 } else { value };
        Self((length + size) | self.0 & 0xff00 | value.cast_unsigned() << 16)
    }

    /// True if the value must be read after the code.
    #[inline(always)]
    fn is_open(self) -> bool {
        self.0 & Self::IS_OPEN != 0
    }

    #[inline(always)]
    fn length(self) -> u32 {
        self.0 & 0x3f
    }

    /// Number of coefficients to skip. At the end of a block: `BLOCK_END` plus the number of bits in the length of a run of
    /// blocks.
    #[inline(always)]
    pub(super) fn run(self) -> u32 {
        self.0 >> 8 & 0x7f
    }

    #[inline(always)]
    fn value(self) -> i32 {
        self.0.cast_signed() >> 16
    }

    #[inline(always)]
    fn size(self) -> u32 {
        self.0 >> 16
    }
}

pub(super) const BLOCK_END: u32 = 64;

pub(super) struct Table {
    entries: [Entry; 1 << LOOKAHEAD_BITS],
    /// For each length from 1: the bound above the last code, padded with zeros to 16 bits, and the difference between the
    /// index of a symbol and its code.
    longer_codes: [(u32, u32); 16],
    symbols: [u8; 256],
}

impl Table {
    /// Builds the table; `None` if the definition has more codes than fit.
    pub(super) fn new(codes: &Codes) -> Option<Box<Self>> {
        let mut table = Box::new(Self {
            entries: [Entry::UNKNOWN; 1 << LOOKAHEAD_BITS],
            longer_codes: [(0, 0); 16],
            symbols: codes.symbols,
        });
        let (mut code, mut place) = (0u32, 0u32);
        for (length, count) in (1..).zip(codes.counts) {
            let first = (code, place);
            code += u32::from(count);
            place += u32::from(count);
            // The standard reserves the code of all ones.
            if count > 0 && code >= 1 << length {
                return None;
            }
            table.longer_codes[length as usize - 1] = (code << (16 - length), first.1.wrapping_sub(first.0));
            if length <= LOOKAHEAD_BITS {
                for (code, place) in (first.0..code).zip(first.1..) {
                    // A code has at most 256 symbols, so the mask only spares the check of the bound.
                    let entry = Entry::new(length, codes.symbols[place as usize & 255]);
                    let free_bits = LOOKAHEAD_BITS - length;
                    for bits in code << free_bits..(code + 1) << free_bits {
                        table.entries[bits as usize] = entry.with_value(bits);
                    }
                }
            }
            code <<= 1;
        }
        Some(table)
    }

    /// Reads the next code and its value. The window must contain 32 bits. Refills it after a long value, so that
    /// `CODES_PER_FILL` codes can be read after each fill.
    #[inline(always)]
    fn next(&self, bits: &mut Bits<'_>) -> (Entry, i32) {
        let entry = self.look_up(bits);
        self.take_value(entry, bits)
    }

    /// Like `next`, with a fill that runs in parallel with the look-up. The window must contain `LOOKAHEAD_BITS`.
    #[inline(always)]
    pub(super) fn fill_and_next(&self, bits: &mut Bits<'_>) -> (Entry, i32) {
        let entry = self.look_up(bits);
        bits.fill();
        self.take_value(entry, bits)
    }

    /// Reads code number `code` of `CODES_PER_FILL`. The first one fills the window.
    #[inline(always)]
    pub(super) fn one_of_a_fill(&self, code: usize, bits: &mut Bits<'_>) -> (Entry, i32) {
        if code == 0 { self.fill_and_next(bits) } else { self.next(bits) }
    }

    #[inline(always)]
    fn look_up(&self, bits: &Bits<'_>) -> Entry {
        #[allow(clippy::cast_possible_truncation, reason = "11 bits at most")]
        return self.entries[bits.peek(LOOKAHEAD_BITS) as usize];
    }

    #[inline(always)]
    fn take_value(&self, entry: Entry, bits: &mut Bits<'_>) -> (Entry, i32) {
        if entry.is_open() {
            return self.take_open_value(entry, bits);
        }
        bits.skip(entry.length());
        (entry, entry.value())
    }

    #[inline(always)]
    fn take_open_value(&self, entry: Entry, bits: &mut Bits<'_>) -> (Entry, i32) {
        let entry = if entry == Entry::UNKNOWN { self.look_up_long(bits.peek(16)) } else { entry };
        bits.skip(entry.length());
        let value = if entry.is_open() { bits.value(entry.size()) } else { entry.value() };
        bits.fill();
        (entry, value)
    }

    #[cold]
    #[inline(never)]
    fn look_up_long(&self, bits: u64) -> Entry {
        #[allow(clippy::cast_possible_truncation, reason = "16 bits at most")]
        let bits = bits as u32;
        for (length, (above, place)) in (1..).zip(self.longer_codes).skip(LOOKAHEAD_BITS as usize) {
            if bits < above {
                let place = (bits >> (16 - length)).wrapping_add(place);
                return Entry::new(length, self.symbols[place as usize & 255]);
            }
        }
        // Like libjpeg: an invalid code counts as 0, after more bits than any code has.
        Entry::new(17, 0)
    }
}
