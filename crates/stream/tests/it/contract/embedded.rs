//! Guarantees of the embedded engine only: retention that waits for groups, a disk limit, one consumer
//! a group, and data that names its format.

use fjall::KeyspaceCreateOptions;
use tidegate_stream::{
    Log, Record, Topic,
    consumer::inbox::DrainResult,
    error::{AppendError, ConsumeError, OpenError},
    health::Readiness,
    page_reader::{Order, Query},
    settings::Settings,
};
use tidegate_test_support::{PATIENCE, eventually};
use tokio::time::timeout;

use crate::{
    contract::fixture::Fixture,
    support::{BUDGET, ROLE, append, complete, consume, items, numbers, receive, stop, values},
};

/// Settings with continuous housekeeping and no minimum age.
fn greedy(fixture: &Fixture) -> Settings {
    let mut settings = fixture.settings();
    settings.embedded.housekeeping_ms = 10;
    settings.embedded.retention_ms = 0;
    settings.embedded.retention_bytes = 16 << 10;
    settings
}

async fn read_oldest_offset(log: &Log) -> Option<i64> {
    let query = Query { topic: Topic::Items, order: Order::Oldest, limit: 1, after: None };
    log.read_page(query).await.unwrap().records.first().map(|record| record.at.offset.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_keeps_records_needed_by_a_registered_group() {
    let fixture = Fixture::embedded();
    let log = fixture.open_with(&greedy(&fixture)).await.unwrap();
    let mut inbox = consume(&log, BUDGET);
    for from in (0..500).step_by(20) {
        append(&log, items(0), b"key", numbers(from..from + 20)).await;
    }
    let mut records = receive(&mut inbox, 500).await;
    let uncommitted = records.split_off(200);
    complete(records);
    // All records are too old at once. Retention removes whole segments of committed records; the others stay.
    eventually("retention to begin", PATIENCE, async || {
        read_oldest_offset(&log).await.filter(|first| *first > 0)
    })
    .await
    .unwrap();
    inbox.stop();
    drop(uncommitted);
    stop(inbox).await;
    for n in 0..20 {
        append(&log, items(1), b"key", [n.to_string()]).await;
        let first = read_oldest_offset(&log).await.unwrap();
        assert!(first <= 200, "{first} is past the group's 200");
    }
    fixture.close(log).await;

    // A group without a consumer keeps its records too, also after a restart.
    let log = fixture.open_with(&greedy(&fixture)).await.unwrap();
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 320).await;
    let partition_records: Vec<_> = records.iter().filter(|record| record.at.partition == items(0)).collect();
    assert_eq!(partition_records.first().map(|record| record.at.offset.0), Some(200));
    complete(records);
    eventually("the committed records to be removed", PATIENCE, async || {
        read_oldest_offset(&log).await.is_none().then_some(())
    })
    .await
    .unwrap();
    append(&log, items(0), b"key", ["after".to_owned()]).await;
    let records = receive(&mut inbox, 1).await;
    assert_eq!((values(&records), records[0].at.offset.0), (vec!["after".to_owned()], 500));
    complete(records);
    assert_eq!(stop(inbox).await, DrainResult::Clean);
    fixture.close(log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emptied_partition_keeps_its_offsets_after_a_restart() {
    let fixture = Fixture::embedded();
    let log = fixture.open_with(&greedy(&fixture)).await.unwrap();
    append(&log, items(0), b"key", numbers(0..300)).await;
    let is_emptied = async || read_oldest_offset(&log).await.is_none().then_some(());
    eventually("retention of a topic without groups", PATIENCE, is_emptied).await.unwrap();
    fixture.close(log).await;

    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    append(&log, items(0), b"key", ["next".to_owned()]).await;
    let records = receive(&mut inbox, 1).await;
    assert_eq!(records[0].at.offset.0, 300, "an offset is never assigned twice");
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_kept_without_limit() {
    let fixture = Fixture::embedded();
    let log = fixture.open_with(&greedy(&fixture)).await.unwrap();
    let to = log.partition(Topic::DeadLetters, b"key");
    append(&log, to, b"key", numbers(0..300)).await;
    append(&log, items(0), b"key", numbers(0..300)).await;
    let is_emptied = async || read_oldest_offset(&log).await.is_none().then_some(());
    eventually("retention of the items", PATIENCE, is_emptied).await.unwrap();
    let query = Query { topic: Topic::DeadLetters, order: Order::Oldest, limit: 1_000, after: None };
    assert_eq!(log.read_page(query).await.unwrap().records.len(), 300);
    fixture.close(log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_refuses_requests_before_their_effects() {
    let fixture = Fixture::embedded();
    let mut settings = fixture.settings();
    // No disk has this much free space.
    settings.embedded.min_free_bytes = Some(u64::MAX);
    let log = fixture.open_with(&settings).await.unwrap();
    let record = [(items(0), Record::new(b"key", &b"value"[..]))];
    let error = log.append(&record).await.unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }) && error.is_retriable(), "{error}");
    assert!(log.for_effects().append(&record).await.is_err(), "a quarter of that is not free either");
    assert!(matches!(log.readiness(), Readiness::NotReady { why } if why.contains("is full")));
    fixture.close(log).await;

    // The journal alone is 64 MiB: past nine tenths of the share, not past all of it.
    let mut settings = fixture.settings();
    settings.embedded.max_bytes = 128 << 20;
    let log = fixture.open_with(&settings).await.unwrap();
    assert!(log.readiness().is_ready());
    let noise = noise(1 << 20);
    let mut accepted = 0;
    let error = loop {
        match log.append(&[(items(0), Record::new(b"key", &noise))]).await {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 128, "the log exceeded its share");
    };
    assert_eq!(error.tag(), "full");
    log.for_effects().append(&record).await.unwrap();
    fixture.close(log).await;
}

/// Bytes that no compression makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(length)
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_consumer_of_a_group_is_refused_by_name() {
    let fixture = Fixture::embedded();
    let log = fixture.open().await;
    let first = consume(&log, BUDGET);
    let mut ownership = first.ownership();
    timeout(PATIENCE, ownership.wait_for(|state| !state.partitions.is_empty())).await.unwrap().unwrap();
    let mut second = consume(&log, BUDGET);
    let error = timeout(PATIENCE, second.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, ConsumeError::Refused { role: ROLE, .. }), "{error}");
    assert!(error.to_string().contains("group contract"), "{error}");
    stop(first).await;
    stop(consume(&log, BUDGET)).await;
    fixture.close(log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_a_newer_format_is_refused_naming_both() {
    let fixture = Fixture::embedded();
    let log = fixture.open().await;
    fixture.close(log).await;
    let Fixture::Embedded { data } = &fixture else { unreachable!("the fixture is embedded") };
    {
        let db = fjall::Database::builder(data.path()).open().unwrap();
        let meta = db.keyspace("log.meta", KeyspaceCreateOptions::default).unwrap();
        meta.insert("format", 7_u32.to_be_bytes()).unwrap();
        db.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    let error = fixture.open_with(&fixture.settings()).await.unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { found: 7, known: 1 }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_touches_only_keyspaces_of_its_prefix() {
    let fixture = Fixture::embedded();
    let Fixture::Embedded { data } = &fixture else { unreachable!("the fixture is embedded") };
    let db = fjall::Database::builder(data.path()).open().unwrap();
    let log = Log::open_embedded(db.clone(), &fixture.settings()).unwrap();
    for topic in Topic::ALL {
        append(&log, tidegate_stream::topics::Partition::new(topic, 0), b"key", numbers(0..1)).await;
    }
    let names = db.list_keyspace_names();
    assert!(names.len() >= 10 && names.iter().all(|name| name.starts_with("log.")), "{names:?}");
    fixture.close(log).await;
}
