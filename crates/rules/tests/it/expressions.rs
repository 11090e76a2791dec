//! Expressions: their conditions, their explanations, and their errors.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Fields, Item, Kind, Limits, Number, Outcome, Plan, RuleError, RuleSource, Shape, Trigger, Value,
    Vocabulary,
};
use tidegate_schemas::{
    ids::{Millis, SubmissionId, TypeId},
    item_types::datetime,
};

struct Data(Json);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        fn read(value: &Json) -> Value<'_> {
            match value {
                Json::String(text) => datetime::parse(text).map_or(Value::Text(text), Value::Datetime),
                Json::Number(number) => Value::Number(Number::parse(&number.to_string()).unwrap()),
                Json::Bool(boolean) => Value::Boolean(*boolean),
                Json::Array(list) => Value::List(list.iter().map(read).collect()),
                Json::Object(map) => {
                    Value::Map(map.iter().map(|(key, value)| (key.as_str(), read(value))).collect())
                }
                Json::Null => unreachable!(),
            }
        }
        self.0.get(name).map(read)
    }
}

fn compile(expr: &str) -> Result<Plan, Vec<RuleError>> {
    let mut vocabulary = Vocabulary::new();
    let fields = [
        ("text", Shape::one(Kind::Text)),
        ("likes", Shape::one(Kind::Number)),
        ("shares", Shape::one(Kind::Number)),
        ("tags", Shape::list(Kind::Text)),
        ("scores", Shape::list(Kind::Number)),
        ("labels", Shape::map(Kind::Text)),
        ("verified", Shape::one(Kind::Boolean)),
        ("createdAt", Shape::one(Kind::Datetime)),
        ("author", Shape::one(Kind::Related)),
    ];
    vocabulary.add(TypeId::new("post"), fields);
    let rule = json!({"rule": "r", "when": {"expr": expr}});
    Plan::compile(&[RuleSource { document: &rule, version: "1" }], &vocabulary, &Limits::default())
}

fn outcome(plan: &Plan, data: &Json) -> Outcome {
    let (type_id, data) = (TypeId::new("post"), Data(data.clone()));
    let item = Item {
        type_id: &type_id,
        values: &data,
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission: SubmissionId::random(),
    };
    plan.finish(plan.scan(&item), &Facts::new())
}

fn passes(expr: &str, data: &Json) -> bool {
    let plan = compile(expr).map_err(|errors| format!("{expr}: {errors:?}")).unwrap();
    !outcome(&plan, data).matched.is_empty()
}

#[test]
fn expression_is_explained_as_a_condition_tree() {
    let plan =
        compile("item.data.likes >= 3 && !(item.data.tags.exists(t, t == 'ok') || item.data.likes % 2 == 0)")
            .unwrap();
    let outcome = outcome(&plan, &json!({"likes": 7, "tags": ["new"]}));
    assert_eq!(
        serde_json::to_value(&outcome.matched[0].tree).unwrap(),
        json!({"all": {"outcome": "passed", "of": [
            {"field": {"outcome": "passed", "path": "likes", "compared": {"gte": 3}, "value": 7}},
            {"not": {"outcome": "passed", "of": {"any": {"outcome": "failed", "of": [
                {"field": {"outcome": "failed", "path": "tags", "compared": {"eq": "ok", "of": "any"}, "value": "new"}},
                {"formula": {"outcome": "failed", "formula": "item.data.likes % 2 == 0", "values": {"likes": 7}}},
            ]}}}},
        ]}})
    );
}

#[test]
fn a_rule_with_a_plain_comparison_is_indexed() {
    let indexed = |expr: &str| compile(expr).unwrap().size().unindexed == 0;
    assert!(indexed("item.data.text == 'a' && size(item.data.tags) > 2"));
    assert!(indexed("3 < item.data.likes"));
    assert!(indexed("item.data.text in ['a', 'b'] || 'x' in item.data.tags"));
    assert!(!indexed("size(item.data.tags) > 2"));
}

#[test]
fn every_expression_form_is_evaluated() {
    let data = json!({
        "text": "it's 日本", "likes": 7, "shares": 2.5, "tags": ["a", "bc"], "scores": [1, 2], "verified": true,
        "labels": {"lang": "de", "a.b": "x"}, "createdAt": "2026-01-01T00:00:00.000Z",
    });
    for (expr, expected) in [
        ("item.data.likes / 2 == 3 && item.data.likes % 4 == 3 && -item.data.likes < -6", true),
        ("item.data.likes + item.data.shares == 9.5", true),
        ("item.data.likes - 1 * 2 == 5 && (item.data.likes - 1) * 2 == 12", true),
        ("size(item.data.text) == 7 && item.data.text.size() == 7", true),
        ("item.data.text.startsWith('it\\'s') && item.data.text.endsWith(\"本\")", true),
        ("item.data.text.matches('^it.s [^a-z]+$')", true),
        ("item.data.tags.all(t, size(t) < 3) && !item.data.tags.exists(t, t.contains('d'))", true),
        ("item.data.scores.exists(n, n * item.data.likes == 14)", true),
        ("item.data.verified && item.data.verified != false", true),
        (
            "item.data.labels.lang == 'de' && item.data.labels['a.b'] == 'x' && size(item.data.labels) == 2",
            true,
        ),
        ("item.data.createdAt < timestamp('2026-01-01T00:00:00.001Z')", true),
        ("has(item.data.text) && !has(item.data.author)", true),
        ("item.data.likes / 0 == 1", false),
        ("!(item.data.likes / 0 == 1)", false),
        ("item.data.likes / 0 == 1 || true == item.data.verified", true),
        ("item.data.likes * 9223372036854775807 > 0", false),
        ("!(item.data.likes * 9223372036854775807 > 0)", false),
    ] {
        assert_eq!(passes(expr, &data), expected, "{expr}");
    }
    for absent in
        ["size(item.data.tags) == 0", "!(size(item.data.tags) == 0)", "item.data.likes == item.data.likes"]
    {
        assert!(!passes(absent, &json!({})), "{absent}");
    }
}

#[test]
fn errors_name_their_place_and_types() {
    for (expr, tag, detail) in [
        ("item.data.likes > ", "expr", "at character 19: expected a value, found the end"),
        ("item.data.likes > 1 ? true : false", "expr", "the conditional operator `?`"),
        ("likes > 1", "expr", "fields are written item.data.likes"),
        ("item.likes > 1", "expr", "such as item.data.title"),
        ("1 < item.data.likes < 3", "expr", "join them with &&"),
        ("item.data.tags.map(t, t)", "expr", "unknown function `map`"),
        ("item.data.tags.exists(t, item.data.tags.exists(u, u == t))", "expr", "cannot be nested"),
        ("item.data.text == 'a", "expr", "no closing quote"),
        ("item.data.text in []", "expr", "the list is empty"),
        ("99999999999999999999 > item.data.likes", "expr", "fit into 64 bits"),
        ("item.data.text.matches(item.data.text)", "expr", "literal pattern"),
        ("item.data.lykes > 1", "unknown_field", "did you mean \"likes\""),
        ("item.data.text > 1", "type", "only numbers and datetimes have an order"),
        ("item.data.text > item.data.labels.lang", "type", "text: only numbers and datetimes have an order"),
        ("'a' <= item.data.text", "type", "only numbers and datetimes have an order"),
        ("item.data.tags.exists(t, t < 'b')", "type", "only numbers and datetimes have an order"),
        ("item.data.verified > (item.data.likes > 1)", "type", "only numbers and datetimes have an order"),
        ("item.data.tags == 'a'", "type", "several values"),
        ("'a' in item.data.text", "type", "is no list"),
        ("'a' in item.data.labels", "type", "\"labels\" is no list"),
        ("item.data.text in item.data.labels", "type", "\"labels\" is no list"),
        ("item.data.labels.exists(t, t == 'a')", "type", "\"labels\" is no list"),
        ("item.data.labels.exists(t, size(t) > 1)", "type", "\"labels\" is no list"),
        ("item.data.labels.all(t, t.startsWith('a'))", "type", "\"labels\" is no list"),
        ("item.data.labels == 'a'", "type", "several values"),
        ("item.data.text + 1 == 2", "type", "arithmetic takes a number, not text"),
        ("item.data.likes + 1", "type", "expected a condition"),
        ("item.data.likes == size(item.data.text) + item.data.author", "type", "cannot compare"),
        ("item.data.tags.exists(t, t * 2 > 1)", "type", "arithmetic takes a number"),
        ("size(item.data.text) == item.data.text", "type", "cannot be compared"),
        ("item.data.text.matches('(')", "regex", "is not valid"),
    ] {
        let errors = compile(expr).err().unwrap();
        let error = &errors[0];
        assert_eq!((error.pointer.as_str(), error.tag()), ("/when/expr", tag), "{expr}: {error}");
        assert!(error.detail.contains(detail), "{expr}: {error}");
    }
}

#[test]
fn least_whole_number_is_accepted_and_smaller_ones_refused() {
    for (expr, sound) in [
        ("item.data.likes > -9223372036854775808", true),
        ("item.data.likes + 1 > - 9223372036854775808", true),
        ("item.data.likes > 9223372036854775808", false),
        ("item.data.likes > -9223372036854775809", false),
        ("item.data.likes > -92233720368547758080", false),
        ("item.data.likes > - -9223372036854775807", true),
        ("item.data.likes > - -9223372036854775808", false),
    ] {
        assert_eq!(compile(expr).is_ok(), sound, "{expr}");
    }
}

#[test]
fn instants_finer_than_a_millisecond_are_refused() {
    for (fraction, sound) in [("", true), (".5", true), (".123000", true), (".1234", false), (",0001", false)]
    {
        let instant = format!("2026-01-31T12:00:00{fraction}Z");
        let expr = compile(&format!("item.data.createdAt > timestamp('{instant}')"));
        assert_eq!(expr.is_ok(), sound, "{instant}");
        let rule = json!({"rule": "r", "when": {"field": {"path": "createdAt", "in": [instant]}}});
        let mut vocabulary = Vocabulary::new();
        vocabulary.add(TypeId::new("post"), [("createdAt", Shape::one(Kind::Datetime))]);
        let sources = [RuleSource { document: &rule, version: "1" }];
        let errors = Plan::compile(&sources, &vocabulary, &Limits::default()).err().unwrap_or_default();
        let places: Vec<_> = errors.iter().map(|error| (error.pointer.as_str(), error.tag())).collect();
        let expected: &[_] = if sound { &[] } else { &[("/when/field/in/0", "type")] };
        assert_eq!(places, expected, "{instant}");
    }
}
