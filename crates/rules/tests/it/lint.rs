//! Warnings about conditions that can never hold, and about rules with the same condition.

use serde_json::{Value as Json, json};
use tidegate_rules::{Bank, BankEntry, Container, Kind, Limits, Plan, RuleSource, Shape, Vocabulary};
use tidegate_schemas::{banks::BankKind, ids::TypeId};
use uuid::Uuid;

fn vocabulary() -> Vocabulary {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(
        TypeId::new("post"),
        [
            ("text", Shape::one(Kind::Text)),
            ("title", Shape::one(Kind::Text)),
            ("likes", Shape::one(Kind::Number)),
            ("flag", Shape::one(Kind::Boolean)),
            ("at", Shape::one(Kind::Datetime)),
            ("tags", Shape { kind: Kind::Text, container: Container::List }),
        ],
    );
    vocabulary
}

/// Kinds of warnings of each rule, without the warning of unindexed rules.
fn warnings(conditions: &[Json]) -> Vec<(usize, &'static str)> {
    let rules: Vec<Json> = conditions.iter().map(|when| json!({"when": when})).collect();
    warnings_of(&rules)
}

fn warnings_of(rules: &[Json]) -> Vec<(usize, &'static str)> {
    let with_key = |(nth, rule): (usize, &Json)| {
        let mut rule = rule.clone();
        rule["rule"] = json!(nth.to_string());
        rule["item_types"] = json!(["post"]);
        rule
    };
    let rules: Vec<Json> = rules.iter().enumerate().map(with_key).collect();
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let warnings = Plan::compile(&sources, &vocabulary(), &Limits::default()).unwrap().warnings();
    let rule_tags = warnings.iter().map(|it| (it.rule.parse().unwrap(), it.tag()));
    rule_tags
        .filter(|(_, tag)| !["unannounced", "pattern_everywhere", "short_word", "regex_empty"].contains(tag))
        .collect()
}

fn field(path: &str, op: &str, value: impl Into<Json>) -> Json {
    json!({"field": {"path": path, op: value.into()}})
}

fn word(word: &str) -> Json {
    json!({"text": {"in": ["text"], "words": [word]}})
}

#[test]
fn contradicting_parts_are_reported() {
    let both = |a: Json, b: Json| json!({"all": [word("scam"), {"all": [a]}, b]});
    let instant = "2026-01-01T00:00:00.000Z";
    for when in [
        both(field("likes", "gt", 5), field("likes", "lt", 5)),
        both(field("likes", "gte", 5), field("likes", "lt", 5.0)),
        both(field("likes", "eq", 5), field("likes", "ne", 5.0)),
        both(field("likes", "eq", 5), field("likes", "gt", 5)),
        both(field("title", "eq", "a"), field("title", "ne", "a")),
        both(field("title", "eq", "a"), field("title", "eq", "b")),
        both(field("title", "in", json!(["a", "b"])), field("title", "in", json!(["c"]))),
        both(field("title", "in", json!(["a", "b"])), field("title", "eq", "c")),
        both(field("title", "in", json!(["a", "b"])), field("title", "not_in", json!(["b", "c", "a"]))),
        both(field("flag", "eq", true), field("flag", "ne", true)),
        both(field("likes", "gt", 5), json!({"not": field("likes", "gt", 3)})),
        both(word("x"), json!({"not": word("x")})),
        both(field("title", "exists", false), field("title", "ne", "a")),
        both(field("text", "exists", false), word("x")),
        both(field("title", "exists", false), json!({"not": field("title", "contains", "b")})),
        both(field("tags", "exists", false), field("tags", "eq", "a")),
        both(field("at", "lt", instant), field("at", "gte", instant)),
        both(field("at", "gt", json!({"ago": "1d"})), field("at", "lt", json!({"ago": "48h"}))),
        both(json!({"score": {"model": "m", "gte": 0.9}}), json!({"score": {"model": "m", "lt": 0.5}})),
        both(json!({"strikes": {"gte": 3}}), json!({"not": {"strikes": {"gte": 2}}})),
        json!({"text": {"in": ["text"], "regex": "a^b"}}),
        json!({"text": {"in": ["text"], "regex": ["x[a&&b]", "a$b"]}}),
        json!({"expr": "item.data.likes > 1 && item.data.likes <= 1"}),
        json!({"field": {"path": "tags", "eq": "a", "in": ["b"]}}),
        json!({"field": {"path": "tags", "in": ["a"], "not_in": ["b", "a"]}}),
        json!({"field": {"path": "tags", "eq": "a", "ne": "a", "of": "any"}}),
        both(field("likes", "in", json!([1, 2])), field("likes", "gt", 2)),
        json!({"any": [both(field("likes", "gt", 5), field("likes", "lt", 5)), both(word("x"), json!({"not": word("x")}))]}),
        both(json!({"any": [both(field("likes", "gt", 5), field("likes", "lt", 5))]}), word("x")),
        json!({"not": {"any": [field("likes", "gt", 5), field("likes", "lte", 5)]}}),
    ] {
        assert_eq!(warnings(std::slice::from_ref(&when)), [(0, "unsatisfiable")], "{when}");
    }
}

#[test]
fn compatible_parts_are_not_reported() {
    let both = |a: Json, b: Json| json!({"all": [a, b]});
    let instant = "2026-01-01T00:00:00.000Z";
    for when in [
        both(field("likes", "gt", 5), field("likes", "lt", 6)),
        both(field("likes", "gte", 5), field("likes", "lte", 5)),
        both(field("tags", "eq", "a"), field("tags", "eq", "b")),
        both(field("title", "eq", "ab"), field("title", "starts_with", "a")),
        both(field("at", "gt", instant), field("at", "lt", json!({"ago": "1d"}))),
        both(word("x"), json!({"not": word("y")})),
        both(json!({"text": {"in": ["text", "title"], "words": ["x"]}}), json!({"not": word("x")})),
        both(field("title", "exists", false), word("x")),
        both(field("title", "exists", false), json!({"text": {"in": ["title", "text"], "words": ["x"]}})),
        both(json!({"score": {"model": "m", "gte": 0.9}}), json!({"score": {"model": "n", "lt": 0.5}})),
        both(json!({"strikes": {"gte": 3}}), json!({"not": {"strikes": {"gte": 2, "within": "1d"}}})),
        json!({"any": [field("likes", "gt", 5), field("likes", "lt", 5)]}),
        json!({"text": {"in": ["text"], "regex": ["a^b", "ab"]}}),
        json!({"expr": "item.data.likes > 1 && item.data.likes < 2"}),
        json!({"expr": "size(item.data.title) < 1"}),
        // A list without values.
        json!({"field": {"path": "tags", "eq": "a", "ne": "a", "of": "all"}}),
        both(field("tags", "eq", "a"), json!({"field": {"path": "tags", "ne": "a", "of": "any"}})),
        both(field("tags", "not_in", json!(["a", "b"])), field("tags", "eq", "c")),
        both(
            json!({"field": {"path": "title", "eq": "Abc", "ignore_case": true}}),
            field("title", "eq", "aBc"),
        ),
        both(
            json!({"field": {"path": "title", "eq": "Abc", "ignore_case": true}}),
            field("title", "contains", "B"),
        ),
        json!({"field": {"path": "title", "contains": "X", "in": ["xxx"], "ignore_case": true}}),
    ] {
        assert_eq!(warnings(std::slice::from_ref(&when)), [], "{when}");
    }
}

#[test]
fn duplicates_are_found_in_any_order_and_nesting() {
    let likes = field("likes", "eq", 1);
    for (one, other) in [
        (json!({"all": [word("a"), likes]}), json!({"all": [{"all": [likes]}, word("a"), likes]})),
        (json!({"not": {"any": [word("a"), likes]}}), json!({"all": [{"not": likes}, {"not": word("a")}]})),
        (json!({"not": {"not": likes}}), json!({"any": [likes]})),
        (
            json!({"any": [word("a"), {"all": [likes, word("b")]}]}),
            json!({"any": [{"all": [word("b"), likes]}, word("a")]}),
        ),
    ] {
        assert_eq!(warnings(&[one.clone(), other.clone()]), [(1, "same_condition")], "{one} {other}");
    }
    for (one, other) in [
        (json!({"all": [word("a"), likes]}), json!({"any": [likes, word("a")]})),
        (json!({"not": likes}), likes.clone()),
        (word("a"), word("b")),
        (
            json!({"all": [{"any": [word("a"), likes]}, word("b")]}),
            json!({"any": [{"all": [word("a"), likes]}, word("b")]}),
        ),
    ] {
        assert_eq!(warnings(&[one.clone(), other.clone()]), [], "{one} {other}");
    }
}

#[test]
fn successor_of_an_expiring_rule_is_no_duplicate() {
    let with = |mut members: Json| {
        members["when"] = word("a");
        members
    };
    for members in [
        json!({"expires_at": "2020-01-01T00:00:00Z"}),
        json!({"status": "background"}),
        json!({"on": ["report"]}),
    ] {
        assert_eq!(warnings_of(&[with(members.clone()), with(json!({}))]), [], "{members}");
    }
}

/// Warnings about rules that use up their steps on patterns.
fn costly(when: &Json, entries: &[&str]) -> Vec<String> {
    let mut vocabulary = vocabulary();
    let entry = |value: &&str| BankEntry { id: Uuid::nil(), value: (*value).into(), labels: [].into() };
    let entries = entries.iter().map(entry).collect();
    vocabulary.add_bank(Bank { key: "rx".into(), kind: BankKind::Regex, entries });
    let document = json!({"rule": "r", "item_types": ["post"], "when": when});
    let plan =
        Plan::compile(&[RuleSource { document: &document, version: "1" }], &vocabulary, &Limits::default());
    let warnings = plan.unwrap().warnings();
    warnings.iter().filter(|it| it.tag() == "regex_costly").map(|it| it.detail.clone()).collect()
}

#[test]
fn patterns_over_budget_are_warned_about_with_their_length() {
    let heavy: Vec<String> = (0..300).map(|n| format!("[a-z ]{{{}}}K[0-9]{{500}}", 600 + n)).collect();
    let heavy: Vec<&str> = heavy.iter().map(String::as_str).collect();
    let warnings = costly(&json!({"text": {"in": ["text"], "regex": heavy}}), &[]);
    let together = warnings.last().unwrap();
    assert!(
        together.contains("its 300 patterns together") && together.contains("steps_per_rule"),
        "{warnings:?}"
    );
    assert!(together.contains("more than 80 bytes it ends as `errored: deadline`"), "{warnings:?}");
    let of_bank = json!({"text": {"in": ["text"], "bank": "rx"}});
    assert_eq!(costly(&of_bank, &heavy), [together.as_str()]);
    let one = costly(&of_bank, &heavy[..1]);
    assert!(one.len() == 1 && one[0].contains("one of its patterns takes"), "{one:?}");
    // Each pattern with a word has the steps for itself, and light patterns share those of the item.
    let light: Vec<String> = (0..300).map(|n| format!("pat{n}q[0-9]+z")).collect();
    let light: Vec<&str> = light.iter().map(String::as_str).collect();
    assert!(costly(&of_bank, &light).is_empty() && costly(&of_bank, &[]).is_empty());
    // One heavy pattern is enough to make all patterns run one after the other.
    let mixed: Vec<&str> = light.iter().chain(&heavy[..1]).copied().collect();
    assert!(costly(&of_bank, &mixed)[0].contains("its 301 patterns together"), "{mixed:?}");
    assert!(
        !costly(&json!({"not": of_bank}), &light).is_empty(),
        "a condition that is not indexed is evaluated whole"
    );
}
