//! Reads files of entries, line by line: what each holds, or why it cannot be read.
//!
//! Whether it can be an entry of the bank is judged by the service.

use std::path::Path;

use anyhow::bail;
use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands) enum Format {
    /// One entry a line; blank lines are passed over
    Lines,
    /// With a header: `value`, and if wanted `labels` (separated by `|`), `source` and `expires_at`
    Csv,
    /// A JSON string, or an object with `value`, `labels`, `source` and `expiresAt`, a line
    Ndjson,
}

impl Format {
    pub(super) fn of(file: &Path) -> Self {
        match file.extension().and_then(|it| it.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("csv") => Self::Csv,
            Some("ndjson" | "jsonl") => Self::Ndjson,
            _ => Self::Lines,
        }
    }
}

pub(super) struct Line {
    /// Of the file, from 1; of an entry over several lines the first.
    pub(super) number: u64,
    pub(super) entry: Result<Value, String>,
}

/// An error is one of the file as a whole.
pub(super) fn lines(text: &str, format: Format) -> anyhow::Result<Vec<Line>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let filled = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    match format {
        Format::Lines => Ok(filled.map(|(number, line)| Line { number, entry: Ok(json!(line)) }).collect()),
        Format::Ndjson => Ok(filled.map(|(number, line)| Line { number, entry: object(line) }).collect()),
        Format::Csv => table(text),
    }
}

const FIELDS: [&str; 4] = ["value", "labels", "source", "expiresAt"];

fn object(line: &str) -> Result<Value, String> {
    let entry: Value = serde_json::from_str(line).map_err(|error| format!("it is no JSON: {error}"))?;
    let object = match &entry {
        Value::String(_) => return Ok(entry),
        Value::Object(object) => object,
        _ => return Err("it is neither a text nor an object".to_owned()),
    };
    if let Some(other) = object.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let shown: String = other.chars().take(64).collect();
        return Err(format!("`{shown}` is none of {}", FIELDS.join(", ")));
    }
    let is_text = |key: &str| object.get(key).is_none_or(|it| it.is_string() || it.is_null());
    let labels = object.get("labels").filter(|labels| !labels.is_null());
    let texts = |labels: &Value| labels.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    if !object.get("value").is_some_and(Value::is_string) {
        return Err("its `value` is no text".to_owned());
    }
    if !is_text("source") || !is_text("expiresAt") || !labels.is_none_or(texts) {
        return Err("`labels` is a list of texts, `source` and `expiresAt` are texts".to_owned());
    }
    let kept = object.iter().filter(|(_, value)| !value.is_null());
    Ok(Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

fn table(text: &str) -> anyhow::Result<Vec<Line>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let mut columns = Vec::new();
    for name in &header {
        columns.push(match name.trim().to_ascii_lowercase().as_str() {
            "value" => "value",
            "labels" => "labels",
            "source" => "source",
            "expires_at" | "expiresat" => "expiresAt",
            other => bail!("the header names `{other}`; known are value, labels, source and expires_at"),
        });
    }
    if !columns.contains(&"value") {
        bail!("the header names no column `value`");
    }
    let rows = reader.records().map(|record| match record {
        Ok(record) => {
            let number = record.position().map_or(0, csv::Position::line);
            let entry = if record.len() == columns.len() {
                Ok(row(&columns, &record))
            } else {
                Err(format!("it has {} columns instead of {}", record.len(), columns.len()))
            };
            Line { number, entry }
        }
        Err(error) => {
            let number = error.position().map_or(0, csv::Position::line);
            Line { number, entry: Err(error.to_string()) }
        }
    });
    Ok(rows.collect())
}

fn row(columns: &[&str], record: &csv::StringRecord) -> Value {
    let filled =
        columns.iter().zip(record).filter(|(name, cell)| **name == "value" || !cell.trim().is_empty());
    let cells = filled.map(|(name, cell)| {
        let value = match *name {
            "labels" => json!(cell.split('|').map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>()),
            _ => json!(cell),
        };
        ((*name).to_owned(), value)
    });
    Value::Object(cells.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shown(text: &str, format: Format) -> Vec<(u64, Result<Value, String>)> {
        lines(text, format).unwrap().into_iter().map(|line| (line.number, line.entry)).collect()
    }

    #[test]
    fn lines_keep_their_numbers_over_blank_ones() {
        let lines = shown("\u{feff}one\r\n\n#two\n", Format::Lines);
        assert_eq!(lines, [(1, Ok(json!("one"))), (3, Ok(json!("#two")))]);
    }

    #[test]
    fn a_table_names_its_columns_and_may_quote() {
        let text = "labels,value\na|b,\"one, two\"\n,\"over\nlines\"\nx\n,last\n";
        let rows = shown(text, Format::Csv);
        assert_eq!(rows[0], (2, Ok(json!({"labels": ["a", "b"], "value": "one, two"}))));
        assert_eq!(rows[1], (3, Ok(json!({"value": "over\nlines"}))));
        assert_eq!((rows[2].0, rows[2].1.is_err()), (5, true));
        assert_eq!(rows[3], (6, Ok(json!({"value": "last"}))));
        assert!(lines("word\nx\n", Format::Csv).is_err(), "a table without a column of values");
    }

    #[test]
    fn each_bad_line_of_json_says_why() {
        let text = "\"one\"\n{\"value\":\"two\",\"source\":null}\n{\"valeu\":\"x\"}\n[1]\n{\n{\"value\":1}\n";
        let lines = shown(text, Format::Ndjson);
        assert_eq!(lines[0].1, Ok(json!("one")));
        assert_eq!(lines[1].1, Ok(json!({"value": "two"})));
        assert!(lines[2..].iter().all(|(_, entry)| entry.is_err()));
        assert_eq!(lines.len(), 6);
    }
}
