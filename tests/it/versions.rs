//! Items of an earlier version of their type, from the request to the rules.

use crate::support::{Demo, Place};
use serde_json::{Value, json};

async fn configure(demo: &Demo, documents: &str) {
    let change = json!({ "files": [{ "name": "note.yaml", "text": documents }] });
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
}

const RULES: &str = "
rule: wordy
status: live
item_types: [note]
when: {text: {in: [text], words: [alpha]}}
actions: [review]
---
rule: many
status: live
item_types: [note]
when: {field: {path: score, gt: 3}}
actions: [review]
";

#[tokio::test]
async fn rules_read_items_of_an_earlier_version() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    configure(
        &demo,
        "item_type: note\nkind: CONTENT\nfields: [{name: text, type: STRING}, {name: score, type: STRING}]\n",
    )
    .await;
    let fields = "[{name: text, type: STRING}, {name: score, type: NUMBER}, {name: title, type: STRING, required: true}]";
    configure(&demo, &format!("item_type: note\nkind: CONTENT\nfields: {fields}\n---{RULES}")).await;
    let note = |id: &str, version: &str, data: Value| json!({ "id": id, "typeId": "note", "typeVersion": version, "data": data });
    demo.submit(&note("old", "1", json!({ "text": "alpha", "score": "9" }))).await;
    demo.submit(&note("new", "2", json!({ "text": "alpha", "score": 9, "title": "t" }))).await;
    let matched_rules = async |id: &str| {
        let item = demo.evaluated("note", id).await;
        assert_eq!(item["erroredRules"], json!([]), "{item}");
        let rules = item["matchedRules"].as_array().unwrap().iter();
        let mut rules: Vec<_> = rules.map(|rule| rule["id"].as_str().unwrap().to_owned()).collect();
        rules.sort_unstable();
        rules
    };
    assert_eq!(matched_rules("new").await, ["many", "wordy"]);
    // The item's score has another type than the rule's field.
    assert_eq!(matched_rules("old").await, ["wordy"]);
    assert_eq!(demo.stop().await.code(), Some(0));
}
