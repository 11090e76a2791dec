//! Requests for items: valid answers, invalid answers, and no answer.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::receiver::{NOW, Receiver, Step, demanding, ending_soon, patient, write};
use http::HeaderMap;
use tidegate_egress::partial_items::{
    Answer, ErrorKind, PartialItemsError, PartialItemsRequest, UsualCause, fetch_items,
};
use tidegate_egress::settings::PartialItemsSettings;
use tidegate_egress::settings::partial_items::Endpoint;
use tidegate_egress::signature::{self, Secret};
use tidegate_egress::{Client, Settings};
use tidegate_schemas::ids::ItemKey;
use tidegate_schemas::records::Variant;
use tidegate_schemas::wire::Limits;

fn request(url: &str) -> PartialItemsRequest {
    PartialItemsRequest {
        endpoint: Endpoint {
            url: url.to_owned(),
            headers: vec![("X-Own".to_owned(), "own value".to_owned())],
        },
        id: "request-1".to_owned(),
        items: ["a", "b", "c"].map(|id| ItemKey::new("post", id)).to_vec(),
        secrets: vec![Secret::generate([7; 32])],
        limits: Limits { data_bytes: 100, ..Limits::default() },
    }
}

async fn ask(settings: Settings, url: &str) -> Result<Answer, PartialItemsError> {
    let client = Client::new(settings).unwrap();
    let request = request(url);
    let result = tokio::time::timeout(Duration::from_secs(50), fetch_items(&client, &request, NOW));
    result.await.expect("the request hangs").unwrap()
}

async fn answered(body: &str) -> Result<Answer, PartialItemsError> {
    let receiver = Receiver::answering("200 OK", body).await;
    ask(patient(), &receiver.url()).await
}

#[tokio::test]
async fn request_is_signed_and_names_the_items() {
    let receiver = Receiver::answering("200 OK", r#"{"items": []}"#).await;
    let answer = ask(patient(), &receiver.url()).await.unwrap();
    assert_eq!((answer.status, answer.missing.len()), (200, 3));
    let request_text = receiver.request();
    let (head, body) = request_text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hook?token=in-the-query HTTP/1.1\r\n"), "{head}");
    let headers: HeaderMap = head
        .lines()
        .skip(1)
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
        .collect();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let item = |id: &str| serde_json::json!({"id": id, "typeId": "post"});
    assert_eq!(body, serde_json::json!({"items": [item("a"), item("b"), item("c")]}));
    for (name, value) in [
        ("content-type", "application/json"),
        ("webhook-id", "request-1"),
        ("webhook-timestamp", "1795255200"),
        ("x-own", "own value"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(headers["webhook-signature"].to_str().unwrap().starts_with("v1,"));
    let (_, body) = request_text.split_once("\r\n\r\n").unwrap();
    assert_eq!(signature::verify(&headers, body.as_bytes(), &[Secret::generate([7; 32])], NOW, 0), Ok(()));
}

#[tokio::test]
async fn byte_order_mark_before_the_answer_is_skipped() {
    let answer =
        answered("\u{feff}{\"items\": [{\"id\": \"a\", \"typeId\": \"post\", \"data\": {}}]}").await.unwrap();
    assert_eq!((answer.entries.len(), answer.missing.len()), (1, 2));
    let page = answered("\u{feff}<!doctype html><p>Sign in</p>").await.unwrap_err();
    assert!(
        matches!(page.error, ErrorKind::InvalidResponse { cause: Some(UsualCause::HtmlPage), .. }),
        "{page}"
    );
}

#[tokio::test]
async fn flat_and_nested_entries_are_read_and_others_dropped() {
    let answer = answered(
        r#"{"next": 1, "items": [
            {"id": "a", "typeId": "post", "typeVersion": "3", "data": {"text": "x"}, "extra": true},
            {"id": "b", "type": {"id": "post", "version": "4", "schemaVariant": "original"}, "data": {}},
            {"id": "a", "typeId": "post", "data": {"text": "second"}},
            {"id": "a", "typeId": "comment", "data": {}},
            {"id": "z", "typeId": "post", "data": {}}
        ]}"#,
    )
    .await
    .unwrap();
    let [a, b] = &answer.entries[..] else { panic!("{answer:?}") };
    assert_eq!((a.item.variant, a.item.type_version.as_deref()), (Variant::Partial, Some("3")));
    assert_eq!((a.item.data.as_ref(), a.faults.len()), (br#"{"text": "x"}"#.as_slice(), 1));
    assert!(a.faults[0].contains("more than once") && a.is_usable);
    assert_eq!((b.item.variant, b.item.type_version.as_deref()), (Variant::Original, Some("4")));
    assert_eq!((b.item.data.as_ref(), b.faults.len()), (b"{}".as_slice(), 0));
    assert_eq!((answer.dropped, answer.missing.as_slice()), (2, &[ItemKey::new("post", "c")][..]));
}

#[tokio::test]
async fn oversized_entry_does_not_affect_others() {
    let long = "x".repeat(200);
    let body = format!(
        r#"{{"items": [{{"id": "a", "typeId": "post", "data": {{"text": "{long}"}}}},
            {{"id": "b", "typeId": "post", "data": {{}}}}]}}"#
    );
    let answer = answered(&body).await.unwrap();
    let usable: Vec<_> = answer.entries.iter().map(|entry| entry.is_usable).collect();
    assert_eq!(usable, [false, true]);
    assert!(answer.entries[0].faults[0].contains("at most 100"), "{answer:?}");
}

#[tokio::test]
async fn malformed_answer_names_the_faulty_field() {
    for (body, place) in [
        (r#"{"items": [{"id": "a", "typeId": "post"}]}"#, "`data` is missing"),
        (r#"{"items": [{"id": 7, "typeId": "post", "data": {}}]}"#, "/items/0/id"),
        (r#"{"items": [{"id": "a", "typeId": null, "data": {}}]}"#, "/items/0/typeId"),
        (r#"{"items": [{"id": "a", "typeId": "post", "data": []}]}"#, "/items/0/data"),
        (r#"{"items": {}}"#, "/items"),
        (r#"{"data": []}"#, "`items` is missing"),
        ("[]", "must be an object"),
        ("not json", ""),
    ] {
        let error = answered(body).await.unwrap_err();
        assert_eq!(
            (error.error.name(), error.status),
            ("PartialItemsInvalidResponseError", Some(200)),
            "{body}"
        );
        let text = error.to_string();
        assert!(text.contains(place) && !error.error.is_transient(), "{text}");
    }
}

#[tokio::test]
async fn unreadable_body_shows_its_beginning_and_the_usual_cause() {
    let entry = r#"{"items": [{"id": "a", "typeId": "post", "data": {}}]}"#;
    for (body, cause, prefix) in [
        (format!("null{entry}"), UsualCause::WrittenTwice, r#"null{\"items\""#),
        (format!("null\n{entry}"), UsualCause::WrittenTwice, r"null\n{"),
        (format!("{entry}{entry}"), UsualCause::WrittenTwice, "{"),
        ("<!DOCTYPE html>\n<html>visit\u{1b}[31m</html>".to_owned(), UsualCause::HtmlPage, r"visit\x1b[31m"),
        (String::new(), UsualCause::Empty, "\"\""),
    ] {
        let error = answered(&body).await.unwrap_err();
        let ErrorKind::InvalidResponse { cause: found, .. } = error.error else { panic!("{error}") };
        assert_eq!(found, Some(cause), "{body}");
        assert!(error.to_string().contains(prefix), "{error}");
    }
    let error = answered(&format!("<html>{}", "x".repeat(10_000))).await.unwrap_err();
    assert!(error.to_string().len() < 600, "the error contains only a prefix of the body");
}

#[tokio::test]
async fn other_status_is_an_endpoint_response_error() {
    for (head, status, is_transient) in [
        ("500 Internal Server Error", 500, true),
        ("401 Unauthorized", 401, false),
        ("302 Found\r\nlocation: http://127.0.0.1/", 302, false),
        ("429 Too Many Requests", 429, true),
    ] {
        let receiver = Receiver::answering(head, r#"{"items": []}"#).await;
        let error = ask(patient(), &receiver.url()).await.unwrap_err();
        assert_eq!(error.error, ErrorKind::EndpointResponse { status });
        assert_eq!((error.status, error.error.is_transient()), (Some(status), is_transient));
        assert_eq!(receiver.log.connections(), 1, "a request with an answer is not repeated");
    }
}

#[tokio::test]
async fn closed_connection_is_retried_once() {
    for script in [vec![Step::Read], vec![Step::Read, Step::Reset]] {
        let receiver = Receiver::start(script).await;
        let error = ask(patient(), &receiver.url()).await.unwrap_err();
        assert_eq!(error.error.name(), "PartialItemsEndpointUnreachableError");
        assert_eq!(receiver.log.connections(), 2);
    }
}

#[tokio::test]
async fn silent_or_slow_endpoint_is_unreachable_within_its_time() {
    let limited = |total_ms| Settings {
        partial_items: PartialItemsSettings { total_ms, ..PartialItemsSettings::default() },
        ..ending_soon()
    };
    let body =
        |bytes: &str| Step::Drip(format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{bytes}").into());
    for script in [vec![Step::Read, Step::Hang], vec![Step::Read, body("{ ")]] {
        let receiver = Receiver::start(script).await;
        let error = ask(limited(700), &receiver.url()).await.unwrap_err();
        assert_eq!(error.error.name(), "PartialItemsEndpointUnreachableError");
        assert!(error.took >= Duration::from_millis(650) && error.error.is_transient(), "{error:?}");
        assert_eq!(receiver.log.connections(), 1, "a request to a silent endpoint is not repeated");
    }
    let receiver = Receiver::start(vec![Step::Read, body("{ ")]).await;
    let error = ask(demanding(), &receiver.url()).await.unwrap_err();
    assert_eq!(error.status, Some(200), "the body is below the minimum rate: {error}");
}

#[tokio::test]
async fn answer_without_end_is_cut_off() {
    let head = write("HTTP/1.1 200 OK\r\ncontent-length: 52428800\r\n\r\n{\"items\": [");
    let receiver = Receiver::start(vec![Step::Read, head, Step::Endless(vec![b' '; 64 * 1024])]).await;
    let error = ask(patient(), &receiver.url()).await.unwrap_err();
    assert_eq!(error.error.name(), "PartialItemsInvalidResponseError");
    assert!(error.to_string().contains("longer than 8388608 bytes"), "{error}");
    assert!(
        receiver.log.written.load(Ordering::SeqCst) < 48 << 20,
        "the client does not read the remaining bytes"
    );
}

#[tokio::test]
async fn internal_address_is_not_called() {
    let receiver = Receiver::answering("200 OK", r#"{"items": []}"#).await;
    let error = ask(Settings::default(), &receiver.url()).await.unwrap_err();
    assert_eq!((error.error.name(), error.status), ("PartialItemsEndpointUnreachableError", None));
    assert!(!error.error.is_transient());
    assert_eq!(receiver.log.connections(), 0);
}
