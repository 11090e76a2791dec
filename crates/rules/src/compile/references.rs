//! Conditions `rule: <key>`: finds the conditions of the rules that others use, and checks that their uses come to an
//! end.
//!
//! Equal conditions are one predicate, so a condition that several rules use is evaluated once.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use tidegate_schemas::{
    documents::{DocumentKind, Missing},
    ids::RuleId,
};

use super::RuleSource;
use crate::{
    error::{RuleError, did_you_mean, shown},
    limits::Limits,
    syntax::{self, Condition},
};

/// Rules that others use.
pub(super) struct References<'s> {
    sources: &'s [RuleSource<'s>],
    /// By key; `None` if the document has errors of its own.
    used: HashMap<&'s str, Option<UsedRule>>,
}

struct UsedRule {
    when: Condition,
    /// Parts of the condition.
    nodes: usize,
}

impl<'s> References<'s> {
    /// Reads the documents that others use.
    pub(super) fn read(sources: &'s [RuleSource<'s>], limits: &Limits) -> Self {
        let mut named = HashSet::new();
        for when in sources.iter().filter_map(|source| source.document.get("when")) {
            names(when, &mut named);
        }
        let read = |source: &RuleSource<'s>| {
            let key = key(source).filter(|key| named.contains(key))?;
            let rule = syntax::parse(source.document, limits).ok();
            Some((key, rule.map(|rule| UsedRule { when: rule.when, nodes: rule.nodes })))
        };
        Self { sources, used: sources.iter().filter_map(read).collect() }
    }

    /// The condition of a rule that others use; `None` if it is missing or has errors.
    pub(super) fn condition(&self, key: &RuleId) -> Option<&Condition> {
        self.used.get(key.as_str())?.as_ref().map(|used| &used.when)
    }

    /// Returns an error for each use in a rule's condition that has no end, or leads to a rule that does not exist.
    pub(super) fn check(&self, rule: &syntax::Rule, limits: &Limits) -> Vec<RuleError> {
        let mut uses = Vec::new();
        gather(&rule.when, "/when", 1, &mut uses);
        let (key, mut errors) = (rule.key.as_str(), Vec::new());
        let mut walk = Walk { references: self, limits, path: vec![key], nodes: rule.nodes };
        for Use { pointer, rule, depth } in uses {
            let Err(Fault { tag, detail, missing }) = walk.rule(rule, depth) else { continue };
            walk.path.truncate(1);
            let error = RuleError::new("rule", key, &pointer, tag, detail);
            errors.push(match missing {
                Some(missing) => error.of(missing),
                None => error,
            });
            // Said once: every further use would say the same.
            if tag == "limit" {
                break;
            }
        }
        errors
    }
}

fn key<'s>(source: &RuleSource<'s>) -> Option<&'s str> {
    source.document.get("rule")?.as_str()
}

/// Gathers the keys of the rules that a condition uses. Documents are read with a bounded depth.
fn names<'s>(condition: &'s Json, named: &mut HashSet<&'s str>) {
    let Some(object) = condition.as_object() else { return };
    named.extend(object.get("rule").and_then(Json::as_str));
    let parts = ["all", "any"].into_iter().filter_map(|key| object.get(key)?.as_array()).flatten();
    parts.chain(object.get("not")).for_each(|part| names(part, named));
}

/// A place in a rule's own document that stands for another rule's condition.
struct Use<'c> {
    pointer: String,
    rule: &'c str,
    depth: usize,
}

fn gather<'c>(condition: &'c Condition, pointer: &str, depth: usize, uses: &mut Vec<Use<'c>>) {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => {
            let key = if matches!(condition, Condition::All(_)) { "all" } else { "any" };
            for (nth, part) in parts.iter().enumerate() {
                gather(part, &format!("{pointer}/{key}/{nth}"), depth + 1, uses);
            }
        }
        Condition::Not(inner) => gather(inner, &format!("{pointer}/not"), depth + 1, uses),
        Condition::Rule(rule) => {
            uses.push(Use { pointer: format!("{pointer}/rule"), rule: rule.as_str(), depth });
        }
        Condition::Leaf(_) | Condition::Expr(_) => {}
    }
}

struct Fault {
    tag: &'static str,
    detail: String,
    missing: Option<Missing>,
}

/// Walk through the conditions that a rule uses.
struct Walk<'w> {
    references: &'w References<'w>,
    limits: &'w Limits,
    /// Rules whose conditions are walked through, the outermost first.
    path: Vec<&'w str>,
    /// Parts of all conditions so far.
    nodes: usize,
}

impl<'w> Walk<'w> {
    fn condition(&mut self, condition: &'w Condition, depth: usize) -> Result<(), Fault> {
        if depth > self.limits.depth {
            return Err(self.too_large());
        }
        match condition {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().try_for_each(|part| self.condition(part, depth + 1))
            }
            Condition::Not(inner) => self.condition(inner, depth + 1),
            Condition::Rule(rule) => self.rule(rule.as_str(), depth),
            Condition::Leaf(_) | Condition::Expr(_) => Ok(()),
        }
    }

    fn rule(&mut self, key: &'w str, depth: usize) -> Result<(), Fault> {
        if self.path.contains(&key) {
            let way = self.path.iter().map(|key| shown(key)).collect::<Vec<_>>().join(" → ");
            let key = shown(key);
            let detail = format!("rule {key} uses itself: {way} → {key}: remove one of the uses");
            return Err(Fault { tag: "cycle", detail, missing: None });
        }
        let used = match self.references.used.get(key) {
            Some(Some(used)) => used,
            // An error of the other document.
            Some(None) => return Ok(()),
            None if self.path.len() > 1 => return Ok(()),
            None => return Err(self.unknown(key)),
        };
        // Each use is compiled in its place, and a chain of rules that use each other twice doubles every time.
        self.nodes += used.nodes;
        if self.nodes > self.limits.nodes {
            return Err(self.too_large());
        }
        self.path.push(key);
        // A use counts as a level, so that a long chain of rules ends before the stack does.
        self.condition(&used.when, depth + 1)?;
        self.path.pop();
        Ok(())
    }

    fn unknown(&self, key: &str) -> Fault {
        let own = self.path[0];
        let known = self.references.sources.iter().filter_map(self::key).filter(|key| *key != own);
        let detail = format!("unknown rule {}{}", shown(key), did_you_mean(key, known));
        let missing = Some(Missing::Document(DocumentKind::Rule, key.to_owned()));
        Fault { tag: "unknown_rule", detail, missing }
    }

    fn too_large(&self) -> Fault {
        let (nodes, depth) = (self.limits.nodes, self.limits.depth);
        let detail = format!(
            "with the conditions of the rules that it uses, the condition has more than {nodes} parts or is deeper \
             than {depth}: use fewer rules"
        );
        Fault { tag: "limit", detail, missing: None }
    }
}
