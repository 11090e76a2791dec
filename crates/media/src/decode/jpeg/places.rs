//! Bits of a mask by their order: where the first of them is, the second, and each other one.
//!
//! It is made without a branch, so that it costs the same for every mask.

/// The same of each byte, one place in each of eight bytes, the first one lowest.
const OF_BYTES: [u64; 256] = {
    let mut of_bytes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut at, mut moved) = (0, 0);
        while at < 8 {
            if byte >> at & 1 == 1 {
                of_bytes[byte] |= at << moved;
                moved += 8;
            }
            at += 1;
        }
        byte += 1;
    }
    of_bytes
};

/// Lists the positions of a mask's bits. As many entries are valid as the mask has bits.
#[inline(always)]
pub(super) fn list(mask: u64, places: &mut [u8; 64]) {
    let mut count = 0;
    for (at, byte) in (0..).zip(mask.to_le_bytes()) {
        let eight = OF_BYTES[usize::from(byte)] + 0x0808_0808_0808_0808 * at;
        if let Some(places) = places.get_mut(count..).and_then(<[u8]>::first_chunk_mut) {
            *places = eight.to_le_bytes();
        }
        count += byte.count_ones() as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_mask_has_its_place_in_order() {
        let mut mask: u64 = 1;
        for case in 0..2_000 {
            mask = mask.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let mask = [mask, mask & mask.rotate_left(7), mask | mask.rotate_left(7), !0, 0][case % 5];
            let expected: Vec<u8> = (0..64).filter(|at| mask >> at & 1 == 1).collect();
            let mut places = [0; 64];
            list(mask, &mut places);
            assert_eq!(places[..expected.len()], expected, "{mask:x}");
        }
    }
}
