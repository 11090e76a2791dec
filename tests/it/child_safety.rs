//! The child-safety scope and the audit log, as an integrator uses them.

use crate::support::{Demo, Place, post, report};
use reqwest::Method;
use serde_json::{Value, json};

/// A key of scope `admin` without child safety.
async fn plain_admin(demo: &Demo) -> Value {
    let (status, created_key) =
        demo.command("/keys", &json!({ "name": "night shift", "scopes": ["admin"] })).await;
    assert_eq!(status, 201, "{created_key}");
    created_key
}

async fn child_safety_job(demo: &Demo, item: &str) -> Value {
    let mut report_body = report(&post(item, "mallory", "hm"));
    report_body["reportedForReason"] = json!({ "csam": true });
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
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

    let job_list = demo.admin_as(key, Method::GET, "/jobs?state=all&itemId=c1", None).await;
    assert_eq!((job_list.0.as_u16(), &job_list.1["items"]), (200, &json!([])));
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
        "the refused request is not logged as a view"
    );

    demo.admin(&format!("/jobs/{id}")).await;
    let next = json!({ "queue": "child-safety", "reviewer": "ann" });
    let (status, claimed_job) = demo.command("/jobs/claim-next", &next).await;
    assert_eq!(status, 200, "{claimed_job}");
    let decision = json!({ "epoch": claimed_job["epoch"], "verdict": "ignore", "reviewer": "ann" });
    assert_eq!(demo.command(&format!("/jobs/{id}/decisions"), &decision).await.0, 202);
    let rows = audit(&demo, &format!("object=/jobs/{id}&actor=demo%20admin")).await;
    let mut actions: Vec<_> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    // Rows of the same millisecond have no defined order.
    actions.sort_unstable();
    assert_eq!(actions, ["GET /jobs/{id}", "GET /jobs/{id}", "POST /jobs/{id}/decisions"], "{rows:?}");
    assert!(rows.iter().all(|row| !row["requestId"].as_str().unwrap().is_empty()), "{rows:?}");
}

#[tokio::test]
async fn child_safety_key_is_rotated_only_by_a_child_safety_key() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let scopes = json!({ "name": "safety", "scopes": ["admin", "child_safety"] });
    let (status, created_key) = demo.command("/keys", &scopes).await;
    assert_eq!(status, 201, "{created_key}");
    let admin = plain_admin(&demo).await;
    let path = format!("/keys/{}/rotate", created_key["id"].as_str().unwrap());
    let key = admin["key"].as_str().unwrap();
    let (status, answer) = demo.admin_as(key, Method::POST, &path, Some(&json!({}))).await;
    assert_eq!(status, 403, "{answer}");
    assert_eq!(demo.command(&path, &json!({})).await.0, 201);
}

#[tokio::test]
async fn escalation_opens_one_job_and_keeps_the_first_reason() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let report_body = report(&post("c2", "mallory", "hm"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
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
    let second_escalation =
        demo.command(&format!("/jobs/{}/escalate", answers[0]), &json!({ "reason": "x" })).await;
    assert_eq!(second_escalation.0, 409, "{}", second_escalation.1);
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
    let event = demo.wait_for_callbacks("action.automatic", 1).await[0]["id"].as_str().unwrap().to_owned();
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

    // Moving a job out of child safety needs the scope and a reason, and moves its reports.
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

    let later_job = child_safety_job(&demo, "c3").await;
    assert_ne!(later_job["id"], job["id"], "a later report opens another job");
    assert_eq!(get("/items?id=c3").await.0, 403);
}

#[tokio::test]
async fn other_jobs_withhold_items_of_child_safety() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut report_body = report(&post("c5", "mallory", "hm"));
    report_body["reportedItemThread"] = json!([post("c6", "eve", "kept apart"), post("c7", "eve", "plain")]);
    report_body["reportedItemsInThread"] = json!([sent_key("c6")]);
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    child_safety_job(&demo, "c6").await;
    let job = demo.job("default", "c5").await;
    let admin = plain_admin(&demo).await;
    let key = admin["key"].as_str().unwrap();
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let get = async |path: &str| demo.admin_as(key, Method::GET, path, None).await.1;

    let job_view = get(&path).await;
    let withheld = json!({ "typeId": "post", "id": "c6", "reported": true, "withheld": true });
    assert_eq!(job_view["withheld"], json!([sent_key("c6")]), "{job_view}");
    let thread = &job_view["causes"][0]["report"]["reportedItemThread"];
    assert_eq!((&thread[0], &thread[1]["data"]["text"]), (&withheld, &json!("plain")), "{job_view}");
    let causes = get(&format!("{path}/causes")).await;
    assert_eq!(causes["items"][0]["report"]["reportedItemThread"][0], withheld, "{causes}");
    let viewed = async || audit(&demo, &format!("object={path}&action=GET%20/jobs/%7Bid%7D")).await.len();
    assert_eq!(viewed().await, 0);
    let full_view = demo.admin(&path).await;
    assert_eq!(full_view["causes"][0]["report"]["reportedItemThread"][0]["data"]["text"], "kept apart");
    assert_eq!((full_view.get("withheld"), viewed().await), (None, 1), "{full_view}");

    let body = json!({ "reason": "looks young" });
    assert_eq!(demo.admin_as(key, Method::POST, &format!("{path}/escalate"), Some(&body)).await.0, 200);
    let thread_view = get(&path).await;
    assert_eq!(thread_view["withheld"], json!([sent_key("c5"), sent_key("c6")]), "{thread_view}");
    let item = &thread_view["causes"][0]["report"]["reportedItem"];
    assert_eq!((&item["withheld"], &item["data"]), (&json!(true), &json!(null)), "{thread_view}");
    assert_eq!(
        (thread_view.get("latestItem"), &thread_view["state"]),
        (None, &json!("open")),
        "{thread_view}"
    );
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
    let refusal = demo.admin_as(admin["key"].as_str().unwrap(), Method::GET, &path, None).await;
    assert_eq!(refusal.0, 403, "{}", refusal.1);
    assert!(audit(&demo, &format!("object={path}&action=GET%20/jobs/%7Bid%7D")).await.is_empty());
    let job_details = demo.whole_job(&job).await;
    assert_eq!(
        (&job_details["causes"][0]["kind"], &job_details["causes"][0]["rules"]),
        (&json!("rule"), &json!(["known-words"]))
    );
    assert!(!audit(&demo, &format!("object={path}&action=GET%20/jobs/%7Bid%7D")).await.is_empty());

    // The platform and a moderator without the scope can also hand items over.
    let action =
        json!({"actionId": "hand_over", "itemId": "c4", "itemTypeId": "post", "note": "seen elsewhere"});
    let (status, answer) = demo.platform(Method::POST, "/api/v1/actions/", Some(&action)).await;
    assert_eq!(status, 202, "{answer}");
    let job = demo.job("child-safety", "c4").await;
    let job_details = demo.whole_job(&job).await;
    assert_eq!(job_details["causes"][0]["kind"], "escalation", "{job_details}");
    let report_body = report(&post("c5", "mallory", "hm"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
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
    let decision_response =
        demo.admin_as(key, Method::POST, &format!("{path}/decisions"), Some(&decision)).await;
    assert_eq!(decision_response.0, 202, "{}", decision_response.1);
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
