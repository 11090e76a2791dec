//! Clients that do not take their answers.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use tidegate_test_support::{PATIENCE, eventually_ok};
use tidegate_web::Drained;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

use crate::support::{Client, LARGE, LONG, Running};

const ALL: usize = 8 << 20;

async fn server(stall_ms: u64) -> Running {
    Running::new(|settings| {
        (settings.unsent_bytes, settings.connection_unsent_bytes) = (ALL, LARGE);
        settings.unsent_stall_ms = stall_ms;
    })
    .await
}

/// A client of HTTP/2 whose streams take `window` bytes of an answer until more is asked for.
struct Raw {
    send: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Raw {
    async fn connect(server: &Running, set: impl FnOnce(&mut Builder)) -> Self {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_connection_window_size(64 << 20);
        set(&mut builder);
        let (send, connection) = builder.handshake(stream).await.unwrap();
        let connection = tokio::spawn(async move {
            // It ends in whatever way the server chose.
            let _ended = connection.await;
        });
        Self { send, connection }
    }

    async fn request(&mut self, method: &str, path: &str) -> ResponseFuture {
        let mut send = self.send.clone().ready().await.unwrap();
        let request = http::Request::builder().method(method).uri(format!("http://h{path}"));
        send.send_request(request.body(()).unwrap(), true).unwrap().0
    }
}

async fn all_given_back(server: &Running) {
    let used = async || match server.app.http.answers().used_amount() {
        0 => Ok(()),
        used => Err(anyhow::anyhow!("{used} bytes are held")),
    };
    eventually_ok("every answer is given up", PATIENCE, used).await.unwrap();
}

/// Bytes of the answer until its end; an error if it was cut off.
async fn body(answer: ResponseFuture) -> Result<usize, h2::Error> {
    let mut body = answer.await?.into_body();
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        bytes += data.len();
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(bytes)
}

#[tokio::test]
async fn answers_that_nobody_takes_are_bounded_and_harm_no_other() {
    let server = server(600_000).await;
    let mut greedy = Vec::new();
    for _ in 0..8 {
        let mut client = Raw::connect(&server, |builder| {
            builder.initial_window_size(0);
        })
        .await;
        for _ in 0..20 {
            // Dropped, it would be reset.
            greedy.push((client.request("GET", "/large?greedy").await, client.connection.abort_handle()));
        }
        for _ in 0..5 {
            let mut good = server.connect().await;
            good.send("GET /large?good HTTP/1.1\r\nhost: h\r\n\r\n").await;
            let answer = good.answer().await.unwrap();
            assert_eq!((answer.status, answer.body.len()), (200, LARGE));
            let used = server.app.http.answers().used_amount();
            assert!(used <= ALL, "{used} bytes are held");
        }
    }
    let used = server.app.http.answers().used_amount();
    assert!(used >= 3 * LARGE, "the attack held {used} bytes");
    drop(greedy);
    all_given_back(&server).await;
}

#[tokio::test]
async fn streams_of_an_address_are_bounded_over_its_connections() {
    let server = Running::new(|settings| {
        (settings.open_streams, settings.unsent_stall_ms) = (100, 600_000);
    })
    .await;
    let (mut clients, mut open, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..4 {
        let mut client = Raw::connect(&server, |builder| {
            builder.initial_window_size(0);
        })
        .await;
        for _ in 0..25 {
            match client.request("GET", "/nothing").await.await {
                Ok(answer) => open.push(answer),
                Err(error) => {
                    assert!(error.is_reset(), "{error}");
                    refused += 1;
                }
            }
        }
        clients.push(client);
    }
    assert_eq!((open.len(), refused), (50, 50));
    drop(open);
    let again = async || {
        let answer = server.get_http2("/nothing").await;
        if answer.status() == 404 { Ok(()) } else { Err(anyhow::anyhow!("{answer:?}")) }
    };
    eventually_ok("streams that ended make room", PATIENCE, again).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_takes_nothing_ends_and_its_connection_goes_on() {
    let server = server(500).await;
    let mut client = Raw::connect(&server, |builder| {
        builder.initial_window_size(0);
    })
    .await;
    let stuck = client.request("GET", "/large?a").await;
    let ended = timeout(PATIENCE, body(stuck)).await.expect("the stream ends").unwrap_err();
    assert!(ended.is_reset(), "{ended}");
    let again = client.request("GET", "/nothing").await;
    assert_eq!(timeout(PATIENCE, again).await.unwrap().unwrap().status(), 404);
    assert!(!client.connection.is_finished());
    all_given_back(&server).await;
}

#[tokio::test]
async fn a_connection_that_keeps_the_last_byte_of_an_answer_ends() {
    let server = server(500).await;
    let mut client = Raw::connect(&server, |builder| {
        builder.initial_window_size(u32::try_from(LARGE - 1).unwrap());
    })
    .await;
    let answer = client.request("GET", "/large?a").await.await.unwrap();
    timeout(PATIENCE, client.connection).await.expect("the connection ends").unwrap();
    all_given_back(&server).await;
    drop(answer);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_closed() {
    let server = Running::new(|settings| settings.unsent_stall_ms = 5_000).await;
    let mut client = server.connect().await;
    client.send("GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let held = async || match server.app.http.answers().used_amount() {
        LONG => Ok(()),
        used => Err(anyhow::anyhow!("{used} bytes are held")),
    };
    eventually_ok("the answer is held", PATIENCE, held).await.unwrap();
    all_given_back(&server).await;
    assert!(client.answer().await.is_none(), "its connection is closed");
}

#[tokio::test]
async fn requests_of_a_connection_wait_until_its_answers_are_taken() {
    let server = server(600_000).await;
    let mut client = Raw::connect(&server, |builder| {
        builder.initial_window_size(64 << 20).initial_connection_window_size(65_535);
    })
    .await;
    let first = client.request("GET", "/large?a").await.await.unwrap();
    let mut second = client.request("GET", "/nothing").await;
    let early = timeout(Duration::from_millis(300), &mut second).await;
    assert!(early.is_err(), "it was answered before its turn: {early:?}");
    let mut taken = 0;
    let mut first = first.into_body();
    while let Some(data) = first.data().await {
        let bytes = data.unwrap().len();
        taken += bytes;
        first.flow_control().release_capacity(bytes).unwrap();
    }
    assert_eq!(taken, LARGE);
    assert_eq!(timeout(PATIENCE, second).await.unwrap().unwrap().status(), 404);
}

#[tokio::test]
async fn without_room_a_look_up_is_503_and_a_change_is_never_answered_falsely() {
    let server = Running::new(|settings| {
        (settings.unsent_bytes, settings.connection_unsent_bytes) = (2 * LARGE - 2_000, LARGE - 1_000);
        settings.unsent_stall_ms = 600_000;
    })
    .await;
    let mut client = Raw::connect(&server, |_| {}).await;
    let refused = client.request("GET", "/large?a").await.await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    let changed = client.request("POST", "/large?a").await;
    let reason = body(changed).await.unwrap_err().reason();
    assert_eq!(reason, Some(h2::Reason::ENHANCE_YOUR_CALM));
    assert_eq!(server.app.http.load().refused_by_share, 2);
}

#[tokio::test]
async fn without_room_a_look_up_is_refused_before_its_answer_is_made() {
    let server = server(600_000).await;
    let mut greedy = Vec::new();
    for _ in 0..10 {
        let mut client = Raw::connect(&server, |builder| {
            builder.initial_window_size(0);
        })
        .await;
        greedy.push((client.request("GET", "/large?greedy").await.await, client));
    }
    let made = server.app.made.load(std::sync::atomic::Ordering::Relaxed);
    assert!((3..=4).contains(&made), "half of {ALL} bytes hold {made} answers");
}

/// First bytes of a client of HTTP/2, with empty settings.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const PING: &[u8; 17] = b"\0\0\x08\x06\0\0\0\0\0 a ping ";

/// `GET /known` as the first stream of HTTP/2: a frame of headers, which are not compressed.
const KNOWN: &[u8] = b"\0\0\x0d\x01\x05\0\0\0\x01\x82\x86\x41\x01h\x04\x06/known";

impl Client {
    /// Writes as much as the server and the system take without anything being read.
    async fn fill(&mut self, bytes: &[u8]) {
        let pause = Duration::from_millis(300);
        while let Ok(Ok(())) = timeout(pause, self.stream.write_all(bytes)).await {}
    }

    /// Waits for the end of a connection of which nothing is read.
    async fn is_closed(&mut self, bytes: &[u8]) {
        let ended = async { while self.stream.write_all(bytes).await.is_ok() {} };
        timeout(PATIENCE, ended).await.expect("the connection ends");
    }
}

/// A client of HTTP/2 that reads no answers to its pings, with a valid key or without.
async fn pings(server: &Running, has_valid_key: bool) -> Client {
    let mut client = server.connect().await;
    client.send(HTTP2).await;
    if has_valid_key {
        client.send(KNOWN).await;
        let mut read = Vec::new();
        while !read.ends_with(b"known") {
            assert_ne!(client.stream.read_buf(&mut read).await.unwrap(), 0, "{read:?}");
        }
    }
    client.fill(&PING.repeat(1_000)).await;
    client
}

/// A client of HTTP/1.1 that reads none of its short answers.
async fn pipelines(server: &Running, path: &str) -> Client {
    let mut client = server.connect().await;
    client.fill(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n").repeat(1_000).as_bytes()).await;
    client
}

#[tokio::test]
async fn a_client_that_takes_no_control_frames_or_short_answers_ends() {
    let server = server(2_000).await;
    for has_valid_key in [false, true] {
        pings(&server, has_valid_key).await.is_closed(PING).await;
    }
    for path in ["/nothing", "/known"] {
        pipelines(&server, path).await.is_closed(b"GET").await;
    }
}

#[tokio::test]
async fn a_stop_waits_for_nobody_who_takes_nothing_and_waits_for_nothing() {
    let server = Running::new(|settings| {
        (settings.unsent_stall_ms, settings.drain_ms) = (600_000, 600_000);
    })
    .await;
    let mut clients = Vec::new();
    for has_valid_key in [false, true] {
        clients.push(pings(&server, has_valid_key).await);
    }
    clients.push(pipelines(&server, "/nothing").await);
    assert_eq!(server.drained().await, Drained::Clean);
    for mut client in clients {
        client.is_closed(PING).await;
    }
}

#[tokio::test]
async fn an_answer_that_nobody_takes_is_no_work_in_progress() {
    let server = Running::new(|settings| {
        (settings.unsent_stall_ms, settings.drain_ms) = (600_000, 2_000);
    })
    .await;
    let mut client = server.connect().await;
    client.send("GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.entered.notified().await;
    let pipelined = pipelines(&server, "/known").await;
    let mut window = Raw::connect(&server, |builder| {
        builder.initial_window_size(0);
    })
    .await;
    let answer = window.request("GET", "/large?a").await.await.unwrap();
    assert_eq!(server.drained().await, Drained::Clean);
    drop((client, pipelined, answer));
}
