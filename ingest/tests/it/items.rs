//! Submitting items.

use serde_json::{Value, json};
use tidegate_schemas::records::{Source, Variant};

use crate::support::{ITEMS, post, service};

#[tokio::test]
async fn accepted_items_are_logged_byte_for_byte() {
    let service = service().await;
    let data = r#"{ "text" : "caf\u00e9", "likes": 1.50, "unknown": [1, {"a": null}] }"#;
    let body = format!(r#"{{"items":[{{"id":"p-1","typeId":"post","data":{data}}}], "more": 1}}"#);
    let request = service.request("POST", ITEMS).header("x-request-id", "req-1");
    let answer = service.ask(request.body(body.into()).unwrap()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.header("x-request-id"), "req-1");
    let records = service.items().await;
    assert_eq!(records.len(), 1);
    let (record, item) = (&records[0], &records[0].items[0]);
    assert_eq!((&record.org, record.source, record.report_id), (&service.org, Source::Api, None));
    assert_eq!(record.request_id, "req-1");
    assert_eq!(record.config_version, service.deps.live.org(&service.org).unwrap().version());
    assert_eq!(&item.data[..], data.as_bytes());
    assert_eq!((item.variant, item.keyed, item.origin), (Variant::Original, false, None));
    let submission = item.submission_id.to_string();
    let expected_body = json!({"submissions": [{"id": "p-1", "typeId": "post", "submissionId": submission}]});
    assert_eq!(answer.body, expected_body);
}

#[tokio::test]
async fn batch_is_grouped_by_partition_and_answered_in_order() {
    let service = service().await;
    let ids: Vec<String> = (0..1_000).map(|n| format!("p-{n}")).collect();
    let answer = service.submit(ids.iter().map(|id| post(id)).collect()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let submissions = answer.body["submissions"].as_array().unwrap();
    assert!(submissions.iter().map(|one| one["id"].as_str().unwrap()).eq(ids.iter()));
    let records = service.items().await;
    assert!(records.len() <= 4, "expected one record per partition, got {}", records.len());
    let mut logged: Vec<_> = records
        .iter()
        .flat_map(|record| &record.items)
        .map(|item| (item.id.to_string(), item.submission_id.to_string()))
        .collect();
    let place = |id: &str| ids.iter().position(|own| own == id).unwrap();
    for record in &records {
        assert!(record.items.is_sorted_by_key(|item| place(item.id.as_str())));
    }
    logged.sort_by_key(|(id, _)| place(id));
    let submission = |one: &Value| one["submissionId"].as_str().unwrap().to_owned();
    assert!(logged.into_iter().map(|(_, id)| id).eq(submissions.iter().map(submission)));
}

#[tokio::test]
async fn item_forms_slash_variants_and_empty_batch_are_accepted() {
    let service = service().await;
    let nested = json!({"id": "n", "type": {"id": "versioned", "version": "2026-01", "schemaVariant": "partial"},
        "data": {}});
    for path in [ITEMS, ITEMS.trim_end_matches('/')] {
        let answer = service.post(path, &json!({"items": [nested]})).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let earlier_version = json!({"id": "e", "typeId": "versioned", "typeVersion": "2025-07", "data": {}});
    let answer = service.submit(json!([earlier_version])).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let answer = service.submit(json!([])).await;
    assert_eq!((answer.status.as_u16(), &answer.body), (202, &json!({"submissions": []})));
    let records = service.items().await;
    assert_eq!(records.len(), 3);
    let find_item =
        |id: &str| records.iter().map(|record| &record.items[0]).find(|item| item.id.as_str() == id).unwrap();
    assert_eq!(find_item("e").type_version.as_deref(), Some("2025-07"));
    let item = find_item("n");
    assert_eq!(item.type_version.as_deref(), Some("2026-01"));
    assert_eq!(item.variant, Variant::Partial);
}

#[tokio::test]
async fn newly_added_type_is_read_from_the_store() {
    let service = service().await;
    let before = service.deps.live.org(&service.org).unwrap().version();
    let version = service.apply("item_type: comment\nkind: CONTENT\n").await;
    assert_eq!(service.deps.live.org(&service.org).unwrap().version(), before);
    let answer = service.submit(json!([{"id": "c", "typeId": "comment", "data": {}}])).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(service.items().await[0].config_version, version);
}

#[tokio::test]
async fn large_bodies_are_parsed_on_a_blocking_thread() {
    let service = crate::support::Service::with(|settings, _, _| settings.offload_bytes = 1).await;
    assert_eq!(service.submit(json!([post("a")])).await.status, 202);
    let answer = service.submit(json!([{"id": "b", "typeId": "post", "data": {}}])).await;
    assert_eq!(answer.faults(), ["/items/0/data/text"]);
    assert_eq!(service.items().await.len(), 1);
}

#[tokio::test]
async fn groups_stay_below_their_size() {
    let service = crate::support::Service::with(|settings, _, stream| {
        settings.record_bytes = 2_000;
        stream.partitions = Some(1);
    })
    .await;
    let text = "x".repeat(500);
    let items =
        (0..10).map(|n| json!({"id": n.to_string(), "typeId": "post", "data": {"text": text}})).collect();
    assert_eq!(service.submit(items).await.status, 202);
    let records = service.items().await;
    assert!(records.iter().map(|record| record.items.len()).eq([3, 3, 3, 1]));
    let order = records.iter().flat_map(|record| &record.items).map(|item| item.id.to_string());
    assert!(order.eq((0..10).map(|n: i32| n.to_string())));
}
