//! Conditions `rule: <key>`: finds the conditions of the rules that others use, and checks that their uses are finite. Equal
//! conditions form one predicate, so a condition that several rules use is evaluated once.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use tidegate_schemas::{
    documents::{DocumentKind, MissingReference},
    ids::RuleId,
};

use super::RuleSource;
use crate::{
    error::{RuleError, did_you_mean, quote},
    limits::Limits,
    syntax::{self, Condition},
};

/// Rules that others use.
pub(super) struct References<'s> {
    sources: &'s [RuleSource<'s>],
    /// Used rules by key. `None` if the document has errors of its own.
    used_rules: HashMap<&'s str, Option<UsedRule>>,
}

struct UsedRule {
    when: Condition,
    /// Number of parts of the condition.
    nodes: usize,
}

impl<'s> References<'s> {
    /// Reads the documents of the rules that others use.
    pub(super) fn read(sources: &'s [RuleSource<'s>], limits: &Limits) -> Self {
        let mut used_keys = HashSet::new();
        for when in sources.iter().filter_map(|source| source.document.get("when")) {
            collect_used_keys(when, &mut used_keys);
        }
        let read = |source: &RuleSource<'s>| {
            let key = rule_key(source).filter(|key| used_keys.contains(key))?;
            let rule = syntax::parse(source.document, limits).ok();
            Some((key, rule.map(|rule| UsedRule { when: rule.when, nodes: rule.nodes })))
        };
        Self { sources, used_rules: sources.iter().filter_map(read).collect() }
    }

    /// Condition of a rule that others use. `None` if it is missing or has errors.
    pub(super) fn condition(&self, key: &RuleId) -> Option<&Condition> {
        self.used_rules.get(key.as_str())?.as_ref().map(|used| &used.when)
    }

    /// Returns an error for each use that leads back to its own rule, or to an unknown one.
    pub(super) fn check_uses(&self, rule: &syntax::Rule, limits: &Limits) -> Vec<RuleError> {
        let mut uses = Vec::new();
        collect_uses(&rule.when, "/when", 1, &mut uses);
        let (key, mut errors) = (rule.key.as_str(), Vec::new());
        let mut walk = Walk { references: self, limits, path: vec![key], nodes: rule.nodes };
        for Use { pointer, rule, depth } in uses {
            let Err(Fault { tag, detail, missing }) = walk.visit_rule(rule, depth) else { continue };
            // A failed walk leaves its path behind, and the next use starts at the rule again.
            walk.path.truncate(1);
            let error = RuleError::new("rule", key, &pointer, tag, detail);
            errors.push(match missing {
                Some(missing) => error.with_missing(missing),
                None => error,
            });
            // Every further use would report the same limit.
            if tag == "limit" {
                break;
            }
        }
        errors
    }
}

fn rule_key<'s>(source: &RuleSource<'s>) -> Option<&'s str> {
    source.document.get("rule")?.as_str()
}

/// Collects the keys of the rules that a condition uses. The depth of documents is bounded, and so is the recursion.
fn collect_used_keys<'s>(condition: &'s Json, keys: &mut HashSet<&'s str>) {
    let Some(object) = condition.as_object() else { return };
    keys.extend(object.get("rule").and_then(Json::as_str));
    let parts = ["all", "any"].into_iter().filter_map(|key| object.get(key)?.as_array()).flatten();
    parts.chain(object.get("not")).for_each(|part| collect_used_keys(part, keys));
}

/// Place in a rule's own document that refers to the condition of another rule.
struct Use<'c> {
    pointer: String,
    rule: &'c str,
    depth: usize,
}

fn collect_uses<'c>(condition: &'c Condition, pointer: &str, depth: usize, uses: &mut Vec<Use<'c>>) {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => {
            let key = if matches!(condition, Condition::All(_)) { "all" } else { "any" };
            for (nth, part) in parts.iter().enumerate() {
                collect_uses(part, &format!("{pointer}/{key}/{nth}"), depth + 1, uses);
            }
        }
        Condition::Not(inner) => collect_uses(inner, &format!("{pointer}/not"), depth + 1, uses),
        Condition::Rule(rule) => {
            uses.push(Use { pointer: format!("{pointer}/rule"), rule: rule.as_str(), depth });
        }
        Condition::Leaf(_) | Condition::Expr(_) => {}
    }
}

struct Fault {
    tag: &'static str,
    detail: String,
    missing: Option<MissingReference>,
}

/// Walk through the conditions that a rule uses.
struct Walk<'w> {
    references: &'w References<'w>,
    limits: &'w Limits,
    /// Rules on the way to the current condition, the outermost first.
    path: Vec<&'w str>,
    /// Number of parts of all visited conditions.
    nodes: usize,
}

impl<'w> Walk<'w> {
    fn visit_condition(&mut self, condition: &'w Condition, depth: usize) -> Result<(), Fault> {
        if depth > self.limits.depth {
            return Err(self.too_large());
        }
        match condition {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().try_for_each(|part| self.visit_condition(part, depth + 1))
            }
            Condition::Not(inner) => self.visit_condition(inner, depth + 1),
            Condition::Rule(rule) => self.visit_rule(rule.as_str(), depth),
            Condition::Leaf(_) | Condition::Expr(_) => Ok(()),
        }
    }

    fn visit_rule(&mut self, key: &'w str, depth: usize) -> Result<(), Fault> {
        if self.path.contains(&key) {
            let cycle = self.path.iter().map(|key| quote(key)).collect::<Vec<_>>().join(" → ");
            let key = quote(key);
            let detail = format!("rule {key} uses itself: {cycle} → {key}: remove one of the uses");
            return Err(Fault { tag: "cycle", detail, missing: None });
        }
        let used_rule = match self.references.used_rules.get(key) {
            Some(Some(used_rule)) => used_rule,
            // The other document has errors of its own, which are reported there.
            Some(None) => return Ok(()),
            None if self.path.len() > 1 => return Ok(()),
            None => return Err(self.unknown_rule(key)),
        };
        // Each use is compiled separately, so a chain of rules that use each other twice doubles at each step.
        self.nodes += used_rule.nodes;
        if self.nodes > self.limits.nodes {
            return Err(self.too_large());
        }
        self.path.push(key);
        // Each use counts as a level, so that a long chain of rules cannot overflow the stack.
        self.visit_condition(&used_rule.when, depth + 1)?;
        self.path.pop();
        Ok(())
    }

    fn unknown_rule(&self, key: &str) -> Fault {
        let own_key = self.path[0];
        let other_keys = self.references.sources.iter().filter_map(rule_key).filter(|key| *key != own_key);
        let detail = format!("unknown rule {}{}", quote(key), did_you_mean(key, other_keys));
        let missing_rule = Some(MissingReference::Document(DocumentKind::Rule, key.to_owned()));
        Fault { tag: "unknown_rule", detail, missing: missing_rule }
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
