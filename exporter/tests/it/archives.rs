//! Tests of damaged zip archives, alone and beside a readable export.

use std::{
    fs,
    io::{Cursor, Write as _},
    ops::Range,
};

use crate::support::{Conversation, Folder, bundle, run};
use tidegate_exporter::error::ConvertError;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

const FILES: [&str; 3] = ["in/comments.csv", "in/votes.csv", "readme.txt"];

/// Builds an archive with sizes in headers or in data descriptors. Also returns the offset of each file.
fn archive(method: CompressionMethod, streamed: bool) -> (Vec<u8>, Vec<Range<usize>>) {
    let options = SimpleFileOptions::default().compression_method(method);
    // The data contains the signature of a file header.
    let text = |name: &str| format!("{name}\n").repeat(300) + "PK\u{3}\u{4}PK\u{7}\u{8}";
    let bytes = if streamed {
        let mut zipped = ZipWriter::new_stream(Vec::new());
        for name in FILES {
            zipped.start_file(name, options).unwrap();
            zipped.write_all(text(name).as_bytes()).unwrap();
        }
        zipped.finish().unwrap().into_inner()
    } else {
        let mut zipped = ZipWriter::new(Cursor::new(Vec::new()));
        for name in FILES {
            zipped.start_file(name, options).unwrap();
            zipped.write_all(text(name).as_bytes()).unwrap();
        }
        zipped.finish().unwrap().into_inner()
    };
    let heads = FILES.map(|name| memchr::memmem::find(&bytes, name.as_bytes()).unwrap() - 30);
    let list = memchr::memmem::find(&bytes, b"PK\x01\x02").unwrap();
    let ends = heads.iter().skip(1).copied().chain([list]);
    let places = heads.iter().copied().zip(ends).map(|(from, to)| from..to).collect();
    (bytes, places)
}

#[test]
fn truncated_archive_is_reported_with_the_truncated_file() {
    let folder = Folder::new();
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        for streamed in [false, true] {
            let (bytes, places) = archive(method, streamed);
            let error_of = |length: usize| {
                let path = folder.write("export.zip", &bytes[..length]);
                let error = run(&folder.job(&path)).unwrap_err();
                assert!(matches!(error, ConvertError::Content { .. }), "{error}");
                error.to_string()
            };
            let expected_message =
                |within: &str| format!("export.zip: not a complete zip archive: it ends within {within}");
            for (name, place) in FILES.iter().zip(&places) {
                for length in [place.start + 31 + name.len(), place.start + 60, place.end - 1] {
                    assert_eq!(error_of(length), expected_message(name), "{method}, {streamed}, {place:?}");
                }
            }
            let list = places[2].end;
            for length in [list + 46, bytes.len() - 30] {
                assert_eq!(error_of(length), expected_message("its list of files"), "{method}, {streamed}");
            }
        }
    }
}

#[test]
fn damaged_file_is_reported_with_its_archive() {
    let folder = Folder::new();
    let (mut bytes, places) = archive(CompressionMethod::Stored, false);
    bytes[places[1].start + 100] ^= 1;
    let message = run(&folder.job(&folder.write("export.zip", bytes))).unwrap_err().to_string();
    assert!(message.starts_with("in/votes.csv: its packed data is damaged"), "{message}");
    assert!(message.ends_with(" (in export.zip)"), "{message}");
}

#[test]
fn truncated_archive_beside_an_export_is_a_note() {
    let (folder, conversation) = (Folder::new(), Conversation::new(71, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    let (bytes, places) = archive(CompressionMethod::Deflated, false);
    folder.write("a/backup.zip", &bytes[..places[1].end - 1]);
    let notes = bundle(&folder.job(&path)).0.notes;
    let passed_over = "1 file that cannot be unpacked was skipped: backup.zip.";
    assert!(notes.iter().any(|note| note == passed_over), "{notes:?}");
    // The missing file may be in the damaged archive.
    fs::remove_file(path.join("votes.csv")).unwrap();
    let notes = bundle(&folder.fresh(&path)).0.notes;
    let expected_note = "There was no list of votes (votes.csv), unless it is one of the damaged files \
        (backup.zip); the participant table has no times.";
    assert!(notes.iter().any(|note| note == expected_note), "{notes:?}");
    fs::remove_file(path.join("participants-votes.csv")).unwrap();
    let message = run(&folder.fresh(&path)).unwrap_err().to_string();
    assert!(message.ends_with("; it may be one of the damaged files: backup.zip"), "{message}");
    // Without an export the error of the archive is reported.
    for table in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
        if table.extension().is_some_and(|ending| ending == "csv") {
            fs::remove_file(table).unwrap();
        }
    }
    folder.write("a/readme.txt", "Unpack it.");
    let message = run(&folder.fresh(&path)).unwrap_err().to_string();
    assert_eq!(message, "backup.zip: not a complete zip archive: it ends within in/votes.csv");
}
