//! The scope of child safety and the audit log, as an integrator meets them.

use crate::support::{Demo, Place, post, report};
use reqwest::Method;
use serde_json::{Value, json};

/// A key of scope `admin` without child safety.
async fn plain_admin(demo: &Demo) -> Value {
    let (status, made) = demo.command("/keys", &json!({ "name": "night shift", "scopes": ["admin"] })).await;
    assert_eq!(status, 201, "{made}");
    made
}

async fn child_safety_job(demo: &Demo, item: &str) -> Value {
    let mut sent = report(&post(item, "mallory", "hm"));
    sent["reportedForReason"] = json!({ "csam": true });
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&sent)).await.0, 201);
    demo.job("child-safety", item).await
}

async fn audit(demo: &Demo, query: &str) -> Vec<Value> {
    demo.admin(&format!("/audit?{query}")).await["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn child_safety_jobs_need_their_scope_and_views_are_audited() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let job = child_safety_job(&demo, "c1").await;
    let id = job["id"].as_str().unwrap();
    assert_eq!((&job["priority"], &job["signals"]["severity"]), (&json!(8), &json!("severe")), "{job}");
    let admin = plain_admin(&demo).await;
    let key = admin["key"].as_str().unwrap();

    let listed = demo.admin_as(key, Method::GET, "/jobs?state=all&itemId=c1", None).await;
    assert_eq!((listed.0.as_u16(), &listed.1["items"]), (200, &json!([])));
    let decision = json!({ "epoch": 1, "verdict": "ignore" });
    for (method, path, body) in [
        (Method::GET, format!("/jobs/{id}"), None),
        (Method::GET, format!("/jobs/{id}/causes"), None),
        (Method::GET, format!("/jobs/{id}/partial-items"), None),
        (Method::POST, format!("/jobs/{id}/claim"), Some(json!({ "reviewer": "ann" }))),
        (Method::POST, format!("/jobs/{id}/release"), Some(json!({ "epoch": 1 }))),
        (Method::POST, format!("/jobs/{id}/decisions"), Some(decision)),
        (
            Method::POST,
            "/jobs/claim-next".to_owned(),
            Some(json!({ "queue": "child-safety", "reviewer": "ann" })),
        ),
        (Method::POST, "/keys".to_owned(), Some(json!({ "scopes": ["admin", "child_safety"] }))),
    ] {
        let (status, answer) = demo.admin_as(key, method, &path, body.as_ref()).await;
        assert_eq!(status, 403, "{path}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains("child_safety"), "{path}: {answer}");
    }
    assert!(
        audit(&demo, &format!("object=/jobs/{id}&action=GET%20/jobs/%7Bid%7D")).await.is_empty(),
        "nothing was shown"
    );

    demo.admin(&format!("/jobs/{id}")).await;
    let next = json!({ "queue": "child-safety", "reviewer": "ann" });
    let (status, claimed) = demo.command("/jobs/claim-next", &next).await;
    assert_eq!(status, 200, "{claimed}");
    let decision = json!({ "epoch": claimed["epoch"], "verdict": "ignore", "reviewer": "ann" });
    assert_eq!(demo.command(&format!("/jobs/{id}/decisions"), &decision).await.0, 202);
    let rows = audit(&demo, &format!("object=/jobs/{id}&actor=demo%20admin")).await;
    let mut actions: Vec<_> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    // Rows of one millisecond have no order among themselves.
    actions.sort_unstable();
    assert_eq!(actions, ["GET /jobs/{id}", "GET /jobs/{id}", "POST /jobs/{id}/decisions"], "{rows:?}");
    assert!(rows.iter().all(|row| !row["requestId"].as_str().unwrap().is_empty()), "{rows:?}");
}

#[tokio::test]
async fn key_of_child_safety_is_rotated_only_by_its_like() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let scopes = json!({ "name": "safety", "scopes": ["admin", "child_safety"] });
    let (status, made) = demo.command("/keys", &scopes).await;
    assert_eq!(status, 201, "{made}");
    let admin = plain_admin(&demo).await;
    let path = format!("/keys/{}/rotate", made["id"].as_str().unwrap());
    let key = admin["key"].as_str().unwrap();
    let (status, answer) = demo.admin_as(key, Method::POST, &path, Some(&json!({}))).await;
    assert_eq!(status, 403, "{answer}");
    assert_eq!(demo.command(&path, &json!({})).await.0, 201);
}

#[tokio::test]
async fn escalation_opens_one_child_safety_job_and_keeps_the_first_reason() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let sent = report(&post("c2", "mallory", "hm"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&sent)).await.0, 201);
    let job = demo.job("default", "c2").await;
    let path = format!("/jobs/{}/escalate", job["id"].as_str().unwrap());
    let admin = plain_admin(&demo).await;
    let key = admin["key"].as_str().unwrap();
    let mut answers = Vec::new();
    for reason in ["looks young", "again"] {
        let body = json!({ "reason": reason });
        let (status, answer) = demo.admin_as(key, Method::POST, &path, Some(&body)).await;
        assert_eq!(status, 200, "{answer}");
        answers.push(answer["jobId"].as_str().unwrap().to_owned());
    }
    assert_eq!(answers[0], answers[1]);
    let opened = demo.admin(&format!("/jobs/{}", answers[0])).await;
    assert_eq!((&opened["class"], &opened["queue"]), (&json!("child_safety"), &json!("child-safety")));
    assert_eq!(opened["causes"].as_array().unwrap().len(), 1, "{opened}");
    assert_eq!(opened["causes"][0]["kind"], "escalation");
    assert_eq!(opened["comments"].as_array().unwrap().len(), 1, "{opened}");
    assert_eq!(opened["comments"][0]["text"], "looks young");
    assert_eq!(demo.job("default", "c2").await["state"], "open");
    let again = demo.command(&format!("/jobs/{}/escalate", answers[0]), &json!({ "reason": "x" })).await;
    assert_eq!(again.0, 409, "{}", again.1);
    assert_eq!(demo.command(&path, &json!({ "reason": " " })).await.0, 400);

    let comments = format!("/jobs/{}/comments", job["id"].as_str().unwrap());
    assert_eq!(demo.command(&comments, &json!({ "text": "see the other one" })).await.0, 201);
    assert_eq!(demo.admin(&comments).await["items"][0]["text"], "see the other one");
}

#[tokio::test]
async fn items_of_child_safety_are_hidden_without_the_scope() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    demo.submit(&post("c3", "mallory", "buy scamcoin today")).await;
    let event = demo.received("action.automatic", 1).await[0]["id"].as_str().unwrap().to_owned();
    demo.evaluated("post", "c3").await;
    let admin = plain_admin(&demo).await;
    let key = admin["key"].as_str().unwrap();
    let get = async |path: &str| demo.admin_as(key, Method::GET, path, None).await;
    let deliveries = "/deliveries?itemId=c3";
    assert_eq!(get("/items?id=c3").await.0, 200);
    assert_eq!(get(deliveries).await.1["items"][0]["eventId"], event);
    let delivery = format!("/deliveries/{event}");
    assert_eq!(get(&delivery).await.0, 200);

    let job = child_safety_job(&demo, "c3").await;
    for path in ["/items?id=c3", &delivery] {
        let (status, answer) = get(path).await;
        assert_eq!(status, 403, "{path}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains("child_safety"), "{path}: {answer}");
    }
    assert_eq!(get(deliveries).await.1["items"], json!([]));
    let item = json!({ "typeId": "post", "id": "c3" });
    let strikes = get("/users/user/mallory").await.1["newestStrikes"].clone();
    assert_eq!((strikes.as_array().unwrap().len(), strikes[0].get("item")), (1, None), "{strikes}");
    assert_eq!(demo.admin("/users/user/mallory").await["newestStrikes"][0]["item"], item);
    for (path, body) in [
        ("/rules/explain", json!({ "item": item, "rule": "demo-scam" })),
        ("/routing/explain", json!({ "item": item, "list": "reports" })),
    ] {
        let (status, answer) = demo.admin_as(key, Method::POST, path, Some(&body)).await;
        assert_eq!(status, 403, "{path}: {answer}");
        assert_eq!(demo.command(path, &body).await.0, 200, "{path}");
        let viewed = audit(&demo, &format!("object={path}?typeId=post%26id=c3")).await;
        assert_eq!((viewed.len(), &viewed[0]["action"]), (1, &json!(format!("POST {path}"))), "{viewed:?}");
    }
    demo.admin("/items?id=c3").await;
    demo.admin(&delivery).await;
    assert_eq!(audit(&demo, "object=/items&actor=demo%20admin").await.len(), 1);
    assert_eq!(audit(&demo, &format!("object={delivery}")).await.len(), 1);

    // Out of child safety: with the scope and a reason, and the reports go along.
    let path = format!("/jobs/{}/move", job["id"].as_str().unwrap());
    let body = json!({ "queue": "default", "reason": "an adult" });
    assert_eq!(demo.admin_as(key, Method::POST, &path, Some(&body)).await.0, 403);
    let (status, answer) = demo.command(&path, &json!({ "queue": "default" })).await;
    assert_eq!(status, 400, "{answer}");
    let mut opened = Vec::new();
    for _ in 0..2 {
        let (status, answer) = demo.command(&path, &body).await;
        assert_eq!(status, 200, "{answer}");
        opened.push(answer["jobId"].as_str().unwrap().to_owned());
    }
    assert_eq!(opened[0], opened[1]);
    let review = get(&format!("/jobs/{}", opened[0])).await.1;
    assert_eq!((&review["class"], &review["queue"]), (&json!("review"), &json!("default")), "{review}");
    assert_eq!(review["causes"][0]["report"]["csam"], true, "{review}");
    assert_eq!(review["comments"].as_array().unwrap().len(), 1, "{review}");
    assert_eq!(demo.admin(&format!("/jobs/{}", job["id"].as_str().unwrap())).await["state"], "moved");
    assert_eq!(get("/items?id=c3").await.0, 200);
    assert_eq!(get(deliveries).await.1["items"].as_array().unwrap().len(), 1);
    let queues = demo.admin("/queues").await;
    let safety = queues["items"].as_array().unwrap().iter().find(|it| it["key"] == "child-safety").cloned();
    assert_eq!(safety.unwrap()["open"], 0, "{queues}");

    let again = child_safety_job(&demo, "c3").await;
    assert_ne!(again["id"], job["id"], "a later report opens another one");
    assert_eq!(get("/items?id=c3").await.0, 403);
}

#[tokio::test]
async fn other_jobs_withhold_items_of_child_safety() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut sent = report(&post("c5", "mallory", "hm"));
    sent["reportedItemThread"] = json!([post("c6", "eve", "kept apart"), post("c7", "eve", "plain")]);
    sent["reportedItemsInThread"] = json!([sent_key("c6")]);
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&sent)).await.0, 201);
    child_safety_job(&demo, "c6").await;
    let job = demo.job("default", "c5").await;
    let admin = plain_admin(&demo).await;
    let key = admin["key"].as_str().unwrap();
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let get = async |path: &str| demo.admin_as(key, Method::GET, path, None).await.1;

    let seen = get(&path).await;
    let withheld = json!({ "typeId": "post", "id": "c6", "reported": true, "withheld": true });
    assert_eq!(seen["withheld"], json!([sent_key("c6")]), "{seen}");
    let thread = &seen["causes"][0]["report"]["reportedItemThread"];
    assert_eq!((&thread[0], &thread[1]["data"]["text"]), (&withheld, &json!("plain")), "{seen}");
    let causes = get(&format!("{path}/causes")).await;
    assert_eq!(causes["items"][0]["report"]["reportedItemThread"][0], withheld, "{causes}");
    let viewed = async || audit(&demo, &format!("object={path}&action=GET%20/jobs/%7Bid%7D")).await.len();
    assert_eq!(viewed().await, 0);
    let whole = demo.admin(&path).await;
    assert_eq!(whole["causes"][0]["report"]["reportedItemThread"][0]["data"]["text"], "kept apart");
    assert_eq!((whole.get("withheld"), viewed().await), (None, 1), "{whole}");

    let body = json!({ "reason": "looks young" });
    assert_eq!(demo.admin_as(key, Method::POST, &format!("{path}/escalate"), Some(&body)).await.0, 200);
    let seen = get(&path).await;
    assert_eq!(seen["withheld"], json!([sent_key("c5"), sent_key("c6")]), "{seen}");
    let item = &seen["causes"][0]["report"]["reportedItem"];
    assert_eq!((&item["withheld"], &item["data"]), (&json!(true), &json!(null)), "{seen}");
    assert_eq!((seen.get("latestItem"), &seen["state"]), (None, &json!("open")), "{seen}");
}

fn sent_key(id: &str) -> Value {
    json!({ "typeId": "post", "id": id })
}

const HAND_OVER: &str = "\
action: hand_over
kind: enqueue_child_safety
---
rule: known-words
status: live
item_types: [post]
when: {text: {in: [text], words: [handover]}}
actions: [hand_over]
";

#[tokio::test]
async fn job_of_a_rule_needs_the_scope_and_its_view_is_audited() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let change = json!({"files": [{"name": "rules.yaml", "text": HAND_OVER}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    demo.submit(&post("c3", "mallory", "handover")).await;
    let job = demo.job("child-safety", "c3").await;
    assert_eq!(job["class"], "child_safety");
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let admin = plain_admin(&demo).await;
    let refused = demo.admin_as(admin["key"].as_str().unwrap(), Method::GET, &path, None).await;
    assert_eq!(refused.0, 403, "{}", refused.1);
    assert!(audit(&demo, &format!("object={path}&action=GET%20/jobs/%7Bid%7D")).await.is_empty());
    let whole = demo.whole_job(&job).await;
    assert_eq!(
        (&whole["causes"][0]["kind"], &whole["causes"][0]["rules"]),
        (&json!("rule"), &json!(["known-words"]))
    );
    assert!(!audit(&demo, &format!("object={path}&action=GET%20/jobs/%7Bid%7D")).await.is_empty());

    // The platform and a moderator without the scope hand items over, too.
    let action =
        json!({"actionId": "hand_over", "itemId": "c4", "itemTypeId": "post", "note": "seen elsewhere"});
    let (status, answer) = demo.platform(Method::POST, "/api/v1/actions/", Some(&action)).await;
    assert_eq!(status, 202, "{answer}");
    let job = demo.job("child-safety", "c4").await;
    let whole = demo.whole_job(&job).await;
    assert_eq!(whole["causes"][0]["kind"], "escalation", "{whole}");
    let sent = report(&post("c5", "mallory", "hm"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&sent)).await.0, 201);
    let job = demo.job("default", "c5").await;
    demo.whole_job(&job).await;
    let key = admin["key"].as_str().unwrap();
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let claim =
        demo.admin_as(key, Method::POST, &format!("{path}/claim"), Some(&json!({ "reviewer": "ann" }))).await;
    assert_eq!(claim.0, 200, "{}", claim.1);
    let decision = json!({
        "epoch": claim.1["epoch"], "reviewer": "ann", "verdict": "act", "actions": ["limit_reach"], "reason": "the author, too",
        "related": [{"item": {"id": "mallory", "typeId": "user"}, "actions": ["hand_over"]}],
    });
    let decided = demo.admin_as(key, Method::POST, &format!("{path}/decisions"), Some(&decision)).await;
    assert_eq!(decided.0, 202, "{}", decided.1);
    let job = demo.job("child-safety", "mallory").await;
    assert_eq!((&job["item"]["typeId"], &job["class"]), (&json!("user"), &json!("child_safety")));
}

#[tokio::test]
async fn child_safety_queue_has_a_target_that_its_document_changes() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let target = async || {
        let queues = demo.admin("/queues").await;
        let queue = queues["items"].as_array().unwrap().iter().find(|it| it["key"] == "child-safety");
        let queue = queue.unwrap();
        (queue["targetAgeSeconds"].clone(), queue["withinTarget"].clone(), queue["open"].clone())
    };
    assert_eq!(target().await, (json!(3_600), json!(true), json!(0)));
    let change = json!({"files": [{"name": "q.yaml", "text": "queue: child-safety\ntarget_age: 30m\n"}]});
    assert_eq!(demo.command("/config", &change).await.0, 200);
    assert_eq!(target().await.0, json!(1_800));
}
