//! The span that every log line of a request carries.

use axum::body::Body;
use serde_json::{Value, json};
use tidegate_test_support::Written;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::support::{ITEMS, post, service};

#[tokio::test]
async fn request_span_has_ids_and_no_content() {
    let service = service().await;
    let span_output = Written::default();
    let to = span_output.clone();
    let lines = tracing_subscriber::fmt()
        .json()
        .with_writer(move || to.clone())
        .with_span_events(FmtSpan::CLOSE)
        .finish();
    let guard = tracing::subscriber::set_default(lines);
    let looked_up = service.request("GET", "/api/v1/items/post/a-private-id?wait=1ms");
    service.ask(looked_up.header("x-request-id", "r-1").body(Body::empty()).unwrap()).await;
    service.post(&format!("{ITEMS}?secret=1"), &json!({"items": [post("another-private-id")]})).await;
    drop(guard);
    let text = span_output.text();
    let spans: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["span"].clone())
        .filter(|span| span["name"] == "request")
        .collect();
    assert_eq!(
        spans[0],
        json!({"name": "request", "request_id": "r-1", "method": "GET", "route": "/api/v1/items/{type_id}/{id}",
            "org": "org"})
    );
    assert_eq!((&spans[1]["route"], &spans[1]["org"]), (&json!(ITEMS), &json!("org")));
    for sent in ["private", "secret", "wait", "hello"] {
        assert!(!text.contains(sent), "{sent} in {text}");
    }
}
