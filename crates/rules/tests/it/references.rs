//! Conditions that refer to another rule's condition: they have the same outcome, and their uses are bounded.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Explained, Facts, Fields, Item, Kind, Limits, Number, Plan, RuleError, RuleSource, Shape, Trigger, Value,
    Vocabulary,
};
use tidegate_schemas::ids::{Millis, RuleId, SubmissionId, TypeId};

/// A post with a text and a number of likes.
struct Post(&'static str, i64);

impl Fields for Post {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "text" => Some(Value::Text(self.0)),
            "likes" => Some(Value::Number(Number::from(self.1))),
            _ => None,
        }
    }
}

/// Calls with the post as an item.
fn with_item<T>(post: &Post, call: impl FnOnce(&Item<'_>) -> T) -> T {
    let type_id = TypeId::new("post");
    call(&Item {
        type_id: &type_id,
        values: post,
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission: SubmissionId(uuid::Uuid::nil()),
    })
}

/// The explanation of a rule with each condition as its kind and outcome only.
fn explained(plan: &Plan, rule: &str, post: &Post) -> Json {
    let pending = with_item(post, |item| plan.begin_explanation(item, &RuleId::new(rule))).unwrap();
    bare(&plan.finish_explanation(pending, &Facts::new()))
}

fn bare(explained: &Explained) -> Json {
    let outcome = explained.outcome();
    match explained {
        Explained::All(node) => {
            json!({"all": node.of.iter().map(bare).collect::<Vec<_>>(), "outcome": outcome})
        }
        Explained::Any(node) => {
            json!({"any": node.of.iter().map(bare).collect::<Vec<_>>(), "outcome": outcome})
        }
        Explained::Not(node) => json!({"not": bare(&node.of), "outcome": outcome}),
        Explained::Rule(node) => json!({"rule": node.key, "of": bare(&node.of), "outcome": outcome}),
        leaf => {
            let leaf_json = serde_json::to_value(leaf).unwrap();
            json!(format!("{} {outcome}", leaf_json.as_object().unwrap().keys().next().unwrap()))
        }
    }
}

fn compile(rules: &[(&str, Json)]) -> Result<Plan, Vec<RuleError>> {
    let mut vocabulary = Vocabulary::new();
    vocabulary
        .add(TypeId::new("post"), [("text", Shape::one(Kind::Text)), ("likes", Shape::one(Kind::Number))]);
    let document = |(key, when): &(&str, Json)| json!({"rule": key, "item_types": ["post"], "when": when});
    let documents: Vec<Json> = rules.iter().map(document).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    Plan::compile(&sources, &vocabulary, &Limits::default())
}

fn likes(op: &str, number: i64) -> Json {
    json!({"field": {"path": "likes", op: number}})
}

fn word(word: &str) -> Json {
    json!({"text": {"in": ["text"], "words": [word]}})
}

fn errors(rules: &[(&str, Json)]) -> Vec<(String, String, &'static str)> {
    let errors = compile(rules).unwrap_err();
    errors.iter().map(|it| (it.rule.clone(), it.pointer.clone(), it.tag())).collect()
}

#[test]
fn reference_equals_the_condition_in_any_place_and_order() {
    let base = json!({"any": [word("scam"), likes("gt", 9)]});
    let middle = |base: Json| json!({"not": base});
    let outer =
        |middle: Json, base: Json| json!({"all": [{"any": [middle, word("always")]}, base, likes("lt", 99)]});
    let with_uses = [
        ("outer", outer(json!({"rule": "middle"}), json!({"rule": "base"}))),
        ("middle", middle(json!({"rule": "base"}))),
        ("base", base.clone()),
    ];
    let expanded = [
        ("outer", outer(middle(base.clone()), base.clone())),
        ("middle", middle(base.clone())),
        ("base", base),
    ];
    let (with_uses, expanded) = (compile(&with_uses).unwrap(), compile(&expanded).unwrap());
    // Equal conditions are one predicate and are evaluated once.
    assert_eq!(with_uses.size(), expanded.size());
    assert_eq!(with_uses.size().predicates, 4);
}

#[test]
fn cycles_and_unknown_rules_are_named_at_their_place() {
    let rules = [
        ("a", json!({"all": [word("x"), {"rule": "b"}]})),
        ("b", json!({"not": {"rule": "c"}})),
        ("c", json!({"rule": "a"})),
        ("own", json!({"rule": "own"})),
        ("lost", json!({"any": [{"rule": "ghost"}]})),
        ("both", json!({"rule": "b", "all": [word("x")]})),
    ];
    let rule_errors = errors(&rules);
    let at = |rule: &str| rule_errors.iter().find(|it| it.0 == rule).map(|it| (it.1.as_str(), it.2)).unwrap();
    assert_eq!(
        (at("a"), at("b"), at("c")),
        (("/when/all/1/rule", "cycle"), ("/when/not/rule", "cycle"), ("/when/rule", "cycle"))
    );
    assert_eq!(at("own"), ("/when/rule", "cycle"));
    assert_eq!(at("lost"), ("/when/any/0/rule", "unknown_rule"));
    assert_eq!(at("both"), ("/when", "shape"));
    assert!(compile(&rules).unwrap_err()[0].to_string().contains("uses itself"));
}

#[test]
fn every_wrong_use_of_a_rule_is_named() {
    let rules = [
        ("base", word("x")),
        (
            "user",
            json!({"all": [{"rule": "bass"}, {"not": {"rule": "user"}}, {"rule": "lost"}, {"rule": 5}]}),
        ),
        ("second", json!({"all": [{"rule": "bass"}, {"not": {"rule": "second"}}, {"rule": "lost"}]})),
        // The unknown rule is an error of `second` alone.
        ("third", json!({"rule": "lost"})),
        ("fourth", json!({"rule": "third"})),
    ];
    let rule_errors = errors(&rules);
    let of = |rule: &str| -> Vec<_> {
        rule_errors.iter().filter(|it| it.0 == rule).map(|it| (it.1.as_str(), it.2)).collect()
    };
    assert_eq!(
        of("user"),
        [
            ("/when/all/3/rule", "shape"),
            ("/when/all/0/rule", "unknown_rule"),
            ("/when/all/1/not/rule", "cycle"),
            ("/when/all/2/rule", "unknown_rule"),
        ]
    );
    assert_eq!(of("second"), of("user")[1..]);
    assert_eq!((of("third"), of("fourth")), (vec![("/when/rule", "unknown_rule")], vec![]));
    let errors = compile(&rules).unwrap_err();
    let unknown = errors.iter().find(|it| it.rule == "second").unwrap().to_string();
    assert!(unknown.contains("unknown rule \"bass\" (did you mean \"base\"?)"), "{unknown}");
}

#[test]
fn explanation_names_the_used_rules() {
    let rules = [
        ("base", json!({"any": [word("scam"), likes("gt", 9)]})),
        ("chain", json!({"rule": "negated"})),
        ("negated", json!({"not": {"rule": "base"}})),
        ("leaf", word("scam")),
        (
            "outer",
            json!({"all": [likes("lt", 99), {"rule": "leaf"}, {"not": {"rule": "chain"}}, {"rule": "leaf"}]}),
        ),
        ("whole", json!({"rule": "chain"})),
    ];
    let plan = compile(&rules).unwrap();
    let post = Post("a scam", 3);
    let base = json!({"any": ["text passed", "field failed"], "outcome": "passed"});
    let base_used = json!({"rule": "base", "of": base, "outcome": "passed"});
    let negated = json!({"not": base_used, "outcome": "failed"});
    let negated_used = json!({"rule": "negated", "of": negated, "outcome": "failed"});
    let chain = json!({"rule": "chain", "of": negated_used, "outcome": "failed"});
    let leaf = json!({"rule": "leaf", "of": "text passed", "outcome": "passed"});
    let not = json!({"not": chain, "outcome": "passed"});
    assert_eq!(explained(&plan, "base", &post), base, "a rule without uses");
    assert_eq!(explained(&plan, "whole", &post), chain);
    let outer = json!({"all": ["field passed", leaf, not, leaf], "outcome": "passed"});
    assert_eq!(explained(&plan, "outer", &post), outer);

    // The tree that is stored with a match, written and read back.
    let outcome = with_item(&post, |item| plan.finish(plan.scan(item), &Facts::new()));
    let rule_match = outcome.matched.iter().find(|it| it.rule.as_str() == "outer").unwrap();
    assert_eq!(bare(&rule_match.tree), outer);
    let tree_json = serde_json::to_value(&rule_match.tree).unwrap();
    let leaf_use = &tree_json["all"]["of"][1]["rule"];
    assert_eq!((&leaf_use["key"], &leaf_use["outcome"]), (&json!("leaf"), &json!("passed")), "{tree_json}");
    assert_eq!(leaf_use["of"]["text"]["hits"][0]["found"], "scam");
    assert_eq!(serde_json::from_value::<Explained>(tree_json).unwrap(), rule_match.tree);
}

#[test]
fn faults_of_the_other_condition_name_the_use() {
    let mut vocabulary = Vocabulary::new();
    vocabulary
        .add(TypeId::new("post"), [("text", Shape::one(Kind::Text)), ("likes", Shape::one(Kind::Number))]);
    vocabulary.add(TypeId::new("note"), [("text", Shape::one(Kind::Text))]);
    let popular =
        json!({"rule": "popular", "item_types": ["post"], "when": {"any": [word("x"), likes("gt", 9)]}});
    let chain = json!({"rule": "chain", "item_types": ["post"], "when": {"not": {"rule": "popular"}}});
    let note =
        json!({"rule": "note", "item_types": ["note"], "when": {"all": [word("y"), {"rule": "chain"}]}});
    let window = json!({"window": "w", "over": "1d", "where": {"rule": "popular"}});
    let documents = [note, chain, popular];
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let errors_of = |vocabulary: &Vocabulary| -> Vec<_> {
        let errors = Plan::compile(&sources, vocabulary, &Limits::default()).unwrap_err();
        errors.iter().map(|it| (it.rule.clone(), it.pointer.clone(), it.tag(), it.detail.clone())).collect()
    };
    let of_note = (
        "note".to_owned(),
        "/when/all/1/rule".to_owned(),
        "unknown_field",
        "in the condition of rule \"chain\": in the condition of rule \"popular\": unknown field \"likes\" in item \
         type \"note\""
            .to_owned(),
    );
    assert_eq!(errors_of(&vocabulary), [of_note]);
    vocabulary.add_window(window);
    let of_window = errors_of(&vocabulary).into_iter().find(|it| it.0 == "w").unwrap();
    assert_eq!((&*of_window.1, of_window.2), ("/where", "shape"), "{of_window:?}");
}

#[test]
fn warnings_stay_with_the_used_rule() {
    let costly = json!({"text": {"in": ["text"], "regex": "(?i)[a-z]{2,40}[0-9]{2,40}"}});
    let short = json!({"all": [likes("gt", 1), {"text": {"in": ["text"], "any_of": ["x"]}}, costly]});
    let rules = [("user", json!({"all": [likes("gt", 3), {"rule": "short"}]})), ("short", short)];
    let own_warnings = compile(&rules[1..]).unwrap().warnings();
    let both = compile(&rules).unwrap().warnings();
    let at_their_place = |it: &&tidegate_rules::Warning| it.pointer.starts_with("/when/");
    let expected_warnings: Vec<_> = own_warnings.iter().filter(at_their_place).collect();
    assert!(!expected_warnings.is_empty());
    assert_eq!(both.iter().filter(at_their_place).collect::<Vec<_>>(), expected_warnings);
}

#[test]
fn rules_that_double_each_other_are_refused_early() {
    let mut rules: Vec<(String, Json)> = vec![("r0".to_owned(), word("x"))];
    for nth in 1..60 {
        let below = format!("r{}", nth - 1);
        rules.push((format!("r{nth}"), json!({"all": [{"rule": below}, {"rule": below}]})));
    }
    let rules: Vec<(&str, Json)> = rules.iter().map(|(key, when)| (key.as_str(), when.clone())).collect();
    let rule_errors = errors(&rules);
    assert!(!rule_errors.is_empty() && rule_errors.iter().all(|it| it.2 == "limit"), "{rule_errors:?}");
    let chain: Vec<String> = (0..5_000).map(|nth| format!("c{nth}")).collect();
    let mut rules: Vec<(&str, Json)> = vec![("c0", word("x"))];
    rules.extend(chain.windows(2).map(|it| (it[1].as_str(), json!({"rule": it[0]}))));
    let rule_errors = compile(&rules).map(drop).unwrap_err();
    assert!(rule_errors.iter().all(|it| it.tag() == "limit"));
}
