//! Random documents, expressions and patterns.

use serde_json::{Value as Json, json};
use tidegate_rules::{Facts, Item, Kind, Limits, Plan, RuleSource, Shape, Trigger, Vocabulary};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

use super::{Data, compile};

const LEAVES: [&str; 12] = [
    "text",
    "field",
    "strikes",
    "count",
    "media",
    "score",
    "model_text",
    "geo",
    "domain",
    "all",
    "any",
    "not",
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn json(&mut self, depth: usize) -> Json {
        const WORDS: [&str; 51] = [
            "rule",
            "name",
            "status",
            "expires_at",
            "on",
            "item_types",
            "when",
            "policies",
            "actions",
            "tests",
            "all",
            "any",
            "not",
            "text",
            "field",
            "strikes",
            "in",
            "view",
            "word",
            "any_of",
            "all_of",
            "words",
            "regex",
            "path",
            "eq",
            "lt",
            "not_in",
            "exists",
            "gte",
            "gt",
            "within",
            "window",
            "cells",
            "lat",
            "lng",
            "km",
            "u33",
            "model",
            "label",
            "state",
            "bank",
            "max_distance",
            "id",
            "params",
            "item",
            "expect",
            "post",
            "likes",
            "author.id",
            "1é",
            "[(*\\p{",
        ];
        match self.roll(if depth == 0 { 5 } else { 10 }) {
            0 => json!(WORDS[self.roll(WORDS.len())]),
            1 => json!(self.roll(7)),
            2 => json!([-1.5, 1e300, -0.0][self.roll(3)]),
            3 => json!(self.roll(2) == 0),
            4 => Json::Null,
            5 | 6 => (0..self.roll(4)).map(|_| self.json(depth - 1)).collect(),
            _ => {
                let entries = 1 + self.roll(4);
                let entries = (0..entries)
                    .map(|_| (WORDS[self.roll(WORDS.len())].to_owned(), self.json(depth - 1)))
                    .collect();
                Json::Object(entries)
            }
        }
    }
}

#[test]
fn random_expressions_never_panic() {
    const PARTS: [&str; 44] = [
        "item.data.text",
        "item.data.likes",
        "item.data.tags",
        "item.data",
        "item",
        "x",
        "exists",
        "all",
        "size",
        "has",
        "matches",
        "contains",
        "timestamp",
        "in",
        "true",
        "1",
        "2.5",
        "9223372036854775807",
        "1e400",
        "'a'",
        "\"é\"",
        "'",
        "\\",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        "&&",
        "||",
        "!",
        "==",
        "<",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "?",
        " ",
        "\n",
        "日",
    ];
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let expr = match dice.roll(3) {
            0 => (0..=dice.roll(12)).map(|_| PARTS[dice.roll(PARTS.len())]).collect::<String>(),
            1 => format!("item.data.likes {} {}", PARTS[29 + dice.roll(11)], PARTS[dice.roll(PARTS.len())]),
            _ => format!(
                "item.data.tags.exists(x, {}{}{})",
                PARTS[dice.roll(PARTS.len())],
                PARTS[29 + dice.roll(11)],
                PARTS[dice.roll(PARTS.len())]
            ),
        };
        match compile(&json!({"rule": "r", "item_types": ["post"], "when": {"expr": expr}})) {
            Ok(()) => taken += 1,
            Err(errors) => {
                refused += 1;
                assert!(errors.iter().all(|error| error.pointer == "/when/expr"), "{expr}: {errors:?}");
            }
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
    let deep = [
        "(".repeat(4_000),
        "!".repeat(4_000),
        "-".repeat(4_000),
        vec!["true"; 1_500].join("&&"),
        vec!["1"; 2_000].join("+"),
        "size(".repeat(1_500),
        "a".repeat(9_000),
    ];
    for expr in deep {
        assert!(compile(&json!({"rule": "r", "item_types": ["post"], "when": {"expr": expr}})).is_err());
    }
}

#[test]
fn random_documents_never_panic() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..10_000 {
        let mut dice = Dice(seed);
        let (leaf, noise) = (LEAVES[dice.roll(11)], dice.json(4));
        let sound = json!({"text": {"in": ["text"], "any_of": ["x"]}});
        let documents =
            [noise.clone(), json!({"rule": "r", "when": {leaf: noise}}), json!({"rule": "r", "when": sound})];
        let mut document = documents[dice.roll(3)].clone();
        if let Some(object) = document.as_object_mut()
            && dice.roll(2) == 0
        {
            let key =
                ["status", "expires_at", "on", "item_types", "policies", "actions", "tests"][dice.roll(7)];
            object.insert(key.to_owned(), dice.json(3));
        }
        match compile(&document) {
            Ok(()) => taken += 1,
            Err(errors) => {
                refused += 1;
                assert!(!errors.is_empty(), "seed {seed}: refused without a reason: {document}");
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}

/// A pattern of expensive parts: classes, word boundaries, nested repetitions, and sometimes an invalid one.
fn pattern(dice: &mut Dice, depth: usize) -> String {
    const PARTS: [&str; 26] = [
        "a",
        "b1",
        "é",
        "日",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\b",
        r"\B",
        "^",
        "$",
        "[a-f]",
        "[^x]",
        r"[\w-]",
        r"\p{L}",
        "(?i)k",
        "(?-u:a)",
        r"\x{1f600}",
        "[[:alpha:]]",
        "",
        "(",
        "]",
        "{",
        r"\",
        "scam",
    ];
    // The last ones are no valid patterns alone.
    let part_count = PARTS.len() - if dice.roll(9) == 0 { 0 } else { 6 };
    match dice.roll(if depth == 0 { 3 } else { 8 }) {
        0..=2 => PARTS[dice.roll(part_count)].to_owned(),
        3 | 4 => (0..1 + dice.roll(3)).map(|_| pattern(dice, depth - 1)).collect(),
        5 => format!("(?:{}|{})", pattern(dice, depth - 1), pattern(dice, depth - 1)),
        _ => {
            let often = ["*", "+", "?", "*?", "{2}", "{3,}", "{0,9}", "{40}", "{999}"][dice.roll(9)];
            format!("(?:{}){often}", pattern(dice, depth - 1))
        }
    }
}

#[test]
fn random_patterns_are_refused_or_match_as_alone() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let type_id = TypeId::new("post");
    let texts = [
        "",
        "a",
        "ab1 scam 42",
        "kK\u{212a}",
        "é日 😀\nx_y-z",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
    ];
    let (mut refused, mut found, mut missed) = (0, 0, 0);
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let document = |nth: usize, pattern: String| json!({"rule": format!("r{nth}"), "when": {"text": {"in": ["text"], "regex": pattern}}});
        let mut documents: Vec<Json> = (0..12).map(|nth| document(nth, pattern(&mut dice, 4))).collect();
        let plan = loop {
            let sources: Vec<_> =
                documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
            match Plan::compile(&sources, &vocabulary, &Limits::default()) {
                Ok(plan) => break plan,
                Err(errors) => {
                    let before = documents.len();
                    documents.retain(|document| {
                        errors.iter().all(|error| document["rule"] != error.rule.as_str())
                    });
                    assert!(documents.len() < before, "seed {seed}: {errors:?}");
                    refused += before - documents.len();
                }
            }
        };
        for text in texts {
            let (values, submission) = (Data(text.to_owned()), SubmissionId::random());
            let item = Item {
                type_id: &type_id,
                values: &values,
                user: None,
                on: Trigger::Item,
                now: Millis(0),
                submission,
            };
            let outcome = plan.finish(plan.scan(&item), &Facts::new());
            assert_eq!(outcome.errored, [], "seed {seed}");
            for document in &documents {
                let pattern = document["when"]["text"]["regex"].as_str().unwrap();
                let regex_matches =
                    regex::RegexBuilder::new(pattern).nest_limit(64).build().unwrap().is_match(text);
                let rule_matches = outcome.matched.iter().any(|it| document["rule"] == it.rule.as_str());
                assert_eq!(rule_matches, regex_matches, "seed {seed}: {pattern} in {text:?}");
                *(if regex_matches { &mut found } else { &mut missed }) += 1;
            }
        }
    }
    assert!(
        refused > 50 && found > 1_000 && missed > 1_000,
        "{refused} refused, {found} found, {missed} missed"
    );
}
