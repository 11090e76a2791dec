//! What must hold for every document that somebody may write: no panic, bounded work, a reason for each refusal.
//!
//! It makes up nothing: the bytes come from a fuzzer, or from a test that draws them.
#![allow(clippy::unwrap_used, reason = "a panic is a finding")]

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Fields, Item, Kind, Limits, Number, Outcome, Plan, RuleError, RuleSource, Shape, Trigger, Value,
    Vocabulary,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

/// An item with a value of each kind.
struct Data<'t>(&'t str);

impl Fields for Data<'_> {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        Some(match name {
            "text" => Value::Text(self.0),
            "tags" => Value::List(self.0.split(' ').map(Value::Text).collect()),
            "likes" => Value::Number(Number::from(7)),
            "verified" => Value::Boolean(true),
            "createdAt" => Value::Datetime(Millis(0)),
            "author" => Value::Related { type_id: "user", id: "u1" },
            "place" => Value::Text("u33dc0"),
            _ => return None,
        })
    }
}

/// Small, so that what is refused for its size is met often.
fn limits() -> Limits {
    Limits {
        nodes: 64,
        words: 256,
        regex_bytes: 64 << 10,
        steps_per_item: 1 << 20,
        steps_per_rule: 1 << 16,
        ..Limits::default()
    }
}

/// A rule's plan, or why it is refused.
fn plan(document: &Json) -> Result<Plan, Vec<RuleError>> {
    let mut vocabulary = Vocabulary::new();
    let fields = [
        ("text", Shape::one(Kind::Text)),
        ("tags", Shape::list(Kind::Text)),
        ("likes", Shape::one(Kind::Number)),
        ("verified", Shape::one(Kind::Boolean)),
        ("createdAt", Shape::one(Kind::Datetime)),
        ("author", Shape::one(Kind::Related)),
        ("place", Shape::one(Kind::Geohash)),
    ];
    vocabulary.add(TypeId::new("post"), fields);
    let plan = Plan::compile(&[RuleSource { document, version: "1" }], &vocabulary, &limits());
    if let Err(faults) = &plan {
        assert!(!faults.is_empty(), "refused without a reason: {document}");
    }
    plan
}

fn evaluate(plan: &Plan, text: &str) -> Outcome {
    let type_id = TypeId::new("post");
    let item = Item {
        type_id: &type_id,
        values: &Data(text),
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission: SubmissionId::random(),
    };
    let scan = plan.scan(&item);
    let facts = Facts::offline(scan.pending_needs());
    plan.finish(scan, &facts)
}

const TEXT: &str = "Buy ScamCoin at 12:30, İstanbul ﬁne e\u{301} 日本 \u{200b} http://bad.example/ 👍🏽 aaaa";

/// A document in JSON.
pub fn rule(bytes: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Json>(bytes) else { return };
    let Ok(plan) = plan(&document) else { return };
    // Whatever is accepted is evaluated twice to the same, looked through, and explained.
    assert_eq!(evaluate(&plan, TEXT), evaluate(&plan, TEXT));
    evaluate(&plan, "");
    plan.warnings();
}

/// A text.
pub fn expr(bytes: &[u8]) {
    let Ok(expr) = std::str::from_utf8(bytes) else { return };
    match plan(&json!({"rule": "r", "item_types": ["post"], "when": {"expr": expr}})) {
        Ok(plan) => drop(evaluate(&plan, TEXT)),
        Err(faults) => {
            let named = |fault: &RuleError| fault.pointer == "/when/expr";
            assert!(faults.iter().all(named), "{expr}: {faults:?}");
        }
    }
}

/// A pattern, a zero byte, and a text. What the plan finds by parts of a pattern is what the pattern finds alone.
pub fn regex(bytes: &[u8]) {
    let Ok(both) = std::str::from_utf8(bytes) else { return };
    let (pattern, text) = both.split_once('\0').unwrap_or((both, TEXT));
    let leaf = json!({"text": {"in": ["text"], "view": "raw", "regex": pattern}});
    let Ok(plan) = plan(&json!({"rule": "r", "item_types": ["post"], "when": leaf})) else { return };
    let outcome = evaluate(&plan, text);
    if outcome.errored.is_empty() && outcome.truncated.is_empty() {
        let alone = ::regex::Regex::new(pattern).unwrap().is_match(text);
        assert_eq!(!outcome.matched.is_empty(), alone, "{pattern:?} in {text:?}");
    }
}
