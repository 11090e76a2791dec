//! The HTTP server through its socket: limits, envelopes, slow and silent clients, both protocols, drains.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;
use tidegate_web::DrainOutcome;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::support::{JSON, LONG_ANSWER, RunningServer, with_length};

#[tokio::test]
async fn bodies_are_read_in_pieces_and_chunks() {
    let server = RunningServer::new(|_| {}).await;
    assert_eq!(server.ask(&with_length(5, "12345")).await.body, "5");
    assert_eq!(server.ask(&with_length(0, "")).await.body, "0");
    let chunked = format!(
        "POST /count HTTP/1.1\r\n{JSON}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    );
    assert_eq!(server.ask(&chunked).await.body, "7");
    let mut client = server.connect().await;
    client.send(with_length(6, "123")).await;
    client.send("456").await;
    assert_eq!(client.answer().await.unwrap().body, "6");
    assert_eq!(server.app.http.body_budget().used_amount(), 0, "the whole budget is released");
}

#[tokio::test]
async fn body_above_the_limit_is_413_announced_or_chunked() {
    let server = RunningServer::new(|settings| settings.body_bytes = 1_000).await;
    // A client that waits for 100 Continue sends no body, so the answer must not wait for one.
    let waiting_request =
        with_length(1_001, "").replacen("content-length", "expect: 100-continue\r\ncontent-length", 1);
    assert_eq!(server.ask(&waiting_request).await.status, 413);
    // A client that announces a body and sends none gets the same answer.
    assert_eq!(server.ask(&with_length(1_001, "")).await.status, 413);
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunked =
        format!("POST /count HTTP/1.1\r\n{JSON}transfer-encoding: chunked\r\n\r\n{}", chunk.repeat(3));
    let answer = server.ask(&chunked).await;
    assert_eq!(answer.status, 413);
    answer.problem();
    assert_eq!(server.app.http.body_budget().used_amount(), 0);
}

/// More bytes than the buffers of both sides of a connection hold.
const LARGE_BODY: usize = 24 << 20;

#[tokio::test]
async fn client_that_reads_after_writing_gets_the_refusal() {
    let server = RunningServer::new(|settings| settings.body_bytes = 1_000).await;
    let announced = with_length(LARGE_BODY, "");
    let chunk = format!("{LARGE_BODY:x}\r\n");
    let chunked = announced.replace(&format!("content-length: {LARGE_BODY}"), "transfer-encoding: chunked");
    for (head, begin, end, status) in [
        (announced.clone(), "", "", 413),
        (chunked.clone(), &*chunk, "\r\n0\r\n\r\n", 413),
        (announced.replace("json", "text"), "", "", 415),
        (announced.replace("/count", "/nowhere"), "", "", 404),
        (chunked.replace("/count", "/nowhere"), &*chunk, "\r\n0\r\n\r\n", 404),
        (announced.replace("/count", "/refused"), "", "", 401),
        (announced.replace("/count", "/broken").replace("POST", "GET"), "", "", 500),
    ] {
        let mut client = server.connect().await;
        client.send(&head).await;
        client.send(begin).await;
        client.send(vec![b'x'; LARGE_BODY]).await;
        client.send(end).await;
        assert_eq!(client.answer().await.unwrap().status, status, "{head}");
        // The connection stays usable.
        client.send(with_length(3, "abc")).await;
        assert_eq!(client.answer().await.unwrap().body, "3", "{head}");
    }
}

#[tokio::test]
async fn refusal_is_sent_before_the_body_arrives() {
    let server = RunningServer::new(|settings| {
        (settings.body_bytes, settings.discard_pause_ms, settings.body_read_ms) = (1_000, 60_000, 120_000);
    })
    .await;
    for length in [1, 12, 16_000, LARGE_BODY] {
        let mut client = server.connect().await;
        client.send(with_length(length, "").replace("/count", "/refused")).await;
        assert_eq!(client.answer().await.unwrap().status, 401);
        client.send(vec![b'x'; length]).await;
        client.send(with_length(3, "abc")).await;
        assert_eq!(client.answer().await.unwrap().body, "3", "{length}");
    }
}

#[tokio::test]
async fn stop_does_not_wait_for_answered_or_incomplete_requests() {
    let server = RunningServer::new(|settings| {
        (settings.discard_pause_ms, settings.body_read_ms) = (600_000, 600_000);
        settings.drain_ms = 600_000;
    })
    .await;
    let mut refused_client = server.connect().await;
    refused_client.send(with_length(LARGE_BODY, "").replace("/count", "/refused")).await;
    assert_eq!(refused_client.answer().await.unwrap().status, 401);
    refused_client.send("more of it").await;
    assert_eq!(server.stop_and_drain().await, DrainOutcome::Clean);

    let server = RunningServer::new(|settings| settings.drain_ms = 600_000).await;
    let mut half = server.connect().await;
    half.send("GET /held HTTP/1.1\r\nhost: h\r\nx-").await;
    // Connections are accepted in order: once this one is answered, the server has read the other.
    assert_eq!(server.ask(&with_length(3, "abc")).await.body, "3");
    assert_eq!(server.stop_and_drain().await, DrainOutcome::Clean);
}

#[tokio::test]
async fn stop_waits_for_slow_readers_of_an_answer() {
    let server = RunningServer::new(|settings| settings.drain_ms = 600_000).await;
    let mut slow = server.connect().await;
    let mut half = server.connect().await;
    half.send("GET /held HTTP/1.1\r\nhost: h\r\nx-").await;
    slow.send("GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.handler_entered.notified().await;
    let slower = server.get_http2("/long").await;
    server.stop.cancel();
    // The pause exceeds the time limit for the remainder of a head.
    sleep(Duration::from_secs(2)).await;
    assert!(!server.task.is_finished());
    assert_eq!(slow.answer().await.unwrap().body.len(), LONG_ANSWER);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(slower.into_body().collect().await.unwrap().to_bytes().len(), LONG_ANSWER);
    assert_eq!(server.stop_and_drain().await, DrainOutcome::Clean);
}

#[tokio::test]
async fn discarding_of_a_refused_body_is_bounded() {
    let server = RunningServer::new(|settings| {
        (settings.body_bytes, settings.discard_bytes) = (1_000, 10_000);
    })
    .await;
    let mut client = server.connect().await;
    client.send(with_length(LARGE_BODY, "")).await;
    let mut sent_bytes = 0;
    while sent_bytes < LARGE_BODY && client.stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {
        sent_bytes += 64 << 10;
    }
    assert!(sent_bytes < LARGE_BODY, "the client sent the whole body");
}

#[tokio::test]
async fn wrong_content_length_is_400() {
    let server = RunningServer::new(|_| {}).await;
    let mut client = server.connect().await;
    client.send(with_length(10, "short")).await;
    client.stream.shutdown().await.unwrap();
    assert!(client.answer().await.is_none_or(|answer| answer.status == 400));
    // Bytes beyond the announced length start the next request, which is malformed.
    let mut client = server.connect().await;
    client.send(with_length(2, "{}garbage\r\n\r\n")).await;
    assert_eq!(client.answer().await.unwrap().body, "2");
    assert!(client.answer().await.is_none_or(|answer| answer.status == 400));
    let both = format!("POST /count HTTP/1.1\r\n{JSON}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}");
    assert_eq!(server.ask(&both).await.status, 400);
}

#[tokio::test]
async fn slow_body_is_408() {
    let server = RunningServer::new(|settings| settings.body_read_ms = 50).await;
    let answer = server.ask(&with_length(10, "12")).await;
    assert_eq!(answer.status, 408);
    answer.problem();
    assert_eq!(server.app.http.body_budget().used_amount(), 0);
}

#[tokio::test]
async fn refused_requests_get_the_envelope() {
    let server = RunningServer::new(|_| {}).await;
    let answer = server.ask("GET /nothing?secret=1 HTTP/1.1\r\nhost: h\r\nx-request-id: r-1\r\n\r\n").await;
    assert_eq!((answer.status, &answer.problem()["instance"]), (404, &Value::from("/nothing")));
    assert!(answer.headers.contains("x-request-id: r-1"));
    let answer = server.ask("GET /count HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(answer.status, 405);
    assert!(answer.headers.contains("allow: POST"), "{answer:?}");
    answer.problem();
    let plain = "POST /count HTTP/1.1\r\nhost: h\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n";
    let answer = server.ask(plain).await;
    assert_eq!(answer.status, 415);
    answer.problem();
}

#[tokio::test]
async fn panicking_handler_is_500_and_keeps_the_connection() {
    let server = RunningServer::new(|_| {}).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        client.send("GET /broken HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 500);
        assert!(!answer.body.contains("secret"), "{answer:?}");
        answer.problem();
    }
}

#[tokio::test]
async fn long_or_slow_headers_are_refused() {
    let server = RunningServer::new(|settings| settings.header_bytes = 8_192).await;
    let long = format!("GET /held HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(server.ask(&long).await.status, 431);
    let target = format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "x".repeat(8_192));
    for long_head in [&target, &long.replace(&"x".repeat(20_000), &"x".repeat(8_192))] {
        let answer = server.ask(long_head).await;
        assert_eq!(answer.status, 431);
        answer.problem();
    }
    let longest_value = "x".repeat(8_192 - "/nothing".len() - "hosth".len() - "x".len());
    let answer = server.ask(&format!("GET /nothing HTTP/1.1\r\nhost: h\r\nx: {longest_value}\r\n\r\n")).await;
    assert_eq!(answer.status, 404);
    let server = RunningServer::new(|settings| settings.header_read_ms = 50).await;
    // No bytes, a part of a request, a part of the HTTP/2 preface, and an idle connection after a request.
    for first_bytes in ["", "GET /held HTTP/1.1\r\nhost:", "PRI * HT", &with_length(2, "{}")] {
        let mut client = server.connect().await;
        client.send(first_bytes).await;
        while let Some(answer) = client.answer().await {
            assert!([200, 408].contains(&answer.status), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn server_accepts_no_more_than_its_connections() {
    let server = RunningServer::new(|settings| settings.connections = 1).await;
    let mut first = server.connect().await;
    first.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.handler_entered.notified().await;
    let mut second = server.connect_from([127, 0, 0, 2]).await;
    second.send(with_length(3, "{ }")).await;
    let silent = timeout(Duration::from_millis(200), second.stream.readable()).await;
    assert!(silent.is_err(), "the first request is in progress");
    server.app.release_handler.notify_one();
    assert_eq!(first.answer().await.unwrap().body, "done");
    drop(first);
    assert_eq!(second.answer().await.unwrap().body, "3");
}

#[tokio::test]
async fn idle_connections_without_a_key_make_room_for_new_ones() {
    let server = RunningServer::new(|settings| {
        (settings.connections, settings.header_read_ms) = (8, 600_000);
    })
    .await;
    let mut authenticated = server.connect().await;
    // This route admits the request like one with a valid key.
    authenticated.send("GET /large?a HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(authenticated.answer().await.unwrap().status, 200);
    let mut silent = Vec::new();
    for address in [9, 9, 9, 9, 10, 10, 10] {
        silent.push(server.connect_from([127, 0, 0, address]).await);
    }
    // All slots are used. A new connection waits until the oldest idle one has passed its grace.
    for oldest in 0..3 {
        let mut new_client = server.connect().await;
        new_client.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
        server.app.handler_entered.notified().await;
        assert!(silent[oldest].answer().await.is_none(), "the server closes the oldest idle connection");
        silent.push(new_client);
    }
    authenticated.send(with_length(3, "{ }")).await;
    assert_eq!(authenticated.answer().await.unwrap().body, "3");
}

#[tokio::test]
async fn http2_is_served_on_the_same_port() {
    let server = RunningServer::new(|_| {}).await;
    let answer = server.get_http2("/nothing").await;
    assert_eq!((answer.version(), answer.status().as_u16()), (http::Version::HTTP_2, 404));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["status"], 404);
}

#[tokio::test]
async fn stop_closes_idle_connections_and_finishes_requests() {
    let server = RunningServer::new(|_| {}).await;
    let silent = server.connect().await;
    let mut idle = server.connect().await;
    idle.send(with_length(2, "{}")).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    let mut busy = server.connect().await;
    busy.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.handler_entered.notified().await;
    server.stop.cancel();
    assert!(idle.answer().await.is_none());
    assert!(!server.task.is_finished());
    server.app.release_handler.notify_one();
    assert_eq!(busy.answer().await.unwrap().body, "done");
    let address = server.address;
    assert_eq!(server.stop_and_drain().await, DrainOutcome::Clean);
    assert!(TcpStream::connect(address).await.is_err());
    drop(silent);
}

#[tokio::test]
async fn drain_ends_at_its_deadline_and_reports_it() {
    let server = RunningServer::new(|settings| settings.drain_ms = 50).await;
    let mut busy = server.connect().await;
    busy.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.handler_entered.notified().await;
    assert_eq!(server.stop_and_drain().await, DrainOutcome::Forced);
    assert!(busy.answer().await.is_none(), "the server ends the connection");
}
