//! Published schemas of documents, and rendered documents, against the structs that read them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_schemas::{
    banks::BankKind,
    documents::{
        Access, Action, ActionKind, ActionStrikes, Bank, DecisionRequirements, Document, DocumentKind,
        Endpoint, Event, Expectation, FieldDocument, Format, ItemType, OnError, Parameter, ParameterType,
        Percent, Period, Policy, Quarantine, Queue, QueueClass, QueueOrder, Reach, Rollout, RolloutBy,
        Routing, RoutingEntry, Rule, RuleAction, RuleLimits, Severity, Signal, SignalBatch, SignalInput,
        SignalOutput, Status, SubmissionOrigin, Test, Threshold, Window, parse, render,
    },
    ids::Millis,
    item_types::{Container, Kind, Role, Scalar},
};

/// Valid (`true`) and invalid documents. Schema and struct must agree on each.
const TABLE: &[(bool, &str)] = &[
    (true, r#"{"item_type":"t","kind":"USER"}"#),
    (
        true,
        r#"{"item_type":"t","name":"T","kind":"USER","fields":[{"name":"a","type":"ID"}],"strict":true,"version":"1","earlier_versions":["0"]}"#,
    ),
    (false, r#"{"item_type":"t"}"#),
    (false, r#"{"item_type":"t","kind":"user"}"#),
    (false, r#"{"item_type":"t","kind":"USER","strict":"yes"}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"TEXT"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"ID","container":"SET"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"ID","role":"boss"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"ID","x":1}]}"#),
    (false, r#"{"item_type":"a b","kind":"USER"}"#),
    (true, r#"{"policy":"p","name":null,"parent":null}"#),
    (true, r#"{"policy":"p","name":"P","parent":"q"}"#),
    (true, r#"{"policy":"p","text":"t","guidelines":"g","severity":"severe","strikes":0}"#),
    (false, r#"{"policy":"p","severity":"worst"}"#),
    (false, r#"{"policy":"p","strikes":-1}"#),
    (true, r#"{"action":"a","kind":"callback","strikes":"policies"}"#),
    (false, r#"{"action":"a","kind":"callback","strikes":"policy"}"#),
    (false, r#"{"policy":7}"#),
    (false, r#"{"policy":"p","parent":7}"#),
    (false, r#"{"policy":"p","words":"x"}"#),
    (true, r#"{"queue":"q","name":"Q","auto_close_after":"30d"}"#),
    (false, r#"{"queue":"q","auto_close_after":30}"#),
    (
        true,
        r#"{"queue":"q","description":"d","class":"appeal","access":{"people":["a"],"roles":null},"hidden_actions":["x"],"require":{"reason":true},"target_age":"4h","order":{"severity":0,"reach":{"field":"views","weight":1}}}"#,
    ),
    (false, r#"{"queue":"q","class":"reviews"}"#),
    (false, r#"{"queue":"q","order":{"severity":10}}"#),
    (false, r#"{"queue":"q","order":{"reach":{"field":"views"}}}"#),
    (false, r#"{"queue":"q","require":{"policies":true}}"#),
    (true, r#"{"routing":"reports","entries":[]}"#),
    (true, r#"{"routing":"rules","entries":[{"name":"n","item_types":["t"],"when":{},"queue":"q"}]}"#),
    (false, r#"{"routing":"users","entries":[]}"#),
    (false, r#"{"routing":"reports"}"#),
    (false, r#"{"routing":"reports","entries":[{"when":{}}]}"#),
    (false, r#"{"queue":""}"#),
    (false, r#"{"queue":"q","order":1}"#),
    (true, r#"{"endpoint":"e","url":"https://e.example","headers":{"a":"b"},"events":["user.threshold"]}"#),
    (false, r#"{"endpoint":"e"}"#),
    (false, r#"{"endpoint":"e","url":"https://e.example","headers":{"a":1}}"#),
    (false, r#"{"endpoint":"e","url":"https://e.example","events":["all"]}"#),
    (false, r#"{"endpoint":"e","url":"https://e.example","method":"PUT"}"#),
    (true, r#"{"threshold":"t","strikes":3,"within":"90d","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":0,"within":"90d","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":-1,"within":"90d","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":3,"within":"90 days","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":3,"within":"90d"}"#),
    (false, r#"{"threshold":"t","strikes":3,"within":"90d","action":"a","user":1}"#),
    (
        true,
        r#"{"action":"a","kind":"callback","name":"A","endpoint":"e","strikes":2,"parameters":[{"name":"x","type":"STRING","required":true,"default":"d"}]}"#,
    ),
    (
        true,
        r#"{"action":"a","kind":"enqueue_review","parameters":[{"name":"x","type":"SELECT","options":["a"]}]}"#,
    ),
    (true, r#"{"action":"a","kind":"enqueue_child_safety","queue":"child-safety"}"#),
    (false, r#"{"action":"a"}"#),
    (false, r#"{"action":"a","kind":"delete"}"#),
    (false, r#"{"action":"a","kind":"callback","strikes":1.5}"#),
    (false, r#"{"action":"a","kind":"callback","parameters":[{"name":"x"}]}"#),
    (false, r#"{"action":"a","kind":"callback","parameters":[{"name":"x","type":"DATE"}]}"#),
    (false, r#"{"action":"a","kind":"callback","url":"x"}"#),
    (
        true,
        r#"{"rule":"r","when":{"all":[]},"name":"R","status":"background","on":["report"],"item_types":["t"],"policies":["p"],"actions":["a",{"id":"b"},{"id":"c","params":{"x":1}}],"expires_at":"2027-01-01T00:00:00Z","tests":[{"name":"n","item_type":"t","item":{},"expect":"no_match"}]}"#,
    ),
    (
        true,
        r#"{"rule":"r","when":{},"rollout":{"percent":0.5,"salt":"v7","by":"user"},"limits":{"actions_per_day":500,"per_user_cooldown":"24h","alarm_per_hour":9},"review_sample":2,"on_error":"review"}"#,
    ),
    // Null equals an absent field, except for required and unknown fields.
    (
        true,
        r#"{"rule":"r","when":{},"name":null,"status":null,"on":null,"item_types":null,"policies":null,"actions":null,"expires_at":null,"rollout":null,"limits":null,"review_sample":null,"on_error":null,"tests":null}"#,
    ),
    (
        true,
        r#"{"rule":"r","when":{},"actions":[{"id":"a","params":null}],"rollout":{"percent":1,"salt":null,"by":null},"limits":{"actions_per_day":null},"tests":[{"name":null,"item":{"a":null},"counts":null,"expect":"match"}]}"#,
    ),
    (false, r#"{"rule":"r","when":null}"#),
    (false, r#"{"rule":null,"when":{}}"#),
    (false, r#"{"rule":"r","when":{},"priority":null}"#),
    (true, r#"{"window":"w","item_types":null,"over":"1d","bucket":null}"#),
    (false, r#"{"window":"w","over":null}"#),
    (true, r#"{"item_type":"t","kind":"USER","fields":null,"strict":null}"#),
    (true, r#"{"bank":"b","kind":"text","entries":null,"suppresses":null}"#),
    (true, r#"{"action":"a","kind":"callback","strikes":null,"parameters":null}"#),
    (true, r#"{"endpoint":"e","url":"https://e.example","headers":null,"events":null}"#),
    (false, r#"{"rule":"r","when":{},"rollout":{"percent":101}}"#),
    (false, r#"{"rule":"r","when":{},"rollout":{"salt":"v7"}}"#),
    (false, r#"{"rule":"r","when":{},"rollout":{"percent":1,"by":"org"}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"actions_per_day":0}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"per_user_cooldown":"a day"}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"per_hour":3}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"alarm_per_hour":0}}"#),
    (false, r#"{"rule":"r","when":{},"review_sample":-1}"#),
    (false, r#"{"rule":"r","when":{},"on_error":"ignore"}"#),
    (false, r#"{"rule":"r"}"#),
    (false, r#"{"rule":"r","when":{},"status":"on"}"#),
    (false, r#"{"rule":"r","when":{},"on":["user"]}"#),
    (false, r#"{"rule":"r","when":{},"actions":[7]}"#),
    (false, r#"{"rule":"r","when":{},"actions":[{"params":{}}]}"#),
    (false, r#"{"rule":"r","when":{},"actions":[{"id":"a","x":1}]}"#),
    (false, r#"{"rule":"r","when":{},"tests":[{"item":{}}]}"#),
    (false, r#"{"rule":"r","when":{},"tests":[{"item":{},"expect":"yes"}]}"#),
    (false, r#"{"rule":"r","when":{},"priority":1}"#),
    (true, r#"{"bank":"b","kind":"text"}"#),
    (true, r#"{"bank":"b","name":"B","kind":"domain","entries":["example.com"]}"#),
    (
        true,
        r#"{"bank":"b","kind":"pdq","distance":31,"sample":12.5,"suppresses":["c"],"quarantine":{"matches":9,"within":"5m"}}"#,
    ),
    (false, r#"{"bank":"b","kind":"pdq","distance":32}"#),
    (false, r#"{"bank":"b","kind":"pdq","quarantine":{"matches":9}}"#),
    (false, r#"{"bank":"b"}"#),
    (false, r#"{"bank":"b","kind":"words"}"#),
    (false, r#"{"bank":"b","kind":"text","entries":[7]}"#),
    (false, r#"{"bank":"b","kind":"text","enabled":true}"#),
    (true, r#"{"window":"w","over":"24h"}"#),
    (
        true,
        r#"{"window":"w","name":"W","item_types":["t"],"by":"links","where":{"all":[]},"sum":"amount","over":"7d","bucket":"1h"}"#,
    ),
    (true, r#"{"window":"w","by":null,"where":null,"distinct":"to","over":"90s"}"#),
    (false, r#"{"window":"w"}"#),
    (false, r#"{"window":"a b","over":"1d"}"#),
    (false, r#"{"window":"w","over":"1 day"}"#),
    (false, r#"{"window":"w","over":"1d","by":["a"]}"#),
    (false, r#"{"window":"w","over":"1d","item_types":"t"}"#),
    (false, r#"{"window":"w","over":"1d","count":1}"#),
    (true, r#"{"signal":"s","url":"https://m.example","input":"text","output":{"score":"/score"}}"#),
    (
        true,
        r#"{"signal":"s","url":"https://m.example","headers":null,"input":"image_url","fields":null,"request":{"a":["${input}"]},"output":{"score":null,"labels":{"x":"/x"},"labels_at":null,"text":null},"batch":null,"cache":"0s","timeout":"60s","cost":0}"#,
    ),
    (
        true,
        r#"{"signal":"s","url":"https://m.example","input":"text","output":{"score":"/s"},"batch":{"max":1,"answers":null}}"#,
    ),
    (
        false,
        r#"{"signal":"s","url":"https://m.example","input":"text","output":{"score":"/s"},"batch":{"max":0}}"#,
    ),
    (
        false,
        r#"{"signal":"s","url":"https://m.example","input":"text","output":{"score":"/s"},"batch":{"answers":"/a"}}"#,
    ),
    (
        false,
        r#"{"signal":"s","url":"https://m.example","input":"text","output":{"score":"/s"},"batch":{"max":1,"wait":"5ms"}}"#,
    ),
    (true, r#"{"signal":"s","url":"https://m.example","input":"text","output":{"text":"/text"}}"#),
    (false, r#"{"signal":"s","url":"https://m.example","input":"text"}"#),
    (false, r#"{"signal":"s","url":"https://m.example","input":"audio","output":{"score":"/score"}}"#),
    (false, r#"{"signal":"s","url":"https://m.example","input":"text","output":{"score":"/s"},"cost":-1}"#),
    (false, r#"{"signal":"s","url":"https://m.example","input":"text","output":{"number":"/s"}}"#),
];

/// Validates a value by the part of JSON Schema that the published schemas use.
fn matches_schema(schema: &Value, root: &Value, value: &Value) -> bool {
    if let Some(path) = schema["$ref"].as_str() {
        // The structs accept any condition.
        if path == "condition.schema.json" {
            return !value.is_null();
        }
        return matches_schema(root.pointer(&path[1..]).unwrap(), root, value);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return choices.iter().filter(|choice| matches_schema(choice, root, value)).count() == 1;
    }
    if let Some(choices) = schema["enum"].as_array() {
        return choices.contains(value);
    }
    let typed = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the schema uses the type {other}"),
    };
    let right_type = match &schema["type"] {
        Value::Null => true,
        Value::String(name) => typed(name),
        Value::Array(names) => names.iter().any(|name| typed(name.as_str().unwrap())),
        other => panic!("{other}"),
    };
    let patterned = match (schema["pattern"].as_str(), value.as_str()) {
        (Some("^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"), Some(text)) => tidegate_schemas::documents::is_key(text),
        (Some("^[0-9]+[dhms]$"), Some(text)) => {
            let (digits, unit) = text.split_at(text.len().saturating_sub(1));
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && "dhms".contains(unit)
        }
        (Some("^policies$"), Some(text)) => text == "policies",
        (None, _) | (_, None) => true,
        (Some(other), _) => panic!("the schema uses the pattern {other}"),
    };
    let (minimum, maximum) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    let bounded = value.as_f64().is_none_or(|number| {
        minimum.is_none_or(|minimum| number >= minimum) && maximum.is_none_or(|maximum| number <= maximum)
    });
    let members = value.as_object().is_none_or(|object| {
        let properties = schema["properties"].as_object();
        let required = schema["required"].as_array();
        required.is_none_or(|names| names.iter().all(|name| object.contains_key(name.as_str().unwrap())))
            && object.iter().all(|(key, member)| match properties.and_then(|all| all.get(key)) {
                Some(property) => matches_schema(property, root, member),
                None => match &schema["additionalProperties"] {
                    Value::Bool(allowed) => *allowed,
                    Value::Null => true,
                    schema => matches_schema(schema, root, member),
                },
            })
    });
    let elements = value.as_array().is_none_or(|list| {
        schema["items"].is_null()
            || list.iter().all(|element| matches_schema(&schema["items"], root, element))
    });
    right_type && patterned && bounded && members && elements
}

#[test]
fn published_schemas_and_structs_accept_the_same_documents() {
    let mut row_counts = BTreeMap::new();
    for (good, text) in TABLE {
        let value: Value = serde_json::from_str(text).unwrap();
        let kind = DocumentKind::ALL.into_iter().find(|kind| value.get(kind.name()).is_some()).unwrap();
        // `rule` and `action` keys stand inside other kinds, so the first key decides.
        let kind = DocumentKind::ALL
            .into_iter()
            .find(|kind| text.starts_with(&format!("{{\"{}\"", kind.name())))
            .unwrap_or(kind);
        let schema: Value = serde_json::from_str(kind.schema()).unwrap();
        assert_eq!(matches_schema(&schema, &schema, &value), *good, "schema of {text}");
        let parsed = parse(&[("t.json", text)]);
        assert_eq!(parsed.is_ok(), *good, "struct of {text}: {parsed:?}");
        row_counts.entry((kind, *good)).and_modify(|count| *count += 1).or_insert(1);
    }
    assert_eq!(row_counts.len(), 2 * DocumentKind::ALL.len(), "every kind has good and bad rows");
}

#[test]
fn published_schemas_have_exactly_the_fields_of_the_structs() {
    for (kind, full) in full_documents() {
        let schema: Value = serde_json::from_str(kind.schema()).unwrap();
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let full_json: Value = serde_json::to_value(&full).unwrap();
        assert_eq!(names(&schema["properties"]), names(&full_json), "{}", kind.name());
        for (list, definition) in
            [("fields", "field"), ("parameters", "parameter"), ("actions", "action"), ("tests", "test")]
        {
            if let Some(first) = full_json[list].get(0).filter(|first| first.is_object()) {
                assert_eq!(names(&schema["$defs"][definition]["properties"]), names(first), "{definition}");
            }
        }
        for definition in ["rollout", "limits"] {
            if let Some(part) = full_json.get(definition) {
                assert_eq!(names(&schema["$defs"][definition]["properties"]), names(part), "{definition}");
            }
        }
    }
}

/// One document of each kind, in which every field differs from its default.
fn full_documents() -> Vec<(DocumentKind, Document)> {
    let documents = vec![
        Document::ItemType(ItemType {
            key: "t".into(),
            name: Some("T".into()),
            kind: Kind::Content,
            fields: vec![FieldDocument {
                name: "f".into(),
                scalar: Scalar::Id,
                required: true,
                container: Some(Container::Map),
                role: Some(Role::Creator),
            }],
            strict: true,
            version: Some("1".into()),
            earlier_versions: vec!["0".into()],
        }),
        Document::Policy(Policy {
            key: "p".into(),
            name: Some("P".into()),
            parent: Some("q".into()),
            text: Some("No p.".into()),
            guidelines: Some("P is p.".into()),
            severity: Some(Severity::High),
            strikes: Some(3),
        }),
        Document::Action(Action {
            key: "a".into(),
            name: Some("A".into()),
            kind: ActionKind::Callback,
            endpoint: Some("e".into()),
            queue: Some("q".into()),
            strikes: ActionStrikes::FromPolicies,
            parameters: vec![Parameter {
                name: "x".into(),
                kind: ParameterType::Select,
                required: true,
                options: vec!["o".into()],
                default: Some(json!("o")),
            }],
        }),
        Document::Rule(Rule {
            key: "r".into(),
            name: Some("R".into()),
            status: Status::Live,
            on: vec![SubmissionOrigin::Report],
            item_types: vec!["t".into()],
            when: json!({}),
            policies: vec!["p".into()],
            actions: vec![RuleAction { id: "a".into(), params: [("x".to_owned(), json!(1))].into() }],
            expires_at: Some(Millis(0)),
            rollout: Some(Rollout {
                percent: Percent::new(12.5).unwrap(),
                salt: Some("s".into()),
                by: RolloutBy::User,
            }),
            limits: RuleLimits {
                actions_per_day: Some(5),
                per_user_cooldown: Some(Period::of_seconds(60)),
                alarm_per_hour: Some(9),
            },
            review_sample: Percent::new(1.0),
            on_error: OnError::Matched,
            tests: vec![Test {
                name: Some("n".into()),
                item_type: Some("t".into()),
                item: json!({}),
                strikes: 3,
                counts: [("w".to_owned(), json!(2))].into(),
                scores: [("m".to_owned(), json!(0.5))].into(),
                texts: [("m".to_owned(), json!("t"))].into(),
                media: vec![json!({"bank": "b"})],
                expect: Expectation::Match,
            }],
        }),
        Document::Endpoint(Endpoint {
            key: "e".into(),
            url: "https://e.example".into(),
            headers: [("a".to_owned(), "b".to_owned())].into(),
            events: vec![Event::AppealDecision],
            custom: [("source".to_owned(), json!({"name": [1]}))].into_iter().collect(),
            child_safety: true,
        }),
        Document::Threshold(Threshold {
            key: "t".into(),
            strikes: 3,
            within: Period::of_seconds(86_400),
            action: "a".into(),
        }),
        Document::Queue(Queue {
            key: "q".into(),
            name: Some("Q".into()),
            description: Some("about it".into()),
            class: Some(QueueClass::Review),
            access: Access { people: vec!["ada".into()], roles: vec!["lead".into()] },
            hidden_actions: vec!["a".into()],
            require: DecisionRequirements { reason: true, policy: true },
            target_age: Some(Period::of_seconds(3_600)),
            auto_close_after: Some(Period::of_seconds(86_400)),
            order: QueueOrder {
                severity: 1,
                reporters: 2,
                age: 3,
                reach: Some(Reach { field: "views".into(), weight: 4 }),
                max_wait: Period::of_seconds(7_200),
            },
        }),
        Document::Routing(Routing {
            key: "reports".into(),
            entries: vec![RoutingEntry {
                name: Some("n".into()),
                item_types: vec!["t".into()],
                when: Some(json!({})),
                queue: "q".into(),
            }],
        }),
        Document::Bank(Bank {
            key: "b".into(),
            name: Some("B".into()),
            kind: BankKind::Gradient,
            entries: vec!["00ff00ff00ff00ff".into()],
            file: Some("more.txt".into()),
            distance: Some(2),
            sample: Percent::new(12.5),
            suppresses: vec!["c".into()],
            quarantine: Some(Quarantine { matches: 9, within: Period::of_seconds(60), times: 3 }),
        }),
        Document::Signal(Signal {
            key: "s".into(),
            name: Some("S".into()),
            url: "https://m.example".into(),
            headers: [("a".to_owned(), "b".to_owned())].into(),
            input: SignalInput::Text,
            fields: vec!["text".into()],
            request: [("text".to_owned(), json!("${input}"))].into_iter().collect(),
            output: SignalOutput {
                score: Some("/score".into()),
                labels: [("x".to_owned(), "/x".to_owned())].into(),
                labels_at: Some("/labels".into()),
                text: Some("/text".into()),
            },
            batch: Some(SignalBatch { max: 32.try_into().unwrap(), answers: "/results".into() }),
            cache: Period::of_seconds(60),
            timeout: Period::of_seconds(3),
            cost: 7,
            child_safety: true,
        }),
        Document::Window(Window {
            key: "w".into(),
            name: Some("W".into()),
            item_types: vec!["t".into()],
            by: Some("links".into()),
            condition: Some(json!({})),
            sum: Some("amount".into()),
            distinct: Some("to".into()),
            over: Period::of_seconds(86_400),
            bucket: Some(Period::of_seconds(3_600)),
        }),
    ];
    documents.into_iter().map(|document| (document.kind(), document)).collect()
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300_f64..1e300).prop_map(|f| json!(f)),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any_text(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Value of a required field, never null.
fn required_value() -> impl Strategy<Value = Value> {
    any_value().prop_map(|value| if value.is_null() { json!({}) } else { value })
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z ._/$-]{0,9}",
        "[ -~\n\t\u{85}\u{2028}\u{feff}é😀]{0,12}",
        Just("yes".to_owned()),
        Just("~".to_owned()),
        Just("<<".to_owned()),
        Just("0o17".to_owned()),
        Just("1_000".to_owned()),
        Just("2026-01-01".to_owned()),
        Just("- a".to_owned()),
        Just("---".to_owned()),
    ]
}

prop_compose! {
    fn any_rule()(
        key in "[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", name in prop::option::of(any_text()), when in required_value(),
        report: bool, policies in prop::collection::vec(any_text(), 0..3), params in prop::collection::btree_map(any_text(), any_value(), 0..3),
        at in prop::option::of(0_i64..4_000_000_000_000), tests in prop::collection::vec(required_value(), 0..2),
        share in 0_u16..=10_000,
    ) -> Document {
        Document::Rule(Rule {
            key: key.into(), name, status: if report { Status::Live } else { Status::Draft },
            on: if report { vec![SubmissionOrigin::Report] } else { vec![SubmissionOrigin::Item] }, item_types: vec!["t".into()], when, policies,
            actions: vec![RuleAction { id: "a".into(), params }], expires_at: at.map(Millis),
            rollout: None, limits: RuleLimits::default(),
            review_sample: Percent::new(f64::from(share) / 100.0), on_error: OnError::default(),
            tests: tests.into_iter().map(|item| Test {
                name: None, item_type: None, item, strikes: 0, counts: BTreeMap::new(), scores: BTreeMap::new(), texts: BTreeMap::new(), media: Vec::new(),
                expect: Expectation::NoMatch,
            }).collect(),
        })
    }
}

prop_compose! {
    fn any_endpoint()(
        key in "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", url in any_text(), headers in prop::collection::btree_map(any_text(), any_text(), 0..4),
        events in prop::sample::subsequence(Event::ALL.to_vec(), 0..=4), child_safety: bool,
    ) -> Document {
        Document::Endpoint(Endpoint { key: key.into(), url, headers, events, custom: serde_json::Map::new(), child_safety })
    }
}

prop_compose! {
    fn any_item_type()(
        key in "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name in prop::option::of(any_text()), strict: bool, version in prop::option::of(any_text()), earlier_versions in prop::collection::vec(any_text(), 0..3),
        fields in prop::collection::btree_map("[a-zA-Z 0-9._é:#-]{1,12}", (0_usize..16, any::<bool>(), any::<bool>()), 0..6),
    ) -> Document {
        let fields = fields.into_iter().filter(|(name, _)| name != "images").map(|(name, (scalar, required, list))| FieldDocument {
            name, scalar: Scalar::ALL[scalar], required, container: list.then_some(Container::Array), role: None,
        });
        Document::ItemType(ItemType { key: key.into(), name, kind: Kind::Thread, fields: fields.collect(), strict, version, earlier_versions })
    }
}

proptest! {
    #[test]
    fn rendered_document_is_read_back_unchanged(document in prop_oneof![any_rule(), any_endpoint(), any_item_type()]) {
        for (format, name) in [(Format::Json, "d.json"), (Format::Yaml, "d.yaml")] {
            let text = render(&document, format);
            let parsed = parse(&[(name, &text)]).map_err(|faults| TestCaseError::fail(format!("{faults:?}\n{text}")))?;
            prop_assert_eq!(parsed.len(), 1);
            prop_assert_eq!(&parsed[0].1, &document, "{}", text);
            prop_assert_eq!(render(&parsed[0].1, format), text);
        }
    }
}

#[test]
fn every_kind_survives_rendering_in_both_formats() {
    for (_, document) in full_documents() {
        // The full documents also combine fields that exclude each other.
        let document = match document {
            Document::ItemType(_) => continue,
            Document::Action(action) => Document::Action(Action { queue: None, ..action }),
            other => other,
        };
        for (format, name) in [(Format::Json, "d.json"), (Format::Yaml, "d.yaml")] {
            let text = render(&document, format);
            assert_eq!(parse(&[(name, &text)]).unwrap()[0].1, document, "{text}");
        }
    }
}
