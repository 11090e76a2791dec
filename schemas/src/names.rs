//! Validates names of people and API keys, and escapes control characters in printed text. Keys of documents are
//! checked in `documents`.

use std::fmt::{self, Write as _};

/// Maximum length of a name in bytes.
pub const MAX_BYTES: usize = 200;

pub fn is_name(text: &str) -> bool {
    (1..=MAX_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Rule of [`is_name`] in words, for a message that names the subject before it.
pub const RULE: &str = "has 1 to 200 bytes and no control characters";

/// Prints text on one line. Escapes line ends and terminal control characters, so that a value from a client cannot
/// forge log lines.
#[derive(Clone, Copy)]
pub struct OneLine<'a>(pub fmt::Arguments<'a>);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        EscapingWriter { to: f, allowed: "" }.write_fmt(self.0)
    }
}

/// Prints like [`OneLine`], but keeps line ends and tabs.
#[derive(Clone, Copy)]
pub struct Lines<'a>(pub fmt::Arguments<'a>);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        EscapingWriter { to: f, allowed: "\n\t" }.write_fmt(self.0)
    }
}

struct EscapingWriter<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    allowed: &'static str,
}

impl fmt::Write for EscapingWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        // Text between unsafe characters is written in one piece.
        while let Some(at) = rest.find(|c| is_unsafe(c) && !self.allowed.contains(c)) {
            self.to.write_str(&rest[..at])?;
            let c = rest[at..].chars().next().unwrap_or_default();
            match c {
                '\n' => self.to.write_str("\\n")?,
                // The escape of JSON, so that printed JSON stays valid.
                c => write!(self.to, "\\u{:04x}", u32::from(c))?,
            }
            rest = &rest[at + c.len_utf8()..];
        }
        self.to.write_str(rest)
    }
}

/// True for control characters, line and paragraph separators, and characters that change the direction of text.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_has_no_control_characters() {
        assert!(is_name("ann") && is_name("Ann Ö. 🦀") && is_name(&"a".repeat(MAX_BYTES)));
        for bad in ["", "a\nb", "a\u{1b}[31m", "\u{7f}", "\u{9b}", &"a".repeat(MAX_BYTES + 1)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn control_characters_are_escaped_as_in_json() {
        let text = "ok\r\nERROR\u{1b}[31m\t\u{9b}é\u{202e}🦀\u{2028}";
        let escaped = "ok\\u000d\\nERROR\\u001b[31m\\u0009\\u009bé\\u202e🦀\\u2028";
        assert_eq!(OneLine(format_args!("{text}")).to_string(), escaped);
        assert_eq!(Lines(format_args!("a\tb\n\u{1b}")).to_string(), "a\tb\n\\u001b");
        let json = serde_json::json!({ "a": "\u{7f}\u{9b}\u{2028}" });
        let printed = Lines(format_args!("{json}")).to_string();
        assert!(printed.is_ascii());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).ok(), Some(json));
    }
}
