//! Reads files with one entry per line.

use std::io::{BufRead, Read};

use serde_json::json;
use tidegate_media::hashes::pdq::MIN_QUALITY;
use tidegate_schemas::banks::{BankKind, HashKind};

use crate::{
    FileEntries, FileError,
    entry::{Change, FileEntry, hash_kind},
};

/// Maximum length of a line in bytes. The rest of a longer line is skipped.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Returns the entries of a list with one entry per line.
pub(crate) fn plain_entries(file: impl BufRead + 'static, kind: BankKind) -> FileEntries {
    Box::new(read_lines(file, move |text| parse_word(text, kind)))
}

/// Applies `read` to each line that is not blank.
pub(crate) fn read_lines(
    mut file: impl BufRead,
    read: impl Fn(&str) -> Result<Change, String>,
) -> impl Iterator<Item = Result<FileEntry, FileError>> {
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            let mut bytes = Vec::new();
            match file.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes) {
                Err(error) => return Some(Err(error.into())),
                Ok(0) => return None,
                Ok(_) => number += 1,
            }
            if bytes.len() as u64 == MAX_LINE_BYTES && bytes.last() != Some(&b'\n') {
                if let Err(error) = skip_line(&mut file) {
                    return Some(Err(error.into()));
                }
                let entry = Err(format!("it is longer than {MAX_LINE_BYTES} bytes"));
                return Some(Ok(FileEntry::at_line(number, entry)));
            }
            let bytes =
                // Only the start of a file may have a byte order mark.
                if number == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes) } else { &bytes };
            let text = std::str::from_utf8(bytes).map(|text| text.trim_end_matches(['\n', '\r']));
            match text {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Some(Ok(FileEntry::at_line(number, read(text)))),
                Err(_) => {
                    let entry = Err("it is not UTF-8".to_owned());
                    return Some(Ok(FileEntry::at_line(number, entry)));
                }
            }
        }
    })
}

fn skip_line(file: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = file.fill_buf()?;
        let (length, is_line_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(index) => (index + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        file.consume(length);
        if is_line_end {
            return Ok(());
        }
    }
}

/// Reads one line. A text is taken as it is; a hash may also follow its kind or be one of a tool's columns.
fn parse_word(line: &str, bank: BankKind) -> Result<Change, String> {
    let unchanged = || Ok(Change::Add(json!(line)));
    let Some(kind) = bank.hash_kind() else { return unchanged() };
    let line = line.trim();
    if let Some((name, value)) = line.split_once(char::is_whitespace)
        && let Some(line_kind) = hash_kind(name)
    {
        return Ok(if line_kind == kind { Change::Add(json!(value.trim())) } else { Change::OtherKind });
    }
    if kind.canonical(line).is_ok() {
        return unchanged();
    }
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    match cells[..] {
        // Output of PDQ's tool for pictures.
        [value, name] if kind.canonical(value).is_ok() => {
            Ok(Change::Add(json!({"value": value, "reference": name})))
        }
        // Output of PDQ's tool for videos.
        [_, quality, value, _] if kind == HashKind::Pdq => match quality.parse::<u32>() {
            Ok(quality) if quality < u32::from(MIN_QUALITY) => {
                Err(format!("its quality is {quality}: hashes below {MIN_QUALITY} are unreliable"))
            }
            Ok(_) => Ok(Change::Add(json!(value))),
            // Sent as it is, so that the service reports the fault.
            Err(_) => unchanged(),
        },
        _ => unchanged(),
    }
}
