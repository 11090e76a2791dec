//! Validates geohashes and converts them to their canonical form.

/// Maximum length of a canonical geohash. A cell of twelve characters is 37 mm wide, finer than any positioning.
const MAX_CHARS: usize = 12;

/// True if the text is a geohash in lower case.
pub fn is_geohash(text: &str) -> bool {
    (1..=MAX_CHARS).contains(&text.len())
        && text.bytes().all(|byte| {
            byte.is_ascii_digit() || (byte.is_ascii_lowercase() && !matches!(byte, b'a' | b'i' | b'l' | b'o'))
        })
}

/// Returns the geohash in lower case, without surrounding space, cut to twelve characters.
pub fn canonical(text: &str) -> Option<String> {
    let lowercase = text.trim().to_ascii_lowercase();
    if lowercase.len() <= MAX_CHARS {
        return is_geohash(&lowercase).then_some(lowercase);
    }
    // The removed characters must be valid too: a longer text that is no geohash is refused, not shortened.
    let is_valid =
        lowercase.as_bytes().chunks(MAX_CHARS).all(|part| str::from_utf8(part).is_ok_and(is_geohash));
    is_valid.then(|| lowercase[..MAX_CHARS].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geohash_alphabet_lacks_a_i_l_o() {
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
