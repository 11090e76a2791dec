//! Unindexed rules: the guards that refute them, and their limits.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Fields, Item, Kind, Limits, Number, Outcome, Plan, RuleSource, Shape, Trigger, Value, Vocabulary,
};
use tidegate_schemas::ids::{ItemKey, Millis, SubmissionId, TypeId};

struct Data(Json);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        let one = |value: &Json| match value {
            Json::Bool(boolean) => Value::Boolean(*boolean),
            number => Value::Number(Number::parse(&number.to_string()).unwrap()),
        };
        Some(match self.0.get(name)? {
            Json::Array(list) => Value::List(list.iter().map(one).collect()),
            value => one(value),
        })
    }
}

fn outcome(conditions: &[Json], data: Json, limits: &Limits) -> Outcome {
    let mut vocabulary = Vocabulary::new();
    let fields = [
        ("age", Shape::one(Kind::Number)),
        ("verified", Shape::one(Kind::Boolean)),
        ("scores", Shape::list(Kind::Number)),
    ];
    vocabulary.add(TypeId::new("post"), fields);
    let rules: Vec<Json> = (0..)
        .zip(conditions)
        .map(|(nth, when)| json!({"rule": format!("r{nth}"), "status": "live", "when": when}))
        .collect();
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "v1" }).collect();
    let plan = Plan::compile(&sources, &vocabulary, limits).unwrap();
    assert_eq!(plan.size().unindexed, conditions.len());
    let item = Item {
        type_id: &TypeId::new("post"),
        values: &Data(data),
        user: Some(&ItemKey::new("user", "u1")),
        on: Trigger::Item,
        now: Millis(0),
        submission: SubmissionId::random(),
    };
    plan.finish(plan.scan(&item), &Facts::new())
}

fn matched_rules(outcome: &Outcome) -> Vec<&str> {
    outcome.matched.iter().map(|matched| matched.rule.as_str()).collect()
}

#[test]
fn ends_of_denied_ranges_are_exact() {
    let denied = |field: Json| json!({"not": {"field": field}});
    // Each range occurs often enough to be refuted in a group.
    let conditions: Vec<Json> = (0..6)
        .flat_map(|_| {
            [
                denied(json!({"path": "age", "gte": 3})),
                denied(json!({"path": "age", "gt": 3})),
                denied(json!({"path": "age", "lt": 3})),
                denied(json!({"path": "verified", "eq": true})),
                denied(json!({"path": "scores", "gte": 3})),
            ]
        })
        .collect();
    let cases = [
        (json!({"age": 2}), vec![0, 1]),
        (json!({"age": 3}), vec![1, 2]),
        (json!({"age": 4}), vec![2]),
        (json!({"verified": false}), vec![3]),
        (json!({"verified": true}), vec![]),
        (json!({}), vec![]),
        // An empty list has no value in any range.
        (json!({"scores": []}), vec![4]),
        (json!({"scores": [1, 2]}), vec![4]),
        (json!({"scores": [1, 3]}), vec![]),
    ];
    for (data, expected) in cases {
        let outcome = outcome(&conditions, data.clone(), &Limits::default());
        let expected: Vec<String> =
            (0..30).filter(|nth| expected.contains(&(nth % 5))).map(|nth| format!("r{nth}")).collect();
        assert_eq!(matched_rules(&outcome), expected, "{data}");
    }
}

#[test]
fn rules_refuted_by_a_shared_guard_take_no_steps() {
    let limits = Limits { steps_per_item: 200, steps_per_rule: 200, ..Limits::default() };
    let conditions: Vec<Json> = (0..400)
        .map(|nth| {
            json!({"all": [{"not": {"field": {"path": "age", "gte": 3}}}, {"field": {"path": "age", "ne": nth}}]})
        })
        .collect();
    let refuted = outcome(&conditions, json!({"age": 9}), &limits);
    assert_eq!((refuted.matched.len(), refuted.errored.len()), (0, 0));
    let evaluated = outcome(&conditions, json!({"age": 1}), &limits);
    assert!(!evaluated.errored.is_empty());
}
