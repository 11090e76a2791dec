//! Deliveries after a kill: state on disk and recovery by the next process.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tidegate_processors::callbacks::Settings;
use tidegate_schemas::{ids::Millis, records::Command};
use tidegate_store::{
    WriteTime,
    tables::callbacks::deliveries::{Attempt, AttemptTrigger},
};
use tidegate_stream::{Record, Topic, consumer::inbox::DrainResult};

use super::{
    receiver::{Answer, Receiver},
    world::{World, callback, org, quick_settings},
};

/// Starts a receiver that answers only after a signal of the test.
async fn hanging() -> (Arc<AtomicBool>, Receiver) {
    let answers = Arc::new(AtomicBool::new(false));
    let read = Arc::clone(&answers);
    let receiver =
        Receiver::start(
            move |_, _| {
                if read.load(Ordering::SeqCst) { Answer::Status(200) } else { Answer::Hang }
            },
        )
        .await;
    (answers, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_causes_at_most_one_extra_attempt() {
    let (answers, receiver) = hanging().await;
    // The lease is longer than the test.
    let settings = Settings { in_flight_per_endpoint: 1, lease_margin_ms: 3_600_000, ..quick_settings() };
    let mut world = World::calling_for(settings.clone(), 10_000).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let under_way = world.ask("platform").await;
    world.wait_for("a call under way", async || (receiver.requests().len() == 1).then_some(())).await;
    // The second callback is accepted but not attempted, because it waits behind the first.
    let accepted = world.ask("platform").await;
    world.until_state(accepted, "pending").await;
    let mut next = world.image(settings).await;
    drop(world);
    assert_eq!(receiver.requests().len(), 1, "the image was taken before the next attempt");

    answers.store(true, Ordering::SeqCst);
    next.start();
    for event in [under_way, accepted] {
        let row = next.until_state(event, "delivered").await;
        assert_eq!(row.attempts, 1);
        assert_eq!(next.attempts(event).await.len(), 1);
    }
    let id = |event: tidegate_schemas::ids::EventId| event.to_string();
    let requests = receiver.requests();
    let of = |event| {
        requests.iter().filter(|request| request.header("webhook-id") == id(event)).collect::<Vec<_>>()
    };
    assert_eq!(of(accepted).len(), 1);
    assert_eq!(of(under_way).len(), 2, "one extra attempt, because the result of the first is unknown");
    assert_eq!(of(under_way)[0].body, of(under_way)[1].body);
    receiver.all_are_signed(&[next.secret("platform").await]);
    assert_eq!(next.stop().await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_queued_at_a_stop_are_sent_once_after_it() {
    let (answers, receiver) = hanging().await;
    // Much longer than any wait of this test.
    let settings = Settings { in_flight_per_endpoint: 1, lease_margin_ms: 3_600_000, ..quick_settings() };
    let mut world = World::calling_for(settings, 10_000).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let under_way = world.ask("platform").await;
    world.wait_for("a call under way", async || (receiver.requests().len() == 1).then_some(())).await;
    let mut waiting_ids = Vec::new();
    for _ in 0..20 {
        waiting_ids.push(world.ask("platform").await);
    }
    for event in &waiting_ids {
        world.until_state(*event, "pending").await;
    }
    // These are accepted during the stop, while a call is running, or by the next process.
    let log = world.deps.log.clone();
    let late_events: Vec<_> = (0..5).map(|_| callback(Some("platform"))).collect();
    let appending = async {
        for record in &late_events {
            let key = record.subject.log_key(&record.org);
            let partition = log.partition(Topic::Callbacks, &key);
            log.append(&[(partition, Record::from_content(&key, record))]).await.unwrap();
        }
    };
    let (drained, ()) = tokio::join!(world.stop(), appending);
    assert_eq!(drained, DrainResult::Clean);
    assert_eq!(receiver.requests().len(), 1, "no call starts after a stop");

    answers.store(true, Ordering::SeqCst);
    world.start();
    waiting_ids.extend(late_events.iter().map(|record| record.event_id));
    for event in &waiting_ids {
        assert_eq!(world.until_state(*event, "delivered").await.attempts, 1);
    }
    world.until_state(under_way, "delivered").await;
    assert_eq!(world.stop().await, DrainResult::Clean);
    let count_requests = |event: &tidegate_schemas::ids::EventId| {
        let id = event.to_string();
        receiver.requests().iter().filter(|request| request.header("webhook-id") == id).count()
    };
    assert!(waiting_ids.iter().all(|event| count_requests(event) == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_attempt_is_not_repeated_after_a_crash() {
    let (answers, receiver) = hanging().await;
    let mut world = World::calling_for(quick_settings(), 10_000).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    world.wait_for("a call under way", async || (receiver.requests().len() == 1).then_some(())).await;
    let mut next = world.image(quick_settings()).await;
    drop(world);
    // The row of the attempt is written before that of the delivery.
    let at = Millis::now();
    let attempt = Attempt {
        org: org(),
        event_id: event,
        number: 1,
        at,
        round: 0,
        took_ms: 5,
        trigger: AttemptTrigger::First,
        outcome: "delivered".to_owned(),
        http_status: Some(200),
        error: None,
        remote_ip: None,
        response_head: bytes::Bytes::new(),
    };
    next.deps.store.put_rows(WriteTime::after(None, at), &[attempt]).await.unwrap();
    answers.store(true, Ordering::SeqCst);
    next.start();
    let row = next.until_state(event, "delivered").await;
    assert_eq!((row.attempts, row.delivered_at), (1, Some(at)));
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn replayed_command_is_applied_once() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    world.until_state(event, "delivered").await;
    world.command(event, Command::Resend).await;
    world
        .wait_for("a second attempt", async || world.delivery(event).await.filter(|row| row.attempts == 2))
        .await;
    let mut next = world.image(quick_settings()).await;
    world.stop().await;
    next.start();
    // Behind the replayed records of the same partition.
    let last = world_event(&next, event).await;
    next.until_state(last, "delivered").await;
    let row = next.delivery(event).await.unwrap();
    assert_eq!((row.state.as_str(), row.attempts, row.round), ("delivered", 2, 1));
    assert_eq!(receiver.requests().len(), 3);
}

/// Another event of the same subject.
async fn world_event(world: &World, like: tidegate_schemas::ids::EventId) -> tidegate_schemas::ids::EventId {
    let mut record = callback(Some("platform"));
    record.subject = world.delivery(like).await.unwrap().subject;
    world.append(&record).await;
    record.event_id
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_the_running_call_and_starts_no_other() {
    let receiver = Receiver::start(|_, _| Answer::Hang).await;
    let settings = Settings { in_flight_per_endpoint: 1, ..quick_settings() };
    let mut world = World::calling_for(settings, 1_500).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let first = world.ask("platform").await;
    let second = world.ask("platform").await;
    world.wait_for("a call under way", async || (receiver.requests().len() == 1).then_some(())).await;
    world.until_state(second, "pending").await;
    assert_eq!(world.stop().await, DrainResult::Clean);
    let rows = (world.delivery(first).await.unwrap(), world.delivery(second).await.unwrap());
    let (made, waiting) = if rows.0.attempts == 1 { rows } else { (rows.1, rows.0) };
    assert_eq!((made.state.as_str(), made.last_error.as_deref()), ("retry_wait", Some("timeout")));
    assert_eq!((waiting.state.as_str(), waiting.attempts), ("pending", 0));
    assert_eq!(receiver.requests().len(), 1);
}
