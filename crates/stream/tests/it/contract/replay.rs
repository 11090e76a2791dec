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
    assert!(all.iter().all(|record| record.maybe_replayed), "a new owner cannot exclude an earlier one");
    // The assignment is stable, so no earlier owner can have seen the next records.
    append(&log, items(0), b"key", numbers(30..35)).await;
    let new_records = receive(&mut inbox, 5).await;
    assert!(!new_records.iter().any(|record| record.maybe_replayed));
    // Five records are committed. All others are in work when the consumer ends.
    let mut all = all;
    let uncommitted = all.split_off(5);
    complete(all);
    inbox.stop();
    drop((uncommitted, new_records));
    stop(inbox).await;

    let small = Budget { records: 4, bytes: 1 << 20 };
    let mut inbox = consume(&log, small);
    let mut completed_count = 0;
    while completed_count < 30 {
        for record in receive(&mut inbox, 1).await {
            assert!(
                record.maybe_replayed,
                "record {completed_count} after the commit, of a budget that was larger"
            );
            record.ticket.complete();
            completed_count += 1;
        }
    }
    assert_eq!(stop(inbox).await, DrainResult::Clean);
    fixture.close(log).await;
}
