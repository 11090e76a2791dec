//! Files with one entry a line.

use std::io::{BufRead, Read};

use serde_json::json;
use tidegate_media::hashes::pdq::MIN_QUALITY;
use tidegate_schemas::banks::{BankKind, HashKind};

use crate::{
    FileEntries, FileError,
    entry::{Change, FileEntry, hash_kind},
};

/// Longest line that is kept and read.
const LONGEST_LINE: u64 = 1 << 20;

/// Returns the entries of a list, one a line.
pub(crate) fn plain_entries(file: impl BufRead + 'static, kind: BankKind) -> FileEntries {
    Box::new(lines(file, move |text| word(text, kind)))
}

/// Returns what `read` makes of each line that is not blank.
pub(crate) fn lines(
    mut file: impl BufRead,
    read: impl Fn(&str) -> Result<Change, String>,
) -> impl Iterator<Item = Result<FileEntry, FileError>> {
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            let mut bytes = Vec::new();
            match file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes) {
                Err(error) => return Some(Err(error.into())),
                Ok(0) => return None,
                Ok(_) => number += 1,
            }
            if bytes.len() as u64 == LONGEST_LINE && bytes.last() != Some(&b'\n') {
                if let Err(error) = skip_line(&mut file) {
                    return Some(Err(error.into()));
                }
                let entry = Err(format!("it is longer than {LONGEST_LINE} bytes"));
                return Some(Ok(FileEntry::at_line(number, entry)));
            }
            let bytes =
                if number == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes) } else { &bytes };
            let text = std::str::from_utf8(bytes).map(|text| text.trim_end_matches(['\n', '\r']));
            match text {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Some(Ok(FileEntry::at_line(number, read(text)))),
                Err(_) => {
                    let entry = Err("it is no UTF-8".to_owned());
                    return Some(Ok(FileEntry::at_line(number, entry)));
                }
            }
        }
    })
}

fn skip_line(file: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = file.fill_buf()?;
        let (length, found) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        file.consume(length);
        if found {
            return Ok(());
        }
    }
}

/// Reads one line: a text with blanks and commas as it is, a hash also behind its kind or among a tool's columns.
fn word(line: &str, bank: BankKind) -> Result<Change, String> {
    let as_it_is = || Ok(Change::Add(json!(line)));
    let Some(kind) = bank.hash() else { return as_it_is() };
    let line = line.trim();
    if let Some((name, value)) = line.split_once(char::is_whitespace)
        && let Some(named) = hash_kind(name)
    {
        return Ok(if named == kind { Change::Add(json!(value.trim())) } else { Change::OtherKind });
    }
    if kind.canonical(line).is_ok() {
        return as_it_is();
    }
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    match cells[..] {
        [value, name] if kind.canonical(value).is_ok() => {
            Ok(Change::Add(json!({"value": value, "reference": name})))
        }
        [_, quality, value, _] if kind == HashKind::Pdq => match quality.parse::<u32>() {
            Ok(quality) if quality < u32::from(MIN_QUALITY) => {
                Err(format!("its quality is {quality}: below {MIN_QUALITY} a hash says too little"))
            }
            Ok(_) => Ok(Change::Add(json!(value))),
            Err(_) => as_it_is(),
        },
        _ => as_it_is(),
    }
}
