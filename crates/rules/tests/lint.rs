//! What lint says of conditions that can never hold or never fail, and of rules that say the same.
#![allow(clippy::unwrap_used)]

use serde_json::{Value as Json, json};
use tidegate_rules::{Bank, BankEntry, Container, Kind, Limits, Plan, RuleSource, Shape, Vocabulary};
use tidegate_schemas::{banks::BankKind, ids::TypeId};

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
            ("place", Shape::one(Kind::Geohash)),
            ("places", Shape { kind: Kind::Geohash, container: Container::List }),
            ("position", Shape { kind: Kind::Number, container: Container::Map }),
        ],
    );
    let entry = |value: &str| BankEntry { id: value.into(), value: value.to_owned(), labels: [].into() };
    vocabulary.bank(Bank {
        key: "shelters".into(),
        kind: BankKind::Geo,
        entries: ["u33", "52.5,13.4,500"].map(entry).into(),
    });
    vocabulary
}

/// The kinds of warnings of each rule, apart from those that nothing announces.
fn warnings(conditions: &[Json]) -> Vec<(usize, &'static str)> {
    let rules: Vec<Json> = conditions.iter().map(|when| json!({"when": when})).collect();
    warnings_of(&rules)
}

fn warnings_of(rules: &[Json]) -> Vec<(usize, &'static str)> {
    let named = |(nth, rule): (usize, &Json)| {
        let mut rule = rule.clone();
        rule["rule"] = json!(nth.to_string());
        rule["item_types"] = json!(["post"]);
        rule
    };
    let rules: Vec<Json> = rules.iter().enumerate().map(named).collect();
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let warnings = Plan::compile(&sources, &vocabulary(), &Limits::default()).unwrap().warnings();
    let told = warnings.iter().map(|it| (it.rule.parse().unwrap(), it.tag()));
    told.filter(|(_, tag)| !["unannounced", "pattern_everywhere", "short_word", "regex_empty"].contains(tag))
        .collect()
}

fn field(path: &str, op: &str, value: impl Into<Json>) -> Json {
    json!({"field": {"path": path, op: value.into()}})
}

fn word(word: &str) -> Json {
    json!({"text": {"in": ["text"], "words": [word]}})
}

#[test]
fn parts_that_cannot_hold_together_are_seen() {
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
        both(field("title", "in", json!(["ab", "b"])), field("title", "starts_with", "c")),
        both(field("title", "eq", "ab"), json!({"not": field("title", "contains", "b")})),
        both(field("flag", "eq", true), field("flag", "ne", true)),
        both(field("likes", "gt", 5), json!({"not": field("likes", "gt", 3)})),
        both(word("x"), json!({"not": word("x")})),
        both(word("x"), json!({"not": {"text": {"in": ["title", "text"], "words": ["y", "X"]}}})),
        both(field("title", "exists", false), field("title", "ne", "a")),
        both(field("text", "exists", false), word("x")),
        both(field("title", "exists", false), json!({"not": field("title", "contains", "b")})),
        both(field("tags", "exists", false), field("tags", "eq", "a")),
        both(field("at", "lt", instant), field("at", "gte", instant)),
        both(field("at", "gt", instant), field("at", "lt", "2026-01-01T00:00:00.001Z")),
        both(field("at", "gt", json!({"ago": "1d"})), field("at", "lt", json!({"ago": "48h"}))),
        both(json!({"score": {"model": "m", "gte": 0.9}}), json!({"score": {"model": "m", "lt": 0.5}})),
        both(json!({"strikes": {"gte": 3}}), json!({"not": {"strikes": {"gte": 2}}})),
        both(field("likes", "eq", 5), json!({"any": [field("likes", "eq", 6), field("likes", "gt", 7)]})),
        json!({"text": {"in": ["text"], "regex": "a^b"}}),
        json!({"text": {"in": ["text"], "regex": ["x[a&&b]", "a$b"]}}),
        json!({"expr": "1 > 2"}),
        json!({"expr": "item.data.likes > 1 && 'a' == 'b'"}),
        json!({"expr": "item.data.likes > 1 && item.data.likes <= 1"}),
        json!({"expr": "size(item.data.tags) < 0"}),
        json!({"field": {"path": "tags", "eq": "a", "in": ["b"]}}),
        json!({"field": {"path": "tags", "in": ["a"], "not_in": ["b", "a"]}}),
        json!({"field": {"path": "tags", "eq": "a", "ne": "a", "of": "any"}}),
        both(field("tags", "eq", "a"), field("tags", "ne", "a")),
        both(field("tags", "eq", "a"), json!({"field": {"path": "tags", "in": ["a", "b"], "of": "none"}})),
        both(
            json!({"field": {"path": "title", "eq": "Abc", "ignore_case": true}}),
            field("title", "eq", "xbc"),
        ),
        json!({"field": {"path": "title", "contains": "ABC", "in": ["xxx"], "ignore_case": true}}),
    ] {
        assert_eq!(warnings(std::slice::from_ref(&when)), [(0, "unsatisfiable")], "{when}");
    }
}

fn sought(how: &str, what: impl Into<Json>) -> Json {
    json!({"text": {"in": ["text"], how: what.into()}})
}

fn viewed(view: &str, word: &str) -> Json {
    json!({"text": {"in": ["text"], "any_of": [word], "view": view}})
}

fn domain(name: &str) -> Json {
    json!({"domain": {"in": ["text"], "any_of": [name]}})
}

fn circle(metres: u32) -> Json {
    json!({"geo": {"in": ["place"], "within": {"lat": 52.5, "lng": 13.4, "m": metres}}})
}

#[test]
fn a_condition_inside_of_another_is_seen_from_both() {
    let any = |word: &str| sought("any_of", json!([word]));
    let least = |count: u8| json!({"text": {"in": ["text"], "any_of": ["one", "two", "six", "ten"], "min_distinct": count}});
    for (narrow, wide) in [
        (sought("words", json!(["abcd"])), any("abcd")),
        (any("abcde"), any("abcd")),
        (any("abcde"), any("bcd")),
        (sought("words", json!(["free money"])), sought("words", json!(["money"]))),
        (viewed("raw", "abCD"), viewed("lower", "bcd")),
        (viewed("lower", "scam"), viewed("folded", "scam")),
        (viewed("folded", "heello"), viewed("collapsed", "hel")),
        (least(2), sought("any_of", json!(["six", "ten", "two", "one"]))),
        (least(3), least(2)),
        (
            json!({"geo": {"in": ["place"], "cells": "u33d"}}),
            json!({"geo": {"in": ["place"], "cells": "u33"}}),
        ),
        (circle(100), circle(200)),
        (domain("x.bad.example"), domain("bad.example")),
        (field("title", "eq", "abcdef"), field("title", "starts_with", "abc")),
        (field("title", "in", json!(["abcdef", "xabc"])), field("title", "contains", json!(["abc", "z"]))),
        (field("title", "starts_with", "abcd"), field("title", "starts_with", "abc")),
        (field("title", "ends_with", "abcd"), field("title", "contains", "bc")),
        (
            field("title", "eq", "ABcdef"),
            json!({"field": {"path": "title", "starts_with": "abc", "ignore_case": true}}),
        ),
    ] {
        for (first, second, told) in [(&narrow, &wide, 0), (&wide, &narrow, 1)] {
            assert_eq!(warnings(&[first.clone(), second.clone()]), [(told, "subsumed")], "{first} {second}");
        }
        let (not_narrow, not_wide) = (json!({"not": narrow}), json!({"not": wide}));
        // Of what is denied less is seen.
        let silent = narrow.get("field").is_some() || narrow["text"].get("min_distinct").is_some();
        let both = json!({"all": [narrow, not_wide]});
        assert_eq!(warnings(std::slice::from_ref(&both)), [(0, "unsatisfiable")], "{both}");
        let subsumed = warnings(&[not_wide.clone(), not_narrow.clone()]);
        assert!(subsumed == [(0, "subsumed")] || silent && subsumed.is_empty(), "{not_wide} {not_narrow}");
    }
    for (one, other) in [
        (any("abcd"), sought("words", json!(["abcd"]))),
        (sought("words", json!(["abcd"])), sought("words", json!(["abc"]))),
        (sought("words", json!(["abcdx"])), sought("words", json!(["abcd"]))),
        (viewed("lower", "abcd"), viewed("raw", "abcd")),
        (viewed("collapsed", "helo"), viewed("collapsed", "hello")),
        (any("abcd"), json!({"text": {"in": ["title"], "any_of": ["abc"]}})),
        (sought("any_of", json!(["abcd", "xyz"])), any("abc")),
        (domain("xbad.example"), domain("bad.example")),
        (field("title", "starts_with", "abc"), field("title", "ends_with", "bc")),
        (field("title", "starts_with", json!(["abcd", "x"])), field("title", "starts_with", "abc")),
        (field("title", "in", json!(["abc", "x"])), field("title", "starts_with", "ab")),
        (json!({"geo": {"in": ["place"], "cells": "u33"}}), json!({"geo": {"in": ["place"], "cells": "33"}})),
    ] {
        assert_eq!(
            warnings(&[one.clone(), json!({"not": {"not": other}})])
                .iter()
                .filter(|(nth, _)| *nth == 0)
                .count(),
            0,
            "{one} {other}"
        );
        assert_eq!(warnings(&[json!({"all": [one, {"not": other}]})]), [], "{one} {other}");
    }
}

#[test]
fn what_lies_in_no_area_lies_somewhere() {
    for area in [
        json!({"cells": ["u33"]}),
        json!({"cells": ["u33", "u09"], "within": {"lat": 52.5, "lng": 13.4, "m": 200}}),
        json!({"bank": "shelters"}),
    ] {
        let geo = |fields: Json| {
            let mut geo = area.clone();
            geo["in"] = fields;
            json!({"geo": geo})
        };
        let not = |fields: Json| json!({"not": geo(fields)});
        let (one, other, either) =
            (not(json!(["place"])), not(json!(["places"])), not(json!(["place", "places"])));
        let both = json!({"all": [one, other]});
        // What has only `place`, outside, is no match of `both`.
        assert_eq!(warnings(&[either.clone(), both.clone()]), [(1, "subsumed")], "{area}");
        assert_eq!(warnings(&[either.clone(), one.clone()]), [], "{area}");
        assert_eq!(warnings(&[both, one.clone()]), [(0, "subsumed")], "{area}");
        assert_eq!(warnings(&[either, not(json!(["places", "place"]))]), [(1, "same_condition")], "{area}");
        assert_eq!(warnings(&[one.clone(), field("place", "exists", true)]), [(0, "subsumed")], "{area}");
        let nowhere = json!({"all": [one, field("place", "exists", false)]});
        assert_eq!(warnings(std::slice::from_ref(&nowhere)), [(0, "unsatisfiable")], "{nowhere}");
        let mut pair = area.clone();
        (pair["lat"], pair["lng"]) = (json!("position.lat"), json!("position.lng"));
        let pair = json!({"not": {"geo": pair}});
        let also = json!({"all": [pair, other]});
        assert_eq!(warnings(&[also.clone(), pair]), [(0, "subsumed")], "{area}");
        assert_eq!(warnings(&[also, other]), [(0, "subsumed")], "{area}");
    }
}

#[test]
fn parts_that_can_hold_together_are_left_alone() {
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
fn a_condition_that_cannot_fail_is_seen() {
    for when in [
        json!({"any": [field("likes", "gt", 5), field("likes", "lte", 5)]}),
        json!({"any": [field("title", "eq", "a"), field("title", "ne", "a")]}),
        json!({"any": [word("x"), {"not": word("x")}]}),
        json!({"not": {"all": [field("likes", "gt", 5), field("likes", "lt", 5)]}}),
        json!({"any": [field("title", "exists", true), field("title", "exists", false)]}),
        json!({"any": [field("flag", "eq", true), field("flag", "eq", false)]}),
        json!({"any": [field("tags", "eq", "a"), field("tags", "ne", "a")]}),
        json!({"any": [field("tags", "in", json!(["a", "b"])), field("tags", "ne", "a")]}),
        json!({"field": {"path": "tags", "eq": "a", "ne": "a", "of": "none"}}),
        json!({"field": {"path": "title", "eq": "a", "ne": "a", "of": "none"}}),
        json!({"expr": "2 > 1"}),
        json!({"expr": "size(item.data.tags) >= 0"}),
    ] {
        assert_eq!(warnings(std::slice::from_ref(&when)), [(0, "always_true")], "{when}");
    }
}

#[test]
fn rules_that_differ_only_in_notation_say_the_same() {
    let likes = field("likes", "eq", 1);
    for (one, other) in [
        (json!({"all": [word("a"), likes]}), json!({"all": [{"all": [likes]}, word("a")]})),
        (field("title", "in", json!(["a", "b"])), field("title", "in", json!(["b", "a"]))),
        (field("title", "in", json!(["a"])), field("title", "eq", "a")),
        (field("tags", "in", json!(["a"])), json!({"field": {"path": "tags", "eq": "a", "of": "any"}})),
        (likes.clone(), field("likes", "eq", 1.0)),
        (word("a B"), word("A b")),
        (json!({"expr": "item.data.likes > 5"}), field("likes", "gt", 5)),
        (
            json!({"expr": "item.data.likes > 5 && item.data.likes < 9"}),
            json!({"field": {"path": "likes", "lt": 9, "gt": 5}}),
        ),
        (json!({"not": field("likes", "gt", 5)}), field("likes", "lte", 5)),
        (json!({"any": [word("a"), word("b")]}), json!({"text": {"in": ["text"], "words": ["b", "a"]}})),
        (field("at", "gt", json!({"ago": "24h"})), field("at", "gt", json!({"ago": "1d"}))),
        (json!({"expr": "size(item.data.title)>3+1"}), json!({"expr": "size(item.data.title) > 3 + 1"})),
    ] {
        let found = warnings(&[one.clone(), other.clone()]);
        assert_eq!(found, [(1, "same_condition")], "{one} {other}");
    }
}

#[test]
fn a_rule_that_acts_where_another_one_may_not_is_covered_by_none() {
    let (narrow, wide) = (field("likes", "gt", 5), field("likes", "gte", 5));
    let with = |when: &Json, members: Json| {
        let mut rule = members;
        rule["when"] = when.clone();
        rule
    };
    let covered: &[_] = &[(0, "subsumed")];
    let salted = |percent: u8| json!({"rollout": {"percent": percent, "salt": "s"}});
    for (own, other, expected) in [
        (json!({}), json!({"limits": {"actions_per_day": 3}}), &[][..]),
        (json!({"limits": {"actions_per_day": 3}}), json!({"limits": {"actions_per_day": 3}}), &[]),
        (json!({"limits": {"per_user_cooldown": "1h"}}), json!({"limits": {"per_user_cooldown": "1h"}}), &[]),
        (json!({"limits": {"actions_per_day": 3}}), json!({}), covered),
        (json!({"rollout": {"percent": 20}}), json!({"rollout": {"percent": 20}}), &[]),
        (salted(20), salted(20), covered),
        (salted(20), salted(10), &[]),
        (salted(20), json!({}), covered),
        (json!({"review_sample": 5}), json!({"review_sample": 5}), &[]),
        (json!({}), json!({"review_sample": 5}), covered),
        (json!({"status": "background"}), json!({"status": "draft"}), &[]),
    ] {
        let rules = [with(&narrow, own.clone()), with(&wide, other.clone())];
        assert_eq!(warnings_of(&rules), expected, "{own} {other}");
    }
    let over = with(&wide, json!({"expires_at": "2020-01-01T00:00:00Z"}));
    assert!(warnings_of(&[over, with(&wide, json!({}))]).is_empty(), "one takes over from the other");
}

#[test]
fn a_rule_that_another_one_covers_is_seen() {
    let words = |fields: Json, words: Json| json!({"text": {"in": fields, "words": words}});
    for (narrow, wide) in [
        (json!({"all": [word("a"), field("likes", "gt", 5)]}), word("a")),
        (field("likes", "gt", 5), field("likes", "gte", 5)),
        (json!({"field": {"path": "likes", "gt": 5, "lt": 8}}), field("likes", "ne", 9)),
        (field("title", "eq", "a"), field("title", "in", json!(["a", "b"]))),
        (field("title", "not_in", json!(["a", "b"])), field("title", "ne", "a")),
        (field("tags", "eq", "a"), field("tags", "in", json!(["a", "b"]))),
        (words(json!(["text"]), json!(["a"])), words(json!(["title", "text"]), json!(["b", "a"]))),
        (json!({"text": {"in": ["text"], "all_of": ["aaa", "bbb"], "word": true}}), word("AAA")),
        (json!({"not": words(json!(["text"]), json!(["a", "b"]))}), json!({"not": word("a")})),
        (field("likes", "gt", 5), field("likes", "exists", true)),
        (json!({"strikes": {"gte": 3}}), json!({"strikes": {"gt": 1}})),
    ] {
        assert_eq!(warnings(&[narrow.clone(), wide.clone()]), [(0, "subsumed")], "{narrow} {wide}");
        assert_eq!(warnings(&[wide, narrow.clone()]), [(1, "subsumed")], "{narrow}");
    }
    for (one, other) in [
        (field("likes", "gt", 5), field("likes", "gt", 6)),
        (field("title", "eq", "a"), field("text", "in", json!(["a", "b"]))),
        (json!({"all": [word("a"), word("b")]}), json!({"all": [word("a"), word("c")]})),
    ] {
        let found = warnings(&[one.clone(), other.clone()]);
        let expected: &[_] = if one == field("likes", "gt", 5) { &[(1, "subsumed")] } else { &[] };
        assert_eq!(found, expected, "{one} {other}");
    }
}

/// What is said of rules that their patterns bring to the end of their steps.
fn costly(when: &Json, entries: &[&str]) -> Vec<String> {
    let mut vocabulary = vocabulary();
    let entry =
        |value: &&str| BankEntry { id: (*value).into(), value: (*value).to_owned(), labels: [].into() };
    let entries = entries.iter().map(entry).collect();
    vocabulary.bank(Bank { key: "rx".into(), kind: BankKind::Regex, entries });
    let document = json!({"rule": "r", "item_types": ["post"], "when": when});
    let plan =
        Plan::compile(&[RuleSource { document: &document, version: "1" }], &vocabulary, &Limits::default());
    let warnings = plan.unwrap().warnings();
    warnings.iter().filter(|it| it.tag() == "regex_costly").map(|it| it.detail.clone()).collect()
}

#[test]
fn patterns_that_take_all_steps_of_a_rule_together_are_told_with_the_length_that_is_left() {
    let heavy: Vec<String> = (0..300).map(|n| format!("[a-z ]{{{}}}K[0-9]{{500}}", 600 + n)).collect();
    let heavy: Vec<&str> = heavy.iter().map(String::as_str).collect();
    let own = costly(&json!({"text": {"in": ["text"], "regex": heavy}}), &[]);
    let together = own.last().unwrap();
    assert!(together.contains("its 300 patterns together") && together.contains("steps_per_rule"), "{own:?}");
    assert!(together.contains("more than 80 bytes it ends as `errored: deadline`"), "{own:?}");
    let of_bank = json!({"text": {"in": ["text"], "bank": "rx"}});
    assert_eq!(costly(&of_bank, &heavy), [together.as_str()]);
    let one = costly(&of_bank, &heavy[..1]);
    assert!(one.len() == 1 && one[0].contains("one of its patterns takes"), "{one:?}");
    // Each of those that hold a word has the steps for itself, and light ones share those of the item.
    let light: Vec<String> = (0..300).map(|n| format!("pat{n}q[0-9]+z")).collect();
    let light: Vec<&str> = light.iter().map(String::as_str).collect();
    assert!(costly(&of_bank, &light).is_empty() && costly(&of_bank, &[]).is_empty());
    // One of them is enough to have them all run one after the other.
    let mixed: Vec<&str> = light.iter().chain(&heavy[..1]).copied().collect();
    assert!(costly(&of_bank, &mixed)[0].contains("its 301 patterns together"), "{mixed:?}");
    assert!(!costly(&json!({"not": of_bank}), &light).is_empty(), "what announces nothing is judged whole");
}

#[test]
fn what_a_bank_will_hold_nobody_knows() {
    let mut vocabulary = vocabulary();
    for kind in [BankKind::Text, BankKind::Regex, BankKind::Domain, BankKind::Geo] {
        vocabulary.bank(Bank { key: format!("no-{}", kind.name()).into(), kind, entries: [].into() });
    }
    let entry = |value: &str| BankEntry { id: value.into(), value: value.to_owned(), labels: [].into() };
    let entries = ["bad.example"].map(entry).into();
    vocabulary.bank(Bank { key: "sites".into(), kind: BankKind::Domain, entries });
    let told = |conditions: &[Json]| {
        let rule = |(nth, when)| json!({"rule": format!("r{nth}"), "item_types": ["post"], "when": when});
        let rules: Vec<Json> = conditions.iter().enumerate().map(rule).collect();
        let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
        let warnings = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap().warnings();
        warnings.iter().map(|it| format!("{} {}", it.rule, it.tag())).collect::<Vec<_>>()
    };
    let of = |kind: &str| json!({kind: {"in": ["text"], "bank": format!("no-{kind}")}});
    let patterns = json!({"text": {"in": ["text"], "bank": "no-regex"}});
    let geo = json!({"geo": {"in": ["place"], "bank": "no-geo"}});
    let sites = json!({"domain": {"in": ["text"], "bank": "sites"}});
    let site = json!({"domain": {"in": ["text"], "any_of": ["bad.example"]}});
    let several = json!({"text": {"in": ["text"], "bank": "no-text", "min_distinct": 3}});
    for when in [of("domain"), of("text"), patterns.clone(), geo.clone(), several.clone()] {
        assert_eq!(told(std::slice::from_ref(&when)), [""; 0], "{when}");
        assert!(!told(&[json!({"not": when})]).iter().any(|it| it.contains("always_true")), "{when}");
        let not_both = json!({"all": [when, {"not": when}]});
        assert_eq!(told(&[not_both]), ["r0 unsatisfiable"], "what is certain");
        assert_eq!(told(&[when.clone(), when.clone()]), ["r1 same_condition"], "{when}");
    }
    assert_eq!(told(&[json!({"all": [sites, {"not": site}]})]), [""; 0], "there may be others");
    assert_eq!(told(&[json!({"all": [site, {"not": sites}]})]), ["r0 unsatisfiable"]);
    assert_eq!(told(&[site.clone(), sites.clone()]), ["r0 subsumed"]);
    assert_eq!(told(&[json!({"all": [of("text"), field("text", "exists", false)]})]), ["r0 unsatisfiable"]);
}
