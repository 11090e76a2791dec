//! Digests of a bundle: of its bytes, or of its content in canonical form (RFC 8785).
//!
//! Any JSON document has a digest; validation is separate.

use std::{
    io::{self, Read, Seek as _, SeekFrom, Write as _},
    ops::Range,
};

use sha2::{Digest as _, Sha256};

use crate::{
    bundle::invalid_json::InvalidJson,
    json::{
        Limits, Reader,
        canonical::{self, Member, Numbers},
    },
    storage::spill::{SpillOptions, temporary},
    unpack::Source,
};

/// SHA-256 over the document's bytes, unpacked.
///
/// # Errors
/// If it cannot be read.
pub fn of_bytes(source: &mut dyn Source) -> io::Result<[u8; 32]> {
    let mut from = source.open()?;
    let mut sha256 = Sha256::new();
    let mut block = vec![0; 256 << 10];
    loop {
        match from.read(&mut block) {
            Ok(0) => return Ok(sha256.finalize().into()),
            Ok(count) => sha256.update(&block[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// SHA-256 over the document's canonical form. Lists of the document are put in order element by element, on disk.
///
/// # Errors
/// If it cannot be read, or has no canonical form.
pub fn of_content(
    source: &mut dyn Source,
    limits: Limits,
    room: &SpillOptions,
) -> Result<[u8; 32], InvalidJson> {
    let mut reader = Reader::new(source.open()?, limits);
    content(&mut reader, room).map_err(|bad| InvalidJson::new(bad, reader.position()))
}

fn content<R: Read>(
    reader: &mut Reader<R>,
    room: &SpillOptions,
) -> Result<[u8; 32], canonical::CanonicalError> {
    reader.mark()?;
    let mut sha256 = Sha256::new();
    let mut held = Vec::new();
    if reader.next()? == b'{' {
        let mut parts = temporary(&room.folder).map_err(stopped)?;
        let mut written = 0;
        let mut members: Vec<Member<Range<u64>>> = Vec::new();
        reader.pass();
        if reader.next()? == b'}' {
            reader.pass();
        } else {
            loop {
                let (name, at) = canonical::name(reader)?;
                let start = written;
                let mut write = |bytes: &mut Vec<u8>| {
                    written += bytes.len() as u64;
                    let result = parts.write_all(bytes).map_err(stopped);
                    bytes.clear();
                    result
                };
                if reader.next()? == b'[' {
                    reader.pass();
                    held.push(b'[');
                    if reader.next()? == b']' {
                        reader.pass();
                    } else {
                        loop {
                            canonical::value(reader, Numbers::Doubles, 2, &mut held)?;
                            if !canonical::another(reader, b']')? {
                                break;
                            }
                            held.push(b',');
                            write(&mut held)?;
                        }
                    }
                    held.push(b']');
                } else {
                    canonical::value(reader, Numbers::Doubles, 1, &mut held)?;
                }
                write(&mut held)?;
                members.push(Member { name, at, value: start..written });
                if members.len() > reader.limits().members {
                    return Err(canonical::CanonicalError::Large);
                }
                if !canonical::another(reader, b'}')? {
                    break;
                }
            }
        }
        canonical::sort(&mut members)?;
        let mut parts = parts.into_inner().map_err(|error| stopped(error.into_error()))?;
        sha256.update(b"{");
        for (at, Member { name, value: range, .. }) in members.iter().enumerate() {
            held.clear();
            if at > 0 {
                held.push(b',');
            }
            canonical::quoted(name, &mut held);
            held.push(b':');
            sha256.update(&held);
            parts.seek(SeekFrom::Start(range.start)).map_err(stopped)?;
            let mut part = Read::by_ref(&mut parts).take(range.end - range.start);
            let mut block = [0; 64 << 10];
            loop {
                match part.read(&mut block).map_err(stopped)? {
                    0 => break,
                    count => sha256.update(&block[..count]),
                }
            }
        }
        sha256.update(b"}");
    } else {
        canonical::value(reader, Numbers::Doubles, 0, &mut held)?;
        sha256.update(&held);
    }
    if reader.peek()?.is_some() {
        return Err(canonical::CanonicalError::Trailing);
    }
    Ok(sha256.finalize().into())
}

fn stopped(error: io::Error) -> canonical::CanonicalError {
    canonical::CanonicalError::Stop(error.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn digest(text: &str) -> Result<[u8; 32], InvalidJson> {
        let room = SpillOptions { memory: 0, folder: std::env::temp_dir() };
        of_content(&mut text.as_bytes(), Limits::default(), &room)
    }

    #[test]
    fn content_digest_ignores_order_spaces_and_escapes() {
        let one = r#"{"b":[{"y":1,"x":[]},2],"a":"é","c":{}}"#;
        let same = "\u{feff}{ \"c\" : { }, \"a\":\"\\u00e9\",\n\"b\":[ {\"x\":[],\"y\":1.0}, 2 ] }\n";
        let canonical = r#"{"a":"é","b":[{"x":[],"y":1},2],"c":{}}"#;
        assert_eq!(digest(one).unwrap(), digest(same).unwrap());
        assert_eq!(digest(one).unwrap(), of_bytes(&mut canonical.as_bytes()).unwrap());
        assert_ne!(digest(one).unwrap(), digest(&one.replace(",2]", ",3]")).unwrap());
        assert_eq!(digest("[1.0]").unwrap(), of_bytes(&mut &b"[1]"[..]).unwrap());
        assert_eq!(digest("{}").unwrap(), of_bytes(&mut &b"{}"[..]).unwrap());
    }

    #[test]
    fn duplicate_member_is_reported_with_its_position() {
        for (text, name, range) in [
            ("{\"a\":1,\n \"b\":2, \"a\":2,\n\"b\":1}", "a", (2, 16)),
            ("{\"c\":{},\n\"a\":[{},\n{\"x\":{\"b\":1,\"\\u0062\":1},\"y\":1}]}", "b", (3, 30)),
            ("[{\"a\":1,\n\"a\":1}]", "a", (2, 9)),
        ] {
            match digest(text) {
                Err(InvalidJson::Twice { name: found, at_line, offset }) => {
                    assert_eq!((found.as_str(), (at_line, offset)), (name, range), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        let said = digest("{\"a\":1,\n\"a\":2}").unwrap_err().to_string();
        assert_eq!(said, "line 2, byte 8: BND-LEX-09 a member stands twice in its object: \"a\"");
    }

    #[test]
    fn what_has_no_canonical_form_is_refused_with_its_place() {
        for (text, rule, line) in [
            ("{\"a\":\n\n[1e400]}", "BND-LEX-12", 3),
            ("{\"a\":1} {}", "BND-LEX-03", 1),
            ("{\"a\":", "BND-LEX-02", 1),
            ("[\"\\ud800\"]", "BND-LEX-08", 1),
        ] {
            match digest(text) {
                Err(InvalidJson::Content { rule: found, at_line, .. }) => {
                    assert_eq!((found.id(), at_line), (rule, line), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
