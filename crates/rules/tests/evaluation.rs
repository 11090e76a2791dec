//! What rules come to on an item, seen from outside.
#![allow(clippy::unwrap_used)]

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Container, Facts, Fields, Item, Kind, Limits, Need, Number, On, Outcome, Plan, RuleSource, Shape, Value,
    Verdict, Vocabulary, Within,
};
use tidegate_schemas::ids::{ItemKey, Millis, SubmissionId, TypeId};

struct Data(Json);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).filter(|value| !value.is_null()).map(|value| read(name, value))
    }
}

fn read<'a>(name: &str, value: &'a Json) -> Value<'a> {
    match value {
        Json::String(text) if name == "createdAt" => {
            Value::Datetime(Millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()))
        }
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
    Plan::compile(&sources, &vocabulary(), limits).map_err(|faults| format!("{faults:?}")).unwrap().0
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
        on: On::Item,
        now: Millis(1_000_000),
        submission: SubmissionId::random(),
    })
}

fn outcome_of(plan: &Plan, data: Json) -> Outcome {
    with_item(data, |item| plan.finish(plan.scan(item), &Facts::new()))
}

/// What `when` comes to: a rule of it passes, or one of its negation, or neither.
fn verdict(when: &Json, data: &Json) -> Verdict {
    let passes = |when: Json| {
        !outcome_of(&compile(&[rule(&when)], &Limits::default()), data.clone()).matched.is_empty()
    };
    match (passes(when.clone()), passes(json!({"not": when}))) {
        (true, false) => Verdict::Passed,
        (false, true) => Verdict::Failed,
        (false, false) => Verdict::Inapplicable,
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
fn an_absent_field_fails_text_and_is_inapplicable_to_comparisons() {
    let text = json!({"text": {"in": ["title"], "any_of": ["x"]}});
    assert_eq!(verdict(&text, &json!({})), Verdict::Failed);
    assert_eq!(verdict(&json!({"text": {"in": ["title"], "regex": "x*"}}), &json!({})), Verdict::Failed);
    for op in ["eq", "ne", "lt", "lte", "gt", "gte"] {
        assert_eq!(verdict(&json!({"field": {"path": "likes", op: 3}}), &json!({})), Verdict::Inapplicable);
    }
    for op in ["in", "not_in"] {
        assert_eq!(verdict(&json!({"field": {"path": "likes", op: [3]}}), &json!({})), Verdict::Inapplicable);
    }
    let exists = |wanted: bool| json!({"field": {"path": "likes", "exists": wanted}});
    assert_eq!(verdict(&exists(true), &json!({})), Verdict::Failed);
    assert_eq!(verdict(&exists(false), &json!({})), Verdict::Passed);
    assert_eq!(verdict(&exists(true), &json!({"likes": 0})), Verdict::Passed);
    let ranged = json!({"field": {"path": "likes", "exists": true, "lt": 3}});
    assert_eq!(verdict(&ranged, &json!({})), Verdict::Failed);
}

#[test]
fn a_standing_is_asked_for_once_and_decides() {
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
    let need = Need::Strikes { user: user(), within: Within::parse("30d") };
    assert_eq!(scan.needs(), std::slice::from_ref(&need));
    let mut facts = Facts::new();
    facts.strikes(need.clone(), 3);
    let outcome = plan.finish(scan, &facts);
    assert_eq!(outcome.matched.iter().map(|m| m.rule.as_str()).collect::<Vec<_>>(), ["a"]);
    let mut facts = Facts::new();
    facts.failed(need, "store_unavailable");
    let outcome = plan.finish(quiet, &facts);
    let errored: Vec<_> = outcome.errored.iter().map(|e| (e.rule.as_str(), e.reason.as_str())).collect();
    assert_eq!(errored, [("a", "strikes: store_unavailable"), ("b", "strikes: store_unavailable")]);
}
