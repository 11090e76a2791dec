//! Lists of many values, and words as long as the searched text: both sides are charged.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Fields, Item, Kind, Limits, Outcome, Plan, RuleSource, Shape, Trigger, Value, Vocabulary,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

/// A text, tags, a number, and places.
#[derive(Default)]
struct Post {
    text: String,
    tags: Vec<String>,
    likes: i64,
    route: Vec<String>,
}

impl Fields for Post {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "text" => Some(Value::Text(&self.text)),
            "tags" => Some(texts(&self.tags)),
            "route" => Some(texts(&self.route)),
            "likes" => Some(Value::Number(self.likes.into())),
            _ => None,
        }
    }
}

fn texts(texts: &[String]) -> Value<'_> {
    Value::List(texts.iter().map(|text| Value::Text(text)).collect())
}

fn outcome(conditions: &[Json], post: &Post, limits: &Limits) -> Outcome {
    evaluate(conditions, post, limits).0
}

/// Evaluates rules on a post. Returns the outcome and the number of evaluated rules.
fn evaluate(conditions: &[Json], post: &Post, limits: &Limits) -> (Outcome, usize) {
    let mut vocabulary = Vocabulary::new();
    let fields = [
        ("text", Shape::one(Kind::Text)),
        ("tags", Shape::list(Kind::Text)),
        ("likes", Shape::one(Kind::Number)),
        ("route", Shape::list(Kind::Geohash)),
    ];
    vocabulary.add(TypeId::new("post"), fields);
    let documents: Vec<Json> =
        (0..).zip(conditions).map(|(nth, when)| json!({"rule": format!("r{nth}"), "when": when})).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let plan = Plan::compile(&sources, &vocabulary, limits).unwrap();
    let (type_id, submission) = (TypeId::new("post"), SubmissionId::random());
    let item =
        Item { type_id: &type_id, values: post, user: None, on: Trigger::Item, now: Millis(0), submission };
    let scan = plan.scan(&item);
    let evaluated = scan.evaluated_rules();
    (plan.finish(scan, &Facts::new()), evaluated)
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
fn field_compared_with_others_is_charged_per_read() {
    let conditions = [
        json!({"expr": "item.data.tags.exists(t, t.contains(item.data.text))"}),
        json!({"expr": "item.data.tags.exists(t, t.startsWith(item.data.text))"}),
        json!({"expr": "item.data.text in item.data.tags"}),
        json!({"expr": "item.data.tags.exists(t, t == item.data.text)"}),
    ];
    let text = "ab".repeat(1_000);
    let alike = vec![format!("{}c", &text[1..]); 500];
    let all = outcome(
        &conditions,
        &Post { text: text.clone(), tags: alike.clone(), ..Post::default() },
        &few(20_000),
    );
    assert_eq!(numbers(&all), (vec![], vec![0]));
    let all =
        outcome(&conditions, &Post { text: text.clone(), tags: alike, ..Post::default() }, &few(10_000));
    assert_eq!(numbers(&all), (vec![], vec![0, 1, 2, 3]));
    // A word longer than the text cannot occur in it, so neither is read.
    let short = vec!["ab".to_owned(); 500];
    let all = outcome(&conditions, &Post { text: text.clone(), tags: short, ..Post::default() }, &few(3_500));
    assert_eq!(numbers(&all), (vec![], vec![]));
    let all =
        outcome(&conditions, &Post { text: text.clone(), tags: vec![text], ..Post::default() }, &few(3_500));
    assert_eq!(numbers(&all), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn preparing_a_search_for_a_long_word_is_charged() {
    let words: Vec<String> = (0..16).map(|nth| format!("{}{nth:02}", "ab".repeat(500))).collect();
    let conditions = [
        json!({"not": {"text": {"in": ["tags"], "any_of": words}}}),
        // These are read once for all items.
        json!({"field": {"path": "tags", "contains": words}}),
    ];
    let post = |tag: String| Post { text: String::new(), tags: vec![tag; 60], ..Post::default() };
    let all = outcome(&conditions, &post("ab".repeat(510)), &few(100_000));
    assert_eq!(numbers(&all), (vec![], vec![0]));
    let all = outcome(&conditions, &post("ab".repeat(500)), &few(17_000));
    assert_eq!(numbers(&all), (vec![0], vec![]));
}

#[test]
fn each_text_is_charged_and_one_empty_text_searched() {
    let conditions = [
        json!({"not": {"text": {"in": ["tags"], "any_of": ["nowhere"]}}}),
        json!({"text": {"in": ["tags"], "regex": "^$"}}),
        json!({"field": {"path": "tags", "exists": true}}),
    ];
    let post =
        |tag: &str| Post { text: String::new(), tags: vec![tag.to_owned(); 10_000], ..Post::default() };
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

#[test]
fn a_repeated_list_value_nominates_its_rules_once() {
    let condition = |likes: usize| {
        json!({"all": [
            {"field": {"path": "tags", "eq": "a"}},
            {"field": {"path": "likes", "gt": likes}},
        ]})
    };
    let conditions: Vec<Json> = (0..500).map(condition).collect();
    for (likes, matched) in [(-1, 0), (250, 250)] {
        let post = Post { text: String::new(), tags: vec!["a".to_owned(); 5_000], likes, ..Post::default() };
        let (outcome, evaluated) = evaluate(&conditions, &post, &Limits::default());
        assert_eq!((outcome.matched.len(), evaluated), (matched, 500));
    }
}

#[test]
fn each_area_that_a_place_may_lie_in_is_charged() {
    // The place lies in the corner of a box around each circle.
    let circle = |nth: usize| json!({"lat": 0, "lng": 0, "m": 100_000 + nth});
    let in_circles = json!({"geo": {"in": ["route"], "within": (0..2_000).map(circle).collect::<Vec<_>>()}});
    let conditions = [in_circles.clone(), json!({ "not": in_circles })];
    let post = |place: &str, count| Post { route: vec![place.to_owned(); count], ..Post::default() };
    let (corner, inside) = ("s00th00y3", "s00001z63");
    for (place, count, expected) in [
        (corner, 10, (vec![1], vec![])),
        (corner, 1_000, (vec![], vec![0, 1])),
        (inside, 1_000, (vec![0], vec![])),
    ] {
        let all = outcome(&conditions, &post(place, count), &few(100_000));
        assert_eq!(numbers(&all), expected, "{place} {count}");
    }
    let all = outcome(&conditions, &post(inside, 1_000), &few(100_000));
    let tree = json!(all.matched[0].tree);
    let areas: Vec<_> = tree["geo"]["hits"].as_array().unwrap().iter().map(|hit| &hit["area"]).collect();
    assert_eq!((areas.len(), areas[0], areas[15]), (16, &json!("0,0,100000"), &json!("0,0,100015")));
}

#[test]
fn each_parent_domain_of_a_host_is_charged() {
    let conditions = [json!({"not": {"domain": {"in": ["text"], "any_of": ["bad.example"]}}})];
    let text = format!("{}example,", "a.".repeat(120)).repeat(200);
    let post = Post { text, ..Post::default() };
    assert_eq!(numbers(&outcome(&conditions, &post, &few(30_000))), (vec![0], vec![]));
    assert_eq!(numbers(&outcome(&conditions, &post, &few(20_000))), (vec![], vec![0]));
}

#[test]
fn reading_hosts_beyond_ascii_is_charged_even_if_none_is_found() {
    let bad = json!({"domain": {"in": ["text"], "any_of": ["bad.example"]}});
    let conditions = [bad.clone(), json!({"not": bad})];
    for (piece, steps) in [("xn--ü.a ", 72), ("%C3%BC.%C3%BC ", 78), ("。", 67), ("a☃.", 69)] {
        let post = Post { text: piece.repeat(200), ..Post::default() };
        let numbers_with = |steps: u64| {
            let limits = Limits { steps_per_item: steps, steps_per_rule: steps, ..Limits::default() };
            numbers(&outcome(&conditions, &post, &limits))
        };
        assert_eq!(numbers_with(200 * steps - 1), (vec![], vec![0, 1]), "{piece}");
        assert_eq!(numbers_with(400 * steps + 40_000), (vec![1], vec![]), "{piece}");
    }
}
