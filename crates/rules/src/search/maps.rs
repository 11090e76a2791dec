//! Bit maps that reject most parts of a text because no word contains them. They may accept a part that no word contains,
//! but never reject one that a word contains.

/// Coarse map. Many places are looked up in it, so it should fit into the first or second level of a core's cache.
#[derive(Debug)]
pub(super) enum Coarse {
    Tiny(Box<[u64; 1 << 9]>),
    Small(Box<[u64; 1 << 12]>),
    Middle(Box<[u64; 1 << 14]>),
    Large(Box<[u64; 1 << 15]>),
    Huge(Box<[u64; 1 << 17]>),
}

/// Map for places that pass the coarse one: of whole parts, with at least 32 bits for each entry.
#[derive(Debug)]
pub(super) struct Fine {
    bits: Box<[u64]>,
    shift: u32,
}

/// Details of the places that pass the coarse map: which classes of parts have such a beginning, and whether as the first or
/// the second part of a key. One read tells which keys to check.
#[derive(Debug)]
pub(super) struct Marks {
    /// Cells: the lower bits are the classes, the upper two the parts. The length is a power of two.
    marks: Box<[u8]>,
}

/// Number of classes that are distinguished.
const MARKED_CLASSES: usize = 6;

#[inline]
pub(super) fn hash(gram: u64) -> u64 {
    gram.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Position of a part in the coarse map. A single bit, because places that pass wrongly are cheap to check.
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
    pub(super) fn new(beginnings: &[u64]) -> Self {
        match beginnings.len() {
            ..1_024 => Self::Tiny(fill_map(beginnings)),
            1_024..8_192 => Self::Small(fill_map(beginnings)),
            8_192..65_536 => Self::Middle(fill_map(beginnings)),
            65_536..524_288 => Self::Large(fill_map(beginnings)),
            _ => Self::Huge(fill_map(beginnings)),
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

fn fill_map<const N: usize>(beginnings: &[u64]) -> Box<[u64; N]> {
    // Built as a vector, because a megabyte could overflow the stack.
    let mut bits: Box<[u64; N]> =
        vec![0; N].into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("made with N words"));
    for beginning in beginnings {
        let (place, bit) = place_of::<N>(hash(*beginning));
        bits[place] |= 1 << bit;
    }
    bits
}

impl Marks {
    /// `owners`: class and part of each beginning.
    pub(super) fn new(beginnings: &[u64], owners: &[(usize, usize)]) -> Self {
        // With a single class there is no class to distinguish, so all beginnings share one cell.
        let has_one_class = owners.iter().all(|(class, _)| *class == 0);
        let cells =
            if has_one_class { 1 } else { beginnings.len().next_power_of_two().clamp(1 << 9, 1 << 20) };
        let mut marks = Self { marks: vec![0; cells].into() };
        for (beginning, (class, part)) in beginnings.iter().zip(owners) {
            let place = marks.place_of(hash(*beginning));
            marks.marks[place] |= 1 << class | 1 << (MARKED_CLASSES + part);
        }
        marks
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.marks)
    }

    /// Avoids the highest bits, which the coarse map uses, so that parts that collide there do not collide here.
    #[inline]
    fn place_of(&self, hash: u64) -> usize {
        usize::try_from(hash >> 42).unwrap_or_default() & (self.marks.len() - 1)
    }

    /// Classes and parts of a place, one bit for each combination.
    #[inline]
    pub(super) fn at(&self, hash: u64) -> u32 {
        let marks = u32::from(self.marks[self.place_of(hash)]);
        // Each class has two adjacent bits, one for each part; the product sets those of the parts that occur.
        SPREAD[marks as usize % SPREAD.len()] * (marks >> MARKED_CLASSES)
    }

    #[inline]
    pub(super) fn class_and_part(bit: u64) -> (usize, usize) {
        let bit = usize::try_from(bit).unwrap_or_default();
        (bit / 2, bit % 2)
    }
}

/// Bits with a free bit after each.
static SPREAD: [u32; 1 << MARKED_CLASSES] = {
    let mut spread = [0; 1 << MARKED_CLASSES];
    let mut bits = 0;
    while bits < spread.len() {
        let mut nth = 0;
        while nth < MARKED_CLASSES {
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
    pub(super) fn new(grams: &[u64]) -> Self {
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

    /// Two bits of one word. They reject more than one bit does, at the cost of one read.
    fn place_of(&self, hash: u64) -> (usize, u64) {
        let place = usize::try_from(hash >> self.shift).unwrap_or_default();
        (place, 1 << (hash >> 26 & 63) | 1 << (hash >> 20 & 63))
    }

    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let (place, bits) = self.place_of(hash);
        self.bits[place] & bits == bits
    }
}
