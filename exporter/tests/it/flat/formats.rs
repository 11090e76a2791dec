//! Tests of the formats: values are read back by other implementations.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    sync::Arc,
};

use parquet::{
    basic::Compression,
    file::reader::{FileReader as _, SerializedFileReader},
    record::{Field, Row},
};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tidegate_exporter::{
    error::ConvertError,
    flat::{ColumnSelection, FileSummary, FlatFormat, RowSink, SinkOptions, SinkTarget},
    tables::Cells,
};
use tidegate_history::{Column, ColumnType, Value};
use tidegate_schemas::ids::Millis;
use tidegate_test_support::servers;

use super::rows::{COLUMNS, DAY, parse_times, rows, sink_options, to_json};
use crate::support::Folder;

fn write(path: &Path, format: FlatFormat, columns: &[Column], rows: &[Vec<Value<'_>>]) -> FileSummary {
    let mut sink = RowSink::open(sink_options(SinkTarget::File(path.to_owned()), format, columns)).unwrap();
    rows.iter().for_each(|row| sink.write_row(row).unwrap());
    sink.finish().unwrap()
}

fn expected(rows: &[Vec<Value<'_>>]) -> Vec<Json> {
    rows.iter().map(|row| to_json(COLUMNS, row)).collect()
}

fn field_json(field: &Field) -> Json {
    match field {
        Field::Null => Json::Null,
        Field::Str(text) => json!(text),
        Field::Long(integer) => json!(integer),
        Field::Bool(boolean) => json!(boolean),
        Field::TimestampMillis(millis) => json!(millis),
        Field::ListInternal(list) => list.elements().iter().map(field_json).collect(),
        Field::Group(row) => row_json(row),
        other => panic!("{other:?}"),
    }
}

fn row_json(row: &Row) -> Json {
    Json::Object(row.get_column_iter().map(|(name, field)| (name.clone(), field_json(field))).collect())
}

fn read_parquet(path: &Path) -> Vec<Json> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(|row| row_json(&row.unwrap())).collect()
}

#[test]
fn parquet_keeps_every_value() {
    let folder = Folder::new();
    let path = folder.path("rows.parquet");
    let summary = write(&path, FlatFormat::Parquet, COLUMNS, &rows());
    assert_eq!(read_parquet(&path), expected(&rows()));
    let bytes = fs::read(&path).unwrap();
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        summary,
        FileSummary { name: "rows.parquet".to_owned(), rows: 3, bytes: bytes.len() as u64, sha256 }
    );
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let chunks = reader.metadata().row_group(0).columns();
    assert!(chunks.iter().all(|chunk| matches!(chunk.compression(), Compression::ZSTD(_))));
    assert_eq!(folder.names(), ["rows.parquet"]);
}

#[test]
fn parquet_without_rows_has_its_columns() {
    let folder = Folder::new();
    let path = folder.path("rows.parquet");
    assert_eq!(write(&path, FlatFormat::Parquet, COLUMNS, &[]).rows, 0);
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let names: Vec<_> =
        schema.root_schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    assert_eq!(names, COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>());
}

/// Rows whose lists and texts exceed the chunks that the encoder receives.
#[test]
fn parquet_keeps_long_lists_and_texts() {
    let folder = Folder::new();
    let mut many = Vec::new();
    for number in 0..20_000_usize {
        let mut row = rows()[number % 3].clone();
        row[3] = Value::Integer(number as i64);
        if number.is_multiple_of(999) {
            row[8] = Value::Texts((0..9_000).map(|at| format!("{number}-{at}").into()).collect());
            row[2] = Value::text("x".repeat(3 << 20) + &number.to_string());
        }
        many.push(row);
    }
    let path = folder.path("rows.parquet");
    write(&path, FlatFormat::Parquet, COLUMNS, &many);
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    // 63 MB of texts and as much again of lists and other values.
    assert_eq!(reader.metadata().num_row_groups(), 2);
    for (at, (read, written)) in read_parquet(&path).iter().zip(expected(&many)).enumerate() {
        assert!(*read == written, "row {at}");
    }
    assert_eq!(reader.metadata().file_metadata().num_rows(), 20_000);
}

#[test]
fn ndjson_has_members_in_the_order_of_columns() {
    let folder = Folder::new();
    let path = folder.path("rows.ndjson");
    write(&path, FlatFormat::Ndjson, COLUMNS, &rows());
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.split_terminator('\n').collect();
    assert_eq!(
        lines[1],
        r#"{"id":"null","at":"2026-11-28T00:00:00.001Z","note":null,"count":0,"attempts":null,"safe":false,"checked":null,"closedAt":null,"policies":[],"tags":null,"rules":[],"media":null}"#
    );
    let parsed: Vec<_> = lines
        .iter()
        .map(|line| {
            let mut json = serde_json::from_str(line).unwrap();
            parse_times(COLUMNS, &mut json);
            json
        })
        .collect();
    assert_eq!(parsed, expected(&rows()));
}

#[test]
fn csv_is_read_back_by_another_parser() {
    let folder = Folder::new();
    let path = folder.path("rows.csv");
    write(&path, FlatFormat::Csv, COLUMNS, &rows());
    let text = fs::read_to_string(&path).unwrap();
    let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    assert!(text.starts_with(&(names.join(",") + "\r\n")) && text.ends_with("\r\n"));
    // Null is an empty cell, an empty text is quoted.
    let null_line = "null,2026-11-28T00:00:00.001Z,,0,,false,,,[],,[],\r\n";
    assert!(text.contains(null_line), "{text}");
    assert!(text.contains("\r\nempty,2026-11-28T00:00:00.002Z,\"\",-1,"), "{text}");
    let mut reader = csv::Reader::from_path(&path).unwrap();
    for (record, row) in reader.records().map(Result::unwrap).zip(rows()) {
        let mut json = json!({});
        for ((cell, column), value) in record.iter().zip(COLUMNS).zip(&row) {
            json[column.name] = match column.column_type {
                _ if *value == Value::Null => {
                    assert_eq!(cell, "");
                    Json::Null
                }
                ColumnType::Text | ColumnType::Time => json!(cell),
                _ => serde_json::from_str(cell).unwrap(),
            };
        }
        parse_times(COLUMNS, &mut json);
        assert_eq!(json, to_json(COLUMNS, &row));
    }
}

#[test]
fn cells_are_guarded_on_request_and_single_cells_are_no_empty_lines() {
    let folder = Folder::new();
    let columns = &COLUMNS[2..4];
    let written_rows: Vec<_> = ["=1", "+1", "-x", "@a", "-1", "a=", "'=", "\t="]
        .map(|text| {
            let mut row = rows()[0][2..4].to_vec();
            (row[0], row[1]) = (Value::text(text), Value::Integer(-5));
            row
        })
        .to_vec();
    let mut texts = Vec::new();
    for cells in [Cells::Exact, Cells::Guarded] {
        let target = SinkTarget::File(folder.path("rows.csv"));
        let options = SinkOptions { cells, ..sink_options(target, FlatFormat::Csv, columns) };
        let mut sink = RowSink::open(options).unwrap();
        written_rows.iter().for_each(|row| sink.write_row(row).unwrap());
        sink.finish().unwrap();
        texts.push(fs::read_to_string(folder.path("rows.csv")).unwrap().replace("\r\n", "\n"));
    }
    assert_eq!(texts[0], "note,count\n=1,-5\n+1,-5\n-x,-5\n@a,-5\n-1,-5\na=,-5\n'=,-5\n\t=,-5\n");
    assert_eq!(
        texts[1],
        "note,count\n\"'=1\",-5\n\"'+1\",-5\n\"'-x\",-5\n\"'@a\",-5\n-1,-5\na=,-5\n\"''=\",-5\n\"'\t=\",-5\n"
    );
    write(
        &folder.path("single.csv"),
        FlatFormat::Csv,
        &COLUMNS[2..3],
        &[vec![Value::Null], vec![Value::Null]],
    );
    assert_eq!(fs::read_to_string(folder.path("single.csv")).unwrap(), "note\r\n\"\"\r\n\"\"\r\n");
}

#[test]
fn formats_write_the_selected_columns() {
    let folder = Folder::new();
    let columns = ColumnSelection::parse(COLUMNS, "count,id,tags").unwrap();
    for format in FlatFormat::ALL {
        let path = folder.path(format.as_str());
        let options = SinkOptions {
            target: SinkTarget::File(path.clone()),
            format: *format,
            columns: columns.clone(),
            cells: Cells::Exact,
        };
        let mut sink = RowSink::open(options).unwrap();
        rows().iter().for_each(|row| sink.write_row(row).unwrap());
        sink.finish().unwrap();
        if *format == FlatFormat::Parquet {
            assert_eq!(read_parquet(&path)[1], json!({ "count": 0, "id": "null", "tags": null }));
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let line = if *format == FlatFormat::Csv {
            "\r\n0,null,\r\n"
        } else {
            "\n{\"count\":0,\"id\":\"null\",\"tags\":null}\n"
        };
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn row_that_does_not_fit_its_columns_is_refused() {
    let folder = Folder::new();
    type Change = fn(&mut Vec<Value<'static>>);
    let changes: [(Change, &str); 7] = [
        (|row| row[0] = Value::Null, "column `id` has no value"),
        (|row| row[3] = Value::text("1"), "column `count` has a value of another type"),
        (|row| row[1] = Value::Time(Millis(i64::MAX)), "column `at` is not a time of the years 0000 to 9999"),
        (
            |row| row[10] = Value::Structs(vec![Vec::new()]),
            "column `rules` has a struct with a wrong number of members",
        ),
        (|row| row[10] = Value::Structs(vec![vec![Value::Null; 5]]), "column `rules` has no value"),
        (|row| row[8] = Value::Structs(Vec::new()), "column `policies` has a value of another type"),
        (|row| drop(row.pop()), "the row has 11 values instead of 12"),
    ];
    for format in FlatFormat::ALL {
        for (change, message) in &changes {
            let target = SinkTarget::File(folder.path("rows"));
            let mut sink = RowSink::open(sink_options(target, *format, COLUMNS)).unwrap();
            let mut row = rows()[0].clone();
            sink.write_row(&row).unwrap();
            change(&mut row);
            let error = sink.write_row(&row).unwrap_err();
            assert!(matches!(error, ConvertError::Content { .. }));
            assert_eq!(error.to_string(), format!("rows, row 2: {message}"));
            drop(sink);
            assert!(folder.names().is_empty());
        }
    }
}

#[test]
fn streams_hold_the_same_bytes_as_files() {
    let folder = Folder::new();
    for format in FlatFormat::ALL {
        let summary = write(&folder.path("rows"), *format, COLUMNS, &rows());
        let stream = Arc::new(File::create(folder.path("stream")).unwrap());
        let mut sink = RowSink::open(sink_options(SinkTarget::Stream(stream), *format, COLUMNS)).unwrap();
        rows().iter().for_each(|row| sink.write_row(row).unwrap());
        let stream_summary = sink.finish().unwrap();
        assert_eq!(stream_summary, FileSummary { name: "-".to_owned(), ..summary });
        assert!(fs::read(folder.path("rows")).unwrap() == fs::read(folder.path("stream")).unwrap());
    }
}

fn text() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![any::<String>(), Just(String::new()), "[ =\"',\r\n]{0,3}"].prop_map(Value::text)
}

fn value(column: &Column) -> BoxedStrategy<Value<'static>> {
    let present = match column.column_type {
        ColumnType::Text => text().boxed(),
        ColumnType::Integer => any::<i64>().prop_map(Value::Integer).boxed(),
        ColumnType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        ColumnType::Time => (-DAY..DAY).prop_map(|millis| Value::Time(Millis(millis))).boxed(),
        ColumnType::Texts => prop::collection::vec(any::<String>(), 0..4)
            .prop_map(|texts| Value::Texts(texts.into_iter().map(Into::into).collect()))
            .boxed(),
        ColumnType::Structs(members) => {
            let element: Vec<_> = members.iter().map(value).collect();
            prop::collection::vec(element, 0..4).prop_map(Value::Structs).boxed()
        }
    };
    if column.is_nullable { prop_oneof![1 => Just(Value::Null), 3 => present].boxed() } else { present }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_rows_are_read_back_from_parquet_and_ndjson(
        rows in prop::collection::vec(COLUMNS.iter().map(value).collect::<Vec<_>>(), 0..20),
    ) {
        let folder = Folder::new();
        let path = folder.path("rows");
        write(&path, FlatFormat::Parquet, COLUMNS, &rows);
        prop_assert_eq!(read_parquet(&path), expected(&rows));
        write(&path, FlatFormat::Ndjson, COLUMNS, &rows);
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.split_terminator('\n').map(|line| {
            let mut json = serde_json::from_str(line).unwrap();
            parse_times(COLUMNS, &mut json);
            json
        });
        prop_assert_eq!(lines.collect::<Vec<_>>(), expected(&rows));
    }
}

/// Prints the rows of a file as JSON, with times in milliseconds, as DuckDB and as Polars read them.
const READ_BACK: &str = r#"
import datetime, duckdb, json, polars, sys
folder = sys.argv[1]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
def plain(value):
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, list):
        return [plain(it) for it in value]
    if isinstance(value, dict):
        return {name: plain(it) for name, it in value.items()}
    return value
def duck(source, columns):
    relation = duckdb.sql(f'select {columns} from {source}')
    return [dict(zip(relation.columns, row)) for row in relation.fetchall()]
def columns(cast):
    member = f"""lambda m: struct_pack(rule := m.rule, reason := m.reason, matches := m.matches, hit := m.hit,
        "seenAt" := epoch_ms(m."seenAt"{cast}))"""
    return f"""* replace (epoch_ms("at"{cast}) as "at", epoch_ms("closedAt"{cast}) as "closedAt",
        list_transform(rules, {member}) as rules, list_transform(media, {member}) as media)"""
types = duckdb.sql(f"""select "at", "closedAt" from '{folder}/rows.parquet'""").types
assert [str(it) for it in types] == ['TIMESTAMP WITH TIME ZONE'] * 2, types
tables = {
    'duckdb parquet': duck(f"'{folder}/rows.parquet'", columns('')),
    'polars parquet': plain(polars.read_parquet(f'{folder}/rows.parquet').to_dicts()),
    'duckdb ndjson': duck(f"read_json('{folder}/rows.ndjson', format='newline_delimited')", columns('::timestamptz')),
    'polars ndjson': polars.read_ndjson(f'{folder}/rows.ndjson').to_dicts(),
    'duckdb csv': duck(f"read_csv('{folder}/rows.csv', header=true, all_varchar=true, allow_quoted_nulls=false)", '*'),
    'polars csv': polars.read_csv(f'{folder}/rows.csv', infer_schema=False).to_dicts(),
}
print(json.dumps({name: sorted(rows, key=lambda row: row['id']) for name, rows in tables.items()}))
"#;

#[test]
fn databases_read_every_value() {
    let Some(python) = servers::python("TIDEGATE_TEST_PARQUET", "flat exports in DuckDB and Polars") else {
        return;
    };
    let folder = Folder::new();
    for format in FlatFormat::ALL {
        write(&folder.path(&format!("rows.{format}")), *format, COLUMNS, &rows());
    }
    let output = Command::new(&python).args(["-c", READ_BACK]).arg(folder.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tables: Json = serde_json::from_slice(&output.stdout).unwrap();
    let mut written = expected(&rows());
    written.sort_by_key(|row| row["id"].as_str().unwrap().to_owned());
    for (name, table) in tables.as_object().unwrap() {
        let mut table = table.as_array().unwrap().clone();
        assert_eq!(table.len(), 3, "{name}");
        for (row, written) in table.iter_mut().zip(&written) {
            if name.ends_with("csv") {
                parse_cells(row, written);
            }
            parse_times(COLUMNS, row);
            assert_eq!(row, written, "{name}");
        }
    }
}

/// Replaces cells by their JSON values.
fn parse_cells(row: &mut Json, written: &Json) {
    for column in COLUMNS {
        let cell = &mut row[column.name];
        let is_text = matches!(column.column_type, ColumnType::Text | ColumnType::Time);
        if written[column.name].is_null() {
            assert!(cell.is_null(), "{cell}");
        } else if !is_text {
            *cell = serde_json::from_str(cell.as_str().unwrap()).unwrap();
        }
    }
}
