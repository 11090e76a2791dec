//! Omissions of an evaluation are reported with the evaluation.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use serde_json::{Value, json};
use tidegate_moderation::items::stored;
use tidegate_schemas::{
    ids::{ItemKey, SubmissionId},
    records::Evaluation,
};
use tidegate_stream::Topic;

use super::world::{MATCHED, World, entry, entry_of, org, post};

const LIMIT: usize = 64 << 10;

/// Returns the omissions in the stored evaluation and in its published record.
async fn read_omissions(world: &World, item: &ItemKey, submission: SubmissionId) -> (Value, Option<Value>) {
    let row = world.wait_until_evaluated(item, submission).await;
    let stored: Value = serde_json::from_str(row.left_out.as_deref().unwrap_or("{}")).unwrap();
    let answer = stored::load_answer(&world.deps.store, &org(), item, None).await.unwrap().unwrap();
    let answer = serde_json::to_value(answer).unwrap();
    for name in ["matchedMore", "erroredMore", "uncounted", "truncated"] {
        assert_eq!(answer.get(name), stored.get(name), "{answer}");
    }
    let records: Vec<Evaluation> =
        world.tail(Topic::Evaluations).await.iter().map(|tailed| tailed.decode().unwrap()).collect();
    let mut records = records.into_iter().filter(|record| record.submission_id == submission);
    let record =
        records.next().map(|it| it.left_out.map_or(json!({}), |it| serde_json::from_str(&it).unwrap()));
    assert!(records.next().is_none(), "one record");
    (stored, record)
}

#[tokio::test(flavor = "multi_thread")]
async fn item_longer_than_the_search_limit_reports_the_omission() {
    let mut world = World::started().await;
    for (id, filler, left_out) in
        [("long", LIMIT, json!({"truncated": ["text"]})), ("whole", LIMIT - " scamcoin".len(), json!({}))]
    {
        let text = format!("{} scamcoin", "word ".repeat(filler.div_ceil(5)).split_at(filler).0);
        let item_entry = entry(&post(id), &text);
        let submission = item_entry.submission_id;
        world.submit(vec![item_entry]).await;
        let row = world.wait_until_evaluated(&post(id), submission).await;
        assert_eq!(row.matched.contains("demo-scam"), id == "whole", "{id}: {}", row.matched);
        assert_eq!(
            read_omissions(&world, &post(id), submission).await,
            (left_out.clone(), Some(left_out)),
            "{id}"
        );
    }
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn complete_evaluation_reports_no_omissions() {
    let mut world = World::started().await;
    let submission = world.submit_text("p1", "good morning").await;
    assert_eq!(read_omissions(&world, &post("p1"), submission).await, (json!({}), None));
    assert_eq!(world.wait_until_evaluated(&post("p1"), submission).await.left_out, None);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn matches_beyond_the_listed_ones_are_counted() {
    let mut world = World::started().await;
    let rules: Vec<_> = (0..MATCHED + 15)
        .map(|nth| format!("rule: r{nth}\nwhen: {{text: {{in: [text], words: [expi]}}}}\n"))
        .collect();
    world.configure(&rules.join("---\n"), false).await;
    let submission = world.submit_text("p1", "expi").await;
    let row = world.wait_until_evaluated(&post("p1"), submission).await;
    let listed_rules: Vec<Value> = serde_json::from_str(&row.matched).unwrap();
    assert_eq!(listed_rules.len(), MATCHED);
    let omissions = json!({"matchedMore": 15});
    assert_eq!(read_omissions(&world, &post("p1"), submission).await, (omissions.clone(), Some(omissions)));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn window_that_leaves_out_values_is_named() {
    let mut world = World::started().await;
    let documents = "\
item_type: tagged
kind: CONTENT
fields: [{name: tags, type: STRING, container: ARRAY}]
---
window: by-tag
item_types: [tagged]
by: tags
over: 1h
---
rule: often
status: live
item_types: [tagged]
when: {count: {window: by-tag, gte: 3}}
";
    world.configure(documents, false).await;
    let tags: Vec<_> = (0..40).map(|nth| format!("t{nth}")).collect();
    let item = ItemKey::new("tagged", "p1");
    let item_entry = entry_of(&item, json!({"tags": tags}).to_string());
    let submission = item_entry.submission_id;
    world.submit(vec![item_entry]).await;
    let omissions = json!({"uncounted": ["by-tag"]});
    assert_eq!(read_omissions(&world, &item, submission).await, (omissions.clone(), Some(omissions)));
    world.drain().await;
}

/// Returns the disk size of the files in a folder.
fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|it| if it.is_dir() { disk_bytes(&it) } else { it.metadata().map_or(0, |it| it.blocks() * 512) })
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_matching_rules_take_bounded_bytes_per_item() {
    const ITEMS: usize = 10;
    let mut world = World::started().await;
    let rules: Vec<_> = (0..3_000)
        .map(|nth| format!("rule: every-item-{nth}\nstatus: live\nactions: [ban]\nwhen: {{text: {{in: [text], any_of: [e]}}}}\n"))
        .collect();
    world.configure(&rules.join("---\n"), false).await;
    let before = disk_bytes(&world.data_folder());
    let items: Vec<_> = (0..ITEMS).map(|nth| entry(&post(&format!("p{nth}")), "hello there")).collect();
    let submissions: Vec<_> = items.iter().map(|item| (item.key(), item.submission_id)).collect();
    world.submit(items).await;
    for (item, submission) in submissions {
        let row = world.wait_until_evaluated(&item, submission).await;
        let parts = row.matched.len() + row.errored.len() + row.actions.len();
        assert!(row.matched.contains("every-item") && parts < 40 << 10, "{parts}");
    }
    world.drain().await;
    // Row, plan, record, callback and delivery; the row alone was 860 KB.
    let grown = (disk_bytes(&world.data_folder()) - before) / ITEMS as u64;
    assert!(grown < 200 << 10, "{grown} bytes an item");
}
