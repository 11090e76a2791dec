//! Writes JSON text piece by piece.

#![allow(clippy::cast_possible_truncation, reason = "a digit")]

/// A string with its quotes. What need not be escaped is not.
pub(crate) fn text(into: &mut Vec<u8>, text: &str) {
    into.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')) {
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

/// An object that is being written.
pub(crate) struct Object<'o> {
    into: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> Object<'o> {
    pub(crate) fn begin(into: &'o mut Vec<u8>) -> Self {
        into.push(b'{');
        Self { into, first: true }
    }

    /// The name of a member; its value has to follow.
    pub(crate) fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.into.push(b',');
        }
        text(self.into, name);
        self.into.push(b':');
        self.into
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        text(self.key(name), value);
        self
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.key(name).extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    pub(crate) fn whole(&mut self, name: &str, value: u64) -> &mut Self {
        number(self.key(name), value);
        self
    }

    /// Any value; keys of maps are in their own order.
    pub(crate) fn value(&mut self, name: &str, value: &impl serde::Serialize) -> &mut Self {
        let text = serde_json::to_vec(value).expect("maps with text keys and finite numbers are JSON");
        self.key(name).extend_from_slice(&text);
        self
    }

    pub(crate) fn end(self) {
        self.into.push(b'}');
    }
}

pub(crate) fn number(into: &mut Vec<u8>, mut value: u64) {
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

/// 32 digits.
#[inline]
pub(crate) fn hex(value: u128) -> [u8; 32] {
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(value.to_be_bytes()) {
        pair[0] = byte >> 4;
        pair[1] = byte & 15;
    }
    // Calculated, not looked up, so that all are made at once.
    for digit in &mut text {
        *digit += b'0' + (u8::from(*digit > 9).wrapping_neg() & (b'a' - b'0' - 10));
    }
    text
}

pub(crate) fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_comes_back(said in any::<String>()) {
            let mut written = Vec::new();
            text(&mut written, &said);
            prop_assert_eq!(serde_json::from_slice::<String>(&written).unwrap(), said);
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for value in [0, 7, 10, 1_234_567, u64::MAX] {
            let mut written = Vec::new();
            number(&mut written, value);
            assert_eq!(written, value.to_string().into_bytes());
        }
        let mixed = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
        for value in [0, 0xab, mixed, u128::MAX] {
            assert_eq!(hex(value)[..], *format!("{value:032x}").as_bytes());
        }
    }
}
