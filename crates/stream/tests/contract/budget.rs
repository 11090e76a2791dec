//! What a consumer holds is bounded, and being at the bound costs nothing but waiting.

use std::time::Duration;

use tidegate_stream::{Budget, Drained};
use tokio::time::timeout;

use crate::{
    fixture::{Fixture, contract},
    hand::{append, complete, consume, items, numbers, receive, stop, values},
};

contract! {
    at_the_budget_nothing_more_comes_until_half_of_it_is_committed
    at_the_byte_budget_nothing_more_comes_either
    a_thousand_records_pass_a_budget_of_ten
}

/// Long enough for a record that is on its way; a fault that is slower only passes unseen.
const A_WHILE: Duration = Duration::from_millis(300);

async fn at_the_budget_nothing_more_comes_until_half_of_it_is_committed(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..30)).await;
    let mut inbox = consume(&log, Budget { records: 10, bytes: 1 << 20 });
    let mut held = receive(&mut inbox, 10).await;
    assert_eq!(held.len(), 10);
    timeout(A_WHILE, inbox.next()).await.expect_err("the budget is used up");

    // Six of ten are still held: more than half.
    complete(held.drain(..4).collect());
    timeout(A_WHILE, inbox.next()).await.expect_err("more than half is held");
    complete(held.drain(..1).collect());
    let more = receive(&mut inbox, 5).await;
    assert_eq!(values(&more), numbers(10..15).collect::<Vec<_>>());
    complete(held);
    complete(more);
    let mut rest = 15;
    while rest > 0 {
        let more = receive(&mut inbox, 1).await;
        rest -= more.len();
        complete(more);
    }
    assert_eq!(stop(inbox).await, Drained::Clean);
    fixture.close(log).await;
}

async fn at_the_byte_budget_nothing_more_comes_either(fixture: &Fixture) {
    let log = fixture.open().await;
    let value = "x".repeat(10_000);
    append(&log, items(0), b"", std::iter::repeat_n(value, 30)).await;
    let mut inbox = consume(&log, Budget { records: 1_000, bytes: 50_000 });
    let held = receive(&mut inbox, 5).await;
    assert!(held.len() <= 6, "{} records of 10,000 bytes under a budget of 50,000", held.len());
    timeout(A_WHILE, inbox.next()).await.expect_err("the budget is used up");
    let mut rest = 30 - held.len();
    complete(held);
    while rest > 0 {
        let more = receive(&mut inbox, 1).await;
        rest -= more.len();
        complete(more);
    }
    assert_eq!(stop(inbox).await, Drained::Clean);
    fixture.close(log).await;
}

async fn a_thousand_records_pass_a_budget_of_ten(fixture: &Fixture) {
    let mut settings = fixture.settings();
    // The budget must not wait for the tick: what is complete is committed when it is all that is held.
    settings.consume.commit_interval_ms = 60_000;
    let log = fixture.open_with(&settings).await.unwrap();
    for index in 0..4 {
        append(&log, items(index), b"key", numbers(0..250)).await;
    }
    let mut inbox = consume(&log, Budget { records: 10, bytes: 1 << 20 });
    let mut seen = 0;
    while seen < 1_000 {
        let received = receive(&mut inbox, 1).await;
        assert!(received.len() <= 10);
        seen += received.len();
        complete(received);
    }
    assert_eq!(seen, 1_000);
    assert_eq!(stop(inbox).await, Drained::Clean);
    fixture.close(log).await;
}
