//! Tests of bundles on standard output: the bytes of a file, or an error.

use std::{
    env,
    fs::{self, File},
    io::{self, Read as _},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use crate::support::{Conversation, Folder, run};
use tidegate_exporter::{
    convert::{Job, Report, Target, convert},
    error::ConvertError,
    meter::Meter,
    privacy::Profile,
};

const ID: &str = "trees of 2026";

/// Output read from the other end of a pipe.
fn streamed(mut job: Job) -> (Result<Report, ConvertError>, Vec<u8>) {
    let (mut reader, writer) = io::pipe().unwrap();
    job.target = Target::Stream(Arc::new(File::from(std::os::fd::OwnedFd::from(writer))));
    let reading = thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let result = run(&job);
    drop(job);
    (result, reading.join().unwrap())
}

#[test]
fn stream_has_the_bytes_of_a_file() {
    for in_order in [true, false] {
        let (folder, mut conversation) = (Folder::new(), Conversation::new(61, 30, 200));
        if !in_order {
            conversation.votes.sort_by_key(|vote| (vote.1, vote.0, vote.2));
        }
        let mut job = folder.job(&conversation.variant_a(&folder, "a"));
        for profile in [Profile::Private, Profile::Public] {
            for id in [None, Some(ID.to_owned())] {
                for threads in [1, 2] {
                    (job.profile, job.bundle_id, job.threads) = (profile, id.clone(), threads);
                    let file_report = run(&job).unwrap();
                    let (report, bytes) = streamed(job.clone());
                    assert!(fs::read(folder.path("bundle.json")).unwrap() == bytes, "{profile:?} {id:?}");
                    let report = report.unwrap();
                    assert_eq!((report.bytes, report.bundle_id), (file_report.bytes, file_report.bundle_id));
                    assert_eq!(report.content_sha256, file_report.content_sha256);
                }
            }
        }
    }
}

#[test]
fn unsorted_input_fails_before_the_stream_starts() {
    let (folder, conversation) = (Folder::new(), Conversation::new(62, 30, 200));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.bundle_id = Some(ID.to_owned());
    let votes = conversation.votes_csv(1000);
    let reordered: String = votes
        .lines()
        .map(|line| match line.rsplit_once(',') {
            Some((start, "1")) => format!("{start},-1\n"),
            Some((start, "-1")) => format!("{start},1\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    for (tag, votes) in [("value", votes.trim_end().to_owned() + "7\n"), ("sign", reordered)] {
        folder.write("a/votes.csv", votes);
        let (result, bytes) = streamed(job.clone());
        assert_eq!(result.unwrap_err().tag(), tag);
        assert_eq!(bytes, b"");
    }
}

#[test]
fn stopped_stream_reports_the_stop() {
    let (folder, conversation) = (Folder::new(), Conversation::new(63, 30, 200));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.target = Target::Stream(Arc::new(File::create(folder.path("stream")).unwrap()));
    for id in [None, Some(ID.to_owned())] {
        job.bundle_id = id;
        let meter = Arc::new(Meter::default());
        meter.stop();
        let stopped = convert(&job, &meter).unwrap_err();
        assert!(matches!(stopped, ConvertError::Stopped { .. }), "{stopped:?}");
    }
}

const CHILD: &str = "STREAM_FROM_AND_TO";

/// Child process for the test below, with its own folder for temporary files.
#[test]
fn a_stream_for_the_test_below() {
    let Ok(told) = env::var(CHILD) else { return };
    let [input, to, id] = told.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let folder = Folder::new();
    let mut job = folder.job(&PathBuf::from(input));
    job.bundle_id = (!id.is_empty()).then(|| id.to_owned());
    let stream = match to {
        "gone" => {
            let (reader, writer) = io::pipe().unwrap();
            drop(reader);
            File::from(std::os::fd::OwnedFd::from(writer))
        }
        path => File::options().write(true).open(path).unwrap(),
    };
    job.target = Target::Stream(Arc::new(stream));
    let error = run(&job).unwrap_err();
    assert_eq!(error.tag(), "io");
    let message = if to == "gone" { "Broken pipe" } else { "No space left" };
    assert!(error.to_string().starts_with(&format!("writing to standard output: {message}")), "{error}");
}

#[test]
fn failing_stream_is_reported_and_leaves_no_file() {
    let (folder, conversation) = (Folder::new(), Conversation::new(64, 30, 200));
    let input = conversation.variant_a(&folder, "a");
    let temporary = folder.path("temporary");
    fs::create_dir(&temporary).unwrap();
    for to in ["gone", "/dev/full"] {
        for id in ["", ID] {
            let child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "streams::a_stream_for_the_test_below"])
                .env(CHILD, format!("{}\n{to}\n{id}", input.display()))
                .env("TMPDIR", &temporary)
                .stderr(Stdio::inherit())
                .output()
                .unwrap();
            assert!(child.status.success(), "{to} {id}: {}", String::from_utf8_lossy(&child.stdout));
            assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{to} {id}");
        }
    }
}
