//! Tests of exports that end early: dropped, killed, or without room.

use std::{
    env,
    fs::{self, File},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate_exporter::flat::{Export, ExportTarget, FlatFormat, RowSink, SinkTarget};

use super::{
    folders::{export, files, options, time},
    rows::{COLUMNS, decision, rows, sink_options},
};
use crate::support::Folder;

const CHILD: &str = "FLAT_EXPORT_FOLDER";

/// Process of the tests below: exports rows until it is killed or fails. Prints the error.
#[test]
fn an_endless_export_for_the_tests_below() {
    let Ok(path) = env::var(CHILD) else { return };
    let mut options = options(&Folder::new(), FlatFormat::Ndjson);
    let ExportTarget::Folder { path: target, .. } = &mut options.target else { panic!("no folder") };
    *target = path.into();
    let mut export = Export::open(options).unwrap();
    let mut number = 0;
    let error = loop {
        // Four days, and then the last one without end.
        if let Err(error) = export.write_row(&decision(number, time((number / 500).min(39)))) {
            break error;
        }
        number += 1;
    };
    drop(export);
    eprintln!("ERROR {error}");
}

fn endless_export(folder: &Folder, shell: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell}exec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "flat::stopped::an_endless_export_for_the_tests_below", "--nocapture"])
        .env(CHILD, folder.path("out"))
        .stdout(Stdio::null());
    command
}

#[test]
fn killed_export_leaves_no_file_under_its_final_name() {
    let folder = Folder::new();
    let mut child = endless_export(&folder, "").stderr(Stdio::null()).spawn().unwrap();
    let last_file = folder.path("out/day=2026-12-01/part-0001-of-0001.ndjson.partial");
    let started_at = Instant::now();
    while !last_file.exists() {
        assert!(started_at.elapsed() < Duration::from_secs(120), "the export does not reach its last day");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let names = files(&folder, "out");
    assert!(names.len() == 4 && names.iter().all(|name| name.ends_with(".ndjson.partial")), "{names:?}");
    // The export runs again, and removes the files of days that have no rows now.
    let summary = export(&options(&folder, FlatFormat::Ndjson), 0..15);
    assert_eq!(summary.manifest.rows, 15);
    assert_eq!(
        files(&folder, "out"),
        [
            "day=2026-11-28/part-0001-of-0001.ndjson",
            "day=2026-11-29/part-0001-of-0001.ndjson",
            "manifest.json"
        ]
    );
}

#[test]
fn file_size_limit_is_reported_and_leaves_no_file() {
    let folder = Folder::new();
    // The shell counts in blocks of 512 or 1,024 bytes. Ignored, the signal becomes an error.
    let output = endless_export(&folder, "trap '' XFSZ; ulimit -f 4096; ").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let message = "ERROR writing part-0001-of-0001.ndjson.partial: File too large";
    assert!(stderr.lines().any(|line| line.starts_with(message)), "{stderr}");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn full_disk_is_reported_for_every_format() {
    for format in FlatFormat::ALL {
        let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        let mut sink = RowSink::open(sink_options(SinkTarget::Stream(full), *format, COLUMNS)).unwrap();
        rows().iter().for_each(|row| sink.write_row(row).unwrap());
        let error = sink.finish().unwrap_err().to_string();
        assert!(
            error.starts_with("writing to standard output: No space left on device"),
            "{format}: {error}"
        );
    }
}

#[test]
fn dropped_export_keeps_the_file_that_it_would_replace() {
    let folder = Folder::new();
    for format in FlatFormat::ALL {
        let path = folder.write("file", "before");
        let mut options = options(&folder, *format);
        (options.target, options.force) = (ExportTarget::File(path.clone()), true);
        let mut export = Export::open(options.clone()).unwrap();
        export.write_row(&decision(1, time(1))).unwrap();
        assert_eq!(folder.names(), ["file", "file.partial"]);
        drop(export);
        assert_eq!((folder.names(), fs::read(&path).unwrap()), (vec!["file".to_owned()], b"before".to_vec()));
        let mut export = Export::open(options).unwrap();
        export.write_row(&decision(1, time(1))).unwrap();
        export.finish().unwrap();
        assert_eq!(folder.names(), ["file"]);
        assert!(fs::read(&path).unwrap() != b"before");
    }
}

#[test]
fn dropped_export_removes_its_folders() {
    let folder = Folder::new();
    let mut export = Export::open(options(&folder, FlatFormat::Parquet)).unwrap();
    for number in 0..25 {
        export.write_row(&decision(number, time(number))).unwrap();
    }
    assert_eq!(files(&folder, "out").len(), 3);
    drop(export);
    assert!(folder.names().is_empty());
}
