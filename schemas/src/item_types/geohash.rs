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

/// The geohash in lower case, without surrounding space, cut to the characters that say something.
pub fn canonical(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    if lower.len() <= LONGEST {
        return is_geohash(&lower).then_some(lower);
    }
    // What is cut off must be of the alphabet, too: a longer text that is no geohash is refused, not shortened.
    let is_whole = lower.as_bytes().chunks(LONGEST).all(|part| str::from_utf8(part).is_ok_and(is_geohash));
    is_whole.then(|| lower[..LONGEST].to_owned())
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

    #[test]
    fn long_geohash_is_cut_to_its_cell() {
        assert_eq!(canonical("U4PRUYDQQVJ8ZZ"), Some("u4pruydqqvj8".to_owned()));
        assert_eq!(canonical(&"z".repeat(100)), Some("z".repeat(12)));
        for wrong in ["u4pruydqqvj8a", "u4pruydqqvj8 z", "u4pruydqqvj\u{e9}8"] {
            assert_eq!(canonical(wrong), None, "{wrong}");
        }
    }
}
