//! Reads tables with a header, and reads and writes the labels within one cell.

use std::io::BufRead;

use serde_json::{Map, json};
use tidegate_schemas::banks::BankKind;

use crate::{
    FileEntries, FileError,
    csv_positions::track_positions,
    entry::{Change, FileEntry, complete_entry, field_name},
    length_limit::limit_length,
};

/// Returns the entries of a table.
pub(crate) fn csv_entries(file: impl BufRead + 'static, bank: BankKind) -> Result<FileEntries, FileError> {
    let (file, limit) = limit_length(file);
    let (file, positions) = track_positions(file);
    // Flexible: a row with a wrong number of columns is refused alone, not the whole file.
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(file);
    let header = reader.headers()?.clone();
    let mut columns = Vec::new();
    for name in &header {
        // Spreadsheets put a byte order mark before the first name.
        let name = name.trim().trim_start_matches('\u{feff}').to_ascii_lowercase();
        match field_name(&name) {
            Some(column) if !columns.contains(&column) => columns.push(column),
            Some(_) => {
                let reason = format!("the header has `{name}` twice, or two names for the same column");
                return Err(FileError::new(reason));
            }
            None => {
                return Err(FileError::new(format!(
                    "the header names `{name}`; known are value or hash, labels, source, expires_at, signal_type, \
                     max_distance, content_id, note and disabled"
                )));
            }
        }
    }
    if !columns.contains(&"value") {
        return Err(FileError::new("the header names no column `value`"));
    }
    let mut last_line = 1;
    let rows = reader.into_records().map(move |record| {
        // The length limit applies to each record.
        limit.renew();
        let position = match &record {
            Ok(record) => record.position(),
            Err(error) => error.position(),
        };
        if let Some(line) = position.and_then(|position| positions.line(position.byte())) {
            last_line = line;
        }
        // The parser took the remainder of the file for one cell, so the rows in it would be lost.
        if positions.ends_within_a_quote() {
            let reason =
                format!("line {last_line}: a quote begins in this row, or after it, and does not end");
            return Err(FileError::new(reason));
        }
        let change = match record {
            Ok(record) if record.len() == columns.len() => parse_row(&columns, &record, bank),
            Ok(record) => Err(format!("it has {} columns instead of {}", record.len(), columns.len())),
            // Reading cannot continue after an I/O error; all other faults concern one row.
            Err(error) if error.is_io_error() => {
                return Err(FileError::from(error).at(format!("after line {last_line}")));
            }
            Err(error) => Err(error.to_string()),
        };
        Ok(FileEntry::at_line(last_line, change))
    });
    Ok(Box::new(rows))
}

fn parse_row(columns: &[&str], record: &csv::StringRecord, bank: BankKind) -> Result<Change, String> {
    let mut entry = Map::new();
    for (name, cell) in columns.iter().zip(record) {
        // A blank cell stands for a missing field. The value itself may consist of blanks.
        if *name != "value" && cell.trim().is_empty() {
            continue;
        }
        let value = match *name {
            "labels" => json!(split_labels(cell)),
            "distance" => {
                json!(cell.trim().parse::<u32>().map_err(|_| "its distance is not a number".to_owned())?)
            }
            "disabled" => {
                let text = cell.trim().to_ascii_lowercase();
                json!(text.parse::<bool>().map_err(|_| "`disabled` is true or false".to_owned())?)
            }
            _ => json!(cell),
        };
        entry.insert((*name).to_owned(), value);
    }
    complete_entry(entry, bank)
}

/// Splits the labels of a cell at bars. A backslash makes a following bar, blank or backslash part of the label, as [`join_labels`]
/// writes it.
pub(crate) fn split_labels(cell: &str) -> Vec<String> {
    let mut labels = Vec::new();
    // `min_length` is the length that trimming must keep, because the last blank within it was escaped.
    let (mut label, mut min_length) = (String::new(), 0);
    let mut end_label = |label: &mut String, min_length: &mut usize| {
        label.truncate(label.trim_end().len().max(*min_length));
        *min_length = 0;
        labels.extend(Some(std::mem::take(label)).filter(|label| !label.is_empty()));
    };
    let mut letters = cell.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '|' => end_label(&mut label, &mut min_length),
            '\\' if letters.peek().is_some_and(|next| is_escaped(*next)) => {
                label.extend(letters.next());
                min_length = label.len();
            }
            // Blanks around a label are not part of it; those at its end are trimmed when it ends.
            _ if label.is_empty() && letter.is_whitespace() => {}
            _ => label.push(letter),
        }
    }
    end_label(&mut label, &mut min_length);
    labels
}

fn is_escaped(letter: char) -> bool {
    matches!(letter, '|' | '\\') || letter.is_whitespace()
}

/// Joins labels into one cell, which [`split_labels`] reads back.
pub fn join_labels(labels: &[String]) -> String {
    let escape_label = |label: &String| {
        let (start, end) = (label.len() - label.trim_start().len(), label.trim_end().len());
        let mut text = String::with_capacity(label.len());
        for (index, letter) in label.char_indices() {
            let is_at_end = letter.is_whitespace() && (index < start || index >= end);
            if matches!(letter, '|' | '\\') || is_at_end {
                text.push('\\');
            }
            text.push(letter);
        }
        text
    };
    labels.iter().map(escape_label).collect::<Vec<_>>().join("|")
}
