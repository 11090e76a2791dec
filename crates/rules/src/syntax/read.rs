//! Reads rule and window documents, and reports every error in them. Whether fields exist is checked when rules are
//! compiled.

use serde_json::{Map, Value as Json};
use tidegate_schemas::ids::{ActionId, PolicyId, RuleId, TypeId};

use super::{ActionUse, Condition, ExampleFacts, Rule, Status, Test, Window, example_facts::FACT_KEYS, expr};
use crate::{
    error::RuleError,
    item::Trigger,
    leaves::LeafSpec,
    limits::Limits,
    reader::{Reader, is_present},
};

const RULE_KEYS: [&str; 14] = [
    "rule",
    "name",
    "status",
    "expires_at",
    "on",
    "item_types",
    "when",
    "policies",
    "actions",
    "rollout",
    "limits",
    "review_sample",
    "on_error",
    "tests",
];

/// Reads a rule document. Lists all errors, up to a hundred.
#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is not general enough in the reader's lifetime"
)]
pub fn parse(document: &Json, limits: &Limits) -> Result<Rule, Vec<RuleError>> {
    read("rule", document, limits, |r, v| r.rule(v))
}

/// Reads a window document like [`parse`] a rule document.
#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is not general enough in the reader's lifetime"
)]
pub fn parse_window(document: &Json, limits: &Limits) -> Result<Window, Vec<RuleError>> {
    read("window", document, limits, |r, v| r.window(v))
}

/// Reads the facts of a line about its item. `other_keys` are the other keys of the line.
pub(crate) fn example_facts(
    line: &Json,
    other_keys: &[&str],
    limits: &Limits,
) -> Result<ExampleFacts, Vec<RuleError>> {
    read("line", line, limits, |r, v| {
        let object = r.object(v, &[other_keys, &FACT_KEYS].concat())?;
        Some(r.example_facts(object))
    })
}

fn read<T>(
    kind: &'static str,
    document: &Json,
    limits: &Limits,
    read: impl FnOnce(&mut Reader<'_>, &Json) -> Option<T>,
) -> Result<T, Vec<RuleError>> {
    let key = document.get(kind).and_then(Json::as_str).unwrap_or_default();
    let mut reader = Reader {
        limits,
        kind,
        rule: key.chars().take(64).collect(),
        pointer: String::new(),
        nodes: 0,
        words: 0,
        errors: Vec::new(),
    };
    match read(&mut reader, document) {
        Some(value) if reader.errors.is_empty() => Ok(value),
        _ => Err(reader.errors),
    }
}

impl Reader<'_> {
    fn rule(&mut self, document: &Json) -> Option<Rule> {
        let object = self.object(document, &RULE_KEYS)?;
        let key = self.required(object, "rule", |r, v| r.text(v).map(RuleId::new));
        let name = self.optional(object, "name", |r, v| r.text(v).map(str::to_owned));
        let status = self.optional(object, "status", |r, v| r.variant(v, Status::ALL, Status::as_str));
        let expires_at = self.optional(object, "expires_at", Self::instant);
        let on = self.optional(object, "on", |r, v| {
            let on = [("item", Trigger::Item), ("report", Trigger::Report)];
            let list = r.non_empty_list(v, |r, v| r.name(v, &on))?;
            r.require_distinct(list, "cause")
        });
        let item_types = self.optional(object, "item_types", |r, v| {
            let list = r.list(v, |r, v| r.text(v).map(TypeId::new))?;
            r.require_distinct(list, "item type")
        });
        let condition = self.required(object, "when", |r, v| r.condition(v, 1));
        let policies = self.optional(object, "policies", |r, v| {
            let list = r.list(v, |r, v| r.text(v).map(PolicyId::new))?;
            r.require_distinct(list, "policy")
        });
        let actions = self.optional(object, "actions", Self::actions);
        let enforcement = self.enforcement(object);
        let tests = self.optional(object, "tests", |r, v| r.list(v, Self::test));
        let key = key?;
        Some(Rule {
            name: name.unwrap_or_else(|| key.as_str().to_owned()),
            key,
            // A rule without a status must not act.
            status: status.unwrap_or(Status::Draft),
            expires_at,
            on: on.unwrap_or_else(|| vec![Trigger::Item]),
            item_types: item_types.unwrap_or_default(),
            when: condition?,
            nodes: self.nodes,
            policies: policies.unwrap_or_default(),
            actions: actions.unwrap_or_default(),
            enforcement,
            tests: tests.unwrap_or_default(),
        })
    }

    fn actions(&mut self, value: &Json) -> Option<Vec<ActionUse>> {
        let actions = self.list(value, |r, v| {
            if v.is_string() {
                return r.text(v).map(|id| ActionUse { id: ActionId::new(id), params: Map::new() });
            }
            let object = r.object(v, &["id", "params"])?;
            let id = r.required(object, "id", |r, v| r.text(v).map(ActionId::new));
            let params = r.optional(object, "params", |r, v| match v.as_object() {
                Some(params) => Some(params.clone()),
                None => r.error("shape", "expected a mapping of parameters"),
            });
            Some(ActionUse { id: id?, params: params.unwrap_or_default() })
        })?;
        self.require_distinct(actions.iter().map(|action| &action.id).collect(), "action")?;
        Some(actions)
    }

    fn test(&mut self, value: &Json) -> Option<Test> {
        let object =
            self.object(value, &[&["name", "item_type", "item", "expect"], &FACT_KEYS[..]].concat())?;
        let name = self.optional(object, "name", |r, v| r.text(v).map(str::to_owned));
        let item_type = self.optional(object, "item_type", |r, v| r.text(v).map(TypeId::new));
        let item = self.required(object, "item", |r, v| match v {
            Json::Object(_) => Some(v.clone()),
            _ => r.error("shape", "expected the `data` of an item"),
        });
        let facts = self.example_facts(object);
        let matches =
            self.required(object, "expect", |r, v| r.name(v, &[("match", true), ("no_match", false)]));
        Some(Test { name, item_type, item: item?, facts, matches: matches? })
    }

    pub(super) fn condition(&mut self, value: &Json, depth: usize) -> Option<Condition> {
        if depth > self.limits.depth {
            return self.error(
                "depth",
                format!("the condition is nested deeper than {} levels: split the rule", self.limits.depth),
            );
        }
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            // Every further condition would report the same limit.
            return if self.nodes == self.limits.nodes + 1 {
                self.error(
                    "nodes",
                    format!("the rule has more than {} conditions: split the rule", self.limits.nodes),
                )
            } else {
                None
            };
        }
        let keys = [&["all", "any", "not"], LeafSpec::KEYS, &["expr", "rule"]].concat();
        let object = self.object(value, &keys)?;
        let kinds: Vec<_> = keys.iter().filter(|key| is_present(object, key)).collect();
        if kinds.len() != 1 {
            self.error::<()>("shape", format!("expected exactly one of {}", keys.join(", ")));
        }
        // All of several kinds are read, so that each reports its own errors.
        let conditions: Vec<_> =
            kinds.iter().map(|key| self.condition_of_kind(key, &object[**key], depth)).collect();
        match <[_; 1]>::try_from(conditions) {
            Ok([condition]) => condition,
            Err(_) => None,
        }
    }

    fn condition_of_kind(&mut self, key: &str, inner: &Json, depth: usize) -> Option<Condition> {
        self.at(key, |r| match key {
            "all" => r.non_empty_list(inner, |r, v| r.condition(v, depth + 1)).map(Condition::All),
            "any" => r.non_empty_list(inner, |r, v| r.condition(v, depth + 1)).map(Condition::Any),
            "not" => r.condition(inner, depth + 1).map(|c| Condition::Not(Box::new(c))),
            "expr" => r.expr(inner),
            "rule" => r.text(inner).map(|key| Condition::Rule(RuleId::new(key))),
            leaf => LeafSpec::parse(leaf, r, inner).map(Condition::Leaf),
        })
    }

    fn expr(&mut self, value: &Json) -> Option<Condition> {
        let limit = self.limits.expr_bytes;
        let source = match value.as_str() {
            Some(source) if source.len() > limit => {
                return self.error(
                    "limit",
                    format!("the expression is {} bytes long, the limit is {limit}", source.len()),
                );
            }
            Some(source) => source,
            None => return self.error("shape", "expected a text"),
        };
        match expr::parse_expression(source) {
            Ok((condition, nodes)) => {
                self.nodes += nodes;
                Some(Condition::Expr(Box::new(condition)))
            }
            Err(error) => self.error("expr", format!("at character {}: {}", error.at, error.message)),
        }
    }
}
