//! Converts bytes to hexadecimal digits and back.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// Returns two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Reads exactly `N` bytes from digits of either case.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    decode_into(text, &mut bytes)?;
    Some(bytes)
}

/// Fills `bytes` from digits of either case. `None` unless there are exactly two digits for each byte.
pub fn decode_into(text: &str, bytes: &mut [u8]) -> Option<()> {
    let text = text.as_bytes();
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = value(digits[0])? << 4 | value(digits[1])?;
    }
    Some(())
}

const fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Serializes bytes for `#[serde(with = "hex")]`.
pub fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&hex(bytes))
}

/// Deserializes bytes for `#[serde(with = "hex")]`.
pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(from: D) -> Result<[u8; N], D::Error> {
    let text = Cow::<'de, str>::deserialize(from)?;
    decode(&text).ok_or_else(|| D::Error::custom(format_args!("not {} hexadecimal digits", 2 * N)))
}

/// Optional bytes, for `#[serde(with = "hex::optional")]`.
pub mod optional {
    use std::borrow::Cow;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer, const N: usize>(
        bytes: &Option<[u8; N]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::serialize(bytes, to),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        from: D,
    ) -> Result<Option<[u8; N]>, D::Error> {
        let Some(text) = Option::<Cow<'de, str>>::deserialize(from)? else { return Ok(None) };
        let bytes = super::decode(&text);
        bytes.map(Some).ok_or_else(|| D::Error::custom(format_args!("not {} hexadecimal digits", 2 * N)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_either_case_are_read_and_lower_case_is_written() {
        assert_eq!(hex(&[0x00, 0x9a, 0xff]), "009aff");
        assert_eq!(decode("009AfF"), Some([0x00, 0x9a, 0xff]));
        for text in ["009af", "009aff0", "009afg", "+09aff", "00 9af"] {
            assert_eq!(decode::<3>(text), None, "{text}");
        }
    }
}
