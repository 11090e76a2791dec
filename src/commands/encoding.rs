//! Bytes of a file as text: UTF-8, or where they are none.
//!
//! It opens no file, and does not know what the text says.

use std::{
    fmt, io,
    str::{self, Utf8Error},
};

/// The first place that is no UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misplaced {
    /// Line, from 1.
    pub(super) line: u32,
    /// Column in characters, from 1.
    pub(super) column: usize,
    is_utf16: bool,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_utf16 {
            return f.write_str("the text is UTF-16: save it as UTF-8");
        }
        write!(f, "column {}: no character of UTF-8 stands here: save the text as UTF-8", self.column)
    }
}

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("{0}")]
    Failed(#[from] io::Error),
    #[error("{0}")]
    NoText(Misplaced),
}

impl From<Misplaced> for Unreadable {
    fn from(misplaced: Misplaced) -> Self {
        Self::NoText(misplaced)
    }
}

pub(super) fn text(bytes: Vec<u8>) -> Result<String, Misplaced> {
    String::from_utf8(bytes).map_err(|error| misplaced(error.as_bytes(), error.utf8_error()))
}

pub(super) fn as_text(bytes: &[u8]) -> Result<&str, Misplaced> {
    str::from_utf8(bytes).map_err(|error| misplaced(bytes, error))
}

fn misplaced(bytes: &[u8], error: Utf8Error) -> Misplaced {
    let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
    // A mark at the beginning is no character of the text.
    let before = before.strip_prefix('\u{feff}').unwrap_or(&before);
    let mut lines = before.split('\n');
    let last = lines.next_back().unwrap_or_default();
    Misplaced {
        line: u32::try_from(lines.count() + 1).unwrap_or(u32::MAX),
        column: last.chars().count() + 1,
        is_utf16: bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_of_no_character_has_a_line_and_a_column() {
        let place = |bytes: &[u8]| text(bytes.to_vec()).err().map(|it| (it.line, it.column));
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
    fn utf_16_is_called_by_its_name() {
        for bytes in [&b"\xff\xfea\0"[..], b"\xfe\xff\0a"] {
            let said = text(bytes.to_vec()).err().map(|it| it.to_string());
            assert_eq!(said.as_deref(), Some("the text is UTF-16: save it as UTF-8"));
        }
    }
}
