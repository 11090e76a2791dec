//! Windows count each item once, and before the item's own conditions read them.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use tidegate_moderation::{
    reevaluation::stored_evaluation::{self, Archive},
    rules::windows::{self, SubmissionPosition},
};
use tidegate_processors::{MediaSettings, Settings};
use tidegate_rules::{Amount, ConditionResult, WindowEntry};
use tidegate_schemas::{
    ids::{ItemKey, Millis, SubmissionId},
    records::{Coordinates, ItemEntry},
};
use tidegate_store::{
    Migration, RowRange, Store,
    tables::items::{items::Item, windows::HoursEntry},
};
use tidegate_stream::Topic;
use tidegate_test_support::{
    pictures::{Answer, Host, picture},
    servers,
};
use tokio::sync::Semaphore;

use super::world::{World, entry_of, org, post};

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

fn post_by(author: &str, id: &str, text: &str) -> ItemEntry {
    let data = serde_json::json!({"text": text, "author": {"typeId": "user", "id": author}});
    entry_of(&post(id), data.to_string())
}

/// Waits until all items are evaluated and returns their rows in order.
async fn wait_for_all(world: &World, ids: &[(ItemKey, SubmissionId)]) -> Vec<Item> {
    let mut rows = Vec::new();
    for (item, submission) in ids {
        rows.push(world.wait_until_evaluated(item, *submission).await);
    }
    rows
}

fn item_ids(entries: &[ItemEntry]) -> Vec<(ItemKey, SubmissionId)> {
    entries.iter().map(|entry| (entry.key(), entry.submission_id)).collect()
}

/// Returns the outcome of the rule for a stored item in a later explanation.
async fn matches_in_explanation(world: &World, row: &Item) -> bool {
    let (org, uncounted) = (org(), BTreeSet::new());
    let archive = Archive { store: &world.deps.store, org: &org, uncounted: &uncounted, window_rows: 10_000 };
    let config = world.deps.live.load_latest(&org).await.unwrap();
    let explanation =
        stored_evaluation::explain(archive, config, row, &"floods".into()).await.unwrap().unwrap();
    explanation.tree.outcome() == ConditionResult::Passed
}

async fn submit(world: &World, entries: Vec<ItemEntry>) -> Vec<Item> {
    let sent_ids = item_ids(&entries);
    for entry in entries {
        world.submit(vec![entry]).await;
    }
    wait_for_all(world, &sent_ids).await
}

fn has_matched(row: &Item) -> bool {
    row.matched.contains("floods")
}

/// Counts over all buckets, because the test may cross a bucket boundary.
async fn count_rows(store: &Store, author: &str) -> usize {
    let bucket = Millis::now().0.div_euclid(900_000);
    let mut rows = 0;
    for bucket in bucket - 4..=bucket {
        let partition = (org(), "posts-by-author".into(), format!("user/{author}"), bucket);
        rows += store.scan::<HoursEntry>(&partition, RowRange::all()).all().await.unwrap().len();
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_matches_from_the_item_that_fills_the_window() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    for nth in 0..6 {
        let rows = submit(&world, vec![post_by("u1", &format!("p{nth}"), "flood")]).await;
        assert_eq!(has_matched(&rows[0]), nth >= 3, "item {nth}: {}", rows[0].errored);
    }
    let other_rows = submit(&world, vec![post_by("u2", "q", "flood")]).await;
    assert!(!has_matched(&other_rows[0]), "another author has a count of their own");
    assert_eq!(count_rows(&world.deps.store, "u1").await, 6);
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_match_no_rule_are_counted_too() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    submit(&world, (0..3).map(|nth| post_by("u1", &format!("p{nth}"), "good morning")).collect()).await;
    let rows = submit(&world, vec![post_by("u1", "last", "flood")]).await;
    assert!(has_matched(&rows[0]));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_counts_once_and_repeats_the_first_outcome() {
    let mut first = World::started().await;
    first.configure(RULES, false).await;
    let mut last = None;
    for nth in 0..8 {
        last = submit(&first, vec![post_by("u1", &format!("p{nth}"), "flood")]).await.pop();
    }
    assert!(last.as_ref().is_some_and(has_matched));
    let mut second = first.image().await;
    first.drain().await;
    second.start();
    let mut markers = Vec::new();
    for nth in 0..8 {
        markers.push(post_by("u2", &format!("p{nth}"), "good morning"));
    }
    submit(&second, markers).await;
    second.drain().await;
    assert_eq!(count_rows(&second.deps.store, "u1").await, 8);
    assert_eq!(second.events(AUTOMATIC).await, first.events(AUTOMATIC).await);
}

/// Repeated, because the items are processed concurrently.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_item_of_a_record_that_fills_the_window_matches() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    for round in 0..40 {
        let author = format!("u{round}");
        let posts: Vec<_> = (0..4).map(|nth| post_by(&author, &format!("{round}-{nth}"), "flood")).collect();
        let sent_ids = item_ids(&posts);
        world.submit(posts).await;
        let rows = wait_for_all(&world, &sent_ids).await;
        let stored: Vec<_> = rows.iter().map(has_matched).collect();
        assert_eq!(stored, [false, false, false, true], "round {round}");
        for row in &rows {
            assert_eq!(
                matches_in_explanation(&world, row).await,
                has_matched(row),
                "the explanation equals the stored outcome"
            );
        }
    }
    world.drain().await;
}

/// The first processor dies after all items are counted and before any is evaluated.
#[tokio::test(flavor = "multi_thread")]
async fn replay_counts_at_least_the_earlier_items() {
    let mut world = World::new().await;
    world.configure(RULES, false).await;
    let posts: Vec<_> = (0..6).map(|nth| post_by("u1", &format!("p{nth}"), "flood")).collect();
    let sent_ids = item_ids(&posts);
    world.submit(posts.clone()).await;
    world.submit(vec![post_by("u1", "later", "flood")]).await;
    let records = world.tail(Topic::Items).await;
    for (record, submissions) in records.iter().zip([&sent_ids[..], &[]]) {
        for (position, (_, submission)) in (0..).zip(submissions) {
            let at = record.written_at;
            let moment = SubmissionPosition::new(
                Coordinates { append_ms: at, offset: record.at.offset.0, position },
                *submission,
            );
            windows::put_entries(&world.deps.store, &org(), moment, &[adds_one(at)]).await.unwrap();
        }
    }
    world.start();
    let rows = wait_for_all(&world, &sent_ids).await;
    assert!(rows[3..].iter().all(has_matched), "each sees at least the items counted before it");
    world.drain().await;
    assert_eq!(count_rows(&world.deps.store, "u1").await, 7);
}

/// Requests of many sellers over all partitions: in any order, each seller's items match from the fourth on.
#[tokio::test(flavor = "multi_thread")]
async fn items_of_concurrent_requests_match_in_sequence() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    let posts: Vec<_> =
        (0..1_000).map(|nth| post_by(&format!("u{}", nth % 100), &format!("p{nth}"), "flood")).collect();
    let sent_ids = item_ids(&posts);
    futures::future::join_all(posts.chunks(50).map(|posts| world.submit(posts.to_vec()))).await;
    let rows = wait_for_all(&world, &sent_ids).await;
    assert_eq!(rows.iter().filter(|row| has_matched(row)).count(), 700);
    world.drain().await;
}

/// Two processors with separate logs and one store. The k-th counted item sees at least k.
async fn two_processors_miss_nothing(store: Store) {
    let mut first = World::on(store.clone()).await;
    first.configure(RULES, false).await;
    let mut second = World::beside_another(store).await;
    first.start();
    second.start();
    let authors = 20;
    let mut sent_ids = [Vec::new(), Vec::new()];
    for nth in 0..10 {
        for (world, (sent_ids, half)) in
            [&first, &second].into_iter().zip(sent_ids.iter_mut().zip(["a", "b"]))
        {
            let posts: Vec<_> = (0..authors)
                .map(|author| post_by(&format!("u{author}"), &format!("{half}{nth}-{author}"), "flood"))
                .collect();
            sent_ids.extend(item_ids(&posts));
            world.submit(posts).await;
        }
    }
    let mut matches = 0;
    for (world, sent_ids) in [&first, &second].into_iter().zip(&sent_ids) {
        matches += wait_for_all(world, sent_ids).await.iter().filter(|row| has_matched(row)).count();
    }
    let items = sent_ids[0].len() + sent_ids[1].len();
    assert!(matches >= items - 3 * authors, "{matches} of {items} match");
    first.drain().await;
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_counted_by_two_processors_are_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
    two_processors_miss_nothing(store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_counted_by_two_processors_on_a_cluster_are_not_missed() {
    let Some(addresses) = servers::cql("windows that two processors count") else { return };
    let address = addresses.split(',').next().unwrap();
    let keyspace = super::cluster::new_keyspace("windows");
    let store = Store::open_cql(super::cluster::settings(address, &keyspace)).await.unwrap();
    store.migrate(Migration::Expand).await.unwrap();
    two_processors_miss_nothing(store.clone()).await;
    store.close().await.unwrap();
    super::cluster::drop_keyspace(address, &keyspace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_waiting_for_media_is_counted_before_later_items() {
    let go = Arc::new(Semaphore::new(0));
    let answers = Arc::clone(&go);
    let host =
        Host::start(move |_| Answer::After(Arc::clone(&answers), Box::new(Answer::Picture(picture(1)))));
    let host = host.await.unwrap();
    let media = MediaSettings { wait_ms: 60_000, slow_wait_ms: 60_000, ..MediaSettings::default() };
    let settings = Settings { media, ..Settings::default() };
    let mut world = World::with_media_ports(settings, &[host.address.port()]).await;
    world.configure(RULES, false).await;
    world.start();
    let author = serde_json::json!({"typeId": "user", "id": "u1"});
    let data = serde_json::json!({"text": "flood", "author": author, "images": [host.url("a.bmp")]});
    let waiting_entry = entry_of(&post("p0"), data.to_string());
    let posts: Vec<_> = [waiting_entry]
        .into_iter()
        .chain((1..4).map(|nth| post_by("u1", &format!("p{nth}"), "flood")))
        .collect();
    let sent_ids = item_ids(&posts);
    world.submit(posts).await;
    let other_rows = wait_for_all(&world, &sent_ids[1..]).await;
    assert_eq!(other_rows.iter().map(has_matched).collect::<Vec<_>>(), [false, false, true]);
    assert!(world.versions(&post("p0")).await.is_empty(), "the item still waits");
    go.add_permits(1);
    assert!(!has_matched(&wait_for_all(&world, &sent_ids[..1]).await[0]));
    world.drain().await;
}

fn adds_one(at: Millis) -> WindowEntry {
    WindowEntry {
        window: "posts-by-author".into(),
        key: serde_json::from_str("\"user/u1\"").unwrap(),
        bucket: at.0.div_euclid(900_000),
        at,
        amount: Amount::ONE,
        members: Vec::new(),
        retention_millis: 6 * 3_600_000 + 900_000,
    }
}

/// As after the death of a processor that had counted the item.
#[tokio::test(flavor = "multi_thread")]
async fn item_counted_before_a_crash_is_counted_once() {
    let mut world = World::new().await;
    world.configure(RULES, false).await;
    let entry = post_by("u1", "p1", "flood");
    let submission = entry.submission_id;
    world.submit(vec![entry]).await;
    let at = world.tail(Topic::Items).await[0].written_at;
    let moment = SubmissionPosition::new(Coordinates { append_ms: at, offset: 0, position: 0 }, submission);
    windows::put_entries(&world.deps.store, &org(), moment, &[adds_one(at)]).await.unwrap();
    assert_eq!(count_rows(&world.deps.store, "u1").await, 1);
    world.start();
    world.wait_until_evaluated(&post("p1"), submission).await;
    assert_eq!(count_rows(&world.deps.store, "u1").await, 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_sent_again_under_its_key_is_counted_once() {
    let mut world = World::started().await;
    world.configure(RULES, false).await;
    let keyed = ItemEntry { keyed: true, ..post_by("u1", "p1", "flood") };
    world.submit(vec![keyed.clone()]).await;
    world.submit(vec![keyed.clone()]).await;
    submit(&world, vec![post_by("u2", "p1", "good morning")]).await;
    assert_eq!(count_rows(&world.deps.store, "u1").await, 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn window_that_needs_too_many_rows_is_an_error() {
    let mut world = World::with(Settings { window_rows: 5, ..Settings::default() }).await;
    world.configure(&RULES.replace("gte: 4", "gte: 20"), false).await;
    world.start();
    submit(&world, (0..8).map(|nth| post_by("u1", &format!("p{nth}"), "flood")).collect()).await;
    let rows = submit(&world, vec![post_by("u1", "last", "flood")]).await;
    assert!(rows[0].errored.contains("count: too_many_rows"), "{}", rows[0].errored);
    world.drain().await;
}

/// Rows of another process, read in pages.
#[tokio::test]
async fn items_outside_the_window_or_above_the_threshold_do_not_count() {
    use tidegate_moderation::rules::windows::{RowBudget, WindowQuery, count_window};
    use tidegate_rules::{Measure, Window, WindowKey};
    use tidegate_store::WriteTime;
    let world = World::new().await;
    let store = &world.deps.store;
    let current_time = Millis::now();
    let window =
        Window { key: "w".into(), measure: Measure::Count, length_millis: 3_600_000, bucket: 150_000 };
    let put_row = async |minutes_ago: i64, nth: u128| {
        let at = Millis(current_time.0 - minutes_ago * 60_000);
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
            offset: Some(0),
            position: None,
        };
        store.put_rows(WriteTime::from_append(at, 0), &[row]).await.unwrap();
    };
    for nth in 0..300_u128 {
        // 150 inside of the last hour, the others before it or more than an hour after now.
        put_row([5, 59, 61, -61][usize::try_from(nth % 4).unwrap()], nth).await;
    }
    let key: WindowKey = serde_json::from_str("\"k\"").unwrap();
    let org = org();
    let ask = async |at_least: i64, most_rows: usize| {
        let (at_least, times, budget) =
            (Amount::from_whole(at_least), window.around(current_time), RowBudget::new(most_rows));
        let (org, window, key) = (&org, &window, &key);
        let question =
            WindowQuery { org, window, key, at_least, times, select: &|_: &mut Vec<_>| {}, budget: &budget };
        count_window(store, &question).await.unwrap()
    };
    assert_eq!(ask(1_000, 1_000).await, Some(Amount::from_whole(150)));
    let partial_count = ask(10, 1_000).await.unwrap();
    assert!(partial_count >= Amount::from_whole(10));
    assert_eq!(ask(1_000, 100).await, None);
}

/// Offsets of different partitions and positions in different records cannot be compared.
#[tokio::test]
async fn concurrent_items_are_explained_in_one_order() {
    use tidegate_moderation::rules::windows::{RowBudget, WindowQuery, count_window, retain_up_to};
    use tidegate_rules::{Measure, Window};
    let world = World::new().await;
    let (store, org, now) = (&world.deps.store, org(), Millis::now());
    let window = Window {
        key: "posts-by-author".into(),
        measure: Measure::Count,
        length_millis: 3_600_000,
        bucket: 900_000,
    };
    let mut moments = Vec::new();
    for (offset, position) in [(7, 0), (7, 1), (7, 1), (8, 0), (3, 2)] {
        let moment =
            SubmissionPosition::new(Coordinates { append_ms: now, offset, position }, SubmissionId::random());
        windows::put_entries(store, &org, moment, &[adds_one(now)]).await.unwrap();
        moments.push(moment);
    }
    moments.sort_unstable();
    let entry = adds_one(now);
    for (nth, moment) in (1..).zip(moments) {
        let question = WindowQuery {
            org: &org,
            window: &window,
            key: &entry.key,
            at_least: Amount::from_whole(100),
            times: window.up_to(now),
            select: &|rows: &mut Vec<_>| retain_up_to(moment, rows),
            budget: &RowBudget::new(100),
        };
        assert_eq!(count_window(store, &question).await.unwrap(), Some(Amount::from_whole(nth)));
    }
}

/// Processors that share no order each write a row and count. Items are up to 40 minutes late, so that rows lie in later
/// buckets than those of the items that ask.
#[tokio::test(flavor = "multi_thread")]
async fn kth_counted_item_sees_at_least_k() {
    use tidegate_moderation::rules::windows::{RowBudget, WindowQuery, count_window};
    use tidegate_rules::{Measure, Window};
    let world = World::new().await;
    let (store, org, now) = (&world.deps.store, org(), Millis::now());
    let window = Window {
        key: "posts-by-author".into(),
        measure: Measure::Count,
        length_millis: 3_600_000,
        bucket: 900_000,
    };
    let moments: Vec<_> = (0..64_i64)
        .map(|nth| {
            let append_ms = Millis(now.0 - nth * 7_919 % 41 * 60_000);
            let at = Coordinates { append_ms, offset: nth * 31 % 17, position: 0 };
            SubmissionPosition::new(at, SubmissionId::random())
        })
        .collect();
    let count = async |moment: SubmissionPosition| {
        let entry = adds_one(moment.append_ms());
        windows::put_entries(store, &org, moment, std::slice::from_ref(&entry)).await.unwrap();
        let (at_least, times) = (Amount::from_whole(1_000), window.around(moment.append_ms()));
        let (org, window, key, budget) = (&org, &window, &entry.key, &RowBudget::new(1_000));
        let question =
            WindowQuery { org, window, key, at_least, times, select: &|_: &mut Vec<_>| {}, budget };
        count_window(store, &question).await.unwrap().unwrap()
    };
    let one_processor = async |mine: &[SubmissionPosition]| {
        let mut counts = Vec::new();
        for moment in mine {
            counts.push(count(*moment).await);
        }
        counts
    };
    let (first, second) = moments.split_at(32);
    let (mut counts, more_counts) = tokio::join!(one_processor(first), one_processor(second));
    counts.extend(more_counts);
    counts.sort_unstable();
    for (k, seen) in (1..).zip(counts) {
        assert!(seen >= Amount::from_whole(k), "item {k} saw {seen}");
    }
    assert_eq!(count(moments[3]).await, Amount::from_whole(64), "a replay adds no row and sees all");
}
