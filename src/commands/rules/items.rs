//! Items in files: one a line, in either form in which the API takes them.
//!
//! It evaluates nothing.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
    sync::Arc,
};

use anyhow::Context as _;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tidegate_catalog::Compiled;
use tidegate_moderation::evaluate::{self, Prepared};
use tidegate_schemas::{
    ids::{ItemKey, Millis, SubmissionId},
    item_types::Mode,
    records::{ItemEntry, Source, Variant},
    wire::{self, Fault, Pointer},
};

/// Some programs begin a text with it, to say that it is UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// A line of a file: an item, or why it is none.
pub(super) struct Line {
    pub(super) key: Option<ItemKey>,
    pub(super) item: Result<Prepared, String>,
}

/// Lines of a file, or of standard input for `-`. Blank lines are passed over.
pub(super) fn lines(path: &Path) -> anyhow::Result<impl Iterator<Item = io::Result<(usize, Vec<u8>)>>> {
    let input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
        Box::new(BufReader::new(file))
    };
    // A line that is no text is a fault of that line, and must not end the run.
    let lines = input.split(b'\n').enumerate().map(|(nth, line)| {
        let mut line = line?;
        if nth == 0 && line.starts_with(MARK) {
            line.drain(..MARK.len());
        }
        Ok((nth + 1, line))
    });
    Ok(lines.filter(|line| line.as_ref().map_or(true, |(_, text)| !text.trim_ascii().is_empty())))
}

pub(super) fn read(config: &Arc<Compiled>, line: &[u8], now: Millis) -> Line {
    let line = match std::str::from_utf8(line) {
        Ok(line) => line,
        Err(error) => {
            let fault = format!(
                "no UTF-8: byte {} is the first that belongs to no character",
                error.valid_up_to() + 1
            );
            return Line { key: None, item: Err(fault) };
        }
    };
    let members: Json = serde_json::from_str(line).unwrap_or_default();
    let source = match members.get("on").map(Json::as_str) {
        None | Some(Some("item")) => Source::Api,
        Some(Some("report")) => Source::Report,
        Some(_) => {
            let fault = "`on` says how the item came: `item`, which it need not, or `report`".to_owned();
            return Line { key: None, item: Err(fault) };
        }
    };
    let (key, item) = match entry(line) {
        Ok(entry) => {
            let item = evaluate::prepare(Arc::clone(config), source, &entry, now);
            (
                Some(entry.key()),
                item.map_err(|error| unfit(config, &entry).unwrap_or_else(|| error.to_string())),
            )
        }
        Err(fault) => (None, Err(fault)),
    };
    Line { key, item }
}

/// What is wrong with an item's data, each fault with its field.
fn unfit(config: &Compiled, entry: &ItemEntry) -> Option<String> {
    let mode = if entry.variant == Variant::Partial { Mode::Partial } else { Mode::Strict };
    let faults = config.item_type(&entry.type_id)?.check(&entry.data, mode, &Pointer::Root).err()?;
    Some(faults.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

fn entry(line: &str) -> Result<ItemEntry, String> {
    // Told by its own place; below, the line is one item of a request.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(line) {
        return Err(format!("no JSON: {error}").replace(" at line 1 column", " at column"));
    }
    let body = format!("{{\"items\":[{line}]}}");
    let request = wire::items::parse(&body.into(), &wire::Limits::default())
        .map_err(|refused| refused.into_vec().iter().take(3).map(shown).collect::<Vec<_>>().join(" "))?;
    let submitted = request.content.into_iter().next().ok_or("there is no item in the line")?;
    Ok(ItemEntry {
        submission_id: SubmissionId::random(),
        type_id: submitted.type_id,
        id: submitted.id,
        type_version: submitted.type_version,
        variant: submitted.variant,
        data: submitted.data,
        origin: None,
        keyed: false,
    })
}

/// The fault with a pointer into the line.
fn shown(fault: &Fault) -> String {
    let pointer = fault.pointer.as_deref().map(|pointer| pointer.strip_prefix("/items/0").unwrap_or(pointer));
    Fault { pointer: pointer.map(str::to_owned), ..fault.clone() }.to_string()
}
