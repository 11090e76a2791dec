//! Comparisons of long texts: charged for the bytes read, and cheap if many conditions share them.

use serde_json::{Value as Json, json};
use tidegate_rules::{Facts, Item, Kind, Limits, Outcome, Plan, RuleSource, Shape, Trigger, Vocabulary};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

use super::Data;

/// Outcomes of comparisons of one field on a text.
fn outcome(comparisons: &[Json], text: &str, limits: &Limits) -> Outcome {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let document = |(nth, compared): (usize, &Json)| {
        let mut field = compared.clone();
        field["path"] = json!("text");
        json!({"rule": format!("r{nth}"), "when": {"field": field}})
    };
    let documents: Vec<Json> = comparisons.iter().enumerate().map(document).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let plan = Plan::compile(&sources, &vocabulary, limits).unwrap();
    let (type_id, values) = (TypeId::new("post"), Data(text.to_owned()));
    let submission = SubmissionId::random();
    let item = Item {
        type_id: &type_id,
        values: &values,
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission,
    };
    plan.finish(plan.scan(&item), &Facts::new())
}

fn matched_rules(outcome: &Outcome) -> Vec<&str> {
    outcome.matched.iter().map(|it| it.rule.as_str()).collect()
}

fn errored(outcome: &Outcome) -> Vec<&str> {
    assert!(outcome.errored.iter().all(|it| it.reason == "deadline"));
    outcome.errored.iter().map(|it| it.rule.as_str()).collect()
}

fn words(count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("word{nth}")).collect()
}

#[test]
fn comparison_is_charged_for_the_text_it_reads() {
    let comparisons = [
        json!({"contains": "nowhere"}),
        json!({"contains": "Nowhere", "ignore_case": true}),
        json!({"contains": words(17)}),
        json!({"contains": words(17), "of": "none"}),
        json!({"contains": words(16)}),
        // These comparisons stop at the first letters, or at the length.
        json!({"starts_with": words(500)}),
        json!({"ends_with": "nowhere"}),
        json!({"eq": "nowhere"}),
        json!({"not_in": words(5_000), "ignore_case": true}),
    ];
    let text = "аБ ".repeat(200_000);
    let all = outcome(&comparisons, &text, &Limits { steps_per_rule: 10_000, ..Limits::default() });
    assert_eq!((matched_rules(&all), errored(&all)), (vec!["r8"], vec!["r0", "r1", "r2", "r3", "r4"]));
    let all = outcome(&comparisons, &text, &Limits::default());
    assert_eq!((matched_rules(&all), errored(&all)), (vec!["r3", "r8"], vec![]));
}

#[test]
fn ten_thousand_texts_are_searched_in_one_pass() {
    let list = words(10_000);
    let comparisons: Vec<Json> =
        (0..4).map(|nth| json!({"contains": list[nth..], "ignore_case": nth % 2 == 1})).collect();
    let limits = Limits { steps_per_rule: 70_000, words: 10_000, ..Limits::default() };
    let text = format!("{}Word3,", "wor ".repeat(262_000));
    let all = outcome(&comparisons, &text, &limits);
    assert_eq!((matched_rules(&all), errored(&all)), (vec!["r1", "r3"], vec![]));
}

#[test]
fn text_is_lowered_once_for_all_conditions() {
    let comparisons: Vec<Json> =
        words(300).into_iter().map(|word| json!({"contains": word, "ignore_case": true})).collect();
    let text = "Слово ".repeat(25_000);
    // One step for 16 bytes in all, and one for 64 bytes for each rule.
    let limits = Limits { steps_per_item: 1_500_000, steps_per_rule: 100_000, ..Limits::default() };
    let all = outcome(&comparisons, &text, &limits);
    assert_eq!((matched_rules(&all), errored(&all)), (vec![], vec![]));
    let short = Limits { steps_per_item: 17_000, steps_per_rule: 17_000, ..Limits::default() };
    assert_eq!(errored(&outcome(&comparisons, &text, &short)).len(), 300);
}
