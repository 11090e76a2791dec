//! Marks of records that an earlier owner may have processed.

use tidegate_stream::{consumer::inbox::DrainResult, settings::Budget};

use crate::{
    contract::fixture::{Fixture, contract},
    support::{append, complete, consume, items, numbers, receive, stop},
};

contract! {
    records_before_the_assignment_may_be_replays_at_any_budget
}

async fn records_before_the_assignment_may_be_replays_at_any_budget(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..30)).await;
    let large = Budget { records: 100, bytes: 1 << 20 };
    let mut inbox = consume(&log, large);
    let all = receive(&mut inbox, 30).await;
    assert!(all.iter().all(|received| received.maybe_replayed), "a new owner knows of no other");
    // The assignment stands: what comes now, nobody can have seen before.
    append(&log, items(0), b"key", numbers(30..35)).await;
    let new = receive(&mut inbox, 5).await;
    assert!(!new.iter().any(|received| received.maybe_replayed));
    // All are in somebody's hands when the consumer ends, and five are committed.
    let mut all = all;
    let rest = all.split_off(5);
    complete(all);
    inbox.stop();
    drop((rest, new));
    stop(inbox).await;

    let small = Budget { records: 4, bytes: 1 << 20 };
    let mut inbox = consume(&log, small);
    let mut seen = 0;
    while seen < 30 {
        for received in receive(&mut inbox, 1).await {
            assert!(received.maybe_replayed, "record {seen} after the commit, of a budget that was larger");
            received.ticket.complete();
            seen += 1;
        }
    }
    assert_eq!(stop(inbox).await, DrainResult::Clean);
    fixture.close(log).await;
}
