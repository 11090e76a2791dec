//! Formats rows as lines of JSON. Members have the names and the order of the columns.

use tidegate_history::{Column, ColumnType, Value};

use super::ColumnSelection;
use crate::{
    json::write::{write_integer, write_string},
    timestamp::{DayCache, Timestamp},
};

/// Formatter of NDJSON lines.
#[derive(Debug)]
pub(super) struct NdjsonFormatter {
    columns: Vec<JsonColumn>,
}

#[derive(Debug)]
struct JsonColumn {
    position: usize,
    /// `{"name":` or `,"name":`.
    prefix: Vec<u8>,
    json: JsonValueWriter,
}

impl NdjsonFormatter {
    pub(super) fn new(selection: &ColumnSelection) -> Self {
        let columns = selection.iter().enumerate().map(|(at, (column, position))| JsonColumn {
            position,
            prefix: member_prefix(at, column),
            json: JsonValueWriter::new(column.column_type),
        });
        Self { columns: columns.collect() }
    }

    /// Appends the line of a row that `row_check` has accepted.
    pub(super) fn write_row(&mut self, row: &[Value<'_>], into: &mut Vec<u8>) {
        for column in &mut self.columns {
            into.extend_from_slice(&column.prefix);
            column.json.write(&row[column.position], into);
        }
        into.extend_from_slice(if self.columns.is_empty() { b"{}\n" } else { b"}\n" });
    }
}

fn member_prefix(at: usize, column: &Column) -> Vec<u8> {
    let mut prefix = vec![if at == 0 { b'{' } else { b',' }];
    write_string(&mut prefix, column.name);
    prefix.push(b':');
    prefix
}

/// Writer of one column's values as JSON.
#[derive(Debug)]
pub(super) struct JsonValueWriter {
    /// Prefixes of members, for structs.
    prefixes: Vec<Vec<u8>>,
    /// One cache per column: the times of a row can lie on different days.
    days: DayCache,
}

impl JsonValueWriter {
    pub(super) fn new(column_type: ColumnType) -> Self {
        let members = if let ColumnType::Structs(members) = column_type { members } else { &[] };
        let prefixes = members.iter().enumerate().map(|(at, member)| member_prefix(at, member)).collect();
        Self { prefixes, days: DayCache::default() }
    }

    pub(super) fn write(&mut self, value: &Value<'_>, into: &mut Vec<u8>) {
        match value {
            Value::Texts(texts) => {
                into.push(b'[');
                for (at, text) in texts.iter().enumerate() {
                    if at > 0 {
                        into.push(b',');
                    }
                    write_string(into, text);
                }
                into.push(b']');
            }
            Value::Structs(structs) => {
                into.push(b'[');
                for (at, values) in structs.iter().enumerate() {
                    if at > 0 {
                        into.push(b',');
                    }
                    for (prefix, value) in self.prefixes.iter().zip(values) {
                        into.extend_from_slice(prefix);
                        write_scalar(value, &mut self.days, into);
                    }
                    into.push(b'}');
                }
                into.push(b']');
            }
            scalar => write_scalar(scalar, &mut self.days, into),
        }
    }
}

#[inline]
fn write_scalar(value: &Value<'_>, days: &mut DayCache, into: &mut Vec<u8>) {
    match value {
        Value::Text(text) => write_string(into, text),
        Value::Integer(integer) => write_integer(into, *integer),
        Value::Boolean(boolean) => into.extend_from_slice(if *boolean { b"true" } else { b"false" }),
        Value::Time(time) => {
            into.push(b'"');
            into.extend_from_slice(&Timestamp { millis: time.0, has_millis: true }.text(days));
            into.push(b'"');
        }
        // `row_check` refuses lists as members of structs.
        Value::Null | Value::Texts(_) | Value::Structs(_) => into.extend_from_slice(b"null"),
    }
}
