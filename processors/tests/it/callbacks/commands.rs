//! Commands of operators on deliveries.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use tidegate_processors::callbacks::Settings;
use tidegate_schemas::records::{Callback, Command};

use super::{
    receiver::{Answer, Receiver},
    world::{World, callback, quick_settings},
};

/// Starts a receiver with a changeable status.
async fn switchable_receiver(status: u16) -> (Arc<AtomicU16>, Receiver) {
    let switch = Arc::new(AtomicU16::new(status));
    let read = Arc::clone(&switch);
    let receiver = Receiver::start(move |_, _| Answer::Status(read.load(Ordering::SeqCst))).await;
    (switch, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn resent_callback_keeps_its_id_and_stays_delivered() {
    let (_, receiver) = switchable_receiver(200).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    let first = world.until_state(event, "delivered").await;
    world.command(event, Command::Resend).await;
    let resent_row = world
        .wait_for("a second attempt", async || world.delivery(event).await.filter(|row| row.attempts == 2))
        .await;
    assert_eq!((resent_row.state.as_str(), resent_row.delivered_at), ("delivered", first.delivered_at));
    let requests = receiver.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
    assert_eq!(world.attempts(event).await[1].trigger.as_str(), "resend");
    receiver.all_are_signed(&[world.secret("platform").await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resend_restarts_the_schedule_of_an_exhausted_callback() {
    let (switch, receiver) = switchable_receiver(500).await;
    let schedule = ["0s", "10ms", "10ms"].map(|pause| pause.parse().unwrap()).to_vec();
    let mut world = World::new(Settings { schedule, ..quick_settings() }).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    assert_eq!(world.until_state(event, "exhausted").await.attempts, 3);
    world.command(event, Command::Resend).await;
    world
        .wait_for("another round", async || {
            world.delivery(event).await.filter(|row| row.state.as_str() == "exhausted" && row.attempts == 6)
        })
        .await;
    switch.store(200, Ordering::SeqCst);
    world.command(event, Command::Resend).await;
    let row = world.until_state(event, "delivered").await;
    assert_eq!((row.attempts, row.round, row.tries), (7, 2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn canceled_or_held_callback_is_not_sent_until_a_resend() {
    let (switch, receiver) = switchable_receiver(500).await;
    let schedule = ["0s", "1h"].map(|pause| pause.parse().unwrap()).to_vec();
    let mut world = World::new(Settings { schedule, ..quick_settings() }).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let canceled = world.ask("platform").await;
    let held_id = world.ask("platform").await;
    for event in [canceled, held_id] {
        world.until_state(event, "retry_wait").await;
    }
    world.command(canceled, Command::Cancel).await;
    world.command(held_id, Command::Hold).await;
    assert_eq!(world.until_state(canceled, "canceled").await.next_at, None);
    assert_eq!(world.until_state(held_id, "held").await.held_reason.as_deref(), Some("by_command"));
    switch.store(200, Ordering::SeqCst);
    for event in [canceled, held_id] {
        world.command(event, Command::Resend).await;
        assert_eq!(world.until_state(event, "delivered").await.attempts, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_callback_is_listed_and_sent_under_a_higher_limit() {
    let (_, receiver) = switchable_receiver(200).await;
    let mut world = World::new(Settings { max_body_bytes: 1_000, ..quick_settings() }).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let large = Callback {
        body: format!(r#"{{"text":"{}"}}"#, "x".repeat(2_000)).into(),
        ..callback(Some("platform"))
    };
    world.append(&large).await;
    let row = world.until_state(large.event_id, "too_large").await;
    assert_eq!((row.attempts, row.next_at, row.held_reason.as_deref()), (0, None, Some("body_too_large")));
    assert!(row.last_error.unwrap().contains("above callbacks.max_body_bytes = 1000"));
    world.command(large.event_id, Command::Resend).await;
    world
        .wait_for("the refused resend", async || {
            world.delivery(large.event_id).await.filter(|now| now.applied > row.applied)
        })
        .await;
    assert_eq!(world.delivery(large.event_id).await.unwrap().state.as_str(), "too_large");
    let small = world.ask("platform").await;
    world.until_state(small, "delivered").await;
    assert_eq!(receiver.requests().len(), 1, "no request for the callback was sent");
    assert_eq!(world.dead_letters().await, 0);

    world.stop().await;
    world.settings.max_body_bytes = 3_000;
    world.start();
    world.command(large.event_id, Command::Resend).await;
    let row = world.until_state(large.event_id, "delivered").await;
    assert_eq!((row.attempts, row.held_reason), (1, None));
    let sent_body = receiver.requests().pop().unwrap().body;
    assert!(
        sent_body.len() > 2_000
            && sent_body.ends_with(format!(",\"sequence\":{}}}", row.sequence).as_bytes())
    );
}
