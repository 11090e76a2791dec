//! Columns of every type, rows of them, and their comparison as JSON.

#![allow(clippy::unwrap_used, dead_code, reason = "the test of memory uses a part of it")]

use serde_json::{Map, Value as Json, json};
use tidegate_exporter::flat::{ColumnSelection, FlatFormat, SinkOptions, SinkTarget};
use tidegate_exporter::tables::Cells;
use tidegate_history::{
    Column,
    ColumnType::{Boolean, Integer, Structs, Text, Texts, Time},
    Dataset, Value,
};
use tidegate_schemas::ids::Millis;

/// 2026-11-28T00:00:00Z.
pub(crate) const DAY: i64 = 1_795_824_000_000;
pub(crate) const DAY_MILLIS: i64 = 86_400_000;

const fn column(name: &'static str, column_type: tidegate_history::ColumnType, is_nullable: bool) -> Column {
    Column { name, column_type, is_nullable, about: "" }
}

/// Columns of every type, required and optional.
pub(crate) const COLUMNS: &[Column] = &[
    column("id", Text, false),
    column("at", Time, false),
    column("note", Text, true),
    column("count", Integer, false),
    column("attempts", Integer, true),
    column("safe", Boolean, false),
    column("checked", Boolean, true),
    column("closedAt", Time, true),
    column("policies", Texts, false),
    column("tags", Texts, true),
    column("rules", Structs(MEMBERS), false),
    column("media", Structs(MEMBERS), true),
];

const MEMBERS: &[Column] = &[
    column("rule", Text, false),
    column("reason", Text, true),
    column("matches", Integer, true),
    column("hit", Boolean, true),
    column("seenAt", Time, true),
];

/// Rows with every kind of value: null, empty and long lists, and texts that need quotes.
pub(crate) fn rows() -> Vec<Vec<Value<'static>>> {
    let texts = |texts: &[&'static str]| Value::Texts(texts.iter().map(|text| (*text).into()).collect());
    let full = [
        Value::text("r\"1\",\r\n"),
        Value::Time(Millis(DAY + 7)),
        Value::Integer(-3),
        Value::Boolean(true),
        Value::Time(Millis(-1)),
    ];
    let mut nulls = vec![Value::Null; MEMBERS.len()];
    nulls[0] = Value::text("");
    let structs = |count: usize| {
        let element =
            vec![full[0].clone(), Value::text("é\u{1}\\"), full[2].clone(), full[3].clone(), full[4].clone()];
        Value::Structs(
            (0..count).map(|at| if at % 2 == 0 { element.clone() } else { nulls.clone() }).collect(),
        )
    };
    vec![
        vec![
            Value::text("full"),
            Value::Time(Millis(DAY)),
            Value::text(" =1+1, \"😀\"\n'"),
            Value::Integer(i64::MIN),
            Value::Integer(i64::MAX),
            Value::Boolean(true),
            Value::Boolean(false),
            Value::Time(Millis(DAY + 123)),
            texts(&["spam", "", "a,b"]),
            texts(&["one"]),
            structs(3),
            structs(1),
        ],
        vec![
            Value::text("null"),
            Value::Time(Millis(DAY + 1)),
            Value::Null,
            Value::Integer(0),
            Value::Null,
            Value::Boolean(false),
            Value::Null,
            Value::Null,
            texts(&[]),
            Value::Null,
            structs(0),
            Value::Null,
        ],
        vec![
            Value::text("empty"),
            Value::Time(Millis(DAY + 2)),
            Value::text(""),
            Value::Integer(-1),
            Value::Integer(1),
            Value::Boolean(true),
            Value::Boolean(true),
            Value::Time(Millis(0)),
            texts(&["one"]),
            texts(&[]),
            structs(2),
            structs(0),
        ],
    ]
}

/// JSON of a row with times in milliseconds.
pub(crate) fn to_json(columns: &[Column], row: &[Value<'_>]) -> Json {
    Json::Object(
        columns
            .iter()
            .zip(row)
            .map(|(column, value)| (column.name.to_owned(), value_json(column, value)))
            .collect(),
    )
}

fn value_json(column: &Column, value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Text(text) => json!(text),
        Value::Integer(integer) => json!(integer),
        Value::Boolean(boolean) => json!(boolean),
        Value::Time(time) => json!(time.0),
        Value::Texts(texts) => json!(texts),
        Value::Structs(structs) => {
            let Structs(members) = column.column_type else { panic!("{column:?}") };
            structs.iter().map(|values| to_json(members, values)).collect()
        }
    }
}

/// Replaces texts of times by milliseconds.
pub(crate) fn parse_times(columns: &[Column], json: &mut Json) {
    let object: &mut Map<String, Json> = json.as_object_mut().unwrap();
    for column in columns {
        let value = &mut object[column.name];
        match column.column_type {
            Time if value.is_string() => {
                let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
                *value = json!(time.as_millisecond());
            }
            Structs(members) if value.is_array() => {
                value.as_array_mut().unwrap().iter_mut().for_each(|element| parse_times(members, element));
            }
            _ => {}
        }
    }
}

pub(crate) fn sink_options(target: SinkTarget, format: FlatFormat, columns: &[Column]) -> SinkOptions {
    SinkOptions { target, format, columns: ColumnSelection::all(columns), cells: Cells::Exact }
}

/// Row of the dataset `decisions`, with an id from its number.
pub(crate) fn decision(number: u64, at: i64) -> Vec<Value<'static>> {
    let id = format!("018f{number:08x}-7000-8000-{number:012x}");
    let related = vec![Value::text("post"), Value::text(format!("r{number}")), Value::text("hide")];
    vec![
        Value::text(id),
        Value::Time(Millis(at)),
        Value::Time(Millis(at - 12_345)),
        Value::text(if number.is_multiple_of(7) { "platform" } else { "moderator" }),
        Value::text(format!("moderator{}@example.com", number % 40)),
        Value::text(format!("018e{number:08x}-7000-8000-{number:012x}")),
        Value::text("review"),
        Value::text(["default", "spam"][usize::from(number.is_multiple_of(2))]),
        Value::Time(Millis(at - 1_000_000)),
        Value::text("post"),
        Value::text(format!("post-{number}")),
        Value::text(if number.is_multiple_of(3) { "ignore" } else { "act" }),
        Value::Texts(vec!["hide".into(), "warn".into()]),
        Value::Texts(vec!["spam".into()]),
        Value::Texts(Vec::new()),
        Value::Null,
        if number.is_multiple_of(5) { Value::text("Repeated advertising in replies") } else { Value::Null },
        Value::Structs(if number.is_multiple_of(4) { vec![related] } else { Vec::new() }),
        Value::Boolean(false),
    ]
}

#[test]
fn sample_row_fits_the_dataset() {
    assert_eq!(decision(1, DAY).len(), Dataset::Decisions.columns().len());
}
