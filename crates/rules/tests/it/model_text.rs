//! Texts of models are searched like texts of the item, and only if the model returned one.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Fields, Item, Kind, Limits, Need, Outcome, Plan, RuleSource, Scan, Scores, Shape, Trigger, Value,
    Vocabulary, run_tests,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};
use uuid::Uuid;

/// An item with texts only.
struct Texts(Vec<String>);

impl Fields for Texts {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        match (name, &self.0[..]) {
            ("text", [one]) => Some(Value::Text(one)),
            ("texts", several) => Some(Value::List(several.iter().map(|text| Value::Text(text)).collect())),
            _ => None,
        }
    }
}

fn compile(rules: &[Json], limits: &Limits) -> Plan {
    let mut vocabulary = Vocabulary::new();
    vocabulary
        .add(TypeId::new("post"), [("text", Shape::one(Kind::Text)), ("texts", Shape::list(Kind::Text))]);
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "v1" }).collect();
    Plan::compile(&sources, &vocabulary, limits).map_err(|errors| format!("{errors:?}")).unwrap()
}

fn rule(when: &Json) -> Json {
    json!({"rule": "r", "status": "live", "item_types": ["post"], "when": when})
}

fn scan(plan: &Plan, texts: &[&str]) -> Scan {
    let (type_id, texts) = (TypeId::new("post"), Texts(texts.iter().map(ToString::to_string).collect()));
    plan.scan(&Item {
        type_id: &type_id,
        values: &texts,
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission: SubmissionId::from(Uuid::nil()),
    })
}

fn of_model(texts: &[&str]) -> Scores {
    Scores { texts: texts.iter().map(|text| Arc::from(*text)).collect(), ..Scores::default() }
}

/// Evaluates a rule on an item without texts. `answer` answers its needs.
fn outcome(plan: &Plan, answer: impl Fn(&mut Facts, Need)) -> Outcome {
    let scanned = scan(plan, &[]);
    let mut facts = Facts::new();
    scanned.pending_needs().iter().for_each(|need| answer(&mut facts, need.clone()));
    plan.finish(scanned, &facts)
}

fn answer_texts(texts: &[&str]) -> impl Fn(&mut Facts, Need) {
    let scores = of_model(texts);
    move |facts, need| facts.set_scores(need, scores.clone())
}

#[test]
fn a_text_of_a_model_is_searched_as_one_of_the_item() {
    let words: Vec<_> = (0..40).map(|nth| format!("word{nth}")).collect();
    let searches = [
        json!({"words": ["scam"]}),
        json!({"any_of": ["scam", "coin"], "view": "folded", "min_distinct": 2}),
        json!({"all_of": ["buy", "now"], "view": "collapsed"}),
        json!({"regex": "c[o0]ins?"}),
        json!({"regex": ["^buy", "NOW$"], "view": "raw", "min_distinct": 2}),
        json!({"any_of": words}),
    ];
    let texts: [&[&str]; 6] = [
        &["buy scam coins now"],
        &["Buuuy SC4M c0ins NOW"],
        &["buy", "scam coin now"],
        &["word7 word39 scamming"],
        &[""],
        &["", "ﬁne 日本 coin"],
    ];
    let mut passed = 0;
    for search in &searches {
        let with = |key: &str, value: Json| {
            let mut condition = search.clone();
            condition[key] = value;
            condition
        };
        for texts in texts {
            let field = if texts.len() == 1 { "text" } else { "texts" };
            let item_plan =
                compile(&[rule(&json!({"text": with("in", json!([field]))}))], &Limits::default());
            let item_outcome = item_plan.finish(scan(&item_plan, texts), &Facts::new());
            let model =
                compile(&[rule(&json!({"model_text": with("model", json!("m"))}))], &Limits::default());
            let model = outcome(&model, answer_texts(texts));
            assert_eq!(model.matched.len(), item_outcome.matched.len(), "{search} {texts:?}");
            assert!(model.errored.is_empty());
            let hits = |outcome: &Outcome, key: &str| {
                let tree = serde_json::to_value(&outcome.matched[0].tree).unwrap();
                let mut hits = tree[key]["hits"].clone();
                hits.as_array_mut().unwrap().iter_mut().for_each(|hit| hit["field"] = json!("-"));
                hits
            };
            if !item_outcome.matched.is_empty() {
                passed += 1;
                assert_eq!(hits(&model, "model_text"), hits(&item_outcome, "text"), "{search} {texts:?}");
            }
        }
    }
    assert!(passed > 8, "{passed}");
}

#[test]
fn missing_text_never_passes_and_has_a_reason() {
    for when in [
        json!({"model_text": {"model": "m", "words": ["x"]}}),
        json!({"not": {"model_text": {"model": "m", "words": ["x"]}}}),
    ] {
        let plan = compile(&[rule(&when)], &Limits::default());
        let failed = outcome(&plan, |facts, need| facts.set_failed(need, "timeout"));
        assert_eq!((failed.matched.len(), &*failed.errored[0].reason), (0, "model_text: timeout"));
        let unanswered = outcome(&plan, Facts::set_unknown);
        assert!(unanswered.matched.is_empty() && unanswered.errored.is_empty(), "{when}");
        // The model returned numbers only.
        let number = outcome(&plan, |facts, need| {
            facts.set_scores(need, Scores { overall: Some(1.0), ..Scores::default() });
        });
        assert!(number.matched.is_empty() && number.errored.is_empty(), "{when}");
    }
    let plan =
        compile(&[rule(&json!({"not": {"model_text": {"model": "m", "words": ["x"]}}}))], &Limits::default());
    assert_eq!(outcome(&plan, answer_texts(&[""])).matched.len(), 1, "an empty text is a known text");
}

#[test]
fn models_are_asked_only_while_a_rule_depends_on_them() {
    let condition = json!({"all": [
        {"text": {"in": ["text"], "words": ["video"]}},
        {"model_text": {"model": "speech", "words": ["scam"]}},
        {"score": {"model": "speech", "gte": 0.5}},
        {"score": {"model": "dear", "gte": 0.5}},
    ]});
    let plan = compile(&[rule(&condition)], &Limits::default());
    assert!(scan(&plan, &["a picture"]).pending_needs().is_empty());
    let scanned = scan(&plan, &["a video"]);
    assert_eq!(scanned.pending_needs().len(), 2, "text and number of a model are one answer");
    let undecided_with = |text: &str| {
        let mut facts = Facts::new();
        let speech = scanned
            .pending_needs()
            .iter()
            .find(|need| matches!(need, Need::Score { model, .. } if model == "speech"));
        facts.set_scores(speech.unwrap().clone(), Scores { overall: Some(0.9), ..of_model(&[text]) });
        assert!(facts.has_texts());
        plan.undecided_scores(&scanned, &facts).concat().len()
    };
    assert_eq!((undecided_with("a scam"), undecided_with("a song")), (1, 0));
}

#[test]
fn long_text_is_truncated_and_named() {
    let limits = Limits { text_bytes: 20, ..Limits::default() };
    let rules = ["early", "later"].map(|word| {
        let mut rule = rule(&json!({"model_text": {"model": "m", "words": [word]}}));
        rule["rule"] = json!(word);
        rule
    });
    let plan = compile(&rules, &limits);
    let long = outcome(&plan, answer_texts(&["an early word and then a later one"]));
    let matched_rules: Vec<_> = long.matched.iter().map(|it| it.rule.as_str()).collect();
    assert_eq!((matched_rules, long.truncated), (vec!["early"], vec!["signal:m".to_owned()]));
    let short = outcome(&plan, answer_texts(&["early and later"]));
    assert_eq!((short.matched.len(), short.truncated.len()), (2, 0));
    // A score of the same model is not searched.
    let number = compile(&[rule(&json!({"score": {"model": "m", "gte": 0.5}}))], &limits);
    assert!(outcome(&number, answer_texts(&["an early word and then a later one"])).truncated.is_empty());
}

#[test]
fn searches_of_model_texts_are_charged() {
    let limits = Limits { steps_per_rule: 100, ..Limits::default() };
    let plan = compile(&[rule(&json!({"model_text": {"model": "m", "regex": "(a|b)+c"}}))], &limits);
    assert_eq!(outcome(&plan, answer_texts(&["abc"])).matched.len(), 1);
    let long = "ab".repeat(10_000);
    assert_eq!(outcome(&plan, answer_texts(&[&long])).errored[0].reason, "model_text: deadline");
}

#[test]
fn examples_define_the_answers_of_models() {
    let run = |texts: Json| {
        let mut rule = rule(&json!({"model_text": {"model": "m", "words": ["scam"]}}));
        rule["tests"] = json!([{"item": {}, "texts": texts, "expect": "match"}]);
        let plan = compile(&[rule], &Limits::default());
        let read = |_: &TypeId, _: &Json| {
            Ok(tidegate_rules::TestItem { values: Box::new(Texts(Vec::new())), user: None })
        };
        serde_json::to_value(&run_tests(&plan, Millis(0), read)[0].result).unwrap()
    };
    assert_eq!(run(json!({"m": "a scam"})), "right");
    assert_eq!(run(json!({"m": ["a song", "a scam"]})), "right");
    assert_eq!(run(json!({"m": "a song"})), "missed");
    assert_eq!(run(json!({})), "missed");
}
