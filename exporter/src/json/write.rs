//! Appends JSON values and members to a byte buffer.

#![allow(clippy::cast_possible_truncation, reason = "a digit")]

/// Appends a string with its quotes, with the fewest escapes that JSON allows.
pub(crate) fn write_string(into: &mut Vec<u8>, text: &str) {
    into.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = find_escaped(rest) {
        into.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => into.extend_from_slice(b"\\\""),
            b'\\' => into.extend_from_slice(b"\\\\"),
            b'\n' => into.extend_from_slice(b"\\n"),
            b'\r' => into.extend_from_slice(b"\\r"),
            b'\t' => into.extend_from_slice(b"\\t"),
            other => into.extend_from_slice(format!("\\u{other:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    into.extend_from_slice(rest);
    into.push(b'"');
}

/// Returns the position of the first byte that JSON escapes.
#[inline]
fn find_escaped(text: &[u8]) -> Option<usize> {
    let (words, remainder) = text.as_chunks::<8>();
    let word_count = words.iter().take_while(|word| !has_escaped(u64::from_ne_bytes(**word))).count();
    let tail = if word_count < words.len() { &text[8 * word_count..] } else { remainder };
    tail.iter().position(|byte| is_escaped(*byte)).map(|at| text.len() - tail.len() + at)
}

#[inline]
fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\')
}

/// True if one of the eight bytes is escaped. A borrow can reach the byte above a match, which changes no result.
#[inline]
fn has_escaped(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    // The high bit of a byte is set if the byte is zero.
    let find_zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    let control = word.wrapping_sub(0x20 * ONES) & !word;
    let quote = find_zero(word ^ (u64::from(b'"') * ONES));
    let backslash = find_zero(word ^ (u64::from(b'\\') * ONES));
    (control | quote | backslash) & HIGH_BITS != 0
}

/// Writer of one object's members.
pub(crate) struct ObjectWriter<'o> {
    into: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> ObjectWriter<'o> {
    pub(crate) fn begin(into: &'o mut Vec<u8>) -> Self {
        into.push(b'{');
        Self { into, is_empty: true }
    }

    /// Appends a member's name and returns the buffer, to which the caller appends its value.
    pub(crate) fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.into.push(b',');
        }
        write_string(self.into, name);
        self.into.push(b':');
        self.into
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        write_string(self.key(name), value);
        self
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.key(name).extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    pub(crate) fn integer(&mut self, name: &str, value: u64) -> &mut Self {
        write_number(self.key(name), value);
        self
    }

    /// Appends a member with any serializable value. Map keys keep the order of the map.
    pub(crate) fn value(&mut self, name: &str, value: &impl serde::Serialize) -> &mut Self {
        let text = serde_json::to_vec(value).expect("maps with text keys and finite numbers are JSON");
        self.key(name).extend_from_slice(&text);
        self
    }

    pub(crate) fn end(self) {
        self.into.push(b'}');
    }
}

pub(crate) fn write_number(into: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

pub(crate) fn write_integer(into: &mut Vec<u8>, value: i64) {
    if value < 0 {
        into.push(b'-');
    }
    write_number(into, value.unsigned_abs());
}

/// Formats a value as 32 hexadecimal digits.
#[inline]
pub(crate) fn hex(value: u128) -> [u8; 32] {
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(value.to_be_bytes()) {
        pair[0] = byte >> 4;
        pair[1] = byte & 15;
    }
    // Computed without a table, so that the compiler vectorizes the loop.
    for digit in &mut text {
        *digit += b'0' + (u8::from(*digit > 9).wrapping_neg() & (b'a' - b'0' - 10));
    }
    text
}

pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_text_is_parsed_unchanged(value in any::<String>()) {
            let mut json = Vec::new();
            write_string(&mut json, &value);
            prop_assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), value);
        }

        #[test]
        fn escaped_byte_is_found_at_every_position(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(find_escaped(&bytes), bytes.iter().position(|byte| is_escaped(*byte)));
        }
    }

    #[test]
    fn each_byte_is_escaped_as_json_requires() {
        for byte in 0..=u8::MAX {
            for at in 0..17 {
                let mut bytes = [b'a'; 17];
                bytes[at] = byte;
                assert_eq!(find_escaped(&bytes), is_escaped(byte).then_some(at), "{byte} {at}");
            }
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for value in [0, 7, 10, 1_234_567, u64::MAX] {
            let mut json = Vec::new();
            write_number(&mut json, value);
            assert_eq!(json, value.to_string().into_bytes());
        }
        for value in [0, -1, 42, i64::MIN, i64::MAX] {
            let mut json = Vec::new();
            write_integer(&mut json, value);
            assert_eq!(json, value.to_string().into_bytes());
        }
        let mixed = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
        for value in [0, 0xab, mixed, u128::MAX] {
            assert_eq!(hex(value)[..], *format!("{value:032x}").as_bytes());
        }
    }
}
