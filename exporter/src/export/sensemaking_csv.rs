//! A bundle of opinions as one table of counts.
//!
//! Its header is never quoted: the tools that read it split it at bare commas.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    Cells, Growing, Whole, cell, csv_row,
    read::{Item, MOST_COUNTED, Reader, Response, bundle},
};
use crate::{
    fault::{Fault, Wrong},
    form::RESPONSE_COUNTS,
    input::name_of,
    meter::Meter,
    words,
};

pub(crate) const FILE: &str = "comments.csv";
const ANSWERS: [&str; 3] = ["agree", "disagree", "pass"];
/// More types of outcomes are not told apart.
const MOST_TYPES: usize = 20;

#[derive(Default)]
struct Counted {
    items: Vec<Item>,
    counts: HashMap<String, [u128; 3]>,
    /// Responses so far.
    rows: u64,
    /// Of items, which of the three are hidden: they are no zeros.
    hidden: HashMap<String, [bool; 3]>,
    /// Of items, which of the three their counts do not name: if nobody has given such an answer, it may not have been asked.
    unsaid: HashMap<String, [bool; 3]>,
    /// What has no place in the table, by type.
    left_out: BTreeMap<String, u64>,
    name: String,
}

impl Reader for Counted {
    const ITEMS: bool = true;
    const RESPONSES: bool = true;
    const OUTCOMES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), Fault> {
        self.items.push(item);
        Ok(())
    }

    fn response(&mut self, response: Response) -> Result<(), Fault> {
        let Some(at) = column(&response.response) else {
            let detail = "it holds comparisons, which are no votes on statements";
            return Err(Fault::content(&self.name, None, Wrong::Format, detail));
        };
        self.rows += 1;
        let (row, answer) = (self.rows - 1, ANSWERS[at]);
        let sum = &mut self.counts.entry(response.subject_ref).or_default()[at];
        *sum = sum.checked_add(response.count).filter(|sum| *sum <= MOST_COUNTED).ok_or_else(|| {
            let detail = format!("/responses/{row}: with it the count of {answer} has more than 38 digits");
            Fault::content(&self.name, None, Wrong::Value, detail)
        })?;
        Ok(())
    }

    fn outcome(&mut self, outcome: Value) -> Result<(), Fault> {
        let kind = outcome["type"].as_str().unwrap_or_default();
        if kind != RESPONSE_COUNTS {
            // Others may write anything there.
            let is_plain = kind.len() <= 40
                && !kind.is_empty()
                && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            let kind = if is_plain && self.left_out.len() < MOST_TYPES { kind } else { "other types" };
            *self.left_out.entry(kind.to_owned()).or_default() += 1;
        } else if let (Some(item), Some(counts)) =
            (outcome["itemRef"].as_str(), outcome["counts"].as_object())
        {
            let unsaid = ANSWERS.map(|answer| !counts.contains_key(answer));
            self.unsaid.insert(item.to_owned(), unsaid);
        }
        let (Some(item), Some(suppressed)) = (outcome["itemRef"].as_str(), outcome["suppressed"].as_array())
        else {
            return Ok(());
        };
        for at in suppressed.iter().filter_map(Value::as_str).filter_map(column) {
            self.hidden.entry(item.to_owned()).or_default()[at] = true;
        }
        Ok(())
    }
}

/// The place of an answer among the columns.
fn column(answer: &str) -> Option<usize> {
    ANSWERS.iter().position(|known| *known == answer)
}

/// As their decisions are written; of others there is no word.
fn moderated(status: &str) -> Option<&'static str> {
    match status {
        "approved" | "active" => Some("1"),
        "pending" => Some("0"),
        "rejected" => Some("-1"),
        _ => None,
    }
}

/// Also gives what the table has no place for, in words.
pub(crate) fn write(
    from: &Path,
    path: PathBuf,
    cells: Cells,
    meter: &Meter,
) -> Result<(Vec<Whole>, Vec<String>), Fault> {
    let mut counted = Counted { name: name_of(from), ..Counted::default() };
    bundle(from, &mut counted, meter)?;
    let mut file = Growing::create(path)?;
    csv_row(&mut file, &["comment-id", "comment_text", "agrees", "disagrees", "passes", "moderated"])?;
    let (mut undecided, mut in_part) = (0_u64, 0_u128);
    for item in &counted.items {
        let counts = counted.counts.get(&item.id).copied().unwrap_or_default();
        let hidden = counted.hidden.get(&item.id).copied().unwrap_or_default();
        let unsaid = counted.unsaid.get(&item.id).copied().unwrap_or_default();
        let shown = |at: usize| {
            let is_unknown = hidden[at] || unsaid[at] && counts[at] == 0;
            if is_unknown { String::new() } else { counts[at].to_string() }
        };
        let [agrees, disagrees, passes] = [0, 1, 2].map(shown);
        in_part += (0..3).filter(|at| hidden[*at]).map(|at| counts[at]).sum::<u128>();
        let moderated = moderated(&item.status);
        undecided += u64::from(moderated.is_none());
        let text = cell(&item.text, cells);
        let row = [item.key(), &text, &agrees, &disagrees, &passes, moderated.unwrap_or_default()];
        csv_row(&mut file, &row)?;
    }
    let mut notes = Vec::new();
    if undecided > 0 {
        let items = words::counted(undecided, "item");
        notes.push(format!(
            "Of {items} `moderated` is empty: the status is none of approved, pending and rejected."
        ));
    }
    if in_part > 0 {
        let responses = words::counted_wide(in_part, "response");
        let were = if in_part == 1 { "was" } else { "were" };
        notes.push(format!(
            "{responses} {were} left out: of their counts only a part is known, and the cells are empty."
        ));
    }
    let left_out: u64 = counted.left_out.values().sum();
    if left_out > 0 {
        let (outcomes, were) = (words::counted(left_out, "outcome"), words::were(left_out));
        let of = counted.left_out.iter().map(|(kind, count)| format!("{count} of {kind}"));
        let of = of.collect::<Vec<_>>().join(", ");
        notes.push(format!("The table has no place for {outcomes}, which {were} left out: {of}."));
    }
    Ok((vec![file.finish()?], notes))
}
