//! Geohashes: whether a text is one, in its canonical case.
//!
//! It does not compute with places.

/// Twelve characters are 37 mm wide; longer ones say nothing more.
const LONGEST: usize = 12;

/// True if the text is a geohash in lower case.
pub fn is_geohash(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text.bytes().all(|byte| {
            byte.is_ascii_digit() || (byte.is_ascii_lowercase() && !matches!(byte, b'a' | b'i' | b'l' | b'o'))
        })
}

/// The geohash in lower case, without surrounding space.
pub fn canonical(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    is_geohash(&lower).then_some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_no_a_i_l_o() {
        assert!(is_geohash("0123456789bc") && is_geohash("defghjkmnpqr") && is_geohash("stuvwxyz"));
        for wrong in ["", "a", "9i", "l0", "o", "U4PRU", "u4pr uyd", "u4pruydqqvj8z", "ü"] {
            assert!(!is_geohash(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn upper_case_is_folded() {
        assert_eq!(canonical(" U4PRUYDQQVJ "), Some("u4pruydqqvj".to_owned()));
        assert_eq!(canonical("La"), None);
    }
}
