//! A bundle of opinions as one table of counts.
//!
//! Its header is never quoted: the tools that read it split it at bare commas.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use super::{
    Cells, Growing, cell, csv_row,
    read::{Item, Reader, Response, bundle},
};
use crate::{
    fault::{Fault, Wrong},
    input::name_of,
};

#[derive(Default)]
struct Counted {
    items: Vec<Item>,
    counts: HashMap<String, [u64; 3]>,
    name: String,
}

impl Reader for Counted {
    const ITEMS: bool = true;
    const RESPONSES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), Fault> {
        self.items.push(item);
        Ok(())
    }

    fn response(&mut self, response: Response) -> Result<(), Fault> {
        let at = match response.response.as_str() {
            "agree" => 0,
            "disagree" => 1,
            "pass" => 2,
            _ => {
                let detail = "it holds comparisons, which are no votes on statements";
                return Err(Fault::content(&self.name, None, Wrong::Format, detail));
            }
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
}

pub(crate) fn write(from: &Path, path: PathBuf, cells: Cells) -> Result<Vec<PathBuf>, Fault> {
    let mut counted = Counted { name: name_of(from), ..Counted::default() };
    bundle(from, &mut counted)?;
    let mut file = Growing::create(path)?;
    csv_row(&mut file, &["comment-id", "comment_text", "agrees", "disagrees", "passes"])?;
    for item in &counted.items {
        let counts = counted.counts.get(&item.id).copied().unwrap_or_default();
        let [agrees, disagrees, passes] = counts.map(|count| count.to_string());
        let key = item.id.strip_prefix("statement:").unwrap_or(&item.id);
        csv_row(&mut file, &[key, &cell(&item.text, cells), &agrees, &disagrees, &passes])?;
    }
    Ok(vec![file.finish()?])
}
