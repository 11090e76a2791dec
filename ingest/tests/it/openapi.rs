//! The published API description: served without a key, with the routes and scopes of the router.

use std::collections::BTreeSet;

use axum::{body::Body, http::Request};
use http_body_util::BodyExt;
use serde_json::Value;
use tidegate_catalog::Scope;
use tidegate_schemas::openapi::DOCUMENT;
use tidegate_test_support::openapi::contract;
use tower::ServiceExt;

use crate::support::{Service, service};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Replaces parameter names of a path, so paths with different names compare equal.
fn shape(path: &str) -> String {
    let parts = path.trim_end_matches('/').split('/');
    parts.map(|part| if part.starts_with('{') { "{}" } else { part }).collect::<Vec<_>>().join("/")
}

/// Collects the paths of the router from the literals of its array of routes.
fn collect_routes() -> BTreeSet<String> {
    let code = include_str!("../../src/lib.rs");
    let array = code.split_once("let routes: [").unwrap().1.split_once("];").unwrap().0;
    let literals = array.split('"').skip(1).step_by(2);
    literals.filter(|literal| literal.starts_with('/')).map(shape).collect()
}

fn paths() -> impl Iterator<Item = (&'static String, &'static Value)> {
    contract().document()["paths"].as_object().unwrap().iter()
}

/// Returns status, headers and text of a response.
async fn send_raw(service: &Service, method: &str, path: &str, key: &str) -> (u16, String, String) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = if key.is_empty() { request } else { request.header("x-api-key", key) };
    let answer = service.router.clone().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    let headers = format!("{:?}", parts.headers);
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (parts.status.as_u16(), headers, text)
}

#[tokio::test]
async fn routes_and_their_description_are_the_same() {
    let described: BTreeSet<String> = paths().map(|(path, _)| shape(path)).collect();
    assert_eq!(described, collect_routes());
    let service = service().await;
    for (path, operations) in paths() {
        let at = shape(path).replace("{}", "x");
        for method in METHODS {
            let is_described = operations.get(method.to_ascii_lowercase()).is_some();
            for at in [at.clone(), format!("{at}/")] {
                let (status, _, text) = send_raw(&service, method, &at, &service.key).await;
                assert_eq!(status != 405, is_described, "{method} {at}: {status}");
                assert!(!text.contains("No such route."), "{method} {at}");
            }
        }
    }
}

#[tokio::test]
async fn each_route_asks_for_the_described_scope() {
    let service = service().await;
    for (path, operations) in paths() {
        let at = shape(path).replace("{}", "x");
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            let scopes = operation["security"].as_array().unwrap();
            let Some(scope) = scopes.first() else {
                assert_eq!(send_raw(&service, &method, &at, "").await.0, 200, "{method} {at}");
                continue;
            };
            let scope: Scope = scope["apiKey"][0].as_str().unwrap().parse().unwrap();
            let scoped_key = service.key_with(&[scope]).await.token.reveal();
            let other_scopes: Vec<_> =
                Scope::ALL.into_iter().filter(|candidate| *candidate != scope).collect();
            let other_key = service.key_with(&other_scopes).await.token.reveal();
            for (key, is_refused) in [(scoped_key, false), (other_key, true)] {
                let status = send_raw(&service, &method, &at, &key).await.0;
                assert_eq!(status == 403, is_refused, "{method} {at}: {status}");
                assert_ne!(status, 401, "{method} {at}");
            }
        }
    }
}

#[tokio::test]
async fn document_and_page_are_served_without_a_key() {
    let service = service().await;
    let (status, headers, text) = send_raw(&service, "GET", "/openapi.json", "").await;
    assert_eq!((status, text.as_str()), (200, DOCUMENT));
    assert!(headers.contains("application/json"), "{headers}");

    let (status, headers, page) = send_raw(&service, "GET", "/docs", "").await;
    assert_eq!(status, 200);
    assert!(headers.contains("text/html") && headers.contains("default-src 'none'"), "{headers}");
    for (path, _) in paths() {
        assert!(page.contains(&format!(" {path}</code>")), "{path} is not on the page");
    }
    for webhook in contract().document()["webhooks"].as_object().unwrap().keys() {
        assert!(page.contains(&format!("POST {webhook}</code>")), "{webhook} is not on the page");
    }
    for outside in ["<script", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}
