//! Lenient forms of existing clients: each is accepted, ignored, or refused.

use serde_json::{Value, json};

use crate::support::{APPEAL, ITEMS, REPORT, appeal, post, report, service};

/// Documents with optional fields, and with the same fields required.
const TYPES: &str = "\
item_type: loose
kind: CONTENT
fields:
  - {name: flag, type: BOOLEAN}
  - {name: user, type: USER_ID}
  - {name: count, type: NUMBER}
  - {name: place, type: GEOHASH}
  - {name: address, type: IP_ADDRESS}
  - {name: mail, type: EMAIL_ADDRESS}
---
item_type: needing
kind: CONTENT
fields:
  - {name: flag, type: BOOLEAN, required: true}
  - {name: user, type: USER_ID, required: true}
  - {name: count, type: NUMBER, required: true}
  - {name: place, type: GEOHASH, required: true}
  - {name: address, type: IP_ADDRESS, required: true}
  - {name: mail, type: EMAIL_ADDRESS, required: true}
";

/// Outcome of a form.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Taken,
    Absent,
    Refused,
}

/// Returns the body with one member set.
fn with(mut body: Value, key: &str, value: Value) -> Value {
    body[key] = value;
    body
}

fn item(change: &Value) -> Value {
    let mut item = post("p-1");
    item.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    item
}

#[tokio::test]
async fn lenient_request_forms_are_accepted() {
    let service = service().await;
    let thread: Vec<_> = (0..1_000).map(|n| post(&n.to_string())).collect();
    let too_many_items: Vec<_> = (0..1_001).map(|n| post(&n.to_string())).collect();
    let reporter = |type_id: &str| json!({"kind": "user", "id": "u", "typeId": type_id});
    let user = |type_id: &str| json!({"id": "u", "typeId": type_id});
    let items = |change: &Value| json!({"items": [item(change)]});
    let rows = [
        ("reporter of an unknown type", REPORT, with(report(), "reporter", reporter("none")), 201),
        ("reporter of no type of users", REPORT, with(report(), "reporter", reporter("post")), 201),
        ("appeal of an unknown type", APPEAL, with(appeal("a-1"), "appealedBy", user("none")), 204),
        ("appeal of no type of users", APPEAL, with(appeal("a-2"), "appealedBy", user("post")), 204),
        ("type beside typeId, text", ITEMS, items(&json!({"type": "post"})), 202),
        ("type beside typeId, null", ITEMS, items(&json!({"type": null})), 202),
        ("type beside typeId, object", ITEMS, items(&json!({"type": {"name": "Post"}})), 202),
        ("type beside typeId, another type", ITEMS, items(&json!({"type": {"id": "none"}})), 202),
        (
            "type beside typeVersion, null",
            ITEMS,
            json!({"items": [{"id": "n-1", "type": {"id": "post", "version": null}, "typeVersion": null,
                "typeSchemaVariant": null, "data": {"text": "x"}}]}),
            202,
        ),
        (
            "type beside typeVersion, text",
            ITEMS,
            json!({"items": [{"id": "n-2", "type": {"id": "post"}, "typeVersion": "1", "data": {"text": "x"}}]}),
            400,
        ),
        (
            "type beside typeId in a report",
            REPORT,
            with(report(), "reportedItem", item(&json!({"type": "post"}))),
            201,
        ),
        ("empty policyId", REPORT, with(report(), "reportedForReason", json!({"policyId": ""})), 201),
        ("empty id of a policy", APPEAL, with(appeal("a-3"), "violatingPolicies", json!([{"id": ""}])), 204),
        ("1,000 thread entries", REPORT, with(report(), "reportedItemThread", thread.into()), 201),
        ("1,001 thread entries", REPORT, with(report(), "reportedItemThread", too_many_items.into()), 400),
        ("date without a time", REPORT, with(report(), "reportedAt", json!("2024-01-15")), 201),
        (
            "date without a time in an appeal",
            APPEAL,
            with(appeal("a-4"), "appealedAt", json!("2024-01-15")),
            204,
        ),
        ("no date", REPORT, with(report(), "reportedAt", json!("15.01.2024")), 400),
        ("empty id of an item", ITEMS, items(&json!({"id": ""})), 400),
    ];
    for (name, path, body, status) in rows {
        let answer = service.post(path, &body).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
    let mark = format!("\u{feff}{}", json!({"items": [post("p-1")]}));
    assert_eq!(service.post_text(ITEMS, mark).await.status, 202, "byte order mark");

    let reports = service.reports().await;
    assert!(reports.iter().all(|report| report.policy_id.is_none()), "an empty policy is absent");
    assert_eq!(reports.last().unwrap().reported_at.iso(), "2024-01-15T00:00:00.000Z");
    let appeals = service.appeals().await;
    assert!(appeals.iter().all(|appeal| appeal.violating_policies.is_empty()));
    assert_eq!(appeals.last().unwrap().appealed_at.iso(), "2024-01-15T00:00:00.000Z");
    for record in service.items().await {
        assert!(record.items.iter().all(|item| item.type_id.as_str() == "post"), "the flat form counts");
    }
}

#[tokio::test]
async fn lenient_value_forms_are_accepted_or_ignored() {
    let service = service().await;
    service.apply(TYPES).await;
    let rows = [
        ("flag", json!("True"), Form::Taken),
        ("flag", json!("FALSE"), Form::Taken),
        ("flag", json!("yes"), Form::Refused),
        ("user", json!("u-1"), Form::Taken),
        ("user", json!({"id": "u-1", "typeId": "user"}), Form::Taken),
        ("user", json!({"id": "u-1"}), Form::Refused),
        ("count", json!(""), Form::Absent),
        ("count", json!("  "), Form::Absent),
        ("count", json!("0x10"), Form::Refused),
        ("place", json!("u4pruydqqvj8zz"), Form::Taken),
        ("place", json!("u4pruydqqvj8-"), Form::Refused),
        ("address", json!("  "), Form::Absent),
        ("address", json!("fe80::1%eth0"), Form::Taken),
        ("address", json!("eth0"), Form::Refused),
        ("mail", json!(""), Form::Absent),
    ];
    let valid_data = json!({
        "flag": true, "user": "u", "count": 1, "place": "u4pru", "address": "203.0.113.7", "mail": "a@b.example",
    });
    for (field, value, form) in rows {
        let optional = json!({"id": "i", "typeId": "loose", "data": {(field): value}});
        let required =
            json!({"id": "i", "typeId": "needing", "data": with(valid_data.clone(), field, value.clone())});
        let statuses = match form {
            Form::Taken => [202, 202],
            Form::Absent => [202, 400],
            Form::Refused => [400, 400],
        };
        for (item, status) in [optional, required].into_iter().zip(statuses) {
            let answer = service.submit(json!([item])).await;
            assert_eq!(answer.status, status, "{field} {value}: {answer:?}");
            if status == 400 {
                let at = format!("/items/0/data/{field}");
                assert!(answer.faults().iter().all(|fault| fault.starts_with(&at)), "{answer:?}");
            }
        }
    }
}
