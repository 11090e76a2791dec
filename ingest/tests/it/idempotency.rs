//! Sending the same again.

use serde_json::{Value, json};

use crate::support::{ITEMS, REPORT, post, report, service};

fn ids(body: &Value) -> Vec<String> {
    let told = body["submissions"].as_array().unwrap();
    told.iter().map(|one| one["submissionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn under_one_key_the_same_items_are_the_same_submissions() {
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
    assert_eq!(logged.len(), 6, "both are appended: the first answer may never have arrived");
    assert!(logged.iter().all(|item| item.keyed));
}

#[tokio::test]
async fn another_item_or_key_or_none_is_another_submission() {
    let service = service().await;
    let items = json!({"items": [post("a")]});
    let mut edited = items.clone();
    edited["items"][0]["data"]["text"] = json!("other");
    let mut seen = vec![
        ids(&service.post_keyed(ITEMS, "key-1", &items).await.body),
        ids(&service.post_keyed(ITEMS, "key-1", &edited).await.body),
        ids(&service.post_keyed(ITEMS, "key-2", &items).await.body),
        ids(&service.post(ITEMS, &items).await.body),
        ids(&service.post(ITEMS, &items).await.body),
    ];
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5);
}

#[tokio::test]
async fn white_space_and_the_order_of_keys_do_not_make_another_item() {
    let service = service().await;
    let one = r#"{"items":[{"id":"a","typeId":"post","data":{"text":"x","likes":1}}]}"#;
    let same = r#"{"items": [ {"data":{"likes":1, "text":"\u0078"}, "typeId":"post", "id":"a"} ]}"#;
    let mut seen = Vec::new();
    for body in [one, same] {
        let request = service.request("POST", ITEMS).header("idempotency-key", "k");
        seen.push(ids(&service.ask(request.body(body.into()).unwrap()).await.body));
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_report_keeps_its_id_under_a_key_and_only_with_the_same_body() {
    let service = service().await;
    let mut other = report();
    other["reportedAt"] = json!("2026-02-02T03:04:05.006Z");
    let first = service.post_keyed(REPORT, "k", &report()).await.body;
    assert_eq!(service.post_keyed(REPORT, "k", &report()).await.body, first);
    assert_ne!(service.post_keyed(REPORT, "k", &other).await.body, first);
    assert_ne!(service.post(REPORT, &report()).await.body, first);
    let reports = service.reports().await;
    assert_eq!(reports.len(), 4);
    let same: Vec<_> =
        reports.iter().filter(|one| json!(one.report_id.to_string()) == first["reportId"]).collect();
    assert_eq!(same.len(), 2);
    assert!(same.iter().all(|one| one.keyed && one.item.submission_id == same[0].item.submission_id));
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
