//! A bundle of opinions as one table of counts.
//!
//! Its header is never quoted: the tools that read it split it at bare commas.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    Cells, Growing, Whole, cell, csv_row,
    read::{Item, Reader, Response, bundle},
};
use crate::{
    fault::{Fault, Wrong},
    input::name_of,
};

pub(crate) const FILE: &str = "comments.csv";

#[derive(Default)]
struct Counted {
    items: Vec<Item>,
    counts: HashMap<String, [u64; 3]>,
    /// Of items, which of the three are hidden: they are no zeros.
    hidden: HashMap<String, [bool; 3]>,
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
        match self.counts.get_mut(&response.subject_ref) {
            Some(counts) => counts[at] += response.count,
            None => {
                let mut counts = [0; 3];
                counts[at] = response.count;
                self.counts.insert(response.subject_ref, counts);
            }
        }
        Ok(())
    }

    fn outcome(&mut self, outcome: Value) -> Result<(), Fault> {
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
    ["agree", "disagree", "pass"].iter().position(|known| *known == answer)
}

pub(crate) fn write(from: &Path, path: PathBuf, cells: Cells) -> Result<Vec<Whole>, Fault> {
    let mut counted = Counted { name: name_of(from), ..Counted::default() };
    bundle(from, &mut counted)?;
    let mut file = Growing::create(path)?;
    csv_row(&mut file, &["comment-id", "comment_text", "agrees", "disagrees", "passes"])?;
    for item in &counted.items {
        let counts = counted.counts.get(&item.id).copied().unwrap_or_default();
        let hidden = counted.hidden.get(&item.id).copied().unwrap_or_default();
        let shown = |at: usize| if hidden[at] { String::new() } else { counts[at].to_string() };
        let [agrees, disagrees, passes] = [0, 1, 2].map(shown);
        csv_row(&mut file, &[item.key(), &cell(&item.text, cells), &agrees, &disagrees, &passes])?;
    }
    Ok(vec![file.finish()?])
}
