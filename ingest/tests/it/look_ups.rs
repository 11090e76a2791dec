//! Reading policies and items back.

use axum::body::Body;
use serde_json::json;
use tidegate_schemas::{
    ids::{ConfigVersion, Millis, SubmissionId},
    records::{Source, Variant},
};
use tidegate_store::tables::items::items::{Item, Stage, SubmissionState, write_time};

use crate::support::{POLICIES, Service, service};

/// Stores the row that a processor writes for a submission.
async fn store(service: &Service, id: &str, submission: SubmissionId, at: i64, evaluated: bool) {
    let row = Item {
        org: service.org.clone(),
        type_id: "post".into(),
        item_id: id.into(),
        append_ms: Millis(at),
        offset: at,
        position: 0,
        submission_id: submission,
        source: Source::Api.into(),
        variant: Variant::Original.into(),
        type_version: None,
        data: r#"{"text":"x"}"#.into(),
        state: if evaluated { SubmissionState::Evaluated } else { SubmissionState::Accepted }.into(),
        config_version: ConfigVersion(1),
        request_id: "r".to_owned(),
        received_at: Millis(at),
        evaluated_at: evaluated.then_some(Millis(at)),
        report_id: None,
        matched: "[]".to_owned(),
        errored: "[]".to_owned(),
        actions: "[]".to_owned(),
        media: "[]".to_owned(),
        left_out: None,
        followed_by: None,
    };
    let stage = if evaluated { Stage::Evaluated } else { Stage::Accepted };
    service.deps.store.put_rows(write_time(Millis(at), stage), &[row]).await.unwrap();
}

#[tokio::test]
async fn policies_are_listed_by_creation_with_a_version_etag() {
    let service = service().await;
    let answer = service.get(POLICIES).await;
    assert_eq!(answer.status, 200);
    let policies = answer.body["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 2);
    assert_eq!(policies[0], json!({"id": policies[0]["id"], "name": "safety", "parentId": null}));
    assert_eq!(policies[1], json!({"id": policies[1]["id"], "name": "Scams", "parentId": policies[0]["id"]}));
    let get_with_tag = async |tag: &str| {
        let request = service.request("GET", POLICIES).header("if-none-match", tag);
        service.ask(request.body(Body::empty()).unwrap()).await
    };
    let cached = get_with_tag(answer.header("etag")).await;
    assert_eq!((cached.status.as_u16(), &cached.body), (304, &json!(null)));
    assert_eq!(cached.header("etag"), answer.header("etag"));
    assert_eq!(get_with_tag("\"other\"").await.status, 200);
    assert_eq!(service.get("/api/v1/policies").await.body, answer.body);
}

#[tokio::test]
async fn an_item_is_404_until_a_processor_stored_it() {
    let service = service().await;
    for path in ["/api/v1/items/post/p-1", "/api/v1/items/post/p-1/", "/api/v1/items/post/p-1?wait=5ms"] {
        let answer = service.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        answer.assert_envelope();
    }
    let submission = SubmissionId::random();
    store(&service, "p-1", submission, 10, true).await;
    let answer = service.get("/api/v1/items/post/p-1").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for (key, value) in [
        ("id", json!("p-1")),
        ("typeId", json!("post")),
        ("submissionId", json!(submission.to_string())),
        ("state", json!("evaluated")),
        ("data", json!({"text": "x"})),
        ("matchedRules", json!([])),
        ("actions", json!([])),
        ("media", json!([])),
        ("deliveries", json!([])),
    ] {
        assert_eq!(answer.body[key], value, "{key}");
    }
}

#[tokio::test]
async fn look_up_accepts_a_submission_and_any_character_in_ids() {
    let service = service().await;
    let (old, new) = (SubmissionId::random(), SubmissionId::random());
    store(&service, "a/b c", old, 10, true).await;
    store(&service, "a/b c", new, 20, true).await;
    let path = "/api/v1/items/post/a%2Fb%20c";
    assert_eq!(service.get(path).await.body["submissionId"], new.to_string());
    let by_submission = service.get(&format!("{path}?submission={old}")).await;
    assert_eq!(by_submission.body["submissionId"], old.to_string());
    let unknown = service.get(&format!("{path}?submission={}", SubmissionId::random())).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn a_query_that_cannot_be_read_is_400() {
    let service = service().await;
    for query in ["submission=7", "wait=10", "wait=soon", "wait=1s&wait=2s"] {
        let answer = service.get(&format!("/api/v1/items/post/p-1?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        answer.assert_envelope();
    }
}

#[tokio::test]
async fn a_path_that_is_not_text_is_400_in_the_envelope() {
    let service = service().await;
    for path in ["/api/v1/items/post/a%ff", "/api/v1/items/a%ff/p-1/"] {
        let answer = service.get(path).await;
        assert_eq!(answer.status, 400, "{path}");
        answer.assert_envelope();
    }
}

#[tokio::test]
async fn a_wait_ends_when_the_submission_is_evaluated() {
    let service = service().await;
    let submission = SubmissionId::random();
    store(&service, "p-1", submission, 10, false).await;
    let waiting_look_up = service.get("/api/v1/items/post/p-1?wait=30s");
    let processor = async {
        tokio::task::yield_now().await;
        store(&service, "p-1", submission, 10, true).await;
    };
    let (answer, ()) = futures::join!(waiting_look_up, processor);
    assert_eq!((answer.status.as_u16(), &answer.body["state"]), (200, &json!("evaluated")));
}

#[tokio::test]
async fn wait_is_capped_and_returns_the_current_state() {
    let service = Service::with(|settings, _, _| settings.longest_wait_ms = 20).await;
    store(&service, "p-1", SubmissionId::random(), 10, false).await;
    let answer = service.get("/api/v1/items/post/p-1?wait=1000m").await;
    assert_eq!((answer.status.as_u16(), &answer.body["state"]), (200, &json!("accepted")));
}

#[tokio::test]
async fn stopping_server_ends_waits() {
    let service = Service::with(|settings, _, _| settings.longest_wait_ms = 3_600_000).await;
    store(&service, "p-1", SubmissionId::random(), 10, false).await;
    let stop = async {
        tokio::task::yield_now().await;
        service.stop.cancel();
    };
    let (answer, ()) = futures::join!(service.get("/api/v1/items/post/p-1?wait=60m"), stop);
    assert_eq!((answer.status.as_u16(), &answer.body["state"]), (200, &json!("accepted")));
}
