//! Whether two conditions mean the same, however they are written.
//!
//! It compares form, not reach: a longer list of words is another meaning, also if nothing holds the words.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use tidegate_schemas::{ids::WindowId, item_types::datetime};

use super::{Comparison, Condition, GeoSource, Of, Op, Search, Text, View};
use crate::{
    derived::{Derived, as_seen},
    facts::Within,
    item::Number,
};

/// What is known of fields and windows.
pub trait Known {
    /// It is certain that the path holds one value.
    fn is_single(&self, path: &str) -> bool;
    /// It is certain that what stands at the path are instants.
    fn is_instant(&self, path: &str) -> bool;
    /// It is certain that the window sums up nothing, so that what it has counted is a whole number.
    fn counts_whole(&self, window: &WindowId) -> bool;
}

/// Whether the conditions come to the same on every item, as far as their form tells. Order, brackets that change
/// nothing, double denials and repetitions tell nothing, and neither do other ways to write one value; explanations may
/// still show them.
pub fn same(a: &Condition, b: &Condition, known: &dyn Known) -> bool {
    told(&plain(a, true, known)) == told(&plain(b, true, known))
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
fn plain(condition: &Condition, positive: bool, known: &dyn Known) -> Plain {
    let leaf = |told: String| Plain::Leaf(told, positive);
    let inner = |part| plain(part, positive, known);
    match condition {
        Condition::All(parts) => Plain::join(positive, parts.iter().map(inner)),
        Condition::Any(parts) => Plain::join(!positive, parts.iter().map(inner)),
        Condition::Not(inner) => plain(inner, !positive, known),
        Condition::Expr(inner) => plain(inner, positive, known),
        Condition::Text(text) => words(text, positive),
        Condition::Field(field) => comparison(field, positive, known),
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
        Condition::Count(count) => {
            let whole = known.counts_whole(&count.window);
            let at_least = if whole { count.at_least.up() } else { count.at_least };
            leaf(format!("count {:?} {at_least:?}", count.window))
        }
        Condition::Strikes(_) => leaf(format!("{condition:?}")),
    }
}

fn set(list: &[String]) -> BTreeSet<&str> {
    list.iter().map(String::as_str).collect()
}

/// A value that is compared with.
fn value(value: &Json, ignore_case: bool, instant: bool) -> String {
    match value {
        Json::String(text) if instant => {
            datetime::parse(text).map_or_else(|| format!("{text:?}"), |instant| format!("at {}", instant.0))
        }
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

fn comparison(field: &Comparison, positive: bool, known: &dyn Known) -> Plain {
    let single = known.is_single(&field.path);
    let value = |one: &Json| value(one, field.ignore_case, known.is_instant(&field.path));
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
            Json::Array(list) => list.iter().map(value).collect(),
            one => [value(one)].into(),
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
    let written = match &text.search {
        Search::Bank { .. } => usize::MAX,
        Search::Regex(patterns) => patterns.len(),
        Search::AnyOf { words, .. } | Search::AllOf { words, .. } => words.len(),
    };
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
        // As many are refused unless each is another one.
        (_, least) if least == written => Plain::join(positive, found.into_iter().map(all)),
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

    struct Fields;

    impl Known for Fields {
        fn is_single(&self, path: &str) -> bool {
            path == "n"
        }

        fn is_instant(&self, path: &str) -> bool {
            path == "at"
        }

        fn counts_whole(&self, window: &WindowId) -> bool {
            window.as_str() == "items"
        }
    }

    fn condition(when: &Json) -> Condition {
        parse(&json!({"rule": "r", "when": when}), &Limits::default()).unwrap().when
    }

    #[test]
    fn the_way_of_writing_is_no_meaning() {
        let word = |words: &[&str]| json!({"text": {"in": ["text"], "any_of": words}});
        let (a, b) = (word(&["a b", "c d"]), json!({"field": {"path": "n", "gt": 1, "lt": 9}}));
        let same_as = |one: Json, other: Json| same(&condition(&one), &condition(&other), &Fields);
        assert!(same_as(json!({"all": [a, b]}), json!({"all": [b, {"all": [word(&["c d", "a b"])]}, a]})));
        assert!(same_as(json!({"any": [{"any": [a]}, b]}), json!({"any": [b, a]})));
        assert!(same_as(json!({"not": {"not": a}}), a.clone()));
        assert!(same_as(json!({"all": [a]}), json!({"any": [a, a]})));
        assert!(!same_as(json!({"all": [a, b]}), json!({"any": [a, b]})));
        assert!(!same_as(json!({"not": a}), a.clone()));
        assert!(!same_as(word(&["a b"]), a.clone()));
        let least = |n: u64| json!({"text": {"in": ["text"], "any_of": ["a b", "c d"], "min_distinct": n}});
        assert!(same_as(least(1), a) && !same_as(least(1), least(2)));
        let count = |window: &str, op: &str, value: Json| json!({"count": {"window": window, op: value}});
        let regex = |patterns: &[&str]| json!({"text": {"in": ["t"], "regex": patterns, "min_distinct": patterns.len()}});
        let field = |path: &str, op: &str, value: Json| json!({"field": {"path": path, op: value}});
        for (one, other) in [
            (field("t", "in", json!(["a", "b"])), field("t", "in", json!(["b", "a", "b"]))),
            (field("t", "in", json!(["a"])), field("t", "eq", json!("a"))),
            (field("t", "not_in", json!([1.0])), field("t", "ne", json!(1))),
            (field("t", "lt", json!({"ago": "24h"})), field("t", "lt", json!({"ago": "1d"}))),
            (json!({"expr": "item.data.n > 1 && item.data.n < 9"}), b.clone()),
            (json!({"expr": "size( item.data.t )>1"}), json!({"expr": "size(item.data.t) > 1"})),
            (word(&["A b", "a B"]), word(&["a b"])),
            (least(2), json!({"text": {"in": ["text"], "all_of": ["c d", "a b"]}})),
            (json!({"not": least(2)}), json!({"not": {"text": {"in": ["text"], "all_of": ["c d", "a b"]}}})),
            (regex(&["x", "y"]), json!({"all": [regex(&["y"]), regex(&["x"])]})),
            (count("items", "gt", json!(4)), count("items", "gte", json!(5))),
            (
                field("at", "in", json!(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])),
                field("at", "in", json!(["2026-01-02T00:00:00.000Z", "2026-01-01T01:00:00+01:00"])),
            ),
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
            (count("sums", "gt", json!(4)), count("sums", "gte", json!(5))),
            (
                field("t", "eq", json!("2026-01-01T00:00:00Z")),
                field("t", "eq", json!("2026-01-01T00:00:00.000Z")),
            ),
            (
                field("at", "eq", json!("2026-01-01T00:00:00Z")),
                field("at", "eq", json!("2026-01-01T00:00:01Z")),
            ),
            (least(1), json!({"text": {"in": ["text"], "all_of": ["c d", "a b"]}})),
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
