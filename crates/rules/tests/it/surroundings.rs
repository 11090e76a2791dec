//! Conditions beyond the item's text: windows, media, scores, places, domains and banks.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Amount, Bank, BankEntry, BankMatch, Facts, Fields, Item, Kind, Limits, Measure, Media, MediaState, Need,
    Number, Outcome, Plan, RuleError, RuleSource, Scan, Scores, Shape, Trigger, Value, Vocabulary,
};
use tidegate_schemas::{
    banks::BankKind,
    ids::{ItemKey, Millis, SubmissionId, TypeId},
};
use uuid::Uuid;

struct Data(Json);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        fn read(value: &Json) -> Value<'_> {
            match value {
                Json::String(text) => Value::Text(text),
                Json::Number(number) => Value::Number(Number::parse(&number.to_string()).unwrap()),
                Json::Array(list) => Value::List(list.iter().map(read).collect()),
                other => panic!("{other}"),
            }
        }
        self.0.get(name).map(read)
    }
}

const NOW: Millis = Millis(1_767_225_600_000);

fn entry_id(nth: usize) -> Uuid {
    Uuid::from_u128(nth as u128)
}

fn vocabulary(windows: &[Json]) -> Vocabulary {
    let mut vocabulary = Vocabulary::new();
    let fields = [
        ("text", Shape::one(Kind::Text)),
        ("links", Shape::list(Kind::Media)),
        ("site", Shape::one(Kind::Url)),
        ("amount", Shape::one(Kind::Number)),
        ("lat", Shape::one(Kind::Number)),
        ("lng", Shape::one(Kind::Number)),
        ("place", Shape::one(Kind::Geohash)),
    ];
    vocabulary.add(TypeId::new("post"), fields);
    vocabulary
        .add(TypeId::new("note"), [("text", Shape::one(Kind::Text)), ("amount", Shape::one(Kind::Text))]);
    windows.iter().for_each(|window| vocabulary.add_window(window.clone()));
    let banks: [(&str, BankKind, &[&str]); 8] = [
        ("short", BankKind::Text, &["ab", "free", "жы"]),
        ("terms", BankKind::Text, &["free money", "\u{200b}"]),
        ("patterns", BankKind::Regex, &["(", "coin[sz]"]),
        ("places", BankKind::Geo, &["u33d", "48.8566,2.3522,1000"]),
        ("domains", BankKind::Domain, &["bad.example"]),
        ("empty", BankKind::Text, &[]),
        ("faces", BankKind::Pdq, &[]),
        ("b", BankKind::Md5, &[]),
    ];
    for (key, kind, values) in banks {
        let entry = |(nth, value): (usize, &&str)| BankEntry {
            id: entry_id(nth),
            value: (*value).into(),
            labels: [].into(),
        };
        vocabulary.add_bank(Bank {
            key: key.into(),
            kind,
            entries: values.iter().enumerate().map(entry).collect(),
        });
    }
    vocabulary
}

fn compile_all(rules: &[Json], windows: &[Json]) -> Result<Plan, Vec<RuleError>> {
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "v1" }).collect();
    Plan::compile(&sources, &vocabulary(windows), &Limits::default())
}

fn rule(key: &str, when: &Json) -> Json {
    json!({"rule": key, "status": "live", "item_types": ["post"], "when": when, "actions": ["a"], "policies": ["p"]})
}

fn plan(when: &Json, windows: &[Json]) -> Plan {
    compile_all(&[rule("r", when)], windows).map_err(|errors| format!("{errors:?}")).unwrap()
}

fn scan(plan: &Plan, data: &Json, on: Trigger) -> Scan {
    let (type_id, user, data) = (TypeId::new("post"), ItemKey::new("user", "u1"), Data(data.clone()));
    plan.scan(&Item {
        type_id: &type_id,
        values: &data,
        user: Some(&user),
        on,
        now: NOW,
        submission: SubmissionId::from(Uuid::nil()),
    })
}

fn evaluate_without_facts(plan: &Plan, data: &Json) -> Outcome {
    plan.finish(scan(plan, data, Trigger::Item), &Facts::new())
}

/// The tree of the only match, as it is stored.
fn tree(outcome: &Outcome) -> Json {
    assert_eq!(outcome.matched.len(), 1, "{outcome:?}");
    serde_json::to_value(&outcome.matched[0].tree).unwrap()
}

fn errors(when: &Json, windows: &[Json]) -> Vec<(&'static str, String, &'static str)> {
    let errors = compile_all(&[rule("r", when)], windows).err().unwrap();
    errors.into_iter().map(|error| (error.kind, error.pointer.clone(), error.tag())).collect()
}

#[test]
fn equal_counts_share_one_need_with_the_larger_bound() {
    let window = json!({"window": "w", "over": "1h"});
    let rules = [
        rule("a", &json!({"count": {"window": "w", "gte": 3}})),
        rule(
            "b",
            &json!({"all": [{"count": {"window": "w", "gt": 7}}, {"text": {"in": ["text"], "words": ["hit"]}}]}),
        ),
        rule(
            "c",
            &json!({"all": [{"count": {"window": "w", "gt": 99}}, {"text": {"in": ["text"], "words": ["miss"]}}]}),
        ),
    ];
    let plan = compile_all(&rules, &[window]).unwrap();
    let scan = scan(&plan, &json!({"text": "hit"}), Trigger::Item);
    let [need] = scan.pending_needs() else { panic!("{:?}", scan.pending_needs()) };
    let Need::Count { window, key, at_least } = need else { panic!("{need:?}") };
    assert_eq!((window.as_str(), key.as_str(), *at_least), ("w", "user/u1", Amount::from_whole(8)));
    let mut facts = Facts::new();
    facts.set_count(need.clone(), Amount::from_whole(3));
    let outcome = plan.finish(scan, &facts);
    assert_eq!(
        tree(&outcome),
        json!({"count": {"outcome": "passed", "window": "w", "at_least": 3, "key": "user/u1", "counted": 3}})
    );
}

#[test]
fn items_are_counted_in_matching_windows_and_reports_in_none() {
    let windows = [
        json!({"window": "all", "over": "1h"}),
        json!({"window": "offers", "where": {"text": {"in": ["text"], "words": ["offer"]}}, "over": "1h"}),
        json!({"window": "spent", "item_types": ["post"], "by": "links", "sum": "amount", "over": "24h", "bucket": "1h"}),
        json!({"window": "links", "item_types": ["post"], "distinct": "links", "over": "24h"}),
        json!({"window": "notes", "item_types": ["note"], "over": "24h"}),
    ];
    let plan = plan(&json!({"strikes": {"gte": 1}}), &windows);
    let data = json!({"text": "hi", "links": ["a", "b", "a"], "amount": 2.5});
    let scanned = scan(&plan, &data, Trigger::Item);
    let added: Vec<_> = scanned
        .entries()
        .iter()
        .map(|it| {
            (
                it.window.as_str(),
                it.key.as_str(),
                it.amount,
                it.members.len(),
                it.bucket * it_bucket(&plan, it) <= it.at.0,
            )
        })
        .collect();
    assert_eq!(
        added,
        [
            ("all", "user/u1", Amount::ONE, 0, true),
            ("spent", "a", Amount(2_500_000), 0, true),
            ("spent", "b", Amount(2_500_000), 0, true),
            ("links", "user/u1", Amount::ZERO, 2, true),
        ]
    );
    assert!(scan(&plan, &data, Trigger::Report).entries().is_empty());
    assert_eq!(scan(&plan, &data, Trigger::Item).entries(), scanned.entries(), "a replay adds the same rows");
    let spent = plan.window(&"spent".into()).unwrap();
    assert_eq!((spent.measure, spent.length_millis, spent.bucket), (Measure::Sum, 86_400_000, 3_600_000));
}

fn it_bucket(plan: &Plan, entry: &tidegate_rules::WindowEntry) -> i64 {
    plan.window(&entry.window).unwrap().bucket
}

#[test]
fn item_outside_a_window_is_compared_with_its_count() {
    let windows = [
        json!({"window": "spent", "item_types": ["post"], "sum": "amount", "over": "1h"}),
        json!({"window": "received", "item_types": ["post"], "by": "place", "sum": "amount", "over": "1h"}),
        json!({"window": "many", "item_types": ["post"], "by": "place", "distinct": "amount", "over": "1h"}),
    ];
    let not = |window: &str| json!({"not": {"count": {"window": window, "gte": 10}}});
    let matches = |window: &str, data: &Json, counted: i64| {
        let plan = compile_all(&[rule("r", &not(window))], &windows).unwrap();
        let scan = scan(&plan, data, Trigger::Item);
        assert!(scan.entries().is_empty());
        let mut facts = Facts::new();
        for need in scan.pending_needs() {
            facts.set_count(need.clone(), Amount::from_whole(counted));
        }
        plan.finish(scan, &facts).matched.len()
    };
    let (placed, placeless) = (json!({"text": "x", "place": "u33dc0cpk"}), json!({"text": "x"}));
    for (window, data) in
        [("spent", &placed), ("spent", &placeless), ("received", &placed), ("many", &placed)]
    {
        let match_counts = (matches(window, data, 9), matches(window, data, 10));
        assert_eq!(match_counts, (1, 0), "{window} {data}");
    }
    // The item has no key for these windows.
    let rules = [rule("r", &json!({"any": [not("received"), not("many")]}))];
    let plan = compile_all(&rules, &windows).unwrap();
    assert!(scan(&plan, &json!({"text": "x", "amount": 1}), Trigger::Item).pending_needs().is_empty());
}

#[test]
fn values_beyond_the_limit_are_named_and_not_counted() {
    let window = json!({"window": "w", "item_types": ["post"], "by": "links", "over": "1h"});
    let plan = plan(&json!({"count": {"window": "w", "gte": 1}}), &[window]);
    let links: Vec<_> = (0..40).map(|n| format!("l{n}")).collect();
    let scanned = scan(&plan, &json!({"links": links}), Trigger::Item);
    assert_eq!((scanned.entries().len(), scanned.pending_needs().len()), (16, 16));
    let outcome = plan.finish(scanned, &Facts::new());
    assert_eq!(outcome.uncounted, ["w".into()]);
}

#[test]
fn explanation_lists_omissions_of_its_own_rule_only() {
    let window = |key: &str| json!({"window": key, "item_types": ["post"], "by": "links", "over": "1h"});
    let windows = [window("asked"), window("other")];
    let searched = |path: &str| json!({"text": {"in": [path], "words": ["x"]}});
    let rules = [
        rule("counts", &json!({"count": {"window": "asked", "gte": 1}})),
        rule("searches", &json!({"all": [searched("text"), searched("site")]})),
        rule("looks-elsewhere", &searched("site")),
    ];
    let plan = compile_all(&rules, &windows).unwrap();
    let links: Vec<_> = (0..40).map(|n| format!("l{n}")).collect();
    let long = "word ".repeat(14_000);
    let values = Data(json!({"text": long, "site": "https://x.example", "links": links}));
    let type_id = TypeId::new("post");
    let submission = SubmissionId::from(Uuid::nil());
    let item =
        Item { type_id: &type_id, values: &values, user: None, on: Trigger::Item, now: NOW, submission };
    let omissions_of = |rule: &str| json!(plan.begin_explanation(&item, &rule.into()).unwrap().omissions);
    assert_eq!(omissions_of("counts"), json!({"uncounted": ["asked"]}));
    assert_eq!(omissions_of("searches"), json!({"truncated": ["text"]}));
    assert_eq!(omissions_of("looks-elsewhere"), json!({}));
}

#[test]
fn errors_of_a_window_name_the_window() {
    let count = json!({"count": {"window": "w", "gte": 1}});
    for (window, place, tag) in [
        (json!({"window": "w", "over": "1h", "by": "linkz"}), "/by", "unknown_field"),
        (json!({"window": "w", "over": "1h", "by": "amount"}), "/by", "type"),
        (json!({"window": "w", "over": "1h", "item_types": ["post"], "sum": "text"}), "/sum", "type"),
        (json!({"window": "w", "over": "1h", "item_types": ["pots"]}), "/item_types/0", "unknown_item_type"),
        (
            json!({"window": "w", "over": "1h", "where": {"not": {"strikes": {"gte": 1}}}}),
            "/where/not",
            "shape",
        ),
        (json!({"window": "w", "over": "1h", "sum": "a", "distinct": "b"}), "", "shape"),
        (json!({"window": "w", "over": "1h", "bucket": "2h"}), "/bucket", "limit"),
        (json!({"window": "w", "over": "90d", "bucket": "1m"}), "/bucket", "limit"),
        (json!({"window": "w", "over": "0h"}), "/over", "type"),
    ] {
        // The rule that uses the window gets no error.
        assert_eq!(errors(&count, &[window]), [("window", place.to_owned(), tag)]);
    }
    let window = json!({"window": "w", "over": "1h"});
    let unknown_count = json!({"count": {"window": "v", "gte": 1}});
    assert_eq!(
        errors(&unknown_count, std::slice::from_ref(&window)),
        [("rule", "/when/count/window".to_owned(), "unknown_window")]
    );
    let warnings = compile_all(&[rule("r", &json!({"strikes": {"gte": 1}}))], &[window]).unwrap().warnings();
    assert!(warnings.iter().any(|warning| warning.kind == "window" && warning.tag() == "unused_window"));
}

fn bank_match(bank: &str, distance: u32) -> BankMatch {
    BankMatch {
        bank: bank.into(),
        entry: "7".to_owned(),
        kind: "pdq".to_owned(),
        distance,
        labels: vec!["gore".to_owned()],
    }
}

#[test]
fn one_matching_medium_is_enough() {
    let condition = json!({"media": {"in": ["links"], "bank": "faces", "max_distance": 20}});
    let plan = plan(&condition, &[]);
    let data = json!({"links": ["far", "broken", "near"]});
    let medium = |url: &str| match url {
        "far" => Media { state: MediaState::Ok, matches: vec![bank_match("faces", 25)] },
        "near" => Media {
            state: MediaState::LowQuality,
            matches: vec![bank_match("other", 1), bank_match("faces", 20)],
        },
        _ => Media { state: MediaState::FetchFailed, matches: Vec::new() },
    };
    let outcome = |near: bool| {
        let scanned = scan(&plan, &data, Trigger::Item);
        let mut facts = Facts::new();
        for need in scanned.pending_needs() {
            let Need::Media { url } = need else { panic!("{need:?}") };
            facts.set_media(need.clone(), medium(if near || url != "near" { url } else { "far" }));
        }
        plan.finish(scanned, &facts)
    };
    assert_eq!(
        tree(&outcome(true)),
        json!({"media": {"outcome": "passed", "in": ["links"], "hits": [{
            "url": "near", "state": "low_quality",
            "match": {"bank": "faces", "entry": "7", "kind": "pdq", "distance": 20, "labels": ["gore"]},
        }]}})
    );
    assert_eq!(outcome(false).errored[0].reason, "media: fetch_failed");
    assert!(scan(&plan, &json!({"text": "no media"}), Trigger::Item).pending_needs().is_empty());
}

#[test]
fn score_is_requested_once_and_may_be_missing() {
    let condition = json!({"score": {"model": "m", "gte": 0.5, "lt": 0.8}});
    let plan = plan(&json!({"any": [condition, {"score": {"model": "m", "label": "l", "gt": 0.9}}]}), &[]);
    let outcome = |answer: &dyn Fn(&mut Facts, Need)| {
        let scanned = scan(&plan, &json!({}), Trigger::Item);
        let [need] = scanned.pending_needs() else { panic!("{:?}", scanned.pending_needs()) };
        let mut facts = Facts::new();
        answer(&mut facts, need.clone());
        plan.finish(scanned, &facts)
    };
    let answer_score = |whole: f64| {
        move |facts: &mut Facts, need| {
            facts.set_scores(need, Scores { overall: Some(whole), ..Scores::default() });
        }
    };
    assert_eq!(outcome(&answer_score(0.5)).matched.len(), 1);
    assert!(outcome(&answer_score(0.8)).matched.is_empty());
    assert_eq!(outcome(&answer_score(f64::NAN)).errored[0].reason, "score: not_a_number");
    let label = |facts: &mut Facts, need| {
        facts.set_scores(need, Scores { labels: [("l".to_owned(), 0.95)].into(), ..Scores::default() });
    };
    assert_eq!(outcome(&label).matched.len(), 1);
    let unanswered = outcome(&|facts, need| facts.set_unknown(need));
    assert!(unanswered.matched.is_empty() && unanswered.errored.is_empty());
    assert_eq!(outcome(&|facts, need| facts.set_failed(need, "timeout")).errored[0].reason, "score: timeout");
}

#[test]
fn a_place_is_shown_with_its_distance_and_its_area() {
    let circle = json!({"lat": 52.52, "lng": 13.405, "km": 5});
    let circle_plan = plan(&json!({"geo": {"in": ["place"], "within": circle}}), &[]);
    let hit = &tree(&evaluate_without_facts(&circle_plan, &json!({"place": "u33dc0cpk"})))["geo"]["hits"][0];
    assert_eq!((&hit["place"], &hit["area"]), (&json!("u33dc0cpk"), &json!("52.52,13.405,5000")));
    assert!(hit["metres"].as_f64().unwrap() < 1_000.0, "{hit}");
    assert!(evaluate_without_facts(&circle_plan, &json!({"place": "u281z"})).matched.is_empty());
    let bank = plan(&json!({"geo": {"lat": "lat", "lng": "lng", "bank": "places"}}), &[]);
    assert_eq!(
        tree(&evaluate_without_facts(&bank, &json!({"lat": 52.52, "lng": 13.405})))["geo"]["hits"],
        json!([{"field": "lat", "place": "52.52,13.405", "area": "u33d", "entry": {"bank": "places", "id": entry_id(0)}}])
    );
    for nowhere in [json!({"lat": 52.52}), json!({"lat": 152.52, "lng": 13.405}), json!({})] {
        let outcome = evaluate_without_facts(
            &plan(&json!({"not": {"geo": {"lat": "lat", "lng": "lng", "cells": ["s"]}}}), &[]),
            &nowhere,
        );
        assert!(outcome.matched.is_empty(), "inapplicable: {nowhere}");
    }
}

#[test]
fn rules_are_evaluated_only_near_their_areas_and_domains() {
    let far = |n: i32| json!({"geo": {"in": ["place"], "within": {"lat": -60 + n % 50, "lng": -170 + n % 100, "m": 500}}});
    let domain = |n: i32| json!({"domain": {"in": ["links"], "any_of": [format!("d{n}.example")]}});
    let rules: Vec<_> =
        (0..400).map(|n| rule(&format!("r{n}"), &if n % 2 == 0 { far(n) } else { domain(n) })).collect();
    let plan = compile_all(&rules, &[]).unwrap();
    let warnings = plan.warnings();
    assert!(warnings.iter().all(|warning| warning.tag() != "unannounced"), "{warnings:?}");
    let scanned =
        scan(&plan, &json!({"place": "u33dc0cpk", "links": ["https://www.d7.example/x"]}), Trigger::Item);
    assert_eq!(scanned.evaluated_rules(), 1);
    assert_eq!(plan.finish(scanned, &Facts::new()).matched[0].rule.as_str(), "r7");
}

#[test]
fn media_rules_are_evaluated_only_for_items_with_media() {
    let media = |most: i32| json!({"media": {"in": ["links"], "bank": "faces", "max_distance": most}});
    let rules: Vec<_> = (0..300)
        .map(|n| match n % 3 {
            0 => media(n % 32),
            1 => json!({"any": [media(n % 32), {"text": {"in": ["text"], "words": [format!("w{n}")]}}]}),
            _ => json!({"all": [media(n % 32), {"field": {"path": "amount", "gt": n}}]}),
        })
        .zip(0..)
        .map(|(when, n): (Json, i32)| rule(&format!("r{n}"), &when))
        .collect();
    let plan = compile_all(&rules, &[]).unwrap();
    assert!(plan.warnings().iter().all(|warning| warning.tag() != "unannounced"), "{:?}", plan.warnings());
    let evaluated_and_needed = |data: Json| {
        let scanned = scan(&plan, &data, Trigger::Item);
        (scanned.evaluated_rules(), scanned.pending_needs().len())
    };
    assert_eq!(evaluated_and_needed(json!({"text": "no medium", "amount": 1_000})), (0, 0));
    assert_eq!(evaluated_and_needed(json!({"text": "w4", "links": [], "amount": 1_000})), (1, 0));
    let links = ["https://a.example/1.jpg", "https://a.example/2.jpg"];
    assert_eq!(evaluated_and_needed(json!({"links": links, "amount": 6})), (300, 2));
}

#[test]
fn tabs_and_line_ends_do_not_hide_hosts() {
    let plan = plan(&json!({"domain": {"in": ["links", "site", "text"], "any_of": ["bad.example"]}}), &[]);
    let split = "https://bad.exa\tm\r\nple/x";
    for field in ["site", "links"] {
        let data = if field == "site" { json!({"site": split}) } else { json!({"links": [split]}) };
        let tree = tree(&evaluate_without_facts(&plan, &data));
        let hit = &tree["domain"]["hits"][0];
        assert_eq!(
            (&hit["start"], &hit["end"], &hit["found"]),
            (&json!(8), &json!(22), &json!("bad.exa\tm\r\nple"))
        );
    }
    assert!(evaluate_without_facts(&plan, &json!({"text": split})).matched.is_empty());
    assert_eq!(evaluate_without_facts(&plan, &json!({"text": "see bad.example\nand more"})).matched.len(), 1);
    let tabs = "\t".repeat(70_000);
    for links in [json!([format!("https://bad.exa{tabs}mple/x")]), json!([tabs, "https://bad.example"])] {
        let outcome = evaluate_without_facts(&plan, &json!({ "links": links }));
        assert_eq!((outcome.matched.len(), outcome.truncated.len()), (1, 0));
    }
    // The removed part may be the end of the name.
    let long = format!("https://ok.example/{},bad.example", "x".repeat((64 << 10) - 31));
    for (behind, matched) in [("\t/x", 1), ("\t.org", 0), ("\t", 1)] {
        let outcome = evaluate_without_facts(&plan, &json!({"site": format!("{long}{behind}")}));
        let truncated = usize::from(behind != "\t");
        assert_eq!((outcome.matched.len(), outcome.truncated.len()), (matched, truncated), "{behind}");
    }
    let tabs = "\t".repeat(2_000);
    let split_name = long.replace("bad.", &format!("bad{tabs}."));
    for parted in [format!("{long}{tabs}.org"), format!("{split_name}.org")] {
        assert!(evaluate_without_facts(&plan, &json!({ "site": parted })).matched.is_empty());
    }
    // An address in one type is a text in another.
    let mut vocabulary = vocabulary(&[]);
    vocabulary.add(TypeId::new("note"), [("site", Shape::one(Kind::Text))]);
    let document = json!({"rule": "r", "when": {"domain": {"in": ["site"], "any_of": ["bad.example"]}}});
    let source = [RuleSource { document: &document, version: "v1" }];
    let plan = Plan::compile(&source, &vocabulary, &Limits::default()).unwrap();
    let matches = |type_id: &str, site: &str| {
        let (type_id, data) = (TypeId::new(type_id), Data(json!({"site": site})));
        let submission = SubmissionId::from(Uuid::nil());
        let item =
            Item { type_id: &type_id, values: &data, user: None, on: Trigger::Item, now: NOW, submission };
        plan.finish(plan.scan(&item), &Facts::new()).matched.len()
    };
    assert_eq!((matches("post", split), matches("note", split)), (1, 0));
    let lines = "bad.example\nand";
    assert_eq!((matches("post", lines), matches("note", lines)), (0, 1));
}

#[test]
fn bank_entry_is_named_and_unusable_ones_skipped() {
    for (leaf, text, nth) in [
        (json!({"text": {"in": ["text"], "bank": "terms", "view": "folded"}}), "FR33 m0ney", 0),
        (json!({"text": {"in": ["text"], "bank": "patterns"}}), "many coinz", 1),
        (json!({"domain": {"in": ["text"], "bank": "domains"}}), "http://x.bad.example/", 0),
    ] {
        let plan = compile_all(&[rule("r", &leaf)], &[]).unwrap();
        let warnings = plan.warnings();
        let tree = tree(&evaluate_without_facts(&plan, &json!({"text": text})));
        let hits = &tree.as_object().unwrap().values().next().unwrap()["hits"];
        assert_eq!(hits[0]["entry"]["id"], json!(entry_id(nth)), "{tree}");
        assert!(evaluate_without_facts(&plan, &json!({"text": "nothing"})).matched.is_empty());
        let unusable = warnings.iter().filter(|warning| warning.tag() == "unusable_entry").count();
        assert_eq!(unusable, usize::from(leaf.get("text").is_some()), "{warnings:?}");
    }
}

#[test]
fn bank_with_too_few_entries_never_matches() {
    for leaf in [
        json!({"in": ["text"], "bank": "empty"}),
        json!({"in": ["text"], "bank": "terms", "min_distinct": 5}),
    ] {
        let plan = compile_all(&[rule("r", &json!({"text": leaf}))], &[]).unwrap();
        let warnings = plan.warnings();
        assert!(evaluate_without_facts(&plan, &json!({"text": "free money"})).matched.is_empty());
        assert!(warnings.iter().all(|warning| warning.tag() != "unsatisfiable"), "{warnings:?}");
    }
}

#[test]
fn errors_of_geo_domains_and_banks_name_their_path() {
    for (when, place, tag) in [
        (json!({"geo": {"in": ["text"], "cells": ["u33"]}}), "/when/geo/in/0", "type"),
        (json!({"geo": {"lat": "lat", "lng": "place", "cells": ["u33"]}}), "/when/geo/lng", "type"),
        (json!({"geo": {"in": ["place"], "cells": ["ail"]}}), "/when/geo/cells/0", "type"),
        (json!({"geo": {"in": ["place"], "cells": "1,2,3"}}), "/when/geo/cells", "type"),
        (
            json!({"geo": {"in": ["place"], "within": {"lat": 91, "lng": 0, "m": 9}}}),
            "/when/geo/within/lat",
            "type",
        ),
        (
            json!({"geo": {"in": ["place"], "within": {"lat": 9, "lng": 0, "m": 0}}}),
            "/when/geo/within/m",
            "type",
        ),
        (json!({"geo": {"in": ["place"], "within": {"lat": 9, "lng": 0}}}), "/when/geo/within", "shape"),
        (json!({"geo": {"in": ["place"], "lat": "lat", "cells": ["u33"]}}), "/when/geo", "shape"),
        (json!({"geo": {"in": ["place"]}}), "/when/geo", "shape"),
        (json!({"geo": {"in": ["place"], "bank": "terms"}}), "/when/geo/bank", "type"),
        (json!({"geo": {"in": ["place"], "bank": "placez"}}), "/when/geo/bank", "unknown_bank"),
        (
            json!({"domain": {"in": ["links"], "any_of": ["https://a.example"]}}),
            "/when/domain/any_of/0",
            "type",
        ),
        (json!({"domain": {"in": ["amount"], "any_of": ["a.example"]}}), "/when/domain/in/0", "type"),
        (json!({"domain": {"in": ["links"]}}), "/when/domain", "shape"),
        (json!({"text": {"in": ["text"], "bank": "domains"}}), "/when/text/bank", "type"),
        (json!({"text": {"in": ["text"], "bank": "patterns", "view": "folded"}}), "/when/text/view", "shape"),
        (json!({"media": {"in": ["links"]}}), "/when/media", "shape"),
        (json!({"media": {"in": ["links"], "state": "gone"}}), "/when/media/state", "unknown_value"),
        (json!({"media": {"in": ["links"], "state": "ok", "bank": "b"}}), "/when/media/bank", "shape"),
        (json!({"media": {"in": ["amount"], "bank": "b"}}), "/when/media/in/0", "type"),
        (json!({"media": {"in": ["text"], "bank": "b"}}), "/when/media/in/0", "type"),
        (json!({"media": {"in": ["links"], "bank": "face"}}), "/when/media/bank", "unknown_bank"),
        (json!({"media": {"in": ["links"], "bank": "terms"}}), "/when/media/bank", "type"),
        (json!({"media": {"in": ["links"], "kind": "photo"}}), "/when/media/kind", "unknown_value"),
        (json!({"score": {"model": "m"}}), "/when/score", "shape"),
        (json!({"score": {"model": "m", "gte": "1"}}), "/when/score/gte", "type"),
    ] {
        assert_eq!(errors(&when, &[]), [("rule", place.to_owned(), tag)], "{when}");
    }
}

/// `all` is errored if a part is and none has failed, but a rule that can no longer match needs no facts.
#[test]
fn refuted_rules_need_no_facts() {
    let word = json!({"text": {"in": ["text"], "words": ["hit"]}});
    let media = json!({"media": {"in": ["links"], "bank": "faces"}});
    // The comparison is not indexed, so the word alone makes the rule a candidate.
    let number = json!({"field": {"path": "amount", "ne": 5}});
    let failing = |needs: &[Need]| {
        let mut facts = Facts::new();
        needs.iter().for_each(|need| facts.set_failed(need.clone(), "fetch_failed"));
        facts
    };
    for parts in [[&word, &media, &number], [&word, &number, &media]] {
        let plan = plan(&json!({"all": parts}), &[]);
        let outcome = |data: &Json| {
            let scanned = scan(&plan, data, Trigger::Item);
            let facts = failing(scanned.pending_needs());
            (scanned.pending_needs().len(), plan.finish(scanned, &facts))
        };
        let (asked, there) = outcome(&json!({"text": "hit", "links": ["a"], "amount": 1}));
        assert_eq!((asked, there.errored[0].reason.as_str()), (1, "media: fetch_failed"));
        let (asked, absent) = outcome(&json!({"text": "hit", "links": ["a"]}));
        assert_eq!((asked, absent), (0, Outcome::default()), "the compared field is absent");

        // An explanation looks up all facts, so the table applies without exceptions.
        let (type_id, data) = (TypeId::new("post"), Data(json!({"text": "hit", "links": ["a"]})));
        let item = Item {
            type_id: &type_id,
            values: &data,
            user: None,
            on: Trigger::Item,
            now: NOW,
            submission: SubmissionId::from(Uuid::nil()),
        };
        let pending = plan.begin_explanation(&item, &"r".into()).unwrap();
        let pending_needs: Vec<_> = pending.pending_needs().cloned().collect();
        let tree = serde_json::to_value(plan.finish_explanation(pending, &failing(&pending_needs))).unwrap();
        assert_eq!((pending_needs.len(), &tree["all"]["outcome"]), (1, &json!("errored")), "{tree}");
        let of = |kind: &str| {
            let parts = tree["all"]["of"].as_array().unwrap();
            parts.iter().find_map(|part| part.get(kind)).unwrap()["outcome"].as_str().unwrap().to_owned()
        };
        assert_eq!(["text", "media", "field"].map(of), ["passed", "errored", "inapplicable"]);
    }
}

#[test]
fn example_naming_an_unknown_window_or_bank_is_an_error() {
    let of = |facts: Json| {
        let mut test = json!({"item": {"text": "x"}, "expect": "match"});
        test.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
        let score =
            json!({"any": [{"score": {"model": "toxic", "gte": 1}}, {"count": {"window": "w", "gte": 2}}]});
        let mut rule = rule("r", &score);
        rule["tests"] = json!([test]);
        let errors = compile_all(&[rule], &[json!({"window": "w", "over": "1h"})]).err().unwrap_or_default();
        errors.into_iter().map(|error| (error.pointer.clone(), error.tag())).collect::<Vec<_>>()
    };
    let example_media = |bank: &str| json!({"media": [{"bank": bank, "entry": "e", "kind": "md5"}]});
    for (facts, expected) in [
        (json!({"counts": {"w": 3}, "scores": {"toxic": 0.5}}), None),
        (example_media("b"), None),
        (json!({"counts": {"x": 3}}), Some(("/tests/0/counts/x", "unknown_window"))),
        (json!({"scores": {"toxik": 0.5}}), Some(("/tests/0/scores/toxik", "unknown_model"))),
        (example_media("c"), Some(("/tests/0/media/0/bank", "unknown_bank"))),
    ] {
        let expected: Vec<_> = expected.map(|(at, tag)| (at.to_owned(), tag)).into_iter().collect();
        assert_eq!(of(facts.clone()), expected, "{facts}");
    }
}

#[test]
fn short_words_are_reported_in_banks_too() {
    let short = |text: Json| {
        let warnings = plan(&json!({"text": text}), &[]).warnings();
        let short = warnings.into_iter().find(|warning| warning.tag() == "short_word");
        short.map(|warning| (warning.pointer.clone(), warning.detail.clone()))
    };
    let any_of = |word: &str, view: &str| json!({"in": ["text"], "any_of": ["coins", word], "view": view});
    for (word, view, is_short) in [
        ("ab", "lower", true),
        ("äö", "lower", true),
        ("да", "lower", true),
        ("abc", "lower", false),
        ("a\u{301}\u{301}", "folded", true),
        ("aaa", "collapsed", true),
        ("ﬃ", "folded", false),
    ] {
        assert_eq!(short(any_of(word, view)).is_some(), is_short, "{word} {view}");
    }
    assert_eq!(short(json!({"in": ["text"], "words": ["ab"]})), None);
    let (pointer, detail) = short(json!({"in": ["text"], "bank": "short"})).unwrap();
    assert!(
        pointer.ends_with("/text/bank") && detail.contains("\"ab\"") && detail.contains("1 more"),
        "{detail}"
    );
    assert_eq!(short(json!({"in": ["text"], "bank": "short", "word": true})), None);
}

#[test]
fn media_conditions_that_never_match_are_warned_about() {
    let warned_members = |media: Json| {
        let warnings = plan(&json!({"media": media}), &[]).warnings().into_iter();
        let selected = warnings.filter(|warning| warning.tag() == "nothing_found");
        selected.map(|warning| warning.pointer.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (rest, expected) in [
        (json!({"bank": "faces", "max_distance": 31}), &[][..]),
        (json!({"bank": "faces", "kind": ["pdq", "md5"]}), &["kind"]),
        (json!({"bank": "faces", "kind": "md5"}), &["bank", "kind"]),
        (json!({"bank": "faces", "max_distance": 32}), &["max_distance"]),
        (json!({"max_distance": 31}), &[]),
        (json!({"max_distance": 256}), &["max_distance"]),
        (json!({"kind": "gradient", "max_distance": 7}), &[]),
        (json!({"kind": ["gradient", "sha1"], "max_distance": 8}), &["max_distance"]),
        (json!({"kind": "md5", "max_distance": 1}), &["max_distance"]),
        (json!({"state": "ok"}), &[]),
    ] {
        let mut media = rest.clone();
        media["in"] = json!(["links"]);
        assert_eq!(warned_members(media), expected, "{rest}");
    }
}
