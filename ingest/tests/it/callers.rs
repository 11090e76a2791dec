//! Authorization of callers, before the body is read.

use axum::{
    body::{Body, Bytes},
    http::Request,
};
use futures::stream;
use serde_json::json;
use tidegate_catalog::{Scope, Scopes, orgs};
use tidegate_schemas::ids::{Millis, OrgId};

use crate::support::{APPEAL, ITEMS, POLICIES, REPORT, appeal, make_key, post, report, service};

const ROUTES: [(&str, &str, Scope); 7] = [
    ("POST", ITEMS, Scope::ItemsWrite),
    ("POST", "/api/v1/content/", Scope::ItemsWrite),
    ("POST", REPORT, Scope::ReportsWrite),
    ("POST", APPEAL, Scope::AppealsWrite),
    ("POST", "/api/v1/actions/", Scope::ActionsWrite),
    ("GET", POLICIES, Scope::PoliciesRead),
    ("GET", "/api/v1/items/post/p-1", Scope::ItemsRead),
];

/// Body that never sends a byte.
fn silent_body() -> Body {
    Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>())
}

#[tokio::test]
async fn missing_key_is_answered_before_the_body_is_read() {
    let service = service().await;
    let revoked = service.key_with(&[Scope::ItemsWrite]).await;
    service.deps.keys.revoke(&service.org, revoked.info.id).await.unwrap();
    let forged = {
        let mut key = service.key.clone();
        let last = key.pop().unwrap();
        key.push(if last == '0' { '1' } else { '0' });
        key
    };
    let mut bodies = Vec::new();
    for (method, path, _) in ROUTES {
        for key in [None, Some(""), Some("nonsense"), Some(&*forged), Some(&*revoked.token.reveal())] {
            let mut request = Request::builder().method(method).uri(path).header("x-request-id", "r");
            if let Some(key) = key {
                request = request.header("x-api-key", key);
            }
            let mut answer = service.ask(request.body(silent_body()).unwrap()).await;
            assert_eq!(answer.status, 401, "{path} {answer:?}");
            answer.assert_envelope();
            assert!(answer.header("www-authenticate").contains("X-API-KEY"));
            answer.body.as_object_mut().unwrap().remove("instance");
            bodies.push(answer.body);
        }
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "the answers are equal");
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn key_is_limited_to_its_scopes() {
    let service = service().await;
    for (_, _, own) in ROUTES {
        let key = service.key_with(&[own]).await.token.reveal();
        for (method, path, needed) in ROUTES {
            let request = Request::builder().method(method).uri(path).header("x-api-key", &key);
            let body = if needed == own { Body::empty() } else { silent_body() };
            let answer = service.ask(request.body(body).unwrap()).await;
            assert_eq!(answer.status == 403, needed != own, "{path} with {own:?}: {answer:?}");
            if needed != own {
                assert!(answer.detail().contains(needed.name()), "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_disabled_organisation_is_forbidden() {
    let service = service().await;
    orgs::set_disabled(&service.deps.store, &service.org, Some(Millis(1))).await.unwrap();
    let answer = service.post_text(ITEMS, silent_body()).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    answer.assert_envelope();
}

#[tokio::test]
async fn organisation_is_taken_from_the_key_only() {
    let service = service().await;
    let other_org = OrgId::new("other");
    orgs::create(&service.deps.store, &other_org, "Other", Millis(1)).await.unwrap();
    let key = make_key(&service.deps.keys, &other_org, Scopes::platform()).await.token.reveal();
    let ask = async |path: &str, body: serde_json::Value| {
        let request = Request::builder().method("POST").uri(path).header("x-api-key", &key);
        let request = request.header("content-type", "application/json");
        service.ask(request.body(Body::from(body.to_string())).unwrap()).await
    };
    // The other organisation has no types, so items of the first one are invalid.
    for (path, body) in
        [(ITEMS, json!({"org": "org", "items": [post("a")]})), (REPORT, report()), (APPEAL, appeal("a-1"))]
    {
        assert_eq!(ask(path, body).await.status, 400);
    }
    service.assert_nothing_appended().await;
}
