//! Compares expressions with the `cel` crate: results must be equal on random expressions and items.
//!
//! Passed is true, failed is false, and inapplicable is an error of CEL. Numbers are whole here: CEL does not add a
//! fraction to a whole number, and rules do.

use std::collections::{BTreeMap, HashMap};

use cel::{Context, Program, Value as Cel};
use serde_json::{Map, Value as Json, json};
use tidegate_rules::{
    Container, Facts, Fields, Item, Kind, Limits, Number, Plan, RuleSource, Shape, Trigger, Value, Vocabulary,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

use crate::oracle::{expressions::ExpressionFields, generator::Dice};

const FIELDS: [(&str, Shape); 9] = [
    ("text", Shape::one(Kind::Text)),
    ("title", Shape::one(Kind::Text)),
    ("likes", Shape::one(Kind::Number)),
    ("shares", Shape::one(Kind::Number)),
    ("verified", Shape::one(Kind::Boolean)),
    ("flagged", Shape::one(Kind::Boolean)),
    ("tags", Shape::list(Kind::Text)),
    ("scores", Shape::list(Kind::Number)),
    ("labels", Shape::map(Kind::Text)),
];

const TEXTS: [&str; 8] = ["en", "de", "", "été", "it's", "u1\\n", "日本語", "eleven"];

struct Data(Json);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        fn read(value: &Json) -> Value<'_> {
            match value {
                Json::String(text) => Value::Text(text),
                Json::Number(number) => Value::Number(Number::from(number.as_i64().unwrap())),
                Json::Bool(boolean) => Value::Boolean(*boolean),
                Json::Array(list) => Value::List(list.iter().map(read).collect()),
                Json::Object(map) => {
                    Value::Map(map.iter().map(|(key, value)| (key.as_str(), read(value))).collect())
                }
                Json::Null => panic!("absent fields are left out"),
            }
        }
        self.0.get(name).map(read)
    }
}

fn cel(value: &Json) -> Cel {
    match value {
        Json::String(text) => Cel::String(text.clone().into()),
        Json::Number(number) => Cel::Int(number.as_i64().unwrap()),
        Json::Bool(boolean) => Cel::Bool(*boolean),
        Json::Array(list) => Cel::List(list.iter().map(cel).collect::<Vec<_>>().into()),
        Json::Object(map) => {
            let map: HashMap<String, Cel> =
                map.iter().map(|(key, value)| (key.clone(), cel(value))).collect();
            Cel::Map(map.into())
        }
        Json::Null => panic!("absent fields are left out"),
    }
}

fn item(dice: &mut Dice) -> Json {
    let mut data = Map::new();
    for (name, shape) in FIELDS {
        if !dice.chance(80) {
            continue;
        }
        let value = |dice: &mut Dice| match shape.kind {
            Kind::Text => json!(dice.one(&TEXTS)),
            Kind::Number => json!(dice.one(&[0, 1, 2, 3, -4, 7, i64::MAX])),
            _ => json!(dice.chance(50)),
        };
        let value = match shape.container {
            Container::One => value(dice),
            Container::List => (0..dice.roll(4)).map(|_| value(dice)).collect(),
            Container::Map => {
                let keys = ["lang", "x", "u1"].iter().filter(|_| dice.chance(60)).collect::<Vec<_>>();
                Json::Object(keys.into_iter().map(|key| ((*key).to_owned(), value(dice))).collect())
            }
        };
        data.insert(name.to_owned(), value);
    }
    Json::Object(data)
}

/// Evaluates each expression by a rule of it and a rule of its negation. Returns the rules that match.
fn ours(expressions: &[String], data: &Json) -> Vec<(bool, bool)> {
    let type_id = TypeId::new("post");
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(type_id.clone(), FIELDS);
    let rules: Vec<_> = expressions
        .iter()
        .enumerate()
        .flat_map(|(nth, expr)| {
            [
                json!({"rule": format!("p{nth}"), "when": {"expr": expr}}),
                json!({"rule": format!("f{nth}"), "when": {"not": {"expr": expr}}}),
            ]
        })
        .collect();
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default())
        .map_err(|errors| format!("{errors:?}"))
        .unwrap();
    let data = Data(data.clone());
    let item = Item {
        type_id: &type_id,
        values: &data,
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission: SubmissionId::random(),
    };
    let outcome = plan.finish(plan.scan(&item), &Facts::new());
    let has_match = |key: String| outcome.matched.iter().any(|it| it.rule.as_str() == key);
    (0..expressions.len()).map(|nth| (has_match(format!("p{nth}")), has_match(format!("f{nth}")))).collect()
}

#[test]
fn expressions_agree_with_cel() {
    let cases = std::env::var("TIDEGATE_CEL_CASES").map_or(400, |cases| cases.parse().unwrap());
    let fields = ExpressionFields {
        texts: vec!["text", "title", "labels.lang"],
        numbers: vec!["likes", "shares"],
        booleans: vec!["verified", "flagged"],
        text_lists: vec!["tags"],
        number_lists: vec!["scores"],
        sized: vec!["tags", "scores", "labels"],
        words: TEXTS.map(str::to_owned).to_vec(),
    };
    let mut outcome_counts: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..cases {
        let mut dice = Dice(seed * 7_919 + 1);
        let expressions: Vec<_> = (0..10).map(|_| fields.truth(&mut dice, 3)).collect();
        let data = item(&mut dice);
        let mut context = Context::default();
        context.add_variable_from_value(
            "item",
            Cel::Map(HashMap::from([("data".to_owned(), cel(&data))]).into()),
        );
        for (expression, (passed, failed)) in expressions.iter().zip(ours(&expressions, &data)) {
            let theirs = Program::compile(expression).unwrap().execute(&context);
            let their_outcome = match &theirs {
                Ok(Cel::Bool(true)) => "passed",
                Ok(Cel::Bool(false)) => "failed",
                Ok(other) => panic!("{other:?}"),
                Err(_) => "inapplicable",
            };
            let our_outcome = match (passed, failed) {
                (true, false) => "passed",
                (false, true) => "failed",
                (false, false) => "inapplicable",
                (true, true) => panic!("{expression} passes and fails"),
            };
            assert_eq!(our_outcome, their_outcome, "seed {seed}: {expression} on {data}, cel {theirs:?}");
            *outcome_counts.entry(our_outcome).or_default() += 1;
        }
    }
    println!("{outcome_counts:?}");
    let all: u32 = outcome_counts.values().sum();
    assert!(
        outcome_counts.len() == 3 && outcome_counts.values().all(|count| count * 20 > all),
        "{outcome_counts:?}"
    );
}
