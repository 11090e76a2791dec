//! Computes SHA-256 digests of any JSON document: of its bytes, or of its canonical form (RFC 8785).

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
    storage::spill::{SpillOptions, create_temporary_file},
    unpack::Source,
};

/// SHA-256 of the document's unpacked bytes.
///
/// # Errors
/// If the document cannot be read.
pub fn of_bytes(source: &mut dyn Source) -> io::Result<[u8; 32]> {
    let mut reader = source.open()?;
    let mut sha256 = Sha256::new();
    let mut block = vec![0; 256 << 10];
    loop {
        match reader.read(&mut block) {
            Ok(0) => return Ok(sha256.finalize().into()),
            Ok(count) => sha256.update(&block[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// SHA-256 of the document's canonical form. Lists in the document are converted one element at a time, and the values
/// of its members are kept on disk until the members can be sorted.
///
/// # Errors
/// If the document cannot be read, or has no canonical form.
pub fn of_content(
    source: &mut dyn Source,
    limits: Limits,
    spill_options: &SpillOptions,
) -> Result<[u8; 32], InvalidJson> {
    let mut reader = Reader::new(source.open()?, limits);
    hash_content(&mut reader, spill_options).map_err(|error| InvalidJson::new(error, reader.position()))
}

fn hash_content<R: Read>(
    reader: &mut Reader<R>,
    spill_options: &SpillOptions,
) -> Result<[u8; 32], canonical::CanonicalError> {
    reader.skip_byte_order_mark()?;
    let mut sha256 = Sha256::new();
    let mut buffer = Vec::new();
    if reader.next()? == b'{' {
        // Members are hashed in the order of their names, which is known after the last one. Until then their canonical
        // values wait in a file, since a list can exceed the memory.
        let mut values_file = create_temporary_file(&spill_options.folder).map_err(stop_on)?;
        let mut file_length = 0;
        let mut members: Vec<Member<Range<u64>>> = Vec::new();
        reader.advance();
        if reader.next()? == b'}' {
            reader.advance();
        } else {
            loop {
                let (name, at) = canonical::read_name(reader)?;
                let start = file_length;
                let mut append = |bytes: &mut Vec<u8>| {
                    file_length += bytes.len() as u64;
                    let result = values_file.write_all(bytes).map_err(stop_on);
                    bytes.clear();
                    result
                };
                if reader.next()? == b'[' {
                    reader.advance();
                    buffer.push(b'[');
                    if reader.next()? == b']' {
                        reader.advance();
                    } else {
                        loop {
                            canonical::write_value(reader, Numbers::Doubles, 2, &mut buffer)?;
                            if !canonical::skip_separator(reader, b']')? {
                                break;
                            }
                            buffer.push(b',');
                            // Written after each element, so that memory holds one element of a list.
                            append(&mut buffer)?;
                        }
                    }
                    buffer.push(b']');
                } else {
                    canonical::write_value(reader, Numbers::Doubles, 1, &mut buffer)?;
                }
                append(&mut buffer)?;
                members.push(Member { name, at, value: start..file_length });
                if members.len() > reader.limits().members {
                    return Err(canonical::CanonicalError::TooLarge);
                }
                if !canonical::skip_separator(reader, b'}')? {
                    break;
                }
            }
        }
        canonical::sort_members(&mut members)?;
        let mut values_file = values_file.into_inner().map_err(|error| stop_on(error.into_error()))?;
        sha256.update(b"{");
        for (index, Member { name, value: range, .. }) in members.iter().enumerate() {
            buffer.clear();
            if index > 0 {
                buffer.push(b',');
            }
            canonical::write_quoted(name, &mut buffer);
            buffer.push(b':');
            sha256.update(&buffer);
            values_file.seek(SeekFrom::Start(range.start)).map_err(stop_on)?;
            let mut value_reader = Read::by_ref(&mut values_file).take(range.end - range.start);
            let mut block = [0; 64 << 10];
            loop {
                match value_reader.read(&mut block).map_err(stop_on)? {
                    0 => break,
                    count => sha256.update(&block[..count]),
                }
            }
        }
        sha256.update(b"}");
    } else {
        canonical::write_value(reader, Numbers::Doubles, 0, &mut buffer)?;
        sha256.update(&buffer);
    }
    if reader.peek()?.is_some() {
        return Err(canonical::CanonicalError::TrailingData);
    }
    Ok(sha256.finalize().into())
}

fn stop_on(error: io::Error) -> canonical::CanonicalError {
    canonical::CanonicalError::Stop(error.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn digest(text: &str) -> Result<[u8; 32], InvalidJson> {
        let spill_options = SpillOptions { memory: 0, folder: std::env::temp_dir() };
        of_content(&mut text.as_bytes(), Limits::default(), &spill_options)
    }

    #[test]
    fn content_digest_ignores_order_spaces_and_escapes() {
        let document = r#"{"b":[{"y":1,"x":[]},2],"a":"é","c":{}}"#;
        let respelled = "\u{feff}{ \"c\" : { }, \"a\":\"\\u00e9\",\n\"b\":[ {\"x\":[],\"y\":1.0}, 2 ] }\n";
        let canonical = r#"{"a":"é","b":[{"x":[],"y":1},2],"c":{}}"#;
        assert_eq!(digest(document).unwrap(), digest(respelled).unwrap());
        assert_eq!(digest(document).unwrap(), of_bytes(&mut canonical.as_bytes()).unwrap());
        assert_ne!(digest(document).unwrap(), digest(&document.replace(",2]", ",3]")).unwrap());
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
                Err(InvalidJson::DuplicateName { name: found_name, at_line, offset }) => {
                    assert_eq!((found_name.as_str(), (at_line, offset)), (name, range), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        let message = digest("{\"a\":1,\n\"a\":2}").unwrap_err().to_string();
        assert_eq!(message, "line 2, byte 8: BND-LEX-09 duplicate member in an object: \"a\"");
    }

    #[test]
    fn document_without_canonical_form_is_refused_with_position() {
        for (text, rule, line) in [
            ("{\"a\":\n\n[1e400]}", "BND-LEX-12", 3),
            ("{\"a\":1} {}", "BND-LEX-03", 1),
            ("{\"a\":", "BND-LEX-02", 1),
            ("[\"\\ud800\"]", "BND-LEX-08", 1),
        ] {
            match digest(text) {
                Err(InvalidJson::Content { rule: found_rule, at_line, .. }) => {
                    assert_eq!((found_rule.id(), at_line), (rule, line), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
