//! Conditions that stand for another rule's: they come to what the other conditions come to, and end in bounds.

use serde_json::{Value as Json, json};
use tidegate_rules::{Kind, Limits, Plan, RuleError, RuleSource, Shape, Vocabulary};
use tidegate_schemas::ids::TypeId;

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
fn a_reference_is_the_other_condition_whatever_its_place_and_order() {
    let base = json!({"any": [word("scam"), likes("gt", 9)]});
    let middle = |base: Json| json!({"not": base});
    let outer =
        |middle: Json, base: Json| json!({"all": [{"any": [middle, word("always")]}, base, likes("lt", 99)]});
    let used = [
        ("outer", outer(json!({"rule": "middle"}), json!({"rule": "base"}))),
        ("middle", middle(json!({"rule": "base"}))),
        ("base", base.clone()),
    ];
    let written = [
        ("outer", outer(middle(base.clone()), base.clone())),
        ("middle", middle(base.clone())),
        ("base", base),
    ];
    let (used, written) = (compile(&used).unwrap(), compile(&written).unwrap());
    // Equal conditions are one predicate: nothing is evaluated twice.
    assert_eq!(used.size(), written.size());
    assert_eq!(used.size().predicates, 4);
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
    let told = errors(&rules);
    let at = |rule: &str| told.iter().find(|it| it.0 == rule).map(|it| (it.1.as_str(), it.2)).unwrap();
    assert_eq!(
        (at("a"), at("b"), at("c")),
        (("/when/all/1", "cycle"), ("/when/not", "cycle"), ("/when", "cycle"))
    );
    assert_eq!(at("own"), ("/when/rule", "cycle"));
    assert_eq!(at("lost"), ("/when/any/0/rule", "unknown_rule"));
    assert_eq!(at("both"), ("/when", "shape"));
    assert!(compile(&rules).unwrap_err()[0].to_string().contains("uses itself"));
}

#[test]
fn rules_that_double_each_other_are_refused_and_cost_nothing() {
    let mut rules: Vec<(String, Json)> = vec![("r0".to_owned(), word("x"))];
    for nth in 1..60 {
        let below = format!("r{}", nth - 1);
        rules.push((format!("r{nth}"), json!({"all": [{"rule": below}, {"rule": below}]})));
    }
    let rules: Vec<(&str, Json)> = rules.iter().map(|(key, when)| (key.as_str(), when.clone())).collect();
    let told = errors(&rules);
    assert!(!told.is_empty() && told.iter().all(|it| it.2 == "limit"), "{told:?}");
    let chain: Vec<String> = (0..5_000).map(|nth| format!("c{nth}")).collect();
    let mut rules: Vec<(&str, Json)> = vec![("c0", word("x"))];
    rules.extend(chain.windows(2).map(|it| (it[1].as_str(), json!({"rule": it[0]}))));
    let told = compile(&rules).map(drop).unwrap_err();
    assert!(told.iter().all(|it| it.tag() == "limit"));
}
