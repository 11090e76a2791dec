//! Searches in texts: for many words at once, and the properties of patterns before they run.

pub(crate) mod grams;
pub(crate) mod hashing;
pub(crate) mod kept_states;
mod keys;
pub(crate) mod literals;
mod maps;
mod passes;
pub(crate) mod pattern;
pub(crate) mod scanner;
pub(crate) mod width;
mod worst_case;

/// Answer of a visitor to a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanControl {
    /// Reports the next hit.
    Continue,
    /// Stops the scan.
    Stop,
}

/// Start of each of several adjacent lists with these lengths, and the end of the last.
pub(crate) fn starts(lengths: impl Iterator<Item = usize>) -> Box<[u32]> {
    let mut at = 0;
    let mut starts = vec![0];
    for length in lengths {
        at += length;
        starts.push(u32::try_from(at).unwrap_or(u32::MAX));
    }
    starts.into()
}

/// Length of a typical text in bytes, for estimates of likelihoods.
const TYPICAL_TEXT_BYTES: f32 = 300.0;

/// Twice the binary logarithm of the occurrences of a byte in a million bytes of text, approximately.
pub(crate) fn commonness(byte: u8) -> u32 {
    match byte {
        b' ' => 35,
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' => 32,
        b's' | b'r' | b'h' | b'l' | b'd' | b'u' => 31,
        b'c' | b'm' | b'w' | b'f' | b'g' | b'y' | b'p' | b'b' => 28,
        b'v' | b'k' => 26,
        b'0'..=b'9' | b'.' | b',' => 24,
        b'j' | b'x' | b'q' | b'z' => 21,
        b'!' | b'?' | b'-' | b'\'' | b'/' | b':' => 22,
        0x80.. => 27,
        _ => 16,
    }
}

/// Estimated likelihood that a text contains this piece, from its bytes. It only orders choices: a wrong estimate costs time
/// and never changes an outcome.
pub(crate) fn likelihood(piece: &[u8]) -> f32 {
    let bits: f32 =
        piece.iter().map(|byte| 20.0 - f32::from(u8::try_from(commonness(*byte)).unwrap_or(40)) / 2.0).sum();
    (TYPICAL_TEXT_BYTES * (-bits).exp2()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_and_stranger_pieces_are_less_likely() {
        assert!(likelihood(b"the") > likelihood(b"there") && likelihood(b"sate") > likelihood(b"jazz"));
        assert!(likelihood(b"e") > 0.99 && likelihood(b"qzjxqzjx") < 1e-6);
    }
}
