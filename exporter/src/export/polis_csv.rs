//! A bundle of opinions as the tables that Polis' own tools read.
//!
//! Groups are not among them: a bundle says what a group has answered, not who is in it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    Cells, Growing, VoterIds, cell, csv_row,
    read::{Item, Reader, Response, bundle},
};
use crate::{
    fault::{Fault, Wrong},
    form::{ORIGIN_PARTICIPANT, RESPONSE_COUNTS, SOURCE_RESPONSE_COUNTS},
    input::name_of,
    moment::Moment,
};

/// Everything that is small.
#[derive(Default)]
struct Around {
    items: Vec<Item>,
    counts: HashMap<String, Counts>,
}

/// Agrees, disagrees and passes, as far as they are said.
type Counts = [Option<u64>; 3];

impl Reader for Around {
    const ITEMS: bool = true;
    const OUTCOMES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), Fault> {
        self.items.push(item);
        Ok(())
    }

    fn outcome(&mut self, outcome: Value) -> Result<(), Fault> {
        let kind = outcome["type"].as_str().unwrap_or_default();
        let published = kind == SOURCE_RESPONSE_COUNTS;
        if let Some(item) = outcome["itemRef"].as_str()
            && (published || kind == RESPONSE_COUNTS)
        {
            let counts = ["agree", "disagree", "pass"].map(|name| outcome["counts"][name].as_u64());
            // What the source has published goes before what was counted.
            if published || !self.counts.contains_key(item) {
                self.counts.insert(item.to_owned(), counts);
            }
        }
        Ok(())
    }
}

struct Votes<'v> {
    file: Growing,
    keys: HashMap<&'v str, &'v str>,
    voters: VoterIds,
    numbers: HashMap<String, usize>,
    name: String,
}

pub(crate) fn write(
    from: &Path,
    folder: &Path,
    cells: Cells,
    voters: VoterIds,
) -> Result<Vec<PathBuf>, Fault> {
    let mut around = Around::default();
    let rest = bundle(from, &mut around)?;
    let keys = around.items.iter().map(|item| (item.id.as_str(), key(&item.id))).collect();
    let mut file = Growing::create(folder.join("votes.csv"))?;
    csv_row(&mut file, &["timestamp", "datetime", "comment-id", "voter-id", "vote"])?;
    let mut votes = Votes { file, keys, voters, numbers: HashMap::new(), name: name_of(from) };
    bundle(from, &mut votes)?;
    let votes = votes.file.finish()?;
    let comments = comments(&around, folder.join("comments.csv"), cells)?;
    let mut file = Growing::create(folder.join("summary.csv"))?;
    for (name, member) in [("topic", "title"), ("url", "url"), ("conversation-description", "description")] {
        csv_row(&mut file, &[name, rest["source"][member].as_str().unwrap_or_default()])?;
    }
    csv_row(&mut file, &["vote-convention", "agree=+1;disagree=-1;pass=0;format=polis-export/1"])?;
    Ok(vec![votes, comments, file.finish()?])
}

/// What the source called it.
fn key(id: &str) -> &str {
    id.strip_prefix("statement:").unwrap_or(id)
}

/// Milliseconds where they are known, else seconds; and the time in words.
fn times(at: Option<&str>) -> (String, &str) {
    let Some((text, at)) = at.and_then(|text| Some((text, Moment::parse(text)?))) else {
        return Default::default();
    };
    let count = if at.fine { at.millis } else { at.millis / 1000 };
    (count.to_string(), text)
}

fn comments(around: &Around, path: PathBuf, cells: Cells) -> Result<PathBuf, Fault> {
    let mut file = Growing::create(path)?;
    csv_row(
        &mut file,
        &[
            "timestamp",
            "datetime",
            "comment-id",
            "author-id",
            "agrees",
            "disagrees",
            "passes",
            "moderated",
            "is-seed",
            "comment-body",
        ],
    )?;
    for item in &around.items {
        let counts = around.counts.get(&item.id).copied().unwrap_or_default();
        let [agrees, disagrees, passes] =
            counts.map(|count| count.map_or_else(String::new, |count| count.to_string()));
        let moderated = match item.status.as_str() {
            "approved" | "active" => "1",
            "rejected" => "-1",
            _ => "0",
        };
        let seed = if item.origin == ORIGIN_PARTICIPANT { "false" } else { "true" };
        let (timestamp, datetime) = times(item.created_at.as_deref());
        let text = cell(&item.text, cells);
        let row =
            [&timestamp, datetime, key(&item.id), "", &agrees, &disagrees, &passes, moderated, seed, &text];
        csv_row(&mut file, &row)?;
    }
    file.finish()
}

impl Reader for Votes<'_> {
    const RESPONSES: bool = true;

    fn response(&mut self, response: Response) -> Result<(), Fault> {
        let wrong = |detail: &str| Err(Fault::content(&self.name, None, Wrong::Format, detail));
        let Some(who) = response.participant_ref else {
            return wrong("it holds counts, not votes: --to sensemaking-csv fits");
        };
        let vote = match response.response.as_str() {
            "agree" => "1",
            "disagree" => "-1",
            "pass" => "0",
            _ => return wrong("it holds comparisons, which are no votes on statements"),
        };
        let Some(key) = self.keys.get(response.subject_ref.as_str()) else {
            return wrong("a response is about no item");
        };
        let who = match self.voters {
            VoterIds::References => who,
            VoterIds::Numbers => {
                let next = self.numbers.len();
                self.numbers.entry(who).or_insert(next).to_string()
            }
        };
        let (timestamp, datetime) = times(response.occurred_at.as_deref());
        csv_row(&mut self.file, &[&timestamp, datetime, key, &who, vote])
    }
}
