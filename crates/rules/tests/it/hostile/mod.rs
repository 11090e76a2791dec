//! Rule documents that are invalid or hostile.

mod budgets;
mod comparisons;
mod lists;
mod random;

use serde_json::{Map, Value as Json, json};
use tidegate_rules::{Fields, Kind, Limits, Plan, RuleError, RuleSource, Shape, Value, Vocabulary};
use tidegate_schemas::ids::TypeId;

fn compile(document: &Json) -> Result<(), Vec<RuleError>> {
    let mut vocabulary = Vocabulary::new();
    let fields = [
        ("text", Shape::one(Kind::Text)),
        ("likes", Shape::one(Kind::Number)),
        ("createdAt", Shape::one(Kind::Datetime)),
        ("author", Shape::one(Kind::Related)),
    ];
    vocabulary.add(TypeId::new("post"), fields);
    vocabulary
        .add(TypeId::new("page"), [("text", Shape::one(Kind::Text)), ("likes", Shape::one(Kind::Text))]);
    Plan::compile(&[RuleSource { document, version: "1" }], &vocabulary, &Limits::default()).map(|_| ())
}

fn errors(when: &Json) -> Vec<RuleError> {
    compile(&json!({"rule": "r", "item_types": ["post"], "when": when})).unwrap_err()
}

#[test]
fn errors_name_rule_path_and_nearest_name() {
    let text = |field: &str| json!({"text": {"in": [field], "any_of": ["x"]}});
    let cases = [
        (
            json!({"all": [text("text"), text("txet")]}),
            "/when/all/1/text/in/0",
            "unknown_field",
            "mean \"text\"?",
        ),
        (json!({"txt": {}}), "/when/txt", "unknown_key", "mean \"text\"?"),
        (
            json!({"text": {"in": ["text"], "anyof": ["x"]}}),
            "/when/text/anyof",
            "unknown_key",
            "mean \"any_of\"?",
        ),
        (json!({"text": {"in": ["text"], "any_of": []}}), "/when/text/any_of", "empty", "is empty"),
        (json!({"text": {"in": ["text"], "any_of": [" "]}}), "/when/text/any_of/0", "empty", "blank"),
        (json!({"text": {"in": [], "any_of": ["x"]}}), "/when/text/in", "empty", "is empty"),
        (json!({"text": {"in": ["text"], "regex": "("}}), "/when/text/regex", "regex", "unclosed group"),
        (
            json!({"text": {"in": ["text"], "regex": "(?:\\w{500}){500}"}}),
            "/when/text/regex",
            "regex",
            "262144",
        ),
        (json!({"text": {"in": ["text"], "regex": "a", "word": true}}), "/when/text", "shape", "`word`"),
        (text("likes"), "/when/text/in/0", "type", "a number"),
        (json!({"field": {"path": "likes", "lt": "7"}}), "/when/field/lt", "type", "a number"),
        (json!({"field": {"path": "text", "lt": "7"}}), "/when/field/lt", "type", "order"),
        (json!({"field": {"path": "likes", "in": [1, "2"]}}), "/when/field/in/1", "type", "a number"),
        (json!({"field": {"path": "createdAt", "gt": "soon"}}), "/when/field/gt", "type", "a datetime"),
        (
            json!({"field": {"path": "author.name", "eq": "x"}}),
            "/when/field/path",
            "unknown_field",
            "author.name",
        ),
        (json!({"field": {"path": "likes"}}), "/when/field", "shape", "has no operator"),
        (json!({"strikes": {"gte": 0}}), "/when/strikes", "type", "1 or more"),
        (json!({"strikes": {"gte": 1, "within": "soon"}}), "/when/strikes/within", "type", "30d"),
        (json!({"all": [], "any": []}), "/when", "shape", "exactly one"),
        (json!({"any": []}), "/when/any", "empty", "is empty"),
    ];
    for (when, pointer, tag, detail) in cases {
        let errors = errors(&when);
        let is_expected = |error: &RuleError| {
            error.rule == "r"
                && error.pointer == pointer
                && error.tag() == tag
                && error.detail.contains(detail)
        };
        assert!(errors.iter().any(is_expected), "{when}: {errors:?}");
    }
    let document = json!({"rule": "r", "item_types": ["pots"], "when": text("text")});
    assert!(compile(&document).unwrap_err()[0].to_string().contains("rule \"r\", /item_types/0"));
    let mixed = json!({"rule": "r", "when": {"field": {"path": "likes", "eq": 1}}});
    assert_eq!(compile(&mixed).unwrap_err()[0].tag(), "type");
}

#[test]
fn a_tree_too_deep_too_wide_or_too_wordy_is_refused() {
    let leaf = json!({"text": {"in": ["text"], "any_of": ["x"]}});
    let nested = |levels: usize| (0..levels).fold(leaf.clone(), |inner, _| json!({"not": inner}));
    let all = |n: usize| json!({"all": vec![leaf.clone(); n]});
    let word = |n: usize| json!({"text": {"in": ["text"], "any_of": vec!["x"; n]}});
    let accepted = |when: &Json| compile(&json!({"rule": "r", "when": when})).is_ok();
    assert!(accepted(&nested(31)) && accepted(&all(999)) && accepted(&word(10_000)));
    for (when, tag) in [
        (nested(32), "depth"),
        (nested(100), "depth"),
        (all(1_000), "nodes"),
        (all(100_000), "limit"),
        (word(100_000), "limit"),
        (json!({"any": [word(6_000), word(6_000)]}), "limit"),
        (json!({"text": {"in": ["text"], "any_of": ["x".repeat(2_000)]}}), "limit"),
        (json!({"text": {"in": ["text"], "regex": "x".repeat(100_000)}}), "limit"),
        (
            json!({"text": {"in": ["text"], "regex": format!("{}a{}", "(".repeat(99), ")".repeat(99))}}),
            "regex",
        ),
    ] {
        assert_eq!(errors(&when)[0].tag(), tag);
    }
}

#[test]
fn a_document_lists_at_most_a_hundred_errors() {
    let unknown: Map<String, Json> = (0..10_000).map(|n| (format!("key{n}"), json!(1))).collect();
    assert_eq!(compile(&Json::Object(unknown)).unwrap_err().len(), 100);
}

#[test]
fn schema_has_exactly_the_keys_of_the_reader() {
    let schema = include_str!("../../../../../schemas/documents/condition.schema.json");
    let schema: Json = serde_json::from_str(schema).unwrap();
    let keys = |of: &Json| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    // The reader refuses an unknown key, and the error of a wrong shape lists all known keys.
    let reader_keys = |leaf: &str| {
        let errors = errors(&json!({leaf: {"?": 1}}));
        let pointer = format!("/when/{leaf}/?");
        assert!(
            errors.iter().any(|error| error.pointer == pointer && error.tag() == "unknown_key"),
            "{errors:?}"
        );
        let shape_errors = compile(&json!({"rule": "r", "when": {leaf: 7}})).unwrap_err();
        let mut key_names: Vec<_> =
            shape_errors[0].detail.split(" with ").nth(1).unwrap().split(", ").map(str::to_owned).collect();
        key_names.sort();
        key_names
    };
    for leaf in ["text", "field", "strikes", "count", "media", "score", "model_text", "geo", "domain"] {
        assert_eq!(keys(&schema["$defs"][leaf]["properties"]), reader_keys(leaf), "{leaf}");
    }
    for view in schema["$defs"]["text"]["properties"]["view"]["enum"].as_array().unwrap() {
        let leaf = json!({"text": {"in": ["text"], "any_of": ["x"], "view": view}});
        assert!(compile(&json!({"rule": "r", "item_types": ["post"], "when": leaf})).is_ok(), "{view}");
    }
}

/// An item with a text only.
struct Data(String);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        (name == "text").then_some(Value::Text(&self.0))
    }
}
