//! Tests of input files: archives, compression, damaged files, and protection against overwriting.

use std::{
    fs::{self, File},
    io::{Cursor, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use crate::support::{Conversation, Folder, bundle, content, run};
use tidegate_exporter::{
    bundle::{
        digest,
        validate::{self, Options, validate},
    },
    convert::{Format, Job, Sidecar, Target, convert},
    error::ConvertError,
    meter::Meter,
    privacy::Profile,
    storage::spill::SpillOptions,
    tables::TableFormat,
};

fn zipped(folder: &Path) -> Vec<u8> {
    let mut zipped = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        zipped.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zipped.write_all(&fs::read(&path).unwrap()).unwrap();
    }
    zipped.finish().unwrap().into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn nested_folders_are_noted_and_not_read() {
    let (folder, conversation) = (Folder::new(), Conversation::new(51, 4, 30));
    let path = conversation.variant_a(&folder, "a");
    folder.write("a/older/votes.csv", "not looked at");
    folder.write("a/me@home.example/votes.csv", "not looked at");
    let mut job = folder.job(&path);
    let note_of = |job: &Job| {
        let notes = bundle(job).0.notes;
        notes.into_iter().find(|note| note.contains("not read")).unwrap()
    };
    assert_eq!(note_of(&job), "2 folders within the input were not read: me@home.example, older.");
    job.profile = Profile::Public;
    assert_eq!(note_of(&job), "2 folders within the input were not read.");
    fs::create_dir_all(folder.path("b/inner")).unwrap();
    let error = run(&folder.job(&folder.path("b"))).unwrap_err();
    assert!(error.to_string().contains("inner"), "{error}");
}

#[test]
fn input_is_never_overwritten_under_another_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(52, 4, 30));
    let export = conversation.variant_a(&folder, "a");
    let votes = folder.path("a/votes.csv");
    symlink(&votes, folder.path("link.json")).unwrap();
    fs::hard_link(&votes, folder.path("hard.json")).unwrap();
    symlink(folder.path("link.json"), folder.path("b.responses.parquet")).unwrap();
    let before = fs::read(&votes).unwrap();
    let files = ["votes.csv", "comments.csv"].map(|name| folder.path(&format!("a/{name}"))).to_vec();
    let assert_refused = |change: &dyn Fn(&mut Job), written: &str, read: &str| {
        let mut job = folder.job(&export);
        change(&mut job);
        let names = folder.names();
        let error = run(&job).unwrap_err();
        assert_eq!(error.tag(), "refused");
        let message = format!("the output {written} is the same file as the input {read}");
        assert_eq!(error.to_string(), message);
        assert_eq!((folder.names(), fs::read(&votes).unwrap() == before), (names, true));
    };
    let to = |path: PathBuf| move |job: &mut Job| job.target = Target::File(path.clone());
    assert_refused(&to(folder.path("a/votes.csv")), "votes.csv", "votes.csv");
    assert_refused(&to(folder.path("link.json")), "link.json", "votes.csv");
    assert_refused(&to(folder.path("hard.json")), "hard.json", "votes.csv");
    assert_refused(
        &|job| {
            job.inputs.clone_from(&files);
            job.target = Target::File(folder.path("hard.json"));
        },
        "hard.json",
        "votes.csv",
    );
    assert_refused(
        &|job| {
            job.target = Target::File(folder.path("b.json"));
            job.sidecars = Some(vec![Sidecar::Parquet]);
        },
        "b.responses.parquet",
        "votes.csv",
    );
    assert_refused(
        &|job| {
            job.target = Target::File(folder.path("a"));
            job.table_format = Some(TableFormat::PolisCsv);
        },
        "votes.csv",
        "votes.csv",
    );
    let stream = Arc::new(File::options().append(true).open(folder.path("hard.json")).unwrap());
    assert_refused(&|job| job.target = Target::Stream(Arc::clone(&stream)), "standard output", "votes.csv");
    fs::hard_link(folder.write("key", [7; 32]), folder.path("c.items.parquet")).unwrap();
    let key = |job: &mut Job| job.key_file = Some(folder.path("key"));
    assert_refused(
        &|job| {
            key(job);
            job.target = Target::File(folder.path("key"));
        },
        "key",
        "key",
    );
    assert_refused(
        &|job| {
            key(job);
            job.target = Target::File(folder.path("c.json"));
        },
        "c.items.parquet",
        "key",
    );
    assert_eq!(fs::read(folder.path("key")).unwrap(), [7; 32]);
    // A file that is only beside the input may be overwritten.
    let mut job = folder.job(&export);
    key(&mut job);
    job.target = Target::File(folder.path("a/bundle.json"));
    run(&job).unwrap();
}

#[test]
fn compressed_archive_is_read() {
    let (folder, conversation) = (Folder::new(), Conversation::new(53, 4, 30));
    let plain = zipped(&conversation.variant_a(&folder, "a"));
    let expected_bundle = bundle(&folder.job(&folder.write("a.zip", &plain))).1;
    for (name, bytes) in [("a.zip.gz", gzip(&plain)), ("a.zip.zst", zstd::encode_all(&*plain, 1).unwrap())] {
        let (_, converted_bundle) = bundle(&folder.job(&folder.write(name, &bytes)));
        assert_eq!(content(converted_bundle.clone()), content(expected_bundle.clone()));
        let artifacts = converted_bundle["provenance"]["sourceArtifacts"].as_array().unwrap();
        assert_eq!((&artifacts[0]["role"], &artifacts[0]["name"]), (&"archive".into(), &name.into()));
        assert_eq!(artifacts[0]["size"], bytes.len());
        assert!(artifacts[1..].iter().all(|artifact| artifact["within"] == name));
    }
    let truncated = gzip(&plain);
    let error = run(&folder.job(&folder.write("cut.zip.gz", &truncated[..truncated.len() / 2]))).unwrap_err();
    assert_eq!((error.tag(), error.to_string().contains("cut.zip.gz")), ("compressed", true), "{error}");
}

#[test]
fn expansion_limit_applies_to_compressed_archives() {
    let folder = Folder::new();
    let mut zipped = zip::ZipWriter::new(Cursor::new(Vec::new()));
    // The archive is within the limit of its own size, but not within that of the compressed input.
    for (name, method) in
        [("a.csv", zip::CompressionMethod::Stored), ("b.csv", zip::CompressionMethod::Deflated)]
    {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zipped.start_file(name, options).unwrap();
        zipped.write_all(&vec![b'1'; 40 << 20]).unwrap();
    }
    let plain = zipped.finish().unwrap().into_inner();
    let packed = gzip(&plain);
    assert!(plain.len() < 64 << 20 && packed.len() * 250 < 64 << 20, "{} {}", plain.len(), packed.len());
    let path = folder.write("bomb.zip.gz", packed);
    assert_eq!(run(&folder.job(&path)).unwrap_err().tag(), "bomb");
}

/// Compressed bundle, intact or damaged, with the expected rules and whether all of it is read.
type Befallen = (&'static str, Vec<u8>, &'static [&'static str], bool);

fn befallen(whole: &[u8], packed: impl Fn(&[u8]) -> Vec<u8>) -> Vec<Befallen> {
    let all = packed(whole);
    let half = whole.len() / 2;
    let with = |more: &[u8]| [&all[..], more].concat();
    let spoiled = |at: usize| {
        let mut bytes = all.clone();
        bytes[at] ^= 0xff;
        bytes
    };
    let end = all.len();
    vec![
        ("whole", all.clone(), &[], true),
        ("in two parts", [packed(&whole[..half]), packed(&whole[half..])].concat(), &[], true),
        ("and nothing", with(&packed(b"")), &[], true),
        ("and spaces", with(&packed(b" \n")), &[], true),
        ("twice", with(&all), &["BND-LEX-03"], true),
        ("and a text", with(b"more"), &["BND-LEX-03"], true),
        ("and a byte", with(b"m"), &["BND-LEX-03"], true),
        ("and noughts", with(&[0; 512]), &["BND-LEX-03"], true),
        ("followed in the middle", [&packed(&whole[..half])[..], b"more"].concat(), &["BND-LEX-14"], false),
        ("and a cut part", with(&all[..7]), &["BND-LEX-02"], false),
        ("cut in its sum", all[..end - 2].to_vec(), &["BND-LEX-02"], false),
        ("cut in the middle", all[..end / 2].to_vec(), &["BND-LEX-02"], false),
        ("with another sum", spoiled(end - 6), &["BND-LEX-14"], false),
    ]
}

#[test]
fn damage_of_compressed_bundles_is_reported() {
    let (folder, conversation) = (Folder::new(), Conversation::new(55, 4, 30));
    run(&folder.job(&conversation.variant_a(&folder, "a"))).unwrap();
    let original = fs::read(folder.path("bundle.json")).unwrap();
    let zstd = |bytes: &[u8]| {
        let mut packed = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        packed.include_checksum(true).unwrap();
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let options = Options::new(SpillOptions { memory: 1 << 20, folder: std::env::temp_dir() });
    let mut wrong = Vec::new();
    for (kind, cases) in [("gzip", befallen(&original, gzip)), ("zstd", befallen(&original, zstd))] {
        for (what, bytes, rules, complete) in cases {
            // The last bytes are the checksum of zstd.
            let bytes = match (kind, what) {
                ("zstd", "with another sum") => [&bytes[..bytes.len() - 6], &[0; 6]].concat(),
                _ => bytes,
            };
            let path = folder.write("packed", bytes);
            let found_rules = match validate(&mut tidegate_exporter::unpack::File::new(&path), &options) {
                Ok(report) => {
                    let rules: Vec<_> = report.totals.iter().map(|(rule, _)| rule.id()).collect();
                    (format!("{rules:?}"), report.is_complete)
                }
                Err(error) => (error.to_string(), false),
            };
            if found_rules != (format!("{rules:?}"), complete) {
                wrong.push(format!("{kind} {what}: {found_rules:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn damaged_compressed_bundle_has_no_digest() {
    let (folder, whole) = (Folder::new(), b"{\"a\":[1]}");
    let packed = gzip(whole);
    let digests = |bytes: &[u8]| {
        let path = folder.write("packed", bytes);
        let file = || tidegate_exporter::unpack::File::new(&path);
        let room = SpillOptions { memory: 1 << 20, folder: std::env::temp_dir() };
        let content = digest::of_content(&mut file(), validate::Limits::default(), &room);
        (digest::of_bytes(&mut file()).is_ok(), content.map_err(|unfit| unfit.to_string()))
    };
    assert!(matches!(digests(&packed), (true, Ok(_))));
    let truncated = digests(&packed[..packed.len() - 3]);
    assert_eq!(truncated, (false, Err("line 1, byte 9: BND-LEX-02 the text ends too early".to_owned())));
    let with_trailing_data = digests(&[&packed[..], b"more"].concat());
    let finding = "line 1, byte 9: BND-LEX-03 data after the end of the document; they were not read";
    assert_eq!(with_trailing_data, (false, Err(finding.to_owned())));
}

#[test]
fn bytes_read_never_exceed_the_total_and_reach_it() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(56, 60, 1_500));
    let in_order = conversation.votes_csv(1000);
    conversation.variant_a(&folder, "a");
    conversation.votes.sort_by_key(|vote| (vote.1, vote.0, vote.2));
    let unsorted = conversation.votes_csv(1000);
    let out = |job: &mut Job| {
        let stream = File::create(folder.path("stream.json")).unwrap();
        (job.target, job.bundle_id) = (Target::Stream(Arc::new(stream)), Some("trees".to_owned()));
    };
    for (times, votes, packed, stream) in [
        (1, &in_order, false, false),
        (2, &unsorted, false, false),
        (1, &in_order, true, false),
        (2, &unsorted, true, false),
        (2, &in_order, false, true),
        (2, &unsorted, false, true),
    ] {
        let votes = if packed { gzip(votes.as_bytes()) } else { votes.as_bytes().to_vec() };
        folder.write("a/votes.csv", &votes);
        let mut job = folder.job(&folder.path("a"));
        if stream {
            out(&mut job);
        }
        let meter = Arc::new(Meter::default());
        let watched = Arc::clone(&meter);
        let watching = std::thread::spawn(move || {
            let (mut before, mut above) = (0, 0_u64);
            while Arc::strong_count(&watched) > 1 {
                // Read in this order, since both counters only grow.
                let read = watched.bytes_read.load(Ordering::Acquire);
                above += u64::from(read < before || read > watched.bytes_expected.load(Ordering::Relaxed));
                before = read;
            }
            above
        });
        convert(&job, &meter).unwrap();
        let (read, total) =
            (meter.bytes_read.load(Ordering::Relaxed), meter.bytes_expected.load(Ordering::Relaxed));
        drop(meter);
        let length = votes.len() as u64;
        let case = format!("{times} {packed} {stream}: {read} of {total}, {length} in the file");
        assert_eq!(watching.join().unwrap(), 0, "{case}");
        assert_eq!(read, total, "{case}");
        // The first reading of unsorted input ends early.
        assert!(
            total > length * (times - 1) && total <= length * times && (times > 1 || total == length),
            "{case}"
        );
    }
}

#[test]
fn nested_archive_is_refused_by_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(3, 4, 10));
    let inner_archive = zipped(&conversation.variant_a(&folder, "a"));
    let mut outer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    outer.start_file("export.zip", zip::write::SimpleFileOptions::default()).unwrap();
    outer.write_all(&inner_archive).unwrap();
    let path = folder.write("outer.zip", outer.finish().unwrap().into_inner());
    let message = run(&folder.job(&path)).unwrap_err().to_string();
    assert!(message.starts_with("export.zip: it is an archive within an archive"), "{message}");
}

#[test]
fn too_large_window_is_reported_with_the_file() {
    let (folder, conversation) = (Folder::new(), Conversation::new(3, 4, 10));
    let input = conversation.variant_a(&folder, "a");
    let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    packer.write_all(&fs::read(input.join("votes.csv")).unwrap()).unwrap();
    let mut frame = packer.finish().unwrap();
    // A larger window than needed, in a frame without its content size.
    frame[5] = (28 - 10) << 3;
    fs::remove_file(input.join("votes.csv")).unwrap();
    for behind in [false, true] {
        let before = if behind { zstd::encode_all(&b"\n"[..], 1).unwrap() } else { Vec::new() };
        let before = if behind { [before, zstd::encode_all(&b""[..], 1).unwrap()].concat() } else { before };
        folder.write("a/votes.csv", [before, frame.clone()].concat());
        let error = run(&folder.job(&input)).unwrap_err();
        assert!(
            error.to_string().starts_with("votes.csv: its packed data needs a window of 268435456 bytes"),
            "{error}"
        );
    }
}

#[test]
fn compressed_files_in_an_archive_are_read() {
    let (folder, conversation) = (Folder::new(), Conversation::new(54, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    for name in ["comments.csv", "votes.csv"] {
        let text = fs::read(path.join(name)).unwrap();
        fs::remove_file(path.join(name)).unwrap();
        let packed = if name == "votes.csv" { zstd::encode_all(&*text, 1).unwrap() } else { gzip(&text) };
        folder.write(&format!("a/{name}.packed"), packed);
    }
    let mut in_a_folder = bundle(&folder.job(&path)).1;
    let mut in_an_archive = bundle(&folder.job(&folder.write("a.zip", zipped(&path)))).1;
    let digests = |bundle: &mut serde_json::Value| {
        let mut artifacts = bundle["provenance"]["sourceArtifacts"].take();
        let artifacts = artifacts.as_array_mut().unwrap();
        let digests = artifacts.iter().map(|it| it["sha256"].to_string());
        digests.collect::<std::collections::BTreeSet<_>>()
    };
    // Digests refer to the compressed files.
    assert!(digests(&mut in_a_folder).is_subset(&digests(&mut in_an_archive)));
    assert_eq!(content(in_an_archive), content(in_a_folder));
    let votes = path.join("votes.csv.packed");
    let mut truncated = fs::read(&votes).unwrap();
    truncated.truncate(truncated.len() - 3);
    fs::write(&votes, truncated).unwrap();
    let error = run(&folder.job(&folder.write("a.zip", zipped(&path)))).unwrap_err();
    assert_eq!(error.to_string(), "votes.csv.packed: its packed data ends too early (in a.zip)");
}

#[test]
fn self_extracting_archive_is_read() {
    let (folder, conversation) = (Folder::new(), Conversation::new(55, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    let archive = zipped(&path);
    let plain = bundle(&folder.job(&folder.write("a.zip", &archive))).1;
    for name in ["a.zip", "a.EXE"] {
        let unpacks_itself = [b"#!/bin/sh\nexit\n", &*archive].concat();
        let bundle = bundle(&folder.job(&folder.write(name, unpacks_itself))).1;
        assert_eq!(content(bundle), content(plain.clone()));
    }
    assert!(run(&folder.job(&folder.write("b.zip", "no archive"))).is_err());
}

#[test]
fn installer_beside_an_export_is_not_read() {
    let (folder, conversation) = (Folder::new(), Conversation::new(56, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    let plain = bundle(&folder.job(&path)).1;
    folder.write("a/setup.exe", [b"MZ", &*zipped(&path)].concat());
    let with = bundle(&folder.job(&path)).1;
    for part in ["items", "responses", "outcomes", "summary"] {
        assert_eq!(with[part], plain[part], "{part}");
    }
}

const PASSED_OVER: &str = "1 file that cannot be unpacked was skipped: ";

#[test]
fn broken_file_is_noted_beside_an_export_and_refused_alone() {
    let (folder, conversation) = (Folder::new(), Conversation::new(57, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    let plain = content(bundle(&folder.job(&path)).1);
    let archive = zipped(&path);
    let truncated = &archive[..archive.len() / 2];
    let mut spoiled = zipped_file("readme.txt", b"something to read");
    let at = memchr::memmem::find(&spoiled, b"to read").unwrap();
    spoiled[at] = b'T';
    for (name, bytes, told) in [
        ("setup.zip", truncated.to_owned(), "setup.zip"),
        ("setup.zip.gz", gzip(truncated), "setup.zip.gz"),
        ("notes.gz", b"\x1f\x8bno".to_vec(), "notes.gz"),
        ("notes.zst", b"\x28\xb5\x2f\xfdno".to_vec(), "notes.zst"),
        ("spoiled.zip", spoiled, "readme.txt"),
    ] {
        let broken_file = folder.write(&format!("a/{name}"), &bytes);
        let (report, with) = bundle(&folder.job(&path));
        assert!(report.notes.contains(&format!("{PASSED_OVER}{told}.")), "{name}: {:?}", report.notes);
        let artifacts = with["provenance"]["sourceArtifacts"].as_array().unwrap();
        let artifact = artifacts.iter().find(|artifact| artifact["name"] == name).unwrap();
        assert_eq!(artifact["size"], bytes.len(), "{name}");
        assert_eq!(content(with), plain, "{name}");
        let error = run(&folder.job(&broken_file)).unwrap_err();
        assert!(
            matches!(error, ConvertError::Content { .. })
                && error.to_string().starts_with(&format!("{told}: ")),
            "{name}: {error}"
        );
        let other_format = Job { input_format: Some(Format::Sensemaking), ..folder.job(&path) };
        assert_eq!(run(&other_format).unwrap_err().to_string(), error.to_string());
        fs::remove_file(broken_file).unwrap();
    }
    let mut job = folder.job(&path);
    job.profile = Profile::Public;
    folder.write("a/me@home.example.gz", b"\x1f\x8bno");
    assert!(bundle(&job).0.notes.contains(&format!("{PASSED_OVER}unused.")));
    fs::remove_file(folder.path("a/me@home.example.gz")).unwrap();
    for table in ["comments.csv", "summary.csv", "participants-votes.csv", "format.json"] {
        let broken_file = folder.write(&format!("a/{table}.gz"), b"\x1f\x8bno");
        let message = run(&folder.job(&path)).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{table}.gz: its packed data")), "{message}");
        fs::remove_file(broken_file).unwrap();
    }
}

fn zipped_file(name: &str, bytes: &[u8]) -> Vec<u8> {
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut zipped = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zipped.start_file(name, options).unwrap();
    zipped.write_all(bytes).unwrap();
    zipped.finish().unwrap().into_inner()
}

#[test]
fn unused_compressed_file_is_not_unpacked() {
    let (folder, conversation) = (Folder::new(), Conversation::new(58, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    let long: String = (0..600_000_u64).map(|line| format!("{line},{}\n", line * 7919 % 65_521)).collect();
    let packed = gzip(long.as_bytes());
    // The beginning of the file is intact.
    folder.write("a/others.gz", &packed[..packed.len() - 9]);
    let notes = bundle(&folder.job(&path)).0.notes;
    assert!(notes.contains(&"1 file was not used: others.gz.".to_owned()), "{notes:?}");
    let mut job = folder.job(&folder.path("bundle.json"));
    job.inputs.push(folder.write("notes.gz", b"\x1f\x8bno"));
    (job.key, job.table_format, job.target) =
        (None, Some(TableFormat::Ndjson), Target::File(folder.path("lines")));
    assert_eq!(run(&job).unwrap().notes, [format!("{PASSED_OVER}notes.gz.")]);
}

#[test]
fn damaged_input_file_is_refused_under_any_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(59, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    for table in ["votes.csv", "comments.csv", "summary.csv"] {
        let text = fs::read(path.join(table)).unwrap();
        let packed = gzip(&text);
        // With a matrix the remaining files would be an export without votes.
        fs::remove_file(path.join(table)).unwrap();
        folder.write("a/2024-05-06.bin", &packed[..packed.len() - 9]);
        let message = "2024-05-06.bin: its packed data ends too early";
        assert_eq!(run(&folder.job(&path)).unwrap_err().to_string(), message, "{table}");
        folder.write(&format!("a/{table}"), &text);
        assert_eq!(run(&folder.job(&path)).unwrap_err().to_string(), message, "{table}, twice");
        fs::remove_file(path.join("2024-05-06.bin")).unwrap();
    }
    let groups = gzip(b"comment-id,comment,total-votes\n1,one,2\n");
    folder.write("a/2024-05-06.bin", &groups[..groups.len() - 9]);
    let notes = bundle(&folder.job(&path)).0.notes;
    assert!(notes.contains(&format!("{PASSED_OVER}2024-05-06.bin.")), "{notes:?}");
}

#[test]
fn broken_file_is_named_where_a_table_is_missing() {
    let (folder, conversation) = (Folder::new(), Conversation::new(59, 5, 30));
    let path = conversation.variant_a(&folder, "a");
    // No part of the file can be decompressed.
    folder.write("a/2024-05-06.bin", b"\x1f\x8bno");
    fs::remove_file(path.join("votes.csv")).unwrap();
    let notes = bundle(&folder.fresh(&path)).0.notes;
    let expected_note = "There was no list of votes (votes.csv), unless it is one of the damaged files \
        (2024-05-06.bin); the participant table has no times.";
    assert!(notes.iter().any(|note| note == expected_note), "{notes:?}");
    fs::remove_file(path.join("participants-votes.csv")).unwrap();
    let message = "the input: a file of votes (votes.csv) or of participants (participants-votes.csv) is \
        missing; it may be one of the damaged files: 2024-05-06.bin";
    assert_eq!(run(&folder.fresh(&path)).unwrap_err().to_string(), message);
    // Another file is similar to the missing one.
    folder.write("a/ballots.csv", "voter-id,vote\n1,1\n");
    let message = run(&folder.fresh(&path)).unwrap_err().to_string();
    let ends = "; it may be one of the damaged files: 2024-05-06.bin";
    assert!(message.starts_with("ballots.csv, row 1: ") && message.ends_with(ends), "{message}");
}
