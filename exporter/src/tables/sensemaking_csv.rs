//! Writes a bundle of opinions as one table of counts for the sensemaking tools.
//!
//! The header is never quoted: the tools split it at commas without parsing quotes.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    Cells, FinishedFile, PartialFile, csv_row,
    opinions::{ANSWERS, Opinions, answer_column, moderation_code},
};
use crate::{
    bundle::read::{ElementReceiver, Item, MAX_COUNT, Response, read_bundle},
    error::{ConvertError, ErrorKind},
    form::{ORIGIN_PARTICIPANT, RESPONSE_COUNTS},
    input::name_of,
    meter::Meter,
    plural,
};

pub(crate) const FILE: &str = "comments.csv";

struct CountsReader {
    opinions: Opinions,
    items: Vec<Item>,
    counts: HashMap<String, [u128; 3]>,
    /// Number of responses read.
    rows: u64,
    /// Hidden answers of each item; their counts are unknown, not zero.
    hidden_answers: HashMap<String, [bool; 3]>,
    /// Answers missing in the counts of each item. Without responses, they may not have been offered.
    unnamed_answers: HashMap<String, [bool; 3]>,
    name: String,
}

impl ElementReceiver for CountsReader {
    const ITEMS: bool = true;
    const RESPONSES: bool = true;
    const OUTCOMES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), ConvertError> {
        self.items.push(item);
        Ok(())
    }

    fn response(&mut self, response: Response) -> Result<(), ConvertError> {
        let column = self.opinions.check_response(&response)?;
        self.rows += 1;
        let (row, answer) = (self.rows - 1, ANSWERS[column]);
        let sum = &mut self.counts.entry(response.subject_ref).or_default()[column];
        *sum = sum.checked_add(response.count).filter(|sum| *sum <= MAX_COUNT).ok_or_else(|| {
            let detail = format!("/responses/{row}: with it the count of {answer} has more than 38 digits");
            ConvertError::content(&self.name, None, ErrorKind::Value, detail)
        })?;
        Ok(())
    }

    fn outcome(&mut self, outcome: Value) -> Result<(), ConvertError> {
        self.opinions.check_outcome(&outcome, &[RESPONSE_COUNTS])?;
        if outcome["type"] == RESPONSE_COUNTS
            && let (Some(item), Some(counts)) = (outcome["itemRef"].as_str(), outcome["counts"].as_object())
        {
            let unnamed = ANSWERS.map(|answer| !counts.contains_key(answer));
            self.unnamed_answers.insert(item.to_owned(), unnamed);
        }
        let (Some(item), Some(suppressed)) = (outcome["itemRef"].as_str(), outcome["suppressed"].as_array())
        else {
            return Ok(());
        };
        for at in suppressed.iter().filter_map(Value::as_str).filter_map(answer_column) {
            self.hidden_answers.entry(item.to_owned()).or_default()[at] = true;
        }
        Ok(())
    }
}

/// Writes the table, and returns notes about omitted content.
pub(crate) fn write(
    bundle_path: &Path,
    path: PathBuf,
    cells: Cells,
    meter: &Meter,
) -> Result<(Vec<FinishedFile>, Vec<String>), ConvertError> {
    let name = name_of(bundle_path);
    let mut reader = CountsReader {
        opinions: Opinions::new(name.clone()),
        items: Vec::new(),
        counts: HashMap::new(),
        rows: 0,
        hidden_answers: HashMap::new(),
        unnamed_answers: HashMap::new(),
        name,
    };
    let card = read_bundle(bundle_path, &mut reader, meter)?;
    reader.opinions.check_items(&reader.items)?;
    reader.opinions.check_response_items(&reader.items)?;
    let mut file = PartialFile::create(path)?;
    let header = ["comment-id", "comment_text", "agrees", "disagrees", "passes", "moderated"];
    csv_row(&mut file, &header, cells)?;
    let (mut without_code, mut other_origins, mut partial_responses) = (0_u64, 0_u64, 0_u128);
    for item in &reader.items {
        let counts = reader.counts.get(&item.id).copied().unwrap_or_default();
        let hidden_columns = reader.hidden_answers.get(&item.id).copied().unwrap_or_default();
        let unnamed_columns = reader.unnamed_answers.get(&item.id).copied().unwrap_or_default();
        let cell = |at: usize| {
            // An unnamed answer without responses may not have been offered, so its cell stays empty.
            let is_unknown = hidden_columns[at] || unnamed_columns[at] && counts[at] == 0;
            if is_unknown { String::new() } else { counts[at].to_string() }
        };
        let [agrees, disagrees, passes] = [0, 1, 2].map(cell);
        // Responses behind an empty cell are not in the table.
        partial_responses += (0..3).filter(|at| hidden_columns[*at]).map(|at| counts[at]).sum::<u128>();
        let moderated = moderation_code(&item.status);
        without_code += u64::from(moderated.is_none());
        other_origins += u64::from(item.origin != ORIGIN_PARTICIPANT);
        let row = [item.key(), &item.text, &agrees, &disagrees, &passes, moderated.unwrap_or_default()];
        csv_row(&mut file, &row, cells)?;
    }
    let mut notes = Vec::new();
    if without_code > 0 {
        let items = plural::format_count(without_code, "item");
        notes.push(format!(
            "Of {items} `moderated` is empty: the status is none of approved, pending and rejected."
        ));
    }
    if partial_responses > 0 {
        let responses = plural::format_wide_count(partial_responses, "response");
        let were = if partial_responses == 1 { "was" } else { "were" };
        notes.push(format!(
            "{responses} {were} left out: their counts are known only in part, so the cells are empty."
        ));
    }
    if other_origins > 0 {
        let items = plural::format_count(other_origins, "item");
        let were = plural::was_or_were(other_origins);
        notes.push(format!(
            "The table has no column for origins: {items} {were} not written by participants."
        ));
    }
    notes.extend(reader.opinions.notes(&reader.items, &card));
    Ok((vec![file.finish()?], notes))
}
