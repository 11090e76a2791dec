//! Checks common to all tables of opinions: refuses content that a table cannot hold, and notes omitted content.
//!
//! A table has one row or column per statement, so statements with equal names would be merged.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::bundle::read::{Item, Response};
use crate::{
    error::{ConvertError, ErrorKind},
    form::{RESPONSE_COUNTS, SOURCE_RESPONSE_COUNTS},
    plural::{self, format_count},
};

pub(super) const ANSWERS: [&str; 3] = ["agree", "disagree", "pass"];
const COMPARISONS: [&str; 3] = ["prefer-subject", "prefer-object", "equal"];
const COMPARISON: &str = "it is a comparison, not a vote on a statement: --to ndjson and parquet keep it";
const NO_ANSWER: &str = "its answer is none of agree, disagree and pass";
/// Number of outcome types listed by name in a note.
const MAX_LISTED_TYPES: usize = 20;

pub(super) struct Opinions {
    name: String,
    responses: u64,
    outcomes: u64,
    /// Number of each phase, by id.
    phases: HashMap<Box<str>, u32>,
    /// Use of each answered item, by id.
    item_uses: HashMap<Box<str>, ItemUse>,
    /// Number of omitted outcomes, by type.
    left_out: BTreeMap<String, u64>,
    /// Number of outcomes with counts of answers that have no column.
    other_answers: u64,
}

struct ItemUse {
    phase: u32,
    /// Index of its first response.
    response: Option<u64>,
}

impl Opinions {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            responses: 0,
            outcomes: 0,
            phases: HashMap::new(),
            item_uses: HashMap::new(),
            left_out: BTreeMap::new(),
            other_answers: 0,
        }
    }

    fn error(&self, list: &str, at: u64, kind: ErrorKind, detail: &str) -> ConvertError {
        ConvertError::content(&self.name, None, kind, format!("/{list}/{at}: {detail}"))
    }

    /// Checks a response, and returns the index of its answer in [`ANSWERS`].
    pub(super) fn check_response(&mut self, response: &Response) -> Result<usize, ConvertError> {
        let index = self.responses;
        self.responses += 1;
        // A pass with a second item is a comparison as well.
        let is_comparison =
            response.object_ref.is_some() || COMPARISONS.contains(&response.response.as_str());
        let Some(answer) = answer_column(&response.response).filter(|_| !is_comparison) else {
            let detail = if is_comparison { COMPARISON } else { NO_ANSWER };
            return Err(self.error("responses", index, ErrorKind::Format, detail));
        };
        if response.participant_ref.is_some() && response.count != 1 {
            let detail = "it names a participant, and its count is not 1";
            return Err(self.error("responses", index, ErrorKind::Value, detail));
        }
        if self.is_elsewhere(&response.subject_ref, &response.phase_id, Some(index)) {
            return Err(self.error("responses", index, ErrorKind::Format, SEVERAL_PHASES));
        }
        Ok(answer)
    }

    /// Error for the last response, which is a count instead of a vote.
    pub(super) fn no_vote_error(&self) -> ConvertError {
        self.error("responses", self.responses - 1, ErrorKind::Format, NO_VOTES)
    }

    /// Checks an outcome. Types other than `placed_types` are counted as omitted.
    pub(super) fn check_outcome(
        &mut self,
        outcome: &Value,
        placed_types: &[&str],
    ) -> Result<(), ConvertError> {
        let index = self.outcomes;
        self.outcomes += 1;
        let kind = outcome["type"].as_str().unwrap_or_default();
        if !placed_types.contains(&kind) {
            // Other types are arbitrary text, so only short plain words are repeated in a note.
            let is_listable = kind.len() <= 40
                && !kind.is_empty()
                && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            let kind =
                if is_listable && self.left_out.len() < MAX_LISTED_TYPES { kind } else { "other types" };
            *self.left_out.entry(kind.to_owned()).or_default() += 1;
        }
        // Omitted outcomes add no further notes about their counts.
        let has_columns =
            placed_types.contains(&kind) && matches!(kind, RESPONSE_COUNTS | SOURCE_RESPONSE_COUNTS);
        let hides_other_answers = || {
            let hidden_answers = outcome["suppressed"].as_array().into_iter().flatten();
            hidden_answers.filter_map(Value::as_str).any(|answer| answer_column(answer).is_none())
        };
        self.other_answers +=
            u64::from(has_columns && (has_other_answers(&outcome["counts"]) || hides_other_answers()));
        let is_positive = |count: &Value| count.as_f64().is_some_and(|count| count > 0.0);
        let has_answers = ANSWERS.iter().any(|answer| is_positive(&outcome["counts"][answer]))
            || outcome["suppressed"].as_array().is_some_and(|hidden| !hidden.is_empty());
        // An outcome without answers does not conflict with another phase.
        if has_columns
            && has_answers
            && let (Some(item), Some(phase)) = (outcome["itemRef"].as_str(), outcome["phaseId"].as_str())
            && self.is_elsewhere(item, phase, None)
        {
            return Err(self.error("outcomes", index, ErrorKind::Format, SEVERAL_PHASES));
        }
        Ok(())
    }

    /// Counts outcomes of a type as omitted.
    pub(super) fn count_left_out(&mut self, kind: &str, count: u64) {
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
        match self.item_uses.get_mut(item) {
            Some(item_use) => {
                // The first response is reported if the item does not exist.
                item_use.response = item_use.response.or(response);
                item_use.phase != phase
            }
            None => {
                self.item_uses.insert(item.into(), ItemUse { phase, response });
                false
            }
        }
    }

    /// True if counts for the item in this phase describe its answers: it has none elsewhere.
    pub(super) fn belongs_to_answers(&self, item: &str, phase: &str) -> bool {
        let answered_phase = self.item_uses.get(item).map(|item_use| item_use.phase);
        answered_phase.is_none_or(|number| self.phases.get(phase) == Some(&number))
    }

    /// Refuses items that would share a row or column.
    pub(super) fn check_items(&self, items: &[Item]) -> Result<(), ConvertError> {
        let mut rows = HashMap::new();
        for (at, item) in (0_u64..).zip(items) {
            // Readers of the tables trim spaces.
            if item.key().trim().is_empty() {
                let detail = "its id is empty, and tables identify statements by it";
                return Err(self.error("items", at, ErrorKind::Value, detail));
            }
            if let Some(first) = rows.insert(item.key().trim(), at) {
                let detail = format!(
                    "it would be merged with /items/{first}: their ids differ at most by `statement:` or \
                        spaces, which tables omit"
                );
                return Err(self.error("items", at, ErrorKind::Duplicate, &detail));
            }
        }
        Ok(())
    }

    /// Checks that no item column has a reserved name. `describe` describes such a column in the error.
    pub(super) fn check_column_names(
        &self,
        items: &[Item],
        reserved: &[&str],
        describe: impl Fn(&str) -> String,
    ) -> Result<(), ConvertError> {
        let reserved_name =
            |item: &Item| reserved.iter().find(|name| name.eq_ignore_ascii_case(item.key().trim()));
        match (0..).zip(items).find_map(|(at, item)| Some((at, reserved_name(item)?))) {
            None => Ok(()),
            Some((at, name)) => {
                let description = describe(name);
                let detail = format!(
                    "its id makes it {description}: --to ndjson, parquet and sensemaking-csv keep it"
                );
                Err(self.error("items", at, ErrorKind::Duplicate, &detail))
            }
        }
    }

    /// Refuses responses to items that do not exist.
    pub(super) fn check_response_items(&self, items: &[Item]) -> Result<(), ConvertError> {
        let item_ids: HashSet<_> = items.iter().map(|item| item.id.as_str()).collect();
        let without_item = self.item_uses.iter().filter(|(id, _)| !item_ids.contains(&***id));
        match without_item.filter_map(|(_, item_use)| item_use.response).min() {
            Some(at) => Err(self.error("responses", at, ErrorKind::UnknownItem, "its item does not exist")),
            None => Ok(()),
        }
    }

    /// Notes about omitted and converted content.
    pub(super) fn notes(&self, items: &[Item], card: &Map<String, Value>) -> Vec<String> {
        let mut notes = Vec::new();
        let phases = card.get("phases").and_then(Value::as_array).map_or(0, Vec::len) as u64;
        if phases > 1 {
            notes.push(format!("Tables have no column for phases: {phases} phases were merged."));
        }
        let count =
            |matches: &dyn Fn(&Item) -> bool| items.iter().filter(|item| matches(item)).count() as u64;
        match count(&|item| item.kind != "statement") {
            0 => {}
            1 => notes.push(
                "Tables have no column for types: 1 item of another type appears as a statement.".to_owned(),
            ),
            count => notes.push(format!(
                "Tables have no column for types: {count} items of other types appear as statements."
            )),
        }
        match count(&|item| item.status == "active") {
            0 => {}
            count => notes.push(format!(
                "Of {} `moderated` is 1, as if {} approved: the status is active.",
                format_count(count, "item"),
                if count == 1 { "it were" } else { "they were" },
            )),
        }
        let left_out: u64 = self.left_out.values().sum();
        if left_out > 0 {
            let (outcomes, were) = (format_count(left_out, "outcome"), plural::was_or_were(left_out));
            let types = self.left_out.iter().map(|(kind, count)| format!("{count} of {kind}"));
            let types = types.collect::<Vec<_>>().join(", ");
            notes.push(format!("The table has no column for {outcomes}, which {were} left out: {types}."));
        }
        if self.other_answers > 0 {
            let outcomes = format_count(self.other_answers, "outcome");
            notes.push(format!(
                "Of {outcomes} counts of other answers than agree, disagree and pass were left out: they have no column."
            ));
        }
        notes
    }
}

/// Error for a bundle without participants.
pub(crate) const NO_VOTES: &str = "it holds counts, not votes: --to sensemaking-csv fits";
const SEVERAL_PHASES: &str = "its item has answers in another phase, too, and a table would count them as \
    one: --to ndjson and parquet keep phases apart";

/// True if the counts contain other answers, or are not an object.
pub(super) fn has_other_answers(counts: &Value) -> bool {
    match counts {
        Value::Object(counts) => {
            counts.iter().any(|(name, count)| answer_column(name).is_none() && is_nonzero(count))
        }
        other => is_nonzero(other),
    }
}

/// True if the counts contain more than zeros: a zero may stand for an answer that was not offered.
pub(super) fn is_nonzero(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::String(_) => true,
    }
}

/// Column index of an answer.
pub(super) fn answer_column(answer: &str) -> Option<usize> {
    ANSWERS.iter().position(|candidate| *candidate == answer)
}

/// Moderation code of a status; `None` for statuses without one.
pub(super) fn moderation_code(status: &str) -> Option<&'static str> {
    match status {
        "approved" | "active" => Some("1"),
        "pending" => Some("0"),
        "rejected" => Some("-1"),
        _ => None,
    }
}
