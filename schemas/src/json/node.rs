//! Reads values of a scanned text without copying. Only a scan creates nodes, so the text is known to be valid JSON.

use std::{borrow::Cow, ops::Range};

use super::{ESCAPED, Entry};

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Bool(bool),
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    /// Returns the name with its article, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// One value of a scanned text.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(super) text: &'a str,
    pub(super) tape: &'a [Entry],
    pub(super) index: u32,
}

impl<'a> Node<'a> {
    fn entry(&self) -> Entry {
        self.tape[self.index as usize]
    }

    /// Returns the index of the value in its text.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the value of the same text with this index.
    #[must_use]
    pub fn node_at(&self, index: u32) -> Self {
        Self { index, ..*self }
    }

    /// Returns the value's range in the scanned text.
    pub fn range(&self) -> Range<usize> {
        let entry = self.entry();
        entry.start as usize..(entry.end & !ESCAPED) as usize
    }

    /// Returns the bytes of the value, quotes included.
    pub fn raw(&self) -> &'a [u8] {
        self.source_text().as_bytes()
    }

    /// Returns the value as it stands in the text.
    fn source_text(&self) -> &'a str {
        &self.text[self.range()]
    }

    pub fn kind(&self) -> Kind {
        // The first byte determines the kind, so the tape does not store it.
        match self.text.as_bytes()[self.entry().start as usize] {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' => Kind::Bool(true),
            b'f' => Kind::Bool(false),
            b'n' => Kind::Null,
            _ => Kind::Number,
        }
    }

    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// Returns the text of a string, borrowed unless it has escapes. `None` for other kinds.
    pub fn str(&self) -> Option<Cow<'a, str>> {
        (self.kind() == Kind::String).then(|| self.unquoted())
    }

    /// Returns the digits of a number as the client wrote them. `None` for other kinds.
    pub fn number(&self) -> Option<&'a str> {
        (self.kind() == Kind::Number).then(|| self.source_text())
    }

    /// Returns the members of an array. Empty for other kinds.
    pub fn elements(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let node = *self;
        // An end of 0 stops the iteration at once: a scalar has no members on the tape.
        let end = if self.kind() == Kind::Array { self.entry().next } else { 0 };
        let mut at = self.index + 1;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let element = Node { index: at, ..node };
                at = element.entry().next;
                element
            })
        })
    }

    /// Returns the keys and values of an object in text order. Empty for other kinds.
    pub fn entries(&self) -> impl Iterator<Item = (Cow<'a, str>, Node<'a>)> + use<'a> {
        let node = *self;
        let end = if self.kind() == Kind::Object { self.entry().next } else { 0 };
        let mut at = self.index + 1;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let key = Node { index: at, ..node };
                let value = Node { index: at + 1, ..node };
                at = value.entry().next;
                (key.unquoted(), value)
            })
        })
    }

    /// Returns the value of a key. `None` for other kinds than objects.
    pub fn get(&self, key: &str) -> Option<Node<'a>> {
        self.entries().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(super) fn unquoted(&self) -> Cow<'a, str> {
        let range = self.range();
        let inner = &self.text[range.start + 1..range.end - 1];
        if self.entry().end & ESCAPED == 0 { inner.into() } else { unescape(inner).into() }
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        // The scan has checked all escapes, so the defaults here are never used.
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        rest = rest.get(at + 2..).unwrap_or_default();
        let plain = match escape {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (decoded, after) = decode_code_point(rest);
                rest = after;
                decoded
            }
            other => char::from(other),
        };
        out.push(plain);
    }
    out.push_str(rest);
    out
}

/// Decodes `XXXX` or `XXXX\uYYYY`. The scan reports lone surrogates; here they become the replacement character.
fn decode_code_point(text: &str) -> (char, &str) {
    let unit = |at: usize| text.get(at..at + 4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let first = unit(0).unwrap_or(0xfffd);
    // Characters outside of the basic plane are escaped as two surrogates.
    if (0xd800..0xdc00).contains(&first)
        && text.get(4..6) == Some("\\u")
        && let Some(second) = unit(6).filter(|low| (0xdc00..0xe000).contains(low))
    {
        let point = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(point).unwrap_or('\u{fffd}'), &text[10..]);
    }
    (char::from_u32(first).unwrap_or('\u{fffd}'), text.get(4..).unwrap_or_default())
}
