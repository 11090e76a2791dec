//! Items of a batch: quiet items finish with their rows, all others are processed alone.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_catalog::{Settings, change};
use tidegate_moderation::{
    Error,
    items::{
        batch::{self, BatchItem},
        stored::Submission,
    },
};
use tidegate_rules::Interrupt;
use tidegate_schemas::{
    ids::{ConfigVersion, Kind, Millis, OrgId, derive},
    records::{Coordinates, ItemEntry, Items, Source, Variant},
};

const DOCUMENTS: &str = "\
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
  - {name: picture, type: IMAGE}
  - {name: author, type: RELATED_ITEM, role: creator}
---
item_type: user
kind: USER
---
action: hide
kind: callback
---
window: posts-by-author
item_types: [post]
over: 6h
---
rule: scam
status: live
when: {text: {in: [text], words: [scamcoin]}}
actions: [hide]
---
rule: in-background
status: background
when: {text: {in: [text], words: [doubtful]}}
---
rule: known-offender
status: live
when: {all: [{text: {in: [text], words: [hello]}}, {strikes: {gte: 2, within: 30d}}]}
actions: [hide]
";

fn evaluate(documents: &str, data: &Value) -> Result<BatchItem, Error> {
    let files = [("config.yaml".to_owned(), documents.to_owned())];
    let (config, _) = change::compile_offline(&files, &Settings::default()).unwrap();
    let entry = ItemEntry {
        submission_id: derive(Kind::Submission, &[b"one"]),
        type_id: "post".into(),
        id: "p1".into(),
        type_version: None,
        variant: Variant::Original,
        data: Bytes::from(data.to_string()),
        origin: None,
        keyed: false,
    };
    let record = Items {
        org: OrgId::new("acme"),
        config_version: ConfigVersion(1),
        source: Source::Api,
        received_at: Millis(0),
        request_id: String::new(),
        report_id: None,
        items: vec![entry],
    };
    let coordinates = Coordinates { append_ms: Millis(0), offset: 0, position: 0 };
    let submission = Submission::new(&record, &record.items[0], coordinates);
    let item = batch::evaluate(&Arc::new(config), &submission, &Interrupt::default())?;
    Ok(item.expect("the evaluation was interrupted"))
}

fn text(text: &str) -> Value {
    json!({"text": text, "author": {"typeId": "user", "id": "u1"}})
}

#[test]
fn only_quiet_items_finish_in_the_batch() {
    let picture = json!({"text": "good morning", "picture": "https://media.example/1.png"});
    for (data, is_quiet) in [
        (text("good morning"), true),
        (text("buy scamcoin"), false),
        // A background match has no effects, but is published and counted.
        (text("doubtful"), false),
        // The rule needs strikes.
        (text("hello"), false),
        (picture, false),
        // A truncated text is published as an omission.
        (text(&"long ".repeat(100_000)), false),
    ] {
        let item = evaluate(DOCUMENTS, &data).unwrap();
        assert_eq!(item.rows.is_some(), is_quiet, "{:.60}", data.to_string());
    }
}

#[test]
fn window_entries_are_returned_for_every_outcome() {
    let counting = "\
---
rule: floods
status: live
when: {all: [{text: {in: [text], words: [hello]}}, {count: {window: posts-by-author, gte: 4}}]}
actions: [hide]
";
    let documents = format!("{DOCUMENTS}{counting}");
    for (data, is_quiet) in [(text("good morning"), true), (text("hello"), false), (text("scamcoin"), false)]
    {
        let item = evaluate(&documents, &data).unwrap();
        assert_eq!((item.entries.len(), item.rows.is_some()), (1, is_quiet), "{data}");
    }
}

#[test]
fn content_that_does_not_fit_its_type_is_an_error() {
    assert!(matches!(
        evaluate(DOCUMENTS, &json!({"text": 5})),
        Err(Error::Content { tag: "unfit_data", .. })
    ));
}
