//! Writes a bundle of opinions as tables in Polis' format.
//!
//! The participant table is in `polis_matrix`: it has rows by participant, while a bundle is sorted by item.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    rc::Rc,
};

use serde_json::Value;

use super::{
    Cells, FinishedFile, PartialFile, VoterIds, csv_row,
    opinions::{Opinions, moderation_code},
    polis_groups::GroupCountCheck,
    polis_matrix::{COLUMNS, Matrix, RESERVED_KEY},
};
use crate::{
    bundle::read::{ElementReceiver, Item, Response, read_bundle},
    error::ConvertError,
    form::{
        Answer, GROUP_MEMBERS, GROUP_RESPONSE_COUNTS, ORIGIN_ORGANIZER, ORIGIN_PARTICIPANT, RESPONSE_COUNTS,
        SOURCE_RESPONSE_COUNTS,
    },
    input::name_of,
    meter::Meter,
    plural::{self, format_count},
    timestamp::Timestamp,
};

const VOTES: &str = "votes.csv";
const COMMENTS: &str = "comments.csv";
const PARTICIPANTS: &str = "participant-votes.csv";
const SUMMARY: &str = "summary.csv";
const PLACED_TYPES: [&str; 4] =
    [RESPONSE_COUNTS, SOURCE_RESPONSE_COUNTS, GROUP_MEMBERS, GROUP_RESPONSE_COUNTS];
pub(crate) const FILES: [&str; 4] = [VOTES, COMMENTS, PARTICIPANTS, SUMMARY];

/// Vote codes, in the order of [`ANSWERS`](super::opinions::ANSWERS).
const VOTES_OF: [(Answer, &str); 3] = [(Answer::Agree, "1"), (Answer::Disagree, "-1"), (Answer::Pass, "0")];

/// Content of the bundle other than responses, kept in memory.
struct BundleTables {
    opinions: Opinions,
    items: Vec<Item>,
    /// Counts of each item, by phase.
    counts: HashMap<String, Vec<ItemCounts>>,
    /// Group of each participant, by reference.
    groups: HashMap<String, String>,
    /// Phase of each group.
    phases: HashMap<String, String>,
    /// True if the groups do not fit into the single group column.
    has_mixed_groups: bool,
    /// Number of groups without members.
    empty_groups: u64,
    by_group: GroupCountCheck,
}

/// Agree, disagree and pass counts, if known.
type Counts = [Option<u64>; 3];

struct ItemCounts {
    phase: String,
    /// True for counts published by the source, false for computed ones.
    is_published: bool,
    counts: Counts,
}

impl ElementReceiver for BundleTables {
    const ITEMS: bool = true;
    const OUTCOMES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), ConvertError> {
        self.items.push(item);
        Ok(())
    }

    fn outcome(&mut self, outcome: Value) -> Result<(), ConvertError> {
        self.opinions.check_outcome(&outcome, &PLACED_TYPES)?;
        let kind = outcome["type"].as_str().unwrap_or_default();
        if kind == GROUP_MEMBERS
            && let (Some(group), Some(members)) = (outcome["group"].as_str(), outcome["members"].as_array())
        {
            self.empty_groups += u64::from(members.is_empty());
            let phase = outcome["phaseId"].as_str().unwrap_or_default();
            let group_phase = self.phases.entry(group.to_owned()).or_insert_with(|| phase.to_owned());
            // Readers trim group names, which could merge two groups.
            self.has_mixed_groups |= group_phase != phase || group.trim() != group;
            for member in members.iter().filter_map(Value::as_str) {
                let previous_group = self.groups.insert(member.to_owned(), group.to_owned());
                self.has_mixed_groups |= previous_group.is_some_and(|before| before != group);
            }
        }
        if kind == GROUP_RESPONSE_COUNTS {
            self.by_group.add_outcome(&outcome);
        }
        let is_published = kind == SOURCE_RESPONSE_COUNTS;
        if let Some(item) = outcome["itemRef"].as_str()
            && (is_published || kind == RESPONSE_COUNTS)
        {
            let counts = ["agree", "disagree", "pass"].map(|name| outcome["counts"][name].as_u64());
            let phase = outcome["phaseId"].as_str().unwrap_or_default().to_owned();
            self.counts.entry(item.to_owned()).or_default().push(ItemCounts { phase, is_published, counts });
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
    by_group: GroupCountCheck,
    /// Number of times without a numeric form.
    times_without_number: u64,
}

pub(crate) fn write(
    bundle_path: &Path,
    folder: &Path,
    cells: Cells,
    voters: VoterIds,
    memory: usize,
    meter: &Meter,
) -> Result<(Vec<FinishedFile>, Vec<String>), ConvertError> {
    let mut tables = BundleTables {
        opinions: Opinions::new(name_of(bundle_path)),
        items: Vec::new(),
        counts: HashMap::new(),
        groups: HashMap::new(),
        phases: HashMap::new(),
        has_mixed_groups: false,
        empty_groups: 0,
        by_group: GroupCountCheck::default(),
    };
    let card = read_bundle(bundle_path, &mut tables, meter)?;
    let BundleTables {
        opinions, items, counts, mut groups, has_mixed_groups, empty_groups, by_group, ..
    } = tables;
    if has_mixed_groups {
        // Leaves the group column empty.
        groups.clear();
    }
    opinions.check_items(&items)?;
    opinions.check_column_names(&items, &COLUMNS, |name| {
        format!("a second column called {name}, which could not be read back")
    })?;
    opinions.check_column_names(&items, &[RESERVED_KEY], |name| {
        format!(
            "a column called {name}, for which {PARTICIPANTS} could be taken for a table of comments or votes"
        )
    })?;
    let keys = (0..).zip(&items).map(|(at, item)| (item.id.as_str(), (at, item.key()))).collect();
    let mut file = PartialFile::create(folder.join(VOTES))?;
    csv_row(&mut file, &["timestamp", "datetime", "comment-id", "voter-id", "vote"], cells)?;
    let (matrix, numbers) = (Matrix::new(folder, memory), HashMap::new());
    let groups = &groups;
    let mut votes = Votes {
        file,
        keys,
        voters,
        cells,
        opinions,
        numbers,
        matrix,
        groups,
        by_group,
        times_without_number: 0,
    };
    // Second reading: votes need the items and groups of the first one.
    read_bundle(bundle_path, &mut votes, meter)?;
    let Votes { file, matrix, mut opinions, by_group, mut times_without_number, .. } = votes;
    opinions.check_response_items(&items)?;
    // Readers compute the counts of groups from votes and members. Without members, all counts are lost.
    let left_out = if groups.is_empty() { by_group.count_all() } else { by_group.count_differing(&opinions) };
    opinions.count_left_out(GROUP_RESPONSE_COUNTS, left_out);
    let votes = file.finish()?;
    let columns: Vec<_> = items.iter().map(Item::key).collect();
    let participants = matrix.write(folder.join(PARTICIPANTS), &columns, (voters, cells), groups, meter)?;
    let counts_for = |item: &Item| counts_of(item, &counts, &opinions);
    let comments_file =
        write_comments(&items, counts_for, folder.join(COMMENTS), cells, &mut times_without_number)?;
    let mut file = PartialFile::create(folder.join(SUMMARY))?;
    for (name, member) in [("topic", "title"), ("url", "url"), ("conversation-description", "description")] {
        csv_row(&mut file, &[name, card["source"][member].as_str().unwrap_or_default()], cells)?;
    }
    // Declares the sign, so that a later conversion need not assume it.
    let convention = ["vote-convention", "agree=+1;disagree=-1;pass=0;format=polis-export/1"];
    csv_row(&mut file, &convention, cells)?;
    let mut notes = Vec::new();
    if has_mixed_groups {
        notes.push(
            "Group members were left out: tables have one group per person, and here groups belong to \
                several phases, share people, or have spaces around their names."
                .to_owned(),
        );
    } else if empty_groups > 0 {
        let (groups, were) = (format_count(empty_groups, "group"), plural::was_or_were(empty_groups));
        notes.push(format!(
            "{groups} without answering members {were} left out: tables list only participants with answers."
        ));
    }
    if times_without_number > 0 {
        let (times, were) =
            (format_count(times_without_number, "time"), plural::was_or_were(times_without_number));
        notes.push(format!(
            "{times} {were} written as text only (datetime): before 1970, from 5138 on, or before 1973 \
                with a fraction, numbers would be read as other times."
        ));
    }
    let count = |matches: &dyn Fn(&Item) -> bool| items.iter().filter(|item| matches(item)).count() as u64;
    let without_code = count(&|item| moderation_code(&item.status).is_none());
    if without_code > 0 {
        let it_were = if without_code == 1 { "it were" } else { "they were" };
        notes.push(format!(
            "Of {} `moderated` is 0, as if {it_were} pending: the status is none of approved, pending and rejected.",
            format_count(without_code, "item")
        ));
    }
    let other_origins =
        count(&|item| ![ORIGIN_PARTICIPANT, ORIGIN_ORGANIZER].contains(&item.origin.as_str()));
    if other_origins > 0 {
        let it = if other_origins == 1 { "it" } else { "them" };
        notes.push(format!(
            "Of {} `is-seed` is true, as if an organizer had written {it}: the origin is another one.",
            format_count(other_origins, "item")
        ));
    }
    notes.extend(opinions.notes(&items, &card));
    Ok((vec![votes, comments_file, participants, file.finish()?], notes))
}

/// Formats a time as milliseconds (or seconds, if the fraction is unknown) and as text. A number that would be read
/// back as another time is omitted and counted.
fn format_times<'t>(time: Option<&'t str>, times_without_number: &mut u64) -> (String, &'t str) {
    let Some(text) = time else { return Default::default() };
    let epoch_count = |at: Timestamp| if at.has_millis { at.millis } else { at.millis.div_euclid(1000) };
    let is_read_back =
        |at: &Timestamp| at.millis >= 0 && Timestamp::from_epoch(epoch_count(*at)) == Some(*at);
    let Some(at) = Timestamp::parse(text).filter(is_read_back) else {
        *times_without_number += 1;
        return (String::new(), text);
    };
    (epoch_count(at).to_string(), text)
}

/// Counts of the phase in which the item was answered; published counts take precedence over computed ones.
fn counts_of(item: &Item, counts: &HashMap<String, Vec<ItemCounts>>, opinions: &Opinions) -> Counts {
    let candidates = counts
        .get(&item.id)
        .into_iter()
        .flatten()
        .filter(|candidate| opinions.belongs_to_answers(&item.id, &candidate.phase));
    // Reversed, because `max_by_key` returns the last maximum: the first outcome takes precedence.
    candidates
        .rev()
        .max_by_key(|candidate| candidate.is_published)
        .map_or(Counts::default(), |candidate| candidate.counts)
}

fn write_comments(
    items: &[Item],
    counts: impl Fn(&Item) -> Counts,
    path: PathBuf,
    cells: Cells,
    times_without_number: &mut u64,
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
        let moderated = moderation_code(&item.status).unwrap_or("0");
        let is_seed = if item.origin == ORIGIN_PARTICIPANT { "false" } else { "true" };
        let (timestamp, datetime) = format_times(item.created_at.as_deref(), times_without_number);
        let text = &item.text;
        // A bundle names no authors.
        let row =
            [&timestamp, datetime, item.key(), "", &agrees, &disagrees, &passes, moderated, is_seed, text];
        csv_row(&mut file, &row, cells)?;
    }
    file.finish()
}

impl ElementReceiver for Votes<'_> {
    const RESPONSES: bool = true;

    fn response(&mut self, response: Response) -> Result<(), ConvertError> {
        let answer = self.opinions.check_response(&response)?;
        let reference = response.participant_ref.ok_or_else(|| self.opinions.no_vote_error())?;
        if let Some(group) = self.groups.get(&reference) {
            self.by_group.count_vote(&response.subject_ref, group, answer);
        }
        let (answer, vote) = VOTES_OF[answer];
        // A response to an unknown item is reported after the last response.
        let Some((item, key)) = self.keys.get(response.subject_ref.as_str()).copied() else { return Ok(()) };
        let number = match self.numbers.get(reference.as_str()) {
            Some(number) => *number,
            None => {
                let shared_reference = Rc::from(reference.as_str());
                let number = self.matrix.add_participant(Rc::clone(&shared_reference));
                self.numbers.insert(shared_reference, number);
                number
            }
        };
        let occurred_at = response.occurred_at.as_deref();
        self.matrix.add_vote(number, item, answer, occurred_at.and_then(Timestamp::parse))?;
        let voter = match self.voters {
            VoterIds::References => reference,
            VoterIds::Numbers => number.to_string(),
        };
        let (timestamp, datetime) = format_times(occurred_at, &mut self.times_without_number);
        csv_row(&mut self.file, &[&timestamp, datetime, key, &voter, vote], self.cells)
    }
}
