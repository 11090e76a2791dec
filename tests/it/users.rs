//! Users of the platform, as a moderator sees them.

use crate::support::{Demo, Place, post, report};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn user_is_shown_with_strikes_jobs_and_outcome_of_reports() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for n in 1..=4 {
        demo.submit(&post(&format!("s{n}"), "mallory", "scamcoin")).await;
    }
    demo.wait_for_callbacks("user.threshold", 1).await;
    let report_body = report(&post("p3", "mallory", "hm"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let job = demo.job("default", "p3").await;
    demo.decide(&job, "ignore", &[]).await;
    demo.wait_for_callbacks("decision.moderator", 1).await;

    let user = demo.admin("/users/user/mallory").await;
    assert_eq!((&user["strikes"], &user["id"]), (&json!(4), &json!("mallory")), "{user}");
    assert_eq!(user["newestStrikes"].as_array().unwrap().len(), 4, "{user}");
    assert_eq!(user["newestStrikes"][0]["reversed"], false, "{user}");
    let standing = &user["standing"][0];
    assert_eq!((&standing["strikes"], &standing["limit"]), (&json!(4), &json!(3)), "{user}");
    assert_eq!((&user["jobs"], &user["actions"]), (&json!([]), &json!([])), "{user}");
    assert_eq!(user["reports"], json!({ "decided": 0, "upheld": 0 }), "{user}");

    let report_body = report(&json!({ "id": "mallory", "typeId": "user", "data": {} }));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let job = demo.job("default", "mallory").await;
    demo.decide(&job, "act", &["remove"]).await;
    demo.wait_for_callbacks("decision.moderator", 2).await;
    let user = demo.admin("/users/user/mallory").await;
    assert_eq!(
        (&user["jobs"][0]["id"], &user["jobs"][0]["state"]),
        (&job["id"], &json!("decided")),
        "{user}"
    );
    assert_eq!(user["actions"][0]["action"], "remove", "{user}");
    assert!(user["actions"][0]["actor"].is_string(), "{user}");
    assert_eq!(user["latestItem"]["source"], "report", "{user}");

    let user_text = place.run_ok(&["users", "show", "user", "alice"]).await;
    let reporter: Value = serde_json::from_str(&user_text).unwrap();
    assert_eq!(reporter["reports"], json!({ "decided": 2, "upheld": 1, "accuracy": 0.5 }), "{reporter}");

    let admin = |path: &'static str| demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::GET, path, None);
    let (status, answer) = admin("/users/user/nobody").await;
    assert_eq!(status, 404, "{answer}");
    let (status, answer) = admin("/users/post/s1").await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("kind `USER`"), "{answer}");
}

/// Ids of the items in a list of items, jobs or reports.
fn item_ids(list: &Value) -> Vec<&str> {
    let entries = list["items"].as_array().unwrap();
    entries.iter().map(|it| it.pointer("/item/id").unwrap_or(&it["id"]).as_str().unwrap()).collect()
}

async fn reported(demo: &Demo, item: &Value, csam: bool) -> Value {
    let mut report_body = report(item);
    report_body["reportedForReason"] = json!({ "csam": csam });
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let id = item["id"].as_str().unwrap();
    demo.evaluated(item["typeId"].as_str().unwrap(), id).await;
    demo.job(if csam { "child-safety" } else { "default" }, id).await
}

#[tokio::test]
async fn items_jobs_and_reports_of_a_user_are_listed_newest_first() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for id in ["a1", "a2", "a3"] {
        demo.submit(&post(id, "mallory", "hello")).await;
        demo.evaluated("post", id).await;
    }
    assert_eq!(
        demo.admin("/users/user/mallory").await["strikes"],
        0,
        "the service knows the user only from items"
    );
    let job = reported(&demo, &post("a4", "mallory", "hm"), false).await;
    demo.decide(&job, "ignore", &[]).await;
    reported(&demo, &post("a5", "mallory", "hm"), false).await;
    reported(&demo, &json!({ "id": "mallory", "typeId": "user", "data": {} }), false).await;

    let first = demo.admin("/users/user/mallory/items?limit=3").await;
    assert_eq!(item_ids(&first), ["a5", "a4", "a3"], "{first}");
    assert_eq!(first["items"][0]["source"], "report", "{first}");
    let next = first["next"].as_str().unwrap();
    let rest = demo.admin(&format!("/users/user/mallory/items?limit=3&cursor={next}")).await;
    assert_eq!((item_ids(&rest), &rest["next"]), (vec!["a2", "a1"], &Value::Null), "{rest}");

    let jobs = demo.admin("/users/user/mallory/jobs").await;
    assert_eq!(item_ids(&jobs), ["mallory", "a5", "a4"], "{jobs}");
    assert_eq!((&jobs["items"][1]["state"], &jobs["items"][2]["state"]), (&json!("open"), &json!("decided")));
    let received_reports = demo.admin("/users/user/mallory/reports?side=received").await;
    assert_eq!(item_ids(&received_reports), ["mallory", "a5", "a4"], "{received_reports}");
    let made_reports = demo.admin("/users/user/alice/reports").await;
    assert_eq!(
        (&made_reports["items"], made_reports["items"][0]["reporter"]["id"].as_str()),
        (&received_reports["items"], Some("alice"))
    );
    assert_eq!(demo.admin("/users/user/mallory/reports").await["items"], json!([]));

    let printed = place.run_ok(&["users", "items", "user", "mallory", "--limit", "2"]).await;
    let printed: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed.iter().map(|it| it["id"].as_str().unwrap()).collect::<Vec<_>>(), ["a5", "a4"]);
    let printed = place.run_ok(&["users", "reports", "user", "mallory", "--side", "received"]).await;
    assert_eq!(printed.lines().count(), 3, "{printed}");

    let admin = |path: &'static str| demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::GET, path, None);
    for (path, part) in [
        ("/users/user/mallory/reports?side=both", "made or received"),
        ("/users/user/mallory/items?cursor=x", "does not belong"),
        ("/users/post/a1/jobs", "kind `USER`"),
    ] {
        let (status, answer) = admin(path).await;
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(answer.to_string().contains(part), "{path}: {answer}");
    }
}

#[tokio::test]
async fn lists_of_a_user_leave_child_safety_out_without_its_scope() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    reported(&demo, &post("b1", "mallory", "hm"), false).await;
    reported(&demo, &post("b2", "mallory", "hm"), true).await;
    let (status, created_key) = demo.command("/keys", &json!({ "name": "night", "scopes": ["admin"] })).await;
    assert_eq!(status, 201, "{created_key}");
    for list in ["items", "jobs", "reports?side=received"] {
        let path = format!("/users/user/mallory/{list}");
        assert_eq!(item_ids(&demo.admin(&path).await), ["b2", "b1"], "{list}");
        let (status, answer) =
            demo.admin_as(created_key["key"].as_str().unwrap(), Method::GET, &path, None).await;
        assert_eq!((status.as_u16(), item_ids(&answer)), (200, vec!["b1"]), "{list}: {answer}");
    }
    let audit = demo.admin("/audit?object=/users/user/mallory/items").await;
    assert_eq!(audit["items"][0]["action"], "GET /users/{type}/{id}/items", "{audit}");
}
