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
    let received = receive(&mut inbox, 1).await;
    assert_eq!(values(&received), ["50"]);
    complete(received);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn completion_out_of_order_commits_only_the_contiguous_prefix(fixture: &Fixture) {
    let mut settings = fixture.settings();
    settings.consume.drain_timeout_ms = 50;
    let log = fixture.open_with(&settings).await.unwrap();
    append(&log, items(0), b"key", numbers(0..10)).await;
    let mut inbox = consume(&log, BUDGET);
    let mut received = receive(&mut inbox, 10).await;
    // 0 and 1, and 9 down to 6; 2 to 5 stay open.
    let open: Vec<_> = received.drain(2..6).collect();
    received.into_iter().rev().for_each(|one| one.ticket.complete());
    assert_eq!(stop(inbox).await, DrainResult::Forced, "four records were left");
    drop(open);
    fixture.close(log).await;

    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    let received = receive(&mut inbox, 8).await;
    assert_eq!(values(&received), numbers(2..10).collect::<Vec<_>>());
    complete(received);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn a_waiting_consumer_is_woken_by_an_append(fixture: &Fixture) {
    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    for n in 0..20 {
        append(&log, items(n % 4), b"key", [n.to_string()]).await;
        let received = receive(&mut inbox, 1).await;
        assert_eq!(values(&received), [n.to_string()]);
        complete(received);
    }
    stop(inbox).await;
    fixture.close(log).await;
}

async fn every_group_gets_every_record(fixture: &Fixture) {
    let log = fixture.open().await;
    let mut first = consume(&log, BUDGET);
    let other = tidegate_stream::topics::Group("other");
    let mut second =
        log.consume(other, &[Topic::Items, Topic::Reports], BUDGET, ROLE, CancellationToken::new());
    append(&log, items(0), b"key", numbers(0..5)).await;
    append(&log, tidegate_stream::topics::Partition::new(Topic::Reports, 1), b"key", numbers(5..8)).await;
    let (one, two) = (receive(&mut first, 5).await, receive(&mut second, 8).await);
    assert_eq!(values(&one), numbers(0..5).collect::<Vec<_>>());
    assert!(two.iter().any(|received| received.at.partition.topic == Topic::Reports));
    complete(one);
    complete(two);
    assert_eq!(stop(first).await.and(stop(second).await), DrainResult::Clean);
    fixture.close(log).await;
}

async fn an_epoch_is_current_exactly_while_its_partition_is_owned(fixture: &Fixture) {
    let log = fixture.open().await;
    let inbox = consume(&log, BUDGET);
    let mut ownership = inbox.ownership();
    let owned = timeout(PATIENCE, ownership.wait_for(|owned| owned.partitions.len() == 4)).await;
    let owned = owned.unwrap().unwrap().clone();
    let epoch = owned.epoch_of(items(2)).unwrap();
    assert!(owned.is_current(epoch));
    stop(inbox).await;
    assert!(!ownership.borrow().is_current(epoch));

    let inbox = consume(&log, BUDGET);
    let mut ownership = inbox.ownership();
    let again = timeout(PATIENCE, ownership.wait_for(|owned| owned.partitions.len() == 4)).await;
    let again = again.unwrap().unwrap().clone();
    assert!(again.epoch_of(items(2)).unwrap() > epoch, "a later assignment has a greater epoch");
    assert!(!again.is_current(epoch));
    stop(inbox).await;
    fixture.close(log).await;
}

async fn an_offset_removed_by_retention_stops_the_partition_by_name(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..10)).await;
    append(&log, items(1), b"key", numbers(0..1)).await;
    let mut inbox = consume(&log, BUDGET);
    let received = receive(&mut inbox, 11).await;
    // Three of ten are committed; the rest goes back with the consumer, and then the log starts at six.
    let (rest, begun): (Vec<_>, Vec<_>) =
        received.into_iter().partition(|one| one.at.partition == items(0) && one.at.offset.0 >= 3);
    complete(begun);
    inbox.stop();
    drop(rest);
    stop(inbox).await;
    fixture.delete_records(&log, items(0), tidegate_stream::topics::NextOffset(6)).await;

    let mut inbox = consume(&log, BUDGET);
    let mut ownership = inbox.ownership();
    let stopped = timeout(PATIENCE, ownership.wait_for(|owned| !owned.stopped.is_empty())).await;
    let stopped = stopped.unwrap().unwrap().stopped.clone();
    assert_eq!(stopped.len(), 1);
    let text = stopped[0].to_string();
    for named in ["items[0]", "3", "6"] {
        assert!(text.contains(named), "{text}");
    }
    append(&log, items(0), b"key", ["never".to_owned()]).await;
    append(&log, items(2), b"key", ["elsewhere".to_owned()]).await;
    let received = receive(&mut inbox, 1).await;
    assert_eq!(values(&received), ["elsewhere"], "the others go on");
    complete(received);
    stop(inbox).await;
    fixture.close(log).await;
}
