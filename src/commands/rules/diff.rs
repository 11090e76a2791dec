//! `tidegate rules diff`: compares the documents of two folders, and the matches of their rules on given items.
//!
//! Documents are compared member by member after parsing, so comments, quotes and order do not count. No store is
//! read, so users have no strikes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::bail;
use clap::Args;
use serde_json::Value as Json;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::{Document, DocumentKind, parse},
    ids::Millis,
    names::OneLine,
};

use super::{
    Folder, evaluate,
    items::{self, RefusedLines},
};
use crate::{
    commands::documents,
    output::{DIFFERENT, print_error, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    folder: Folder,
    /// Folder with the old documents
    #[arg(long, value_name = "DIR")]
    against: PathBuf,
    /// Also list matches that appear or disappear on these items; one item per line, `-` reads standard input
    #[arg(long, value_name = "FILE")]
    items: Option<PathBuf>,
}

/// The documents of a folder by kind and key.
type Documents = BTreeMap<(DocumentKind, String), Json>;

impl Diff {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let old = Folder { folder: self.against.clone(), settings: self.folder.settings.clone() };
        // A folder that does not compile is refused: its differences would look as if they could be applied.
        let (Some(old), Some(new)) = (old.compile()?, self.folder.compile()?) else {
            return Ok(ExitCode::FAILURE);
        };
        let (Some(before), Some(after)) = (read(&self.against)?, read(&self.folder.folder)?) else {
            return Ok(ExitCode::FAILURE);
        };
        let lines = describe_differences(&before, &after);
        lines.iter().for_each(print_line);
        let mut is_different = !lines.is_empty();
        if let Some(file) = &self.items {
            is_different |= print_match_changes(&old, &new, file)?;
        }
        Ok(if is_different { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }
}

/// Reads the documents of a folder. Prints their faults and returns `None` if there are any.
fn read(folder: &Path) -> anyhow::Result<Option<Documents>> {
    let files: Vec<_> = documents::read(folder)?.into_iter().map(|file| (file.name, file.text)).collect();
    match parse(&files) {
        Ok(documents) => {
            let mut by_key = Documents::new();
            for (_, document) in documents {
                let key = (document.kind(), document.key().to_owned());
                by_key.insert(key, members(&document)?);
            }
            Ok(Some(by_key))
        }
        Err(faults) => {
            faults.iter().for_each(print_error);
            Ok(None)
        }
    }
}

/// Returns the members of a document, with the defaults of `status` and `on_error`, so that a change from a default shows both values.
fn members(document: &Document) -> serde_json::Result<Json> {
    let mut members = serde_json::to_value(document)?;
    if let (Document::Rule(_), Json::Object(members)) = (document, &mut members) {
        for (member, default) in [("status", "draft"), ("on_error", "not_matched")] {
            members.entry(member).or_insert_with(|| Json::from(default));
        }
    }
    Ok(members)
}

/// Returns one line for each document that differs or exists on one side only.
fn describe_differences(before: &Documents, after: &Documents) -> Vec<String> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let lines = names.into_iter().filter_map(|name| {
        let title = format!("{} {}", name.0.name(), name.1);
        match (before.get(name), after.get(name)) {
            (None, _) => Some(format!("+ {title}")),
            (_, None) => Some(format!("- {title}")),
            (Some(old), Some(new)) => {
                let mut changes = Vec::new();
                compare("", old, new, &mut changes);
                (!changes.is_empty()).then(|| format!("~ {title}: {}", changes.join(", ")))
            }
        }
    });
    lines.collect()
}

/// Adds the differing members, with both values.
fn compare(path: &str, old: &Json, new: &Json, changes: &mut Vec<String>) {
    match (old, new) {
        _ if old == new => {}
        (Json::Object(old), Json::Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let dot = if path.is_empty() { "" } else { "." };
                let inner =
                    |object: &serde_json::Map<String, Json>| object.get(key).cloned().unwrap_or_default();
                compare(&format!("{path}{dot}{key}"), &inner(old), &inner(new), changes);
            }
        }
        // Lists in documents are short. If the length changed, their entries cannot be matched, and the whole lists are shown.
        (Json::Array(old), Json::Array(new)) if old.len() == new.len() => {
            for (nth, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{path}[{nth}]"), old, new, changes);
            }
        }
        _ => changes.push(format!("{path} {} → {}", display_value(old), display_value(new))),
    }
}

/// Returns a value for one line, cut off if it is long.
fn display_value(value: &Json) -> String {
    const MAX_CHARACTERS: usize = 60;
    let text = match value {
        Json::Null => return "nothing".to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Prints the number of new and lost matches of each rule, with the first items of each kind.
fn print_match_changes(before: &Arc<Compiled>, after: &Arc<Compiled>, file: &Path) -> anyhow::Result<bool> {
    const MAX_LISTED_ITEMS: usize = 5;
    // One time for both folders: the passing of time must not look like a difference of the rules.
    let (now, mut compared_items, mut refused_lines) = (Millis::now(), 0, RefusedLines::default());
    let mut changes: BTreeMap<(String, bool), Vec<String>> = BTreeMap::new();
    for line in items::lines(file)? {
        let (number, line) = line?;
        let match_rules = |config: &Arc<Compiled>| {
            let line = items::parse_line(config, &line, now);
            let name = line
                .key
                .map_or_else(|| format!("line {number}"), |key| format!("{} {}", key.type_id, key.id));
            let result = line.item.map(|prepared| evaluate(&prepared).matched);
            result.map(|rules| {
                (name, rules.iter().map(|rule_match| rule_match.rule.to_string()).collect::<BTreeSet<_>>())
            })
        };
        let ((name, old), new) = match (match_rules(before), match_rules(after)) {
            (Ok(old), Ok((_, new))) => (old, new),
            // Matches can only be compared if the item fits its type in both folders.
            (Err(fault), _) | (_, Err(fault)) => {
                refused_lines.add(number, &fault);
                continue;
            }
        };
        compared_items += 1;
        for (rule, is_new) in old.symmetric_difference(&new).map(|rule| (rule, new.contains(rule))) {
            changes.entry((rule.clone(), is_new)).or_default().push(name.clone());
        }
    }
    if compared_items == 0 {
        match refused_lines.0 {
            0 => bail!("there are no items in {}", file.display()),
            refused => bail!("none of {refused} items fits its type in both folders"),
        }
    }
    for ((rule, is_new), items) in &changes {
        let first_items = items[..items.len().min(MAX_LISTED_ITEMS)].join(", ");
        let (sign, ellipsis) =
            (if *is_new { '+' } else { '-' }, if items.len() > MAX_LISTED_ITEMS { ", ..." } else { "" });
        print_line(OneLine(format_args!(
            "{sign} {} matches of {rule}: {first_items}{ellipsis}",
            items.len()
        )));
    }
    print_line(format!(
        "{compared_items} items compared; {} do not fit their type in both folders",
        refused_lines.0
    ));
    Ok(!changes.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn documents(text: &str) -> Documents {
        let documents = parse(&[("r.yaml", text.to_owned())]).unwrap();
        let named = documents
            .into_iter()
            .map(|(_, document)| ((document.kind(), document.key().to_owned()), members(&document).unwrap()));
        named.collect()
    }

    #[test]
    fn changed_members_are_named_with_both_values() {
        let before = "rule: r\nitem_types: [a]\nwhen: {all: [{field: {path: n, gt: 1}}, {strikes: {gte: 3}}]}\n\
                      ---\nwindow: w\nover: 1h\n";
        let same = "window: w\nover: 1h\n---\nrule: r\nwhen:\n  all:\n    - field: {gt: 1, path: n}\n    - strikes: {gte: 3}\n\
                    item_types: ['a']\n";
        assert!(describe_differences(&documents(before), &documents(same)).is_empty());
        let after = "rule: r\nstatus: live\nitem_types: [a, b]\n\
                     when: {all: [{field: {path: n, gt: 2}}, {strikes: {gte: 3}}]}\n---\nrule: s\nwhen: {strikes: {gte: 1}}\n";
        assert_eq!(
            describe_differences(&documents(before), &documents(after)),
            [
                "~ rule r: item_types [\"a\"] → [\"a\",\"b\"], status draft → live, when.all[0].field.gt 1 → 2",
                "+ rule s",
                "- window w",
            ]
        );
    }
}
