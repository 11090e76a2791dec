//! Rule documents that are wrong, or written to do harm.
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use serde_json::{Map, Value as Json, json};
use tidegate_rules::{
    Facts, Fault, Fields, Item, Kind, Limits, On, Outcome, Plan, RuleSource, Shape, Value, Vocabulary,
    Warning,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

fn compile(document: &Json) -> Result<(), Vec<Fault>> {
    let mut vocabulary = Vocabulary::new();
    let fields = [
        ("text", Shape::one(Kind::Text)),
        ("likes", Shape::one(Kind::Number)),
        ("createdAt", Shape::one(Kind::Datetime)),
        ("author", Shape::one(Kind::Related)),
    ];
    vocabulary.add(TypeId::new("post"), fields);
    vocabulary
        .add(TypeId::new("page"), [("text", Shape::one(Kind::Text)), ("likes", Shape::one(Kind::Text))]);
    Plan::compile(&[RuleSource { document, version: "1" }], &vocabulary, &Limits::default()).map(|_| ())
}

fn faults(when: &Json) -> Vec<Fault> {
    compile(&json!({"rule": "r", "item_types": ["post"], "when": when})).unwrap_err()
}

#[test]
fn a_fault_names_the_rule_the_path_and_what_was_meant() {
    let text = |field: &str| json!({"text": {"in": [field], "any_of": ["x"]}});
    let cases = [
        (
            json!({"all": [text("text"), text("txet")]}),
            "/when/all/1/text/in/0",
            "unknown_field",
            "mean `text`?",
        ),
        (json!({"txt": {}}), "/when/txt", "unknown_key", "mean `text`?"),
        (
            json!({"text": {"in": ["text"], "anyof": ["x"]}}),
            "/when/text/anyof",
            "unknown_key",
            "mean `any_of`?",
        ),
        (json!({"text": {"in": ["text"], "any_of": []}}), "/when/text/any_of", "empty", "is empty"),
        (json!({"text": {"in": ["text"], "any_of": [" "]}}), "/when/text/any_of/0", "empty", "blank"),
        (json!({"text": {"in": [], "any_of": ["x"]}}), "/when/text/in", "empty", "is empty"),
        (json!({"text": {"in": ["text"], "regex": "("}}), "/when/text/regex", "regex", "unclosed group"),
        (
            json!({"text": {"in": ["text"], "regex": "(?:\\w{500}){500}"}}),
            "/when/text/regex",
            "regex",
            "262144",
        ),
        (json!({"text": {"in": ["text"], "regex": "a", "word": true}}), "/when/text", "shape", "`word`"),
        (text("likes"), "/when/text/in/0", "type", "a number"),
        (json!({"field": {"path": "likes", "lt": "7"}}), "/when/field/lt", "type", "a number"),
        (json!({"field": {"path": "text", "lt": "7"}}), "/when/field/lt", "type", "order"),
        (json!({"field": {"path": "likes", "in": [1, "2"]}}), "/when/field/in/1", "type", "a number"),
        (json!({"field": {"path": "createdAt", "gt": "soon"}}), "/when/field/gt", "type", "a datetime"),
        (
            json!({"field": {"path": "author.name", "eq": "x"}}),
            "/when/field/path",
            "unknown_field",
            "author.name",
        ),
        (json!({"field": {"path": "likes"}}), "/when/field", "shape", "compares nothing"),
        (json!({"strikes": {"gte": 0}}), "/when/strikes", "type", "larger"),
        (json!({"strikes": {"gte": 1, "within": "soon"}}), "/when/strikes/within", "type", "30d"),
        (json!({"all": [], "any": []}), "/when", "shape", "exactly one"),
        (json!({"any": []}), "/when/any", "empty", "is empty"),
    ];
    for (when, pointer, tag, detail) in cases {
        let faults = faults(&when);
        let named = |fault: &Fault| {
            fault.rule == "r"
                && fault.pointer == pointer
                && fault.tag() == tag
                && fault.detail.contains(detail)
        };
        assert!(faults.iter().any(named), "{when}: {faults:?}");
    }
    let document = json!({"rule": "r", "item_types": ["pots"], "when": text("text")});
    assert!(compile(&document).unwrap_err()[0].to_string().contains("rule r, /item_types/0"));
    let mixed = json!({"rule": "r", "when": {"field": {"path": "likes", "eq": 1}}});
    assert_eq!(compile(&mixed).unwrap_err()[0].tag(), "type");
}

#[test]
fn a_tree_too_deep_too_wide_or_too_wordy_is_refused() {
    let leaf = json!({"text": {"in": ["text"], "any_of": ["x"]}});
    let nested = |levels: usize| (0..levels).fold(leaf.clone(), |inner, _| json!({"not": inner}));
    let all = |n: usize| json!({"all": vec![leaf.clone(); n]});
    let word = |n: usize| json!({"text": {"in": ["text"], "any_of": vec!["x"; n]}});
    let accepted = |when: &Json| compile(&json!({"rule": "r", "when": when})).is_ok();
    assert!(accepted(&nested(31)) && accepted(&all(999)) && accepted(&word(10_000)));
    for (when, tag) in [
        (nested(32), "depth"),
        (nested(100), "depth"),
        (all(1_000), "nodes"),
        (all(100_000), "limit"),
        (word(100_000), "limit"),
        (json!({"any": [word(6_000), word(6_000)]}), "limit"),
        (json!({"text": {"in": ["text"], "any_of": ["x".repeat(2_000)]}}), "limit"),
        (json!({"text": {"in": ["text"], "regex": "x".repeat(100_000)}}), "limit"),
        (
            json!({"text": {"in": ["text"], "regex": format!("{}a{}", "(".repeat(99), ")".repeat(99))}}),
            "regex",
        ),
    ] {
        assert_eq!(faults(&when)[0].tag(), tag);
    }
}

#[test]
fn a_document_full_of_faults_lists_a_hundred() {
    let unknown: Map<String, Json> = (0..10_000).map(|n| (format!("key{n}"), json!(1))).collect();
    assert_eq!(compile(&Json::Object(unknown)).unwrap_err().len(), 100);
}

#[test]
fn the_published_schema_has_the_keys_that_are_read_and_no_others() {
    let schema = include_str!("../../../schemas/documents/condition.schema.json");
    let schema: Json = serde_json::from_str(schema).unwrap();
    let keys = |of: &Json| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    // An unknown key is refused with all that are known.
    let known = |leaf: &str| {
        let faults = faults(&json!({leaf: {"?": 1}}));
        let pointer = format!("/when/{leaf}/?");
        assert!(
            faults.iter().any(|fault| fault.pointer == pointer && fault.tag() == "unknown_key"),
            "{faults:?}"
        );
        let none = compile(&json!({"rule": "r", "when": {leaf: 7}})).unwrap_err();
        let mut known: Vec<_> =
            none[0].detail.split(" with ").nth(1).unwrap().split(", ").map(str::to_owned).collect();
        known.sort();
        known
    };
    for leaf in ["text", "field", "strikes", "count", "media", "score", "geo", "domain"] {
        assert_eq!(keys(&schema["$defs"][leaf]["properties"]), known(leaf), "{leaf}");
    }
    for view in schema["$defs"]["text"]["properties"]["view"]["enum"].as_array().unwrap() {
        let leaf = json!({"text": {"in": ["text"], "any_of": ["x"], "view": view}});
        assert!(compile(&json!({"rule": "r", "item_types": ["post"], "when": leaf})).is_ok(), "{view}");
    }
}

const LEAVES: [&str; 11] =
    ["text", "field", "strikes", "count", "media", "score", "geo", "domain", "all", "any", "not"];

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
fn random_expressions_are_refused_or_taken_and_never_panic() {
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
            Err(faults) => {
                refused += 1;
                assert!(faults.iter().all(|fault| fault.pointer == "/when/expr"), "{expr}: {faults:?}");
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
fn random_documents_are_refused_or_taken_and_never_panic() {
    let end = Instant::now() + Duration::from_secs(15);
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..40_000 {
        if Instant::now() > end {
            break;
        }
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
            Err(faults) => {
                refused += 1;
                assert!(!faults.is_empty(), "seed {seed}: refused without a reason: {document}");
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}

/// An item of which only the text matters.
struct Data(String);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        (name == "text").then_some(Value::Text(&self.0))
    }
}

/// What a set of conditions comes to on texts, and the tags of its warnings.
fn outcomes(conditions: &[Json], texts: &[String]) -> (Vec<Outcome>, Vec<&'static str>) {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let documents: Vec<Json> =
        (0..).zip(conditions).map(|(nth, when)| json!({"rule": format!("r{nth}"), "when": when})).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let warnings = plan.warnings();
    let type_id = TypeId::new("post");
    let outcome = |text: &String| {
        let item = Item {
            type_id: &type_id,
            values: &Data(text.clone()),
            user: None,
            on: On::Item,
            now: Millis(0),
            submission: SubmissionId::random(),
        };
        plan.finish(plan.scan(&item), &Facts::new())
    };
    (texts.iter().map(outcome).collect(), warnings.iter().map(Warning::tag).collect())
}

fn matched(outcome: &Outcome) -> usize {
    outcome.matched.len() + outcome.matched_more
}

#[test]
fn a_hundred_thousand_overlapping_short_words_stay_inside_the_budget() {
    // All words of two to seventeen of two letters, as far as they go: at every place of a text there are many.
    let words: Vec<String> =
        (0..100_000_u32).map(|nth| format!("{:b}", nth + 2).replace('0', "a").replace('1', "b")).collect();
    let rules: Vec<Json> =
        words.chunks(10_000).map(|words| json!({"text": {"in": ["text"], "any_of": words}})).collect();
    let texts = ["ab".repeat(150), "b".repeat(64 << 10), "ba".repeat(32 << 10), "xyz".to_owned()];
    let (outcomes, warnings) = outcomes(&rules, &texts);
    // Only the first rule has words of under three letters.
    assert_eq!(warnings.iter().filter(|tag| **tag == "short_word").count(), 1, "{warnings:?}");
    for (text, outcome) in texts.iter().zip(&outcomes) {
        let parts: HashSet<&str> = (2..=17)
            .flat_map(|length| (length..=text.len()).map(move |end| &text[end - length..end]))
            .collect();
        let expected =
            words.chunks(10_000).filter(|words| words.iter().any(|it| parts.contains(it.as_str())));
        assert_eq!((matched(outcome), outcome.errored.len()), (expected.count(), 0));
    }
}

#[test]
fn a_thousand_patterns_without_literals_run_together_and_are_named() {
    let shapes = [
        "[0-9]{N,}-[0-9]{M}",
        "[a-z]{N}[0-9]{M}",
        r"\b[a-z]{N}[A-Z]{M}\b",
        "[A-Z]{1,N}[0-9]{M}",
        "[^a-z]{N}[a-z]{M}",
        r"[a-f]+\d{N}[x-z]{M}",
    ];
    let pattern = |nth: usize| {
        let (n, m) = (1 + nth / 6 % 13, 1 + nth / 78);
        shapes[nth % 6].replace('N', &n.to_string()).replace('M', &m.to_string())
    };
    let rules: Vec<Json> =
        (0..1_000).map(pattern).map(|pattern| json!({"text": {"in": ["text"], "regex": pattern}})).collect();
    let texts = ["call 555-1234 AB12 now ".repeat(13), "a1".repeat(2 << 10), "größer 日本 99-1 ".repeat(20)];
    let (outcomes, warnings) = outcomes(&rules, &texts);
    for (text, outcome) in texts.iter().zip(&outcomes) {
        let alone =
            rules.iter().map(|rule| regex::Regex::new(rule["text"]["regex"].as_str().unwrap()).unwrap());
        assert_eq!(
            (matched(outcome), outcome.errored.len()),
            (alone.filter(|it| it.is_match(text)).count(), 0)
        );
    }
    // Some of the shapes are as good as a few literals, and the largest are too heavy to run with others.
    let named = |tag: &&&str| matches!(**tag, "pattern_everywhere" | "unannounced");
    assert!(warnings.iter().filter(named).count() > 50, "{warnings:?}");
}

#[test]
fn patterns_that_other_engines_choke_on_are_linear_or_run_out_of_steps() {
    let patterns = [
        "(a*)*b",
        "(a+a+)+y",
        "(?:a?){100}a{100}",
        "(?:a|a)*c",
        "(?:.*a){12}z",
        "(?:[a-z]+)+[0-9]{3}",
        "(x+x+)+y",
        "(?:[a-z]{1,30} ?){10}!",
        "(?:(?:a{1,20}){1,20}){1,5}b",
    ];
    let rules = patterns.map(|pattern| json!({"text": {"in": ["text"], "regex": pattern}}));
    let texts = ["a".repeat(64 << 10), "x".repeat(64 << 10), "ab ".repeat(20 << 10), "aaaa bbb".to_owned()];
    let (outcomes, warnings) = outcomes(&rules, &texts);
    let named = |tags: &[&str]| warnings.iter().filter(|tag| tags.contains(*tag)).count();
    assert_eq!((named(&["pattern_everywhere", "unannounced"]), named(&["regex_costly"])), (9, 1));
    for (text, outcome) in texts.iter().zip(&outcomes) {
        // The costly one.
        let out_of_steps =
            |nth: usize| outcome.errored.iter().any(|it| it.rule.as_str() == format!("r{nth}"));
        assert!(
            (0..8).all(|nth| !out_of_steps(nth)) && outcome.errored.iter().all(|it| it.reason == "deadline")
        );
        let matches = |nth: usize| regex::Regex::new(patterns[nth]).unwrap().is_match(text);
        let expected = (0..patterns.len()).filter(|nth| !out_of_steps(*nth) && matches(*nth)).count();
        assert_eq!(matched(outcome), expected);
    }
    assert!(outcomes[3].errored.is_empty(), "on a short text it runs as ever");
}

#[test]
fn a_pattern_of_thousands_of_places_is_charged_before_it_runs_whatever_ran_before() {
    let mut seed = 7_u64;
    let letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghi "[usize::try_from(seed >> 33).unwrap_or_default() % 10])
    };
    let long: String = (0..65_000).map(letter).collect();
    let heavy = |range: std::ops::Range<usize>| range.map(|n| format!("i[a-z ]{{0,{n}}}[0-9]q"));
    let ordinary = [
        r"\b\d{3}[- .]?\d{3}[- .]?\d{4}\b",
        "[a-f ]{3,20}[0-9]{2}",
        "(?i)lottery|viagra|(?:free|crypto) (?:money|giveaway)",
    ];
    let of = |pattern: String| json!({"text": {"in": ["text"], "regex": pattern}});
    let rules: Vec<Json> =
        heavy(1_900..1_940).chain(ordinary.map(str::to_owned)).chain(heavy(60..70)).map(of).collect();
    let short = "i am 5q".to_owned();
    let (there, _) = outcomes(&rules, &[long.clone(), short.clone()]);
    let (back, warnings) = outcomes(&rules, &[short, long]);
    assert_eq!((&there[0], &there[1]), (&back[1], &back[0]));
    let errored: Vec<_> =
        there[0].errored.iter().map(|it| (it.rule.to_string(), it.reason.as_str())).collect();
    let expected: Vec<_> = (0..40).map(|nth| (format!("r{nth}"), "deadline")).collect();
    assert_eq!(errored, expected);
    // On a text of the usual length it runs as ever.
    assert_eq!((matched(&there[1]), there[1].errored.len()), (50, 0));
    assert_eq!(warnings.iter().filter(|tag| **tag == "regex_costly").count(), 40);
}

#[test]
fn each_fault_and_each_kind_of_warning_is_told_however_many_there_are_of_others() {
    let mut vocabulary = Vocabulary::new();
    vocabulary
        .add(TypeId::new("post"), [("text", Shape::one(Kind::Text)), ("likes", Shape::one(Kind::Number))]);
    let plan = |documents: &[Json]| {
        let sources: Vec<_> =
            documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
        Plan::compile(&sources, &vocabulary, &Limits::default())
    };
    let rule =
        |nth: usize, when: Json| json!({"rule": format!("r{nth}"), "item_types": ["post"], "when": when});
    let unknown: Vec<Json> =
        (0..250).map(|nth| rule(nth, json!({"text": {"in": ["txet"], "any_of": ["x"]}}))).collect();
    assert_eq!(plan(&unknown).unwrap_err().len(), 250);
    let many: Vec<Json> = (0..10_100).map(|nth| rule(nth, json!({"nothing": nth}))).collect();
    let faults = plan(&many).unwrap_err();
    assert!(faults.len() == 10_001 && faults[10_000].detail.contains("may be more"), "{}", faults.len());

    let mut documents: Vec<Json> = (0..110)
        .map(|nth| rule(nth, json!({"text": {"in": ["text"], "any_of": ["zq", format!("word{nth}")]}})))
        .collect();
    documents.push(rule(
        110,
        json!({"all": [{"field": {"path": "likes", "eq": 1}}, {"field": {"path": "likes", "eq": 2}}]}),
    ));
    let warnings = plan(&documents).unwrap().warnings();
    let of = |tag: &str| {
        warnings.iter().filter(|it| it.tag() == tag).map(|it| it.rule.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((of("short_word").len(), of("unsatisfiable")), (110, vec!["r110"]));
}

#[test]
fn a_condition_that_found_more_than_it_shows_says_so() {
    let words: Vec<String> = (0..20).map(|nth| format!("word{nth:02}")).collect();
    let rules: Vec<Json> =
        [16, 17].map(|count| json!({"text": {"in": ["text"], "any_of": words[..count]}})).to_vec();
    let (outcomes, _) = outcomes(&rules, &[words.join(" ")]);
    let shown: Vec<_> = outcomes[0].matched.iter().map(|it| json!(it.tree)).collect();
    assert_eq!(
        shown.iter().map(|tree| tree["text"]["hits"].as_array().unwrap().len()).collect::<Vec<_>>(),
        [16, 16]
    );
    assert_eq!(
        shown.iter().map(|tree| tree["text"]["more"].as_bool()).collect::<Vec<_>>(),
        [None, Some(true)]
    );
}

#[test]
fn a_rule_alone_comes_to_what_it_comes_to_among_others_where_its_own_search_takes_too_long() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let pattern = "nowhere[a-z ]{0,1900}[0-9]q";
    let document = json!({"rule": "r", "when": {"text": {"in": ["text"], "regex": pattern}}});
    let sources = [RuleSource { document: &document, version: "1" }];
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let type_id = TypeId::new("post");
    for (text, errored, outcome) in [("abc ", 0, "failed"), ("nowhere ", 1, "errored")] {
        let data = Data(text.repeat(8_000));
        let item = Item {
            type_id: &type_id,
            values: &data,
            user: None,
            on: On::Item,
            now: Millis(0),
            submission: SubmissionId::random(),
        };
        let run = plan.finish(plan.scan(&item), &Facts::new());
        let tree = json!(plan.explain(&item, &"r".into()).unwrap());
        assert_eq!((run.errored.len(), tree["text"]["outcome"].as_str()), (errored, Some(outcome)), "{tree}");
    }
}

#[test]
fn rules_that_take_too_much_memory_are_refused() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let words: Vec<String> = (0..5_000).map(|nth| format!("word number {nth}")).collect();
    let document = json!({"rule": "r", "when": {"text": {"in": ["text"], "any_of": words}}});
    let limits = Limits { memory_bytes: 100_000, ..Limits::default() };
    let faults = Plan::compile(&[RuleSource { document: &document, version: "1" }], &vocabulary, &limits);
    let faults = faults.map(|_| ()).unwrap_err();
    assert!(faults[0].tag() == "limit" && faults[0].detail.contains("memory"), "{faults:?}");
}

#[test]
fn matches_without_effects_beyond_the_limit_are_counted_and_live_ones_kept() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let document = |nth: usize| {
        let status = if nth.is_multiple_of(2) { "draft" } else { "live" };
        json!({"rule": format!("r{nth}"), "status": status, "when": {"text": {"in": ["text"], "any_of": ["hit"]}}})
    };
    let documents: Vec<Json> = (0..20).map(document).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let limits = Limits { matched: 4, ..Limits::default() };
    let plan = Plan::compile(&sources, &vocabulary, &limits).unwrap();
    let (type_id, values) = (TypeId::new("post"), Data("hit".to_owned()));
    let submission = SubmissionId::random();
    let item =
        Item { type_id: &type_id, values: &values, user: None, on: On::Item, now: Millis(0), submission };
    let outcome = plan.finish(plan.scan(&item), &Facts::new());
    assert_eq!((outcome.matched.len(), outcome.matched_more), (12, 8));
}

/// A pattern out of parts that are hard to bear: classes, borders, repetitions of repetitions, and sometimes no pattern.
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
    // The last ones are no patterns by themselves.
    let most = PARTS.len() - if dice.roll(9) == 0 { 0 } else { 6 };
    match dice.roll(if depth == 0 { 3 } else { 8 }) {
        0..=2 => PARTS[dice.roll(most)].to_owned(),
        3 | 4 => (0..1 + dice.roll(3)).map(|_| pattern(dice, depth - 1)).collect(),
        5 => format!("(?:{}|{})", pattern(dice, depth - 1), pattern(dice, depth - 1)),
        _ => {
            let often = ["*", "+", "?", "*?", "{2}", "{3,}", "{0,9}", "{40}", "{999}"][dice.roll(9)];
            format!("(?:{}){often}", pattern(dice, depth - 1))
        }
    }
}

#[test]
fn random_patterns_are_refused_or_find_what_they_find_alone() {
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
                Err(faults) => {
                    let before = documents.len();
                    documents.retain(|document| {
                        faults.iter().all(|fault| document["rule"] != fault.rule.as_str())
                    });
                    assert!(documents.len() < before, "seed {seed}: {faults:?}");
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
                on: On::Item,
                now: Millis(0),
                submission,
            };
            let outcome = plan.finish(plan.scan(&item), &Facts::new());
            assert_eq!(outcome.errored, [], "seed {seed}");
            for document in &documents {
                let pattern = document["when"]["text"]["regex"].as_str().unwrap();
                let alone = regex::RegexBuilder::new(pattern).nest_limit(64).build().unwrap().is_match(text);
                let matched = outcome.matched.iter().any(|it| document["rule"] == it.rule.as_str());
                assert_eq!(matched, alone, "seed {seed}: {pattern} in {text:?}");
                *(if alone { &mut found } else { &mut missed }) += 1;
            }
        }
    }
    assert!(
        refused > 50 && found > 1_000 && missed > 1_000,
        "{refused} refused, {found} found, {missed} missed"
    );
}
