//! Append times below which a consumer has completed its partitions.

use std::time::Duration;

use tidegate_schemas::ids::Millis;
use tidegate_stream::{
    Log,
    consumer::inbox::{CompletedTimes, DrainResult, Inbox},
    topics::Partition,
};
use tidegate_test_support::{PATIENCE, eventually};

use crate::{
    contract::fixture::{Fixture, contract},
    support::{BUDGET, append, complete, consume, items, numbers, receive, stop},
};

contract! {
    completed_time_passes_a_record_only_after_its_completion
    completed_time_stays_at_the_oldest_open_record
    completed_times_end_with_their_consumer
}

/// Opens the log with a short replication delay, because the completed time of an idle partition follows that far behind.
async fn open(fixture: &Fixture) -> Log {
    let mut settings = fixture.settings();
    settings.kafka.max_replication_delay_ms = 1_000;
    fixture.open_with(&settings).await.unwrap()
}

fn completed_time(times: &CompletedTimes, partition: Partition) -> Option<Millis> {
    times
        .read()
        .into_iter()
        .find(|(owned_partition, _)| *owned_partition == partition)
        .map(|(_, until)| until)
}

async fn wait_until_passed(inbox: &Inbox, partition: Partition, time: Millis) {
    let times = inbox.completed_times();
    let is_passed = async || completed_time(&times, partition).filter(|until| *until > time);
    eventually("the completed time to pass the record", PATIENCE, is_passed).await.unwrap();
}

async fn completed_time_passes_a_record_only_after_its_completion(fixture: &Fixture) {
    let log = open(fixture).await;
    let mut inbox = consume(&log, BUDGET);
    // A partition without any record advances too.
    wait_until_passed(&inbox, items(0), Millis::now()).await;
    append(&log, items(0), b"key", numbers(0..1)).await;
    let records = receive(&mut inbox, 1).await;
    let written_at = records[0].written_at;
    let times = inbox.completed_times();
    let before_completion = completed_time(&times, items(0)).unwrap();
    assert!(
        before_completion <= written_at,
        "{before_completion:?} promises a record that was appended later"
    );
    // The idle partitions show that enough time has passed for a promise.
    for index in 1..4 {
        wait_until_passed(&inbox, items(index), written_at.plus(Duration::from_secs(2))).await;
    }
    let held_time = completed_time(&times, items(0)).unwrap();
    assert!(held_time <= written_at, "{held_time:?} passes the open record of {written_at:?}");
    complete(records);
    wait_until_passed(&inbox, items(0), written_at).await;
    assert_eq!(stop(inbox).await, DrainResult::Clean);
    fixture.close(log).await;
}

async fn completed_time_stays_at_the_oldest_open_record(fixture: &Fixture) {
    let log = open(fixture).await;
    for value in ["first", "second", "third"] {
        append(&log, items(0), b"key", [value.to_owned()]).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut inbox = consume(&log, BUDGET);
    let mut records = receive(&mut inbox, 3).await;
    let open_record = records.remove(1);
    let first_written_at = records[0].written_at;
    complete(records);
    let times = inbox.completed_times();
    // The tolerance for a new leader's clock on Kafka.
    let tolerance = Duration::from_secs(5);
    let reached_time =
        async || completed_time(&times, items(0)).filter(|until| *until >= first_written_at.minus(tolerance));
    eventually("the completed time of the first record", PATIENCE, reached_time).await.unwrap();
    wait_until_passed(&inbox, items(1), open_record.written_at.plus(Duration::from_secs(2))).await;
    assert!(completed_time(&times, items(0)).unwrap() <= open_record.written_at);
    let open_since = open_record.written_at;
    open_record.ticket.complete();
    wait_until_passed(&inbox, items(0), open_since).await;
    stop(inbox).await;
    fixture.close(log).await;
}

async fn completed_times_end_with_their_consumer(fixture: &Fixture) {
    let log = open(fixture).await;
    let inbox = consume(&log, BUDGET);
    wait_until_passed(&inbox, items(3), Millis(0)).await;
    let times = inbox.completed_times();
    stop(inbox).await;
    assert_eq!(times.read(), []);
    fixture.close(log).await;
}
