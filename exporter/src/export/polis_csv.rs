//! A bundle of opinions as the tables that Polis' own tools read.
//!
//! The table of participants is `polis_matrix`'s: a bundle goes by item, and it by participant.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    rc::Rc,
};

use serde_json::Value;

use super::{
    Cells, Growing, VoterIds, Whole, cell, csv_row,
    polis_matrix::Matrix,
    read::{Item, Reader, Response, bundle},
};
use crate::{
    fault::{Fault, Wrong},
    form::{Answer, GROUP_MEMBERS, ORIGIN_PARTICIPANT, RESPONSE_COUNTS, SOURCE_RESPONSE_COUNTS},
    input::name_of,
    meter::Meter,
    moment::Moment,
    words::{self, counted},
};

const VOTES: &str = "votes.csv";
const COMMENTS: &str = "comments.csv";
const PARTICIPANTS: &str = "participant-votes.csv";
const SUMMARY: &str = "summary.csv";
pub(crate) const FILES: [&str; 4] = [VOTES, COMMENTS, PARTICIPANTS, SUMMARY];

/// Everything that is small.
#[derive(Default)]
struct Around {
    items: Vec<Item>,
    counts: HashMap<String, Counts>,
    /// Of participants, by their references.
    groups: HashMap<String, String>,
    /// Those that have no members.
    empty_groups: u64,
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
        if kind == GROUP_MEMBERS
            && let (Some(group), Some(members)) = (outcome["group"].as_str(), outcome["members"].as_array())
        {
            self.empty_groups += u64::from(members.is_empty());
            let members = members.iter().filter_map(Value::as_str);
            self.groups.extend(members.map(|member| (member.to_owned(), group.to_owned())));
        }
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
    /// By id: the place among the items, and the source's key.
    keys: HashMap<&'v str, (u32, &'v str)>,
    voters: VoterIds,
    numbers: HashMap<Rc<str>, u32>,
    matrix: Matrix,
    /// Times that have no number.
    untold: u64,
    name: String,
}

pub(crate) fn write(
    from: &Path,
    folder: &Path,
    cells: Cells,
    voters: VoterIds,
    memory: usize,
    meter: &Meter,
) -> Result<(Vec<Whole>, Vec<String>), Fault> {
    let mut around = Around::default();
    let rest = bundle(from, &mut around, meter)?;
    let keys = (0..).zip(&around.items).map(|(at, item)| (item.id.as_str(), (at, item.key()))).collect();
    let mut file = Growing::create(folder.join(VOTES))?;
    csv_row(&mut file, &["timestamp", "datetime", "comment-id", "voter-id", "vote"])?;
    let matrix = Matrix::new(folder, memory);
    let mut votes =
        Votes { file, keys, voters, numbers: HashMap::new(), matrix, untold: 0, name: name_of(from) };
    bundle(from, &mut votes, meter)?;
    let Votes { file, matrix, mut untold, .. } = votes;
    let votes = file.finish()?;
    let columns: Vec<_> = around.items.iter().map(Item::key).collect();
    let participants = matrix.write(folder.join(PARTICIPANTS), &columns, voters, &around.groups, meter)?;
    let comments = comments(&around, folder.join(COMMENTS), cells, &mut untold)?;
    let mut file = Growing::create(folder.join(SUMMARY))?;
    for (name, member) in [("topic", "title"), ("url", "url"), ("conversation-description", "description")] {
        csv_row(&mut file, &[name, &cell(rest["source"][member].as_str().unwrap_or_default(), cells)])?;
    }
    csv_row(&mut file, &["vote-convention", "agree=+1;disagree=-1;pass=0;format=polis-export/1"])?;
    let mut notes = Vec::new();
    if around.empty_groups > 0 {
        let (groups, were) = (counted(around.empty_groups, "group"), words::were(around.empty_groups));
        notes
            .push(format!("{groups} {were} left out: nobody in them has answered, and tables list who has."));
    }
    if untold > 0 {
        let (times, were) = (counted(untold, "time"), words::were(untold));
        notes.push(format!(
            "{times} {were} written in words only (datetime): before 1970, from 5138 on, or before 1973 with a fraction, \
             numbers would be read as others."
        ));
    }
    Ok((vec![votes, comments, participants, file.finish()?], notes))
}

/// Milliseconds where they are known, else seconds; and the time in words. Those that would be read as another time are
/// told in words only, and counted.
fn times<'t>(at: Option<&'t str>, untold: &mut u64) -> (String, &'t str) {
    let Some(text) = at else { return Default::default() };
    let count = |at: Moment| if at.fine { at.millis } else { at.millis.div_euclid(1000) };
    let same = |at: &Moment| at.millis >= 0 && Moment::from_epoch(count(*at)) == Some(*at);
    let Some(at) = Moment::parse(text).filter(same) else {
        *untold += 1;
        return (String::new(), text);
    };
    (count(at).to_string(), text)
}

fn comments(around: &Around, path: PathBuf, cells: Cells, untold: &mut u64) -> Result<Whole, Fault> {
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
        let (timestamp, datetime) = times(item.created_at.as_deref(), untold);
        let text = cell(&item.text, cells);
        let row =
            [&timestamp, datetime, item.key(), "", &agrees, &disagrees, &passes, moderated, seed, &text];
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
        let (answer, vote) = match response.response.as_str() {
            "agree" => (Answer::Agree, "1"),
            "disagree" => (Answer::Disagree, "-1"),
            "pass" => (Answer::Pass, "0"),
            _ => return wrong("it holds comparisons, which are no votes on statements"),
        };
        let Some((item, key)) = self.keys.get(response.subject_ref.as_str()).copied() else {
            return wrong("a response is about no item");
        };
        let number = match self.numbers.get(who.as_str()) {
            Some(number) => *number,
            None => {
                let who = Rc::from(who.as_str());
                let number = self.matrix.participant(Rc::clone(&who));
                self.numbers.insert(who, number);
                number
            }
        };
        let at = response.occurred_at.as_deref();
        self.matrix.vote(number, item, answer, at.and_then(Moment::parse))?;
        let who = match self.voters {
            VoterIds::References => who,
            VoterIds::Numbers => number.to_string(),
        };
        let (timestamp, datetime) = times(at, &mut self.untold);
        csv_row(&mut self.file, &[&timestamp, datetime, key, &who, vote])
    }
}
