//! Two organisations of one installation with the same documents; the first has objects of every kind.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_schemas::{
    ids::{Millis, OrgId},
    records::DeadLetter,
};
use tidegate_stream::{Log, Record, Topic, settings::Settings};
use tidegate_test_support::{PATIENCE, eventually_ok};

use crate::{
    partial_items::platform,
    support::{Answer, Demo, Place, appeal, operator, post, report},
};

/// Text that only objects of the first organisation contain.
pub(super) const SEALED: &str = "sealed-4711";

/// Documents of the first organisation alone.
const OWN: &str = "\
bank: words-0
kind: text
---
bank: hashes-0
kind: md5
---
queue: desk-0
name: sealed-4711
---
endpoint: hook-0
url: http://127.0.0.1:9009/
events: [appeal.decision]
---
rule: rule-0
status: live
item_types: [post]
when: {text: {in: [text], words: [sealedword]}}
";

/// Documents that both have.
const SHARED: &str = "bank: shared\nkind: text\n";

pub(super) struct TwoOrgs {
    pub(super) demo: Demo,
    /// Token of the operator, valid for both organisations.
    pub(super) operator: String,
    /// The other organisation's key, with every scope.
    pub(super) stranger: String,
    /// Ids of the first organisation's objects, by their names in the rows.
    pub(super) ids: BTreeMap<&'static str, String>,
}

pub(super) async fn two_orgs(place: &Place) -> TwoOrgs {
    place.start().await.unwrap().stop().await;
    add_dead_letter(place).await;
    let urls = [platform(true).await, platform(true).await].map(|port| format!("http://127.0.0.1:{port}/x"));
    let env = [
        ("TIDEGATE__PARTIAL_ITEMS__DEFAULT__URL", urls[0].as_str()),
        ("TIDEGATE__PARTIAL_ITEMS__OTHER__URL", urls[1].as_str()),
    ];
    let demo = place.start_with(&env).await.unwrap();
    let operator = operator(place);
    let shared = demo.admin("/config").await["files"].as_array().unwrap().clone();
    let shared: Vec<_> = shared.into_iter().chain([json!({"name": "shared.yaml", "text": SHARED})]).collect();
    place.run_ok(&["org", "create", "other"]).await;
    for (org, files) in [
        ("other", shared),
        (
            "default",
            vec![json!({"name": "shared.yaml", "text": SHARED}), json!({"name": "own.yaml", "text": OWN})],
        ),
    ] {
        let path = format!("/config?org={org}");
        let applied = demo.admin_as(&operator, Method::POST, &path, Some(&json!({ "files": files }))).await;
        assert_eq!(applied.0, 200, "{}", applied.1);
    }
    let stranger = json!({ "name": "stranger", "scopes": tidegate_catalog::Scope::ALL.map(tidegate_catalog::Scope::name) });
    let created_key = demo.admin_as(&operator, Method::POST, "/keys?org=other", Some(&stranger)).await.1;
    let stranger = created_key["key"].as_str().unwrap().to_owned();
    let ids = things(&demo).await;
    TwoOrgs { demo, operator, stranger, ids }
}

/// Appends a dead letter of the first organisation, about a record that cannot be read.
async fn add_dead_letter(place: &Place) {
    append_dead_letter(place, Bytes::from_static(b"unreadable"), SEALED).await;
}

/// Appends a dead letter of the organisation `default` with the framed record of an item to the log of a service that was
/// stopped.
pub(crate) async fn append_dead_letter(place: &Place, value: Bytes, detail: &str) {
    let database = fjall::Database::builder(place.data().join("db")).open().unwrap();
    let log = Log::open_embedded(database, &Settings::default()).unwrap();
    let letter = DeadLetter {
        org: Some(OrgId::new("default")),
        topic: Topic::Items.label().to_owned(),
        partition: 0,
        offset: 0,
        written_at: Millis::now(),
        key: Bytes::from_static(b"k"),
        value,
        headers: Vec::new(),
        submission_id: None,
        stage: "evaluate".to_owned(),
        reason: "content".to_owned(),
        detail: detail.to_owned(),
        failed_at: Millis::now(),
    };
    let at = log.partition(Topic::DeadLetters, b"k");
    log.append(&[(at, Record::from_content(b"k", &letter))]).await.unwrap();
    log.close(tokio::time::Instant::now() + PATIENCE).await;
}

/// Creates objects of every kind, and waits for all their effects.
async fn things(demo: &Demo) -> BTreeMap<&'static str, String> {
    demo.submit(&post("item-0", "mallory", &format!("{SEALED} scamcoin"))).await;
    let item = demo.evaluated("post", "item-0").await;
    let reported = async |id: &str, more: Value| {
        let mut report_body = report(&post(id, "mallory", SEALED));
        report_body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await;
        assert_eq!(answer.0, 201, "{}", answer.1);
    };
    reported("reported-0", json!({ "reportedItemsInThread": [{ "id": "p1", "typeId": "post" }] })).await;
    reported("decided-0", json!({})).await;
    reported("safety-0", json!({ "reportedForReason": { "csam": true } })).await;
    let appeal_body = appeal("appeal-0", &post("item-0", "mallory", SEALED));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report/appeal", Some(&appeal_body)).await.0, 204);
    let job = demo.job("default", "reported-0").await;
    let decided_job = demo.job("default", "decided-0").await;
    let safety = demo.job("child-safety", "safety-0").await;
    demo.job("appeals", "item-0").await;
    demo.decide(&decided_job, "act", &["remove"]).await;
    let id = |value: &Value, name: &str| {
        value[name].as_str().unwrap_or_else(|| panic!("{name}: {value}")).to_owned()
    };
    let create = async |path: &str, body: Value| {
        let (status, response) = demo.command(path, &body).await;
        assert!(status.is_success(), "{path}: {response}");
        response
    };
    create(&format!("/jobs/{}/comments", id(&job, "id")), json!({ "text": SEALED })).await;
    create("/banks/words-0/entries", json!({ "entries": [SEALED] })).await;
    create("/banks/shared/entries", json!({ "entries": [SEALED] })).await;
    let key = create("/keys", json!({ "name": SEALED, "scopes": ["items:read"] })).await;
    let (since, until) = (Millis::now().minus(DAYS), Millis::now());
    let run = create(
        "/rules/retroactions",
        json!({ "rules": ["demo-scam"], "since": since.iso(), "dryRun": true }),
    )
    .await;
    let request = create("/items/post/p1/refresh", json!({})).await;
    settled(demo).await;

    let event = demo.admin("/deliveries?itemId=item-0").await["items"][0].clone();
    let entries = demo.admin("/banks/shared/entries").await;
    let letter = demo.admin("/dead-letters").await["items"][0].clone();
    let policy = demo.admin("/policies").await["items"][0].clone();
    BTreeMap::from([
        ("item", "item-0".to_owned()),
        ("submission", id(&item, "submissionId")),
        ("reported", "reported-0".to_owned()),
        ("fetched", "p1".to_owned()),
        ("appeal", "appeal-0".to_owned()),
        ("job", id(&job, "id")),
        ("decided", id(&decided_job, "id")),
        ("safety", id(&safety, "id")),
        ("event", id(&event, "eventId")),
        ("bank", "words-0".to_owned()),
        ("hashes", "hashes-0".to_owned()),
        ("hash", "0123456789abcdef0123456789abcdef".to_owned()),
        ("entry", id(&entries["items"][0], "id")),
        ("endpoint", "hook-0".to_owned()),
        ("queue", "desk-0".to_owned()),
        ("rule", "rule-0".to_owned()),
        ("key", id(&key, "id")),
        ("run", id(&run, "id")),
        ("request", id(&request, "requestId")),
        ("letter", id(&letter, "id")),
        ("policy", id(&policy, "id")),
        ("jobs", id(&demo.admin("/jobs?queue=default&state=all&limit=1").await, "next")),
        ("deliveries", id(&demo.admin("/deliveries?limit=1").await, "next")),
        ("since", since.iso()),
        ("until", until.iso()),
    ])
}

const DAYS: Duration = Duration::from_secs(2 * 86_400);

/// Waits until the first organisation has no pending work.
async fn settled(demo: &Demo) {
    eventually_ok("all work of the first organisation to finish", PATIENCE, async || {
        let decided_jobs = demo.admin("/jobs?state=decided").await;
        let deliveries = demo.admin("/deliveries").await;
        let requests = demo.admin("/partial-requests").await;
        let rule_stats = demo.admin("/rules/stats").await;
        let all = |list: &Value, name: &str, wanted: &str, least: usize| {
            let items = list["items"].as_array().unwrap();
            items.len() >= least && items.iter().all(|it| it[name] == wanted)
        };
        // The strike of the item and its appeal have no callback; the decision and the action do.
        let is_settled = all(&decided_jobs, "decisionState", "appended", 1)
            && all(&deliveries, "state", "delivered", 3)
            && all(&requests, "state", "done", 2)
            && all(&rule_stats, "rule", "demo-scam", 1);
        if is_settled { Ok(()) } else { anyhow::bail!("{decided_jobs} {deliveries} {requests} {rule_stats}") }
    })
    .await
    .unwrap();
}

/// Removes random and time-dependent parts from an answer, and replaces ids with `<name>`.
pub(crate) fn stable((status, mut body): Answer, echoed: &BTreeMap<&'static str, String>) -> (u16, String) {
    strip(&mut body);
    let mut text = body.to_string();
    for (name, id) in echoed {
        text = text.replace(id.as_str(), &format!("<{name}>"));
    }
    (status.as_u16(), text)
}

const DRAWN: [&str; 11] = [
    "requestId",
    "submissionId",
    "reportId",
    "decisionId",
    "version",
    "lastUsedAt",
    "oldestAgeSeconds",
    "through",
    "changedAt",
    "configVersion",
    "settledUntil",
];

fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !DRAWN.contains(&name.as_str()));
            members.values_mut().for_each(strip);
        }
        Value::Array(members) => members.iter_mut().for_each(strip),
        _ => {}
    }
}
