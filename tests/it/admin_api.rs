//! The admin API as an integrator uses it: authentication, lists, claims, decisions, and all fields of a submission.

use std::collections::BTreeSet;

use crate::support::{Demo, Place, post, report};
use anyhow::bail;
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_schemas::ids::{DAY_MS, Millis, OrgId, QueueId};
use tidegate_store::{Store, WriteTime, tables::review::jobs::QueueDay};
use tidegate_test_support::{PATIENCE, eventually_ok};

#[tokio::test]
async fn admin_api_accepts_only_admin_keys_and_the_local_token() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut answers = Vec::new();
    for token in ["", "wrong", "tg_live_1_2_3"] {
        for path in ["/jobs", "/no-such-thing"] {
            let (status, mut body) = demo.admin_as(token, Method::GET, path, None).await;
            assert_eq!(status, 401, "{token} {path}");
            assert_eq!(body["errors"][0]["status"], 401);
            body["instance"] = Value::Null;
            body["errors"][0]["requestId"] = Value::Null;
            answers.push(body);
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "all callers without a valid key get the same answer");
    let (status, body) = demo.admin_as(demo.var("TIDEGATE_API_KEY"), Method::GET, "/jobs", None).await;
    assert_eq!(status, 403);
    assert!(body["detail"].as_str().unwrap().contains("admin"), "{body}");
    let (status, body) = demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::GET, "/nothing", None).await;
    assert_eq!((status.as_u16(), &body["title"]), (404, &json!("The resource was not found.")));

    let server = std::fs::read(place.data().join("server.json")).unwrap();
    let server: Value = serde_json::from_slice(&server).unwrap();
    let local = server["token"].as_str().unwrap();
    assert_eq!(demo.admin_as(local, Method::GET, "/orgs", None).await.1["items"][0]["id"], "default");
    assert_eq!(demo.admin_as(local, Method::GET, "/config?org=nobody", None).await.0, 404);
}

#[tokio::test]
async fn invalid_requests_are_answered_with_the_error_envelope() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let admin = demo.var("TIDEGATE_ADMIN_KEY");
    for (method, path, body, expected) in [
        (Method::GET, "/jobs?limit=0", None, 400),
        (Method::GET, "/jobs?state=odd", None, 400),
        (Method::GET, "/jobs?cursor=odd", None, 400),
        (Method::GET, "/jobs?odd=1", None, 400),
        (Method::GET, "/deliveries?cursor=1~zz", None, 400),
        (Method::GET, "/deliveries?state=odd", None, 400),
        (Method::GET, "/keys?limit=1&odd=1", None, 400),
        (Method::GET, "/endpoints?odd=1", None, 400),
        (Method::GET, "/orgs?odd=1", None, 400),
        (Method::GET, "/members?odd=1", None, 400),
        (Method::GET, "/jobs/a%ff", None, 400),
        (Method::GET, "/deliveries/a%ff", None, 400),
        (Method::DELETE, "/keys/a%ff", None, 400),
        (Method::POST, "/endpoints/a%ff/secret/reveal", None, 400),
        (Method::GET, "/jobs/odd", None, 404),
        (Method::GET, "/deliveries/00000000-0000-0000-0000-000000000000", None, 404),
        (Method::POST, "/deliveries/00000000-0000-0000-0000-000000000000/resend", None, 404),
        (
            Method::POST,
            "/jobs/00000000-0000-0000-0000-000000000000/release",
            Some(json!({ "epoch": 1, "reviewer": "ann" })),
            404,
        ),
        (Method::POST, "/keys", Some(json!({ "scopes": [] })), 400),
        (Method::POST, "/keys", Some(json!({ "scope": "x" })), 400),
        (Method::POST, "/keys", Some(json!({ "expiresInSeconds": 0 })), 400),
        (Method::POST, "/keys", Some(json!({ "expiresInSeconds": u64::MAX })), 400),
        (Method::POST, "/keys", Some(json!({ "name": "" })), 400),
        (Method::POST, "/keys", Some(json!({ "name": "x\n2026 ERROR fake\u{1b}[31m" })), 400),
        (Method::DELETE, "/keys/00000000-0000-0000-0000-000000000000", None, 404),
        (Method::POST, "/endpoints/nobody/secret/reveal", None, 404),
        (Method::POST, "/config", Some(json!({ "files": [{ "name": "a.yaml", "text": "rule: x\n" }] })), 400),
        (Method::POST, "/dead-letters/replay", None, 400),
        (Method::PATCH, "/jobs", None, 405),
    ] {
        let (status, answer) = demo.admin_as(admin, method, path, body.as_ref()).await;
        assert_eq!(status.as_u16(), expected, "{path}: {answer}");
        assert_eq!(answer["errors"][0]["status"], expected, "{path}: {answer}");
        assert!(answer["errors"][0]["requestId"].is_string(), "{path}: {answer}");
    }
    let (_, answer) = demo.admin_as(admin, Method::GET, "/deliveries?state=odd", None).await;
    assert!(answer["detail"].as_str().unwrap().contains("retry_wait"), "{answer}");
}

#[tokio::test]
async fn refused_configuration_names_the_file_and_is_not_applied() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let before = demo.admin("/config").await["version"].clone();
    let text = "rule: x\nwhen: {text: {in: [text], words: [y]}}\nactions: [nothing]\npolicies: [nobody]\n";
    let change = json!({ "files": [{ "name": "mine.yaml", "text": text }] });
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 400);
    let details: Vec<_> =
        answer["errors"].as_array().unwrap().iter().map(|it| it["detail"].as_str().unwrap()).collect();
    assert!(details.iter().all(|detail| detail.starts_with("mine.yaml")), "{details:?}");
    for named in ["nothing", "nobody"] {
        assert!(details.iter().any(|detail| detail.contains(named)), "{details:?}");
    }
    assert_eq!(demo.admin("/config").await["version"], before);
    let stale_change = json!({ "files": [{ "name": "q.yaml", "text": "queue: q\n" }], "expectedVersion": 1 });
    assert_eq!(demo.command("/config", &stale_change).await.0, 409);
}

#[tokio::test]
async fn decision_requires_a_claim_that_excludes_other_reviewers() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let job = reported(&demo, "p1").await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let ann = json!({ "reviewer": "ann" });
    let decision_body = |epoch: &Value, reviewer: &str| json!({ "epoch": epoch, "verdict": "act", "actions": ["remove"], "reviewer": reviewer });

    let unclaimed = demo.command(&format!("{path}/decisions"), &decision_body(&json!(0), "ann")).await;
    assert_eq!(unclaimed.0, 409, "{}", unclaimed.1);
    let (status, claimed_job) = demo.command(&format!("{path}/claim"), &ann).await;
    assert_eq!((status.as_u16(), &claimed_job["claimedBy"]), (200, &json!("ann")));
    let (status, conflict) = demo.command(&format!("{path}/claim"), &json!({ "reviewer": "bob" })).await;
    assert_eq!(status, 409);
    assert!(conflict["detail"].as_str().unwrap().contains("ann"), "{conflict}");
    assert_eq!(
        demo.command("/jobs/claim-next", &json!({ "queue": "default", "reviewer": "bob" })).await.0,
        204
    );
    assert_eq!(
        demo.command(&format!("{path}/decisions"), &decision_body(&claimed_job["epoch"], "bob")).await.0,
        409
    );
    for (verdict, actions, pointer) in [
        ("accept", json!([]), "/verdict"),
        ("odd", json!([]), "/verdict"),
        ("act", json!([]), "/actions"),
        ("act", json!(["odd"]), "/actions/0"),
    ] {
        let wrong = json!({ "epoch": claimed_job["epoch"], "verdict": verdict, "actions": actions, "reviewer": "ann" });
        let (status, answer) = demo.command(&format!("{path}/decisions"), &wrong).await;
        assert_eq!((status.as_u16(), &answer["errors"][0]["pointer"]), (400, &json!(pointer)), "{answer}");
    }
    let mut long = decision_body(&claimed_job["epoch"], "ann");
    long["reason"] = "x".repeat(16_385).into();
    let (status, answer) = demo.command(&format!("{path}/decisions"), &long).await;
    assert_eq!((status.as_u16(), &answer["errors"][0]["pointer"]), (400, &json!("/reason")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("review.reason_bytes"), "{answer}");

    let release_body = json!({ "epoch": claimed_job["epoch"], "reviewer": "ann" });
    assert_eq!(demo.command(&format!("{path}/release"), &release_body).await.0, 204);
    assert_eq!(demo.command(&format!("{path}/release"), &release_body).await.0, 409);
    let (status, next) =
        demo.command("/jobs/claim-next", &json!({ "queue": "default", "reviewer": "bob" })).await;
    assert_eq!((status.as_u16(), &next["id"]), (200, &job["id"]));
    // Ann's earlier claim has another epoch.
    assert_eq!(
        demo.command(&format!("{path}/decisions"), &decision_body(&claimed_job["epoch"], "ann")).await.0,
        409
    );
    assert_eq!(
        demo.command(&format!("{path}/decisions"), &decision_body(&next["epoch"], "bob")).await.0,
        202
    );
    assert_eq!(
        demo.command(&format!("{path}/decisions"), &decision_body(&next["epoch"], "bob")).await.0,
        409
    );
    assert_eq!(demo.command(&format!("{path}/claim"), &ann).await.0, 409);
}

#[tokio::test]
async fn decision_lists_each_action_and_policy_once() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let job = reported(&demo, "p1").await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let policies = demo.platform(Method::GET, "/api/v1/policies/", None).await.1["policies"].clone();
    let (first, second) = (&policies[0]["id"], &policies[1]["id"]);
    let claimed_job = demo.command(&format!("{path}/claim"), &json!({ "reviewer": "ann" })).await.1;
    let decision_body = json!({
        "epoch": claimed_job["epoch"],
        "verdict": "act",
        "actions": ["remove", "remove"],
        "policies": [second, first, second],
        "reviewer": "ann",
    });
    let (status, accepted_decision) = demo.command(&format!("{path}/decisions"), &decision_body).await;
    assert_eq!(status, 202, "{accepted_decision}");
    assert_eq!(
        (&accepted_decision["actions"], &accepted_decision["policies"]),
        (&json!(["remove"]), &json!([second, first]))
    );
    for time in ["decidedAt", "releaseAt"] {
        let text = accepted_decision[time].as_str().unwrap();
        assert!(text.contains('T') && text.ends_with('Z'), "{accepted_decision}");
    }
    assert_eq!(demo.admin(&path).await["decision"], accepted_decision);
    assert_eq!(demo.admin("/jobs?state=decided").await["items"][0]["decision"], accepted_decision);

    let callbacks = demo.wait_for_callbacks("decision.moderator", 1).await;
    let ids: Vec<_> =
        callbacks[0]["policies"].as_array().unwrap().iter().map(|policy| &policy["id"]).collect();
    assert_eq!(ids, [second, first]);
}

#[tokio::test]
async fn decision_passes_valid_parameters_to_its_actions() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let ban = "action: ban\nkind: callback\nparameters:\n  - {name: hours, type: NUMBER, default: 24}\n  \
               - {name: why, type: STRING, required: true}\n";
    let change = json!({ "files": [{ "name": "ban.yaml", "text": ban }] });
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let job = reported(&demo, "p1").await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let epoch =
        demo.command(&format!("{path}/claim"), &json!({ "reviewer": "ann" })).await.1["epoch"].clone();
    let decide = async |actions: Value| {
        let decision_body =
            json!({ "epoch": epoch, "verdict": "act", "actions": actions, "reviewer": "ann" });
        demo.command(&format!("{path}/decisions"), &decision_body).await
    };
    for (actions, named) in [
        (json!(["ban"]), "why"),
        (json!([{ "id": "ban", "parameters": { "why": 1 } }]), "why"),
        (json!([{ "id": "ban", "parameters": { "why": "x", "hour": 2 } }]), "hours"),
    ] {
        let (status, answer) = decide(actions).await;
        assert_eq!(
            (status.as_u16(), &answer["errors"][0]["pointer"]),
            (400, &json!("/actions/0/parameters")),
            "{answer}"
        );
        assert!(answer["errors"][0]["detail"].as_str().unwrap().contains(named), "{answer}");
    }
    let parameters = json!({ "why": "scams" });
    let (status, answer) = decide(json!([{ "id": "ban", "parameters": parameters }, "remove"])).await;
    assert_eq!(status, 202, "{answer}");
    assert_eq!(answer["actions"], json!(["ban", "remove"]));
    assert_eq!(answer["parameters"], json!({ "ban": parameters }));
    let callbacks = demo.wait_for_callbacks("decision.moderator", 2).await;
    let body = callbacks.iter().find(|body| body["action"]["id"] == "ban").unwrap();
    assert_eq!((&body["custom"]["hours"], &body["custom"]["why"]), (&json!(24), &json!("scams")));
    assert_eq!(
        body["decision"]["actions"],
        json!([{ "id": "ban", "parameters": parameters }, { "id": "remove" }])
    );
}

#[tokio::test]
async fn items_can_be_looked_up_by_id_without_type() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    demo.submit(&post("same", "mallory", "a quiet evening")).await;
    demo.submit(&json!({ "id": "same", "typeId": "user", "data": {} })).await;
    demo.evaluated("post", "same").await;
    demo.evaluated("user", "same").await;
    let matching_items = demo.admin("/items?id=same").await;
    let types: Vec<_> =
        matching_items["items"].as_array().unwrap().iter().map(|item| &item["typeId"]).collect();
    assert_eq!(json!(types), json!(["post", "user"]));
    assert_eq!(demo.admin("/items?id=nothing").await["items"], json!([]));
    let admin = demo.var("TIDEGATE_ADMIN_KEY");
    assert_eq!(demo.admin_as(admin, Method::GET, "/items", None).await.0, 400);
}

#[tokio::test]
async fn lists_are_paged_without_gaps_or_repeats() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for n in 0..7 {
        reported(&demo, &format!("p{n}")).await;
        demo.submit(&post(&format!("s{n}"), &format!("user{n}"), "scamcoin")).await;
    }
    demo.wait_for_callbacks("action.automatic", 7).await;
    for (path, key) in [("/jobs?limit=2", "id"), ("/deliveries?limit=3&state=delivered", "eventId")] {
        let mut listed_ids = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = demo.admin(&format!("{path}{cursor}")).await;
            listed_ids.extend(page["items"].as_array().unwrap().iter().map(|item| item[key].clone()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let ids: std::collections::HashSet<_> = listed_ids.iter().map(ToString::to_string).collect();
        if path.starts_with("/jobs") {
            assert_eq!((listed_ids.len(), ids.len()), (7, 7), "{path}");
        }
        assert_eq!(listed_ids.len(), ids.len(), "{path}");
    }
    let page = demo.admin("/jobs?queue=default&limit=2").await;
    let path = format!("/jobs?queue=appeals&cursor={}", page["next"].as_str().unwrap());
    let (status, answer) = demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::GET, &path, None).await;
    assert_eq!(status, 400, "{answer}");
}

/// Stores rows that let reviewers' queries start at the end of the day, as after a clock that ran ahead.
async fn look_from_the_end_of_the_day(place: &Place) {
    let db = fjall::Database::builder(place.data().join("db")).open().unwrap();
    let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
    let now = Millis::now();
    let today = now.day();
    // The test may run past midnight.
    for day in [today, today + 1] {
        let row = QueueDay {
            org: OrgId::new("default"),
            queue: QueueId::new("default"),
            priority: 0,
            day,
            first_at: Millis((day + 1) * DAY_MS - 1),
        };
        store.put_rows(WriteTime::from_append(now, 0), &[row]).await.unwrap();
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn jobs_of_one_instant_are_listed_and_claimed_once() {
    let place = Place::new();
    place.start().await.unwrap().stop().await;
    look_from_the_end_of_the_day(&place).await;
    let demo = place.start().await.unwrap();
    for n in 0..11 {
        reported(&demo, &format!("p{n}")).await;
    }
    let all_jobs = demo.admin("/jobs?queue=default&limit=100").await;
    let ids = |page: &Value| -> Vec<Value> {
        page["items"].as_array().unwrap().iter().map(|job| job["id"].clone()).collect()
    };
    let instants: BTreeSet<_> =
        all_jobs["items"].as_array().unwrap().iter().map(|job| job["createdAt"].to_string()).collect();
    assert!(instants.len() <= 2 && ids(&all_jobs).len() == 11, "{all_jobs}");
    for limit in [1, 2, 3, 10, 11] {
        let (mut listed_ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = demo.admin(&format!("/jobs?queue=default&limit={limit}{cursor}")).await;
            listed_ids.extend(ids(&page));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(listed_ids, ids(&all_jobs), "{limit} a page");
    }
    let mut claimed_ids = BTreeSet::new();
    for n in 0..11 {
        let next = json!({ "queue": "default", "reviewer": format!("r{n}") });
        let (status, job) = demo.command("/jobs/claim-next", &next).await;
        assert_eq!(status, 200, "{job}");
        claimed_ids.insert(job["id"].to_string());
    }
    assert_eq!(claimed_ids, ids(&all_jobs).iter().map(ToString::to_string).collect());
}

#[tokio::test]
async fn denied_callback_names_the_setting_that_allows_its_address() {
    let place = Place::new();
    let mut demo = place.start_with(&[("TIDEGATE__CALLBACKS__BLOCKED_ATTEMPTS", "1")]).await.unwrap();
    let text = "endpoint: inner\nurl: http://192.168.77.7/\n---\naction: tell\nkind: callback\nendpoint: inner\n---\n\
        rule: inner\nstatus: live\nwhen: {text: {in: [text], words: [innerword]}}\nactions: [tell]\n";
    let change = json!({ "files": [{ "name": "d.yaml", "text": text }] });
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    demo.submit(&post("i1", "mallory", "an innerword")).await;
    let delivery = eventually_ok("the delivery to end", PATIENCE, async || {
        let exhausted_deliveries = demo.admin("/deliveries?endpoint=inner&state=exhausted").await;
        exhausted_deliveries["items"].get(0).cloned().ok_or_else(|| anyhow::anyhow!("{exhausted_deliveries}"))
    })
    .await
    .unwrap();
    assert_eq!(delivery["lastError"], "blocked_address");
    let delivery_details =
        demo.admin(&format!("/deliveries/{}", delivery["eventId"].as_str().unwrap())).await;
    for detail in [&delivery["lastErrorDetail"], &delivery_details["attemptList"][0]["errorDetail"]] {
        assert!(
            detail.as_str().is_some_and(|text| text.contains("egress.allow_cidrs")),
            "{delivery_details}"
        );
    }
    // The line is written after the row that ends the delivery.
    let line = demo.process.line("a callback is not delivered", PATIENCE).await.unwrap();
    assert!(line.contains("egress.allow_cidrs") && !line.contains("192.168"), "{line}");
}

#[tokio::test]
async fn a_signing_secret_is_revealed_to_admins() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let policies = demo.admin("/policies").await;
    let public = demo.platform(Method::GET, "/api/v1/policies/", None).await.1;
    assert_eq!(policies["items"][0]["id"], public["policies"][0]["id"]);
    assert_eq!(policies["items"][0]["severity"], "none");
    let endpoints = demo.admin("/endpoints").await;
    assert_eq!(endpoints["items"][0]["id"], "demo-receiver");
    assert!(!endpoints.to_string().contains(demo.var("TIDEGATE_WEBHOOK_SECRET")));
    let (status, revealed) = demo.command("/endpoints/demo-receiver/secret/reveal", &json!({})).await;
    assert_eq!(
        (status.as_u16(), revealed["secret"].as_str()),
        (200, Some(demo.var("TIDEGATE_WEBHOOK_SECRET")))
    );
}

/// Each field of an item, a report and an appeal has a distinct value, which a later response must contain.
#[tokio::test]
async fn every_field_that_a_platform_sends_is_found_again() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let types = "
item_type: full
kind: CONTENT
version: v-17
fields:
  - {name: string, type: STRING}
  - {name: number, type: NUMBER}
  - {name: boolean, type: BOOLEAN}
  - {name: images, type: IMAGE, container: ARRAY}
  - {name: audio, type: AUDIO}
  - {name: video, type: VIDEO}
  - {name: geohash, type: GEOHASH}
  - {name: datetime, type: DATETIME, role: createdAt}
  - {name: related, type: RELATED_ITEM}
";
    let applied =
        demo.command("/config", &json!({ "files": [{ "name": "full.yaml", "text": types }] })).await;
    assert_eq!(applied.0, 200, "{}", applied.1);
    let policy = demo.platform(Method::GET, "/api/v1/policies/", None).await.1["policies"][0]["id"].clone();
    // Each item has distinct values, except in fields that have too few possible values.
    let item = |id: &str, nth: u32| {
        json!({
            "id": id,
            "typeId": "full",
            "typeVersion": "v-17",
            "typeSchemaVariant": if nth.is_multiple_of(2) { "original" } else { "partial" },
            "data": {
                "string": format!("text of {id}"),
                "number": f64::from(nth) + 1_234.5,
                "boolean": nth.is_multiple_of(2),
                "images": [format!("https://media.example/{id}.jpg")],
                "audio": format!("https://media.example/{id}.ogg"),
                "video": format!("https://media.example/{id}.mp4"),
                "geohash": format!("u4pruydq{nth}"),
                "datetime": format!("2026-01-02T03:04:0{nth}.678Z"),
                "related": { "id": format!("author of {id}"), "typeId": "user" },
                "undeclared": { "kept": [format!("extra of {id}")] },
            },
        })
    };

    for sent in [item("i-1", 0), item("i-2", 1)] {
        demo.submit(&sent).await;
        assert_contains(&demo.evaluated("full", sent["id"].as_str().unwrap()).await, &sent);
    }

    // A report from a reporter of an unknown type is marked and still counts.
    for (id, csam, queue, type_id) in
        [("i-3", false, "default", "user"), ("i-4", true, "child-safety", "no-such-type")]
    {
        let report_body = json!({
            "reporter": { "kind": "user", "id": "reporter-7", "typeId": type_id },
            "reportedAt": "2026-02-03T04:05:06.789Z",
            "reportedItem": item(id, 2),
            "reportedItemThread": [item("t-1", 3), item("t-2", 4)],
            "reportedItemsInThread": [{ "id": "t-2", "typeId": "full" }],
            "additionalItems": [item("x-1", 5)],
        });
        let mut full_report = report_body.clone();
        let reason = json!({ "policyId": policy, "reason": "because of this", "csam": csam });
        full_report["reportedForReason"] = reason.clone();
        // The response lists the thread by creation time; the request lists it in reverse.
        full_report["reportedItemThread"].as_array_mut().unwrap().reverse();
        let answer = demo.platform(Method::POST, "/api/v1/report", Some(&full_report)).await;
        assert_eq!(answer.0, 201, "{}", answer.1);
        let job = demo.whole_job(&demo.job(queue, id).await).await;
        let report = &job["causes"][0]["report"];
        assert_contains(report, &report_body);
        assert_eq!(report["id"], answer.1["reportId"], "{job}");
        let marks = report["reportedItemThread"].as_array().unwrap().iter().map(|entry| &entry["reported"]);
        assert_eq!(marks.collect::<Vec<_>>(), [&Value::Null, &json!(true)], "{job}");
        assert_eq!((&report["reason"], &report["csam"]), (&reason["reason"], &reason["csam"]), "{job}");
        assert_eq!(report["policy"]["id"], policy, "{job}");
        let fault = &report["reporter"]["fault"];
        assert_eq!(fault.is_string(), type_id == "no-such-type", "{job}");
    }

    let appeal_body = json!({
        "appealedBy": { "id": "appellant-3", "typeId": "user" },
        "appealedAt": "2026-03-04T05:06:07.891Z",
        "actionedItem": item("i-5", 7),
        "actionsTaken": [{ "id": "limit_reach" }, { "id": "an-unknown-action" }],
        "violatingPolicies": [{ "id": policy }, { "id": "an-unknown-policy" }],
        "additionalItems": [item("x-2", 8)],
    });
    let mut full_appeal = appeal_body.clone();
    full_appeal["appealId"] = "appeal-9".into();
    full_appeal["appealReason"] = "that was unfair".into();
    full_appeal["actionsTaken"] = json!(["limit_reach", "an-unknown-action"]);
    let answer = demo.platform(Method::POST, "/api/v1/report/appeal", Some(&full_appeal)).await;
    assert_eq!(answer.0, 204, "{}", answer.1);
    let job = demo.whole_job(&demo.job("appeals", "i-5").await).await;
    let appeal = &job["causes"][0]["appeal"];
    assert_contains(appeal, &appeal_body);
    assert_eq!(
        (&appeal["id"], &appeal["reason"]),
        (&full_appeal["appealId"], &full_appeal["appealReason"]),
        "{job}"
    );
}

/// Checks that the answer contains each sent value at the same place. The answer may contain more.
fn assert_contains(answer: &Value, sent: &Value) {
    match (answer, sent) {
        (Value::Object(_), Value::Object(sent)) => {
            sent.iter().for_each(|(name, value)| assert_contains(&answer[name], value));
        }
        (Value::Array(found), Value::Array(sent)) => {
            assert_eq!(found.len(), sent.len(), "{answer}");
            found.iter().zip(sent).for_each(|(found, value)| assert_contains(found, value));
        }
        _ => assert_eq!(answer, sent),
    }
}

async fn reported(demo: &Demo, id: &str) -> Value {
    let report_body = report(&post(id, "mallory", "hm"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    demo.job("default", id).await
}

#[tokio::test]
async fn many_causes_of_a_job_are_paged() {
    let place = Place::new();
    let demo = place.start_with(&[("TIDEGATE__REVIEW__CAUSE_BYTES", "1000")]).await.unwrap();
    let mut report_ids = BTreeSet::new();
    for size in [10, 400, 900, 5_000, 30, 600] {
        let mut report = report(&post("p1", "mallory", "hm"));
        report["additionalItems"] = json!([post("beside", "bob", &"x".repeat(size))]);
        let (status, response) = demo.platform(Method::POST, "/api/v1/report", Some(&report)).await;
        assert_eq!(status, 201, "{response}");
        report_ids.insert(response["reportId"].as_str().unwrap().to_owned());
    }
    let job = demo.job("default", "p1").await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let all = eventually_ok("all causes", PATIENCE, async || {
        let job_details = demo.admin(&path).await;
        let mut causes = vec![job_details["causes"].clone()];
        let mut next = job_details["nextCause"].clone();
        while let Some(cursor) = next.as_str() {
            let page = demo.admin(&format!("{path}/causes?cursor={cursor}")).await;
            causes.push(page["items"].clone());
            next = page["next"].clone();
        }
        let count: usize = causes.iter().map(|page| page.as_array().unwrap().len()).sum();
        if count < report_ids.len() { bail!("{count} causes") } else { Ok(causes) }
    });
    let all = all.await.unwrap();
    // The largest report fills a page alone; the remaining reports need more than two pages.
    assert!(all.iter().filter(|page| **page != json!([])).count() >= 4, "{all:?}");
    let ids = all.iter().flat_map(|page| page.as_array().unwrap());
    let ids: Vec<_> = ids.map(|cause| cause["report"]["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!((ids.len(), BTreeSet::from_iter(ids)), (report_ids.len(), report_ids));

    let unknown_job =
        demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::GET, "/jobs/0/causes", None).await;
    assert_eq!(unknown_job.0, 404);
}
