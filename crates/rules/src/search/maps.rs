//! Maps of bits that say of most parts of a text that no word has them.
//!
//! They may take a part for one that a word has, and never the other way round.

/// Many places are held against it, so it should fit into a core's nearest cache, or the one behind it.
#[derive(Debug)]
pub(super) enum Coarse {
    Tiny(Box<[u64; 1 << 9]>),
    Small(Box<[u64; 1 << 12]>),
    Middle(Box<[u64; 1 << 14]>),
    Large(Box<[u64; 1 << 15]>),
    Huge(Box<[u64; 1 << 17]>),
}

/// The map for places that the coarse one lets pass: of whole parts, with at least 32 bits an entry.
#[derive(Debug)]
pub(super) struct Fine {
    bits: Box<[u64]>,
    shift: u32,
}

/// Contents of the places that the coarse map knows: which classes of parts have such a beginning, and whether
/// as the first part of a key or as the second. One look says which keys are worth another.
#[derive(Debug)]
pub(super) struct Marks {
    /// Cells: the lower bits are the classes, the upper two the parts. A power of two.
    marks: Box<[u8]>,
}

/// Classes that are told apart.
const MARKED: usize = 6;

#[inline]
pub(super) fn hash(gram: u64) -> u64 {
    gram.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Position of a part in the coarse map: one bit, because what it lets pass too much is cheap to look at again.
#[inline]
fn place_of<const N: usize>(hash: u64) -> (usize, u32) {
    // The highest bits are the best mixed; N is a power of two, so the mask keeps the index inside.
    let place = usize::try_from(hash >> (64 - N.trailing_zeros())).unwrap_or_default() & (N - 1);
    (place, (hash >> 32 & 63) as u32)
}

#[inline]
pub(super) fn bit<const N: usize>(bits: &[u64; N], hash: u64) -> u64 {
    let (place, bit) = place_of::<N>(hash);
    bits[place] >> bit & 1
}

impl Coarse {
    pub(super) fn of(beginnings: &[u64]) -> Self {
        match beginnings.len() {
            ..1_024 => Self::Tiny(filled(beginnings)),
            1_024..8_192 => Self::Small(filled(beginnings)),
            8_192..65_536 => Self::Middle(filled(beginnings)),
            65_536..524_288 => Self::Large(filled(beginnings)),
            _ => Self::Huge(filled(beginnings)),
        }
    }

    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Tiny(bits) => size_of_val(&**bits),
            Self::Small(bits) => size_of_val(&**bits),
            Self::Middle(bits) => size_of_val(&**bits),
            Self::Large(bits) => size_of_val(&**bits),
            Self::Huge(bits) => size_of_val(&**bits),
        }
    }
}

fn filled<const N: usize>(beginnings: &[u64]) -> Box<[u64; N]> {
    // By way of a vector, because a megabyte does not belong on the stack.
    let mut bits: Box<[u64; N]> =
        vec![0; N].into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("made with N words"));
    for beginning in beginnings {
        let (place, bit) = place_of::<N>(hash(*beginning));
        bits[place] |= 1 << bit;
    }
    bits
}

impl Marks {
    /// Class and part of each beginning.
    pub(super) fn of(beginnings: &[u64], of: &[(usize, usize)]) -> Self {
        let one = of.iter().all(|(class, _)| *class == 0);
        let room = if one { 1 } else { beginnings.len().next_power_of_two().clamp(1 << 9, 1 << 20) };
        let mut marks = Self { marks: vec![0; room].into() };
        for (beginning, (class, part)) in beginnings.iter().zip(of) {
            let place = marks.place_of(hash(*beginning));
            marks.marks[place] |= 1 << class | 1 << (MARKED + part);
        }
        marks
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.marks)
    }

    /// Not the highest bits, by which the coarse map goes: what shares a place there should not share one here.
    #[inline]
    fn place_of(&self, hash: u64) -> usize {
        usize::try_from(hash >> 42).unwrap_or_default() & (self.marks.len() - 1)
    }

    /// Classes and parts that a place may be of: a bit for each.
    #[inline]
    pub(super) fn at(&self, hash: u64) -> u32 {
        let marks = u32::from(self.marks[self.place_of(hash)]);
        // Each class twice, side by side, as far as it is either part.
        SPREAD[marks as usize % SPREAD.len()] * (marks >> MARKED)
    }

    #[inline]
    pub(super) fn class_and_part(bit: u64) -> (usize, usize) {
        let bit = usize::try_from(bit).unwrap_or_default();
        (bit / 2, bit % 2)
    }
}

/// Bits with room for another behind each.
static SPREAD: [u32; 1 << MARKED] = {
    let mut spread = [0; 1 << MARKED];
    let mut bits = 0;
    while bits < spread.len() {
        let mut nth = 0;
        while nth < MARKED {
            if bits >> nth & 1 == 1 {
                spread[bits] |= 1 << (2 * nth);
            }
            nth += 1;
        }
        bits += 1;
    }
    spread
};

impl Fine {
    pub(super) fn of(grams: &[u64]) -> Self {
        let words = (grams.len() / 2).next_power_of_two().clamp(1 << 6, 1 << 22);
        let mut fine = Self { bits: vec![0; words].into(), shift: 64 - words.trailing_zeros() };
        for gram in grams {
            let (place, bits) = fine.place_of(hash(*gram));
            fine.bits[place] |= bits;
        }
        fine
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.bits)
    }

    /// Two bits of one word: two say no more often than one, and cost one look.
    fn place_of(&self, hash: u64) -> (usize, u64) {
        let place = usize::try_from(hash >> self.shift).unwrap_or_default();
        (place, 1 << (hash >> 26 & 63) | 1 << (hash >> 20 & 63))
    }

    #[inline]
    pub(super) fn holds(&self, hash: u64) -> bool {
        let (place, bits) = self.place_of(hash);
        self.bits[place] & bits == bits
    }
}
