//! Reports: strict validation of the main item, lenient handling of context.

use serde_json::json;

use crate::support::{APPEAL, REPORT, appeal, report, service};

#[tokio::test]
async fn report_response_has_the_logged_id() {
    let service = service().await;
    for path in [REPORT, "/api/v1/report/"] {
        let answer = service.post(path, &report()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let reports = service.reports().await;
        let logged = reports.last().unwrap();
        assert_eq!(answer.body, json!({"reportId": logged.report_id.to_string()}));
        assert!(!logged.keyed && !logged.item.keyed);
    }
}

#[tokio::test]
async fn partial_main_item_may_lack_required_fields() {
    let service = service().await;
    let partial = json!({"id": "p", "typeId": "post", "typeSchemaVariant": "partial", "data": {}});
    let (mut of_report, mut of_appeal) = (report(), appeal("partial"));
    of_report["reportedItem"] = partial.clone();
    of_appeal["actionedItem"] = partial;
    let answer = service.post(REPORT, &of_report).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let answer = service.post(APPEAL, &of_appeal).await;
    assert_eq!(answer.status, 204, "{answer:?}");
}

#[tokio::test]
async fn invalid_context_is_kept_and_marked() {
    let service = service().await;
    let mut body = report();
    body["reportedItemThread"] = json!([
        {"id": "fits", "typeId": "post", "data": {"likes": 1}},
        {"id": "wrong", "typeId": "post", "data": {"likes": "many"}},
        {"id": "unknown", "typeId": "none", "data": {"a": 1}},
        {"id": "old", "typeId": "versioned", "typeVersion": "1", "data": {}},
        {"data": {"text": "no id"}},
    ]);
    body["additionalItems"] = json!([{"id": "no-data", "typeId": "post"}]);
    let answer = service.post(REPORT, &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let report = service.reports().await.remove(0);
    let faults: Vec<_> = report.thread.iter().map(|item| item.fault.as_deref()).collect();
    assert_eq!(faults[0], None);
    for (fault, word) in faults[1..].iter().zip(["likes", "none", "version", "`id` is missing"]) {
        assert!(fault.unwrap().contains(word), "{fault:?}");
    }
    assert!(!faults[1].unwrap().contains("many"), "values are not echoed");
    assert_eq!(&report.thread[1].data[..], br#"{"likes":"many"}"#);
    assert!(report.additional[0].fault.as_deref().unwrap().contains("data"));
}

#[tokio::test]
async fn unreadable_context_members_are_kept_as_sent() {
    let service = service().await;
    let thread = r#"[
        {"id":77,"typeId":"post","data":{"text":"x"}},
        {"id":"a","typeId":"post","typeVersion":5,"typeSchemaVariant":"weird","data":{"text":"x"}},
        {"id":"b","type":{"id":"post", "version":[1.50]},"data":{"text":"x"}},
        {"id":"c","typeId":"post","type":7,"data":"y"},
        {"id":"d","typeId":"post","typeVersion":null,"odd":1}
    ]"#;
    let mut body = report();
    body["reportedItemThread"] = json!([]);
    let body =
        body.to_string().replace(r#""reportedItemThread":[]"#, &format!(r#""reportedItemThread":{thread}"#));
    let answer = service.post_text(REPORT, body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let report = service.reports().await.remove(0);
    let sent_texts: Vec<_> = report.thread.iter().map(|item| item.as_sent.as_deref()).collect();
    let expected_texts = [
        Some(&br#"{"id":77}"#[..]),
        Some(br#"{"typeVersion":5,"typeSchemaVariant":"weird"}"#),
        Some(br#"{"type":{"id":"post", "version":[1.50]}}"#),
        // With `typeId` present, `type` is ignored and `data` is the data itself.
        None,
        None,
    ];
    assert_eq!(sent_texts, expected_texts);
    assert_eq!(&report.thread[3].data[..], br#""y""#);
    assert!(report.thread.iter().all(|item| item.fault.is_some()));
}

#[tokio::test]
async fn unknown_names_are_kept_and_marked() {
    let service = service().await;
    let policies = service.get("/api/v1/policies/").await.body;
    let policy_id = policies["policies"][1]["id"].as_str().unwrap();
    let mut one = report();
    for (id, is_known) in [(policy_id, true), ("gone", false)] {
        one["reportedForReason"] = json!({"policyId": id});
        assert_eq!(service.post(REPORT, &one).await.status, 201);
        let reports = service.reports().await;
        let mention = reports.iter().filter_map(|one| one.policy_id.as_ref()).find(|one| one.id == id);
        assert_eq!(mention.unwrap().known, is_known);
    }
    let mut changed_appeal = appeal("a-1");
    changed_appeal["actionsTaken"] = json!(["limit_reach", "gone"]);
    changed_appeal["violatingPolicies"] = json!([{"id": "gone"}, {"id": policy_id, "name": "Scams"}]);
    assert_eq!(service.post(APPEAL, &changed_appeal).await.status, 204);
    let appeal = service.appeals().await.remove(0);
    assert_eq!(appeal.actions_taken.iter().map(|one| one.known).collect::<Vec<_>>(), [true, false]);
    assert_eq!(appeal.violating_policies.iter().map(|one| one.known).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn policies_named_by_key_are_recorded_by_id() {
    let service = service().await;
    let policies = service.get("/api/v1/policies/").await.body;
    let id = policies["policies"][1]["id"].clone();
    let mut one = report();
    one["reportedForReason"] = json!({"policyId": "scam"});
    assert_eq!(service.post(REPORT, &one).await.status, 201);
    let mention = service.reports().await.remove(0).policy_id.unwrap();
    assert_eq!((json!(mention.id), mention.known), (id.clone(), true));
    let mut changed_appeal = appeal("a-1");
    changed_appeal["violatingPolicies"] = json!([{"id": "scam"}]);
    assert_eq!(service.post(APPEAL, &changed_appeal).await.status, 204);
    let mention = service.appeals().await.remove(0).violating_policies.remove(0);
    assert_eq!((json!(mention.id), mention.known), (id.clone(), true));
    let action =
        json!({"actionId": "limit_reach", "itemId": "p-1", "itemTypeId": "post", "policyIds": ["scam", id]});
    assert_eq!(service.post("/api/v1/actions/", &action).await.status, 202);
    assert_eq!(json!(service.decisions().await.remove(0).policies), json!([id]), "a policy counts once");
}
