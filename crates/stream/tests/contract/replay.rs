//! Which records say that an earlier owner may have worked on them.

use tidegate_stream::{Budget, Drained};

use crate::{
    fixture::{Fixture, contract},
    hand::{append, complete, consume, items, numbers, receive, stop},
};

contract! {
    the_first_budgets_worth_after_the_commit_may_be_a_replay_and_no_more
}

async fn the_first_budgets_worth_after_the_commit_may_be_a_replay_and_no_more(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..30)).await;
    let budget = Budget { records: 8, bytes: 1 << 20 };
    let mut inbox = consume(&log, budget);
    let mut seen = Vec::new();
    while seen.len() < 30 {
        for received in receive(&mut inbox, 1).await {
            seen.push(received.maybe_replayed);
            received.ticket.complete();
        }
    }
    let expected: Vec<bool> = (0..30).map(|n| n < 8).collect();
    assert_eq!(seen, expected);
    assert_eq!(stop(inbox).await, Drained::Clean);

    append(&log, items(0), b"key", numbers(30..40)).await;
    let mut inbox = consume(&log, budget);
    let first = receive(&mut inbox, 8).await;
    assert!(first.iter().take(8).all(|received| received.maybe_replayed), "a new owner knows of no other");
    complete(first);
    complete(receive(&mut inbox, 2).await);
    stop(inbox).await;
    fixture.close(log).await;
}
