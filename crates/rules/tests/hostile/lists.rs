//! Lists of many values, and words that are as long as what they are sought in: charged for both sides.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Fields, Item, Kind, Limits, On, Outcome, Plan, RuleSource, Shape, Value, Vocabulary,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

/// A text, and tags.
struct Post {
    text: String,
    tags: Vec<String>,
}

impl Fields for Post {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "text" => Some(Value::Text(&self.text)),
            "tags" => Some(Value::List(self.tags.iter().map(|tag| Value::Text(tag)).collect())),
            _ => None,
        }
    }
}

fn outcome(conditions: &[Json], post: &Post, limits: &Limits) -> Outcome {
    let mut vocabulary = Vocabulary::new();
    vocabulary
        .add(TypeId::new("post"), [("text", Shape::one(Kind::Text)), ("tags", Shape::list(Kind::Text))]);
    let documents: Vec<Json> =
        (0..).zip(conditions).map(|(nth, when)| json!({"rule": format!("r{nth}"), "when": when})).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let plan = Plan::compile(&sources, &vocabulary, limits).unwrap();
    let (type_id, submission) = (TypeId::new("post"), SubmissionId::random());
    let item = Item { type_id: &type_id, values: post, user: None, on: On::Item, now: Millis(0), submission };
    plan.finish(plan.scan(&item), &Facts::new())
}

/// Numbers of the rules that matched, and of those that ran out of steps.
fn numbers(outcome: &Outcome) -> (Vec<usize>, Vec<usize>) {
    let number = |rule: &str| rule[1..].parse().unwrap();
    assert!(outcome.errored.iter().all(|it| it.reason == "deadline"));
    (
        outcome.matched.iter().map(|it| number(it.rule.as_str())).collect(),
        outcome.errored.iter().map(|it| number(it.rule.as_str())).collect(),
    )
}

fn few(steps_per_rule: u64) -> Limits {
    Limits { steps_per_rule, ..Limits::default() }
}

#[test]
fn a_text_of_the_item_that_is_sought_in_its_others_is_charged_each_time_it_is_read() {
    let conditions = [
        json!({"expr": "item.data.tags.exists(t, t.contains(item.data.text))"}),
        json!({"expr": "item.data.tags.exists(t, t.startsWith(item.data.text))"}),
        json!({"expr": "item.data.text in item.data.tags"}),
        json!({"expr": "item.data.tags.exists(t, t == item.data.text)"}),
    ];
    let text = "ab".repeat(1_000);
    let alike = vec![format!("{}c", &text[1..]); 500];
    let all = outcome(&conditions, &Post { text: text.clone(), tags: alike.clone() }, &few(20_000));
    assert_eq!(numbers(&all), (vec![], vec![0]));
    let all = outcome(&conditions, &Post { text: text.clone(), tags: alike }, &few(10_000));
    assert_eq!(numbers(&all), (vec![], vec![0, 1, 2, 3]));
    // What is longer than a text is not in it, and nobody has to read either.
    let short = vec!["ab".to_owned(); 500];
    let all = outcome(&conditions, &Post { text: text.clone(), tags: short }, &few(3_500));
    assert_eq!(numbers(&all), (vec![], vec![]));
    let all = outcome(&conditions, &Post { text: text.clone(), tags: vec![text] }, &few(3_500));
    assert_eq!(numbers(&all), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn long_words_are_charged_where_a_search_is_made_of_them() {
    let words: Vec<String> = (0..16).map(|nth| format!("{}{nth:02}", "ab".repeat(500))).collect();
    let conditions = [
        json!({"not": {"text": {"in": ["tags"], "any_of": words}}}),
        // These are read once for all items.
        json!({"field": {"path": "tags", "contains": words}}),
    ];
    let post = |tag: String| Post { text: String::new(), tags: vec![tag; 60] };
    let all = outcome(&conditions, &post("ab".repeat(510)), &few(100_000));
    assert_eq!(numbers(&all), (vec![], vec![0]));
    let all = outcome(&conditions, &post("ab".repeat(500)), &few(17_000));
    assert_eq!(numbers(&all), (vec![0], vec![]));
}

#[test]
fn each_text_is_charged_however_short_and_of_empty_ones_the_first_alone_is_searched() {
    let conditions = [
        json!({"not": {"text": {"in": ["tags"], "any_of": ["nowhere"]}}}),
        json!({"text": {"in": ["tags"], "regex": "^$"}}),
        json!({"field": {"path": "tags", "exists": true}}),
    ];
    let post = |tag: &str| Post { text: String::new(), tags: vec![tag.to_owned(); 10_000] };
    let all = outcome(&conditions, &post("x"), &few(9_000));
    assert_eq!(numbers(&all), (vec![], vec![0, 2]));
    let mut post = post("");
    post.tags[0] = "x".to_owned();
    post.tags[4] = "y".to_owned();
    let all = outcome(&conditions, &post, &few(9_000));
    assert_eq!(numbers(&all), (vec![0, 1], vec![2]));
    let tree = json!(all.matched[1].tree);
    assert_eq!(tree["text"]["hits"][0]["element"], "1", "{tree}");
}
