//! Formats rows as CSV (RFC 4180). An empty cell is null, an empty text is `""`; lists are JSON texts.

use tidegate_history::Value;

use super::{ColumnSelection, ndjson::JsonValueWriter};
use crate::{
    json::write::write_integer,
    tables::{Cells, is_formula},
    timestamp::{DayCache, Timestamp},
};

/// Formatter of CSV records.
#[derive(Debug)]
pub(super) struct CsvFormatter {
    columns: Vec<CsvColumn>,
    cells: Cells,
    /// JSON text of a list, before it is quoted.
    list: Vec<u8>,
}

#[derive(Debug)]
struct CsvColumn {
    position: usize,
    json: JsonValueWriter,
    days: DayCache,
}

impl CsvFormatter {
    /// Creates the formatter, and appends the header.
    pub(super) fn new(selection: &ColumnSelection, cells: Cells, into: &mut Vec<u8>) -> Self {
        for (at, column) in selection.columns().iter().enumerate() {
            if at > 0 {
                into.push(b',');
            }
            write_cell(column.name, false, into);
        }
        into.extend_from_slice(b"\r\n");
        let columns = selection.iter().map(|(column, position)| CsvColumn {
            position,
            json: JsonValueWriter::new(column.column_type),
            days: DayCache::default(),
        });
        Self { columns: columns.collect(), cells, list: Vec::new() }
    }

    /// Appends the record of a row that `row_check` has accepted.
    pub(super) fn write_row(&mut self, row: &[Value<'_>], into: &mut Vec<u8>) {
        let is_single = self.columns.len() == 1;
        for (at, column) in self.columns.iter_mut().enumerate() {
            if at > 0 {
                into.push(b',');
            }
            match &row[column.position] {
                // Readers skip empty lines, so a single empty cell is quoted.
                Value::Null if is_single => into.extend_from_slice(b"\"\""),
                Value::Null => {}
                Value::Text(text) => {
                    write_cell(text, self.cells == Cells::Guarded && is_formula(text), into);
                }
                Value::Integer(integer) => write_integer(into, *integer),
                Value::Boolean(boolean) => into.extend_from_slice(if *boolean { b"true" } else { b"false" }),
                Value::Time(time) => {
                    let time = Timestamp { millis: time.0, has_millis: true };
                    into.extend_from_slice(&time.text(&mut column.days));
                }
                list @ (Value::Texts(_) | Value::Structs(_)) => {
                    self.list.clear();
                    column.json.write(list, &mut self.list);
                    write_cell_bytes(&self.list, false, into);
                }
            }
        }
        into.extend_from_slice(b"\r\n");
    }
}

fn write_cell(text: &str, is_guarded: bool, into: &mut Vec<u8>) {
    write_cell_bytes(text.as_bytes(), is_guarded, into);
}

fn write_cell_bytes(text: &[u8], is_guarded: bool, into: &mut Vec<u8>) {
    let is_quoted = text.is_empty()
        || is_guarded
        // Parsers that trim cells keep the spaces of quoted ones.
        || text.first() == Some(&b' ')
        || text.last() == Some(&b' ')
        || text.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    if !is_quoted {
        into.extend_from_slice(text);
        return;
    }
    into.push(b'"');
    if is_guarded {
        // Within the quotes: spreadsheets remove the quotes before they look at the cell.
        into.push(b'\'');
    }
    let mut unwritten = text;
    while let Some(at) = memchr::memchr(b'"', unwritten) {
        into.extend_from_slice(&unwritten[..=at]);
        into.push(b'"');
        unwritten = &unwritten[at + 1..];
    }
    into.extend_from_slice(unwritten);
    into.push(b'"');
}
