//! Lists the positions of the set bits of a mask, in order.
//!
//! Works without branches on the bits, so that mispredictions do not add to the cost.

/// Positions for each value of a byte, packed in eight bytes, the first one lowest.
const BYTE_PLACES: [u64; 256] = {
    let mut byte_places = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut at, mut shift) = (0, 0);
        while at < 8 {
            if byte >> at & 1 == 1 {
                byte_places[byte] |= at << shift;
                shift += 8;
            }
            at += 1;
        }
        byte += 1;
    }
    byte_places
};

/// Lists the positions of the set bits. The number of valid entries equals the number of set bits.
#[inline(always)]
pub(super) fn list_places(mask: u64, places: &mut [u8; 64]) {
    let mut count = 0;
    for (at, byte) in (0..).zip(mask.to_le_bytes()) {
        let byte_places = BYTE_PLACES[usize::from(byte)] + 0x0808_0808_0808_0808 * at;
        if let Some(places) = places.get_mut(count..).and_then(<[u8]>::first_chunk_mut) {
            *places = byte_places.to_le_bytes();
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
            list_places(mask, &mut places);
            assert_eq!(places[..expected.len()], expected, "{mask:x}");
        }
    }
}
