//! The records of a consumer are bounded; at the bound it only waits.

use futures::FutureExt as _;
use tidegate_stream::{
    Log, Topic,
    consumer::inbox::{DrainResult, Inbox},
    settings::Budget,
    topics::{Group, Partition},
};
use tidegate_test_support::{PATIENCE, eventually};
use tokio_util::sync::CancellationToken;

use crate::{
    contract::fixture::{Fixture, contract},
    support::{ROLE, append, complete, consume, items, numbers, receive, stop, values},
};

contract! {
    full_budget_pauses_until_half_of_it_is_committed
    full_byte_budget_pauses_too
    a_thousand_records_pass_a_budget_of_ten
}

/// Second consumer, which receives a record only after the commit of the record before.
struct Neighbour(Inbox);

impl Neighbour {
    const TOPIC: Topic = Topic::Reports;
    /// Number of its commits during which the full consumer could also have fetched.
    const TURNS: usize = 20;

    fn of(log: &Log) -> Self {
        let budget = Budget { records: 1, bytes: 1 << 20 };
        Self(log.consume(Group("neighbour"), &[Self::TOPIC], budget, ROLE, CancellationToken::new()))
    }

    /// The full consumer received no records while this one continued.
    async fn passes(&mut self, log: &Log, full: &mut Inbox) {
        let backpressure = full.backpressure();
        eventually("the budget to be used up", PATIENCE, async || backpressure.pause_duration().map(drop))
            .await
            .unwrap();
        append(log, Partition::new(Self::TOPIC, 0), b"key", numbers(0..Self::TURNS)).await;
        for _ in 0..Self::TURNS {
            complete(receive(&mut self.0, 1).await);
        }
        assert!(full.next().now_or_never().is_none(), "the budget is used up");
        assert!(backpressure.pause_duration().is_some());
    }
}

async fn full_budget_pauses_until_half_of_it_is_committed(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..30)).await;
    let mut inbox = consume(&log, Budget { records: 10, bytes: 1 << 20 });
    let mut neighbour = Neighbour::of(&log);
    let mut held_records = receive(&mut inbox, 10).await;
    assert_eq!(held_records.len(), 10);
    neighbour.passes(&log, &mut inbox).await;

    // Six of ten records are still held, more than half.
    complete(held_records.drain(..4).collect());
    neighbour.passes(&log, &mut inbox).await;
    complete(held_records.drain(..1).collect());
    let next_records = receive(&mut inbox, 5).await;
    assert_eq!(values(&next_records), numbers(10..15).collect::<Vec<_>>());
    complete(held_records);
    complete(next_records);
    let mut remaining_count = 15;
    while remaining_count > 0 {
        let next_records = receive(&mut inbox, 1).await;
        remaining_count -= next_records.len();
        complete(next_records);
    }
    assert_eq!(stop(inbox).await.and(stop(neighbour.0).await), DrainResult::Clean);
    fixture.close(log).await;
}

async fn full_byte_budget_pauses_too(fixture: &Fixture) {
    let log = fixture.open().await;
    let value = "x".repeat(10_000);
    append(&log, items(0), b"", std::iter::repeat_n(value, 30)).await;
    let mut inbox = consume(&log, Budget { records: 1_000, bytes: 50_000 });
    let mut neighbour = Neighbour::of(&log);
    let held_records = receive(&mut inbox, 5).await;
    assert!(
        held_records.len() <= 6,
        "{} records of 10,000 bytes under a budget of 50,000",
        held_records.len()
    );
    neighbour.passes(&log, &mut inbox).await;
    let mut remaining_count = 30 - held_records.len();
    complete(held_records);
    while remaining_count > 0 {
        let next_records = receive(&mut inbox, 1).await;
        remaining_count -= next_records.len();
        complete(next_records);
    }
    assert_eq!(stop(inbox).await.and(stop(neighbour.0).await), DrainResult::Clean);
    fixture.close(log).await;
}

async fn a_thousand_records_pass_a_budget_of_ten(fixture: &Fixture) {
    let mut settings = fixture.settings();
    // A full budget must not wait for the interval: completed records are committed at once.
    settings.consume.commit_interval_ms = 60_000;
    let log = fixture.open_with(&settings).await.unwrap();
    for index in 0..4 {
        append(&log, items(index), b"key", numbers(0..250)).await;
    }
    let mut inbox = consume(&log, Budget { records: 10, bytes: 1 << 20 });
    let mut completed_count = 0;
    while completed_count < 1_000 {
        let batch = receive(&mut inbox, 1).await;
        assert!(batch.len() <= 10);
        completed_count += batch.len();
        complete(batch);
    }
    assert_eq!(completed_count, 1_000);
    assert_eq!(stop(inbox).await, DrainResult::Clean);
    fixture.close(log).await;
}
