//! Tests of plain lists, tables and NDJSON.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tidegate_schemas::banks::BankKind;

use super::{Change, Format, csv_table::split_labels, join_labels, read_entries};

fn read_texts(text: &'static str, format: Format) -> Vec<(u64, Result<Change, String>)> {
    read_changes(text, format, BankKind::Text)
}

fn read_changes(text: &'static str, format: Format, kind: BankKind) -> Vec<(u64, Result<Change, String>)> {
    let lines = read_entries(text.as_bytes(), format, kind).unwrap();
    lines.map(Result::unwrap).map(|line| (line.position.line, line.change)).collect()
}

fn add(value: Value) -> Result<Change, String> {
    Ok(Change::Add(value))
}

#[test]
fn line_numbers_include_blank_lines() {
    let lines = read_texts("\u{feff}one\r\n\n#two\n", Format::Lines);
    assert_eq!(lines, [(1, add(json!("one"))), (3, add(json!("#two")))]);
}

#[test]
fn overlong_line_is_refused() {
    let text: &'static str = format!("{}\nlast", "x".repeat(3 << 20)).leak();
    let lines = read_texts(text, Format::Lines);
    assert!(lines[0].1.as_ref().unwrap_err().contains("longer"));
    assert_eq!((lines.len(), &lines[1]), (2, &(2, add(json!("last")))));
}

#[test]
fn hash_may_name_its_kind() {
    let lines = read_changes("pdq ab\nvideo_md5 cd\nsome ef\nab\n", Format::Lines, BankKind::Pdq);
    let read: Vec<_> = lines.into_iter().map(|(_, entry)| entry.unwrap()).collect();
    let add = |text: &str| Change::Add(json!(text));
    assert_eq!(read, [add("ab"), Change::OtherKind, add("some ef"), add("ab")]);
    let hash = "5a".repeat(32);
    let text: &'static str =
        format!("{hash},a.jpg\n7,80,{hash},1.5\n8,49,{hash},1.7\n9,x,{hash},1.9\n").leak();
    let lines = read_changes(text, Format::Lines, BankKind::Pdq);
    assert_eq!(lines[0].1, Ok(Change::Add(json!({"value": &hash, "reference": "a.jpg"}))));
    assert_eq!((&lines[1].1, lines[2].1.is_err()), (&Ok(add(&hash)), true));
    assert_eq!(
        lines[3].1,
        Ok(Change::Add(json!(format!("9,x,{hash},1.9")))),
        "the service says what is wrong"
    );
    let table = "signal_type,hash,content_id,labels,note,max_distance\npdq,ab,7,x|y,why,12\nmd5,cd,,,,\npdq,ab,,,,far\n";
    let rows = read_changes(table, Format::Csv, BankKind::Pdq);
    let whole = json!({"value": "ab", "reference": "7", "labels": ["x", "y"], "note": "why", "distance": 12});
    assert_eq!((&rows[0].1, &rows[1].1), (&Ok(Change::Add(whole)), &Ok(Change::OtherKind)));
    assert_eq!(rows[2], (4, Err("its distance is not a number".to_owned())));
}

#[test]
fn table_has_a_header_and_quoted_cells() {
    let text = "labels,value\na|b,\"one, two\"\n,\"over\nlines\"\nx\n,last\n";
    let rows = read_texts(text, Format::Csv);
    assert_eq!(rows[0], (2, add(json!({"labels": ["a", "b"], "value": "one, two"}))));
    assert_eq!(rows[1], (3, add(json!({"value": "over\nlines"}))));
    assert_eq!((rows[2].0, rows[2].1.is_err()), (5, true));
    assert_eq!(rows[3], (6, add(json!({"value": "last"}))));
    let of_windows = read_texts("value,note\r\n\r\none,\r\ntwo,x,y\r\n", Format::Csv);
    assert_eq!((of_windows[0].0, of_windows[1].0), (3, 4));
    assert!(
        read_entries("word\nx\n".as_bytes(), Format::Csv, BankKind::Text).is_err(),
        "no column of values"
    );
    for open in ["value,note\n5\" pipe,a\nb,\"five inch\nc,d\n", "value,note\n5\" pipe,a\nb,\"cut"] {
        let mut read = read_entries(open.as_bytes(), Format::Csv, BankKind::Text).unwrap();
        let first = json!({"value": "5\" pipe", "note": "a"});
        assert_eq!(read.next().unwrap().unwrap().change, add(first));
        let fault = read.next().unwrap().err().unwrap().to_string();
        assert!(fault.starts_with("line 3: a quote") && read.next().is_none(), "{fault}");
    }
    let closed = "value,note\na,\"x\"\"y\"\nb,\"z\"";
    assert_eq!(read_texts(closed, Format::Csv)[1], (3, add(json!({"value": "b", "note": "z"}))));
    let open: &'static str = format!("value\none\n\"{}", "x,\n".repeat(2 << 20)).leak();
    let read: Vec<_> = read_entries(open.as_bytes(), Format::Csv, BankKind::Text).unwrap().take(2).collect();
    assert!(read[0].is_ok() && read[1].is_err(), "a quote that never ends is not read to the end");
}

#[test]
fn joined_labels_are_split_again() {
    for all in [
        &["a", "b c"][..],
        &["a|b", "|", "\\", "a\\"],
        &[" a", "a ", " \t a\u{a0}", "\\ ", "\n|\\|\r"],
        &["a\\b", "a\\|b", "\\\\ "],
        &[],
    ] {
        let all: Vec<String> = all.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(split_labels(&join_labels(&all)), all, "{}", join_labels(&all));
    }
    assert_eq!(split_labels(" a | b c ||\\d\\|"), ["a", "b c", "\\d|"], "written by hand");
}

#[test]
fn invalid_json_lines_are_refused() {
    let text = "\"one\"\n{\"value\":\"two\",\"source\":null}\n{\"valeu\":\"x\"}\n[1]\n{\n{\"value\":1}\n\
        {\"value\":\"x\",\"expiresAt\":\"soon\"}\n{\"value\":\"x\",\"distance\":4294967296}\n";
    let lines = read_texts(text, Format::Ndjson);
    assert_eq!(lines[0].1, add(json!("one")));
    assert_eq!(lines[1].1, add(json!({"value": "two"})));
    assert!(lines[2..].iter().all(|(_, entry)| entry.is_err()));
    assert_eq!(lines.len(), 8);
}

#[test]
fn json_line_with_a_repeated_field_is_refused() {
    let text = "{\"value\":\"a\",\"hash\":\"b\"}\n{\"value\":\"a\",\"value\":\"b\"}\n\
        {\"value\":\"a\",\"max_distance\":1,\"distance\":2}\n{\"hash\":\"a\",\"labels\":[],\"labels\":[\"x\"]}\n\
        {\"value\":null,\"hash\":\"b\"}\n{\"v\\u0061lue\":\"a\",\"value\":\"a\"}\n{\"hash\":\"b\",\"note\":\"x\"}\n";
    let lines = read_texts(text, Format::Ndjson);
    let refused = |reason: &str| Err(reason.to_owned());
    let twice = |key: &str| refused(&format!("The key `{key}` occurs more than once in one object."));
    assert_eq!(lines[0], (1, refused("it has both `hash` and `value`, which are the same")));
    assert_eq!(lines[1], (2, twice("value")));
    assert_eq!(lines[2], (3, refused("it has both `distance` and `max_distance`, which are the same")));
    assert_eq!(lines[3], (4, twice("labels")));
    assert_eq!(lines[4], (5, refused("it has both `hash` and `value`, which are the same")));
    assert_eq!(lines[5], (6, twice("value")));
    assert_eq!(lines[6], (7, add(json!({"value": "b", "note": "x"}))));
}
