//! End of a consumer, and the records that are delivered again after it.

use std::time::{Duration, Instant};

use tidegate_stream::{consumer::inbox::DrainResult, error::ConsumeError};
use tidegate_test_support::PATIENCE;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    contract::fixture::{Fixture, contract},
    support::{BUDGET, GROUP, ROLE, append, complete, consume, items, numbers, receive, stop, values},
};

contract! {
    a_ticket_dropped_outside_shutdown_fails_the_role_by_name
    a_dropped_ticket_is_delivered_again_after_a_restart
    stop_cancels_tickets_and_commits_finished_work
    stop_ends_at_its_deadline_with_work_in_flight
    late_completion_is_not_committed
    closing_the_log_stops_every_consumer
    a_cancelled_token_stops_the_consumer
    dropped_inbox_releases_its_partitions
}

async fn a_ticket_dropped_outside_shutdown_fails_the_role_by_name(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(1), b"key", numbers(0..3)).await;
    let mut inbox = consume(&log, BUDGET);
    let mut records = receive(&mut inbox, 3).await;
    let dropped = records.remove(1);
    let position = dropped.at;
    drop(dropped);
    let error = timeout(PATIENCE, inbox.next()).await.unwrap().unwrap_err();
    assert_eq!(error, ConsumeError::TicketDropped { role: ROLE, position });
    assert!(error.to_string().contains("contract") && error.to_string().contains("items[1]@1"), "{error}");
    complete(records);
    assert_eq!(timeout(PATIENCE, inbox.wait_until_drained()).await.unwrap(), DrainResult::Forced);
    fixture.close(log).await;
}

async fn a_dropped_ticket_is_delivered_again_after_a_restart(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(1), b"key", numbers(0..5)).await;
    let mut inbox = consume(&log, BUDGET);
    let mut records = receive(&mut inbox, 5).await;
    drop(records.remove(2));
    complete(records);
    timeout(PATIENCE, inbox.next()).await.unwrap().unwrap_err();
    timeout(PATIENCE, inbox.wait_until_drained()).await.unwrap();
    fixture.close(log).await;

    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 3).await;
    assert_eq!(values(&records), ["2", "3", "4"], "its offset was never committed");
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn stop_cancels_tickets_and_commits_finished_work(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..4)).await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 4).await;
    assert!(!records[0].ticket.is_cancelled());
    inbox.stop();
    timeout(PATIENCE, records[0].ticket.cancelled()).await.expect("a stop lets waiting work end");
    assert!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().is_none());
    complete(records);
    assert_eq!(timeout(PATIENCE, inbox.wait_until_drained()).await.unwrap(), DrainResult::Clean);
    fixture.close(log).await;

    let log = fixture.open().await;
    append(&log, items(0), b"key", ["next".to_owned()]).await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 1).await;
    assert_eq!(values(&records), ["next"], "work that completed during the drain is committed");
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn stop_ends_at_its_deadline_with_work_in_flight(fixture: &Fixture) {
    let mut settings = fixture.settings();
    settings.consume.drain_timeout_ms = 200;
    let log = fixture.open_with(&settings).await.unwrap();
    append(&log, items(0), b"key", numbers(0..2)).await;
    let mut inbox = consume(&log, BUDGET);
    let stuck = receive(&mut inbox, 2).await;
    let began = Instant::now();
    assert_eq!(stop(inbox).await, DrainResult::Forced);
    assert!(began.elapsed() >= Duration::from_millis(200), "the work had its time");
    drop(stuck);
    fixture.close(log).await;
}

async fn late_completion_is_not_committed(fixture: &Fixture) {
    let mut settings = fixture.settings();
    settings.consume.drain_timeout_ms = 10;
    let log = fixture.open_with(&settings).await.unwrap();
    append(&log, items(0), b"key", numbers(0..2)).await;
    let mut inbox = consume(&log, BUDGET);
    let late_records = receive(&mut inbox, 2).await;
    stop(inbox).await;

    let mut inbox = consume(&log, BUDGET);
    let redelivered = receive(&mut inbox, 2).await;
    assert_eq!(values(&redelivered), ["0", "1"]);
    complete(late_records);
    // The late completions are reported before this record. If they counted, both would be committed.
    append(&log, items(1), b"key", ["other".to_owned()]).await;
    complete(receive(&mut inbox, 1).await);
    inbox.stop();
    drop(redelivered);
    stop(inbox).await;

    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 2).await;
    assert_eq!(values(&records), ["0", "1"]);
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn closing_the_log_stops_every_consumer(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..3)).await;
    let mut inbox = consume(&log, BUDGET);
    complete(receive(&mut inbox, 3).await);
    assert_eq!(fixture.close(log).await, DrainResult::Clean);
    assert!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().is_none());
    assert_eq!(timeout(PATIENCE, inbox.wait_until_drained()).await.unwrap(), DrainResult::Clean);
}

async fn a_cancelled_token_stops_the_consumer(fixture: &Fixture) {
    let log = fixture.open().await;
    let token = CancellationToken::new();
    let mut inbox = log.consume(GROUP, &[tidegate_stream::Topic::Items], BUDGET, ROLE, token.clone());
    token.cancel();
    assert!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().is_none());
    assert_eq!(timeout(PATIENCE, inbox.wait_until_drained()).await.unwrap(), DrainResult::Clean);
    fixture.close(log).await;
}

async fn dropped_inbox_releases_its_partitions(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..3)).await;
    let mut inbox = consume(&log, BUDGET);
    let mut ownership = inbox.ownership();
    let records = receive(&mut inbox, 3).await;
    drop(inbox);
    drop(records);
    let released = ownership.wait_for(|state| state.partitions.is_empty());
    timeout(PATIENCE, released).await.unwrap().unwrap();
    fixture.close(log).await;
}
