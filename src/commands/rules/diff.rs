//! `tidegate rules diff`: what the rules of two folders mean differently, and on which items.
//!
//! How they are written is no difference; what they use is (`used`). It reads no store: nobody has strikes.

mod used;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::bail;
use clap::Args;
use serde_json::{Map, Value as Json};
use tidegate_catalog::Compiled;
use tidegate_rules::{
    Limits,
    form::{self, Known},
};
use tidegate_schemas::{
    documents::{Percent, Rule, parse},
    ids::Millis,
    names::OneLine,
};

use self::used::{Both, Side};
use super::{
    Folder, evaluate,
    items::{self, Refused},
};
use crate::{
    commands::documents,
    output::{DIFFERENT, complain, say},
    settings,
};

#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    folder: Folder,
    /// The folder that it is compared with: what is there now
    #[arg(long, value_name = "DIR")]
    against: PathBuf,
    /// Also say which matches of these items come and go; one item a line, `-` reads standard input
    #[arg(long, value_name = "FILE")]
    items: Option<PathBuf>,
}

impl Diff {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let limits = settings::load(self.folder.settings.as_deref(), Vec::new())?.settings.catalog.rules;
        let old = Folder { folder: self.against.clone(), settings: self.folder.settings.clone() };
        // What does not compile means nothing.
        let (Some(old), Some(new)) = (old.compile()?, self.folder.compile()?) else {
            return Ok(ExitCode::FAILURE);
        };
        let (Some(before), Some(after)) = (side(&self.against)?, side(&self.folder.folder)?) else {
            return Ok(ExitCode::FAILURE);
        };
        let mut different = false;
        let keys: BTreeSet<&String> = before.rules.keys().chain(after.rules.keys()).collect();
        for key in keys {
            let (line, means_more) = match (before.rules.get(key), after.rules.get(key)) {
                (None, _) => (Some(format!("+ {key}")), true),
                (_, None) => (Some(format!("- {key}")), true),
                (Some(one), Some(other)) => {
                    let (meaning, told) = changes((&before, one), (&after, other), &limits);
                    let sign = if meaning.is_empty() { '=' } else { '~' };
                    let all = [&meaning[..], &told].concat().join(", ");
                    ((!all.is_empty()).then(|| format!("{sign} {key}: {all}")), !meaning.is_empty())
                }
            };
            different |= means_more;
            line.into_iter().for_each(say);
        }
        if let Some(file) = &self.items {
            different |= matches(&old, &new, file)?;
        }
        Ok(if different { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }
}

/// The documents in a folder; faults are printed.
fn side(folder: &Path) -> anyhow::Result<Option<Side>> {
    let files: Vec<_> = documents::read(folder)?.into_iter().map(|file| (file.name, file.text)).collect();
    match parse(&files) {
        Ok(documents) => Ok(Some(Side::new(documents.into_iter().map(|(_, document)| document)))),
        Err(faults) => {
            faults.iter().for_each(complain);
            Ok(None)
        }
    }
}

/// What of a rule has another meaning, and what is only called or tested otherwise.
fn changes(before: (&Side, &Rule), after: (&Side, &Rule), limits: &Limits) -> (Vec<String>, Vec<String>) {
    let (one, other) = (before.1, after.1);
    let (old, new) = (fields(one), fields(other));
    let tells = |key: &str| matches!(key, "name" | "tests");
    let mut meaning = different(&old, &new, |key, old, new| match key {
        _ if tells(key) => true,
        "when" => old == new || same_condition(one, other, limits, &Both::of(before, after)),
        // In whatever order.
        "on" | "item_types" | "policies" | "actions" => set(old) == set(new),
        _ => old == new,
    });
    meaning.extend(used::changes(before, after, limits));
    (meaning, different(&old, &new, |key, old, new| !tells(key) || old == new))
}

/// The members that differ, with both values where they are short.
fn different(
    old: &Map<String, Json>,
    new: &Map<String, Json>,
    same: impl Fn(&str, Option<&Json>, Option<&Json>) -> bool,
) -> Vec<String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = keys.into_iter().filter(|key| !same(key, old.get(*key), new.get(*key)));
    let told = differing.map(|key| match key.as_str() {
        "when" | "where" => "condition".to_owned(),
        "tests" | "entries" => key.clone(),
        _ => format!("{key} {} → {}", shown(key, old.get(key)), shown(key, new.get(key))),
    });
    told.collect()
}

/// A member's value, one of a list like one alone.
fn shown(key: &str, value: Option<&Json>) -> String {
    match value {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(list)) => match list.as_slice() {
            [one] => shown(key, Some(one)),
            several => {
                let each: Vec<_> = several.iter().map(|one| shown(key, Some(one))).collect();
                format!("[{}]", each.join(", "))
            }
        },
        Some(other) => other.to_string(),
        None if key == "item_types" => "all".to_owned(),
        None => "nothing".to_owned(),
    }
}

fn fields(rule: &Rule) -> Map<String, Json> {
    match serde_json::to_value(rule) {
        Ok(Json::Object(mut fields)) => {
            // What is meant by leaving them out is worth saying.
            for (member, meant) in [("status", "draft"), ("on", "item"), ("on_error", "not_matched")] {
                fields.entry(member).or_insert_with(|| Json::from(meant));
            }
            // What all are in, or none, is as if it were not there.
            if rule.rollout.as_ref().is_some_and(|rollout| rollout.percent == Percent::ALL) {
                fields.remove("rollout");
            }
            if rule.review_sample == Some(Percent::NONE) {
                fields.remove("review_sample");
            }
            if let Some(Json::Object(rollout)) = fields.get_mut("rollout")
                && rollout.get("salt").is_some_and(|salt| salt == rule.key.as_str())
            {
                rollout.remove("salt");
            }
            fields
        }
        _ => Map::new(),
    }
}

/// One value is a set, too.
fn set(list: Option<&Json>) -> BTreeSet<String> {
    let values = match list {
        Some(Json::Array(values)) => values.as_slice(),
        other => other.map(std::slice::from_ref).unwrap_or_default(),
    };
    values.iter().map(ToString::to_string).collect()
}

fn same_condition(before: &Rule, after: &Rule, limits: &Limits, known: &dyn Known) -> bool {
    let json = |rule: &Rule| serde_json::to_value(rule).unwrap_or_default();
    same_form(&json(before), &json(after), limits, known)
}

fn same_form(before: &Json, after: &Json, limits: &Limits, known: &dyn Known) -> bool {
    let read = |rule: &Json| form::parse(rule, limits).ok();
    match (read(before), read(after)) {
        (Some(before), Some(after)) => form::same(&before.when, &after.when, known),
        _ => false,
    }
}

/// Prints for each rule how many matches come and go, and the first items of each kind.
fn matches(before: &Arc<Compiled>, after: &Arc<Compiled>, file: &Path) -> anyhow::Result<bool> {
    const SHOWN: usize = 5;
    let (now, mut read, mut refused) = (Millis::now(), 0, Refused::default());
    let mut changed: BTreeMap<(String, bool), Vec<String>> = BTreeMap::new();
    for line in items::lines(file)? {
        let (number, line) = line?;
        let matched = |config: &Arc<Compiled>| {
            let line = items::read(config, &line, now);
            let name = line
                .key
                .map_or_else(|| format!("line {number}"), |key| format!("{} {}", key.type_id, key.id));
            let matched = line.item.map(|prepared| evaluate(&prepared).matched);
            matched
                .map(|matched| (name, matched.iter().map(|it| it.rule.to_string()).collect::<BTreeSet<_>>()))
        };
        let ((name, old), new) = match (matched(before), matched(after)) {
            (Ok(old), Ok((_, new))) => (old, new),
            (Err(fault), _) | (_, Err(fault)) => {
                refused.add(number, &fault);
                continue;
            }
        };
        read += 1;
        for (rule, comes) in old.symmetric_difference(&new).map(|rule| (rule, new.contains(rule))) {
            changed.entry((rule.clone(), comes)).or_default().push(name.clone());
        }
    }
    if read == 0 {
        match refused.0 {
            0 => bail!("there are no items in {}", file.display()),
            refused => bail!("none of {refused} items fits its type in both folders"),
        }
    }
    for ((rule, comes), items) in &changed {
        let first = items[..items.len().min(SHOWN)].join(", ");
        let (sign, more) = (if *comes { '+' } else { '-' }, if items.len() > SHOWN { ", ..." } else { "" });
        say(OneLine(format_args!("{sign} {} matches of {rule}: {first}{more}", items.len())));
    }
    say(format!("{read} items compared; {} do not fit their type in both folders", refused.0));
    Ok(!changed.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TYPE: &str = "item_type: a\nname: A\nkind: CONTENT\nfields: [{name: n, type: NUMBER}]\n---\n";

    fn between(before: &str, after: &str) -> (Vec<String>, Vec<String>) {
        let [before, after] = [before, after].map(|text| {
            let documents = parse(&[("r.yaml", format!("{TYPE}{text}"))]).unwrap();
            Side::new(documents.into_iter().map(|(_, document)| document))
        });
        changes((&before, &before.rules["r"]), (&after, &after.rules["r"]), &Limits::default())
    }

    #[test]
    fn a_rule_that_is_only_written_differently_has_no_changes() {
        let before = "rule: r\nitem_types: [a, b]\nwhen: {text: {in: [text], any_of: [x y, z w]}}\n";
        let same = "rule: r\nstatus: draft\nitem_types: [b, a]\nwhen: {all: [{text: {in: [text], any_of: [z w, x y]}}]}\n";
        assert!(between(before, same).0.is_empty());
        let before = "rule: r\nrollout: {percent: 20}\nwhen: {field: {path: n, gt: 1, lt: 9}}\n";
        let same = "rule: r\nrollout: {percent: 20.0, salt: r}\nwhen: {expr: item.data.n < 9.0 && item.data.n > 1}\n";
        assert!(between(before, same).0.is_empty());
        let other = "rule: r\nrollout: {percent: 20, salt: s}\nwhen: {field: {path: n, gt: 1}}\n";
        assert_eq!(between(before, other).0.len(), 2);
        let before = "rule: r\nitem_types: [a, b]\nwhen: {text: {in: [text], any_of: [x y, z w]}}\n";
        let other = "rule: r\nstatus: live\nitem_types: [a]\nwhen: {text: {in: [text], any_of: [x y]}}\n";
        let changes = between(before, other).0;
        assert_eq!(changes, ["item_types [a, b] → a", "status draft → live", "condition"]);
    }
}
