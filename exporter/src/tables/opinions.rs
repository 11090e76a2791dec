//! Checks common to all tables of opinions: refuses what a table cannot hold, and notes what it leaves out.
//!
//! A table has one row or column for a statement; two things with one name would be counted together.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::bundle::read::{Item, Response};
use crate::{
    error::{ConvertError, ErrorKind},
    form::{RESPONSE_COUNTS, SOURCE_RESPONSE_COUNTS},
    plural::{self, counted},
};

pub(super) const ANSWERS: [&str; 3] = ["agree", "disagree", "pass"];
const COMPARISONS: [&str; 3] = ["prefer-subject", "prefer-object", "equal"];
const COMPARISON: &str =
    "it is a comparison, which is no vote on a statement: --to ndjson and parquet keep it";
const NO_ANSWER: &str = "its answer is none of agree, disagree and pass";
/// Number of types of outcomes that are listed by name.
const MOST_TYPES: usize = 20;

pub(super) struct Opinions {
    name: String,
    responses: u64,
    outcomes: u64,
    /// Number of each phase, by id.
    phases: HashMap<Box<str>, u32>,
    /// Use of each answered item, by id.
    about: HashMap<Box<str>, ItemUse>,
    /// Number of outcomes left out, by type.
    left_out: BTreeMap<String, u64>,
    /// Outcomes with counts of answers that have no column.
    other_answers: u64,
}

struct ItemUse {
    phase: u32,
    /// The first of its responses.
    response: Option<u64>,
}

impl Opinions {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            responses: 0,
            outcomes: 0,
            phases: HashMap::new(),
            about: HashMap::new(),
            left_out: BTreeMap::new(),
            other_answers: 0,
        }
    }

    fn wrong(&self, list: &str, at: u64, wrong: ErrorKind, detail: &str) -> ConvertError {
        ConvertError::content(&self.name, None, wrong, format!("/{list}/{at}: {detail}"))
    }

    /// The place of its answer among [`ANSWERS`].
    pub(super) fn response(&mut self, response: &Response) -> Result<usize, ConvertError> {
        let at = self.responses;
        self.responses += 1;
        let is_comparison =
            response.object_ref.is_some() || COMPARISONS.contains(&response.response.as_str());
        let Some(answer) = column(&response.response).filter(|_| !is_comparison) else {
            let detail = if is_comparison { COMPARISON } else { NO_ANSWER };
            return Err(self.wrong("responses", at, ErrorKind::Format, detail));
        };
        if response.participant_ref.is_some() && response.count != 1 {
            let detail = "it names a participant, and its count is not 1";
            return Err(self.wrong("responses", at, ErrorKind::Value, detail));
        }
        if self.is_elsewhere(&response.subject_ref, &response.phase_id, Some(at)) {
            return Err(self.wrong("responses", at, ErrorKind::Format, SEVERAL));
        }
        Ok(answer)
    }

    /// The last response is no vote.
    pub(super) fn no_vote(&self) -> ConvertError {
        self.wrong("responses", self.responses - 1, ErrorKind::Format, NO_VOTES)
    }

    /// Counts of an outcome about an item; others have no place unless they are `placed`.
    pub(super) fn outcome(&mut self, outcome: &Value, placed: &[&str]) -> Result<(), ConvertError> {
        let at = self.outcomes;
        self.outcomes += 1;
        let kind = outcome["type"].as_str().unwrap_or_default();
        if !placed.contains(&kind) {
            // Others may write anything there.
            let is_plain = kind.len() <= 40
                && !kind.is_empty()
                && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            let kind = if is_plain && self.left_out.len() < MOST_TYPES { kind } else { "other types" };
            *self.left_out.entry(kind.to_owned()).or_default() += 1;
        }
        // What has no column is left out, and counted with nothing.
        let counts = placed.contains(&kind) && matches!(kind, RESPONSE_COUNTS | SOURCE_RESPONSE_COUNTS);
        let others_hidden = || {
            let hidden = outcome["suppressed"].as_array().into_iter().flatten();
            hidden.filter_map(Value::as_str).any(|answer| column(answer).is_none())
        };
        self.other_answers += u64::from(counts && (says_more(&outcome["counts"]) || others_hidden()));
        let some = |count: &Value| count.as_f64().is_some_and(|count| count > 0.0);
        let answered = ANSWERS.iter().any(|answer| some(&outcome["counts"][answer]))
            || outcome["suppressed"].as_array().is_some_and(|hidden| !hidden.is_empty());
        if counts
            && answered
            && let (Some(item), Some(phase)) = (outcome["itemRef"].as_str(), outcome["phaseId"].as_str())
            && self.is_elsewhere(item, phase, None)
        {
            return Err(self.wrong("outcomes", at, ErrorKind::Format, SEVERAL));
        }
        Ok(())
    }

    /// Counts outcomes of this type as left out.
    pub(super) fn leave_out(&mut self, kind: &str, count: u64) {
        if count > 0 {
            *self.left_out.entry(kind.to_owned()).or_default() += count;
        }
    }

    /// True if the item was answered in another phase.
    fn is_elsewhere(&mut self, item: &str, phase: &str, response: Option<u64>) -> bool {
        let phase = match self.phases.get(phase) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.phases.len()).unwrap_or(u32::MAX);
                *self.phases.entry(phase.into()).or_insert(number)
            }
        };
        match self.about.get_mut(item) {
            Some(about) => {
                about.response = about.response.or(response);
                about.phase != phase
            }
            None => {
                self.about.insert(item.into(), ItemUse { phase, response });
                false
            }
        }
    }

    /// True if a statement about an item in a phase belongs to its answers.
    pub(super) fn is_of(&self, item: &str, phase: &str) -> bool {
        let known = self.about.get(item).map(|about| about.phase);
        known.is_none_or(|known| self.phases.get(phase) == Some(&known))
    }

    /// Each item has one row or column.
    pub(super) fn items(&self, items: &[Item]) -> Result<(), ConvertError> {
        let mut rows = HashMap::new();
        for (at, item) in (0_u64..).zip(items) {
            // Readers take spaces off.
            if item.key().trim().is_empty() {
                let detail = "its id is empty, and tables tell statements by it";
                return Err(self.wrong("items", at, ErrorKind::Value, detail));
            }
            if let Some(first) = rows.insert(item.key().trim(), at) {
                let detail = format!(
                    "it would be one with /items/{first}: their ids differ by `statement:` or spaces at most, and tables \
                     tell neither"
                );
                return Err(self.wrong("items", at, ErrorKind::Duplicate, &detail));
            }
        }
        Ok(())
    }

    /// Checks that the columns of a table with one column for each item have different names; `what` names them in
    /// messages.
    pub(super) fn columns(
        &self,
        items: &[Item],
        others: &[&str],
        what: impl Fn(&str) -> String,
    ) -> Result<(), ConvertError> {
        let called = |item: &Item| others.iter().find(|name| name.eq_ignore_ascii_case(item.key().trim()));
        match (0..).zip(items).find_map(|(at, item)| Some((at, called(item)?))) {
            None => Ok(()),
            Some((at, name)) => {
                let what = what(name);
                let detail =
                    format!("its id makes it {what}: --to ndjson, parquet and sensemaking-csv keep it");
                Err(self.wrong("items", at, ErrorKind::Duplicate, &detail))
            }
        }
    }

    /// Each response is about an item.
    pub(super) fn hold_responses(&self, items: &[Item]) -> Result<(), ConvertError> {
        let known: HashSet<_> = items.iter().map(|item| item.id.as_str()).collect();
        let unknown = self.about.iter().filter(|(id, _)| !known.contains(&***id));
        match unknown.filter_map(|(_, about)| about.response).min() {
            Some(at) => Err(self.wrong("responses", at, ErrorKind::UnknownItem, "it is about no item")),
            None => Ok(()),
        }
    }

    /// Notes about what was left out or is shown as something else.
    pub(super) fn notes(&self, items: &[Item], card: &Map<String, Value>) -> Vec<String> {
        let mut notes = Vec::new();
        let phases = card.get("phases").and_then(Value::as_array).map_or(0, Vec::len) as u64;
        if phases > 1 {
            notes.push(format!(
                "Tables have no place for phases: what is in {phases} phases stands together."
            ));
        }
        let count = |of: &dyn Fn(&Item) -> bool| items.iter().filter(|item| of(item)).count() as u64;
        match count(&|item| item.kind != "statement") {
            0 => {}
            1 => notes.push(
                "Tables have no place for types: 1 item of another one stands there as a statement."
                    .to_owned(),
            ),
            others => notes.push(format!(
                "Tables have no place for types: {others} items of other ones stand there as statements."
            )),
        }
        match count(&|item| item.status == "active") {
            0 => {}
            active => notes.push(format!(
                "Of {} `moderated` is 1, as if {} approved: the status is active.",
                counted(active, "item"),
                if active == 1 { "it were" } else { "they were" },
            )),
        }
        let left_out: u64 = self.left_out.values().sum();
        if left_out > 0 {
            let (outcomes, were) = (counted(left_out, "outcome"), plural::were(left_out));
            let of = self.left_out.iter().map(|(kind, count)| format!("{count} of {kind}"));
            let of = of.collect::<Vec<_>>().join(", ");
            notes.push(format!("The table has no place for {outcomes}, which {were} left out: {of}."));
        }
        if self.other_answers > 0 {
            let outcomes = counted(self.other_answers, "outcome");
            notes.push(format!(
                "Of {outcomes} counts of other answers than agree, disagree and pass were left out: they have no column."
            ));
        }
        notes
    }
}

/// Error for a bundle without participants.
pub(crate) const NO_VOTES: &str = "it holds counts, not votes: --to sensemaking-csv fits";
const SEVERAL: &str = "its item has answers in another phase, too, and a table would count them as one: --to ndjson and \
    parquet keep phases apart";

/// True if the counts hold other answers too, or are no counts.
pub(super) fn says_more(counts: &Value) -> bool {
    match counts {
        Value::Object(counts) => {
            counts.iter().any(|(name, count)| column(name).is_none() && says_something(count))
        }
        other => says_something(other),
    }
}

/// True if the counts hold more than zeros: a zero may stand for an answer that was not offered.
pub(super) fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::String(_) => true,
    }
}

/// The place of an answer.
pub(super) fn column(answer: &str) -> Option<usize> {
    ANSWERS.iter().position(|known| *known == answer)
}

/// Moderation code of a status; `None` for statuses that have none.
pub(super) fn moderated(status: &str) -> Option<&'static str> {
    match status {
        "approved" | "active" => Some("1"),
        "pending" => Some("0"),
        "rejected" => Some("-1"),
        _ => None,
    }
}
