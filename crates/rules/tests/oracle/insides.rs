//! Conditions that lint finds inside of others, against what both come to on texts made to tell them apart.

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Fields, Item, Kind, Limits, On, Outcome, Plan, RuleSource, Shape, Value, Vocabulary, Warning,
};
use tidegate_schemas::ids::{SubmissionId, TypeId};

use crate::{NOW, generator::Dice, setting};

/// Letters with several ways to be written, signs that are letters in some views, and what stands between words.
const PIECES: [&str; 48] = [
    "a", "a", "b", "b", "A", "B", "o", "0", "s", "$", "i", "l", "1", "!", ".", ".", "-", "_", " ", " ", "ß",
    "ẞ", "ss", "İ", "ı", "i\u{307}", "Σ", "ς", "σ", "ﬁ", "㏂", "⒈", "ͺ", "ﹰ", "´", "½", "№", "\u{200b}",
    "\u{301}", "é", "日", "ｶﾞ", "Ａ", "🇩🇪", "👍", "\u{a0}", "ŉ", "K",
];

struct Data(String);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        matches!(name, "text" | "title").then_some(Value::Text(&self.0))
    }
}

fn text(dice: &mut Dice, most: u64) -> String {
    dice.some(most, |dice| dice.one(&PIECES)).concat()
}

/// A part of a text, often its beginning or its end.
fn part(dice: &mut Dice, text: &str) -> String {
    let edges: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let from = if dice.chance(40) { 0 } else { dice.one(&edges) };
    let to = if dice.chance(40) { text.len() } else { dice.one(&edges) };
    text[from.min(to)..from.max(to)].to_owned()
}

/// The same as somebody else writes it.
fn written_otherwise(dice: &mut Dice, text: &str) -> String {
    match dice.roll(5) {
        0 => text.to_uppercase(),
        1 => text.chars().flat_map(|c| vec![c; 1 + usize::from(dice.chance(30))]).collect(),
        2 => text.chars().flat_map(|c| [Some(c), dice.chance(20).then_some('\u{200b}')]).flatten().collect(),
        _ => text.to_owned(),
    }
}

fn condition(dice: &mut Dice, word: &str, compares: bool) -> Json {
    if compares {
        let op = dice.one(&["eq", "in", "starts_with", "ends_with", "contains"]);
        let operand = if op == "in" { json!([word]) } else { json!(word) };
        return json!({"field": {"path": "title", op: operand, "ignore_case": dice.chance(50)}});
    }
    let mut leaf = json!({"in": ["text"], dice.one(&["any_of", "words"]): [word]});
    leaf["view"] = json!(dice.one(&["raw", "lower", "folded", "collapsed"]));
    json!({ "text": leaf })
}

fn outcome(plan: &Plan, text: &str) -> Outcome {
    let (type_id, data) = (TypeId::new("post"), Data(text.to_owned()));
    let submission = SubmissionId::random();
    let item = Item { type_id: &type_id, values: &data, user: None, on: On::Item, now: NOW, submission };
    plan.finish(plan.scan(&item), &Facts::new())
}

#[test]
fn what_lint_says_of_a_condition_inside_of_another_holds() {
    let cases = setting("TIDEGATE_RULES_CASES", 4_000);
    let mut vocabulary = Vocabulary::new();
    let fields = [("text", Shape::one(Kind::Text)), ("title", Shape::one(Kind::Text))];
    vocabulary.add(TypeId::new("post"), fields);
    let (mut covered, mut never, mut applied) = (0, 0, 0);
    for seed in setting("TIDEGATE_RULES_SEED", 0).. {
        if seed - setting("TIDEGATE_RULES_SEED", 0) >= cases {
            break;
        }
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 2);
        let long = text(&mut dice, 6);
        let short = part(&mut dice, &long);
        // A comparison and a search have nothing to do with each other.
        let compare = dice.chance(40);
        let (a, b) = (condition(&mut dice, &long, compare), condition(&mut dice, &short, compare));
        let both = |a: &Json, b: &Json| json!({"all": [a, {"not": b}]});
        let conditions = [("a", a.clone()), ("b", b.clone()), ("ab", both(&a, &b)), ("ba", both(&b, &a))];
        let documents = conditions.map(|(key, when)| json!({"rule": key, "status": "live", "when": when}));
        let sources: Vec<_> =
            documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
        // A word may be nothing in a view.
        let Ok(plan) = Plan::compile(&sources, &vocabulary, &Limits::default()) else { continue };
        let warnings = plan.warnings();
        let warned = |rule: &str, tag: &str, detail: &str| {
            let about = |it: &Warning| it.rule == rule && it.tag() == tag && it.detail.contains(detail);
            warnings.iter().any(about)
        };
        for _ in 0..6 {
            let word = if dice.chance(70) { &long } else { &short };
            let word = written_otherwise(&mut dice, word);
            let (before, behind) = (text(&mut dice, 2), text(&mut dice, 2));
            let beside = if compare { 30 } else { 60 };
            let (before, behind) =
                (dice.chance(beside).then_some(before), dice.chance(beside).then_some(behind));
            let text = format!("{}{word}{}", before.unwrap_or_default(), behind.unwrap_or_default());
            let outcome = outcome(&plan, &text);
            let told = |key: &str| outcome.matched.iter().any(|it| it.rule.as_str() == key);
            for (one, other) in [("a", "b"), ("b", "a")] {
                let covers = warned(one, "subsumed", &format!("rule {other} matches"));
                let cannot = warned(&format!("{one}{other}"), "unsatisfiable", "");
                let wrong = (covers || cannot) && told(one) && !told(other);
                assert!(!wrong, "seed {seed}, {text:?}: {one} {other} {a} {b}");
                covered += u64::from(covers);
                never += u64::from(cannot);
                applied += u64::from((covers || cannot) && told(one));
            }
        }
    }
    println!("{covered} times covered, {never} times impossible, {applied} times it mattered");
    assert!(cases < 4_000 || covered > cases / 2 && never > cases / 2 && applied > cases / 4);
}
