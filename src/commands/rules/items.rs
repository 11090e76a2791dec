//! Reads items from files, one per line, in either form that the API accepts.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tidegate_catalog::Compiled;
use tidegate_moderation::items::evaluate::{self, PreparedItem};
use tidegate_schemas::{
    ids::{ItemKey, Millis, SubmissionId},
    item_types::Mode,
    records::{ItemEntry, Source, Variant},
    validation_error::{Pointer, ValidationError},
    wire,
};

use crate::{commands::encoding, output::print_error};

/// Byte order mark, which some programs put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Line of a file: an item, or the reason why it cannot be evaluated.
pub(super) struct Line {
    pub(super) key: Option<ItemKey>,
    pub(super) item: Result<PreparedItem, String>,
}

/// Maximum length of a line in bytes. No item is as long, and a file without line ends must not fill the memory.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Iterator over the lines of a file with their numbers, without blank ones.
pub(super) struct Lines {
    name: String,
    input: Box<dyn BufRead>,
    number: usize,
}

/// Opens a file, or standard input for `-`.
pub(super) fn lines(path: &Path) -> anyhow::Result<Lines> {
    if path == Path::new("-") {
        let input = Box::new(BufReader::new(io::stdin()));
        return Ok(Lines { name: "standard input".to_owned(), input, number: 0 });
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("{name} cannot be opened"))?;
    // A folder opens like a file, and only reading it fails, with a less helpful message.
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        bail!("{name} is a folder; a file with one item a line is needed");
    }
    Ok(Lines { name, input: Box::new(BufReader::new(file)), number: 0 })
}

impl Lines {
    /// Reads the next line without its end. Of an overlong line, one byte more than the maximum is kept and the rest is skipped.
    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if self.input.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() > MAX_LINE_BYTES {
            self.input.skip_until(b'\n')?;
        }
        Ok(Some(line))
    }
}

impl Iterator for Lines {
    type Item = anyhow::Result<(usize, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.number += 1;
            let mut line = match self.read_line() {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(error) => {
                    let place = format!("line {} of {} cannot be read", self.number, self.name);
                    return Some(Err(anyhow::Error::new(error).context(place)));
                }
            };
            // Only the start of a file may have a byte order mark.
            if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            // An overlong line is returned as well, so that it is counted as refused.
            if line.len() > MAX_LINE_BYTES || !line.trim_ascii().is_empty() {
                return Some(Ok((self.number, line)));
            }
        }
    }
}

/// Counts the refused lines, and prints the first ones.
#[derive(Default)]
pub(super) struct RefusedLines(pub(super) usize);

impl RefusedLines {
    pub(super) fn add(&mut self, number: usize, fault: &str) {
        const MAX_PRINTED: usize = 5;
        self.0 += 1;
        if self.0 <= MAX_PRINTED {
            print_error(format!("line {number}: {fault}"));
        }
    }
}

pub(super) fn parse_line(config: &Arc<Compiled>, line: &[u8], now: Millis) -> Line {
    if line.len() > MAX_LINE_BYTES {
        return Line { key: None, item: Err(format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20)) };
    }
    let line = match encoding::as_text(line) {
        Ok(line) => line,
        Err(invalid_utf8) => return Line { key: None, item: Err(invalid_utf8.to_string()) },
    };
    // A syntax error is reported by `parse_entry`, with its position.
    let members: Json = serde_json::from_str(line).unwrap_or_default();
    let source = match members.get("on").map(Json::as_str) {
        None | Some(Some("item")) => Source::Api,
        Some(Some("report")) => Source::Report,
        Some(_) => {
            let fault = "`on` must be `item`, which is the default, or `report`".to_owned();
            return Line { key: None, item: Err(fault) };
        }
    };
    let (key, item) = match parse_entry(line) {
        Ok(entry) => {
            let item = evaluate::prepare(Arc::clone(config), source, &entry, now);
            (
                Some(entry.key()),
                item.map_err(|error| {
                    describe_data_errors(config, &entry).unwrap_or_else(|| error.to_string())
                }),
            )
        }
        Err(fault) => (None, Err(fault)),
    };
    Line { key, item }
}

/// Describes the errors of an item's data, each with its field.
fn describe_data_errors(config: &Compiled, entry: &ItemEntry) -> Option<String> {
    let mode = if entry.variant == Variant::Partial { Mode::Partial } else { Mode::Strict };
    let faults = config
        .item_type_at(&entry.type_id, entry.type_version.as_deref())
        .or(config.item_type(&entry.type_id))?
        .check(&entry.data, mode, &Pointer::Root.key("data"))
        .err()?;
    Some(faults.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

fn parse_entry(line: &str) -> Result<ItemEntry, String> {
    // Checked alone first, because the line is part of a request below, and positions of syntax errors would be those in the request.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(line) {
        // The caller adds the line of the file; within the item it is always 1.
        return Err(format!("no JSON: {error}").replace(" at line 1 column", " at column"));
    }
    let body = format!("{{\"items\":[{line}]}}");
    let request = wire::items::parse(&body.into(), &wire::Limits::default()).map_err(|errors| {
        errors.into_vec().iter().take(3).map(describe_error).collect::<Vec<_>>().join(" ")
    })?;
    let item = request.content.into_iter().next().ok_or("there is no item in the line")?;
    Ok(ItemEntry {
        submission_id: SubmissionId::random(),
        type_id: item.type_id,
        id: item.id,
        type_version: item.type_version,
        variant: item.variant,
        data: item.data,
        origin: None,
        keyed: false,
    })
}

/// Describes an error with its pointer into the line; without a pointer if it concerns the whole line.
fn describe_error(fault: &ValidationError) -> String {
    let pointer = fault.pointer.as_deref().map(|pointer| pointer.strip_prefix("/items/0").unwrap_or(pointer));
    let pointer = pointer.filter(|pointer| !pointer.is_empty()).map(str::to_owned);
    ValidationError { pointer, ..fault.clone() }.to_string()
}
