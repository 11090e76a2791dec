//! Every field of SPEC 2.1 to 2.7 is in the record with its own value.

use serde_json::json;
use tidegate_schemas::{ids::ItemKey, records::Variant};

use crate::support::{APPEAL, REPORT, service};

fn text(data: &[u8]) -> String {
    String::from_utf8(data.to_vec()).unwrap()
}

#[tokio::test]
async fn every_field_of_an_item_is_in_its_record() {
    let service = service().await;
    let data = json!({
        "text": "words", "title": "head", "author": {"id": "u-7", "typeId": "user"},
        "images": ["https://cdn.example/1.jpg"], "createdAt": "2026-01-01T00:00:00.001Z", "likes": 12.5,
    });
    let item = json!({
        "id": "i-1", "typeId": "post", "data": data, "typeVersion": "1", "typeSchemaVariant": "partial",
    });
    let answer = service.submit(json!([item])).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let record = service.items().await.remove(0).items.remove(0);
    assert_eq!((record.id.as_str(), record.type_id.as_str()), ("i-1", "post"));
    assert_eq!(record.type_version.as_deref(), Some("1"));
    assert_eq!(record.variant, Variant::Partial);
    assert_eq!(text(&record.data), data.to_string());
}

#[tokio::test]
async fn every_field_of_a_report_is_in_its_record() {
    let service = service().await;
    let policies = service.get("/api/v1/policies/").await.body;
    let policy = policies["policies"][0]["id"].as_str().unwrap();
    let body = json!({
        "reporter": {"kind": "user", "id": "r-1", "typeId": "user"},
        "reportedAt": "2026-01-02T03:04:05.006Z",
        "reportedItem": {"id": "i-1", "typeId": "post", "data": {"text": "main"}, "typeVersion": "1",
            "typeSchemaVariant": "original"},
        "reportedForReason": {"policyId": policy, "reason": "it is a scam", "csam": true},
        "reportedItemThread": [
            {"id": "t-1", "typeId": "post", "data": {"text": "first"}},
            {"id": "t-2", "typeId": "post", "data": {"text": "second"}, "typeVersion": "1",
                "typeSchemaVariant": "original"},
        ],
        "reportedItemsInThread": [{"id": "t-2", "typeId": "post"}],
        "additionalItems": [{"id": "x-1", "typeId": "versioned", "data": {"text": "more"}}],
    });
    let request = service.request("POST", REPORT).header("x-request-id", "req-9");
    let answer = service.ask(request.body(body.to_string().into()).unwrap()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let report = service.reports().await.remove(0);
    assert_eq!(report.org, service.org);
    assert_eq!(report.request_id, "req-9");
    assert_eq!(report.config_version, service.deps.live.org(&service.org).unwrap().version());
    assert_eq!(report.reporter, ItemKey::new("user", "r-1"));
    assert_eq!(report.reported_at.iso(), "2026-01-02T03:04:05.006Z");
    assert_eq!(report.item.key(), ItemKey::new("post", "i-1"));
    assert_eq!((report.item.type_version.as_deref(), report.item.variant), (Some("1"), Variant::Original));
    assert_eq!(text(&report.item.data), r#"{"text":"main"}"#);
    let mention = report.policy_id.unwrap();
    assert_eq!((&*mention.id, mention.known), (policy, true));
    assert_eq!(report.reason.as_deref(), Some("it is a scam"));
    assert!(report.csam);
    let thread: Vec<_> = report
        .thread
        .iter()
        .map(|item| (item.id.as_str(), item.type_version.as_deref(), item.variant, text(&item.data)))
        .collect();
    assert_eq!(
        thread,
        [
            ("t-1", None, Variant::Partial, r#"{"text":"first"}"#.to_owned()),
            ("t-2", Some("1"), Variant::Original, r#"{"text":"second"}"#.to_owned()),
        ]
    );
    assert!(report.thread.iter().all(|item| item.fault.is_none()));
    assert_eq!(report.reported_in_thread, [ItemKey::new("post", "t-2")]);
    let context_item = &report.additional[0];
    assert_eq!((context_item.id.as_str(), context_item.type_id.as_str()), ("x-1", "versioned"));
    assert_eq!((text(&context_item.data), &context_item.fault), (r#"{"text":"more"}"#.to_owned(), &None));
}

#[tokio::test]
async fn every_field_of_an_appeal_is_in_its_record() {
    let service = service().await;
    let policies = service.get("/api/v1/policies/").await.body;
    let policy = policies["policies"][1]["id"].as_str().unwrap();
    let body = json!({
        "appealId": "ap-1",
        "appealedBy": {"id": "u-3", "typeId": "user"},
        "appealedAt": "2026-03-04T05:06:07.008Z",
        "actionedItem": {"id": "i-2", "typeId": "post", "data": {"text": "mine"}, "typeVersion": "1",
            "typeSchemaVariant": "original"},
        "actionsTaken": ["limit_reach"],
        "appealReason": "I meant it well",
        "violatingPolicies": [{"id": policy}],
        "additionalItems": [{"id": "x-2", "typeId": "post", "data": {"text": "more"}}],
    });
    let answer = service.post(APPEAL, &body).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let appeal = service.appeals().await.remove(0);
    assert_eq!(appeal.org, service.org);
    assert_eq!(appeal.appeal_id.as_str(), "ap-1");
    assert_eq!(appeal.appealed_by, ItemKey::new("user", "u-3"));
    assert_eq!(appeal.appealed_at.iso(), "2026-03-04T05:06:07.008Z");
    assert_eq!(appeal.item.key(), ItemKey::new("post", "i-2"));
    assert_eq!((appeal.item.type_version.as_deref(), appeal.item.variant), (Some("1"), Variant::Original));
    assert_eq!(text(&appeal.item.data), r#"{"text":"mine"}"#);
    let mention_ids = |mentions: &[tidegate_schemas::records::Mention]| {
        mentions.iter().map(|one| (one.id.clone(), one.known)).collect::<Vec<_>>()
    };
    assert_eq!(mention_ids(&appeal.actions_taken), [("limit_reach".to_owned(), true)]);
    assert_eq!(mention_ids(&appeal.violating_policies), [(policy.to_owned(), true)]);
    assert_eq!(appeal.reason.as_deref(), Some("I meant it well"));
    let context_item = &appeal.additional[0];
    assert_eq!(
        (context_item.id.as_str(), text(&context_item.data)),
        ("x-2", r#"{"text":"more"}"#.to_owned())
    );
    assert_eq!(appeal.request_id, answer.header("x-request-id"));
}
