//! Whether two conditions mean the same, however they are written.
//!
//! It compares form, not reach: a longer list of words is another meaning, also if nothing holds the words.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{Comparison, Condition, GeoSource, Of, Op, Search, Text, View};
use crate::{
    derived::{Derived, as_seen},
    facts::Within,
    item::Number,
};

/// Whether the conditions come to the same on every item, as far as their form tells. Order, brackets that change
/// nothing, double denials and repetitions tell nothing, and neither do other ways to write one value; explanations may
/// still show them. `single` says of which paths it is known that they hold one value.
pub fn same(a: &Condition, b: &Condition, single: &dyn Fn(&str) -> bool) -> bool {
    told(&plain(a, true, single)) == told(&plain(b, true, single))
}

/// A condition without its notation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Plain {
    /// A condition as it passes, or as it fails.
    Leaf(String, bool),
    All(BTreeSet<Plain>),
    Any(BTreeSet<Plain>),
}

fn told(plain: &Plain) -> String {
    format!("{plain:?}")
}

impl Plain {
    fn join(all: bool, parts: impl IntoIterator<Item = Self>) -> Self {
        let mut flat = BTreeSet::new();
        for part in parts {
            match part {
                Self::All(inner) if all => flat.extend(inner),
                Self::Any(inner) if !all => flat.extend(inner),
                other => drop(flat.insert(other)),
            }
        }
        match flat.pop_first() {
            Some(only) if flat.is_empty() => only,
            first => {
                flat.extend(first);
                if all { Self::All(flat) } else { Self::Any(flat) }
            }
        }
    }
}

/// An outcome is failed just when what decides it has failed, so `not` of all is any of `not`.
fn plain(condition: &Condition, positive: bool, single: &dyn Fn(&str) -> bool) -> Plain {
    let leaf = |told: String| Plain::Leaf(told, positive);
    let inner = |part| plain(part, positive, single);
    match condition {
        Condition::All(parts) => Plain::join(positive, parts.iter().map(inner)),
        Condition::Any(parts) => Plain::join(!positive, parts.iter().map(inner)),
        Condition::Not(inner) => plain(inner, !positive, single),
        Condition::Expr(inner) => plain(inner, positive, single),
        Condition::Text(text) => words(text, positive),
        Condition::Field(field) => comparison(field, positive, single(&field.path)),
        Condition::Score(score) => {
            let one = |(op, end): &(Op, Number)| {
                leaf(format!("{:?} {:?} {op:?} {}", score.model, score.label, end.plain()))
            };
            Plain::join(positive, score.tests.iter().map(one))
        }
        Condition::Geo(geo) => {
            let source = match &geo.source {
                GeoSource::Hashes(fields) => format!("{:?}", set(fields)),
                GeoSource::Pair { lat, lng } => format!("{lat:?} {lng:?}"),
            };
            let circles: BTreeSet<_> = geo.within.iter().map(|circle| format!("{circle:?}")).collect();
            leaf(format!("geo {source} {circles:?} {:?} {:?}", set(&geo.cells), geo.bank))
        }
        Condition::Domain(domain) => {
            leaf(format!("domain {:?} {:?} {:?}", set(&domain.fields), set(&domain.domains), domain.bank))
        }
        Condition::Media(media) => {
            let states: BTreeSet<_> = media.states.iter().map(|state| format!("{state:?}")).collect();
            let banks: BTreeSet<_> = media.banks.iter().map(ToString::to_string).collect();
            let (fields, kinds, labels) = (set(&media.fields), set(&media.kinds), set(&media.labels));
            leaf(format!(
                "media {fields:?} {states:?} {banks:?} {kinds:?} {labels:?} {:?}",
                media.max_distance
            ))
        }
        Condition::Formula(formula) => leaf(format!("{:?}", formula.body)),
        Condition::Strikes(_) | Condition::Count(_) => leaf(format!("{condition:?}")),
    }
}

fn set(list: &[String]) -> BTreeSet<&str> {
    list.iter().map(String::as_str).collect()
}

/// A value that is compared with.
fn value(value: &Json, ignore_case: bool) -> String {
    match value {
        Json::Number(written) => {
            Number::parse(&written.to_string()).map_or_else(|| written.to_string(), Number::plain)
        }
        Json::String(text) if ignore_case => format!("{:?}", as_seen(text, View::Lower)),
        Json::Object(object) => {
            let span = |key| Within::parse(object.get(key)?.as_str()?).map(Within::millis);
            match (span("ago"), span("ahead")) {
                (Some(ago), None) => format!("now {}", -ago),
                (None, Some(ahead)) => format!("now {ahead}"),
                _ => value_of(object),
            }
        }
        other => other.to_string(),
    }
}

fn value_of(object: &serde_json::Map<String, Json>) -> String {
    let sorted: std::collections::BTreeMap<_, _> = object.iter().collect();
    format!("{sorted:?}")
}

fn comparison(field: &Comparison, positive: bool, single: bool) -> Plain {
    let denies = |op: Op| matches!(op, Op::Ne | Op::NotIn);
    let compare = || field.tests.iter().map(|(op, _)| *op).filter(|op| *op != Op::Exists);
    let of = match field.of {
        // Of the field itself it says nothing.
        _ if compare().next().is_none() => None,
        None | Some(Of::Any | Of::All) if single => None,
        None if !compare().any(denies) => Some(Of::Any),
        None if compare().all(denies) => Some(Of::All),
        other => other,
    };
    let mut tests = BTreeSet::new();
    for (op, operand) in &field.tests {
        if *op == Op::Exists {
            tests.insert(format!("exists {operand}"));
            continue;
        }
        let values: BTreeSet<String> = match operand {
            Json::Array(list) => list.iter().map(|one| value(one, field.ignore_case)).collect(),
            one => [value(one, field.ignore_case)].into(),
        };
        let op = match op {
            Op::Eq => Op::In,
            Op::Ne => Op::NotIn,
            other => *other,
        };
        tests.insert(format!("{op:?} {values:?}"));
    }
    let about = |tests: String| {
        Plain::Leaf(format!("field {:?} {of:?} {} {tests}", field.path, field.ignore_case), positive)
    };
    // Of one value each test can be asked apart.
    if single && of != Some(Of::None) {
        return Plain::join(positive, tests.into_iter().map(about));
    }
    about(format!("{tests:?}"))
}

fn words(text: &Text, positive: bool) -> Plain {
    let all = |search: String| Plain::Leaf(format!("text {:?} {search}", set(&text.fields)), positive);
    let found: BTreeSet<String> = match &text.search {
        Search::Bank { bank, whole } => {
            return all(format!("{:?} {bank} {whole} {}", text.view, text.min_distinct));
        }
        Search::Regex(patterns) => {
            patterns.iter().map(|pattern| format!("{:?} {pattern:?}", text.view)).collect()
        }
        Search::AnyOf { words, whole } | Search::AllOf { words, whole } => {
            let word = |word: &String| {
                let (seen, runs) = Derived::of_word(word, text.view);
                // Only a collapsed word asks for runs.
                let runs = (text.view == View::Collapsed).then_some(runs);
                format!("{:?} {whole} {seen:?} {runs:?}", text.view)
            };
            words.iter().map(word).collect()
        }
    };
    match (&text.search, text.min_distinct) {
        (Search::AllOf { .. }, _) => Plain::join(positive, found.into_iter().map(all)),
        (_, 1) => Plain::join(!positive, found.into_iter().map(all)),
        (_, least) => all(format!("{least} of {found:?}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::{Limits, form::parse};

    fn condition(when: &Json) -> Condition {
        parse(&json!({"rule": "r", "when": when}), &Limits::default()).unwrap().when
    }

    #[test]
    fn the_way_of_writing_is_no_meaning() {
        let word = |words: &[&str]| json!({"text": {"in": ["text"], "any_of": words}});
        let (a, b) = (word(&["a b", "c d"]), json!({"field": {"path": "n", "gt": 1, "lt": 9}}));
        let same_as =
            |one: Json, other: Json| same(&condition(&one), &condition(&other), &|path| path == "n");
        assert!(same_as(json!({"all": [a, b]}), json!({"all": [b, {"all": [word(&["c d", "a b"])]}, a]})));
        assert!(same_as(json!({"any": [{"any": [a]}, b]}), json!({"any": [b, a]})));
        assert!(same_as(json!({"not": {"not": a}}), a.clone()));
        assert!(same_as(json!({"all": [a]}), json!({"any": [a, a]})));
        assert!(!same_as(json!({"all": [a, b]}), json!({"any": [a, b]})));
        assert!(!same_as(json!({"not": a}), a.clone()));
        assert!(!same_as(word(&["a b"]), a.clone()));
        let least = |n: u64| json!({"text": {"in": ["text"], "any_of": ["a b", "c d"], "min_distinct": n}});
        assert!(same_as(least(1), a) && !same_as(least(1), least(2)));
        let field = |path: &str, op: &str, value: Json| json!({"field": {"path": path, op: value}});
        for (one, other) in [
            (field("t", "in", json!(["a", "b"])), field("t", "in", json!(["b", "a", "b"]))),
            (field("t", "in", json!(["a"])), field("t", "eq", json!("a"))),
            (field("t", "not_in", json!([1.0])), field("t", "ne", json!(1))),
            (field("t", "lt", json!({"ago": "24h"})), field("t", "lt", json!({"ago": "1d"}))),
            (json!({"expr": "item.data.n > 1 && item.data.n < 9"}), b.clone()),
            (json!({"expr": "size( item.data.t )>1"}), json!({"expr": "size(item.data.t) > 1"})),
            (word(&["A b", "a B"]), word(&["a b"])),
            (json!({"any": [word(&["a b"]), word(&["c d"])]}), word(&["a b", "c d"])),
            (
                json!({"geo": {"in": ["g"], "cells": ["u33", "u09"]}}),
                json!({"geo": {"in": ["g"], "cells": ["u09", "U33"]}}),
            ),
            (
                json!({"domain": {"in": ["l", "t"], "any_of": ["a.example", "b.example"]}}),
                json!({"domain": {"in": ["t", "l"], "any_of": ["B.example", "a.example"]}}),
            ),
            (json!({"score": {"model": "m", "gte": 1}}), json!({"score": {"model": "m", "gte": 1.0}})),
            (json!({"not": {"all": [word(&["x"]), b]}}), json!({"any": [{"not": b}, {"not": word(&["x"])}]})),
        ] {
            assert!(same_as(one.clone(), other.clone()), "{one} {other}");
        }
        for (one, other) in [
            (field("t", "in", json!(["a", "b"])), field("t", "in", json!(["a"]))),
            (field("t", "eq", json!("1")), field("t", "eq", json!(1))),
            (
                json!({"field": {"path": "t", "gt": 1, "lt": 9}}),
                json!({"all": [field("t", "gt", json!(1)), field("t", "lt", json!(9))]}),
            ),
            (
                json!({"text": {"in": ["t"], "any_of": ["A"], "view": "raw"}}),
                json!({"text": {"in": ["t"], "any_of": ["a"], "view": "raw"}}),
            ),
            (field("t", "eq", json!("A")), field("t", "eq", json!("a"))),
            (
                json!({"field": {"path": "t", "contains": "it exists", "of": "any"}}),
                json!({"field": {"path": "t", "contains": "it exists", "of": "none"}}),
            ),
            (
                json!({"field": {"path": "n", "in": ["exists"], "of": "all"}}),
                json!({"field": {"path": "n", "in": ["exists"], "of": "none"}}),
            ),
        ] {
            assert!(!same_as(one.clone(), other.clone()), "{one} {other}");
        }
    }
}
