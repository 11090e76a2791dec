//! Items of one record that start together have the same results as single items.

use tidegate_schemas::{
    ids::{ItemKey, SubmissionId},
    records::{DeadLetter, ItemEntry},
};
use tidegate_store::tables::items::{items::SubmissionState, plans::Plan, strikes::Strike};
use tidegate_stream::Topic;

use super::world::{World, entry, entry_of, org, post, store_of_rows, user};

fn posts(range: std::ops::Range<usize>, text: &str) -> Vec<ItemEntry> {
    range.map(|nth| entry(&post(&format!("p{nth}")), text)).collect()
}

fn item_ids(entries: &[ItemEntry]) -> Vec<(ItemKey, SubmissionId)> {
    entries.iter().map(|entry| (entry.key(), entry.submission_id)).collect()
}

async fn assert_all_evaluated(world: &World, names: &[(ItemKey, SubmissionId)]) {
    for (item, submission) in names {
        let row = world.wait_until_evaluated(item, *submission).await;
        assert_eq!(
            (row.state.clone(), row.matched.as_str()),
            (SubmissionState::Evaluated.into(), "[]"),
            "{item:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_need_more_than_their_data_leave_the_batch() {
    let mut world = World::started().await;
    let mut entries = posts(0..10, "good morning");
    let quiet = item_ids(&entries);
    let scam = entry(&post("scam"), "buy scamcoin");
    let asks = entry(&post("asks"), "hello");
    let unknown = entry_of(&ItemKey::new("video", "v1"), r#"{"text": "hello"}"#.to_owned());
    let unfit = entry_of(&post("unfit"), r#"{"text": 5}"#.to_owned());
    let (repeated_entry, keyed) = (entry(&post("p3"), "good evening"), entry(&post("keyed"), "good morning"));
    let keyed = ItemEntry { keyed: true, ..keyed };
    let later_ids = item_ids(&[asks.clone(), repeated_entry.clone(), keyed.clone()]);
    let (scam_id, poison) = (scam.submission_id, [unknown.submission_id, unfit.submission_id]);
    for (at, leaving) in [(1, scam), (3, unknown), (5, asks), (7, unfit), (9, repeated_entry), (11, keyed)] {
        entries.insert(at, leaving);
    }
    world.submit(entries).await;
    assert_all_evaluated(&world, &quiet).await;
    assert_all_evaluated(&world, &later_ids).await;
    assert!(world.wait_until_evaluated(&post("scam"), scam_id).await.matched.contains("demo-scam"));
    world.wait_for("the strike", async || world.rows::<Strike>(&(org(), user("u1"))).await.pop()).await;
    world.drain().await;

    let letters: Vec<DeadLetter> =
        world.tail(Topic::DeadLetters).await.iter().map(|tailed| tailed.decode().unwrap()).collect();
    let mut buried: Vec<_> = letters.iter().filter_map(|letter| letter.submission_id).collect();
    buried.sort_unstable();
    let mut expected_ids = poison.to_vec();
    expected_ids.sort_unstable();
    assert_eq!(buried, expected_ids);
    assert_eq!(world.callbacks().await.len(), 1);
    assert_eq!(world.rows::<Plan>(&(org(), scam_id.0)).await.len(), 1);
    let versions = world.versions(&post("p3")).await;
    assert_eq!(versions.len(), 2, "both versions of one record are stored");
    assert_eq!(versions[0].submission_id, later_ids[1].1, "the later one is the newest");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_row_fails_only_its_own_item() {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let mut world = World::on(store_of_rows(&db, 20_000)).await;
    world.start();
    let mut entries = posts(0..20, "good morning");
    let good_ids = item_ids(&entries);
    entries.insert(7, entry(&post("large"), &"long ".repeat(10_000)));
    world.submit(entries).await;
    assert_all_evaluated(&world, &good_ids).await;
    world.drain().await;
    let letters = world.tail(Topic::DeadLetters).await;
    let reasons: Vec<_> =
        letters.iter().map(|tailed| tailed.decode::<DeadLetter>().unwrap().reason).collect();
    assert_eq!(reasons, ["store_row_too_large"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replayed_record_ends_in_the_same_rows() {
    let mut world = World::started().await;
    let entries = posts(0..100, "good morning");
    let sent_ids = item_ids(&entries);
    world.submit(entries).await;
    assert_all_evaluated(&world, &sent_ids).await;
    let mut image = world.image().await;
    world.drain().await;
    image.start();
    let marker = image.submit_text("marker", "good morning").await;
    image.wait_until_evaluated(&post("marker"), marker).await;
    image.drain().await;
    for (item, submission) in &sent_ids {
        let rows = image.versions(item).await;
        assert_eq!(rows.iter().map(|row| row.submission_id).collect::<Vec<_>>(), [*submission]);
        assert_eq!(rows, world.versions(item).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_items_of_one_record_are_all_stored() {
    let mut world = World::started().await;
    let entries = posts(0..6, &"good morning ".repeat(20_000));
    let sent_ids = item_ids(&entries);
    world.submit(entries).await;
    assert_all_partly_evaluated(&world, &sent_ids).await;
    world.drain().await;
}

/// All items are evaluated. Their text exceeds the search limit, which the rows report.
async fn assert_all_partly_evaluated(world: &World, names: &[(ItemKey, SubmissionId)]) {
    for (item, submission) in names {
        assert_eq!(
            world.wait_until_evaluated(item, *submission).await.state,
            SubmissionState::Evaluated,
            "{item:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_one_record_count_each_other_in_order() {
    let mut world = World::started().await;
    let rules = "\
window: posts-by-author
item_types: [post]
over: 6h
---
rule: floods
status: live
item_types: [post]
when: {all: [{text: {in: [text], words: [flood]}}, {count: {window: posts-by-author, gte: 40}}]}
actions: [ban]
";
    world.configure(rules, false).await;
    let mut entries = posts(0..38, "good morning");
    entries.extend(posts(38..42, "flood"));
    let sent_ids = item_ids(&entries);
    world.submit(entries).await;
    for (nth, (item, submission)) in sent_ids.iter().enumerate() {
        let row = world.wait_until_evaluated(item, *submission).await;
        assert_eq!(row.matched.contains("floods"), nth >= 39, "item {nth}: {}", row.errored);
    }
    world.drain().await;
}
