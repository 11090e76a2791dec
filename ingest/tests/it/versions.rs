//! Versions of item types: each item is validated against the fields of its version.

use serde_json::{Value, json};

use crate::support::{ITEMS, REPORT, Service, report, service};

fn note(version: &str, data: &Value) -> Value {
    json!({"id": "n-1", "typeId": "note", "typeVersion": version, "data": data})
}

async fn assert_taken(service: &Service, version: &str, data: Value, faults: &[&str]) {
    let answer = service.post(ITEMS, &json!({"items": [note(version, &data)]})).await;
    if faults.is_empty() {
        assert_eq!(answer.status, 202, "{version} {data}: {answer:?}");
    } else {
        assert_eq!(answer.status, 400, "{version} {data}: {answer:?}");
        assert_eq!(answer.faults(), faults, "{version} {data}");
    }
}

#[tokio::test]
async fn item_is_validated_against_its_numbered_version() {
    let service = service().await;
    for fields in [
        "[{name: a, type: STRING, required: true}]",
        "[{name: b, type: NUMBER, required: true}]",
        "[{name: a, type: NUMBER}]",
    ] {
        service.apply(&format!("item_type: note\nkind: CONTENT\nfields: {fields}\n")).await;
    }
    // Another version name with the same fields is another version.
    service.apply("item_type: note\nname: Note\nkind: CONTENT\nfields: [{name: a, type: NUMBER}]\n").await;
    for (version, data, faults) in [
        ("4", json!({"a": 1}), &[][..]),
        ("4", json!({"a": "x"}), &["/items/0/data/a"]),
        ("3", json!({"a": 1}), &[]),
        ("3", json!({"a": "x"}), &["/items/0/data/a"]),
        ("2", json!({"b": 1, "a": "x"}), &[]),
        ("2", json!({"a": 1}), &["/items/0/data/b"]),
        ("1", json!({"a": "x"}), &[]),
        ("1", json!({"b": 1}), &["/items/0/data/a"]),
        ("5", json!({}), &["/items/0/typeVersion"]),
        ("0", json!({}), &["/items/0/typeVersion"]),
    ] {
        assert_taken(&service, version, data, faults).await;
    }
    let mut body = report();
    body["reportedItem"] = note("1", &json!({"a": "x"}));
    body["reportedItemThread"] =
        json!([note("1", &json!({"a": 5})), note("1", &json!({"a": "x", "b": "y"}))]);
    assert_eq!(service.post(REPORT, &body).await.status, 201);
    let report = service.reports().await.remove(0);
    let marked: Vec<_> = report.thread.iter().map(|item| item.fault.is_some()).collect();
    assert_eq!(marked, [true, false]);
    body["reportedItem"] = note("2", &json!({"a": "x"}));
    let answer = service.post(REPORT, &body).await;
    assert_eq!((answer.status.as_u16(), answer.faults()), (400, vec!["/reportedItem/data/b"]));
}

#[tokio::test]
async fn item_is_validated_against_its_named_version() {
    let service = service().await;
    let fields = |kind: &str| format!("fields: [{{name: a, type: {kind}}}]\n");
    let head = "item_type: note\nkind: CONTENT\n";
    service.apply(&format!("{head}version: '2025-01'\n{}", fields("STRING"))).await;
    service
        .apply(&format!("{head}version: '2025-07'\nearlier_versions: ['2025-01']\n{}", fields("NUMBER")))
        .await;
    let newest = "version: '2026-01'\nearlier_versions: ['2025-01', '2025-07', '2024-01']\n";
    service.apply(&format!("{head}{newest}{}", fields("BOOLEAN"))).await;
    for (version, data, faults) in [
        ("2026-01", json!({"a": true}), &[][..]),
        ("2026-01", json!({"a": "x"}), &["/items/0/data/a"]),
        ("2025-07", json!({"a": 5}), &[]),
        ("2025-07", json!({"a": "x"}), &["/items/0/data/a"]),
        ("2025-01", json!({"a": "x"}), &[]),
        ("2025-01", json!({"a": 5}), &["/items/0/data/a"]),
        // The version never existed.
        ("2024-01", json!({"a": true}), &[]),
        ("2023-01", json!({}), &["/items/0/typeVersion"]),
    ] {
        assert_taken(&service, version, data, faults).await;
    }
}
