//! Conditions `rule: <key>`: the condition of another rule takes their place before rules are read.
//!
//! Equal conditions are one predicate, so a condition that several rules use is evaluated once.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use serde_json::{Map, Value as Json};
use tidegate_schemas::documents::{DocumentKind, Missing};

use super::RuleSource;
use crate::{
    error::{ERRORS_LISTED, ERRORS_LISTED_IN_ALL, RuleError, did_you_mean, shown},
    limits::Limits,
};

/// Key of a condition that stands for another rule's.
const KEY: &str = "rule";

/// Returns the documents with the conditions of other rules in their places, in the order of `sources`; an error for a
/// rule whose references cannot be followed.
pub(super) fn expand<'s>(
    sources: &[RuleSource<'s>],
    limits: &Limits,
) -> Vec<Result<Cow<'s, Json>, Vec<RuleError>>> {
    if sources.iter().all(|source| source.document.get("when").is_none_or(|when| !refers(when))) {
        return sources.iter().map(|source| Ok(Cow::Borrowed(source.document))).collect();
    }
    let conditions: HashMap<&str, &Json> = sources
        .iter()
        .filter_map(|source| Some((source.document.get("rule")?.as_str()?, source.document.get("when")?)))
        .collect();
    let expand = |source: &RuleSource<'s>| {
        let document = source.document;
        let Some(when) = document.get("when").filter(|when| refers(when)) else {
            return Ok(Cow::Borrowed(document));
        };
        let key = document.get("rule").and_then(Json::as_str).unwrap_or_default();
        let mut expansion =
            Expansion { conditions: &conditions, limits, key, path: vec![key], nodes: 0, errors: Vec::new() };
        let expanded = expansion.condition(when, "/when", 1);
        match expanded {
            Some(when) if expansion.errors.is_empty() => {
                let mut document = document.clone();
                document["when"] = when;
                Ok(Cow::Owned(document))
            }
            _ => Err(expansion.errors),
        }
    };
    sources.iter().map(expand).collect()
}

/// True if a part of the condition stands for another rule's. Documents are read with a bounded depth.
fn refers(condition: &Json) -> bool {
    let Some(object) = condition.as_object() else { return false };
    let parts = ["all", "any"].into_iter().filter_map(|key| object.get(key)?.as_array()).flatten();
    object.contains_key(KEY) || parts.chain(object.get("not")).any(refers)
}

struct Expansion<'a> {
    conditions: &'a HashMap<&'a str, &'a Json>,
    limits: &'a Limits,
    /// The rule at hand.
    key: &'a str,
    /// Rules whose conditions are being written out, the outermost first.
    path: Vec<&'a str>,
    nodes: usize,
    errors: Vec<RuleError>,
}

impl<'a> Expansion<'a> {
    /// `None`: an error ends the expansion of the whole rule.
    fn condition(&mut self, condition: &'a Json, pointer: &str, depth: usize) -> Option<Json> {
        self.nodes += 1;
        // Each use writes the other condition out, and a chain of rules that use each other twice doubles every time.
        if self.nodes > self.limits.nodes || depth > self.limits.depth {
            let (nodes, depth) = (self.limits.nodes, self.limits.depth);
            let detail = format!(
                "with the conditions of the rules that it uses, the condition has more than {nodes} parts or is \
                 deeper than {depth}: use fewer rules"
            );
            return self.error(pointer, "limit", detail, None);
        }
        let Some(object) = condition.as_object() else { return Some(condition.clone()) };
        if let Some(used) = object.get(KEY).filter(|used| !used.is_null()) {
            let named =
                used.as_str().filter(|_| object.values().filter(|value| !value.is_null()).count() == 1);
            let Some(used) = named else {
                let detail = "expected the key of a rule, and no condition beside it".to_owned();
                return self.error(pointer, "shape", detail, None);
            };
            return self.rule(used, &format!("{pointer}/{KEY}"), depth);
        }
        let mut expanded = Map::with_capacity(object.len());
        for (key, value) in object.iter().filter(|(key, _)| *key != KEY) {
            let inner = format!("{pointer}/{key}");
            let value = match (key.as_str(), value) {
                ("all" | "any", Json::Array(parts)) => {
                    let each = parts.iter().enumerate();
                    let parts: Option<Vec<_>> = each
                        .map(|(nth, part)| self.condition(part, &format!("{inner}/{nth}"), depth + 1))
                        .collect();
                    Json::Array(parts?)
                }
                ("not", part) => self.condition(part, &inner, depth + 1)?,
                (_, leaf) => leaf.clone(),
            };
            expanded.insert(key.clone(), value);
        }
        Some(Json::Object(expanded))
    }

    fn rule(&mut self, used: &'a str, pointer: &str, depth: usize) -> Option<Json> {
        if self.path.contains(&used) {
            let way = self.path.iter().map(|key| shown(key)).collect::<Vec<_>>().join(" → ");
            let detail = format!("the rule uses itself: {way} → {}: remove one of the uses", shown(used));
            return self.error(pointer, "cycle", detail, None);
        }
        let Some(condition) = self.conditions.get(used) else {
            let known: HashSet<&str> = self.conditions.keys().copied().collect();
            let detail = format!("unknown rule {}{}", shown(used), did_you_mean(used, known));
            let missing = Missing::Document(DocumentKind::Rule, used.to_owned());
            return self.error(pointer, "unknown_rule", detail, Some(missing));
        };
        self.path.push(used);
        // A use counts as a level, so that a long chain of rules ends before the stack does.
        let expanded = self.condition(condition, pointer, depth + 1);
        self.path.pop();
        expanded
    }

    fn error(
        &mut self,
        pointer: &str,
        tag: &'static str,
        detail: String,
        missing: Option<Missing>,
    ) -> Option<Json> {
        // Of another rule's condition, the place at hand is the use of it.
        let own = match self.path.len() {
            1 => pointer,
            _ => pointer.split_once("/rule").map_or(pointer, |(own, _)| own),
        };
        if self.errors.len() < ERRORS_LISTED.min(ERRORS_LISTED_IN_ALL) {
            let error = RuleError::new("rule", self.key, own, tag, detail);
            self.errors.push(match missing {
                Some(missing) => error.of(missing),
                None => error,
            });
        }
        None
    }
}
