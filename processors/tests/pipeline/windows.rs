//! What windows count: each item once, and itself before anything is asked for it.

use bytes::Bytes;
use tidegate_moderation::windows;
use tidegate_rules::{Amount, WindowEntry};
use tidegate_schemas::{ids::Millis, records::ItemEntry};
use tidegate_store::{
    At, Store,
    tables::items::{items::Item, windows::HoursEntry},
};
use tidegate_stream::Topic;

use crate::world::{World, entry_of, org, post};

const AUTOMATIC: &str = "action.automatic";

const RULES: &str = "\
window: posts-by-author
item_types: [post]
over: 6h
---
rule: floods
status: live
item_types: [post]
when: {all: [{text: {in: [text], words: [flood]}}, {count: {window: posts-by-author, gte: 4}}]}
actions: [ban]
";

fn by(author: &str, id: &str, text: &str) -> ItemEntry {
    let data = serde_json::json!({"text": text, "author": {"typeId": "user", "id": author}});
    entry_of(&post(id), data.to_string())
}

async fn submit(world: &World, entries: Vec<ItemEntry>) -> Vec<Item> {
    let sent: Vec<_> = entries.iter().map(|entry| (entry.key(), entry.submission_id)).collect();
    for entry in entries {
        world.submit(vec![entry]).await;
    }
    let mut rows = Vec::new();
    for (item, submission) in sent {
        rows.push(world.evaluated(&item, submission).await);
    }
    rows
}

fn fired(row: &Item) -> bool {
    row.matched.contains("floods")
}

/// Over all buckets, which the test's clock may cross.
async fn counted(store: &Store, author: &str) -> usize {
    let bucket = Millis::now().0.div_euclid(900_000);
    let mut rows = 0;
    for bucket in bucket - 4..=bucket {
        let partition = (org(), "posts-by-author".into(), format!("user/{author}"), bucket);
        rows += store.scan::<HoursEntry>(&partition, At::all()).all().await.unwrap().len();
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_fires_from_the_item_on_with_which_the_window_is_full() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    for nth in 0..6 {
        let rows = submit(&world, vec![by("u1", &format!("p{nth}"), "flood")]).await;
        assert_eq!(fired(&rows[0]), nth >= 3, "item {nth}: {}", rows[0].errored);
    }
    let other = submit(&world, vec![by("u2", "q", "flood")]).await;
    assert!(!fired(&other[0]), "another author has a count of their own");
    assert_eq!(counted(&world.deps.store, "u1").await, 6);
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_match_no_rule_are_counted_too() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    submit(&world, (0..3).map(|nth| by("u1", &format!("p{nth}"), "good morning")).collect()).await;
    let rows = submit(&world, vec![by("u1", "last", "flood")]).await;
    assert!(fired(&rows[0]));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_counts_nothing_twice_and_acts_on_nothing_new() {
    let mut first = World::started().await;
    first.configure(RULES, false).await;
    let mut last = None;
    for nth in 0..8 {
        last = submit(&first, vec![by("u1", &format!("p{nth}"), "flood")]).await.pop();
    }
    assert!(last.as_ref().is_some_and(fired));
    let mut second = first.image().await;
    first.drain().await;
    second.start();
    let mut markers = Vec::new();
    for nth in 0..8 {
        markers.push(by("u2", &format!("p{nth}"), "good morning"));
    }
    submit(&second, markers).await;
    second.drain().await;
    assert_eq!(counted(&second.deps.store, "u1").await, 8);
    assert_eq!(second.events(AUTOMATIC).await, first.events(AUTOMATIC).await);
}

/// As if a processor had died once the item was counted.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_was_counted_before_a_crash_is_counted_once() {
    let mut world = World::new().await;
    world.configure(RULES, false).await;
    let entry = by("u1", "p1", "flood");
    let submission = entry.submission_id;
    world.submit(vec![entry]).await;
    let at = world.tail(Topic::Items).await[0].written_at;
    let counted_before = WindowEntry {
        window: "posts-by-author".into(),
        key: serde_json::from_str("\"user/u1\"").unwrap(),
        bucket: at.0.div_euclid(900_000),
        at,
        amount: Amount::ONE,
        members: Vec::new(),
        lives: 6 * 3_600_000 + 900_000,
    };
    windows::add(&world.deps.store, &org(), submission, &[counted_before]).await.unwrap();
    assert_eq!(counted(&world.deps.store, "u1").await, 1);
    world.start();
    world.evaluated(&post("p1"), submission).await;
    assert_eq!(counted(&world.deps.store, "u1").await, 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_sent_again_under_its_key_is_counted_once() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    let keyed = ItemEntry { keyed: true, ..by("u1", "p1", "flood") };
    world.submit(vec![keyed.clone()]).await;
    world.submit(vec![keyed.clone()]).await;
    submit(&world, vec![by("u2", "p1", "good morning")]).await;
    assert_eq!(counted(&world.deps.store, "u1").await, 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_needs_too_many_rows_is_an_error_and_not_silence() {
    use tidegate_processors::Settings;
    let mut world = World::with(Settings { window_rows: 5, ..Settings::default() }).await;
    world.configure(&RULES.replace("gte: 4", "gte: 20"), false).await;
    world.start();
    submit(&world, (0..8).map(|nth| by("u1", &format!("p{nth}"), "flood")).collect()).await;
    let rows = submit(&world, vec![by("u1", "last", "flood")]).await;
    assert!(rows[0].errored.contains("count: too_many_rows"), "{}", rows[0].errored);
    world.drain().await;
}

/// Rows of another process, read piece by piece.
#[tokio::test]
async fn what_lies_outside_of_the_window_or_above_the_threshold_is_not_counted() {
    use tidegate_moderation::windows::{Question, counted};
    use tidegate_rules::{Measure, Window, WindowKey};
    use tidegate_store::WriteTime;
    let world = World::new().await;
    let store = &world.deps.store;
    let now = Millis::now();
    let window = Window { key: "w".into(), measure: Measure::Count, over: 3_600_000, bucket: 150_000 };
    let put = async |minutes_ago: i64, nth: u128| {
        let at = Millis(now.0 - minutes_ago * 60_000);
        let row = HoursEntry {
            org: org(),
            window: "w".into(),
            key: "k".to_owned(),
            bucket: window.bucket_of(at),
            submission_id: tidegate_schemas::ids::derive(
                tidegate_schemas::ids::Kind::Submission,
                &[&nth.to_be_bytes()],
            ),
            at,
            amount: 1_000_000,
            members: Bytes::new(),
        };
        store.put(WriteTime::of(at, 0), &[row]).await.unwrap();
    };
    for nth in 0..300_u128 {
        // 150 inside of the last hour, the others before it or after now.
        put([5, 59, 61, -2][usize::try_from(nth % 4).unwrap()], nth).await;
    }
    let key: WindowKey = serde_json::from_str("\"k\"").unwrap();
    let org = org();
    let ask = async |at_least: i64, most_rows: usize| {
        let at_least = Amount::whole(at_least);
        let question = Question { org: &org, window: &window, key: &key, at_least, now, most_rows };
        counted(store, &question).await.unwrap()
    };
    assert_eq!(ask(1_000, 1_000).await, Some(Amount::whole(150)));
    let some = ask(10, 1_000).await.unwrap();
    assert!(some >= Amount::whole(10));
    assert_eq!(ask(1_000, 100).await, None);
}
