//! Tests of damaged and hostile input: errors name file and row, and no output is created.

use std::{
    fs::{self, File},
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
};

use crate::support::{Conversation, Folder, run};
use tidegate_exporter::{
    convert::{Job, Sidecar, Target},
    privacy::Profile,
    tables::TableFormat,
};

#[track_caller]
fn assert_refused(folder: &Folder, input: &Path, tag: &str, says: &str) {
    let mut job = folder.fresh(input);
    job.limits.max_row_bytes = 1 << 20;
    let error = run(&job).unwrap_err();
    assert_eq!(error.tag(), tag, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert!(!folder.names().iter().any(|name| name.starts_with("bundle.json")));
}

#[test]
fn invalid_rows_are_reported_by_file_and_row() {
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
        ("long_record", |_| "1".repeat(3 << 20), "votes.csv, row 8: a line is too long"),
    ];
    for (tag, change, says) in cases {
        let folder = Folder::new();
        let input = conversation.variant_a(&folder, "a");
        let votes = conversation.votes_csv(1000);
        let old = line(&votes, 7);
        folder.write("a/votes.csv", votes.replacen(&old, &change(&old), 1));
        assert_refused(&folder, &input, tag, says);
    }
}

#[test]
fn invalid_files_are_reported_by_name() {
    let conversation = Conversation::new(22, 5, 20);
    let folder = Folder::new();
    let input = conversation.variant_a(&folder, "a");
    let comments = conversation.comments_csv(1000);
    folder.write("a/comments.csv", comments.replace("comment-body", "body"));
    let message = "comments.csv, row 1: the column comment-body is missing; there are timestamp, datetime, comment-id, \
                author-id, agrees, disagrees, moderated, body";
    assert_refused(&folder, &input, "missing_column", message);
    folder.write("a/comments.csv", comments.replace(',', ";"));
    assert_refused(
        &folder,
        &input,
        "missing_column",
        "comments.csv, row 1: its columns are separated by semicolons",
    );
    folder.write("a/comments.csv", "");
    assert_refused(&folder, &input, "missing_column", "comments.csv, row 1: the file is empty");
    // The message must not repeat cells, which may be data.
    folder.write("a/comments.csv", comments.split_once('\n').unwrap().1);
    assert_refused(&folder, &input, "missing_column", "has none of the columns comment-id, comment-body");
    fs::remove_file(folder.path("a/comments.csv")).unwrap();
    assert_refused(&folder, &input, "missing_file", "comments");
    // The participant table has the same votes, but without times.
    folder.write("a/comments.csv", &comments);
    folder.write("a/votes.csv", conversation.votes_csv(1000).replace("voter-id", "voter"));
    assert_refused(&folder, &input, "missing_column", "votes.csv, row 1: the column voter-id is missing");
    folder.write("a/votes.csv", conversation.votes_csv(1000));
    // The following row would become part of the text.
    let open = comments.replacen("\"\n", "\n", 1);
    folder.write("a/comments.csv", open);
    assert_refused(
        &folder,
        &input,
        "quote",
        "comments.csv, row 2: column 8: a quote closes before the end of its cell",
    );
    let open = comments.trim_end().strip_suffix('"').unwrap();
    folder.write("a/comments.csv", open);
    assert_refused(&folder, &input, "quote", "comments.csv, row 6: column 8: a quote is never closed");
    folder.write("a/comments.csv", comments.replacen("1600000004000", "-1", 1));
    assert_refused(
        &folder,
        &input,
        "value",
        "comments.csv, row 2: timestamp is not a time from 1970 to 9999",
    );
    folder.write("a/comments.csv", comments.replacen("Statement 4", "State\u{0}ment", 1));
    assert_refused(&folder, &input, "nul", "comments.csv, row 2");
    let mut latin = comments.clone().into_bytes();
    let at = comments.find("Statement 4").unwrap();
    latin[at] = 0xe9;
    folder.write("a/comments.csv", latin);
    assert_refused(&folder, &input, "encoding", "row 2");
    folder
        .write("a/comments.csv", comments.replacen('"', "", 1).replace("Statement 4", &"x".repeat(3 << 20)));
    assert_refused(&folder, &input, "long_record", "comments.csv");
    folder.write("a/comments.csv", format!("{comments}{}", comments.lines().nth(1).unwrap()));
    assert_refused(&folder, &input, "duplicate", "comments.csv, row 7: the item id 4 occurs twice");
    folder.write("a/comments.csv", &comments);
    folder.write("a/more.csv", conversation.votes_csv(1000));
    assert_refused(&folder, &input, "duplicate", "votes");
    fs::remove_file(folder.path("a/more.csv")).unwrap();
    // Unsupported line ends make one line of all data, which the message must not repeat.
    folder.write("a/votes.csv", conversation.votes_csv(1000).replace('\n', "\r"));
    assert_refused(
        &folder,
        &input,
        "missing_column",
        "votes.csv, row 1: the column vote is missing; the header may end",
    );
    folder.write("a/votes.csv", conversation.votes_csv(1000));
    let units = || comments.encode_utf16();
    let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
    for wide in [[&[0xff, 0xfe][..], &little].concat(), [&[0xfe, 0xff][..], &big].concat(), little, big] {
        let path = folder.write("a/comments.csv", wide);
        for input in [&input, &path] {
            assert_refused(&folder, input, "encoding", "comments.csv, row 1: it is UTF-16: save it as UTF-8");
        }
    }
    let signs = || comments.chars().map(u32::from);
    let little: Vec<u8> = signs().flat_map(u32::to_le_bytes).collect();
    let big: Vec<u8> = signs().flat_map(u32::to_be_bytes).collect();
    let marked = [[&[0xff, 0xfe, 0, 0][..], &little].concat(), [&[0, 0, 0xfe, 0xff][..], &big].concat()];
    for wide in marked.into_iter().chain([little, big]) {
        let path = folder.write("a/comments.csv", wide);
        for input in [&input, &path] {
            assert_refused(&folder, input, "encoding", "comments.csv, row 1: it is UTF-32: save it as UTF-8");
        }
    }
}

#[test]
fn ids_that_are_not_utf_8_are_refused() {
    let conversation = Conversation::new(22, 5, 20);
    let folder = Folder::new();
    let input = conversation.variant_a(&folder, "a");
    let spoiled = |text: &str, row: usize, column: usize| {
        let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        let mut cells: Vec<_> = lines[row].split(|byte| *byte == b',').map(<[u8]>::to_vec).collect();
        cells[column].insert(0, 0xff);
        lines[row] = cells.join(&b','.to_owned());
        lines.join(&b'\n'.to_owned())
    };
    let votes = conversation.votes_csv(1000);
    for column in [0, 2, 3, 4] {
        folder.write("a/votes.csv", spoiled(&votes, 8, column));
        assert_refused(&folder, &input, "encoding", "votes.csv, row 9: it is not UTF-8");
    }
    folder.write("a/votes.csv", &votes);
    for column in [0, 1, 2] {
        folder.write("a/participants-votes.csv", spoiled(&conversation.matrix_csv(), 3, column));
        assert_refused(&folder, &input, "encoding", "participants-votes.csv, row 4: it is not UTF-8");
    }
    fs::remove_file(folder.path("a/votes.csv")).unwrap();
    for column in [0, 7] {
        folder.write("a/participants-votes.csv", spoiled(&conversation.matrix_csv(), 3, column));
        assert_refused(&folder, &input, "encoding", "participants-votes.csv, row 4: it is not UTF-8");
    }
    let statements =
        "statement_id,text,status,is_seed,created_at,agrees,disagrees,passes\ns1,one,active,true,,1,0,0\n";
    folder.write("p/statements.csv", statements);
    let votes = "participant,statement_id,vote,updated_at\np1,s1,1,\n";
    for column in [0, 1, 2] {
        folder.write("p/votes.csv", spoiled(votes, 1, column));
        assert_refused(&folder, &folder.path("p"), "encoding", "votes.csv, row 2: it is not UTF-8");
    }
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
    assert_refused(&folder, &path, "archive", "cut.zip");
    let path = folder.write("bomb.zip", &bytes);
    assert_refused(&folder, &path, "bomb", "--max-expansion");
    let gzip = {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, b"comment-id,comment_text,agrees\n1,one,1\n").unwrap();
        gzip.finish().unwrap()
    };
    let path = folder.write("cut.gz", &gzip[..gzip.len() - 6]);
    assert_refused(&folder, &path, "compressed", "cut.gz");
}

fn zipped(files: &[(&str, &str)]) -> Vec<u8> {
    let mut zipped = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in files {
        zipped.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut zipped, text.as_bytes()).unwrap();
    }
    zipped.finish().unwrap().into_inner()
}

#[test]
fn archive_with_repeated_names_is_refused() {
    let (folder, text) = (Folder::new(), "comment-id,comment_text,agrees\n1,one,1\n");
    let mut bytes = zipped(&[("t.csv", text), ("u.csv", text)]);
    let places: Vec<_> = memchr::memmem::find_iter(&bytes, b"u.csv").collect();
    places.into_iter().for_each(|at| bytes[at] = b't');
    assert_refused(
        &folder,
        &folder.write("t.zip", bytes),
        "duplicate",
        "t.zip: it contains several files with the same name",
    );
}

#[test]
fn public_bundle_contains_no_personal_file_names() {
    let (folder, conversation) = (Folder::new(), Conversation::new(22, 20, 60));
    let (votes, comments) = (conversation.votes_csv(1000), conversation.comments_csv(1000));
    let bytes = zipped(&[
        ("jo@home.example/comments.csv", &comments),
        ("jo@home.example/jo@work.example.csv", &votes),
        ("jo@home.example/notes.txt", "jo"),
    ]);
    let mut job = folder.fresh(&folder.write("jo@zip.example.zip", bytes));
    for (profile, told) in [(Profile::Private, true), (Profile::Public, false)] {
        job.profile = profile;
        run(&job).unwrap();
        assert_eq!(fs::read_to_string(folder.path("bundle.json")).unwrap().contains("jo@"), told);
    }
}

#[test]
fn impossible_outputs_are_refused_before_reading() {
    let (folder, conversation) = (Folder::new(), Conversation::new(22, 5, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    fs::create_dir(folder.path("there")).unwrap();
    job.target = Target::File(folder.path("there"));
    let error = run(&job).unwrap_err();
    assert!(error.tag() == "refused" && error.to_string() == "there is a folder", "{error}");
    job.target = Target::File(folder.path("tables"));
    (job.table_format, job.profile) = (Some(TableFormat::PolisCsv), Profile::Public);
    let error = run(&job).unwrap_err();
    assert!(error.tag() == "refused" && error.to_string().starts_with("--to polis-csv"), "{error}");
    assert_eq!(folder.names(), ["a", "there"]);
}

#[test]
fn inapplicable_option_is_refused_with_its_reason() {
    let (folder, conversation) = (Folder::new(), Conversation::new(22, 5, 20));
    let job = folder.job(&conversation.variant_a(&folder, "a"));
    let message_of = |job: &Job| {
        let error = run(job).unwrap_err();
        assert_eq!(error.tag(), "refused");
        error.to_string()
    };
    let (mut private, mut foreign) = (job.clone(), job);
    private.k = 12;
    assert!(
        message_of(&private).starts_with("--k applies to --profile public only"),
        "{}",
        message_of(&private)
    );
    foreign.aoi.equal_reasons.pop();
    assert_eq!(message_of(&foreign), "--equal-reason applies to --from aoi only, and the input is polis");
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn counts_beyond_the_limit_are_refused() {
    let folder = Folder::new();
    let table =
        |count: &str| format!("comment-id,comment_text,agrees,disagrees\n1,one,1,2\n2,two,{count},0\n");
    run(&folder.job(&folder.write("t.csv", table("1099511627776")))).unwrap();
    fs::remove_file(folder.path("bundle.json")).unwrap();
    let path = folder.write("t.csv", table("1099511627777"));
    assert_refused(&folder, &path, "value", "t.csv, row 3: a count exceeds the largest possible one");
}

#[test]
fn existing_output_needs_the_force_option() {
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

#[test]
fn unknown_and_empty_files_are_reported_by_name() {
    let folder = Folder::new();
    let words = folder.write("in/words.txt", "Nothing of this is a table.");
    assert_refused(&folder, &words, "format", "words.txt: its format is unknown");
    let empty = folder.write("in/export.csv", "");
    assert_refused(&folder, &empty, "format", "export.csv: the file is empty");
    let message = "the input: no file has a known format: export.csv, words.txt";
    assert_refused(&folder, &folder.path("in"), "format", message);
    folder.write("in/words.txt", "");
    assert_refused(
        &folder,
        &folder.path("in"),
        "format",
        "the input: all files are empty: export.csv, words.txt",
    );
}

#[test]
fn file_in_place_of_the_output_folder_is_reported() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees\n1,one,1\n");
    for shape in [None, Some(TableFormat::Ndjson)] {
        let mut job = folder.fresh(&path);
        (job.target, job.table_format) = (Target::File(folder.path("t.csv/bundle.json")), shape);
        let error = run(&job).unwrap_err();
        assert_eq!(error.tag(), "refused");
        let message = "bundle.json cannot be written: a part of its path is a file, not a folder";
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(folder.names(), ["t.csv"]);
}

#[test]
fn partial_file_of_a_killed_conversion_is_replaced() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    let mut job = folder.job(&path);
    job.force = false;
    folder.write("bundle.json.partial", "cut sho");
    run(&job).unwrap();
    assert_eq!(folder.names(), ["bundle.json", "t.csv"]);
}

#[test]
fn output_locked_by_another_process_is_refused() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    let partial = folder.write("bundle.json.partial", "half");
    let lock = File::options().write(true).open(&partial).unwrap();
    lock.lock().unwrap();
    let error = run(&folder.job(&path)).unwrap_err();
    assert_eq!(error.to_string(), "another process is writing the same output");
    assert_eq!(fs::read_to_string(&partial).unwrap(), "half");
    drop(lock);
    run(&folder.job(&path)).unwrap();
}

#[test]
fn link_in_place_of_the_partial_file_is_refused() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    let mine = folder.write("mine", "mine");
    symlink(&mine, folder.path("bundle.json.partial")).unwrap();
    let error = run(&folder.job(&path)).unwrap_err();
    assert_eq!(error.to_string(), "bundle.json.partial exists and is not a file: remove it");
    assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
    assert_eq!(folder.names(), ["bundle.json.partial", "mine", "t.csv"]);
}

#[test]
fn folder_of_tables_may_end_with_a_slash() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    let mut job = folder.job(&path);
    (job.table_format, job.target) =
        (Some(TableFormat::SensemakingCsv), Target::File(folder.path("new/tables/")));
    run(&job).unwrap();
    assert_eq!(folder.names(), ["new", "t.csv"]);
    let names: Vec<_> =
        fs::read_dir(folder.path("new")).unwrap().map(|found| found.unwrap().file_name()).collect();
    assert_eq!(names, ["tables"]);
}

#[test]
fn existing_sidecars_need_the_force_option() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    let sidecars = [None, Some(vec![Sidecar::Ndjson]), Some(Vec::new())];
    let cases = [
        (0, "bundle.responses.parquet"),
        (1, "bundle.outcomes.ndjson"),
        (2, "datapackage.json"),
        (2, "manifest-sha256.txt"),
    ];
    for (asked, name) in cases {
        folder.write(name, "mine");
        let mut job = folder.job(&path);
        (job.force, job.package, job.sidecars) = (false, true, sidecars[asked].clone());
        let error = run(&job).unwrap_err();
        assert_eq!(error.to_string(), format!("{name} exists already: replace it with --force"));
        assert_eq!(folder.names(), [name, "t.csv"]);
        assert_eq!(fs::read_to_string(folder.path(name)).unwrap(), "mine");
        fs::remove_file(folder.path(name)).unwrap();
    }
    folder.write("datapackage.json", "mine");
    let mut job = folder.job(&path);
    job.force = false;
    run(&job).unwrap();
    (job.force, job.package) = (true, true);
    run(&job).unwrap();
    assert_ne!(fs::read_to_string(folder.path("datapackage.json")).unwrap(), "mine");
}

#[test]
fn failed_export_leaves_existing_files_only() {
    let (folder, conversation) = (Folder::new(), Conversation::new(23, 6, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    run(&job).unwrap();
    let text = fs::read_to_string(folder.path("bundle.json")).unwrap();
    let offset = text.find("\"provenance\"").unwrap();
    let broken_bundle = folder.write("broken.json", &text[..offset]);
    let last = text.rfind("\"subjectRef\":\"statement:5\"").unwrap();
    let unresolved_bundle =
        folder.write("lost.json", format!("{}{}", &text[..last], text[last..].replacen(":5", ":none", 1)));
    let tables = folder.path("tables");
    job.target = Target::File(tables.clone());
    let names_before = folder.names();
    for (shape, from) in [
        (TableFormat::PolisCsv, &unresolved_bundle),
        (TableFormat::PolisCsv, &broken_bundle),
        (TableFormat::SensemakingCsv, &broken_bundle),
        (TableFormat::Ndjson, &broken_bundle),
        (TableFormat::Parquet, &broken_bundle),
    ] {
        (job.table_format, job.inputs) = (Some(shape), vec![from.clone()]);
        run(&job).unwrap_err();
        assert_eq!(folder.names(), names_before, "{shape:?}");
    }
    job.table_format = Some(TableFormat::Ndjson);
    folder.write("tables/items.ndjson", "mine");
    run(&job).unwrap_err();
    let names: Vec<_> = fs::read_dir(tables).unwrap().map(|found| found.unwrap().file_name()).collect();
    assert_eq!(names, ["items.ndjson"]);
    assert_eq!(fs::read_to_string(folder.path("tables/items.ndjson")).unwrap(), "mine");
}

#[test]
fn outputs_that_are_not_files_are_never_replaced() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    let fifo = Command::new("mkfifo").arg(folder.path("fifo")).status().unwrap();
    assert!(fifo.success());
    let _socket = UnixListener::bind(folder.path("socket")).unwrap();
    symlink(folder.path("fifo"), folder.path("to-fifo")).unwrap();
    symlink(folder.path("nowhere"), folder.path("to-nothing")).unwrap();
    fs::create_dir(folder.path("bundle.items.ndjson")).unwrap();
    fs::create_dir_all(folder.path("tables")).unwrap();
    symlink(folder.path("fifo"), folder.path("tables/comments.csv")).unwrap();
    let names = folder.names();
    let cases: [(&str, Option<TableFormat>, &str); 7] = [
        ("fifo", None, "fifo is a pipe"),
        ("socket", None, "socket is a socket"),
        ("to-fifo", None, "to-fifo leads to a pipe"),
        ("to-nothing", None, "to-nothing is a broken link"),
        ("bundle.json", None, "bundle.items.ndjson is a folder"),
        ("fifo", Some(TableFormat::SensemakingCsv), "fifo is a pipe"),
        ("tables", Some(TableFormat::SensemakingCsv), "comments.csv leads to a pipe"),
    ];
    for (out, to, says) in cases {
        for (force, dry_run) in [(false, false), (true, false), (true, true)] {
            let mut job = folder.job(&path);
            (job.table_format, job.force, job.dry_run) = (to, force, dry_run);
            job.sidecars = to.is_none().then(|| vec![Sidecar::Ndjson]);
            job.target = Target::File(folder.path(out));
            let error = run(&job).unwrap_err();
            assert_eq!(error.tag(), "refused", "{error}");
            let message = error.to_string();
            assert_eq!(message, format!("{says}: only files are replaced"), "{out}");
            assert_eq!(folder.names(), names);
        }
    }
    // The link is replaced, its target is kept.
    folder.write("mine", "mine");
    symlink(folder.path("mine"), folder.path("link.json")).unwrap();
    let mut job = folder.job(&path);
    job.target = Target::File(folder.path("link.json"));
    run(&job).unwrap();
    assert!(folder.path("link.json").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(folder.path("mine")).unwrap(), "mine");
}

#[test]
fn dry_run_refuses_and_reports_like_a_run() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    folder.write("bundle.json", "mine");
    folder.write("tables/comments.csv", "mine");
    let mut own_input = folder.job(&path);
    own_input.dry_run = true;
    own_input.target = Target::File(path.clone());
    let mut existing_output = folder.job(&path);
    (existing_output.dry_run, existing_output.force) = (true, false);
    let mut existing_folder = existing_output.clone();
    (existing_folder.table_format, existing_folder.target) =
        (Some(TableFormat::SensemakingCsv), Target::File(folder.path("tables")));
    let mut votes = folder.job(&path);
    (votes.table_format, votes.target) = (Some(TableFormat::PolisCsv), Target::File(folder.path("out")));
    let names = folder.names();
    for (job, says) in [
        (own_input, "same file"),
        (existing_output, "exists already"),
        (existing_folder, "exists already"),
        (votes, "it holds counts, not votes: --to sensemaking-csv fits"),
    ] {
        for dry_run in [true, false] {
            let job = Job { dry_run, ..job.clone() };
            let error = run(&job).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(folder.names(), names);
        }
    }
    let mut job = folder.job(&path);
    (job.dry_run, job.sidecars) = (true, Some(vec![Sidecar::Ndjson]));
    let job_files = run(&job).unwrap().files;
    assert_eq!(fs::read_to_string(folder.path("bundle.json")).unwrap(), "mine");
    job.dry_run = false;
    assert_eq!(job_files, run(&job).unwrap().files);
    (job.key, job.sidecars, job.inputs) = (None, None, vec![folder.path("bundle.json")]);
    (job.table_format, job.target, job.dry_run) =
        (Some(TableFormat::Ndjson), Target::File(folder.path("lines")), true);
    let preview = serde_json::to_value(run(&job).unwrap()).unwrap();
    assert_eq!(preview["dryRun"], true);
    assert!(!folder.path("lines").exists());
    job.dry_run = false;
    let report = serde_json::to_value(run(&job).unwrap()).unwrap();
    assert_eq!((&report["dryRun"], &report["files"]), (&false.into(), &preview["files"]));
}

#[test]
fn repeated_sidecar_is_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(9, 4, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let (parquet, ndjson) = (Sidecar::Parquet, Sidecar::Ndjson);
    for (sidecars, twice) in [
        (vec![parquet, parquet], "parquet"),
        (vec![parquet, ndjson, ndjson], "ndjson"),
        (vec![ndjson, parquet, ndjson], "ndjson"),
    ] {
        job.sidecars = Some(sidecars);
        for dry_run in [true, false] {
            job.dry_run = dry_run;
            let error = run(&job).unwrap_err();
            assert_eq!(
                (error.tag(), error.to_string()),
                ("refused", format!("--sidecar: {twice} is named twice"))
            );
            assert_eq!(folder.names(), ["a"]);
        }
    }
}

#[test]
fn unsupported_compression_is_not_called_damage() {
    let folder = Folder::new();
    let mut zipped = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let plain = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zipped.start_file("t.csv", plain).unwrap();
    std::io::Write::write_all(&mut zipped, b"comment-id,comment_text,agrees\n1,one,2\n").unwrap();
    let mut bytes = zipped.finish().unwrap().into_inner();
    for (header, method) in [(b"PK\x03\x04", 8), (b"PK\x01\x02", 10)] {
        let at = bytes.windows(4).position(|four| four == header).unwrap();
        bytes[at + method] = 14;
    }
    let path = folder.write("t.zip", bytes);
    let error = run(&folder.job(&path)).unwrap_err().to_string();
    assert!(error.starts_with("t.csv: its compression is not supported"), "{error}");
}

#[test]
fn first_group_beyond_the_limit_is_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(25, 3, 10));
    let input = conversation.variant_a(&folder, "a");
    let matrix = |groups: u32, ending: &str| {
        let mut text = "participant,group-id,n-votes\n".to_owned();
        // Two participants per group.
        (0..groups * 2).for_each(|at| text += &format!("{at},g{},0\n", at % groups));
        folder.write("a/participants-votes.csv", text + ending);
    };
    matrix(2047, "");
    run(&folder.job(&input)).unwrap();
    fs::remove_file(folder.path("bundle.json")).unwrap();
    matrix(2048, "\u{0}");
    assert_refused(
        &folder,
        &input,
        "value",
        "participants-votes.csv, row 2049: there are more than 2047 groups",
    );
}
