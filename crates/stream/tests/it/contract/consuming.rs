//! Records, ownership and commits of a consumer.

use tidegate_stream::{Topic, consumer::inbox::DrainResult};
use tidegate_test_support::PATIENCE;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    contract::fixture::{Fixture, contract},
    support::{BUDGET, ROLE, append, complete, consume, items, numbers, receive, stop, values},
};

contract! {
    completed_records_are_not_delivered_again
    completion_out_of_order_commits_only_the_contiguous_prefix
    a_waiting_consumer_is_woken_by_an_append
    every_group_gets_every_record
    an_epoch_is_current_exactly_while_its_partition_is_owned
    an_offset_removed_by_retention_stops_the_partition_by_name
}

async fn completed_records_are_not_delivered_again(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..50)).await;
    let mut inbox = consume(&log, BUDGET);
    complete(receive(&mut inbox, 50).await);
    assert_eq!(stop(inbox).await, DrainResult::Clean);
    assert_eq!(fixture.close(log).await, DrainResult::Clean);

    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(50..51)).await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 1).await;
    assert_eq!(values(&records), ["50"]);
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn completion_out_of_order_commits_only_the_contiguous_prefix(fixture: &Fixture) {
    let mut settings = fixture.settings();
    settings.consume.drain_timeout_ms = 50;
    let log = fixture.open_with(&settings).await.unwrap();
    append(&log, items(0), b"key", numbers(0..10)).await;
    let mut inbox = consume(&log, BUDGET);
    let mut records = receive(&mut inbox, 10).await;
    // 0 and 1, and 9 down to 6; 2 to 5 stay open.
    let open: Vec<_> = records.drain(2..6).collect();
    records.into_iter().rev().for_each(|record| record.ticket.complete());
    assert_eq!(stop(inbox).await, DrainResult::Forced, "four records were left");
    drop(open);
    fixture.close(log).await;

    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 8).await;
    assert_eq!(values(&records), numbers(2..10).collect::<Vec<_>>());
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn a_waiting_consumer_is_woken_by_an_append(fixture: &Fixture) {
    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    for n in 0..20 {
        append(&log, items(n % 4), b"key", [n.to_string()]).await;
        let records = receive(&mut inbox, 1).await;
        assert_eq!(values(&records), [n.to_string()]);
        complete(records);
    }
    stop(inbox).await;
    fixture.close(log).await;
}

async fn every_group_gets_every_record(fixture: &Fixture) {
    let log = fixture.open().await;
    let mut first = consume(&log, BUDGET);
    let other_group = tidegate_stream::topics::Group("other");
    let mut second =
        log.consume(other_group, &[Topic::Items, Topic::Reports], BUDGET, ROLE, CancellationToken::new());
    append(&log, items(0), b"key", numbers(0..5)).await;
    append(&log, tidegate_stream::topics::Partition::new(Topic::Reports, 1), b"key", numbers(5..8)).await;
    let (one, two) = (receive(&mut first, 5).await, receive(&mut second, 8).await);
    assert_eq!(values(&one), numbers(0..5).collect::<Vec<_>>());
    assert!(two.iter().any(|record| record.at.partition.topic == Topic::Reports));
    complete(one);
    complete(two);
    assert_eq!(stop(first).await.and(stop(second).await), DrainResult::Clean);
    fixture.close(log).await;
}

async fn an_epoch_is_current_exactly_while_its_partition_is_owned(fixture: &Fixture) {
    let log = fixture.open().await;
    let inbox = consume(&log, BUDGET);
    let mut ownership = inbox.ownership();
    let assignment =
        timeout(PATIENCE, ownership.wait_for(|assignment| assignment.partitions.len() == 4)).await;
    let assignment = assignment.unwrap().unwrap().clone();
    let epoch = assignment.epoch_of(items(2)).unwrap();
    assert!(assignment.is_current(epoch));
    stop(inbox).await;
    assert!(!ownership.borrow().is_current(epoch));

    let inbox = consume(&log, BUDGET);
    let mut ownership = inbox.ownership();
    let later_assignment =
        timeout(PATIENCE, ownership.wait_for(|assignment| assignment.partitions.len() == 4)).await;
    let later_assignment = later_assignment.unwrap().unwrap().clone();
    assert!(later_assignment.epoch_of(items(2)).unwrap() > epoch, "a later assignment has a greater epoch");
    assert!(!later_assignment.is_current(epoch));
    stop(inbox).await;
    fixture.close(log).await;
}

async fn an_offset_removed_by_retention_stops_the_partition_by_name(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..10)).await;
    append(&log, items(1), b"key", numbers(0..1)).await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 11).await;
    // Three of ten records are committed and the others are dropped with the consumer. Then the log starts at six.
    let (uncommitted, committed): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.at.partition == items(0) && record.at.offset.0 >= 3);
    complete(committed);
    inbox.stop();
    drop(uncommitted);
    stop(inbox).await;
    fixture.delete_records(&log, items(0), tidegate_stream::topics::NextOffset(6)).await;

    let mut inbox = consume(&log, BUDGET);
    let mut ownership = inbox.ownership();
    let stopped = timeout(PATIENCE, ownership.wait_for(|state| !state.stopped.is_empty())).await;
    let stopped = stopped.unwrap().unwrap().stopped.clone();
    assert_eq!(stopped.len(), 1);
    let text = stopped[0].to_string();
    for part in ["items[0]", "3", "6"] {
        assert!(text.contains(part), "{text}");
    }
    append(&log, items(0), b"key", ["never".to_owned()]).await;
    append(&log, items(2), b"key", ["elsewhere".to_owned()]).await;
    let records = receive(&mut inbox, 1).await;
    assert_eq!(values(&records), ["elsewhere"], "the other partitions continue");
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}
