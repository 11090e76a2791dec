//! Hashes as lower-case hexadecimal text.
//!
//! Which bit of a hash stands where is its own kind's matter.

use std::fmt;

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Bytes that print as hexadecimal text.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            for digit in [byte >> 4, byte & 15] {
                fmt::Write::write_char(f, char::from(DIGITS[usize::from(digit)]))?;
            }
        }
        Ok(())
    }
}

/// Exactly `N` bytes, from digits of either case.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(bytes)
}

const fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

pub(crate) fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Hex(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(from: D) -> Result<[u8; N], D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
    decode(&text).ok_or_else(|| D::Error::custom(format_args!("not {} hexadecimal digits", 2 * N)))
}

/// For a hash that may be missing.
pub(crate) mod optional {
    use super::{Deserializer, Hex, Serializer, decode};
    use serde::{Deserialize as _, de::Error as _};

    pub(crate) fn serialize<S: Serializer, const N: usize>(
        bytes: &Option<[u8; N]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => to.collect_str(&Hex(bytes)),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        from: D,
    ) -> Result<Option<[u8; N]>, D::Error> {
        match Option::<std::borrow::Cow<'de, str>>::deserialize(from)? {
            None => Ok(None),
            Some(text) => decode(&text)
                .map(Some)
                .ok_or_else(|| D::Error::custom(format_args!("not {} hexadecimal digits", 2 * N))),
        }
    }
}
