//! Partial-item requests to a platform, as operators and review tools see them.

use reqwest::Method;
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::support::{Demo, Place, post, report};

/// Starts a platform that returns `p1`, or one that never answers. Returns its port.
pub(crate) async fn platform(answers: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, answers));
        }
    });
    port
}

async fn answer(mut socket: TcpStream, answers: bool) {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).ends_with("]}") {
        if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    assert!(head.contains("service-signature: t="), "{head}");
    if !answers {
        return std::future::pending().await;
    }
    let item = json!({"id": "p1", "typeId": "post", "data": {"text": "as it is now"}});
    let body = json!({ "items": [item] }).to_string();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _gone = socket.write_all(format!("{head}{body}").as_bytes()).await;
}

async fn started(place: &Place, answers: bool) -> Demo {
    let url = format!("http://127.0.0.1:{}/items?secret=1", platform(answers).await);
    let env = [
        ("TIDEGATE__PARTIAL_ITEMS__DEFAULT__URL", url.as_str()),
        ("TIDEGATE__REVIEW__REFRESH_AFTER_MS", "1000"),
    ];
    place.start_with(&env).await.unwrap()
}

async fn reported(demo: &Demo) -> Value {
    let report_body = report(&post("p1", "mallory", "as it was"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    demo.job("default", "p1").await
}

async fn settled(demo: &Demo, trigger: &str) -> Value {
    let settled = async || {
        let request_list = demo.admin("/partial-requests").await;
        let mut all = request_list["items"].as_array().unwrap().iter();
        all.find(|it| it["trigger"] == trigger && it["state"] != "pending").cloned()
    };
    eventually("a settled request", PATIENCE, settled).await.unwrap()
}

#[tokio::test]
async fn claim_is_answered_while_the_platform_hangs() {
    let place = Place::new();
    let demo = started(&place, false).await;
    let job = reported(&demo).await;
    let path = format!("/jobs/{}/claim", job["id"].as_str().unwrap());
    let claim_and_count = async || {
        let (status, claimed_job) = demo.command(&path, &json!({"reviewer": "ann"})).await;
        assert_eq!(status, 200, "{claimed_job}");
        let request_list = demo.admin("/partial-requests").await;
        let mut all = request_list["items"].as_array().unwrap().iter();
        all.find(|it| it["trigger"] == "claim").cloned()
    };
    let request = eventually("a request of the claim", PATIENCE, claim_and_count).await.unwrap();
    assert_eq!((&request["state"], &request["jobId"]), (&json!("pending"), &job["id"]), "{request}");
    assert_eq!(demo.whole_job(&job).await["id"], job["id"], "the job is shown while the platform hangs");
}

#[tokio::test]
async fn newer_data_is_shown_with_the_job_and_on_request() {
    let place = Place::new();
    let demo = started(&place, true).await;
    let job = reported(&demo).await;
    let path = format!("/jobs/{}/claim", job["id"].as_str().unwrap());
    let shows_newer_data = async || {
        assert_eq!(demo.command(&path, &json!({"reviewer": "ann"})).await.0, 200);
        let view = demo.whole_job(&job).await;
        let items = view["partialItems"]["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["data"]["text"] == "as it is now")
    };
    eventually("newer data beside the job", PATIENCE, shows_newer_data).await.unwrap();
    let page = demo.admin(&format!("/jobs/{}/partial-items?limit=1", job["id"].as_str().unwrap())).await;
    assert_eq!((&page["items"][0]["data"]["text"], &page["next"]), (&json!("as it is now"), &Value::Null));

    let (status, accepted) = demo.command("/items/post/p1/refresh", &json!({})).await;
    assert_eq!(status, 202, "{accepted}");
    let refreshed = settled(&demo, "refresh").await;
    assert_eq!((&refreshed["id"], &refreshed["found"][0]["id"]), (&accepted["requestId"], &json!("p1")));
    assert_eq!(
        demo.admin(&format!("/partial-requests/{}", refreshed["id"].as_str().unwrap())).await,
        refreshed
    );
    let endpoint = demo.admin("/partial-items").await.to_string();
    assert!(endpoint.contains("/items") && !endpoint.contains("secret=1"), "{endpoint}");
    // The submitted version stays the displayed one.
    let (_, item) = demo.platform(Method::GET, "/api/v1/items/post/p1", None).await;
    assert_ne!(item["data"]["text"], "as it is now", "{item}");
    assert_eq!(demo.command("/items/nothing/p1/refresh", &json!({})).await.0, 404);
    let key = place.run_ok(&["keys", "create", "--scopes", "items:read"]).await;
    assert_eq!(demo.admin_as(key.trim(), Method::GET, "/partial-requests", None).await.0, 403);
}

#[tokio::test]
async fn fetched_items_of_child_safety_are_hidden_without_the_scope() {
    let place = Place::new();
    let demo = started(&place, true).await;
    let mut report_body = report(&post("q1", "mallory", "hm"));
    report_body["reportedItemsInThread"] = json!([{"id": "p1", "typeId": "post"}]);
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let job = demo.job("default", "q1").await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let items = async |key: &str| {
        let job_view = demo.admin_as(key, Method::GET, &path, None).await.1;
        let page = demo.admin_as(key, Method::GET, &format!("{path}/partial-items"), None).await.1;
        assert_eq!(job_view["partialItems"]["items"], page["items"], "{job_view} {page}");
        page["items"].as_array().unwrap().len()
    };
    let plain = place.run_ok(&["keys", "create", "--scopes", "admin"]).await;
    let partial_item_arrived = async || {
        let job_view = demo.admin(&path).await;
        (job_view["partialItems"]["items"][0]["id"] == "p1").then_some(())
    };
    eventually("the fetched item", PATIENCE, partial_item_arrived).await.unwrap();
    assert_eq!(items(plain.trim()).await, 1);

    let mut report_body = report(&post("p1", "mallory", "hm"));
    report_body["reportedForReason"] = json!({"csam": true});
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    demo.job("child-safety", "p1").await;
    assert_eq!(items(plain.trim()).await, 0);
    assert_eq!(items(demo.var("TIDEGATE_ADMIN_KEY")).await, 1);
}
