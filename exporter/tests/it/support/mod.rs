//! Generated exports, and helpers for tests of conversions.
//!
//! The repository contains no data of real people: all data here is made up.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, dead_code, unreachable_pub)]

pub mod bundles;
pub mod s3_server;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_exporter::{
    bundle::validate,
    convert::{Job, Report, Target, convert},
    error::ConvertError,
    meter::Meter,
    privacy::Key,
    storage::spill::SpillOptions,
    timestamp::Timestamp,
};

/// Temporary folder with the files of a conversion.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Same job with a random key, which needs no conversation id.
    pub fn fresh(&self, input: &Path) -> Job {
        Job { key: None, ..self.job(input) }
    }

    /// Job that converts a path to `bundle.json`, with a fixed key and time.
    pub fn job(&self, input: &Path) -> Job {
        let mut job = Job::new(vec![input.to_owned()], Target::File(self.path("bundle.json")));
        job.exported_at = Timestamp::parse("2026-01-02T03:04:05Z");
        job.key = Key::from_bytes(vec![7; 32]);
        job.force = true;
        job
    }
}

pub fn run(job: &Job) -> Result<Report, ConvertError> {
    convert(job, &Arc::new(Meter::default()))
}

/// Converts, and parses the bundle.
pub fn bundle(job: &Job) -> (Report, Value) {
    let report = run(job).unwrap_or_else(|error| panic!("{error}"));
    let Target::File(path) = &job.target else { panic!("no file") };
    assert_valid(path, job);
    (report, serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
}

/// Validates at the highest level: writer and validator are separate implementations.
pub fn assert_valid(path: &Path, job: &Job) {
    let folder = tempfile::tempdir().unwrap();
    let mut options =
        validate::Options::new(SpillOptions { memory: 1 << 24, folder: folder.path().to_owned() });
    (options.naming, options.schema_url) = (job.naming, job.schema_url.clone());
    let text = fs::read(path).unwrap();
    let report = validate::validate(&mut text.as_slice(), &options).unwrap();
    assert!(report.is_valid(), "{:?} {:?}", report.totals, report.findings);
}

/// Bundle without the members that describe its origin.
pub fn content(mut bundle: Value) -> Value {
    let object = bundle.as_object_mut().unwrap();
    object.remove("bundleId");
    object.remove("provenance");
    bundle
}

/// Vote: comment, voter, seconds, value.
pub type Vote = (u32, u32, i64, i8);

/// Made-up conversation in the format of the first server's export; times are whole seconds.
#[derive(Clone)]
pub struct Conversation {
    /// Id, author, moderated, text.
    pub comments: Vec<(u32, u32, i8, String)>,
    pub votes: Vec<Vote>,
    pub voters: Vec<u32>,
}

const BEGAN: i64 = 1_600_000_000;
/// Recognisable ids, to detect them in outputs.
pub const VOTERS_FROM: u32 = 7_700_000;

impl Conversation {
    /// Generates a conversation from a seed. Authors agree with themselves, some people vote twice.
    pub fn new(seed: u64, comments: u32, voters: u32) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |below: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as u32 % below
        };
        let voters: Vec<_> = (0..voters).map(|at| VOTERS_FROM + at).collect();
        let texts = ["plain", "with, a comma", "with \"quotes\"", "two\nlines", "\u{fc}ml\u{e4}ut \u{1f600}"];
        let comments: Vec<_> = (0..comments)
            .map(|id| {
                let author = voters[random(voters.len() as u32) as usize];
                let moderated = [1, 1, 1, 0, -1][random(5) as usize];
                (id, author, moderated, format!("Statement {id} {}", texts[id as usize % texts.len()]))
            })
            .collect();
        let mut votes = Vec::new();
        let mut at = BEGAN + 10_000;
        for (id, author, ..) in &comments {
            for voter in &voters {
                if voter == author {
                    votes.push((*id, *voter, at, 1));
                } else if random(3) > 0 {
                    let value = [1, 1, -1, 0][random(4) as usize];
                    votes.push((*id, *voter, at, value));
                    if random(20) == 0 {
                        votes.push((*id, *voter, at + 5, -value));
                    }
                }
                at += 7;
            }
        }
        Self { comments, votes, voters }
    }

    fn tally(&self, comment: u32, value: i8) -> usize {
        self.votes.iter().filter(|vote| vote.0 == comment && vote.3 == value).count()
    }

    pub fn latest(&self) -> std::collections::BTreeMap<(u32, u32), Vote> {
        self.votes.iter().map(|vote| ((vote.0, vote.1), *vote)).collect()
    }

    pub fn votes_csv(&self, unit: i64) -> String {
        let mut text = "timestamp,datetime,comment-id,voter-id,vote\n".to_owned();
        for (comment, voter, at, value) in &self.votes {
            text += &format!("{},Wed Jul 27 21:56:00 WIB 2022,{comment},{voter},{value}\n", at * unit);
        }
        text
    }

    pub fn comments_csv(&self, unit: i64) -> String {
        let mut text =
            "timestamp,datetime,comment-id,author-id,agrees,disagrees,moderated,comment-body\n".to_owned();
        // The source lists the newest vote first.
        for (id, author, moderated, body) in self.comments.iter().rev() {
            let (agrees, disagrees) = (self.tally(*id, 1), self.tally(*id, -1));
            let body = body.replace('"', "\"\"");
            let at = (BEGAN + i64::from(*id)) * unit;
            text +=
                &format!("{at},Wed Jul 27 WIB,{id},{author},{agrees},{disagrees},{moderated},\"{body}\"\n");
        }
        text
    }

    pub fn matrix_csv(&self) -> String {
        let mut text = "participant,xid,group-id,n-comments,n-votes,n-agree,n-disagree".to_owned();
        self.comments.iter().for_each(|comment| text += &format!(",{}", comment.0));
        text.push('\n');
        let latest = self.latest();
        for voter in &self.voters {
            let group = ["0", "1", ""][*voter as usize % 3];
            let rows: Vec<_> = self
                .comments
                .iter()
                .map(|comment| latest.get(&(comment.0, *voter)).map(|vote| vote.3))
                .collect();
            let count = |value| rows.iter().filter(|vote| **vote == Some(value)).count();
            let votes = rows.iter().flatten().count();
            text += &format!("{voter},xid-of-{voter},{group},0,{votes},{},{}", count(1), count(-1));
            for vote in rows {
                text.push(',');
                text += &vote.map_or_else(String::new, |vote| vote.to_string());
            }
            text.push('\n');
        }
        text
    }

    pub const SUMMARY: &'static str = "topic,What shall we do?\nurl,https://pol.is/3invented\nviews,9\nvoters,1\nconversation-description,Say it\n";

    /// Writes the folder that the first server would export.
    pub fn variant_a(&self, folder: &Folder, name: &str) -> PathBuf {
        folder.write(&format!("{name}/votes.csv"), self.votes_csv(1000));
        folder.write(&format!("{name}/comments.csv"), self.comments_csv(1000));
        folder.write(&format!("{name}/participants-votes.csv"), self.matrix_csv());
        folder.write(&format!("{name}/summary.csv"), Self::SUMMARY);
        folder.path(name)
    }
}
