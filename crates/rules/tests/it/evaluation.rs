//! Outcomes of rules on an item, through the public interface.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    ConditionResult, Container, Explained, Facts, Fields, Hit, Item, Kind, Limits, Lookback, Need, Number,
    Outcome, Plan, RuleSource, Shape, TestItem, TestResult, Trigger, Value, Vocabulary, run_tests,
};
use tidegate_schemas::{
    ids::{ItemKey, Millis, SubmissionId, TypeId},
    item_types::{ItemType, Mode, datetime},
    validation_error::Pointer,
};

struct Data(Json);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).filter(|value| !value.is_null()).map(|value| read(name, value))
    }
}

fn read<'a>(name: &str, value: &'a Json) -> Value<'a> {
    match value {
        Json::String(text) if name == "createdAt" => Value::Datetime(datetime::parse(text).unwrap()),
        Json::String(text) => Value::Text(text),
        Json::Number(number) => Value::Number(Number::parse(&number.to_string()).unwrap()),
        Json::Bool(boolean) => Value::Boolean(*boolean),
        Json::Array(list) => Value::List(list.iter().map(|value| read(name, value)).collect()),
        Json::Object(object) if name == "author" => {
            Value::Related { type_id: object["typeId"].as_str().unwrap(), id: object["id"].as_str().unwrap() }
        }
        Json::Object(object) => {
            Value::Map(object.iter().map(|(key, v)| (key.as_str(), read(name, v))).collect())
        }
        Json::Null => unreachable!(),
    }
}

fn vocabulary() -> Vocabulary {
    let mut vocabulary = Vocabulary::new();
    let text = Shape::one(Kind::Text);
    vocabulary.add(
        TypeId::new("post"),
        [
            ("text", text),
            ("title", text),
            ("author", Shape::one(Kind::Related)),
            ("createdAt", Shape::one(Kind::Datetime)),
            ("likes", Shape::one(Kind::Number)),
            ("verified", Shape::one(Kind::Boolean)),
            ("tags", Shape::list(Kind::Text)),
            ("scores", Shape { kind: Kind::Number, container: Container::List }),
            ("labels", Shape::map(Kind::Text)),
        ],
    );
    vocabulary.add(TypeId::new("user"), [("text", text), ("likes", text)]);
    vocabulary
}

fn compile(rules: &[Json], limits: &Limits) -> Plan {
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "v1" }).collect();
    Plan::compile(&sources, &vocabulary(), limits).map_err(|errors| format!("{errors:?}")).unwrap()
}

fn rule(when: &Json) -> Json {
    json!({"rule": "r", "status": "live", "item_types": ["post"], "when": when})
}

fn user() -> ItemKey {
    ItemKey::new("user", "u1")
}

fn with_item<T>(data: Json, see: impl FnOnce(&Item<'_>) -> T) -> T {
    let (type_id, user, data) = (TypeId::new("post"), user(), Data(data));
    see(&Item {
        type_id: &type_id,
        values: &data,
        user: Some(&user),
        on: Trigger::Item,
        now: Millis(1_000_000),
        submission: SubmissionId::random(),
    })
}

fn outcome_of(plan: &Plan, data: Json) -> Outcome {
    with_item(data, |item| plan.finish(plan.scan(item), &Facts::new()))
}

/// Outcome of `when`, derived from a rule with it and a rule with its negation.
fn verdict(when: &Json, data: &Json) -> ConditionResult {
    let passes = |when: Json| {
        !outcome_of(&compile(&[rule(&when)], &Limits::default()), data.clone()).matched.is_empty()
    };
    match (passes(when.clone()), passes(json!({"not": when}))) {
        (true, false) => ConditionResult::Passed,
        (false, true) => ConditionResult::Failed,
        (false, false) => ConditionResult::Inapplicable,
        (true, true) => unreachable!(),
    }
}

#[test]
fn the_demo_rule_matches_with_its_word_and_place() {
    let plan = compile(
        &[json!({
            "rule": "demo-scam", "name": "Scam", "status": "live", "item_types": ["post"],
            "when": {"text": {"in": ["text"], "words": ["scamcoin"]}},
            "policies": ["scam"], "actions": [{"id": "limit_reach", "params": {"hours": 24}}],
        })],
        &Limits::default(),
    );
    let outcome = outcome_of(&plan, json!({"text": "Buy ScamCoin now"}));
    assert_eq!(
        serde_json::to_value(&outcome).unwrap(),
        json!({"matched": [{
            "rule": "demo-scam", "name": "Scam", "version": "v1", "status": "live",
            "policies": ["scam"], "actions": [{"id": "limit_reach", "params": {"hours": 24}}],
            "tree": {"text": {"outcome": "passed", "in": ["text"], "view": "lower", "hits": [
                {"field": "text", "sought": "scamcoin", "start": 4, "end": 12, "found": "ScamCoin"}
            ]}},
        }]})
    );
    let stored = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&stored).unwrap(), outcome);
    assert!(outcome_of(&plan, json!({"text": "scamcoins"})).matched.is_empty());
}

#[test]
fn absent_field_fails_text_and_is_inapplicable_to_comparisons() {
    let text = json!({"text": {"in": ["title"], "any_of": ["x"]}});
    assert_eq!(verdict(&text, &json!({})), ConditionResult::Failed);
    assert_eq!(
        verdict(&json!({"text": {"in": ["title"], "regex": "x*"}}), &json!({})),
        ConditionResult::Failed
    );
    for op in ["eq", "ne", "lt", "lte", "gt", "gte"] {
        assert_eq!(
            verdict(&json!({"field": {"path": "likes", op: 3}}), &json!({})),
            ConditionResult::Inapplicable
        );
    }
    for op in ["in", "not_in"] {
        assert_eq!(
            verdict(&json!({"field": {"path": "likes", op: [3]}}), &json!({})),
            ConditionResult::Inapplicable
        );
    }
    let exists = |wanted: bool| json!({"field": {"path": "likes", "exists": wanted}});
    assert_eq!(verdict(&exists(true), &json!({})), ConditionResult::Failed);
    assert_eq!(verdict(&exists(false), &json!({})), ConditionResult::Passed);
    assert_eq!(verdict(&exists(true), &json!({"likes": 0})), ConditionResult::Passed);
    let ranged = json!({"field": {"path": "likes", "exists": true, "lt": 3}});
    assert_eq!(verdict(&ranged, &json!({})), ConditionResult::Failed);
}

#[test]
fn strike_points_are_looked_up_once_and_decide() {
    let strikes = |n: i64| json!({"strikes": {"gte": n, "within": "30d"}});
    let plan = compile(
        &[
            json!({"rule": "a", "when": {"all": [strikes(3), {"text": {"in": ["text"], "words": ["hit"]}}]}}),
            json!({"rule": "b", "when": strikes(4)}),
            json!({"rule": "c", "when": {"all": [strikes(1), {"text": {"in": ["text"], "words": ["miss"]}}]}}),
        ],
        &Limits::default(),
    );
    let (scan, quiet) = with_item(json!({"text": "hit"}), |item| (plan.scan(item), plan.scan(item)));
    let need = Need::Strikes { user: user(), within: Lookback::parse("30d") };
    assert_eq!(scan.pending_needs(), std::slice::from_ref(&need));
    let mut facts = Facts::new();
    facts.set_strikes(need.clone(), 3);
    let outcome = plan.finish(scan, &facts);
    assert_eq!(outcome.matched.iter().map(|m| m.rule.as_str()).collect::<Vec<_>>(), ["a"]);
    let mut facts = Facts::new();
    facts.set_failed(need, "store_unavailable");
    let outcome = plan.finish(quiet, &facts);
    let errored: Vec<_> = outcome.errored.iter().map(|e| (e.rule.as_str(), e.reason.as_str())).collect();
    assert_eq!(errored, [("a", "strikes: store_unavailable"), ("b", "strikes: store_unavailable")]);
}

fn first_hit(search: &Json, text: &str) -> Option<Hit> {
    let mut leaf = json!({"in": ["text"]});
    leaf.as_object_mut().unwrap().extend(search.as_object().unwrap().clone());
    let plan = compile(&[rule(&json!({"text": leaf}))], &Limits::default());
    let mut outcome = outcome_of(&plan, json!({"text": text}));
    let Explained::Text(leaf) = outcome.matched.pop()?.tree else { panic!("a text condition") };
    Some(leaf.hits[0].clone())
}

#[test]
fn places_are_whole_characters_of_the_original() {
    // Searched word, text, and hit in the original.
    let cases = [
        ("istanbul", "x ISTANBUL", Some("ISTANBUL")),
        ("İstanbul", "in İSTANBUL", Some("İSTANBUL")),
        ("stanbul", "İİİ İSTANBUL", Some("STANBUL")),
        // Inside of the letters of one character: the whole character is shown.
        ("\u{307}st", "aİSTb", Some("İST")),
        ("ai", "AİST", Some("Aİ")),
        ("straße", "DIE STRAẞE", Some("STRAẞE")),
        ("ende", "ẞẞẞ ENDE", Some("ENDE")),
        ("οδος", "ΟΔΟΣ", Some("ΟΔΟΣ")),
        ("spam", "日本語 SPAM 日本", Some("SPAM")),
        ("本語", "日本語", Some("本語")),
        ("cafe", "CAFE\u{301}", Some("CAFE")),
        ("👩", "👨\u{200d}👩\u{200d}👧", Some("👩")),
        ("sc\u{200b}am", "SC\u{200b}AM", Some("SC\u{200b}AM")),
        ("k", "\u{212a}elvin", Some("\u{212a}")),
        ("ⱥ", "Ⱥx", Some("Ⱥ")),
        ("strasse", "STRAẞE", None),
    ];
    for (sought, text, expected) in cases {
        let hit = first_hit(&json!({"any_of": [sought]}), text);
        assert_eq!(hit.as_ref().map(|hit| &text[hit.start..hit.end]), expected, "{sought} in {text}");
        assert_eq!(hit.map(|hit| hit.found).as_deref(), expected);
    }
    let hit = first_hit(&json!({"regex": "e.d", "view": "lower"}), "İẞ END").unwrap();
    assert_eq!((hit.start, hit.end), (6, 9));
}

#[test]
fn whole_word_has_no_word_character_next_to_it() {
    let has_hit = |word: &str, text: &str| first_hit(&json!({"words": [word]}), text).is_some();
    assert!(has_hit("scam", "SCAM!") && has_hit("scam", "a-scam-b") && has_hit("scam", "scams scam"));
    assert!(!has_hit("scam", "scams") && !has_hit("scam", "_scam") && !has_hit("scam", "éscam"));
    // A combining mark and a joiner belong to the word; a zero-width space ends it.
    assert!(!has_hit("cafe", "cafe\u{301}") && !has_hit("scam", "scam\u{200d}x"));
    assert!(has_hit("scam", "scam\u{200b}x"));
    assert!(has_hit("c++", "c++ is") && !has_hit("c++", "c++11"));
    assert!(first_hit(&json!({"any_of": ["aa"], "word": true}), "aaa aa").is_some_and(|hit| hit.start == 4));
}

#[test]
fn comparisons_support_every_type() {
    let data = json!({
        "likes": 5, "verified": true, "title": "Hi", "tags": ["a", "b"], "scores": [1, 9],
        "createdAt": "2026-01-02T00:00:00.000Z", "author": {"typeId": "user", "id": "u1"}, "labels": {"lang": "en"},
    });
    let cases = [
        (json!({"path": "likes", "gte": 5, "lt": 6}), ConditionResult::Passed),
        (json!({"path": "likes", "gt": 5}), ConditionResult::Failed),
        (json!({"path": "likes", "eq": 5.0}), ConditionResult::Passed),
        (json!({"path": "verified", "eq": true}), ConditionResult::Passed),
        (json!({"path": "title", "in": ["Hi", "Ho"]}), ConditionResult::Passed),
        (json!({"path": "title", "not_in": ["Hi"]}), ConditionResult::Failed),
        (json!({"path": "createdAt", "lt": "2026-01-02T00:00:00.001Z"}), ConditionResult::Passed),
        (json!({"path": "createdAt", "eq": "2026-01-02T01:00:00+01:00"}), ConditionResult::Passed),
        (json!({"path": "author", "eq": {"typeId": "user", "id": "u1"}}), ConditionResult::Passed),
        (json!({"path": "author.id", "eq": "u1"}), ConditionResult::Passed),
        (json!({"path": "labels.lang", "eq": "en"}), ConditionResult::Passed),
        (json!({"path": "labels.none", "eq": "en"}), ConditionResult::Inapplicable),
        (json!({"path": "tags", "eq": "b"}), ConditionResult::Passed),
        (json!({"path": "tags", "eq": "a"}), ConditionResult::Passed),
        (json!({"path": "tags", "ne": "b"}), ConditionResult::Failed),
        // One element must lie inside of the whole range.
        (json!({"path": "scores", "gt": 1, "lt": 9}), ConditionResult::Failed),
        (json!({"path": "scores", "gt": 1, "lt": 10}), ConditionResult::Passed),
    ];
    for (field, expected) in cases {
        assert_eq!(verdict(&json!({"field": field}), &data), expected, "{field}");
    }
}

#[test]
fn status_event_type_and_expiry_select_the_rules() {
    let with = |key: &str, name: &str, value: Json| {
        let mut rule = json!({"rule": key, "when": {"text": {"in": ["text"], "words": ["hit"]}}});
        rule[name] = value;
        rule
    };
    let rules = [
        with("draft", "status", json!("draft")),
        with("archived", "status", json!("archived")),
        with("report", "on", json!(["report"])),
        with("other-type", "item_types", json!(["user"])),
        with("ends-now", "expires_at", json!("1970-01-01T00:16:40.000Z")),
        with("ends-later", "expires_at", json!("1970-01-01T00:16:40.001Z")),
    ];
    let outcome = outcome_of(&compile(&rules, &Limits::default()), json!({"text": "hit"}));
    assert_eq!(outcome.matched.iter().map(|m| m.rule.as_str()).collect::<Vec<_>>(), ["draft", "ends-later"]);
}

#[test]
fn long_text_is_truncated_and_listed_in_the_outcome() {
    let limits = Limits { text_bytes: 10, ..Limits::default() };
    let plan = compile(&[rule(&json!({"text": {"in": ["text", "title"], "any_of": ["end"]}}))], &limits);
    let outcome = outcome_of(&plan, json!({"text": "日日日日 end", "title": "the end"}));
    assert_eq!((outcome.matched.len(), outcome.truncated), (1, vec!["text".to_owned()]));
    assert!(outcome_of(&plan, json!({"text": "0123456789end"})).matched.is_empty());
}

#[test]
fn texts_are_cut_at_word_and_host_boundaries() {
    let matches = |leaf: Json, text: &str, text_bytes: usize| {
        let limits = Limits { text_bytes, ..Limits::default() };
        let plan = compile(&[rule(&leaf)], &limits);
        let outcome = outcome_of(&plan, json!({ "text": text, "tags": [text] }));
        assert_eq!(outcome.truncated.len(), usize::from(text.len() > text_bytes), "{text}");
        !outcome.matched.is_empty()
    };
    let words = |view: &str| json!({"text": {"in": ["text"], "words": ["hit"], "view": view}});
    let pattern = json!({"text": {"in": ["text"], "regex": r"\bhit\b"}});
    let host = json!({"domain": {"in": ["text"], "any_of": ["bad.example"]}});
    for view in ["raw", "lower", "folded", "collapsed"] {
        assert!(!matches(words(view), "a hitcoin", 5) && matches(words(view), "a hit coin", 5), "{view}");
        assert!(matches(words(view), "a hit", 5) && matches(words(view), "a hit, hitcoin", 11), "{view}");
    }
    assert!(!matches(pattern.clone(), "a hitcoin", 5) && matches(pattern, "a hit (", 5));
    assert!(!matches(words("folded"), "a hit\u{200b}coin", 8) && !matches(words("folded"), "hitcoin", 3));
    for (behind, is_found) in [(".org", false), ("-x.org", false), ("/org", true), (" org", true)] {
        assert_eq!(matches(host.clone(), &format!("at bad.example{behind}"), 14), is_found, "{behind}");
    }
    // A word longer than a kilobyte is split, so that it cannot hide the text inside of it.
    let any = |word: &str| json!({"text": {"in": ["text"], "any_of": [word]}});
    assert!(matches(any("hit"), &format!("{}hit{}", "x".repeat(1_990), "x".repeat(2_000)), 2_000));
    assert!(!matches(any("hit"), &format!("{} hit{}", "x".repeat(1_990), "x".repeat(2_000)), 2_000));
    for half in [1_023, 1_024] {
        assert_eq!(matches(any("xx"), &format!(" {}", "x".repeat(3_000)), 1 + half), half > 1_023, "{half}");
    }
}

#[test]
fn whole_numbers_beyond_63_bits_are_exact() {
    let likes = |text: &str| serde_json::from_str::<Json>(&format!(r#"{{"likes": {text}}}"#)).unwrap();
    let numbers = [
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
    ];
    for (nth, number) in numbers.iter().enumerate() {
        let operand = likes(number)["likes"].clone();
        let equal = json!({"field": {"path": "likes", "eq": operand}});
        let in_list = json!({"field": {"path": "likes", "in": [operand]}});
        for (other, data) in numbers.iter().enumerate() {
            let expected = if other == nth { ConditionResult::Passed } else { ConditionResult::Failed };
            assert_eq!(verdict(&equal, &likes(data)), expected, "{number} {data}");
            assert_eq!(verdict(&in_list, &likes(data)), expected, "{number} {data}");
        }
    }
}

#[test]
fn rule_out_of_steps_is_errored_and_the_next_one_runs() {
    let limits = Limits { steps_per_rule: 50, ..Limits::default() };
    let rules = [
        json!({"rule": "slow", "when": {"text": {"in": ["text"], "regex": "[a-w]x+[a-w]"}}}),
        json!({"rule": "quick", "when": {"text": {"in": ["text"], "any_of": ["hit"]}}}),
    ];
    let outcome = outcome_of(&compile(&rules, &limits), json!({"text": format!("hit{}", "x".repeat(1_000))}));
    assert_eq!(outcome.matched[0].rule.as_str(), "quick");
    assert_eq!((outcome.errored[0].rule.as_str(), outcome.errored[0].reason.as_str()), ("slow", "deadline"));
}

#[test]
fn tests_of_a_rule_report_their_results() {
    let document = json!({
        "rule": "r", "item_types": ["post"],
        "when": {"all": [{"text": {"in": ["text"], "words": ["scam"]}}, {"strikes": {"gt": 2}}]},
        "tests": [
            {"item": {"text": "scam"}, "strikes": 3, "expect": "match"},
            {"item": {"text": "scam"}, "strikes": 2, "expect": "match"},
            {"item": {"text": "scam"}, "strikes": 3, "expect": "no_match"},
            {"item_type": "user", "item": {"text": "scam"}, "expect": "no_match"},
        ],
    });
    let reports = run_tests(&compile(&[document], &Limits::default()), Millis(0), |_, item| {
        Ok(TestItem { values: Box::new(Data(item.clone())), user: Some(user()) })
    });
    let results: Vec<_> = reports.into_iter().map(|report| report.result).collect();
    assert_eq!(results[..3], [TestResult::Right, TestResult::Missed, TestResult::Matched]);
    assert!(matches!(results[3], TestResult::Unreadable(_)));
}

#[test]
fn explanation_shows_conditions_without_influence_too() {
    let condition = json!({"any": [
        {"text": {"in": ["text"], "any_of": ["absent", "one", "two"]}},
        {"not": {"field": {"path": "likes", "gt": 5}}},
        {"field": {"path": "scores", "lt": 2}},
        {"strikes": {"gte": 3}},
    ]});
    let plan = compile(&[rule(&condition)], &Limits::default());
    let outcome = outcome_of(&plan, json!({"text": "one two", "likes": 9}));
    assert_eq!(
        serde_json::to_value(&outcome.matched[0].tree).unwrap(),
        json!({"any": {"outcome": "passed", "of": [
            {"text": {"outcome": "passed", "in": ["text"], "view": "lower", "hits": [
                {"field": "text", "sought": "one", "start": 0, "end": 3, "found": "one"},
                {"field": "text", "sought": "two", "start": 4, "end": 7, "found": "two"},
            ]}},
            {"not": {"outcome": "failed", "of":
                {"field": {"outcome": "passed", "path": "likes", "compared": {"gt": 5}, "value": 9}}}},
            {"field": {"outcome": "inapplicable", "path": "scores", "compared": {"lt": 2}}},
            // Strike points are not looked up for an explanation alone.
            {"strikes": {"outcome": "skipped", "at_least": 3}},
        ]}})
    );
}

#[test]
fn rules_read_values_converted_by_the_item_type() {
    let document =
        serde_json::from_value(json!({"item_type": "post", "name": "Post", "kind": "CONTENT", "fields": [
            {"name": "text", "type": "STRING", "required": true},
            {"name": "likes", "type": "NUMBER"},
            {"name": "tags", "type": "STRING", "container": "ARRAY"},
            {"name": "createdAt", "type": "DATETIME"},
        ]}))
        .unwrap();
    let post = ItemType::compile(&document, "1", &[TypeId::new("post")].into());
    let data = br#"{"text": "hi", "likes": 3, "tags": ["a", "b"], "createdAt": "2026-01-01T00:00:00.000Z"}"#;
    let values = post.check(data, Mode::Strict, &Pointer::Root).unwrap();
    let document = rule(&json!({"all": [
        {"text": {"in": ["text", "tags"], "all_of": ["hi", "b"]}},
        {"field": {"path": "likes", "eq": 3}},
        {"field": {"path": "createdAt", "lt": "2026-01-01T00:00:01.000Z"}},
    ]}));
    let source = RuleSource { document: &document, version: "v1" };
    let plan = Plan::compile(&[source], &Vocabulary::from_item_types([&post]), &Limits::default()).unwrap();
    let outcome = with_item(json!({}), |item| {
        plan.finish(plan.scan(&Item { values: &values, ..*item }), &Facts::new())
    });
    assert_eq!(outcome.matched.len(), 1);
}

#[test]
fn questionable_rules_are_warned_about() {
    let warnings = |rules: &[Json]| {
        let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "v1" }).collect();
        let warnings = Plan::compile(&sources, &vocabulary(), &Limits::default()).unwrap().warnings();
        warnings.iter().map(|it| (it.rule.clone(), it.tag())).collect::<Vec<_>>()
    };
    let rule = |key: &str, when: Json| json!({"rule": key, "item_types": ["post"], "when": when});
    let word = json!({"text": {"in": ["text"], "words": ["scam"]}});
    let likes = |test: Json| json!({"field": test});
    let tags = |tag: &str| json!({"field": {"path": "tags", "in": [tag]}});
    let rules = [
        rule("plain", word.clone()),
        rule("same", word.clone()),
        rule("never", json!({"all": [likes(json!({"path": "likes", "gt": 5, "lt": 3}))]})),
        rule(
            "apart",
            json!({"all": [
                word.clone(),
                likes(json!({"path": "likes", "gt": 5})),
                {"all": [likes(json!({"path": "likes", "lt": 3}))]},
            ]}),
        ),
        rule(
            "apart-in-a-list",
            json!({"all": [word.clone(), tags("a"), tags("b"), likes(json!({"path": "likes", "gt": 5}))]}),
        ),
        rule("contrary", json!({"all": [word.clone(), {"not": word.clone()}]})),
        rule("silent", json!({"not": word.clone()})),
        rule("either", json!({"any": [word, likes(json!({"path": "likes", "ne": 3}))]})),
    ];
    let expected_warnings = [
        ("same", "same_condition"),
        ("never", "unsatisfiable"),
        ("apart", "unsatisfiable"),
        ("contrary", "unsatisfiable"),
        ("silent", "unannounced"),
        ("either", "unannounced"),
    ];
    assert_eq!(warnings(&rules), expected_warnings.map(|(rule, tag)| (rule.to_owned(), tag)));
    let live =
        json!({"rule": "live", "status": "live", "when": {"text": {"in": ["title"], "words": ["scam"]}}});
    assert_eq!(warnings(&[live]), [("live".to_owned(), "no_action"), ("live".to_owned(), "no_policy")]);
}

#[test]
fn disguised_words_are_found_at_their_place() {
    // View, searched word, text, and hit in the original.
    let cases = [
        ("folded", "free money", "get FR33 m0n\u{200b}ey now", Some("FR33 m0n\u{200b}ey")),
        ("folded", "scam", "ЅСАМ", Some("ЅСАМ")),
        ("folded", "straße", "STRASSE", Some("STRASSE")),
        ("folded", "ss", "Straße", Some("ß")),
        ("folded", "hello", "helllo", None),
        ("collapsed", "hello", "h3||000 you", Some("h3||000")),
        ("collapsed", "hello", "helo", None),
        ("collapsed", "hello", "heLlo", Some("heLlo")),
        ("collapsed", "cafe", "ca\u{301}ffe\u{301}e!", Some("ca\u{301}ffe\u{301}e")),
        ("collapsed", "日日本", "日日日本", Some("日日日本")),
    ];
    for (view, sought, text, expected) in cases {
        let hit = first_hit(&json!({"any_of": [sought], "view": view}), text);
        assert_eq!(hit.map(|hit| hit.found).as_deref(), expected, "{sought} in {text}");
    }
    let word_hit =
        |text: &str| first_hit(&json!({"words": ["scam"], "view": "collapsed"}), text).map(|hit| hit.found);
    // A sign that ends a sentence is no letter, even if it looks like one inside of a word.
    assert_eq!(word_hit("a $caaam!").as_deref(), Some("$caaam"));
    assert_eq!(word_hit("scamm\u{200b}ers sc4m").as_deref(), Some("sc4m"));
}

#[test]
fn several_distinct_words_can_be_required() {
    let leaf = |text: &str, least: usize| {
        let condition = json!({"text": {"in": ["text"], "any_of": ["buy", "sell", "now", "gold"], "min_distinct": least}});
        verdict(&condition, &json!({ "text": text }))
    };
    assert_eq!(leaf("buy buy buy", 2), ConditionResult::Failed);
    assert_eq!(leaf("now buy", 2), ConditionResult::Passed);
    assert_eq!(leaf("gold now buy", 4), ConditionResult::Failed);
    assert_eq!(leaf("gold now buy sell", 4), ConditionResult::Passed);
}

#[test]
fn quantifier_decides_over_several_values() {
    let data = json!({"tags": ["Alpha", "beta"], "scores": [3, 7], "title": "https://evil.example/x",
        "createdAt": "1970-01-01T00:10:00.000Z"});
    let cases = [
        (json!({"path": "tags", "in": ["beta"], "of": "any"}), ConditionResult::Passed),
        (json!({"path": "tags", "in": ["beta"], "of": "all"}), ConditionResult::Failed),
        (json!({"path": "tags", "in": ["beta", "Alpha"], "of": "all"}), ConditionResult::Passed),
        (json!({"path": "tags", "in": ["gamma"], "of": "none"}), ConditionResult::Passed),
        (json!({"path": "tags", "eq": "alpha"}), ConditionResult::Failed),
        (json!({"path": "tags", "eq": "alpha", "ignore_case": true}), ConditionResult::Passed),
        (json!({"path": "scores", "gt": 2, "lt": 8, "of": "all"}), ConditionResult::Passed),
        (json!({"path": "scores", "gt": 5, "of": "none"}), ConditionResult::Failed),
        (json!({"path": "scores", "gt": 2, "ne": 3, "of": "any"}), ConditionResult::Passed),
        (json!({"path": "title", "starts_with": ["http://", "https://"]}), ConditionResult::Passed),
        (json!({"path": "title", "contains": "EVIL", "ignore_case": true}), ConditionResult::Passed),
        (json!({"path": "title", "ends_with": "/y"}), ConditionResult::Failed),
        (json!({"path": "labels.x", "contains": "a"}), ConditionResult::Inapplicable),
        // The append time of the item is 1,000 seconds.
        (json!({"path": "createdAt", "gt": {"ago": "7m"}}), ConditionResult::Passed),
        (json!({"path": "createdAt", "gt": {"ago": "6m"}}), ConditionResult::Failed),
        (json!({"path": "createdAt", "lt": {"ahead": "1s"}}), ConditionResult::Passed),
    ];
    for (field, expected) in cases {
        assert_eq!(verdict(&json!({"field": field}), &data), expected, "{field}");
    }
}

#[test]
fn unmatched_rule_can_be_explained() {
    let condition = json!({"all": [{"text": {"in": ["text"], "words": ["scam"]}}, {"strikes": {"gte": 3}}]});
    let plan = compile(&[rule(&condition)], &Limits::default());
    let explained = |rule: &str| {
        with_item(json!({"text": "scams"}), |item| {
            let pending = plan.begin_explanation(item, &rule.into())?;
            let pending_needs: Vec<_> = pending.pending_needs().cloned().collect();
            Some(plan.finish_explanation(pending, &Facts::offline(&pending_needs)))
        })
    };
    assert_eq!(
        serde_json::to_value(explained("r")).unwrap(),
        json!({"all": {"outcome": "failed", "of": [
            {"text": {"outcome": "failed", "in": ["text"], "view": "lower"}},
            {"strikes": {"outcome": "failed", "at_least": 3, "points": 0}},
        ]}})
    );
    assert_eq!(explained("other"), None);
}

#[test]
fn relative_dates_reach_back_ten_years() {
    let compiled = |operand: Json| {
        let document = rule(&json!({"field": {"path": "createdAt", "gt": operand}}));
        let sources = [RuleSource { document: &document, version: "v1" }];
        Plan::compile(&sources, &vocabulary(), &Limits::default()).map(|_| ())
    };
    for span in ["3660d", "87840h", "522w"] {
        assert_eq!(compiled(json!({"ago": span})), Ok(()), "{span}");
        assert_eq!(compiled(json!({"ahead": span})), Ok(()), "{span}");
    }
    for operand in
        [json!({"ago": "3661d"}), json!({"ahead": "3661d"}), json!({"ago": "523w"}), json!({"ago": "0d"})]
    {
        let errors = compiled(operand.clone()).unwrap_err();
        let place = (errors[0].tag(), errors[0].pointer.as_str());
        assert_eq!(place, ("type", "/when/field/gt"), "{operand}");
    }
    let errors = compiled(json!("long ago")).unwrap_err();
    assert!(errors[0].detail.contains("at most {ago: 3660d}"), "{}", errors[0].detail);
    // The append time of the item is 1,000 seconds, and the bound is exact to the millisecond.
    let ten_years = json!({"field": {"path": "createdAt", "gte": {"ago": "3660d"}}});
    let before = |millis: i64| json!({"createdAt": Millis(1_000_000 - 3_660 * 86_400_000 - millis).iso()});
    assert_eq!(verdict(&ten_years, &before(0)), ConditionResult::Passed);
    assert_eq!(verdict(&ten_years, &before(1)), ConditionResult::Failed);
}

#[test]
fn failures_beyond_the_limit_are_counted() {
    let limits = Limits { steps_per_rule: 50, errored: 2, ..Limits::default() };
    let slow = |nth: u32, on_error: &str| {
        let condition = json!({"text": {"in": ["text"], "regex": format!("[a-w]x+[a-w]{{{}}}", nth + 1)}});
        json!({"rule": format!("slow-{nth}"), "when": condition, "on_error": on_error})
    };
    let rules: Vec<_> =
        (0..5).map(|nth| slow(nth, if nth == 4 { "review" } else { "not_matched" })).collect();
    let outcome = outcome_of(&compile(&rules, &limits), json!({"text": "x".repeat(1_000)}));
    let listed_rules: Vec<_> = outcome.errored.iter().map(|failed| failed.rule.as_str()).collect();
    assert_eq!((listed_rules, outcome.errored_more), (vec!["slow-0", "slow-1", "slow-4"], 2));
}
