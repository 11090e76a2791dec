//! Decodes the bytes of a file as UTF-8, and locates the first invalid byte.

use std::{
    fmt, io,
    str::{self, Utf8Error},
};

/// Position of the first byte that is not UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidUtf8 {
    /// Line, from 1.
    pub(super) line: u32,
    /// Column in characters, from 1.
    pub(super) column: usize,
    is_utf16: bool,
}

impl fmt::Display for InvalidUtf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_utf16 {
            return f.write_str("the text is UTF-16: save it as UTF-8");
        }
        write!(f, "column {}: invalid UTF-8: save the text as UTF-8", self.column)
    }
}

/// Reason why a file cannot be read as text.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    InvalidText(InvalidUtf8),
}

impl From<InvalidUtf8> for Unreadable {
    fn from(invalid_utf8: InvalidUtf8) -> Self {
        Self::InvalidText(invalid_utf8)
    }
}

pub(super) fn decode(bytes: Vec<u8>) -> Result<String, InvalidUtf8> {
    String::from_utf8(bytes).map_err(|error| locate_error(error.as_bytes(), error.utf8_error()))
}

pub(super) fn as_text(bytes: &[u8]) -> Result<&str, InvalidUtf8> {
    str::from_utf8(bytes).map_err(|error| locate_error(bytes, error))
}

fn locate_error(bytes: &[u8], error: Utf8Error) -> InvalidUtf8 {
    let valid_text = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
    // A byte order mark at the beginning is no character of the text.
    let before = valid_text.strip_prefix('\u{feff}').unwrap_or(&valid_text);
    let mut lines = before.split('\n');
    let last = lines.next_back().unwrap_or_default();
    InvalidUtf8 {
        line: u32::try_from(lines.count() + 1).unwrap_or(u32::MAX),
        column: last.chars().count() + 1,
        is_utf16: bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_byte_has_a_line_and_a_column() {
        let place = |bytes: &[u8]| decode(bytes.to_vec()).err().map(|it| (it.line, it.column));
        assert_eq!(place("\u{feff}\u{fc}\n".as_bytes()), None);
        assert_eq!(place(b"\xfc"), Some((1, 1)));
        assert_eq!(place(b"\xef\xbb\xbf\xfc"), Some((1, 1)));
        assert_eq!(place(b"a\r\nb\n\xfc\xfc"), Some((3, 1)));
        assert_eq!(
            place(
                "a\n\u{fc}\u{1f600}b"
                    .as_bytes()
                    .iter()
                    .chain(b"\xfc\n")
                    .copied()
                    .collect::<Vec<_>>()
                    .as_slice()
            ),
            Some((2, 4))
        );
        // A character that ends too early.
        assert_eq!(place(b"ab\xe2\x98"), Some((1, 3)));
    }

    #[test]
    fn utf_16_is_named() {
        for bytes in [&b"\xff\xfea\0"[..], b"\xfe\xff\0a"] {
            let said = decode(bytes.to_vec()).err().map(|it| it.to_string());
            assert_eq!(said.as_deref(), Some("the text is UTF-16: save it as UTF-8"));
        }
    }
}
