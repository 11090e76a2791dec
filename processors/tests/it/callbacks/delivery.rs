//! Deliveries under different behaviours of receivers.

use bytes::Bytes;
use tidegate_catalog::{MasterKey, Secrets};
use tidegate_processors::callbacks::Settings;
use tidegate_schemas::{
    ids::EndpointId,
    records::{Callback, Command},
};
use tidegate_store::{RowRange, Store, tables::callbacks::due::Due};
use tidegate_stream::consumer::inbox::DrainResult;

use super::{
    receiver::{Answer, Receiver},
    world::{World, callback, org, quick_settings},
};

#[tokio::test(flavor = "multi_thread")]
async fn callback_arrives_signed_with_sequence_and_unchanged_body() {
    let receiver = Receiver::start(|_, _| Answer::Status(204)).await;
    let mut world = World::new(Settings::default()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let record = callback(Some("platform"));
    world.append(&record).await;
    let row = world.until_state(record.event_id, "delivered").await;
    assert_eq!((row.attempts, row.last_status, row.next_at), (1, Some(204), None));
    assert!(row.delivered_at.is_some());
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    let planned = std::str::from_utf8(&record.body).unwrap().strip_suffix('}').unwrap();
    assert_eq!(requests[0].body, format!("{planned},\"sequence\":{}}}", row.sequence).into_bytes());
    assert_eq!(requests[0].header("webhook-id"), record.event_id.to_string());
    assert_eq!(requests[0].header("service-attempt"), "1");
    assert_eq!(requests[0].header("service-event-type"), "action.automatic");
    receiver.all_are_signed(&[world.secret("platform").await]);
    let attempts = world.attempts(record.event_id).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].trigger.as_str(), attempts[0].outcome.as_str()), ("first", "delivered"));
    assert_eq!(world.stop().await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_record_defines_the_delivery_of_repeated_ones() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    let record = callback(Some("platform"));
    world.append(&record).await;
    let other_record = Callback { body: r#"{"other":true}"#.into(), ..record.clone() };
    world.append(&other_record).await;
    world.append(&record).await;
    world.start();
    let row = world.until_state(record.event_id, "delivered").await;
    assert_eq!(row.sequence, 0);
    // Of the same subject, so it is handled after the others.
    let last = Callback { event_id: tidegate_schemas::ids::EventId::random(), ..record.clone() };
    world.append(&last).await;
    world.until_state(last.event_id, "delivered").await;
    let sequences: Vec<_> =
        receiver.requests().iter().map(|request| request.json()["sequence"].clone()).collect();
    assert_eq!(sequences, [0, 3], "a later event of the subject has a greater sequence");
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_send_the_same_body_under_fresh_signatures() {
    let receiver =
        Receiver::start(|_, nth| if nth < 4 { Answer::Status(500) } else { Answer::Status(200) }).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    let row = world.until_state(event, "delivered").await;
    assert_eq!((row.attempts, row.tries), (5, 5));
    let requests = receiver.requests();
    assert!(requests.iter().all(|request| request.body == requests[0].body));
    let numbers: Vec<_> = requests.iter().map(|request| request.header("service-attempt")).collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "5"]);
    let attempts = world.attempts(event).await;
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.as_str()).collect();
    assert_eq!(outcomes, ["server_error", "server_error", "server_error", "server_error", "delivered"]);
    receiver.all_are_signed(&[world.secret("platform").await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_attempt_leaves_a_due_row_for_the_next_one() {
    let receiver = Receiver::start(|_, _| Answer::Status(503)).await;
    let schedule = ["0s", "1h"].map(|pause| pause.parse().unwrap()).to_vec();
    let mut world = World::new(Settings { schedule, ..quick_settings() }).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    let row = world.until_state(event, "retry_wait").await;
    let next_at = row.next_at.unwrap();
    let minute = (row.shard, next_at.0.div_euclid(60_000));
    let due_rows = world.deps.store.scan::<Due>(&minute, RowRange::all()).all().await.unwrap();
    assert_eq!(due_rows.iter().filter(|due| due.event_id == event && due.due_at == next_at).count(), 1);
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_receiver_exhausts_after_twelve_attempts() {
    let receiver = Receiver::start(|_, _| Answer::Close).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    let row = world.until_state(event, "exhausted").await;
    assert_eq!((row.attempts, row.last_error.as_deref()), (12, Some("reset")));
    assert_eq!(receiver.requests().len(), 12);
    receiver.all_are_signed(&[world.secret("platform").await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_receiver_does_not_delay_other_endpoints() {
    let receiver =
        Receiver::start(|path, _| if path == "/hangs" { Answer::Hang } else { Answer::Status(200) }).await;
    let settings = Settings { in_flight_per_endpoint: 2, in_flight: 4, ..quick_settings() };
    let mut world = World::calling_for(settings, 600_000).await;
    world.endpoints(&[("hangs", receiver.url("/hangs")), ("works", receiver.url("/works"))]).await;
    world.start();
    for _ in 0..20 {
        world.ask("hangs").await;
    }
    let mut events = Vec::new();
    for _ in 0..50 {
        events.push(world.ask("works").await);
    }
    for event in events {
        world.until_state(event, "delivered").await;
    }
    assert_eq!(receiver.requests_at("/works").len(), 50);
    assert_eq!(receiver.requests_at("/hangs").len(), 2, "the lane is full");
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_without_room_are_read_from_the_store_later() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let settings = Settings {
        in_flight_per_endpoint: 1,
        in_flight: 1,
        backlog_per_endpoint: 1,
        backlog: 1,
        ..quick_settings()
    };
    let mut world = World::calling_for(settings, 5_000).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    let mut events = Vec::new();
    for _ in 0..6 {
        events.push(world.ask("platform").await);
    }
    world.start();
    for event in &events {
        world.until_state(*event, "delivered").await;
    }
    assert_eq!(receiver.requests().len(), 6, "each callback is sent once");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gone_answers_hold_the_callback() {
    let receiver = Receiver::start(|_, _| Answer::Status(410)).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let event = world.ask("platform").await;
    let row = world.until_state(event, "held").await;
    assert_eq!((row.attempts, row.held_reason.as_deref(), row.next_at), (2, Some("endpoint_gone"), None));
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_is_held_until_an_endpoint_is_configured() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut world = World::new(quick_settings()).await;
    world.start();
    let named_event = world.ask("platform").await;
    let unnamed = callback(None);
    world.append(&unnamed).await;
    for event in [named_event, unnamed.event_id] {
        let row = world.until_state(event, "held").await;
        assert_eq!((row.attempts, row.held_reason.as_deref()), (0, Some("endpoint_missing")));
    }
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    for event in [named_event, unnamed.event_id] {
        let row = world.until_state(event, "delivered").await;
        assert_eq!((row.attempts, row.endpoint.as_ref().unwrap().as_str()), (1, "platform"));
        assert_eq!(row.held_reason, None);
    }
    receiver.all_are_signed(&[world.secret("platform").await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_callback_uses_the_endpoint_of_a_new_event() {
    let first = Receiver::start(|_, _| Answer::Status(200)).await;
    let named_receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut world = World::new(quick_settings()).await;
    let action = |line: &str| format!("action: act\nkind: callback\n{line}---\n");
    world.configure(&action("")).await;
    world.start();
    let (one, another, other) = (callback(None), callback(None), callback(None));
    let body = Bytes::from_static(br#"{"action":{"id":"act"}}"#);
    for (event, body) in [(&one, &body), (&another, &body), (&other, &Bytes::from_static(b"{}"))] {
        world.append(&Callback { body: body.clone(), ..event.clone() }).await;
        world.until_state(event.event_id, "held").await;
    }
    let endpoints = format!(
        "endpoint: zzz\nurl: {}\nevents: [appeal.decision]\n---\nendpoint: aaa\nurl: {}\n",
        named_receiver.url("/hook"),
        first.url("/hook")
    );
    world.configure(&(action("endpoint: zzz\n") + &endpoints)).await;
    for (event, endpoint) in [(&one, "zzz"), (&another, "zzz"), (&other, "aaa")] {
        let row = world.until_state(event.event_id, "delivered").await;
        assert_eq!((row.attempts, row.endpoint.unwrap().as_str()), (1, endpoint));
    }
    assert_eq!((named_receiver.requests().len(), first.requests().len()), (2, 1));
}

/// Builds an event of the action `act` planned for an endpoint.
fn planned_for(endpoint: &str) -> Callback {
    Callback { body: Bytes::from_static(br#"{"action":{"id":"act"}}"#), ..callback(Some(endpoint)) }
}

fn act_at(endpoint: &str, endpoints: &[(&str, String)]) -> String {
    let endpoints = endpoints.iter().map(|(name, url)| format!("---\nendpoint: {name}\nurl: {url}\n"));
    format!("action: act\nkind: callback\nendpoint: {endpoint}\n{}", endpoints.collect::<String>())
}

/// Creates an empty store of secrets.
fn no_secrets(folder: &tempfile::TempDir) -> Secrets {
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let empty = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
    let settings = tidegate_catalog::Settings { secret_cache_seconds: 0, ..Default::default() };
    Secrets::new(empty, MasterKey::new([7; 32]), &settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_callback_follows_its_action_under_the_same_id() {
    let old_receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let new_receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(quick_settings()).await;
    world.deps.secrets = no_secrets(&folder);
    world.start();
    let (gone, shut) = (planned_for("gone"), planned_for("shut"));
    let assert_held = async |event: &Callback, reason: &str| {
        world.append(event).await;
        let row = world.until_state(event.event_id, "held").await;
        assert_eq!((row.attempts, row.held_reason.as_deref()), (0, Some(reason)));
    };
    assert_held(&gone, "endpoint_missing").await;
    world.configure(&act_at("shut", &[("shut", old_receiver.url("/hook"))])).await;
    assert_held(&shut, "secret_missing").await;
    world.deps.secrets.ensure_secret(&org(), &EndpointId::new("new")).await.unwrap();
    world.configure(&act_at("new", &[("new", new_receiver.url("/hook"))])).await;
    world.load_latest_config().await;
    for event in [&gone, &shut] {
        let row = world.until_state(event.event_id, "delivered").await;
        assert_eq!((row.attempts, row.endpoint.unwrap().as_str()), (1, "new"));
    }
    let ids: std::collections::BTreeSet<_> =
        new_receiver.requests().iter().map(|request| request.header("webhook-id").to_owned()).collect();
    assert_eq!(ids, [&gone, &shut].map(|event| event.event_id.to_string()).into());
    assert_eq!((old_receiver.requests().len(), new_receiver.requests().len()), (0, 2));
    new_receiver.all_are_signed(&[world.secret("new").await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn called_endpoint_is_called_again_while_configured() {
    let old_receiver = Receiver::start(|_, nth| Answer::Status(if nth == 1 { 200 } else { 500 })).await;
    let new_receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let schedule = ["0s", "1h"].map(|pause| pause.parse().unwrap()).to_vec();
    let mut world = World::new(Settings { schedule, ..quick_settings() }).await;
    world.configure(&act_at("old", &[("old", old_receiver.url("/hook"))])).await;
    world.start();
    let (stays, follows) = (planned_for("old"), planned_for("old"));
    for event in [&stays, &follows] {
        world.append(event).await;
        world.until_state(event.event_id, "retry_wait").await;
    }
    world.configure(&act_at("new", &[("new", new_receiver.url("/hook"))])).await;
    world.load_latest_config().await;
    world.command(stays.event_id, Command::Resend).await;
    let row = world.until_state(stays.event_id, "delivered").await;
    assert_eq!((row.attempts, row.endpoint.unwrap().as_str()), (2, "old"));
    assert_eq!((old_receiver.requests().len(), new_receiver.requests().len()), (3, 0));
    world.configure_only(&act_at("new", &[("new", new_receiver.url("/hook"))])).await;
    world.load_latest_config().await;
    world.command(follows.event_id, Command::Resend).await;
    let row = world.until_state(follows.event_id, "delivered").await;
    assert_eq!((row.attempts, row.endpoint.unwrap().as_str()), (2, "new"));
    assert_eq!((old_receiver.requests().len(), new_receiver.requests().len()), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_wait_for_their_secret() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    let folder = tempfile::tempdir().unwrap();
    world.deps.secrets = no_secrets(&folder);
    world.start();
    let event = world.ask("platform").await;
    let row = world.until_state(event, "held").await;
    assert_eq!((row.attempts, row.held_reason.as_deref()), (0, Some("secret_missing")));
    assert_eq!(receiver.requests().len(), 0);
    world.deps.secrets.ensure_secret(&org(), &EndpointId::new("platform")).await.unwrap();
    world.until_state(event, "delivered").await;
    assert_eq!(receiver.requests().len(), 1);
    receiver.all_are_signed(&[world.secret("platform").await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_secret_and_unset_header_cost_no_attempt() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut world = World::new(quick_settings()).await;
    let url = receiver.url("/hook");
    world.configure(&format!(
        "endpoint: sealed\nurl: {url}\n---\nendpoint: unset\nurl: {url}\nheaders: {{Authorization: '${{CALLBACK_NOT_SET}}'}}\n"
    )).await;
    let settings = tidegate_catalog::Settings { secret_cache_seconds: 0, ..Default::default() };
    world.start();
    let unset = world.ask("unset").await;
    let row = world.until_state(unset, "held").await;
    assert_eq!((row.attempts, row.held_reason.as_deref()), (0, Some("header_variable_not_set")));
    world.stop().await;
    world.deps.secrets = Secrets::new(world.deps.store.clone(), MasterKey::new([8; 32]), &settings);
    world.start();
    let sealed = world.ask("sealed").await;
    let row = world.until_state(sealed, "held").await;
    assert_eq!((row.attempts, row.held_reason.as_deref()), (0, Some("secret_other_master_key")));
    assert_eq!(receiver.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_address_exhausts_after_three_attempts() {
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("inside", "http://10.0.0.1/hook".to_owned())]).await;
    world.start();
    let event = world.ask("inside").await;
    let row = world.until_state(event, "exhausted").await;
    assert_eq!((row.attempts, row.blocked), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_event_body_is_dead_lettered() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut world = World::new(quick_settings()).await;
    world.endpoints(&[("platform", receiver.url("/hook"))]).await;
    world.start();
    let bad = Callback { body: "[1]".into(), ..callback(Some("platform")) };
    world.append(&bad).await;
    let good_event = world.ask("platform").await;
    world.until_state(good_event, "delivered").await;
    world.wait_for("a dead letter", async || (world.dead_letters().await == 1).then_some(())).await;
    assert!(world.delivery(bad.event_id).await.is_none());
}
