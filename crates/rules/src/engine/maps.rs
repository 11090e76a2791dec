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

#[inline]
pub(super) fn hash(gram: u64) -> u64 {
    gram.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a part is in the coarse map: one bit, because what it lets pass too much is cheap to look at again.
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
