//! Helpers of all tests: append, receive with a bound, read values.

use tidegate_stream::{
    Log, Record, Topic,
    consumer::inbox::{Inbox, ReceivedRecord},
    settings::Budget,
    topics::{Group, Partition, Role},
};
use tidegate_test_support::PATIENCE;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) const GROUP: Group = Group("contract");
pub(crate) const ROLE: Role = Role("contract");
pub(crate) const BUDGET: Budget = Budget { records: 1_000, bytes: 64 << 20 };

/// Appends one record for each value, in one call.
pub(crate) async fn append(log: &Log, to: Partition, key: &[u8], values: impl IntoIterator<Item = String>) {
    let values: Vec<String> = values.into_iter().collect();
    let records: Vec<_> = values.iter().map(|value| (to, Record::new(key, value.as_bytes()))).collect();
    log.append(&records).await.unwrap();
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|n| n.to_string())
}

pub(crate) fn items(index: u32) -> Partition {
    Partition::new(Topic::Items, index)
}

pub(crate) fn consume(log: &Log, budget: Budget) -> Inbox {
    log.consume(GROUP, &[Topic::Items], budget, ROLE, CancellationToken::new())
}

/// Receives at least `count` records.
pub(crate) async fn receive(inbox: &mut Inbox, count: usize) -> Vec<ReceivedRecord> {
    let mut records = Vec::new();
    while records.len() < count {
        let batch = timeout(PATIENCE, inbox.next()).await;
        let batch = batch.unwrap_or_else(|_| panic!("received {} of {count} records", records.len()));
        records.extend(batch.unwrap().expect("the consumer is running"));
    }
    records
}

pub(crate) fn value(record: &ReceivedRecord) -> String {
    String::from_utf8(record.value.to_vec()).unwrap()
}

pub(crate) fn values(records: &[ReceivedRecord]) -> Vec<String> {
    records.iter().map(value).collect()
}

pub(crate) fn complete(records: Vec<ReceivedRecord>) {
    records.into_iter().for_each(|record| record.ticket.complete());
}

/// Stops the consumer, and waits until it has released its partitions.
pub(crate) async fn stop(mut inbox: Inbox) -> tidegate_stream::consumer::inbox::DrainResult {
    inbox.stop();
    assert!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().is_none(), "a stopped inbox ends");
    timeout(PATIENCE, inbox.wait_until_drained()).await.unwrap()
}
