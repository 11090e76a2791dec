//! Reads the files of hash exchanges, one module per exchange.

pub(crate) mod ncmec;
pub(crate) mod stopncii;
pub(crate) mod tat;
pub(crate) mod threatexchange;

#[cfg(test)]
mod tests;

use std::io::BufRead;

use serde_json::{Map, Value, json};
use tidegate_schemas::banks::BankKind;

use crate::{
    FileEntries,
    entry::{Change, FileEntry, Position},
    json_pages::read_records,
};

/// Reads one record of an exchange's page.
type ReadRecord = fn(&Map<String, Value>, BankKind) -> Result<Change, String>;

/// Returns the entries of JSON pages, lists or single records, one after the other.
pub(crate) fn paged_entries(
    file: impl BufRead + Send + 'static,
    kind: BankKind,
    read: ReadRecord,
) -> FileEntries {
    let records = (1..).zip(read_records(file));
    Box::new(records.map(move |(number, record)| {
        let (line, record) = record?;
        let change = record.and_then(|record| match record {
            Value::Object(record) => read(&record, kind),
            _ => Err("it is no object".to_owned()),
        });
        Ok(FileEntry { position: Position { line, record: Some(number) }, change })
    }))
}

/// Returns the text under a key.
pub(crate) fn text<'r>(record: &'r Map<String, Value>, key: &str) -> Option<&'r str> {
    record.get(key).and_then(Value::as_str)
}

/// Returns the text under a key that every record has.
pub(crate) fn required_text<'r>(record: &'r Map<String, Value>, key: &str) -> Result<&'r str, String> {
    text(record, key).ok_or_else(|| format!("its `{key}` is not a text"))
}

/// Returns the name under a key. Some exchanges write names as numbers.
pub(crate) fn name(record: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match record.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        _ => Err(format!("its `{key}` is not a name")),
    }
}

/// Returns the flag under a key. Any other value is refused: it may mean "withdrawn", and a withdrawn hash must not be added.
pub(crate) fn flag(record: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match record.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(is_set)) => Ok(*is_set),
        _ => Err(format!("its `{key}` is neither true nor false")),
    }
}

/// Returns the change that adds a value.
pub(crate) fn add(value: &str, source: &str, reference: Option<String>, labels: &[String]) -> Change {
    let mut entry = json!({"value": value, "source": source});
    let labels: Vec<_> = labels.iter().filter(|label| !label.trim().is_empty()).collect();
    if !labels.is_empty() {
        entry["labels"] = json!(labels);
    }
    if let Some(reference) = reference {
        entry["reference"] = json!(reference);
    }
    Change::Add(entry)
}

/// Returns the change that withdraws a value. A malformed value is refused here, because the service would only report it as
/// missing.
pub(crate) fn withdraw(
    value: &str,
    source: &str,
    reference: Option<&str>,
    kind: BankKind,
) -> Result<Change, String> {
    let value = kind.canonical(value)?;
    Ok(Change::Withdraw(json!({"value": value, "source": source, "reference": reference})))
}
