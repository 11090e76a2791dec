//! Huffman codes: what a segment says of them, and tables that look up a code together with the value that follows it.

use super::bits::Bits;

/// Bits that are looked up at once. Longer codes are rare.
const AHEAD: u32 = 11;

/// Codes that can be read each time after the bits were filled up.
pub(super) const A_FILL: usize = 3;

/// Codes as a segment defines them: the number of codes of each length, and the symbols in order.
#[derive(Clone)]
pub(super) struct Codes {
    counts: [u8; 16],
    symbols: [u8; 256],
}

impl Codes {
    /// And what follows them in the segment.
    pub(super) fn read(segment: &[u8]) -> Option<(Self, &[u8])> {
        let (counts, rest) = segment.split_first_chunk::<16>()?;
        let count = counts.iter().map(|count| usize::from(*count)).sum();
        let (named, rest) = rest.split_at_checked(count)?;
        Some((Self::new(*counts, named)?, rest))
    }

    pub(super) fn new(counts: [u8; 16], named: &[u8]) -> Option<Self> {
        let mut symbols = [0; 256];
        symbols.get_mut(..named.len())?.copy_from_slice(named);
        Some(Self { counts, symbols })
    }

    /// Those of scans that refine, in which every new coefficient is one bit and its sign.
    pub(super) fn refining(&self) -> Self {
        let mut codes = self.clone();
        for symbol in &mut codes.symbols {
            if *symbol & 15 > 1 {
                *symbol = *symbol & 0xf0 | 1;
            }
        }
        codes
    }

    /// True if all symbols are sizes that a first coefficient's difference can have.
    pub(super) fn are_sizes(&self) -> bool {
        self.symbols.iter().all(|symbol| *symbol < 16)
    }
}

/// Meaning of a code, packed: number of bits to take, number of coefficients to pass, and the value, or its size if it is
/// not within the bits that were looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    const IS_OPEN: u32 = 0x80;
    const UNKNOWN: Self = Self(Self::IS_OPEN);

    fn new(code_length: u32, symbol: u8) -> Self {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        match (run, size) {
            (15, 0) => Self(code_length | 15 << 8),
            (_, 0) => Self(code_length | (END | run) << 8),
            _ => Self(code_length | Self::IS_OPEN | run << 8 | size << 16),
        }
    }

    /// Adds the value, if all of it follows the code within the bits.
    fn closed(self, bits: u32) -> Self {
        let (length, size) = (self.length(), self.size());
        if !self.is_open() || length + size > AHEAD {
            return self;
        }
        let value = (bits >> (AHEAD - length - size)).cast_signed() & ((1 << size) - 1);
        let value = if value >> (size - 1) == 0 { value + (-1 << size) + 1 } else { value };
        Self((length + size) | self.0 & 0xff00 | value.cast_unsigned() << 16)
    }

    /// The value must be read after the code.
    #[inline(always)]
    fn is_open(self) -> bool {
        self.0 & Self::IS_OPEN != 0
    }

    #[inline(always)]
    fn length(self) -> u32 {
        self.0 & 0x3f
    }

    /// Coefficients that are passed; `END` and how many bits tell the length of a run of blocks, if the block ends.
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

pub(super) const END: u32 = 64;

pub(super) struct Table {
    entries: [Entry; 1 << AHEAD],
    /// Bounds for each length from one: one above the last code, padded with zeros to 16 bits, and the symbol's index minus the
    /// code.
    longer: [(u32, u32); 16],
    symbols: [u8; 256],
}

impl Table {
    /// Builds the table; `None` if there are more codes than the bits can distinguish.
    pub(super) fn new(codes: &Codes) -> Option<Box<Self>> {
        let mut table = Box::new(Self {
            entries: [Entry::UNKNOWN; 1 << AHEAD],
            longer: [(0, 0); 16],
            symbols: codes.symbols,
        });
        let (mut code, mut place) = (0u32, 0u32);
        for (length, count) in (1..).zip(codes.counts) {
            let first = (code, place);
            code += u32::from(count);
            place += u32::from(count);
            // None is all ones.
            if count > 0 && code >= 1 << length {
                return None;
            }
            table.longer[length as usize - 1] = (code << (16 - length), first.1.wrapping_sub(first.0));
            if length <= AHEAD {
                for (code, place) in (first.0..code).zip(first.1..) {
                    let entry = Entry::new(length, codes.symbols[place as usize & 255]);
                    let same = AHEAD - length;
                    for bits in code << same..(code + 1) << same {
                        table.entries[bits as usize] = entry.closed(bits);
                    }
                }
            }
            code <<= 1;
        }
        Some(table)
    }

    /// The next code, and the value that follows it. There must be 32 bits; if more than a few are taken, they are filled
    /// up again, so that `A_FILL` codes can be read after each time that they were.
    #[inline(always)]
    fn next(&self, bits: &mut Bits<'_>) -> (Entry, i32) {
        let entry = self.look_up(bits);
        self.taken(entry, bits)
    }

    /// The same after the bits are filled up, which the look-up does not wait for: there must be `AHEAD` before.
    #[inline(always)]
    pub(super) fn fill_and_next(&self, bits: &mut Bits<'_>) -> (Entry, i32) {
        let entry = self.look_up(bits);
        bits.fill();
        self.taken(entry, bits)
    }

    /// The first of `A_FILL` codes fills up the bits.
    #[inline(always)]
    pub(super) fn one_of_a_fill(&self, code: usize, bits: &mut Bits<'_>) -> (Entry, i32) {
        if code == 0 { self.fill_and_next(bits) } else { self.next(bits) }
    }

    #[inline(always)]
    fn look_up(&self, bits: &Bits<'_>) -> Entry {
        #[allow(clippy::cast_possible_truncation, reason = "of few bits")]
        return self.entries[bits.peek(AHEAD) as usize];
    }

    #[inline(always)]
    fn taken(&self, entry: Entry, bits: &mut Bits<'_>) -> (Entry, i32) {
        if entry.is_open() {
            return self.open(entry, bits);
        }
        bits.skip(entry.length());
        (entry, entry.value())
    }

    #[inline(always)]
    fn open(&self, entry: Entry, bits: &mut Bits<'_>) -> (Entry, i32) {
        let entry = if entry == Entry::UNKNOWN { self.long(bits.peek(16)) } else { entry };
        bits.skip(entry.length());
        let value = if entry.is_open() { bits.value(entry.size()) } else { entry.value() };
        bits.fill();
        (entry, value)
    }

    #[cold]
    #[inline(never)]
    fn long(&self, bits: u64) -> Entry {
        #[allow(clippy::cast_possible_truncation, reason = "of 16 bits")]
        let bits = bits as u32;
        for (length, (above, place)) in (1..).zip(self.longer).skip(AHEAD as usize) {
            if bits < above {
                let place = (bits >> (16 - length)).wrapping_add(place);
                return Entry::new(length, self.symbols[place as usize & 255]);
            }
        }
        // As libjpeg: what is no code is taken for the one that says nothing, once its bits are longer than any.
        Entry::new(17, 0)
    }
}
