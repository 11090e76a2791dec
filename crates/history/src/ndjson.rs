//! Rows as lines of JSON.

use std::{borrow::Cow, io::Write as _};

use serde_json::{Map, Value as Json};
use tidegate_schemas::item_types::datetime;

use crate::{Column, ColumnType, Value};

/// Line that is no row of the dataset.
#[derive(Debug, thiserror::Error)]
pub enum InvalidLine {
    #[error("the line is no JSON object: {0}")]
    Json(serde_json::Error),
    #[error("member `{0}` is missing")]
    Missing(&'static str),
    #[error("member `{0}` has another type than the column")]
    Type(&'static str),
}

/// Reads the values of a line. A member that is not listed in `columns` is ignored.
pub fn parse_row(columns: &[Column], line: &[u8]) -> Result<Vec<Value<'static>>, InvalidLine> {
    let mut members: Map<String, Json> = serde_json::from_slice(line).map_err(InvalidLine::Json)?;
    columns.iter().map(|column| parse_member(column, members.remove(column.name))).collect()
}

fn parse_member(column: &Column, member: Option<Json>) -> Result<Value<'static>, InvalidLine> {
    match member {
        None => Err(InvalidLine::Missing(column.name)),
        Some(Json::Null) if column.is_nullable => Ok(Value::Null),
        Some(json) => parse_value(column, json).ok_or(InvalidLine::Type(column.name)),
    }
}

fn parse_value(column: &Column, json: Json) -> Option<Value<'static>> {
    Some(match (column.column_type, json) {
        (ColumnType::Text, Json::String(text)) => Value::text(text),
        (ColumnType::Integer, json) => Value::Integer(json.as_i64()?),
        (ColumnType::Boolean, Json::Bool(value)) => Value::Boolean(value),
        (ColumnType::Time, Json::String(text)) => Value::Time(datetime::parse(&text)?),
        (ColumnType::Texts, Json::Array(entries)) => {
            let texts = entries.into_iter().map(|entry| match entry {
                Json::String(text) => Some(Cow::Owned(text)),
                _ => None,
            });
            Value::Texts(texts.collect::<Option<_>>()?)
        }
        (ColumnType::Structs(members), Json::Array(entries)) => {
            let structs = entries.into_iter().map(|entry| {
                let Json::Object(mut object) = entry else { return None };
                let values =
                    members.iter().map(|member| parse_member(member, object.remove(member.name)).ok());
                values.collect::<Option<Vec<_>>>()
            });
            Value::Structs(structs.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Appends a row as one line. Members stand in the order of the columns, absent values as `null`.
pub fn write_row(columns: &[Column], values: &[Value<'_>], out: &mut Vec<u8>) {
    write_object(columns, values, out);
    out.push(b'\n');
}

fn write_object(columns: &[Column], values: &[Value<'_>], out: &mut Vec<u8>) {
    out.push(b'{');
    for (nth, (column, value)) in columns.iter().zip(values).enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.push(b'"');
        // Names of columns are identifiers, so they need no escapes.
        out.extend_from_slice(column.name.as_bytes());
        out.extend_from_slice(b"\":");
        write_value(column, value, out);
    }
    out.push(b'}');
}

fn write_value(column: &Column, value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Text(text) => write_text(text, out),
        Value::Integer(number) => write_number(*number, out),
        Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Time(at) => write_text(&at.iso(), out),
        Value::Texts(texts) => {
            write_list(texts, out, |text, out| write_text(text, out));
        }
        Value::Structs(structs) => {
            let members = match column.column_type {
                ColumnType::Structs(members) => members,
                _ => &[],
            };
            write_list(structs, out, |values, out| write_object(members, values, out));
        }
    }
}

fn write_list<T>(entries: &[T], out: &mut Vec<u8>, write_entry: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (nth, entry) in entries.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        write_entry(entry, out);
    }
    out.push(b']');
}

fn write_number(number: i64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _infallible = write!(out, "{number}");
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let escape: Option<&[u8]> = match byte {
            b'"' => Some(b"\\\""),
            b'\\' => Some(b"\\\\"),
            b'\n' => Some(b"\\n"),
            b'\r' => Some(b"\\r"),
            b'\t' => Some(b"\\t"),
            0..0x20 => None,
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..index]);
        match escape {
            Some(escape) => out.extend_from_slice(escape),
            None => {
                let _infallible = write!(out, "\\u{byte:04x}");
            }
        }
        start = index + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::ids::Millis;

    use super::*;

    #[test]
    fn line_equals_the_json_of_its_values() {
        const MEMBERS: &[Column] = &[Column::required("rule", ColumnType::Text, "")];
        let columns = [
            Column::required("id", ColumnType::Text, ""),
            Column::required("at", ColumnType::Time, ""),
            Column::optional("count", ColumnType::Integer, ""),
            Column::required("isNew", ColumnType::Boolean, ""),
            Column::required("tags", ColumnType::Texts, ""),
            Column::required("rules", ColumnType::Structs(MEMBERS), ""),
        ];
        let values = [
            Value::text("a\"\\\n\u{1}é"),
            Value::Time(Millis(1_000)),
            Value::Null,
            Value::Boolean(true),
            Value::Texts(vec!["x".into(), "y".into()]),
            Value::Structs(vec![vec![Value::text("r")]]),
        ];
        let mut line = Vec::new();
        write_row(&columns, &values, &mut line);
        let expected = serde_json::json!({
            "id": "a\"\\\n\u{1}é", "at": "1970-01-01T00:00:01.000Z", "count": null, "isNew": true, "tags": ["x", "y"],
            "rules": [{"rule": "r"}],
        });
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&line).unwrap(), expected);
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(parse_row(&columns, &line).unwrap(), values);
        let error = parse_row(&columns[..1], b"{}").unwrap_err();
        assert_eq!(error.to_string(), "member `id` is missing");
    }
}
