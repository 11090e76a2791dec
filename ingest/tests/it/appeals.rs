//! Appeals and the uniqueness of `appealId`.

use serde_json::json;
use tidegate_moderation::review::appeals::claim;
use tidegate_schemas::{
    ids::{AppealId, Millis},
    json::scan,
};

use crate::support::{APPEAL, appeal, service};

#[tokio::test]
async fn appeal_is_claimed_appended_and_answered_with_204() {
    let service = service().await;
    let answer = service.post(APPEAL, &appeal("a-1")).await;
    assert_eq!((answer.status.as_u16(), &answer.body), (204, &json!(null)));
    let appeals = service.appeals().await;
    assert_eq!(appeals.len(), 1);
    assert_eq!(appeals[0].org, service.org);
}

#[tokio::test]
async fn repeated_appeal_is_appended_again() {
    let service = service().await;
    for path in [APPEAL, "/api/v1/report/appeal/"] {
        assert_eq!(service.post(path, &appeal("a-1")).await.status, 204);
    }
    // A different key order is the same content.
    let sorted = r#"{"actionsTaken":["limit_reach"],"actionedItem":{"data":{"text":"hello"},"typeId":"post","id":"p-1"},
        "appealedAt":"2026-01-02T03:04:05.006Z","appealedBy":{"typeId":"user","id":"u-1"},"appealId":"a-1"}"#;
    assert_eq!(service.post_text(APPEAL, sorted).await.status, 204);
    let appeals = service.appeals().await;
    assert_eq!(appeals.len(), 3);
    assert!(appeals.iter().all(|one| one.item.submission_id == appeals[0].item.submission_id));
}

#[tokio::test]
async fn changed_appeal_under_the_same_id_is_refused() {
    let service = service().await;
    assert_eq!(service.post(APPEAL, &appeal("a-1")).await.status, 204);
    let mut changed_appeal = appeal("a-1");
    changed_appeal["appealReason"] = json!("and another thing");
    let answer = service.post(APPEAL, &changed_appeal).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.faults(), ["/appealId"]);
    let tags = &answer.body["errors"][0]["type"];
    assert_eq!(tags, &json!(["/errors/unique-violation", "/errors/invalid-user-input"]));
    assert_eq!(service.appeals().await.len(), 1);
    changed_appeal["appealId"] = json!("a-2");
    assert_eq!(service.post(APPEAL, &changed_appeal).await.status, 204);
}

#[tokio::test]
async fn appeal_of_an_unknown_action_is_accepted_with_a_warning() {
    let service = service().await;
    let mut request = appeal("a-1");
    request["actionsTaken"] = json!(["limit_reach", "limit_raech", "gone\"\u{e9}"]);
    let answer = service.post(APPEAL, &request).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let warnings: Vec<_> = answer.headers("warning");
    assert_eq!(
        warnings,
        [
            "299 tidegate \"/actionsTaken/1: unknown action, did you mean limit_reach?\"",
            "299 tidegate \"/actionsTaken/2: unknown action\"",
        ]
    );
    let appeals = service.appeals().await;
    let are_configured: Vec<_> = appeals[0].actions_taken.iter().map(|action| action.known).collect();
    assert_eq!(are_configured, [true, false, false], "the record keeps all actions");
    let answer = service.post(APPEAL, &appeal("a-2")).await;
    assert!(answer.headers("warning").is_empty(), "{answer:?}");
}

#[tokio::test]
async fn appeal_claimed_without_append_is_appended_by_the_retry() {
    let service = service().await;
    let body = appeal("a-1").to_string();
    let digest = scan(body.as_bytes()).unwrap().root(body.as_bytes()).digest();
    // State after a crash between claim and append.
    let store = &service.deps.store;
    assert!(claim(store, &service.org, &AppealId::new("a-1"), &digest, Millis(1)).await.unwrap());
    service.assert_nothing_appended().await;
    assert_eq!(service.post_text(APPEAL, body).await.status, 204);
    assert_eq!(service.appeals().await.len(), 1);
}
