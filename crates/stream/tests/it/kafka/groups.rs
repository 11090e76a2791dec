//! Members that join, leave or are slow, under both group protocols.

use std::{collections::BTreeSet, time::Duration};

use tidegate_stream::{
    Log, Topic,
    consumer::inbox::{DrainResult, Inbox, ReceivedRecord},
    settings::Settings,
    settings::kafka::GroupProtocol,
    topics::Partition,
};
use tidegate_test_support::{PATIENCE, eventually, servers};
use tokio::time::sleep;

use super::fixture::{
    Installation, append, close, consume, next, numbers, settings, tally, wait_for_ownership,
};
use crate::support::{complete, receive, value};

fn with(brokers: &str, protocol: GroupProtocol) -> Settings {
    let mut settings = settings(brokers);
    settings.kafka.consumer.group_protocol = protocol;
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_slower_than_the_poll_interval_keeps_its_partitions() {
    let Some(brokers) = servers::kafka("kafka: slow handler") else { return };
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let mut settings = with(&brokers, protocol);
        settings.kafka.consumer.max_poll_interval_ms = 7_000;
        let installation = Installation::with(settings).await;
        let log = installation.open().await;
        append(&log, Partition::new(Topic::Strikes, 0), numbers(0..100)).await;
        let mut inbox = consume(&log, Topic::Strikes);
        let records = receive(&mut inbox, 100).await;
        wait_for_ownership(&inbox, 2).await;
        let before = inbox.ownership().borrow().clone();
        // The handler takes half again the interval. The test is about this time, so it cannot wait for less.
        sleep(Duration::from_millis(10_500)).await;
        assert_eq!(*inbox.ownership().borrow(), before, "{protocol:?}: no rebalance");
        assert!(records.iter().all(|record| !record.ticket.is_cancelled()));
        complete(records);
        assert_eq!(close(&log).await, DrainResult::Clean);
        assert_all_committed(&installation).await;
    }
}

/// Checks that all records are committed: a new member of the group receives only new records.
async fn assert_all_committed(installation: &Installation) {
    let log = installation.open().await;
    for index in 0..2 {
        append(&log, Partition::new(Topic::Strikes, index), [format!("fence {index}")]).await;
    }
    let mut inbox = consume(&log, Topic::Strikes);
    let records = receive(&mut inbox, 2).await;
    let texts: BTreeSet<_> = records.iter().map(value).collect();
    assert_eq!(texts, BTreeSet::from(["fence 0".to_owned(), "fence 1".to_owned()]));
    complete(records);
    assert_eq!(close(&log).await, DrainResult::Clean);
}

async fn join_group(log: &Log) -> Inbox {
    let inbox = consume(log, Topic::Strikes);
    wait_for_ownership(&inbox, 1).await;
    inbox
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_waits_for_work_in_flight_without_loss() {
    let Some(brokers) = servers::kafka("kafka: take-over") else { return };
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let installation = Installation::with(with(&brokers, protocol)).await;
        let (first, second) = (installation.open().await, installation.open().await);
        for index in 0..2 {
            append(&first, Partition::new(Topic::Strikes, index), numbers(0..200)).await;
        }
        let mut old_inbox = consume(&first, Topic::Strikes);
        // Some records of each partition stay open, because either partition may be moved.
        let (open_records, done_records): (Vec<_>, Vec<_>) =
            receive(&mut old_inbox, 400).await.into_iter().partition(|record| record.at.offset.0 >= 100);
        complete(done_records);

        // The second member wants a partition; the first gives it up only when its work is done.
        let mut new_inbox = consume(&second, Topic::Strikes);
        eventually("the first member to be asked for a partition", PATIENCE, async || {
            open_records.iter().any(|record| record.ticket.is_cancelled()).then_some(())
        })
        .await
        .unwrap();
        assert!(new_inbox.ownership().borrow().partitions.is_empty(), "its work is in flight");
        complete(open_records);
        wait_for_ownership(&new_inbox, 1).await;
        wait_for_ownership(&old_inbox, 1).await;
        for index in 0..2 {
            append(&second, Partition::new(Topic::Strikes, index), [format!("late {index}")]).await;
        }
        let late_values: BTreeSet<String> =
            [next(&mut old_inbox).await, next(&mut new_inbox).await].concat_texts().into_iter().collect();
        assert_eq!(late_values, BTreeSet::from(["late 0".to_owned(), "late 1".to_owned()]), "{protocol:?}");
        assert_eq!(close(&first).await, DrainResult::Clean);
        assert_eq!(close(&second).await, DrainResult::Clean);
    }
}

trait ConcatTexts {
    fn concat_texts(self) -> Vec<String>;
}

impl<const N: usize> ConcatTexts for [Vec<ReceivedRecord>; N] {
    fn concat_texts(self) -> Vec<String> {
        let mut texts = Vec::new();
        for records in self {
            texts.extend(records.iter().map(value));
            complete(records);
        }
        texts
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_completion_by_a_former_owner_is_ignored() {
    let Some(brokers) = servers::kafka("kafka: late completion") else { return };
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let mut settings = with(&brokers, protocol);
        settings.consume.drain_timeout_ms = 500;
        let installation = Installation::with(settings).await;
        let (first, second) = (installation.open().await, installation.open().await);
        for index in 0..2 {
            append(
                &first,
                Partition::new(Topic::Strikes, index),
                numbers(index as usize * 50..index as usize * 50 + 50),
            )
            .await;
        }
        let mut old_inbox = consume(&first, Topic::Strikes);
        let held_records = receive(&mut old_inbox, 100).await;
        let mut new_inbox = join_group(&second).await;
        let moved_partition = new_inbox.ownership().borrow().partitions[0].0;
        // The drain's deadline is over: the new owner has the records, and the old one completes them only now.
        let (late_records, kept_records): (Vec<_>, Vec<_>) =
            held_records.into_iter().partition(|record| record.at.partition == moved_partition);
        assert!(late_records.iter().all(|record| record.ticket.is_cancelled()));
        let redelivered = receive(&mut new_inbox, 50).await;
        assert!(
            redelivered.iter().all(|record| record.maybe_replayed),
            "an earlier owner may have worked on them"
        );
        complete(late_records);
        complete(kept_records);
        assert_eq!(tally(&redelivered.iter().map(value).collect::<Vec<_>>()).len(), 50, "{protocol:?}");
        // The new owner ends without completing, so the records that the former owner completed are delivered again.
        drop(redelivered);
        drop(new_inbox);
        close(&second).await;
        close(&first).await;
        let third = installation.open().await;
        let mut inbox = consume(&third, Topic::Strikes);
        let mut read_values = BTreeSet::new();
        while read_values.len() < 50 {
            let records = next(&mut inbox).await;
            read_values
                .extend(records.iter().filter(|record| record.at.partition == moved_partition).map(value));
            complete(records);
        }
        close(&third).await;
    }
}
