//! Broken and hostile input: said with file and row, and nothing under the final name.

#![allow(clippy::unwrap_used)]

mod support;

use std::{fs, path::Path};

use support::{Conversation, Folder, run};

#[track_caller]
fn refused(folder: &Folder, input: &Path, tag: &str, says: &str) {
    let mut job = folder.job(input);
    job.limits.record = 1 << 20;
    let fault = run(&job).unwrap_err();
    assert_eq!(fault.tag(), tag, "{fault}");
    assert!(fault.to_string().contains(says), "{fault}");
    assert!(!folder.names().iter().any(|name| name.starts_with("bundle.json")));
}

#[test]
fn wrong_rows_are_named() {
    let conversation = Conversation::new(21, 5, 20);
    let line = |votes: &str, at: usize| votes.lines().nth(at).unwrap().to_owned();
    type Change = fn(&str) -> String;
    let cases: [(&str, Change, &str); 8] = [
        ("value", |line| format!("{}2", &line[..line.rfind(',').unwrap() + 1]), "votes.csv, row 8: vote"),
        ("missing_column", |_| "1,2".to_owned(), "row 8"),
        ("unknown_item", |_| "1600000000000,x,99,1,1".to_owned(), "row 8"),
        ("value", |_| "16000000000000000000000,x,1,1,1".to_owned(), "row 8: timestamp"),
        ("value", |_| "-5,x,1,1,1".to_owned(), "row 8: timestamp"),
        ("nul", |_| "1600000000000,\0,1,1,1".to_owned(), "row 8"),
        ("value", |_| "1600000000000,x,1,,1".to_owned(), "row 8: voter-id"),
        ("long_record", |_| "1".repeat(3 << 20), "too long"),
    ];
    for (tag, change, says) in cases {
        let folder = Folder::new();
        let input = conversation.variant_a(&folder, "a");
        let votes = conversation.votes_csv(1000);
        let old = line(&votes, 7);
        folder.write("a/votes.csv", votes.replacen(&old, &change(&old), 1));
        refused(&folder, &input, tag, says);
    }
}

#[test]
fn wrong_files_are_named() {
    let conversation = Conversation::new(22, 5, 20);
    let folder = Folder::new();
    let input = conversation.variant_a(&folder, "a");
    let comments = conversation.comments_csv(1000);
    folder.write("a/comments.csv", comments.replace("comment-body", "body"));
    refused(&folder, &input, "missing_file", "comments");
    folder.write("a/comments.csv", comments.replacen("Statement 4", "State\u{0}ment", 1));
    refused(&folder, &input, "nul", "comments.csv, row 2");
    let mut latin = comments.clone().into_bytes();
    let at = comments.find("Statement 4").unwrap();
    latin[at] = 0xe9;
    folder.write("a/comments.csv", latin);
    refused(&folder, &input, "encoding", "row 2");
    folder
        .write("a/comments.csv", comments.replacen('"', "", 1).replace("Statement 4", &"x".repeat(3 << 20)));
    refused(&folder, &input, "long_record", "comments.csv");
    folder.write("a/comments.csv", format!("{comments}{}", comments.lines().nth(1).unwrap()));
    refused(&folder, &input, "duplicate", "comments.csv");
    folder.write("a/comments.csv", &comments);
    folder.write("a/more.csv", conversation.votes_csv(1000));
    refused(&folder, &input, "duplicate", "votes");
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(comments.bytes().flat_map(|byte| [byte, 0])).collect();
    let path = folder.write("wide.csv", wide);
    refused(&folder, &path, "format", "");
}

#[test]
fn broken_and_exploding_archives_are_refused() {
    let folder = Folder::new();
    let mut zipped = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let packed =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    zipped.start_file("t.csv", packed).unwrap();
    let row = format!("1,{}\n", " ".repeat(60_000));
    std::io::Write::write_all(&mut zipped, b"comment-id,comment_text\n").unwrap();
    for _ in 0..2_000 {
        std::io::Write::write_all(&mut zipped, row.as_bytes()).unwrap();
    }
    let bytes = zipped.finish().unwrap().into_inner();
    let path = folder.write("cut.zip", &bytes[..bytes.len() / 2]);
    refused(&folder, &path, "archive", "cut.zip");
    let path = folder.write("bomb.zip", &bytes);
    refused(&folder, &path, "bomb", "--max-expansion");
    let gzip = {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, b"comment-id,comment_text,agrees\n1,one,1\n").unwrap();
        gzip.finish().unwrap()
    };
    let path = folder.write("cut.gz", &gzip[..gzip.len() - 6]);
    refused(&folder, &path, "compressed", "cut.gz");
}

#[test]
fn nothing_that_is_there_is_overwritten_unasked() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    folder.write("bundle.json", "mine");
    let mut job = folder.job(&path);
    job.force = false;
    assert_eq!(run(&job).unwrap_err().tag(), "refused");
    assert_eq!(fs::read_to_string(folder.path("bundle.json")).unwrap(), "mine");
    job.force = true;
    run(&job).unwrap();
    assert_ne!(fs::read_to_string(folder.path("bundle.json")).unwrap(), "mine");
}
