//! Tests of exports to folders: partitions, manifests, filters and refusals.

use std::{collections::BTreeSet, fs, process::Command, sync::Arc};

use serde_json::{Value as Json, json};
use tidegate_exporter::flat::{
    Export, ExportOptions, ExportSummary, ExportTarget, FlatFormat, Manifest, Partition, RowFilter,
};
use tidegate_history::{Dataset, Part};
use tidegate_schemas::ids::Millis;
use tidegate_test_support::servers;

use super::rows::{DAY, DAY_MILLIS, decision};
use crate::support::Folder;

/// Options of an export of decisions to `out`, partitioned by day.
pub(super) fn options(folder: &Folder, format: FlatFormat) -> ExportOptions {
    let target = ExportTarget::Folder { path: folder.path("out"), partition: Partition::Day };
    let mut options = ExportOptions::new(Dataset::Decisions, target, format);
    (options.since, options.until) = (Millis(DAY), Millis(DAY + 4 * DAY_MILLIS));
    options
}

/// Exports rows with these numbers, ten a day.
pub(super) fn export(options: &ExportOptions, numbers: impl IntoIterator<Item = u64>) -> ExportSummary {
    let mut export = Export::open(options.clone()).unwrap();
    for number in numbers {
        export.write_row(&decision(number, time(number))).unwrap();
    }
    export.finish().unwrap()
}

pub(super) fn time(number: u64) -> i64 {
    DAY + number as i64 * DAY_MILLIS / 10
}

/// Files below a folder with `/`, sorted.
pub(super) fn files(folder: &Folder, name: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder.path(name)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            let inner = fs::read_dir(entry.path()).unwrap();
            files
                .extend(inner.map(|it| format!("{name}/{}", it.unwrap().file_name().into_string().unwrap())));
        } else {
            files.push(name);
        }
    }
    files.sort();
    files
}

#[test]
fn each_day_has_a_file_and_the_folder_a_manifest() {
    let folder = Folder::new();
    let summary = export(&options(&folder, FlatFormat::Csv), 0..25);
    assert_eq!(
        files(&folder, "out"),
        [
            "day=2026-11-28/part-0001-of-0001.csv",
            "day=2026-11-29/part-0001-of-0001.csv",
            "day=2026-11-30/part-0001-of-0001.csv",
            "manifest.json"
        ]
    );
    let path = summary.manifest_path.unwrap();
    assert_eq!(Manifest::read(&path).unwrap(), summary.manifest);
    let json: Json = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let bytes = fs::metadata(folder.path("out/day=2026-11-30/part-0001-of-0001.csv")).unwrap().len();
    assert_eq!(json["files"][2]["name"], "day=2026-11-30/part-0001-of-0001.csv");
    assert_eq!((&json["files"][2]["rows"], &json["files"][2]["bytes"]), (&json!(5), &json!(bytes)));
    assert_eq!((&json["rows"], &json["parts"]), (&json!(25), &json!(1)));
    assert_eq!(json["columns"][0], json!({ "name": "decisionId", "type": "text", "nullable": false }));
    assert_eq!(
        (&json["since"], &json["until"]),
        (&json!("2026-11-28T00:00:00.000Z"), &json!("2026-12-02T00:00:00.000Z"))
    );
    for member in ["schemaVersion", "dataset", "format", "partitionBy", "where", "bytes"] {
        assert!(!json[member].is_null(), "{member}");
    }
    assert_eq!(json["part"], Json::Null);
}

#[test]
fn equal_rows_give_equal_bytes() {
    for format in FlatFormat::ALL {
        let [first, second] = [Folder::new(), Folder::new()].map(|folder| {
            export(&options(&folder, *format), 0..25);
            files(&folder, "out")
                .iter()
                .map(|name| fs::read(folder.path("out").join(name)).unwrap())
                .collect::<Vec<_>>()
        });
        assert!(first == second, "{format}");
    }
}

const READ_FOLDER: &str = r#"
import duckdb, polars, sys
folder = sys.argv[1]
duck = duckdb.sql(f"""select day::varchar, count(*), count(distinct decisionId)
    from read_parquet('{folder}/*/*.parquet', hive_partitioning=true) group by day order by day""").fetchall()
frame = polars.scan_parquet(f'{folder}/**/*.parquet', hive_partitioning=True)
bears = frame.group_by('day').agg(polars.len(), polars.col('decisionId').n_unique()).sort('day').collect().rows()
bears = [(str(day), rows, ids) for day, rows, ids in bears]
assert duck == bears, (duck, bears)
print(duck)
"#;

#[test]
fn databases_read_a_folder_as_one_table() {
    let Some(python) = servers::python("TIDEGATE_TEST_PARQUET", "partitions in DuckDB and Polars") else {
        return;
    };
    let folder = Folder::new();
    for part in 1..=2 {
        let mut options = options(&folder, FlatFormat::Parquet);
        options.part = Part::new(part, 2).unwrap();
        export(&options, (0..25).filter(|number| number % 2 == u64::from(part - 1)));
    }
    let output = Command::new(&python).args(["-c", READ_FOLDER]).arg(folder.path("out")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.trim(), "[('2026-11-28', 10, 10), ('2026-11-29', 10, 10), ('2026-11-30', 5, 5)]");
}

#[test]
fn filter_reads_columns_that_are_not_written() {
    let folder = Folder::new();
    let mut options = options(&folder, FlatFormat::Ndjson);
    options.select_columns(Some("itemId")).unwrap();
    let conditions = ["verdict=ignore", "actions=warn", "queue=spam"];
    options.filter = RowFilter::parse(Dataset::Decisions.columns(), &conditions).unwrap();
    let summary = export(&options, 0..20);
    let text = fs::read_to_string(folder.path("out/day=2026-11-29/part-0001-of-0001.ndjson")).unwrap();
    assert_eq!(text, "{\"itemId\":\"post-12\"}\n{\"itemId\":\"post-18\"}\n");
    assert_eq!(summary.manifest.conditions, ["actions=warn", "queue=spam", "verdict=ignore"]);
    assert_eq!(summary.manifest.rows, 4);
}

#[test]
fn export_without_rows_has_a_manifest() {
    let folder = Folder::new();
    assert_eq!(export(&options(&folder, FlatFormat::Csv), []).manifest.files, []);
    assert_eq!(files(&folder, "out"), ["manifest.json"]);
    let mut options = options(&folder, FlatFormat::Csv);
    options.target = ExportTarget::Folder { path: folder.path("whole"), partition: Partition::Whole };
    assert_eq!(export(&options, []).manifest.rows, 0);
    assert_eq!(files(&folder, "whole"), ["manifest.json", "part-0001-of-0001.csv"]);
    options.target = ExportTarget::File(folder.path("file.csv"));
    let summary = export(&options, []);
    assert_eq!((summary.manifest_path, summary.manifest.files[0].name.as_str()), (None, "file.csv"));
    options.target = ExportTarget::Stream(Arc::new(fs::File::create(folder.path("stream")).unwrap()));
    assert_eq!(export(&options, []).manifest.files[0].name, "-");
}

#[test]
fn repeated_export_replaces_the_old_one() {
    let folder = Folder::new();
    let mut options = options(&folder, FlatFormat::Csv);
    export(&options, 0..25);
    let error = Export::open(options.clone()).unwrap_err().to_string();
    assert_eq!(
        error,
        "out holds a finished export (manifest.json): choose another folder, or replace it with --force"
    );
    options.force = true;
    export(&options, 10..15);
    assert_eq!(files(&folder, "out"), ["day=2026-11-29/part-0001-of-0001.csv", "manifest.json"]);
    // A days folder with files of others is kept.
    folder.write("out/day=2026-11-29/notes.txt", "");
    export(&options, 0..3);
    let names: BTreeSet<_> = files(&folder, "out").into_iter().collect();
    assert_eq!(names.len(), 3);
    assert!(
        names.contains("day=2026-11-29/notes.txt") && names.contains("day=2026-11-28/part-0001-of-0001.csv")
    );
}

#[test]
fn folders_of_other_exports_are_refused() {
    let folder = Folder::new();
    let mut first = options(&folder, FlatFormat::Csv);
    first.part = Part::new(1, 2).unwrap();
    export(&first, 0..25);
    let before = files(&folder, "out");
    let check = |change: &dyn Fn(&mut ExportOptions), message: &str| {
        let mut changed = first.clone();
        changed.part = Part::new(2, 2).unwrap();
        change(&mut changed);
        assert_eq!(Export::open(changed).unwrap_err().to_string(), message);
        assert_eq!(files(&folder, "out"), before);
    };
    let other = |difference: &str| {
        format!(
            "out holds a part of another export (manifest-part-0001-of-0002.json): here {difference}. \
             Choose another folder"
        )
    };
    check(
        &|it| it.until = Millis(DAY + DAY_MILLIS),
        &other("`until` is `2026-11-29T00:00:00.000Z` instead of `2026-12-02T00:00:00.000Z`"),
    );
    check(&|it| it.format = FlatFormat::Ndjson, &other("`format` is `ndjson` instead of `csv`"));
    check(
        &|it| it.select_columns(Some("queue")).unwrap(),
        &other(&format!(
            "`columns` is `queue` instead of `{}`",
            Dataset::Decisions.columns().iter().map(|it| it.name).collect::<Vec<_>>().join(",")
        )),
    );
    check(&|it| it.part = Part::new(2, 3).unwrap(), &other("`parts` is `3` instead of `2`"));
    fs::remove_file(folder.path("out/manifest-part-0001-of-0002.json")).unwrap();
    let before = files(&folder, "out");
    for change in [
        |it: &mut ExportOptions| it.part = Part::WHOLE,
        |it: &mut ExportOptions| it.format = FlatFormat::Parquet,
        |it: &mut ExportOptions| {
            let ExportTarget::Folder { partition, .. } = &mut it.target else { panic!("no folder") };
            *partition = Partition::Whole;
        },
    ] {
        let mut changed = first.clone();
        change(&mut changed);
        assert_eq!(
            Export::open(changed).unwrap_err().to_string(),
            "out holds day=2026-11-28/part-0001-of-0002.csv of another export: choose another folder, or delete \
             that export"
        );
        assert_eq!(files(&folder, "out"), before);
    }
}

#[test]
fn contradicting_options_are_refused() {
    let folder = Folder::new();
    fs::write(folder.path("file"), "").unwrap();
    fs::create_dir(folder.path("folder")).unwrap();
    let to_folder = |name: &str| ExportTarget::Folder { path: folder.path(name), partition: Partition::Day };
    let cases: [(ExportTarget, Part, &str); 5] = [
        (
            ExportTarget::File(folder.path("file")),
            Part::WHOLE,
            "file exists already: replace it with --force",
        ),
        (
            ExportTarget::File(folder.path("folder")),
            Part::WHOLE,
            "folder is a folder: name a file, or add --partition-by day",
        ),
        (
            ExportTarget::File(folder.path("new")),
            Part::new(2, 4).unwrap(),
            "--part 2/4 needs a folder as output: name one with -o",
        ),
        (to_folder("file"), Part::WHOLE, "file is a file: name a folder for the export"),
        (
            ExportTarget::Stream(Arc::new(fs::File::open("/dev/null").unwrap())),
            Part::new(1, 2).unwrap(),
            "--part 1/2 needs a folder as output: name one with -o",
        ),
    ];
    for (target, part, message) in cases {
        let mut options = ExportOptions::new(Dataset::Decisions, target, FlatFormat::Csv);
        options.part = part;
        assert_eq!(Export::open(options).unwrap_err().to_string(), message);
    }
    let mut reversed = ExportOptions::new(Dataset::Decisions, to_folder("out"), FlatFormat::Csv);
    (reversed.since, reversed.until) = (Millis(DAY), Millis(DAY));
    assert_eq!(
        Export::open(reversed).unwrap_err().to_string(),
        "the time range is empty: --since 2026-11-28T00:00:00.000Z is not before --until 2026-11-28T00:00:00.000Z"
    );
    assert_eq!(folder.names(), ["file", "folder"]);
}

#[test]
fn rows_out_of_order_are_refused_by_day() {
    let folder = Folder::new();
    let mut export = Export::open(options(&folder, FlatFormat::Csv)).unwrap();
    export.write_row(&decision(1, time(12))).unwrap();
    // Within a day the order is the reader's.
    export.write_row(&decision(2, time(11))).unwrap();
    let error = export.write_row(&decision(3, time(9))).unwrap_err().to_string();
    assert_eq!(error, "dataset decisions, row 3: the row is older than the day of the row before it");
    drop(export);
    assert!(folder.names().is_empty());
}
