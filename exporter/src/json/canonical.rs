//! Writes values in the canonical form of RFC 8785, or in the same form with exact numbers, so that equal values give
//! equal bytes. A value is held in memory while its members are sorted; callers read long lists element by element.

use std::io::Read;

use super::{Flaw, Position, Reader, Stop, number};

/// Format of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Nearest double in the format of ECMAScript (RFC 8785).
    Doubles,
    /// All digits: equal numbers give equal text, and different numbers different text.
    Exact,
}

/// Reason that a value has no canonical form.
#[derive(Debug)]
pub(crate) enum CanonicalError {
    Stop(Stop),
    Flaw(Flaw),
    /// Name of a repeated member, and the position of its second occurrence.
    DuplicateName(Vec<u8>, Position),
    HugeNumber,
    /// The value exceeds [`MAX_VALUE_BYTES`].
    TooLarge,
    /// Data after the end of the document.
    TrailingData,
}

impl From<Stop> for CanonicalError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Maximum size in memory of one value that is sorted.
const MAX_VALUE_BYTES: usize = 64 << 20;

/// Reads the next value and appends its canonical form.
pub(crate) fn write_value<R: Read>(
    reader: &mut Reader<R>,
    numbers: Numbers,
    depth: usize,
    into: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    let byte = reader.next()?;
    // Checked for each value, which bounds the elements of arrays too.
    if into.len() > MAX_VALUE_BYTES {
        return Err(CanonicalError::TooLarge);
    }
    match byte {
        b'"' => {
            let text = reader.read_string()?;
            check_flaws(text.flaws)?;
            write_quoted(text.bytes, into);
        }
        b'{' => write_object(reader, numbers, depth, into)?,
        b'[' => {
            check_depth(reader, depth)?;
            reader.advance();
            into.push(b'[');
            if reader.next()? == b']' {
                reader.advance();
            } else {
                loop {
                    write_value(reader, numbers, depth + 1, into)?;
                    if !skip_separator(reader, b']')? {
                        break;
                    }
                    into.push(b',');
                }
            }
            into.push(b']');
        }
        b't' => write_literal(reader, "true", into)?,
        b'f' => write_literal(reader, "false", into)?,
        b'n' => write_literal(reader, "null", into)?,
        b'-' | b'0'..=b'9' => match reader.read_number_text()? {
            None => return Err(CanonicalError::Flaw(Flaw::Long)),
            Some(token) => match numbers {
                Numbers::Exact => {
                    into.extend_from_slice(number::format_exact(token).unwrap_or_default().as_bytes());
                }
                Numbers::Doubles => {
                    let text = number::format_double(token).ok_or(CanonicalError::HugeNumber)?;
                    into.extend_from_slice(text.as_bytes());
                }
            },
        },
        _ => return Err(reader.unexpected_error().into()),
    }
    Ok(())
}

/// Member of an object, with the position of its name.
pub(crate) struct Member<V> {
    pub(crate) name: Vec<u8>,
    pub(crate) at: Position,
    pub(crate) value: V,
}

/// Sorts members by name; a repeated name is an error.
pub(crate) fn sort_members<V>(members: &mut [Member<V>]) -> Result<(), CanonicalError> {
    // A stable sort keeps equal names in document order, so the error below points at the second occurrence.
    members.sort_by(|left, right| compare_utf16(&left.name, &right.name));
    let mut duplicates = members.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| &pair[1]);
    match duplicates.next() {
        // Among several repeated names, the first in the document is reported.
        Some(first) => {
            let first = duplicates.fold(first, |first, next| if next.at < first.at { next } else { first });
            Err(CanonicalError::DuplicateName(first.name.clone(), first.at))
        }
        None => Ok(()),
    }
}

/// Reads a member's name and the colon after it. Returns the name and its position.
pub(crate) fn read_name<R: Read>(reader: &mut Reader<R>) -> Result<(Vec<u8>, Position), CanonicalError> {
    if reader.next()? != b'"' {
        return Err(reader.unexpected_error().into());
    }
    let at = reader.position();
    let text = reader.read_string()?;
    check_flaws(text.flaws)?;
    let name = text.bytes.to_vec();
    reader.expect(b':')?;
    Ok((name, at))
}

fn write_object<R: Read>(
    reader: &mut Reader<R>,
    numbers: Numbers,
    depth: usize,
    into: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    check_depth(reader, depth)?;
    reader.advance();
    let mut members: Vec<Member<Vec<u8>>> = Vec::new();
    let mut used_bytes = into.len();
    if reader.next()? == b'}' {
        reader.advance();
    } else {
        loop {
            let (name, at) = read_name(reader)?;
            let mut member_value = Vec::new();
            write_value(reader, numbers, depth + 1, &mut member_value)?;
            // The entries of the list count too: small members take more memory than their bytes.
            used_bytes += name.len() + member_value.len() + size_of::<Member<Vec<u8>>>();
            if used_bytes > MAX_VALUE_BYTES {
                return Err(CanonicalError::TooLarge);
            }
            members.push(Member { name, at, value: member_value });
            if !skip_separator(reader, b'}')? {
                break;
            }
        }
    }
    sort_members(&mut members)?;
    into.push(b'{');
    for (index, Member { name, value, .. }) in members.iter().enumerate() {
        if index > 0 {
            into.push(b',');
        }
        write_quoted(name, into);
        into.push(b':');
        into.extend_from_slice(value);
    }
    into.push(b'}');
    Ok(())
}

/// Consumes a comma or the closing bracket `end`; true if another element follows.
pub(crate) fn skip_separator<R: Read>(reader: &mut Reader<R>, end: u8) -> Result<bool, Stop> {
    match reader.next()? {
        b',' => {
            reader.advance();
            Ok(true)
        }
        byte if byte == end => {
            reader.advance();
            Ok(false)
        }
        _ => Err(reader.unexpected_error()),
    }
}

fn check_depth<R: Read>(reader: &Reader<R>, depth: usize) -> Result<(), Stop> {
    if depth >= reader.limits().depth {
        return Err(Stop::Invalid(super::InvalidReason::TooDeep, reader.position()));
    }
    Ok(())
}

fn write_literal<R: Read>(
    reader: &mut Reader<R>,
    literal: &'static str,
    into: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    reader.expect_literal(literal)?;
    into.extend_from_slice(literal.as_bytes());
    Ok(())
}

fn check_flaws(flaws: u8) -> Result<(), CanonicalError> {
    match Flaw::ALL.into_iter().find(|flaw| flaws & *flaw as u8 != 0) {
        Some(flaw) => Err(CanonicalError::Flaw(flaw)),
        None => Ok(()),
    }
}

/// Compares names by UTF-16 code units, as RFC 8785 requires. Beyond the BMP this differs from the order of UTF-8
/// bytes.
pub(crate) fn compare_utf16(left: &[u8], right: &[u8]) -> std::cmp::Ordering {
    match (std::str::from_utf8(left), std::str::from_utf8(right)) {
        (Ok(left), Ok(right)) => left.encode_utf16().cmp(right.encode_utf16()),
        _ => left.cmp(right),
    }
}

/// Appends a string with the escapes of RFC 8785.
pub(crate) fn write_quoted(text: &[u8], into: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    into.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => into.extend_from_slice(&[b'\\', *byte]),
            8 => into.extend_from_slice(b"\\b"),
            9 => into.extend_from_slice(b"\\t"),
            10 => into.extend_from_slice(b"\\n"),
            12 => into.extend_from_slice(b"\\f"),
            13 => into.extend_from_slice(b"\\r"),
            0..0x20 => {
                into.extend_from_slice(b"\\u00");
                into.push(HEX[usize::from(byte >> 4)]);
                into.push(HEX[usize::from(byte & 15)]);
            }
            byte => into.push(*byte),
        }
    }
    into.push(b'"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::json::Limits;

    fn canonicalize(text: &str, numbers: Numbers) -> Result<String, CanonicalError> {
        let mut into = Vec::new();
        let mut reader = Reader::new(text.as_bytes(), Limits::default());
        write_value(&mut reader, numbers, 0, &mut into)?;
        Ok(String::from_utf8(into).unwrap())
    }

    #[test]
    fn examples_of_rfc_8785_match() {
        let text = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(canonicalize(text, Numbers::Doubles).unwrap(), expected);
        let names = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}";
        assert_eq!(canonicalize(names, Numbers::Doubles).unwrap(), expected);
    }

    #[test]
    fn numbers_match_ecmascript() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e7", "0"),
            ("5e-324", "5e-324"),
            ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
            ("9007199254740993", "9007199254740992"),
            ("295147905179352830000", "295147905179352830000"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("1e21", "1e+21"),
            ("999999999999999900000", "999999999999999900000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("333333333.33333343", "333333333.33333343"),
            ("-0.0000033333333333333333", "-0.0000033333333333333333"),
            ("1424953923781206.2", "1424953923781206.2"),
            ("10.0", "10"),
            ("1.5e3", "1500"),
        ] {
            assert_eq!(canonicalize(text, Numbers::Doubles).unwrap(), expected, "{text}");
        }
        assert!(matches!(canonicalize("1e400", Numbers::Doubles), Err(CanonicalError::HugeNumber)));
    }

    #[test]
    fn exact_numbers_are_equal_if_they_are_the_same_number() {
        let exact = |text: &str| canonicalize(text, Numbers::Exact).unwrap();
        for spelling in ["1", "1.0", "1e0", "10e-1", "0.01E+2"] {
            assert_eq!(exact(spelling), exact("1"));
        }
        assert_eq!(exact("-0"), exact("0.000"));
        assert_ne!(exact("9007199254740993"), exact("9007199254740992"));
        assert_ne!(exact("1e400"), exact("1e401"));
        assert_ne!(exact("-1"), exact("1"));
        // Exact numbers are also shown to people, so their format matters.
        for (text, expected) in [
            ("4326923076923077e-16", "0.4326923076923077"),
            ("-12.50", "-12.5"),
            ("1E3", "1000"),
            ("123456789012345678901234.5", "1.234567890123456789012345e+23"),
            ("0.00000012", "1.2e-7"),
        ] {
            assert_eq!(exact(text), expected);
        }
    }

    #[test]
    fn duplicate_names_and_flaws_have_no_canonical_form() {
        assert!(
            matches!(canonicalize(r#"{"a":1,"\u0061":2}"#, Numbers::Exact), Err(CanonicalError::DuplicateName(name, _)) if name == b"a")
        );
        assert!(matches!(
            canonicalize(r#"["\ud800"]"#, Numbers::Exact),
            Err(CanonicalError::Flaw(Flaw::Surrogate))
        ));
        assert!(matches!(canonicalize(&"[".repeat(99), Numbers::Exact), Err(CanonicalError::Stop(_))));
    }
}
