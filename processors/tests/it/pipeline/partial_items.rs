//! Requests for items named by reports, and the handling of the responses.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tidegate_moderation::{
    items::stored,
    partial_items::{
        requests::{self, NewRequest},
        views::{self, ItemCursor, ItemLimits},
    },
    review::job_view::{self, CauseLimits},
};
use tidegate_processors::{PartialItemsDeps, Settings};
use tidegate_schemas::{
    ids::{ItemKey, Kind, Millis, derive},
    records::{ContextItem, ItemEntry, Report, Variant, Verdict},
};
use tidegate_store::tables::{
    items::strikes::Strike,
    review::{
        jobs::Job,
        partial_requests::{PartialRequest, PartialState, PartialTrigger},
    },
};
use tidegate_stream::Topic;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{
    reviews::{decide, report},
    world::{World, authorize, entry, org, post, user},
};

/// Platform that returns its items and records the requests.
#[derive(Clone, Default)]
struct Platform {
    items: Arc<Mutex<Vec<Value>>>,
    asked: Arc<Mutex<Vec<Value>>>,
    hangs: bool,
    /// Number of answered calls before the failures.
    answers: Option<usize>,
}

impl Platform {
    async fn serve(self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(self.clone().answer(socket));
            }
        });
        port
    }

    async fn answer(self, mut socket: TcpStream) {
        let mut bytes = Vec::new();
        let body: Value = loop {
            if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
            if let Some(body) = body {
                break body;
            }
        };
        self.asked.lock().unwrap().push(body);
        if self.hangs {
            return std::future::pending().await;
        }
        let answer = json!({"items": *self.items.lock().unwrap()}).to_string();
        let fails = self.answers.is_some_and(|answers| self.asked.lock().unwrap().len() > answers);
        let status = if fails { "500 Internal Server Error" } else { "200 OK" };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
        let _gone = socket.write_all(format!("{head}{answer}").as_bytes()).await;
    }

    fn has(&self, id: &str, data: &Value) {
        self.items.lock().unwrap().push(json!({"id": id, "typeId": "post", "data": data}));
    }

    fn recorded_requests(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }
}

async fn world(platform: &Platform) -> World {
    let port = platform.clone().serve().await;
    let settings = Settings { partial_items_poll_ms: 20, ..Settings::default() };
    let mut world = World::with_media_ports(settings, &[]).await;
    let endpoints = json!({ org().as_str(): {"url": format!("http://127.0.0.1:{port}/items")} });
    let endpoints = Arc::new(serde_json::from_value(endpoints).unwrap());
    world.deps.partial_items = PartialItemsDeps { endpoints, ..world.deps.partial_items.clone() };
    world
}

async fn stored_requests(world: &World) -> Vec<PartialRequest> {
    world.rows::<PartialRequest>(&(org(), Millis::now().day())).await
}

async fn wait_for_state(world: &World, state: PartialState) -> PartialRequest {
    let settled = async || stored_requests(world).await.into_iter().find(|row| row.state == state);
    world.wait_for("a settled request", settled).await
}

fn refresh(item: &ItemKey) -> NewRequest {
    let at = Millis::now();
    NewRequest {
        org: org(),
        id: derive(Kind::PartialRequest, &[item.id.as_str().as_bytes(), &at.0.to_be_bytes()]),
        trigger: PartialTrigger::Refresh,
        job_id: None,
        subject: item.clone(),
        items: vec![item.clone()],
        at,
    }
}

/// Sends a report of `p1` that names unknown entries of its thread.
async fn send(world: &World) -> Report {
    let report = Report {
        reported_in_thread: vec![post("t1"), post("t2")],
        ..report(world.version().await, 1, "hello", false)
    };
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    report
}

#[tokio::test]
async fn items_named_by_a_report_are_fetched_without_effects() {
    let platform = Platform::default();
    platform.has("t1", &json!({"text": "free scamcoin here"}));
    platform.has("foreign", &json!({"text": "nobody asked"}));
    let mut world = world(&platform).await;
    world.start();
    let report = send(&world).await;
    let row = wait_for_state(&world, PartialState::Done).await;
    // The author of the reported item was not submitted either.
    let creator = json!({"id": "u1", "typeId": "user"});
    assert_eq!(
        platform.recorded_requests(),
        [json!({"items": [{"id": "t1", "typeId": "post"}, {"id": "t2", "typeId": "post"}, creator]})]
    );
    let list = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!((list(&row.found)[0]["id"].as_str(), row.dropped), (Some("t1"), 1));
    assert_eq!(list(&row.missing), json!([{"typeId": "post", "id": "t2"}, creator]));
    assert_eq!(
        (row.trigger, row.http_status, row.job_id.is_some()),
        (PartialTrigger::Report, Some(200), true)
    );

    let fetched_row =
        world.wait_for("the fetched item", async || world.versions(&post("t1")).await.pop()).await;
    assert_eq!(fetched_row.source.to_string(), "partial_items");
    world.wait_until_evaluated(&post("t1"), fetched_row.submission_id).await;
    world.wait_until_evaluated(&post("p1"), report.item.submission_id).await;
    // The text matches a live rule, but rules do not act on fetched items.
    let stored = world.versions(&post("t1")).await.pop().unwrap();
    assert_eq!(stored.matched, "[]");
    assert_eq!(world.callbacks().await.len(), 0);
    world.stop().await.unwrap();
}

#[tokio::test]
async fn thread_entries_without_data_are_fetched() {
    let platform = Platform::default();
    let mut world = world(&platform).await;
    let entry = |id: &str, data: &'static str, fault: Option<&str>| ContextItem {
        type_id: "post".into(),
        id: id.into(),
        type_version: None,
        variant: Variant::Partial,
        data: data.into(),
        fault: fault.map(str::to_owned),
        as_sent: None,
    };
    let submission = world.submit_text("known", "hello").await;
    world.start();
    world.wait_until_evaluated(&post("known"), submission).await;
    let missing_data = Some("`data` is missing.");
    let thread = vec![
        entry("none", "{}", missing_data),
        entry("empty", "{ }", None),
        entry("null", "null", Some("`data` must be an object, not null.")),
        entry("both", "{}", missing_data),
        entry("whole", r#"{"text": "hello"}"#, None),
        entry("known", "{}", missing_data),
        entry("", "{}", Some("`id` is missing.")),
        // The second mention has the data that the first one lacks.
        entry("later", "{}", None),
        entry("later", r#"{"text": "hello"}"#, None),
    ];
    let reported_in_thread = vec![post("both"), post("whole")];
    let report = report(world.version().await, 1, "hello", false);
    let report = Report { thread, reported_in_thread, ..report };
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    wait_for_state(&world, PartialState::Done).await;
    let mut requested_ids: Vec<String> = platform.recorded_requests()[0]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect();
    requested_ids.sort_unstable();
    assert_eq!(requested_ids, ["both", "empty", "none", "null", "u1"]);
    world.stop().await.unwrap();
}

#[tokio::test]
async fn fetched_items_beyond_the_limit_are_counted_and_paged() {
    let platform = Platform::default();
    let ids: BTreeSet<_> = (0..250).map(|nth| format!("m{nth}")).collect();
    ids.iter().for_each(|id| platform.has(id, &json!({"text": "hello"})));
    let mut world = world(&platform).await;
    world.start();
    let reported_in_thread = ids.iter().map(|id| post(id)).collect();
    let report = Report { reported_in_thread, ..report(world.version().await, 1, "hello", false) };
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    let job_id = wait_for_state(&world, PartialState::Done).await.job_id.unwrap();
    for id in &ids {
        world.wait_for("the fetched item", async || world.versions(&post(id)).await.pop()).await;
    }

    let (store, org) = (&world.deps.store, org());
    let config = world.deps.live.load_latest(&org).await.unwrap();
    let limits = CauseLimits { causes: 100, bytes: 1 << 20 };
    let job = authorize(store, job_id).await;
    let view = job_view::load_view(store, &config, &job, limits).await.unwrap().unwrap();
    let mut partial_view = view.partial_items.unwrap();
    assert_eq!(
        (partial_view.items.len(), partial_view.items_more, partial_view.requests_more),
        (100, 150, 0)
    );
    let mut cursor: Option<ItemCursor> = partial_view.next_item.map(|cursor| cursor.parse().unwrap());
    let mut left = partial_view.items_more;
    // One page ends by its bytes after two items, the other by its number of items.
    let data = partial_view.items[0].data.get().len();
    for limits in [ItemLimits { items: 100, bytes: 2 * data }, ItemLimits { items: 147, bytes: 1 << 20 }] {
        let page = views::load_items_of_job(store, &job, cursor, limits).await.unwrap();
        left -= page.items.len();
        assert_eq!(page.more, left);
        partial_view.items.extend(page.items);
        cursor = page.next;
    }
    assert!(left == 1 && cursor.is_some());
    let limits = ItemLimits { items: 1, bytes: 1 };
    let last = views::load_items_of_job(store, &job, cursor, limits).await.unwrap();
    assert!(last.more == 0 && last.next.is_none());
    partial_view.items.extend(last.items);
    assert_eq!(partial_view.items.len(), ids.len());
    assert_eq!(
        partial_view.items.iter().map(|item| item.id.as_str().to_owned()).collect::<BTreeSet<_>>(),
        ids
    );
    world.stop().await.unwrap();
}

#[tokio::test]
async fn repeated_report_requests_items_once() {
    let platform = Platform::default();
    let mut first = world(&platform).await;
    first.start();
    let report = send(&first).await;
    wait_for_state(&first, PartialState::Done).await;
    first.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    first.drain().await;
    assert_eq!(stored_requests(&first).await.len(), 1);
    assert_eq!(platform.recorded_requests().len(), 1);
}

#[tokio::test]
async fn stored_request_is_made_after_a_crash() {
    let platform = Platform::default();
    platform.has("p9", &json!({"text": "hello"}));
    let mut world = world(&platform).await;
    requests::store_request(&world.moderation(), refresh(&post("p9"))).await.unwrap();
    assert_eq!(platform.recorded_requests().len(), 0, "only the role sends requests");
    world.start();
    wait_for_state(&world, PartialState::Done).await;
    world.wait_for("the item", async || world.versions(&post("p9")).await.pop()).await;
    world.stop().await.unwrap();
}

/// Creates a request that needs two calls; the platform answers only the first.
async fn half_answered_request(trigger: PartialTrigger) -> (Platform, World, Vec<ItemKey>) {
    let platform = Platform { answers: Some(1), ..Platform::default() };
    let keys: Vec<_> = (100..201).map(|number| post(&format!("p{number}"))).collect();
    for key in &keys {
        platform.has(key.id.as_str(), &json!({"text": "hello"}));
    }
    let mut world = world(&platform).await;
    let request = NewRequest { items: keys.clone(), trigger, ..refresh(&keys[0]) };
    requests::store_request(&world.moderation(), request).await.unwrap();
    world.start();
    (platform, world, keys)
}

#[tokio::test]
async fn request_with_failed_second_call_lists_items_of_the_first() {
    let (platform, mut world, keys) = half_answered_request(PartialTrigger::Refresh).await;
    let row = wait_for_state(&world, PartialState::Failed).await;
    let found_items: Vec<Value> = serde_json::from_str(&row.found).unwrap();
    assert_eq!(found_items.len(), 100, "{row:?}");
    assert_eq!((row.http_status, platform.recorded_requests().len()), (Some(500), 2), "{row:?}");
    for key in &keys[..100] {
        world.wait_for("the item", async || world.versions(key).await.pop()).await;
    }
    world.stop().await.unwrap();
}

#[tokio::test]
async fn retried_request_keeps_items_of_its_first_attempt() {
    let (_platform, mut world, _) = half_answered_request(PartialTrigger::Report).await;
    let find_retried = async || stored_requests(&world).await.into_iter().find(|row| row.attempts >= 2);
    let row = world.wait_for("another attempt", find_retried).await;
    let found_items: Vec<Value> = serde_json::from_str(&row.found).unwrap();
    assert_eq!((row.state, found_items.len()), (PartialState::Pending, 100), "{row:?}");
    world.stop().await.unwrap();
}

#[tokio::test]
async fn submitted_item_takes_precedence_over_a_fetched_one() {
    for variant in ["partial", "original"] {
        let platform = Platform::default();
        let fetched_item = json!({"id": "p1", "typeId": "post", "typeSchemaVariant": variant,
            "data": {"text": "newer"}});
        platform.items.lock().unwrap().push(fetched_item);
        let mut world = world(&platform).await;
        world.start();
        // The matching rule opens a review.
        let submission = world.submit_text("p1", "doubtful").await;
        world.wait_until_evaluated(&post("p1"), submission).await;
        requests::store_request(&world.moderation(), refresh(&post("p1"))).await.unwrap();
        wait_for_state(&world, PartialState::Done).await;
        world.wait_for("both", async || (world.versions(&post("p1")).await.len() == 2).then_some(())).await;
        let store = &world.deps.store;
        let latest = stored::load_answer(store, &org(), &post("p1"), None).await.unwrap();
        let latest = serde_json::to_value(latest.unwrap()).unwrap();
        assert_eq!(latest["submissionId"], json!(submission), "{latest}");

        decide(&world, "default", Verdict::Act).await;
        // The strike is for the author in the newest version; the fetched version names no author.
        let author = (org(), user("u1"));
        world.wait_for("a strike", async || world.rows::<Strike>(&author).await.pop()).await;
        world.stop().await.unwrap();
    }
}

#[tokio::test]
async fn hanging_platform_does_not_delay_reports() {
    let platform = Platform { hangs: true, ..Platform::default() };
    let mut world = world(&platform).await;
    world.start();
    let report = send(&world).await;
    world.wait_for("a call", async || (!platform.recorded_requests().is_empty()).then_some(())).await;
    world.wait_until_evaluated(&post("p1"), report.item.submission_id).await;
    let other_entry = ItemEntry { ..entry(&post("p2"), "hello") };
    let submission = other_entry.submission_id;
    world.submit(vec![other_entry]).await;
    world.wait_until_evaluated(&post("p2"), submission).await;
    let row = stored_requests(&world).await.pop().unwrap();
    assert_eq!(row.state, PartialState::Pending);
    let job = world.deps.store.get::<Job>(&(org(), row.job_id.unwrap())).await.unwrap();
    assert!(job.is_some(), "the job is open while the platform hangs");
    world.stop().await.unwrap();
}

#[tokio::test]
async fn entry_that_does_not_fit_its_type_is_kept_and_marked() {
    let platform = Platform::default();
    platform.has("p7", &json!({"text": {"not": "a text"}}));
    let mut world = world(&platform).await;
    world.start();
    requests::store_request(&world.moderation(), refresh(&post("p7"))).await.unwrap();
    let row = wait_for_state(&world, PartialState::Done).await;
    let invalid: Value = serde_json::from_str(&row.invalid).unwrap();
    assert_eq!(invalid[0]["id"], "p7");
    assert!(invalid[0]["faults"][0].as_str().is_some(), "{invalid}");
    assert_eq!(world.versions(&post("p7")).await.len(), 0);
    world.stop().await.unwrap();
}
