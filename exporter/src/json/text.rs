//! Content of a JSON string, and its flaws. Reading continues after a flaw, since the end of the string is known.

/// Violation of JSON's rules for strings, or of this reader's length limit. Values are bits of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Flaw {
    Encoding = 1,
    Control = 2,
    Escape = 4,
    Surrogate = 8,
    Long = 16,
}

impl Flaw {
    pub(crate) const ALL: [Self; 5] =
        [Self::Encoding, Self::Control, Self::Escape, Self::Surrogate, Self::Long];
}

/// String without its quotes, with escapes resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'r> {
    /// UTF-8, unless `flaws` has [`Flaw::Encoding`] or [`Flaw::Long`].
    pub(crate) bytes: &'r [u8],
    pub(crate) flaws: u8,
    pub(crate) is_ascii: bool,
}

impl Text<'_> {
    /// Length in Unicode code points.
    pub(crate) fn length(&self) -> u64 {
        if self.is_ascii {
            return self.bytes.len() as u64;
        }
        // Counts the bytes that are not continuation bytes of UTF-8.
        self.bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u64
    }
}

/// Resolves the escapes of a string, and returns its flaws. Invalid escapes become U+FFFD or are dropped.
pub(super) fn unescape(raw: &[u8], into: &mut Vec<u8>) -> u8 {
    into.clear();
    let mut flaws = 0;
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        into.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((letter, remainder)) = rest.split_first() else {
            flaws |= Flaw::Escape as u8;
            break;
        };
        rest = remainder;
        let unescaped_byte = match letter {
            b'"' | b'\\' | b'/' => *letter,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let code_unit = parse_code_unit(rest).inspect(|_| rest = &rest[4..]);
                let character = match code_unit {
                    // The first half of a surrogate pair is valid only before an escape with the second half.
                    Some(high @ 0xd800..=0xdbff) => match parse_low_surrogate(rest) {
                        Some(low) => {
                            rest = &rest[6..];
                            char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
                        }
                        None => None,
                    },
                    Some(unit) => char::from_u32(unit),
                    None => {
                        flaws |= Flaw::Escape as u8;
                        Some(char::REPLACEMENT_CHARACTER)
                    }
                };
                if character.is_none() {
                    flaws |= Flaw::Surrogate as u8;
                }
                let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
                into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => {
                flaws |= Flaw::Escape as u8;
                continue;
            }
        };
        into.push(unescaped_byte);
    }
    into.extend_from_slice(rest);
    flaws
}

fn parse_code_unit(text: &[u8]) -> Option<u32> {
    text.get(..4)?.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

fn parse_low_surrogate(text: &[u8]) -> Option<u32> {
    let unit = parse_code_unit(text.strip_prefix(b"\\u")?)?;
    (0xdc00..=0xdfff).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> (String, u8) {
        let mut into = Vec::new();
        let flaws = unescape(raw.as_bytes(), &mut into);
        (String::from_utf8_lossy(&into).into_owned(), flaws)
    }

    #[test]
    fn escapes_are_resolved() {
        assert_eq!(
            read(r#"\"\\\/\b\f\n\r\t\u0041\uD83D\uDE00é"#),
            ("\"\\/\u{8}\u{c}\n\r\tA😀é".to_owned(), 0)
        );
    }

    #[test]
    fn lone_surrogates_and_unknown_escapes_are_separate_flaws() {
        for lone in [r"\ud800", r"\udc00", r"\ud800\u0041", r"\ud800\ud800\udc00", r"a\ud83dz"] {
            assert_eq!(read(lone).1, Flaw::Surrogate as u8, "{lone}");
        }
        for bad in [r"\x", r"\u12", r"\u12g4", r"\U0041"] {
            assert_eq!(read(bad).1, Flaw::Escape as u8, "{bad}");
        }
    }
}
