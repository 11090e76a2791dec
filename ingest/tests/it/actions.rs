//! Actions of a platform: refusals and appended records.

use axum::body::Body;
use serde_json::{Value, json};
use tidegate_schemas::{
    ids::{ItemKey, JobId},
    records::{Decision, Verdict},
};

use crate::support::{POLICIES, Service, service};

const ACTIONS: &str = "/api/v1/actions/";

const WITH_PARAMETERS: &str = "\
action: ban
kind: callback
parameters:
  - {name: hours, type: NUMBER, required: true}
  - {name: why, type: SELECT, options: [spam, scam]}
";

fn action() -> Value {
    json!({"actionId": "limit_reach", "itemId": "p-1", "itemTypeId": "post"})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = action();
    body[key] = value;
    body
}

async fn assert_refused(service: &Service, body: &Value, pointers: &[&str]) {
    let answer = service.post(ACTIONS, body).await;
    assert_eq!(answer.status, 400, "{body}: {answer:?}");
    assert_eq!(answer.faults(), pointers, "{body}");
}

#[tokio::test]
async fn action_is_a_decision_without_a_job() {
    let service = service().await;
    let policies = service.get(POLICIES).await.body;
    let policy = policies["policies"][1]["id"].as_str().unwrap();
    let mut body = action();
    body["policyIds"] = json!([policy]);
    body["note"] = "seen".into();
    body["actorId"] = "bot-7".into();
    body["reportedItems"] = json!([{"id": "p-2", "typeId": "post"}]);
    let answer = service.post(ACTIONS, &body).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let decision = service.decisions().await.remove(0);
    let accepted = json!({"decisionId": decision.decision_id.to_string(), "actionId": "limit_reach",
        "itemId": "p-1", "itemTypeId": "post"});
    assert_eq!(answer.body, json!({"actions": [accepted]}));
    let Decision { org, job_id, verdict, item, actions, policies, reason, decided_by, .. } = decision;
    assert_eq!((org, job_id, verdict), (service.org.clone(), JobId::NONE, Verdict::Act));
    assert_eq!((item, actions), (ItemKey::new("post", "p-1"), vec!["limit_reach".into()]));
    assert_eq!((policies, reason.as_deref()), (vec![policy.into()], Some("seen")));
    assert_eq!((decided_by.as_str(), decision.reported_items), ("bot-7", vec![ItemKey::new("post", "p-2")]));
    assert_eq!(decision.parameters, None);

    assert_eq!(service.post("/api/v1/actions", &action()).await.status, 202);
    let decisions = service.decisions().await;
    let other_decision =
        decisions.iter().find(|candidate| candidate.decision_id != decision.decision_id).unwrap();
    assert_eq!(other_decision.decided_by, "api", "each request is a separate cause");
}

#[tokio::test]
async fn batch_of_actions_is_all_or_nothing_and_bounded() {
    let service = service().await;
    let batch = |count| json!({"actions": vec![action(); count]});
    let answer = service.post(ACTIONS, &batch(1_000)).await;
    assert_eq!(answer.status, 202);
    let mut ids: Vec<_> = service.decisions().await.iter().map(|it| it.decision_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1_000);
    assert_refused(&service, &batch(1_001), &["/actions"]).await;
    let wrong = json!({"actions": [action(), with("actionId", json!("limit_raech")), {"actionId": 1}, 5]});
    assert_refused(
        &service,
        &wrong,
        &["/actions/2/actionId", "/actions/2/itemId", "/actions/2/itemTypeId", "/actions/3"],
    )
    .await;
    assert_eq!(service.post(ACTIONS, &json!({"actions": []})).await.status, 202);
    assert_eq!(service.decisions().await.len(), 1_000);
}

#[tokio::test]
async fn action_with_an_unknown_name_is_refused_at_its_member() {
    let service = service().await;
    service.apply(WITH_PARAMETERS).await;
    for (body, pointer) in [
        (json!([]), ""),
        (json!({"actionId": "limit_reach", "actions": []}), "/actionId"),
        (json!({"note": "both forms", "actions": [action()]}), "/note"),
        (with("actionId", json!("limit_raech")), "/actionId"),
        (with("itemTypeId", json!("psot")), "/itemTypeId"),
        (with("itemId", json!("")), "/itemId"),
        (with("policyIds", json!(["none"])), "/policyIds/0"),
        (with("parameters", json!({"hours": 1})), "/parameters"),
        (with("parameters", json!([])), "/parameters"),
        (with("note", json!("x".repeat(5_001))), "/note"),
        (with("reportedItems", json!([{"id": "p"}])), "/reportedItems/0/typeId"),
    ] {
        assert_refused(&service, &body, &[pointer]).await;
    }
    let ban = |parameters: Value| json!({"actionId": "ban", "itemId": "p", "itemTypeId": "post", "parameters": parameters});
    for parameters in [
        json!({}),
        json!({"hours": "long"}),
        json!({"hours": 1, "why": "other"}),
        json!({"hours": 1, "x": 1}),
    ] {
        assert_refused(&service, &ban(parameters), &["/parameters"]).await;
    }
    assert!(service.decisions().await.is_empty());
    assert_eq!(service.post(ACTIONS, &ban(json!({"hours": 1, "why": "spam"}))).await.status, 202);
    let decision = service.decisions().await.remove(0);
    let parameters: Value = serde_json::from_str(decision.parameters.as_deref().unwrap()).unwrap();
    assert_eq!(parameters, json!({"ban": {"hours": 1, "why": "spam"}}));
}

#[tokio::test]
async fn repeated_actions_under_a_key_have_the_same_ids() {
    let service = service().await;
    let both = json!({"actions": [action(), action()]});
    let first = service.post_keyed(ACTIONS, "k-1", &both).await.body;
    assert_ne!(first["actions"][0]["decisionId"], first["actions"][1]["decisionId"]);
    assert_eq!(service.post_keyed(ACTIONS, "k-1", &both).await.body, first);
    let other_key = service.post_keyed(ACTIONS, "k-2", &both).await.body;
    assert_ne!(other_key["actions"][0]["decisionId"], first["actions"][0]["decisionId"]);
}

#[tokio::test]
async fn actions_of_an_organisation_stay_its_own() {
    let service = service().await;
    let other_org = service.other_org().await;
    service.apply("action: secret\nkind: callback\n").await;
    let send = async |body: &Value| {
        let mut request = service
            .request("POST", ACTIONS)
            .header("idempotency-key", "k")
            .body(Body::from(body.to_string()))
            .unwrap();
        request.headers_mut().insert("x-api-key", other_org.parse().unwrap());
        service.ask(request).await
    };
    let answer = send(&with("actionId", json!("secret"))).await;
    assert_eq!((answer.status.as_u16(), answer.faults()), (400, vec!["/actionId"]));
    let policies = service.get(POLICIES).await.body;
    let answer = send(&with("policyIds", json!([policies["policies"][0]["id"]]))).await;
    assert_eq!((answer.status.as_u16(), answer.faults()), (400, vec!["/policyIds/0"]));
    let theirs = send(&action()).await;
    assert_eq!(theirs.status, 202);
    assert_eq!(service.decisions().await.remove(0).org.as_str(), "other");
    let own_answer = service.post_keyed(ACTIONS, "k", &action()).await;
    assert_ne!(own_answer.body["actions"][0]["decisionId"], theirs.body["actions"][0]["decisionId"]);
}
