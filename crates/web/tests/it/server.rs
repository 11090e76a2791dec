//! The server as sockets see it: limits, envelopes, slow and silent clients, both protocols, drains.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;
use tidegate_web::Drained;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::support::{JSON, LONG, Running, with_length};

#[tokio::test]
async fn bodies_are_read_whole_in_pieces_and_in_chunks() {
    let server = Running::new(|_| {}).await;
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
    assert_eq!(server.app.http.bodies().used_amount(), 0, "all of the budget is given back");
}

#[tokio::test]
async fn a_body_above_the_limit_is_413_told_or_chunked() {
    let server = Running::new(|settings| settings.body_bytes = 1_000).await;
    // A client that asks first is not waited for.
    let asking =
        with_length(1_001, "").replacen("content-length", "expect: 100-continue\r\ncontent-length", 1);
    assert_eq!(server.ask(&asking).await.status, 413);
    // Nor does one that sends nothing wait for ever.
    assert_eq!(server.ask(&with_length(1_001, "")).await.status, 413);
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunked =
        format!("POST /count HTTP/1.1\r\n{JSON}transfer-encoding: chunked\r\n\r\n{}", chunk.repeat(3));
    let answer = server.ask(&chunked).await;
    assert_eq!(answer.status, 413);
    answer.problem();
    assert_eq!(server.app.http.bodies().used_amount(), 0);
}

/// More than the buffers of both sides of a connection hold.
const MUCH: usize = 24 << 20;

#[tokio::test]
async fn a_client_that_reads_only_after_its_whole_body_hears_of_the_refusal() {
    let server = Running::new(|settings| settings.body_bytes = 1_000).await;
    let told = with_length(MUCH, "");
    let chunk = format!("{MUCH:x}\r\n");
    let chunked = told.replace(&format!("content-length: {MUCH}"), "transfer-encoding: chunked");
    for (head, begin, end, status) in [
        (told.clone(), "", "", 413),
        (chunked.clone(), &*chunk, "\r\n0\r\n\r\n", 413),
        (told.replace("json", "text"), "", "", 415),
        (told.replace("/count", "/nowhere"), "", "", 404),
        (chunked.replace("/count", "/nowhere"), &*chunk, "\r\n0\r\n\r\n", 404),
        (told.replace("/count", "/refused"), "", "", 401),
        (told.replace("/count", "/broken").replace("POST", "GET"), "", "", 500),
    ] {
        let mut client = server.connect().await;
        client.send(&head).await;
        client.send(begin).await;
        client.send(vec![b'x'; MUCH]).await;
        client.send(end).await;
        assert_eq!(client.answer().await.unwrap().status, status, "{head}");
        // The connection is still good.
        client.send(with_length(3, "abc")).await;
        assert_eq!(client.answer().await.unwrap().body, "3", "{head}");
    }
}

#[tokio::test]
async fn a_refusal_is_told_before_the_body_comes() {
    let server = Running::new(|settings| {
        (settings.body_bytes, settings.discard_pause_ms, settings.body_read_ms) = (1_000, 60_000, 120_000);
    })
    .await;
    for length in [1, 12, 16_000, MUCH] {
        let mut client = server.connect().await;
        client.send(with_length(length, "").replace("/count", "/refused")).await;
        assert_eq!(client.answer().await.unwrap().status, 401);
        client.send(vec![b'x'; length]).await;
        client.send(with_length(3, "abc")).await;
        assert_eq!(client.answer().await.unwrap().body, "3", "{length}");
    }
}

#[tokio::test]
async fn a_server_that_stops_waits_for_nobody_who_was_answered_or_has_not_asked_yet() {
    let server = Running::new(|settings| {
        (settings.discard_pause_ms, settings.body_read_ms) = (600_000, 600_000);
        settings.drain_ms = 600_000;
    })
    .await;
    let mut refused = server.connect().await;
    refused.send(with_length(MUCH, "").replace("/count", "/refused")).await;
    assert_eq!(refused.answer().await.unwrap().status, 401);
    refused.send("more of it").await;
    assert_eq!(server.drained().await, Drained::Clean);

    let server = Running::new(|settings| settings.drain_ms = 600_000).await;
    let mut half = server.connect().await;
    half.send("GET /held HTTP/1.1\r\nhost: h\r\nx-").await;
    // What is sent after it has been taken when this is answered.
    assert_eq!(server.ask(&with_length(3, "abc")).await.body, "3");
    assert_eq!(server.drained().await, Drained::Clean);
}

#[tokio::test]
async fn a_server_that_stops_waits_for_whoever_is_slow_to_take_an_answer() {
    let server = Running::new(|settings| settings.drain_ms = 600_000).await;
    let mut slow = server.connect().await;
    let mut half = server.connect().await;
    half.send("GET /held HTTP/1.1\r\nhost: h\r\nx-").await;
    slow.send("GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.entered.notified().await;
    let slower = server.get_http2("/long").await;
    server.stop.cancel();
    // Longer than the rest of a head is waited for.
    sleep(Duration::from_secs(2)).await;
    assert!(!server.task.is_finished());
    assert_eq!(slow.answer().await.unwrap().body.len(), LONG);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(slower.into_body().collect().await.unwrap().to_bytes().len(), LONG);
    assert_eq!(server.drained().await, Drained::Clean);
}

#[tokio::test]
async fn no_more_than_the_bound_of_a_refused_body_is_taken() {
    let server = Running::new(|settings| {
        (settings.body_bytes, settings.discard_bytes) = (1_000, 10_000);
    })
    .await;
    let mut client = server.connect().await;
    client.send(with_length(MUCH, "")).await;
    let mut sent = 0;
    while sent < MUCH && client.stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {
        sent += 64 << 10;
    }
    assert!(sent < MUCH, "all of it was taken");
}

#[tokio::test]
async fn a_length_that_lies_never_becomes_a_request() {
    let server = Running::new(|_| {}).await;
    let mut client = server.connect().await;
    client.send(with_length(10, "short")).await;
    client.stream.shutdown().await.unwrap();
    assert!(client.answer().await.is_none_or(|answer| answer.status == 400));
    // What is longer than told is the next request, and none that can be understood.
    let mut client = server.connect().await;
    client.send(with_length(2, "{}garbage\r\n\r\n")).await;
    assert_eq!(client.answer().await.unwrap().body, "2");
    assert!(client.answer().await.is_none_or(|answer| answer.status == 400));
    let both = format!("POST /count HTTP/1.1\r\n{JSON}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}");
    assert_eq!(server.ask(&both).await.status, 400);
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_408() {
    let server = Running::new(|settings| settings.body_read_ms = 50).await;
    let answer = server.ask(&with_length(10, "12")).await;
    assert_eq!(answer.status, 408);
    answer.problem();
    assert_eq!(server.app.http.bodies().used_amount(), 0);
}

#[tokio::test]
async fn what_is_no_request_for_us_gets_the_envelope_too() {
    let server = Running::new(|_| {}).await;
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
async fn a_handler_that_panics_is_500_without_its_words_and_the_connection_lives() {
    let server = Running::new(|_| {}).await;
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
async fn headers_that_are_too_many_or_too_slow_end_the_connection() {
    let server = Running::new(|settings| settings.header_bytes = 8_192).await;
    let long = format!("GET /held HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(server.ask(&long).await.status, 431);
    let target = format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "x".repeat(8_192));
    for more in [&target, &long.replace(&"x".repeat(20_000), &"x".repeat(8_192))] {
        let answer = server.ask(more).await;
        assert_eq!(answer.status, 431);
        answer.problem();
    }
    let most = "x".repeat(8_192 - "/nothing".len() - "hosth".len() - "x".len());
    let answer = server.ask(&format!("GET /nothing HTTP/1.1\r\nhost: h\r\nx: {most}\r\n\r\n")).await;
    assert_eq!(answer.status, 404);
    let server = Running::new(|settings| settings.header_read_ms = 50).await;
    // Nothing, a part of a request, a part of the other protocol's first words, and nothing after a request.
    for first in ["", "GET /held HTTP/1.1\r\nhost:", "PRI * HT", &with_length(2, "{}")] {
        let mut client = server.connect().await;
        client.send(first).await;
        while let Some(answer) = client.answer().await {
            assert!([200, 408].contains(&answer.status), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn above_its_connections_a_server_takes_no_more_until_one_ends() {
    let server = Running::new(|settings| settings.connections = 1).await;
    let mut first = server.connect().await;
    first.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.entered.notified().await;
    let mut second = server.connect_from([127, 0, 0, 2]).await;
    second.send(with_length(3, "{ }")).await;
    let silent = timeout(Duration::from_millis(200), second.stream.readable()).await;
    assert!(silent.is_err(), "the first is under way");
    server.app.leave.notify_one();
    assert_eq!(first.answer().await.unwrap().body, "done");
    drop(first);
    assert_eq!(second.answer().await.unwrap().body, "3");
}

#[tokio::test]
async fn idle_connections_without_a_key_make_room_for_new_ones() {
    let server = Running::new(|settings| {
        (settings.connections, settings.header_read_ms) = (8, 600_000);
    })
    .await;
    let mut known = server.connect().await;
    // It is admitted as one with a valid key.
    known.send("GET /large?a HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(known.answer().await.unwrap().status, 200);
    let mut silent = Vec::new();
    for address in [9, 9, 9, 9, 10, 10, 10] {
        silent.push(server.connect_from([127, 0, 0, address]).await);
    }
    // All are taken. A new one waits until the oldest has been silent for a moment.
    for oldest in 0..3 {
        let mut good = server.connect().await;
        good.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
        server.app.entered.notified().await;
        assert!(silent[oldest].answer().await.is_none(), "the oldest is closed");
        silent.push(good);
    }
    known.send(with_length(3, "{ }")).await;
    assert_eq!(known.answer().await.unwrap().body, "3");
}

#[tokio::test]
async fn a_second_protocol_is_spoken_on_the_same_port() {
    let server = Running::new(|_| {}).await;
    let answer = server.get_http2("/nothing").await;
    assert_eq!((answer.version(), answer.status().as_u16()), (http::Version::HTTP_2, 404));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["status"], 404);
}

#[tokio::test]
async fn a_server_that_stops_ends_what_is_idle_and_finishes_what_is_under_way() {
    let server = Running::new(|_| {}).await;
    let silent = server.connect().await;
    let mut idle = server.connect().await;
    idle.send(with_length(2, "{}")).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    let mut busy = server.connect().await;
    busy.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.entered.notified().await;
    server.stop.cancel();
    assert!(idle.answer().await.is_none());
    assert!(!server.task.is_finished());
    server.app.leave.notify_one();
    assert_eq!(busy.answer().await.unwrap().body, "done");
    let address = server.address;
    assert_eq!(server.drained().await, Drained::Clean);
    assert!(TcpStream::connect(address).await.is_err());
    drop(silent);
}

#[tokio::test]
async fn a_drain_that_takes_too_long_is_cut_and_told() {
    let server = Running::new(|settings| settings.drain_ms = 50).await;
    let mut busy = server.connect().await;
    busy.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.entered.notified().await;
    assert_eq!(server.drained().await, Drained::Forced);
    assert!(busy.answer().await.is_none(), "its connection is ended");
}
