//! Child-safety material: no caller, endpoint or model without the clearance reads, counts or disturbs it, on any route.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_schemas::{
    ids::{ConfigVersion, Millis, OrgId, SubmissionId},
    records::{ItemEntry, Items, Record as _, Source, Variant},
};
use tidegate_test_support::{PATIENCE, eventually_ok};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

use crate::{
    partial_items::platform,
    support::{Demo, Place, appeal, browser::Browser, post, report},
    two_orgs::{
        Ids, fill_ids, routes,
        rows::{Row, row},
        setup::{append_dead_letter, stable},
    },
};

/// Text that occurs only in child-safety items and in comments about them.
const TEXT: &str = "xylograph";
/// Id of an item that has only a child-safety job, and of its author.
const ITEM: &str = "secret-item-5522";
const AUTHOR: &str = "secret-author-5522";
/// Id of an item that has jobs of every class. Its id is public, its content is secret.
const SHARED: &str = "shared-item-1";

/// Server that remembers the bodies of the requests that it gets.
struct Listener {
    url: String,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Listener {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let bodies: Arc<Mutex<Vec<String>>> = Arc::default();
        let all = Arc::clone(&bodies);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, Arc::clone(&all)));
            }
        });
        Self { url, bodies }
    }

    async fn join_bodies(&self) -> String {
        self.bodies.lock().await.join("\n")
    }
}

async fn answer(mut socket: TcpStream, bodies: Arc<Mutex<Vec<String>>>) {
    let mut bytes = Vec::new();
    let body = loop {
        if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&bytes);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
        if let Some(body) = body.filter(|body| serde_json::from_str::<Value>(body).is_ok()) {
            break body.to_owned();
        }
    };
    bodies.lock().await.push(body);
    let answer = r#"{"score":0.9}"#;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    let _gone = socket.write_all(format!("{head}{answer}").as_bytes()).await;
}

/// Documents that a caller without the clearance applies: an endpoint, a signal and rules of its own.
fn spying_documents(url: &str) -> String {
    format!(
        "endpoint: own\nurl: {url}events\n---\n\
         signal: own-model\nurl: {url}scores\ninput: item\noutput: {{score: /score}}\n---\n\
         action: tell\nkind: callback\nendpoint: own\n---\n\
         rule: scored\nstatus: live\nitem_types: [post]\nwhen: {{score: {{model: own-model, gte: 0.5}}}}\n---\n\
         rule: spelled\nstatus: live\nitem_types: [post]\nwhen: {{text: {{in: [text], regex: 'xylo.*'}}}}\nactions: [tell]\n---\n\
         rule: everything\nstatus: live\nitem_types: [post]\nwhen: {{text: {{in: [text], regex: '.'}}}}\nactions: [tell]\n"
    )
}

/// A rule that guesses the beginning of a text.
const GUESS: &str =
    r"rule: guess\nstatus: background\nitem_types: [post]\nwhen: {text: {in: [text], regex: 'xy.*'}}";

struct Installation {
    demo: Demo,
    listener: Listener,
    /// Key of scope `admin` alone.
    admin: String,
    ids: Ids,
}

impl Installation {
    /// Reads all lists and counts with the key of the caller without clearance.
    async fn snapshot(&self) -> BTreeMap<String, (u16, String)> {
        let mut answers = BTreeMap::new();
        for path in [
            "/banks",
            "/dead-letters",
            "/deliveries",
            "/items?id=plain-1",
            "/jobs?state=all",
            "/jobs?queue=child-safety&state=all",
            "/keys",
            "/partial-requests",
            "/queues",
            "/rules/retroactions",
            "/rules/stats",
            "/users/user/bob",
            "/users/user/bob/items",
            "/users/user/alice",
            "/users/user/alice/reports",
        ] {
            let answer = self.demo.admin_as(&self.admin, Method::GET, path, None).await;
            answers.insert(path.to_owned(), stable(answer, &Ids::new()));
        }
        let files = json!([{ "name": "g.yaml", "text": GUESS.replace("\\n", "\n") }]);
        let body = json!({ "files": files, "since": self.ids["since"], "until": self.ids["until"] });
        let mut guess = self.demo.admin_as(&self.admin, Method::POST, "/rules/backtest", Some(&body)).await;
        assert_eq!(guess.0, 200, "{}", guess.1);
        let findings = guess.1["findings"].take();
        answers.insert("backtest".to_owned(), stable((guess.0, findings), &Ids::new()));
        answers
    }

    /// Waits until all records are processed and no callback is pending or due for a retry.
    async fn settle(&self) {
        eventually_ok("all records to be processed", PATIENCE, async || {
            let metrics = self.demo.operations("/metrics").await.1;
            let lag = metrics.lines().filter(|line| line.starts_with("tidegate_consumer_lag_records"));
            let lag: f64 = lag.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
            let deliveries = self.demo.admin("/deliveries?limit=200").await;
            let is_open = |it: &&Value| it["state"] == "pending" || it["state"] == "retry_wait";
            let open = deliveries["items"].as_array().unwrap().iter().filter(is_open).count();
            if lag > 0.0 || open > 0 {
                anyhow::bail!("{lag} records, {open} callbacks");
            }
            Ok(())
        })
        .await
        .unwrap();
    }
}

impl Installation {
    /// Waits until the matches of the plain item are in the statistics, which are written now and then.
    async fn rules_are_counted(&self) {
        eventually_ok("the statistics of rules", PATIENCE, async || {
            let stats = self.demo.admin("/rules/stats").await;
            let lines = stats["items"].as_array().unwrap();
            let is_counted = |rule: &str| lines.iter().any(|line| line["rule"] == rule && line["hits"] == 1);
            if is_counted("everything") && is_counted("scored") { Ok(()) } else { anyhow::bail!("{stats}") }
        })
        .await
        .unwrap();
    }
}

async fn csam_report(demo: &Demo, item: &Value) {
    let mut report_body = report(item);
    report_body["reportedForReason"] = json!({ "csam": true, "reason": format!("looks like {TEXT}") });
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
}

/// Starts an installation with public objects of every kind and with the documents of the caller without clearance.
async fn installation(place: &Place, env: &[(&str, &str)]) -> Installation {
    let demo = place.start_with(env).await.unwrap();
    let listener = Listener::start().await;
    let (status, created_key) =
        demo.command("/keys", &json!({ "name": "night shift", "scopes": ["admin", "exports:read"] })).await;
    assert_eq!(status, 201, "{created_key}");
    let admin = created_key["key"].as_str().unwrap().to_owned();
    let safety = json!({ "name": "safety team", "scopes": ["admin", "child_safety"] });
    let (status, safety) = demo.command("/keys", &safety).await;
    assert_eq!(status, 201, "{safety}");
    let team = "queue: minors\nclass: child_safety\n---\naction: hand_over\nkind: enqueue_child_safety\nqueue: minors\n";
    let files = json!({ "files": [{ "name": "team.yaml", "text": team }] });
    let applied = demo.command("/config", &files).await;
    assert_eq!(applied.0, 200, "{}", applied.1);
    let files = json!({ "files": [{ "name": "own.yaml", "text": spying_documents(&listener.url) }] });
    let applied = demo.admin_as(&admin, Method::POST, "/config", Some(&files)).await;
    assert_eq!(applied.0, 200, "{}", applied.1);
    demo.submit(&post("plain-1", "bob", "a plain post")).await;
    demo.evaluated("post", "plain-1").await;
    let report_body = report(&post("plain-2", "bob", "another plain post"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    demo.job("default", "plain-2").await;
    let now = Millis::now();
    let day = std::time::Duration::from_secs(86_400);
    let ids = Ids::from([
        ("since", now.minus(day).iso()),
        ("until", now.plus(day).iso()),
        ("safety", text(&safety["id"])),
        ("item", ITEM.to_owned()),
        ("author", AUTHOR.to_owned()),
        ("shared", SHARED.to_owned()),
    ]);
    Installation { demo, listener, admin, ids }
}

/// Creates a child-safety item and takes the steps of the safety team on it. Returns once the effects are visible.
async fn secret_item(it: &mut Installation) {
    let demo = &it.demo;
    csam_report(demo, &post(ITEM, AUTHOR, &format!("{TEXT} first"))).await;
    let job = text(&demo.job("child-safety", ITEM).await["id"]);
    // Live rules also evaluate the later versions of the item.
    for version in ["second", "third"] {
        demo.submit(&post(ITEM, AUTHOR, &format!("{TEXT} {version}"))).await;
    }
    demo.admin(&format!("/jobs/{job}")).await;
    demo.admin(&format!("/items?id={ITEM}")).await;
    let claimed_job = demo.command(&format!("/jobs/{job}/claim"), &json!({ "reviewer": "ann" })).await.1;
    let decision = json!({
        "epoch": claimed_job["epoch"], "reviewer": "ann", "verdict": "act", "actions": ["limit_reach"], "reason": format!("it is {TEXT}"),
        "related": [{ "item": { "id": AUTHOR, "typeId": "user" }, "actions": ["tell"] }],
    });
    let decision_response = demo.command(&format!("/jobs/{job}/decisions"), &decision).await;
    assert_eq!(decision_response.0, 202, "{}", decision_response.1);
    let request = demo.command(&format!("/items/post/{ITEM}/refresh"), &json!({})).await.1;
    let run = json!({ "rules": ["everything"], "since": it.ids["since"], "childSafety": true });
    let run = demo.command("/rules/retroactions", &run).await.1;
    let delivery = eventually_ok("the decision to be called back", PATIENCE, async || {
        let deliveries = demo.admin(&format!("/deliveries?itemId={ITEM}&eventType=decision.moderator")).await;
        match deliveries["items"].as_array().unwrap().first() {
            Some(delivery) => Ok(delivery.clone()),
            None => anyhow::bail!("{deliveries}"),
        }
    });
    let event = text(&delivery.await.unwrap()["eventId"]);
    let ids =
        [("job", job), ("event", event), ("request", text(&request["requestId"])), ("run", text(&run["id"]))];
    it.ids.extend(ids);
    it.settle().await;
}

/// Opens a review and an appeal about the shared item, then hands the item over to child safety.
async fn escalated_item(it: &mut Installation) {
    let demo = &it.demo;
    let shared = post(SHARED, "bob", &format!("{TEXT} shared"));
    let mut report_body = report(&shared);
    report_body["reportedForReason"] = json!({ "reason": format!("the reporter says {TEXT}") });
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let mut appeal_body = appeal("appeal-1", &shared);
    appeal_body["appealReason"] = json!(format!("the appellant says {TEXT}"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report/appeal", Some(&appeal_body)).await.0, 204);
    let review = text(&demo.job("default", SHARED).await["id"]);
    let appealed = text(&demo.job("appeals", SHARED).await["id"]);
    it.settle().await;
    let reason = json!({ "reason": format!("looks like {TEXT}") });
    let escalated = it.demo.command(&format!("/jobs/{review}/escalate"), &reason).await;
    assert_eq!(escalated.0, 200, "{}", escalated.1);
    it.demo.submit(&post(SHARED, "bob", &format!("{TEXT} hidden"))).await;
    it.ids.extend([("review", review), ("appealed", appealed)]);
    it.settle().await;
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

/// Framed log record of the secret item.
fn framed_item() -> Bytes {
    let data = json!({ "text": TEXT, "author": { "id": AUTHOR, "typeId": "user" } }).to_string();
    let record = Items {
        org: OrgId::new("default"),
        config_version: ConfigVersion(1),
        source: Source::Api,
        received_at: Millis::now(),
        request_id: "r".to_owned(),
        report_id: None,
        items: vec![ItemEntry {
            submission_id: SubmissionId::random(),
            type_id: "post".into(),
            id: ITEM.into(),
            type_version: None,
            variant: Variant::Original,
            data: data.into(),
            origin: None,
            keyed: false,
        }],
    };
    let mut framed = vec![0];
    framed.extend(Items::SCHEMA_ID.to_be_bytes());
    framed.extend(record.to_datum());
    framed.into()
}

/// Requests about the material that the caller without clearance sends to each route, with the expected status.
const ROWS: &[Row] = &[
    row("GET /audit", &[(200, "/audit", ""), (200, "/audit?object=/jobs/<job>", "")]),
    row("GET /banks", &[(200, "/banks", "")]),
    row(
        "POST /banks/match",
        &[(404, "/banks/match", r#"{"hashes":{"md5":"0123456789abcdef0123456789abcdef"},"banks":["none"]}"#)],
    ),
    row("GET /banks/{bank}/entries", &[(404, "/banks/none/entries", "")]),
    row("POST /banks/{bank}/entries", &[(404, "/banks/none/entries", r#"{"entries":["word"]}"#)]),
    row(
        "POST /banks/{bank}/entries/remove",
        &[(404, "/banks/none/entries/remove", r#"{"ids":["0190d3a1-0000-7000-8000-000000000001"]}"#)],
    ),
    row(
        "POST /banks/{bank}/entries/withdraw",
        &[(404, "/banks/none/entries/withdraw", r#"{"entries":[{"value":"word","source":"x"}]}"#)],
    ),
    row(
        "POST /banks/{bank}/entries/enable",
        &[(404, "/banks/none/entries/enable", r#"{"ids":["0190d3a1-0000-7000-8000-000000000001"]}"#)],
    ),
    row(
        "POST /banks/{bank}/entries/disable",
        &[(404, "/banks/none/entries/disable", r#"{"ids":["0190d3a1-0000-7000-8000-000000000001"]}"#)],
    ),
    row("POST /banks/{bank}/enable", &[(404, "/banks/none/enable", "")]),
    row("POST /banks/{bank}/disable", &[(404, "/banks/none/disable", "")]),
    row("GET /config", &[(200, "/config", "")]),
    row("GET /config/wait", &[(200, "/config/wait?version=1&withinMs=1", "")]),
    row(
        "POST /config/validate",
        &[(
            403,
            "/config/validate",
            r#"{"files":[{"name":"a.yaml","text":"endpoint: own\nurl: https://x.example/\nchild_safety: true"}]}"#,
        )],
    ),
    row("PUT /config", &[(403, "/config", r#"{"files":[],"prune":true}"#)]),
    row(
        "POST /config",
        &[
            (
                403,
                "/config",
                r#"{"files":[{"name":"a.yaml","text":"endpoint: own\nurl: https://x.example/\nchild_safety: true"}]}"#,
            ),
            (
                403,
                "/config",
                r#"{"files":[{"name":"a.yaml","text":"queue: child-safety\naccess: {roles: [lead]}"}]}"#,
            ),
            (
                403,
                "/config",
                r#"{"files":[{"name":"a.yaml","text":"queue: minors\nclass: child_safety\naccess: {roles: [lead]}"}]}"#,
            ),
            (
                403,
                "/config",
                r#"{"files":[{"name":"a.yaml","text":"action: hand_over\nkind: enqueue_review"}]}"#,
            ),
            (
                403,
                "/config",
                r#"{"files":[{"name":"a.yaml","text":"endpoint: demo-receiver\nurl: https://x.example/"}]}"#,
            ),
            (
                403,
                "/config",
                r#"{"files":[{"name":"a.yaml","text":"signal: s\nurl: https://x.example/\ninput: item\noutput: {score: /s}\nchild_safety: true"}]}"#,
            ),
        ],
    ),
    row("GET /dead-letters", &[(200, "/dead-letters", ""), (200, "/dead-letters?id=<letter>", "")]),
    row("POST /dead-letters/replay", &[(404, "/dead-letters/replay", r#"{"id":"<letter>"}"#)]),
    row(
        "GET /deliveries",
        &[
            (200, "/deliveries", ""),
            (200, "/deliveries?typeId=post&itemId=<item>", ""),
            (200, "/deliveries?typeId=user&itemId=<author>", ""),
        ],
    ),
    row("GET /deliveries/{event}", &[(403, "/deliveries/<event>", "")]),
    row("POST /deliveries/{event}/resend", &[(403, "/deliveries/<event>/resend", "")]),
    row("POST /deliveries/{event}/cancel", &[(403, "/deliveries/<event>/cancel", "")]),
    row("GET /endpoints", &[(200, "/endpoints", "")]),
    row("GET /exports", &[(200, "/exports", "")]),
    row(
        "GET /exports/{dataset}",
        &[
            (200, "/exports/items?since=0", ""),
            (200, "/exports/reports?since=0", ""),
            (200, "/exports/deliveries?since=0", ""),
            (403, "/exports/audit", ""),
        ],
    ),
    row(
        "POST /endpoints/{key}/secret/reveal",
        &[
            (200, "/endpoints/own/secret/reveal", ""),
            // The endpoint receives events about child-safety items.
            (403, "/endpoints/demo-receiver/secret/reveal", ""),
        ],
    ),
    row("GET /items", &[(403, "/items?id=<item>", ""), (403, "/items?id=<shared>", "")]),
    row("POST /items/{type}/{id}/refresh", &[(403, "/items/post/<item>/refresh", "")]),
    row(
        "GET /jobs",
        &[
            (200, "/jobs?state=all", ""),
            (200, "/jobs?state=all&typeId=post&itemId=<item>", ""),
            (200, "/jobs?state=all&queue=child-safety", ""),
        ],
    ),
    row(
        "POST /jobs/claim-next",
        &[(403, "/jobs/claim-next", r#"{"queue":"child-safety","reviewer":"ann"}"#)],
    ),
    row(
        "GET /jobs/{id}",
        &[(403, "/jobs/<job>", ""), (200, "/jobs/<review>", ""), (200, "/jobs/<appealed>", "")],
    ),
    row(
        "GET /jobs/{id}/causes",
        &[
            (403, "/jobs/<job>/causes", ""),
            (200, "/jobs/<review>/causes", ""),
            (200, "/jobs/<appealed>/causes", ""),
        ],
    ),
    row(
        "GET /jobs/{id}/partial-items",
        &[(403, "/jobs/<job>/partial-items", ""), (200, "/jobs/<review>/partial-items", "")],
    ),
    row(
        "GET /jobs/{id}/comments",
        &[(403, "/jobs/<job>/comments", ""), (200, "/jobs/<review>/comments", "")],
    ),
    row("POST /jobs/{id}/comments", &[(403, "/jobs/<job>/comments", r#"{"text":"odd"}"#)]),
    row("POST /jobs/{id}/escalate", &[(409, "/jobs/<job>/escalate", r#"{"reason":"odd"}"#)]),
    row("POST /jobs/{id}/move", &[(403, "/jobs/<job>/move", r#"{"queue":"default","reason":"odd"}"#)]),
    row("POST /jobs/{id}/skip", &[(403, "/jobs/<job>/skip", r#"{"epoch":1,"reviewer":"ann"}"#)]),
    row("POST /jobs/{id}/claim", &[(403, "/jobs/<job>/claim", r#"{"reviewer":"ann"}"#)]),
    row("POST /jobs/{id}/release", &[(403, "/jobs/<job>/release", r#"{"epoch":1,"reviewer":"ann"}"#)]),
    row(
        "POST /jobs/{id}/decisions",
        &[
            (403, "/jobs/<job>/decisions", r#"{"epoch":1,"verdict":"ignore","reviewer":"ann"}"#),
            (
                403,
                "/jobs/<review>/decisions",
                r#"{"epoch":1,"verdict":"act","reviewer":"ann","related":[{"item":{"id":"<item>","typeId":"post"},"actions":["tell"]}]}"#,
            ),
        ],
    ),
    row("GET /keys", &[(200, "/keys", "")]),
    row("POST /keys", &[(403, "/keys", r#"{"name":"another","scopes":["admin","child_safety"]}"#)]),
    row("POST /keys/{id}/rotate", &[(403, "/keys/<safety>/rotate", "{}")]),
    row("POST /keys/{id}/revoke", &[(403, "/keys/<safety>/revoke", "")]),
    row("DELETE /keys/{id}", &[(403, "/keys/<safety>", "")]),
    row("GET /members", &[(403, "/members", "")]),
    row("GET /orgs", &[(403, "/orgs", "")]),
    row("POST /orgs", &[(403, "/orgs", r#"{"id":"third"}"#)]),
    row("GET /partial-items", &[(200, "/partial-items", "")]),
    row("POST /partial-items/secret/reveal", &[(200, "/partial-items/secret/reveal", "")]),
    row("GET /partial-requests", &[(200, "/partial-requests", "")]),
    row("GET /partial-requests/{id}", &[(403, "/partial-requests/<request>", "")]),
    row("GET /policies", &[(200, "/policies", "")]),
    row("GET /queues", &[(200, "/queues", "")]),
    row(
        "POST /routing/explain",
        &[(403, "/routing/explain", r#"{"list":"reports","item":{"typeId":"post","id":"<item>"}}"#)],
    ),
    row(
        "POST /rules/backtest",
        &[(200, "/rules/backtest", r#"{"files":[],"since":"<since>","until":"<until>"}"#)],
    ),
    row(
        "POST /rules/baselines",
        &[(
            200,
            "/rules/baselines",
            r#"{"since":"<since>","until":"<until>","items":9,"rules":[{"rule":"spelled","version":"1","hits":9,"busiestHour":9}]}"#,
        )],
    ),
    row(
        "POST /rules/explain",
        &[(403, "/rules/explain", r#"{"item":{"typeId":"post","id":"<item>"},"rule":"spelled"}"#)],
    ),
    row("GET /rules/retroactions", &[(200, "/rules/retroactions", "")]),
    row(
        "POST /rules/retroactions",
        &[(403, "/rules/retroactions", r#"{"rules":["spelled"],"since":"<since>","childSafety":true}"#)],
    ),
    row("POST /rules/retroactions/{run}/step", &[(403, "/rules/retroactions/<run>/step", "")]),
    row("GET /rules/stats", &[(200, "/rules/stats", ""), (200, "/rules/stats?rule=spelled", "")]),
    row("GET /users/{type}/{id}", &[(200, "/users/user/bob", ""), (200, "/users/user/alice", "")]),
    row(
        "GET /users/{type}/{id}/items",
        &[(200, "/users/user/<author>/items", ""), (200, "/users/user/bob/items", "")],
    ),
    row("GET /users/{type}/{id}/jobs", &[(200, "/users/user/<author>/jobs", "")]),
    row(
        "GET /users/{type}/{id}/reports",
        &[(200, "/users/user/alice/reports", ""), (200, "/users/user/<author>/reports?side=received", "")],
    ),
];

#[test]
fn each_admin_route_is_in_the_clearance_matrix() {
    let rows: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.route.to_owned()).collect();
    assert_eq!(routes::of_admin(), rows, "routes of the code, and rows of tests/it/clearance.rs");
}

/// Markers that an answer contains.
fn markers(answer: &str) -> Vec<&'static str> {
    [TEXT, ITEM, AUTHOR].into_iter().filter(|marker| answer.contains(marker)).collect()
}

#[tokio::test]
async fn child_safety_material_needs_clearance_on_every_route() {
    let place = Place::new();
    let url = format!("http://127.0.0.1:{}/items", platform(true).await);
    let env = [
        ("TIDEGATE__PARTIAL_ITEMS__DEFAULT__URL", url.as_str()),
        ("TIDEGATE__CALLBACKS__HOLD_RECHECK_MS", "1000"),
    ];
    let mut it = installation(&place, &env).await;
    it.settle().await;
    it.rules_are_counted().await;
    let before = it.snapshot().await;

    secret_item(&mut it).await;
    let Installation { demo, listener, admin, ids } = it;
    demo.stop().await;
    append_dead_letter(&place, framed_item(), &format!("the item says {TEXT}")).await;
    let demo = place.start_with(&env).await.unwrap();
    let mut it = Installation { demo, listener, admin, ids };
    it.settle().await;
    let letters = it.demo.admin("/dead-letters").await;
    it.ids.insert("letter", text(&letters["items"][0]["id"]));
    for (path, answer) in it.snapshot().await {
        assert_eq!(before[&path], answer, "{path} tells of an item of child safety");
    }
    let received_bodies = it.listener.join_bodies().await;
    assert_eq!(markers(&received_bodies), [""; 0], "{received_bodies}");
    assert!(received_bodies.contains("plain-1"), "other items are sent: {received_bodies}");

    escalated_item(&mut it).await;
    let mut wrong = Vec::new();
    for Row { route, requests, .. } in ROWS {
        let method: Method = route.split_once(' ').unwrap().0.parse().unwrap();
        for (status, path, body) in *requests {
            let ((path, in_path), (body, _)) = (fill_ids(path, &it.ids), fill_ids(body, &it.ids));
            let body = (!body.is_empty()).then(|| serde_json::from_str::<Value>(&body).unwrap());
            let answer = it.demo.admin_as(&it.admin, method.clone(), &path, body.as_ref()).await;
            let text = answer.1.to_string();
            let mut shown_markers = markers(&text);
            shown_markers.retain(|marker| !in_path.values().any(|id| id == marker));
            if answer.0 != *status || !shown_markers.is_empty() {
                wrong.push(format!("{route} {path}: {} shows {shown_markers:?}: {text}", answer.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The endpoint received the shared item legitimately before the handover.
    let received_bodies = it.listener.join_bodies().await.replace(&format!("{TEXT} shared"), "");
    assert_eq!(markers(&received_bodies), [""; 0], "{received_bodies}");
    pages_show_nothing(&it).await;

    held_callbacks_are_sent_with_clearance(&it).await;
}

/// Checks that events are held while no endpoint of the rule's action has clearance, and are sent once one has it.
async fn held_callbacks_are_sent_with_clearance(it: &Installation) {
    let held_deliveries = it.demo.admin(&format!("/deliveries?itemId={ITEM}&state=held")).await;
    let delivery = &held_deliveries["items"][0];
    assert_eq!(delivery["heldReason"], "child_safety_endpoint", "{held_deliveries}");
    assert!(text(&delivery["heldDetail"]).contains("child_safety: true"), "{held_deliveries}");
    let documents = spying_documents(&it.listener.url).replace("---", "child_safety: true\n---");
    let endpoint = documents.split("---").next().unwrap();
    let files = json!({ "files": [{ "name": "own.yaml", "text": endpoint }] });
    let applied = it.demo.command("/config", &files).await;
    assert_eq!(applied.0, 200, "{}", applied.1);
    eventually_ok("held callbacks to be sent", PATIENCE, async || {
        let received_bodies = it.listener.join_bodies().await;
        if markers(&received_bodies).contains(&ITEM) { Ok(()) } else { anyhow::bail!("{received_bodies}") }
    })
    .await
    .unwrap();
}

/// Requests each console page about the material.
async fn pages_show_nothing(it: &Installation) {
    let mut browser = Browser::signed_in(&it.demo, &it.admin).await;
    for route in routes::of_pages().iter().filter(|route| route.starts_with("GET ")) {
        let template = route.split_once(' ').unwrap().1;
        let ids = match template {
            path if path.starts_with("/jobs/") => vec!["job", "review", "appealed"],
            path if path.starts_with("/partial-requests/") => vec!["request"],
            _ => vec!["safety"],
        };
        for id in ids {
            let page = browser.get(&template.replace("{id}", &it.ids[id])).await;
            assert_eq!(markers(&page.body), [""; 0], "{route} of {id}: {}", page.body);
        }
    }
}
