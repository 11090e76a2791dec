//! Callback attempts against receivers that misbehave: each ends by itself, in its documented class, in
//! bounded memory.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::receiver::{
    NOW, Receiver, Step, attempt, attempt_with, callback, demanding, ending_soon, ip, patient, tag, write,
};
use http::{HeaderMap, Method};
use tidegate_egress::client::Request;
use tidegate_egress::signature::{self, Secret};
use tidegate_egress::target::Target;
use tidegate_egress::{Client, Failure};
use tokio::sync::Semaphore;

const OK_OF_TEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n";

#[tokio::test]
async fn callback_is_signed_and_has_its_headers_and_exact_body() {
    let receiver = Receiver::answering("204 No Content", "").await;
    let attempt = attempt(patient(), &receiver.url()).await;
    assert_eq!((attempt.outcome.tag(), attempt.http_status, tag(&attempt)), ("delivered", Some(204), None));
    assert_eq!(attempt.remote_ip, Some(ip("127.0.0.1")));

    let request = receiver.request();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hook?token=in-the-query HTTP/1.1\r\n"), "{head}");
    let headers: HeaderMap = head
        .lines()
        .skip(1)
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
        .collect();
    assert_eq!(body, r#"{"id":"1","name":"Zürich"}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("webhook-id", "00000000-0000-4000-8000-000000000001"),
        ("webhook-timestamp", "1795255200"),
        ("service-event-type", "action.automatic"),
        ("service-attempt", "3"),
        ("accept-encoding", "identity"),
        ("x-own", "own value"),
        ("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
    }
    assert!(headers["webhook-signature"].to_str().unwrap().starts_with("v1,"));
    let secret = Secret::generate([7; 32]);
    assert_eq!(signature::verify(&headers, body.as_bytes(), &[secret], NOW, 0), Ok(()));
}

#[tokio::test]
async fn invalid_callback_is_not_sent() {
    let receiver = Receiver::answering("200 OK", "").await;
    let client = Client::new(patient()).unwrap();
    let mut without_secret = callback(&receiver.url());
    without_secret.secrets.clear();
    let mut forbidden = callback(&receiver.url());
    forbidden.headers = vec![("Service-Signature".to_owned(), "t=1,v1=00".to_owned())];
    let mut split = callback(&receiver.url());
    split.event_type = "a\r\nhost: b".to_owned();
    for (request, expected) in [
        (without_secret, "no_secret"),
        (forbidden, "header_forbidden"),
        (split, "header_value"),
        (callback("ftp://127.0.0.1/"), "url_scheme"),
    ] {
        let error = tidegate_egress::callback::send(&client, &request, NOW).await.unwrap_err();
        assert_eq!(error.tag(), expected);
    }
    assert_eq!(receiver.log.connections(), 0);
}

#[tokio::test]
async fn every_status_ends_in_its_class_and_keeps_the_answer() {
    for (head, class, error) in [
        ("200 OK", "delivered", None),
        ("202 Accepted", "delivered", None),
        ("400 Bad Request", "client_error", Some("http_status")),
        ("401 Unauthorized", "client_error", Some("http_status")),
        ("410 Gone", "gone", Some("http_status")),
        ("429 Too Many Requests", "busy", Some("http_status")),
        ("500 Internal Server Error", "server_error", Some("http_status")),
        ("503 Service Unavailable", "busy", Some("http_status")),
    ] {
        let receiver = Receiver::answering(head, "the answer").await;
        let attempt = attempt(patient(), &receiver.url()).await;
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), (class, error), "{head}");
        assert_eq!(attempt.http_status, head[..3].parse().ok());
        assert_eq!(attempt.response_head, "the answer");
        assert_eq!(receiver.log.connections(), 1);
    }
}

#[tokio::test]
async fn retry_after_is_returned_to_the_caller() {
    for (value, seconds) in [
        ("120", Some(120)),
        ("1000000000", Some(1_000_000_000)),
        ("Sat, 21 Nov 2026 10:01:00 GMT", Some(60)),
        ("soon", None),
    ] {
        let receiver = Receiver::answering(&format!("429 Slow Down\r\nRetry-After: {value}"), "").await;
        let attempt = attempt(patient(), &receiver.url()).await;
        assert_eq!(attempt.retry_after.map(|wish| wish.as_secs()), seconds, "{value}");
    }
}

#[tokio::test]
async fn redirect_of_a_callback_is_a_failure() {
    let inside = Receiver::answering("200 OK", "").await;
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        for location in [inside.url(), "http://169.254.169.254/latest/meta-data/".to_owned()] {
            let receiver = Receiver::answering(&format!("{status}\r\nlocation: {location}"), "").await;
            let attempt = attempt(patient(), &receiver.url()).await;
            assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("redirect", Some("http_status")), "{status}");
        }
    }
    assert_eq!(inside.log.connections(), 0);
}

#[tokio::test]
async fn silent_receiver_is_a_timeout() {
    let scripts = [
        vec![Step::Hang],
        vec![Step::Read, Step::Hang],
        vec![Step::Read, Step::Drip(b"HTTP/1.1 200 OK\r\nx-slow: a".to_vec())],
        vec![Step::Read, write("HTTP/1.1 100 Continue\r\n\r\n"), Step::Hang],
    ];
    let attempts = scripts.map(|script| async {
        let receiver = Receiver::start(script).await;
        attempt(ending_soon(), &receiver.url()).await
    });
    for attempt in futures::future::join_all(attempts).await {
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("unreachable", Some("timeout")));
        assert_eq!(attempt.http_status, None);
    }
}

#[tokio::test]
async fn success_with_a_lost_body_is_delivered() {
    for (script, error) in [
        (vec![write("HTTP/1.1 200 OK\r\n\r\n"), Step::Drip(b"slow".to_vec())], Some("body_timeout")),
        (vec![write(OK_OF_TEN), write("half"), Step::Hang], Some("body_timeout")),
        (vec![write(OK_OF_TEN), write("half")], Some("reset")),
        (vec![write("HTTP/1.1 200 OK\r\n\r\n"), Step::Endless(vec![b'a'; 4096])], None),
    ] {
        let receiver = Receiver::start([vec![Step::Read], script].concat()).await;
        let attempt = attempt(demanding(), &receiver.url()).await;
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("delivered", error));
    }
}

#[tokio::test]
async fn refusal_with_a_lost_body_keeps_its_class() {
    for rest in [Step::Drip(b"slow".to_vec()), Step::Endless(vec![b'a'; 4096]), Step::Hang] {
        let receiver = Receiver::start(vec![Step::Read, write("HTTP/1.1 500 Oh\r\n\r\n"), rest]).await;
        let attempt = attempt(demanding(), &receiver.url()).await;
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("server_error", Some("http_status")));
    }
}

#[tokio::test]
async fn endless_response_is_read_and_stored_within_limits() {
    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n";
    let receiver = Receiver::start(vec![Step::Read, write(head), Step::Endless(vec![b'a'; 65_536])]).await;
    let attempt = attempt(patient(), &receiver.url()).await;
    assert_eq!(attempt.outcome.tag(), "delivered");
    // The body is neither decompressed nor refused for being invalid gzip.
    assert_eq!(attempt.response_head, vec![b'a'; 4096]);
    // Bytes that the receiver sent beyond the limit are in socket buffers.
    assert!(receiver.log.written.load(Ordering::SeqCst) < 64 << 20);
}

#[tokio::test]
async fn endless_response_head_is_refused() {
    let script = vec![
        Step::Read,
        write("HTTP/1.1 200 OK\r\n"),
        Step::Endless(b"x-more: aaaaaaaaaaaa\r\n".repeat(500)),
    ];
    let receiver = Receiver::start(script).await;
    let attempt = attempt(patient(), &receiver.url()).await;
    assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("unreachable", Some("malformed_response")));
    assert!(receiver.log.written.load(Ordering::SeqCst) < 64 << 20);
}

#[tokio::test]
async fn connection_closed_before_the_response_is_reset() {
    for script in [
        vec![],
        vec![Step::Reset],
        vec![Step::Read],
        vec![Step::Read, Step::Reset],
        vec![Step::Read, write("HTTP/1.1 20")],
    ] {
        let receiver = Receiver::start(script).await;
        let attempt = attempt(patient(), &receiver.url()).await;
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("unreachable", Some("reset")));
    }
}

#[tokio::test]
async fn non_http_response_is_malformed() {
    for answer in [
        "220 mail.example ESMTP\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 abc OK\r\n\r\n",
    ] {
        let receiver = Receiver::start(vec![Step::Read, write(answer)]).await;
        let attempt = attempt(patient(), &receiver.url()).await;
        assert_eq!(
            (attempt.outcome.tag(), tag(&attempt)),
            ("unreachable", Some("malformed_response")),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn interim_response_is_skipped() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let receiver = Receiver::start(vec![Step::Read, write(answer)]).await;
    assert_eq!(attempt(patient(), &receiver.url()).await.http_status, Some(204));
}

#[tokio::test]
async fn closed_port_is_connect_refused() {
    // The socket is bound but not listening, so no other process can take the port.
    let holder = tokio::net::TcpSocket::new_v4().unwrap();
    holder.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", holder.local_addr().unwrap());
    let attempt = attempt(patient(), &url).await;
    assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("unreachable", Some("connect_refused")));
    assert_eq!(attempt.error.unwrap().org_tag(), "connect_failed");
}

fn get(client: &Client, url: &str, body_bytes: u64) -> Request {
    Request {
        method: Method::GET,
        target: Target::parse(url).unwrap(),
        headers: HeaderMap::new(),
        body: bytes::Bytes::new(),
        limits: client.limits(Duration::from_secs(50), body_bytes),
    }
}

#[tokio::test]
async fn reset_within_the_body_is_reported() {
    let go = Arc::new(Semaphore::new(0));
    let script = vec![Step::Read, write(OK_OF_TEN), write("half"), Step::Await(Arc::clone(&go)), Step::Reset];
    let receiver = Receiver::start(script).await;
    let client = Client::new(patient()).unwrap();
    let mut response = client.send(get(&client, &receiver.url(), 100)).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "half");
    go.add_permits(1);
    assert_eq!(response.chunk().await, Err(Failure::Reset));
}

#[tokio::test]
async fn body_is_too_large_only_above_the_limit() {
    let client = Client::new(patient()).unwrap();
    let receiver = Receiver::answering("200 OK", "0123456789").await;
    let mut response = client.send(get(&client, &receiver.url(), 10)).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "0123456789");
    assert_eq!(response.chunk().await, Ok(None));
    let mut response = client.send(get(&client, &receiver.url(), 9)).await.unwrap();
    assert_eq!(response.chunk().await, Err(Failure::TooLarge { limit: 9 }));
}

#[tokio::test]
async fn body_below_the_minimum_rate_is_given_up_early() {
    let script = vec![Step::Read, write("HTTP/1.1 200 OK\r\n\r\n"), Step::Drip(b"slow".to_vec())];
    let receiver = Receiver::start(script).await;
    let client = Client::new(demanding()).unwrap();
    let mut request = get(&client, &receiver.url(), 1 << 20);
    request.limits.total = Duration::from_secs(3_600);
    let mut response = client.send(request).await.unwrap();
    let failure = tokio::time::timeout(Duration::from_secs(50), async {
        loop {
            if let Err(failure) = response.chunk().await {
                return failure;
            }
        }
    });
    assert_eq!(failure.await.unwrap(), Failure::BodyTimeout);
}

#[tokio::test]
async fn connection_is_reused_after_a_fully_read_response() {
    let answer = || write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let receiver = Receiver::start(vec![Step::Read, answer(), Step::Read, answer(), Step::Hang]).await;
    let client = Client::new(patient()).unwrap();
    for _ in 0..2 {
        let attempt = attempt_with(&client, &receiver.url()).await.unwrap();
        assert_eq!(attempt.outcome.tag(), "delivered");
    }
    assert_eq!(receiver.log.connections(), 1);
}

#[tokio::test]
async fn errors_contain_no_url_and_no_header() {
    let receiver = Receiver::start(vec![Step::Reset]).await;
    let attempt = attempt(patient(), &receiver.url()).await;
    let debug_output =
        format!("{attempt:?} {} {:?}", attempt.error.as_ref().unwrap(), callback(&receiver.url()));
    for hidden in ["token", "in-the-query", "own value", "whsec_", "Zürich"] {
        assert!(!debug_output.contains(hidden), "{debug_output}");
    }
}
