//! Repeated requests with and without idempotency keys.

use axum::body::Bytes;
use serde_json::{Value, json};
use tidegate_schemas::{ids::Millis, json::scan};
use tidegate_store::tables::items::idempotency::IdempotencyClaim;

use crate::support::{ITEMS, REPORT, post, report, service};

fn ids(body: &Value) -> Vec<String> {
    let submissions = body["submissions"].as_array().unwrap();
    submissions.iter().map(|one| one["submissionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn repeated_items_under_one_key_keep_their_submissions() {
    let service = service().await;
    let items = json!({"items": [post("a"), post("b"), post("a")]});
    let first = service.post_keyed(ITEMS, "key-1", &items).await;
    let second = service.post_keyed(ITEMS, "key-1", &items).await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(ids(&first.body), ids(&second.body));
    let mut distinct = ids(&first.body);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 3, "a place in the request is part of the cause");
    let records = service.items().await;
    let logged: Vec<_> = records.iter().flat_map(|record| &record.items).collect();
    assert_eq!(
        logged.len(),
        6,
        "both requests are appended, because the client may have missed the first answer"
    );
    assert!(logged.iter().all(|item| item.keyed));
}

#[tokio::test]
async fn another_key_or_none_is_another_submission() {
    let service = service().await;
    let items = json!({"items": [post("a")]});
    let mut submission_ids = vec![
        ids(&service.post_keyed(ITEMS, "key-1", &items).await.body),
        ids(&service.post_keyed(ITEMS, "key-2", &items).await.body),
        ids(&service.post(ITEMS, &items).await.body),
        ids(&service.post(ITEMS, &items).await.body),
    ];
    submission_ids.sort_unstable();
    submission_ids.dedup();
    assert_eq!(submission_ids.len(), 4);
}

/// Routes that accept the header, each with a body, its status, and different bodies.
fn keyed_routes() -> Vec<(&'static str, Value, u16, Vec<Value>)> {
    let items = json!({"items": [post("a"), post("b")]});
    let reordered = json!({"items": [post("b"), post("a")]});
    let shorter = json!({"items": [post("a")]});
    let mut edited = items.clone();
    edited["items"][0]["data"]["text"] = json!("other");
    let mut other_report = report();
    other_report["reportedAt"] = json!("2026-02-02T03:04:05.006Z");
    let content = json!({"contentType": "post", "contentId": "c", "content": {"text": "x"}, "sync": false});
    let mut other_content = content.clone();
    other_content["content"]["text"] = json!("y");
    let action = |id: &str| json!({"actionId": "limit_reach", "itemId": id, "itemTypeId": "post"});
    let actions = json!({"actions": [action("a"), action("b")]});
    vec![
        (ITEMS, items, 202, vec![reordered, shorter, edited, json!({"items": []})]),
        (REPORT, report(), 201, vec![other_report]),
        ("/api/v1/content/", content, 202, vec![other_content]),
        (
            "/api/v1/actions/",
            actions,
            202,
            vec![json!({"actions": [action("b"), action("a")]}), action("a"), json!({"actions": []})],
        ),
    ]
}

#[tokio::test]
async fn another_body_under_a_key_is_refused_on_every_route() {
    let service = service().await;
    for (path, body, status, others) in keyed_routes() {
        let first = service.post_keyed(path, "k-1", &body).await;
        assert_eq!(first.status, status, "{path}: {first:?}");
        let appended = service.count_appended().await;
        for (nth, other) in others.iter().enumerate() {
            let answer = service.post_keyed(path, "k-1", other).await;
            assert_eq!(answer.status, 409, "{path} {other}: {answer:?}");
            answer.assert_envelope();
            assert_eq!(answer.body["errors"][0]["type"][0], "/errors/idempotency-key-reused", "{path}");
            let other_key = format!("other-{nth}");
            assert_eq!(
                service.post_keyed(path, &other_key, other).await.status,
                status,
                "{path}: another key"
            );
            assert_eq!(service.post_keyed(path, &other_key, &body).await.status, 409, "{path}");
        }
        assert_eq!(service.post_keyed(path, "k-1", &body).await.body, first.body, "{path}: the same body");
        assert!(service.count_appended().await > appended, "{path}: the same body is appended again");
    }
}

#[tokio::test]
async fn refused_body_under_a_key_appends_nothing() {
    let service = service().await;
    for (path, body, status, others) in keyed_routes() {
        assert_eq!(service.post_keyed(path, "k-1", &body).await.status, status);
        let appended = service.count_appended().await;
        for other in others {
            service.post_keyed(path, "k-1", &other).await;
        }
        assert_eq!(service.count_appended().await, appended, "{path}");
    }
}

#[tokio::test]
async fn invalid_body_does_not_claim_its_key() {
    let service = service().await;
    let wrong = json!({"items": [{"id": "a", "typeId": "psot", "data": {}}]});
    assert_eq!(service.post_keyed(ITEMS, "k", &wrong).await.status, 400);
    assert_eq!(service.post_keyed(ITEMS, "k", &json!({"items": [post("a")]})).await.status, 202);
}

#[tokio::test]
async fn claim_without_an_append_is_completed_by_the_retry() {
    let service = service().await;
    let items = json!({"items": [post("a"), post("b")]});
    // State after a crash between claim and append.
    let body = Bytes::from(items.to_string());
    let claim = IdempotencyClaim {
        org: service.org.clone(),
        route: "items".to_owned(),
        key: "k".to_owned(),
        digest: Bytes::copy_from_slice(&scan(&body).unwrap().root(&body).digest()),
        claimed_at: Millis::now(),
        version: 1,
    };
    service.deps.store.insert_new(&claim).await.unwrap();
    let answer = service.post_keyed(ITEMS, "k", &items).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let logged: Vec<_> = service.items().await.into_iter().flat_map(|record| record.items).collect();
    assert_eq!(logged.len(), 2);
    let answer = service.post_keyed(ITEMS, "k", &json!({"items": [post("a")]})).await;
    assert_eq!(answer.status, 409, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_bodies_under_a_key_is_accepted() {
    let service = service().await;
    for round in 0..10 {
        let key = format!("k-{round}");
        let bodies: Vec<_> = (0..8).map(|n| json!({"items": [post(&format!("{round}-{n}"))]})).collect();
        let answers =
            futures::future::join_all(bodies.iter().map(|body| service.post_keyed(ITEMS, &key, body))).await;
        let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [202, 409, 409, 409, 409, 409, 409, 409], "round {round}");
    }
}

#[tokio::test]
async fn whitespace_and_key_order_do_not_change_the_submission() {
    let service = service().await;
    let one = r#"{"items":[{"id":"a","typeId":"post","data":{"text":"x","likes":1}}]}"#;
    let reordered_body = r#"{"items": [ {"data":{"likes":1, "text":"\u0078"}, "typeId":"post", "id":"a"} ]}"#;
    let mut submission_ids = Vec::new();
    for body in [one, reordered_body] {
        let request = service.request("POST", ITEMS).header("idempotency-key", "k");
        submission_ids.push(ids(&service.ask(request.body(body.into()).unwrap()).await.body));
    }
    assert_eq!(submission_ids[0], submission_ids[1]);
}

#[tokio::test]
async fn report_keeps_its_id_under_a_key() {
    let service = service().await;
    let first = service.post_keyed(REPORT, "k", &report()).await.body;
    assert_eq!(service.post_keyed(REPORT, "k", &report()).await.body, first);
    assert_ne!(service.post(REPORT, &report()).await.body, first);
    let reports = service.reports().await;
    assert_eq!(reports.len(), 3);
    let report_ids: Vec<_> =
        reports.iter().filter(|one| json!(one.report_id.to_string()) == first["reportId"]).collect();
    assert_eq!(report_ids.len(), 2);
    assert!(
        report_ids.iter().all(|one| one.keyed && one.item.submission_id == report_ids[0].item.submission_id)
    );
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_refused() {
    let service = service().await;
    for key in ["", "two words", &"k".repeat(256)] {
        let answer = service.post_keyed(ITEMS, key, &json!({"items": [post("a")]})).await;
        assert_eq!(answer.status, 400, "{key}");
        answer.assert_envelope();
    }
    service.assert_nothing_appended().await;
}
