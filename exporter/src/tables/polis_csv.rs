//! Writes a bundle of opinions as the tables that Polis' own tools read.
//!
//! The table of participants is in `polis_matrix`, since a bundle is ordered by item.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    rc::Rc,
};

use serde_json::Value;

use super::{
    Cells, FinishedFile, PartialFile, VoterIds, csv_row,
    opinions::{Opinions, moderated},
    polis_groups::ByGroup,
    polis_matrix::{COLUMNS, MISTAKEN, Matrix},
};
use crate::{
    bundle::read::{Item, Reader, Response, bundle},
    error::ConvertError,
    form::{
        Answer, GROUP_MEMBERS, GROUP_RESPONSE_COUNTS, ORIGIN_ORGANIZER, ORIGIN_PARTICIPANT, RESPONSE_COUNTS,
        SOURCE_RESPONSE_COUNTS,
    },
    input::name_of,
    meter::Meter,
    plural::{self, counted},
    timestamp::Timestamp,
};

const VOTES: &str = "votes.csv";
const COMMENTS: &str = "comments.csv";
const PARTICIPANTS: &str = "participant-votes.csv";
const SUMMARY: &str = "summary.csv";
const PLACED: [&str; 4] = [RESPONSE_COUNTS, SOURCE_RESPONSE_COUNTS, GROUP_MEMBERS, GROUP_RESPONSE_COUNTS];
pub(crate) const FILES: [&str; 4] = [VOTES, COMMENTS, PARTICIPANTS, SUMMARY];

/// Vote values, in the order of [`ANSWERS`](super::opinions::ANSWERS).
const VOTES_OF: [(Answer, &str); 3] = [(Answer::Agree, "1"), (Answer::Disagree, "-1"), (Answer::Pass, "0")];

/// Everything that is small.
struct SmallTables {
    opinions: Opinions,
    items: Vec<Item>,
    /// Counts of each item, by phase.
    counts: HashMap<String, Vec<ItemCounts>>,
    /// Group of each participant, by reference.
    groups: HashMap<String, String>,
    /// Phase of each group.
    phases: HashMap<String, String>,
    /// A table has one column of groups: these do not fit.
    mixed: bool,
    /// Number of groups without members.
    empty_groups: u64,
    by_group: ByGroup,
}

/// Agrees, disagrees and passes, where known.
type Counts = [Option<u64>; 3];

struct ItemCounts {
    phase: String,
    /// True for counts published by the source.
    published: bool,
    counts: Counts,
}

impl Reader for SmallTables {
    const ITEMS: bool = true;
    const OUTCOMES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), ConvertError> {
        self.items.push(item);
        Ok(())
    }

    fn outcome(&mut self, outcome: Value) -> Result<(), ConvertError> {
        self.opinions.outcome(&outcome, &PLACED)?;
        let kind = outcome["type"].as_str().unwrap_or_default();
        if kind == GROUP_MEMBERS
            && let (Some(group), Some(members)) = (outcome["group"].as_str(), outcome["members"].as_array())
        {
            self.empty_groups += u64::from(members.is_empty());
            let phase = outcome["phaseId"].as_str().unwrap_or_default();
            let known = self.phases.entry(group.to_owned()).or_insert_with(|| phase.to_owned());
            self.mixed |= known != phase || group.trim() != group;
            for member in members.iter().filter_map(Value::as_str) {
                let before = self.groups.insert(member.to_owned(), group.to_owned());
                self.mixed |= before.is_some_and(|before| before != group);
            }
        }
        if kind == GROUP_RESPONSE_COUNTS {
            self.by_group.say(&outcome);
        }
        let published = kind == SOURCE_RESPONSE_COUNTS;
        if let Some(item) = outcome["itemRef"].as_str()
            && (published || kind == RESPONSE_COUNTS)
        {
            let counts = ["agree", "disagree", "pass"].map(|name| outcome["counts"][name].as_u64());
            let phase = outcome["phaseId"].as_str().unwrap_or_default().to_owned();
            self.counts.entry(item.to_owned()).or_default().push(ItemCounts { phase, published, counts });
        }
        Ok(())
    }
}

struct Votes<'v> {
    file: PartialFile,
    /// Index and source key of each item, by id.
    keys: HashMap<&'v str, (u32, &'v str)>,
    voters: VoterIds,
    cells: Cells,
    opinions: Opinions,
    numbers: HashMap<Rc<str>, u32>,
    matrix: Matrix,
    groups: &'v HashMap<String, String>,
    by_group: ByGroup,
    /// Times that have no number.
    untold: u64,
}

pub(crate) fn write(
    from: &Path,
    folder: &Path,
    cells: Cells,
    voters: VoterIds,
    memory: usize,
    meter: &Meter,
) -> Result<(Vec<FinishedFile>, Vec<String>), ConvertError> {
    let mut around = SmallTables {
        opinions: Opinions::new(name_of(from)),
        items: Vec::new(),
        counts: HashMap::new(),
        groups: HashMap::new(),
        phases: HashMap::new(),
        mixed: false,
        empty_groups: 0,
        by_group: ByGroup::default(),
    };
    let rest = bundle(from, &mut around, meter)?;
    let SmallTables { opinions, items, counts, mut groups, mixed, empty_groups, by_group, .. } = around;
    if mixed {
        groups.clear();
    }
    opinions.items(&items)?;
    opinions.columns(&items, &COLUMNS, |name| {
        format!("a second column called {name}, which nobody could read back")
    })?;
    opinions.columns(&items, &[MISTAKEN], |name| {
        format!(
            "a column called {name}, for which {PARTICIPANTS} could be taken for a table of comments or votes"
        )
    })?;
    let keys = (0..).zip(&items).map(|(at, item)| (item.id.as_str(), (at, item.key()))).collect();
    let mut file = PartialFile::create(folder.join(VOTES))?;
    csv_row(&mut file, &["timestamp", "datetime", "comment-id", "voter-id", "vote"], cells)?;
    let (matrix, numbers) = (Matrix::new(folder, memory), HashMap::new());
    let groups = &groups;
    let mut votes =
        Votes { file, keys, voters, cells, opinions, numbers, matrix, groups, by_group, untold: 0 };
    bundle(from, &mut votes, meter)?;
    let Votes { file, matrix, mut opinions, by_group, mut untold, .. } = votes;
    opinions.hold_responses(&items)?;
    let left_out = if groups.is_empty() { by_group.all() } else { by_group.others(&opinions) };
    opinions.leave_out(GROUP_RESPONSE_COUNTS, left_out);
    let votes = file.finish()?;
    let columns: Vec<_> = items.iter().map(Item::key).collect();
    let participants = matrix.write(folder.join(PARTICIPANTS), &columns, (voters, cells), groups, meter)?;
    let counted_of = |item: &Item| counts_of(item, &counts, &opinions);
    let comments = comments(&items, counted_of, folder.join(COMMENTS), cells, &mut untold)?;
    let mut file = PartialFile::create(folder.join(SUMMARY))?;
    for (name, member) in [("topic", "title"), ("url", "url"), ("conversation-description", "description")] {
        csv_row(&mut file, &[name, rest["source"][member].as_str().unwrap_or_default()], cells)?;
    }
    let convention = ["vote-convention", "agree=+1;disagree=-1;pass=0;format=polis-export/1"];
    csv_row(&mut file, &convention, cells)?;
    let mut notes = Vec::new();
    if mixed {
        notes.push(
            "who is in which group was left out: tables have one group for each person, and here groups are of several \
             phases, share people, or have spaces around their names."
                .to_owned(),
        );
    } else if empty_groups > 0 {
        let (groups, were) = (counted(empty_groups, "group"), plural::were(empty_groups));
        notes
            .push(format!("{groups} {were} left out: nobody in them has answered, and tables list who has."));
    }
    if untold > 0 {
        let (times, were) = (counted(untold, "time"), plural::were(untold));
        notes.push(format!(
            "{times} {were} written in words only (datetime): before 1970, from 5138 on, or before 1973 with a fraction, \
             numbers would be read as others."
        ));
    }
    let count = |of: &dyn Fn(&Item) -> bool| items.iter().filter(|item| of(item)).count() as u64;
    let undecided = count(&|item| moderated(&item.status).is_none());
    if undecided > 0 {
        let it_were = if undecided == 1 { "it were" } else { "they were" };
        notes.push(format!(
            "Of {} `moderated` is 0, as if {it_were} pending: the status is none of approved, pending and rejected.",
            counted(undecided, "item")
        ));
    }
    let others = count(&|item| ![ORIGIN_PARTICIPANT, ORIGIN_ORGANIZER].contains(&item.origin.as_str()));
    if others > 0 {
        let it = if others == 1 { "it" } else { "them" };
        notes.push(format!(
            "Of {} `is-seed` is true, as if an organizer had written {it}: the origin is another one.",
            counted(others, "item")
        ));
    }
    notes.extend(opinions.notes(&items, &rest));
    Ok((vec![votes, comments, participants, file.finish()?], notes))
}

/// Milliseconds where known, else seconds, and the time as text. A number that would be read as another time is left
/// out and counted.
fn times<'t>(at: Option<&'t str>, untold: &mut u64) -> (String, &'t str) {
    let Some(text) = at else { return Default::default() };
    let count = |at: Timestamp| if at.fine { at.millis } else { at.millis.div_euclid(1000) };
    let same = |at: &Timestamp| at.millis >= 0 && Timestamp::from_epoch(count(*at)) == Some(*at);
    let Some(at) = Timestamp::parse(text).filter(same) else {
        *untold += 1;
        return (String::new(), text);
    };
    (count(at).to_string(), text)
}

/// Counts of the phase in which the item was answered; published counts take precedence over computed ones.
fn counts_of(item: &Item, counts: &HashMap<String, Vec<ItemCounts>>, opinions: &Opinions) -> Counts {
    let said =
        counts.get(&item.id).into_iter().flatten().filter(|said| opinions.is_of(&item.id, &said.phase));
    said.rev().max_by_key(|said| said.published).map_or(Counts::default(), |said| said.counts)
}

fn comments(
    items: &[Item],
    counts: impl Fn(&Item) -> Counts,
    path: PathBuf,
    cells: Cells,
    untold: &mut u64,
) -> Result<FinishedFile, ConvertError> {
    let mut file = PartialFile::create(path)?;
    let header = [
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
    ];
    csv_row(&mut file, &header, cells)?;
    for item in items {
        let [agrees, disagrees, passes] =
            counts(item).map(|count| count.map_or_else(String::new, |count| count.to_string()));
        let moderated = moderated(&item.status).unwrap_or("0");
        let seed = if item.origin == ORIGIN_PARTICIPANT { "false" } else { "true" };
        let (timestamp, datetime) = times(item.created_at.as_deref(), untold);
        let text = &item.text;
        let row = [&timestamp, datetime, item.key(), "", &agrees, &disagrees, &passes, moderated, seed, text];
        csv_row(&mut file, &row, cells)?;
    }
    file.finish()
}

impl Reader for Votes<'_> {
    const RESPONSES: bool = true;

    fn response(&mut self, response: Response) -> Result<(), ConvertError> {
        let answer = self.opinions.response(&response)?;
        let who = response.participant_ref.ok_or_else(|| self.opinions.no_vote())?;
        if let Some(group) = self.groups.get(&who) {
            self.by_group.vote(&response.subject_ref, group, answer);
        }
        let (answer, vote) = VOTES_OF[answer];
        // Of one about no item it is told once all are read.
        let Some((item, key)) = self.keys.get(response.subject_ref.as_str()).copied() else { return Ok(()) };
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
        self.matrix.vote(number, item, answer, at.and_then(Timestamp::parse))?;
        let who = match self.voters {
            VoterIds::References => who,
            VoterIds::Numbers => number.to_string(),
        };
        let (timestamp, datetime) = times(at, &mut self.untold);
        csv_row(&mut self.file, &[&timestamp, datetime, key, &who, vote], self.cells)
    }
}
