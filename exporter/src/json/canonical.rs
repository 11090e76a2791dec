//! Writes values in a canonical form, so that equal ones are equal bytes: RFC 8785, or the same with every digit
//! kept.
//!
//! A value is held in memory while it is sorted; callers read long lists element by element.

use std::io::Read;

use super::{Flaw, Position, Reader, Stop, number};

/// Treatment of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Nearest double, written as in ECMAScript (RFC 8785).
    Doubles,
    /// Exactly: two numbers are the same text if they are the same number.
    Exact,
}

/// Why a value has no canonical form.
#[derive(Debug)]
pub(crate) enum CanonicalError {
    Stop(Stop),
    Flaw(Flaw),
    /// Name of a member and the position of its second occurrence.
    Twice(Vec<u8>, Position),
    Huge,
    /// More than may be held at once.
    Large,
    /// Something follows the document.
    Trailing,
}

impl From<Stop> for CanonicalError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Bytes of one value that is put in order.
const MOST: usize = 64 << 20;

/// Appends the value that comes next.
pub(crate) fn value<R: Read>(
    reader: &mut Reader<R>,
    numbers: Numbers,
    depth: usize,
    into: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    let byte = reader.next()?;
    if into.len() > MOST {
        return Err(CanonicalError::Large);
    }
    match byte {
        b'"' => {
            let text = reader.string()?;
            sound(text.flaws)?;
            quoted(text.bytes, into);
        }
        b'{' => object(reader, numbers, depth, into)?,
        b'[' => {
            enter(reader, depth)?;
            reader.pass();
            into.push(b'[');
            if reader.next()? == b']' {
                reader.pass();
            } else {
                loop {
                    value(reader, numbers, depth + 1, into)?;
                    if !another(reader, b']')? {
                        break;
                    }
                    into.push(b',');
                }
            }
            into.push(b']');
        }
        b't' => word(reader, "true", into)?,
        b'f' => word(reader, "false", into)?,
        b'n' => word(reader, "null", into)?,
        b'-' | b'0'..=b'9' => match reader.number_text()? {
            None => return Err(CanonicalError::Flaw(Flaw::Long)),
            Some(token) => match numbers {
                Numbers::Exact => into.extend_from_slice(number::exact(token).unwrap_or_default().as_bytes()),
                Numbers::Doubles => {
                    let text = number::double(token).ok_or(CanonicalError::Huge)?;
                    into.extend_from_slice(text.as_bytes());
                }
            },
        },
        _ => return Err(reader.unexpected().into()),
    }
    Ok(())
}

/// Member of an object: its name, position and value.
pub(crate) struct Member<V> {
    pub(crate) name: Vec<u8>,
    pub(crate) at: Position,
    pub(crate) value: V,
}

/// Sorts members; an error if a name occurs twice.
pub(crate) fn sort<V>(members: &mut [Member<V>]) -> Result<(), CanonicalError> {
    // Of equal names the order stays that of the document.
    members.sort_by(|left, right| by_units(&left.name, &right.name));
    let mut again = members.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| &pair[1]);
    match again.next() {
        Some(first) => {
            let first = again.fold(first, |first, next| if next.at < first.at { next } else { first });
            Err(CanonicalError::Twice(first.name.clone(), first.at))
        }
        None => Ok(()),
    }
}

/// Reads a name with its position, and the colon behind it.
pub(crate) fn name<R: Read>(reader: &mut Reader<R>) -> Result<(Vec<u8>, Position), CanonicalError> {
    if reader.next()? != b'"' {
        return Err(reader.unexpected().into());
    }
    let at = reader.position();
    let text = reader.string()?;
    sound(text.flaws)?;
    let name = text.bytes.to_vec();
    reader.expect(b':')?;
    Ok((name, at))
}

fn object<R: Read>(
    reader: &mut Reader<R>,
    numbers: Numbers,
    depth: usize,
    into: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    enter(reader, depth)?;
    reader.pass();
    let mut members: Vec<Member<Vec<u8>>> = Vec::new();
    let mut held = into.len();
    if reader.next()? == b'}' {
        reader.pass();
    } else {
        loop {
            let (name, at) = name(reader)?;
            let mut held_value = Vec::new();
            value(reader, numbers, depth + 1, &mut held_value)?;
            held += name.len() + held_value.len() + size_of::<Member<Vec<u8>>>();
            if held > MOST {
                return Err(CanonicalError::Large);
            }
            members.push(Member { name, at, value: held_value });
            if !another(reader, b'}')? {
                break;
            }
        }
    }
    sort(&mut members)?;
    into.push(b'{');
    for (at, Member { name, value, .. }) in members.iter().enumerate() {
        if at > 0 {
            into.push(b',');
        }
        quoted(name, into);
        into.push(b':');
        into.extend_from_slice(value);
    }
    into.push(b'}');
    Ok(())
}

/// True if the container continues after an element.
pub(crate) fn another<R: Read>(reader: &mut Reader<R>, end: u8) -> Result<bool, Stop> {
    match reader.next()? {
        b',' => {
            reader.pass();
            Ok(true)
        }
        byte if byte == end => {
            reader.pass();
            Ok(false)
        }
        _ => Err(reader.unexpected()),
    }
}

fn enter<R: Read>(reader: &Reader<R>, depth: usize) -> Result<(), Stop> {
    if depth >= reader.limits().depth {
        return Err(Stop::Invalid(super::Why::Deep, reader.position()));
    }
    Ok(())
}

fn word<R: Read>(
    reader: &mut Reader<R>,
    word: &'static str,
    into: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    reader.word(word)?;
    into.extend_from_slice(word.as_bytes());
    Ok(())
}

fn sound(flaws: u8) -> Result<(), CanonicalError> {
    match Flaw::ALL.into_iter().find(|flaw| flaws & *flaw as u8 != 0) {
        Some(flaw) => Err(CanonicalError::Flaw(flaw)),
        None => Ok(()),
    }
}

/// RFC 8785 orders names by UTF-16 code units, which is not the order of UTF-8 bytes.
pub(crate) fn by_units(left: &[u8], right: &[u8]) -> std::cmp::Ordering {
    match (std::str::from_utf8(left), std::str::from_utf8(right)) {
        (Ok(left), Ok(right)) => left.encode_utf16().cmp(right.encode_utf16()),
        _ => left.cmp(right),
    }
}

/// A string as RFC 8785 writes it.
pub(crate) fn quoted(text: &[u8], into: &mut Vec<u8>) {
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

    fn canonical(text: &str, numbers: Numbers) -> Result<String, CanonicalError> {
        let mut into = Vec::new();
        let mut reader = Reader::new(text.as_bytes(), Limits::default());
        value(&mut reader, numbers, 0, &mut into)?;
        Ok(String::from_utf8(into).unwrap())
    }

    #[test]
    fn the_examples_of_rfc_8785_come_out_as_printed_there() {
        let text = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let wanted = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(canonical(text, Numbers::Doubles).unwrap(), wanted);
        let names = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        let wanted = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}";
        assert_eq!(canonical(names, Numbers::Doubles).unwrap(), wanted);
    }

    #[test]
    fn numbers_are_written_as_ecmascript_does() {
        for (text, wanted) in [
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
            assert_eq!(canonical(text, Numbers::Doubles).unwrap(), wanted, "{text}");
        }
        assert!(matches!(canonical("1e400", Numbers::Doubles), Err(CanonicalError::Huge)));
    }

    #[test]
    fn exact_numbers_are_equal_if_they_are_the_same_number() {
        let exact = |text: &str| canonical(text, Numbers::Exact).unwrap();
        for same in ["1", "1.0", "1e0", "10e-1", "0.01E+2"] {
            assert_eq!(exact(same), exact("1"));
        }
        assert_eq!(exact("-0"), exact("0.000"));
        assert_ne!(exact("9007199254740993"), exact("9007199254740992"));
        assert_ne!(exact("1e400"), exact("1e401"));
        assert_ne!(exact("-1"), exact("1"));
        // They are shown to people, too.
        for (text, wanted) in [
            ("4326923076923077e-16", "0.4326923076923077"),
            ("-12.50", "-12.5"),
            ("1E3", "1000"),
            ("123456789012345678901234.5", "1.234567890123456789012345e+23"),
            ("0.00000012", "1.2e-7"),
        ] {
            assert_eq!(exact(text), wanted);
        }
    }

    #[test]
    fn a_name_that_stands_twice_has_no_canonical_form() {
        assert!(
            matches!(canonical(r#"{"a":1,"\u0061":2}"#, Numbers::Exact), Err(CanonicalError::Twice(name, _)) if name == b"a")
        );
        assert!(matches!(
            canonical(r#"["\ud800"]"#, Numbers::Exact),
            Err(CanonicalError::Flaw(Flaw::Surrogate))
        ));
        assert!(matches!(canonical(&"[".repeat(99), Numbers::Exact), Err(CanonicalError::Stop(_))));
    }
}
