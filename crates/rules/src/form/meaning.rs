//! Whether two conditions mean the same, however they are written.
//!
//! It compares form, not reach: a longer list of words is another meaning, also if nothing holds the words.

use super::{Comparison, Condition, Search, Text};

/// Whether the conditions come to the same on every item, as far as their form tells. The order of parts, brackets
/// that change nothing, double denials and repetitions tell nothing; explanations may still show another order.
pub fn same(a: &Condition, b: &Condition) -> bool {
    told(a) == told(b)
}

fn told(condition: &Condition) -> String {
    match plain(condition) {
        Condition::All(parts) => format!("all{:?}", sorted(&parts)),
        Condition::Any(parts) => format!("any{:?}", sorted(&parts)),
        Condition::Not(inner) => format!("not({})", told(&inner)),
        leaf => format!("{leaf:?}"),
    }
}

fn sorted(parts: &[Condition]) -> Vec<String> {
    let mut parts: Vec<String> = parts.iter().map(told).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// One level without brackets that change nothing.
fn plain(condition: &Condition) -> Condition {
    match condition {
        Condition::All(parts) => only(flat(parts, true), Condition::All),
        Condition::Any(parts) => only(flat(parts, false), Condition::Any),
        // `not` swaps passed and failed and leaves the rest, so twice is not at all.
        Condition::Not(inner) => match plain(inner) {
            Condition::Not(inner) => plain(&inner),
            other => Condition::Not(Box::new(other)),
        },
        Condition::Expr(inner) => plain(inner),
        Condition::Text(text) => Condition::Text(ordered(text)),
        Condition::Field(field) => {
            let mut tests = field.tests.clone();
            tests.sort_by_key(|(op, _)| *op);
            Condition::Field(Comparison { tests, ..field.clone() })
        }
        leaf => leaf.clone(),
    }
}

fn flat(parts: &[Condition], all: bool) -> Vec<Condition> {
    let mut flattened: Vec<Condition> = Vec::new();
    for part in parts.iter().map(plain) {
        match part {
            Condition::All(inner) if all => flattened.extend(inner),
            Condition::Any(inner) if !all => flattened.extend(inner),
            other => flattened.push(other),
        }
    }
    let mut known = std::collections::HashSet::new();
    flattened.retain(|part| known.insert(told(part)));
    flattened
}

fn only(mut parts: Vec<Condition>, whole: impl Fn(Vec<Condition>) -> Condition) -> Condition {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            whole(parts)
        }
    }
}

fn ordered(text: &Text) -> Text {
    let mut text = text.clone();
    text.fields.sort_unstable();
    match &mut text.search {
        Search::AnyOf { words, .. } | Search::AllOf { words, .. } | Search::Regex(words) => {
            words.sort_unstable();
        }
        Search::Bank { .. } => {}
    }
    text
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
        let same_as = |one: Json, other: Json| same(&condition(&one), &condition(&other));
        assert!(same_as(json!({"all": [a, b]}), json!({"all": [b, {"all": [word(&["c d", "a b"])]}, a]})));
        assert!(same_as(json!({"any": [{"any": [a]}, b]}), json!({"any": [b, a]})));
        assert!(same_as(json!({"not": {"not": a}}), a.clone()));
        assert!(same_as(json!({"all": [a]}), json!({"any": [a, a]})));
        assert!(!same_as(json!({"all": [a, b]}), json!({"any": [a, b]})));
        assert!(!same_as(json!({"not": a}), a.clone()));
        assert!(!same_as(word(&["a b"]), a.clone()));
        let least = |n: u64| json!({"text": {"in": ["text"], "any_of": ["a b", "c d"], "min_distinct": n}});
        assert!(same_as(least(1), a) && !same_as(least(1), least(2)));
    }
}
