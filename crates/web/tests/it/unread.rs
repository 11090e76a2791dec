//! Clients that do not read their answers.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use tidegate_test_support::{PATIENCE, eventually_ok};
use tidegate_web::DrainOutcome;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

use crate::support::{Client, LARGE_ANSWER, LONG_ANSWER, RunningServer, TestApp};

const UNSENT_BYTES: usize = 8 << 20;

async fn server(stall_ms: u64) -> RunningServer {
    RunningServer::new(|settings| {
        (settings.unsent_bytes, settings.connection_unsent_bytes) = (UNSENT_BYTES, LARGE_ANSWER);
        settings.unsent_stall_ms = stall_ms;
    })
    .await
}

/// HTTP/2 client with control over its windows: it reads an answer only when a test asks for it.
struct Http2Client {
    send: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Http2Client {
    async fn connect(server: &RunningServer, configure: impl FnOnce(&mut Builder)) -> Self {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_connection_window_size(64 << 20);
        configure(&mut builder);
        let (send, connection) = builder.handshake(stream).await.unwrap();
        let connection = tokio::spawn(async move {
            // The server may end the connection in any way.
            let _result = connection.await;
        });
        Self { send, connection }
    }

    async fn request(&mut self, method: &str, path: &str) -> ResponseFuture {
        let mut send = self.send.clone().ready().await.unwrap();
        let request = http::Request::builder().method(method).uri(format!("http://h{path}"));
        send.send_request(request.body(()).unwrap(), true).unwrap().0
    }
}

/// Releases the chunks of a slow answer, each after a longer time than a client may pause.
async fn release_slowly(app: &TestApp) {
    for _ in 0..3 {
        app.handler_entered.notified().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        app.release_handler.notify_one();
    }
}

async fn wait_until_released(server: &RunningServer) {
    let check_released = async || match server.app.http.answer_budget().used_amount() {
        0 => Ok(()),
        held_bytes => Err(anyhow::anyhow!("{held_bytes} bytes are held")),
    };
    eventually_ok("the server releases all answers", PATIENCE, check_released).await.unwrap();
}

/// Returns the length of an answer, or an error if it was cut off.
async fn read_body(answer: ResponseFuture) -> Result<usize, h2::Error> {
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
async fn unread_answers_are_bounded_and_harm_no_other() {
    let server = server(600_000).await;
    let mut greedy = Vec::new();
    for _ in 0..8 {
        let mut client = Http2Client::connect(&server, |builder| {
            builder.initial_window_size(0);
        })
        .await;
        for _ in 0..20 {
            // Dropping the response would reset the stream.
            greedy.push((client.request("GET", "/large?greedy").await, client.connection.abort_handle()));
        }
        for _ in 0..5 {
            let mut reader = server.connect().await;
            reader.send("GET /large?good HTTP/1.1\r\nhost: h\r\n\r\n").await;
            let answer = reader.answer().await.unwrap();
            assert_eq!((answer.status, answer.body.len()), (200, LARGE_ANSWER));
            let held_bytes = server.app.http.answer_budget().used_amount();
            assert!(held_bytes <= UNSENT_BYTES, "{held_bytes} bytes are held");
        }
    }
    let held_bytes = server.app.http.answer_budget().used_amount();
    assert!(held_bytes >= 3 * LARGE_ANSWER, "the attack held {held_bytes} bytes");
    drop(greedy);
    wait_until_released(&server).await;
}

#[tokio::test]
async fn streams_are_limited_per_address() {
    let server = RunningServer::new(|settings| {
        (settings.open_streams, settings.unsent_stall_ms) = (100, 600_000);
    })
    .await;
    let (mut clients, mut open, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..4 {
        let mut client = Http2Client::connect(&server, |builder| {
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
    let new_stream = async || {
        let answer = server.get_http2("/nothing").await;
        if answer.status() == 404 { Ok(()) } else { Err(anyhow::anyhow!("{answer:?}")) }
    };
    eventually_ok("streams that ended make room", PATIENCE, new_stream).await.unwrap();
}

#[tokio::test]
async fn stalled_stream_ends_without_its_connection() {
    let server = server(500).await;
    let mut client = Http2Client::connect(&server, |builder| {
        builder.initial_window_size(0);
    })
    .await;
    let stalled = client.request("GET", "/large?a").await;
    let reset = timeout(PATIENCE, read_body(stalled)).await.expect("the stream did not end").unwrap_err();
    assert!(reset.is_reset(), "{reset}");
    let next_request = client.request("GET", "/nothing").await;
    assert_eq!(timeout(PATIENCE, next_request).await.unwrap().unwrap().status(), 404);
    assert!(!client.connection.is_finished());
    wait_until_released(&server).await;
}

#[tokio::test]
async fn connection_with_an_unread_last_byte_ends() {
    let server = server(500).await;
    let mut client = Http2Client::connect(&server, |builder| {
        builder.initial_window_size(u32::try_from(LARGE_ANSWER - 1).unwrap());
    })
    .await;
    let answer = client.request("GET", "/large?a").await.await.unwrap();
    timeout(PATIENCE, client.connection).await.expect("the connection did not end").unwrap();
    wait_until_released(&server).await;
    drop(answer);
}

#[tokio::test]
async fn connection_of_a_silent_reader_is_closed() {
    let server = RunningServer::new(|settings| settings.unsent_stall_ms = 5_000).await;
    let mut client = server.connect().await;
    client.send("GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let leased_bytes = async || match server.app.http.answer_budget().used_amount() {
        LONG_ANSWER => Ok(()),
        used => Err(anyhow::anyhow!("{used} bytes are held")),
    };
    eventually_ok("the answer is held", PATIENCE, leased_bytes).await.unwrap();
    wait_until_released(&server).await;
    assert!(client.answer().await.is_none(), "the server closes the connection");
}

#[tokio::test]
async fn slow_handler_is_no_silent_reader() {
    let server = RunningServer::new(|settings| settings.unsent_stall_ms = 200).await;
    let app = &server.app;
    let mut client = server.connect().await;
    client.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let read_chunks = async {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n0\r\n\r\n") {
            assert!(client.stream.read_buf(&mut text).await.unwrap() > 0, "the server ended the connection");
        }
        String::from_utf8(text).unwrap()
    };
    let ((), text) = tokio::join!(release_slowly(app), read_chunks);
    assert_eq!(text.matches("chunk\r\n").count(), 3, "{text}");

    let mut client = Http2Client::connect(&server, |_| {}).await;
    let response = client.request("GET", "/slow").await;
    let read_all = async {
        let mut body = response.await.unwrap().into_body();
        let mut read_bytes = 0;
        while let Some(data) = body.data().await {
            let bytes = data.unwrap().len();
            read_bytes += bytes;
            body.flow_control().release_capacity(bytes).unwrap();
        }
        read_bytes
    };
    let ((), read_bytes) = tokio::join!(release_slowly(app), read_all);
    assert_eq!(read_bytes, 15);
}

#[tokio::test]
async fn requests_wait_while_answers_are_unread() {
    let server = server(600_000).await;
    let mut client = Http2Client::connect(&server, |builder| {
        builder.initial_window_size(64 << 20).initial_connection_window_size(65_535);
    })
    .await;
    let first = client.request("GET", "/large?a").await.await.unwrap();
    let mut second = client.request("GET", "/nothing").await;
    let early_answer = timeout(Duration::from_millis(300), &mut second).await;
    assert!(early_answer.is_err(), "it was answered before its turn: {early_answer:?}");
    let mut read_bytes = 0;
    let mut first = first.into_body();
    while let Some(data) = first.data().await {
        let bytes = data.unwrap().len();
        read_bytes += bytes;
        first.flow_control().release_capacity(bytes).unwrap();
    }
    assert_eq!(read_bytes, LARGE_ANSWER);
    assert_eq!(timeout(PATIENCE, second).await.unwrap().unwrap().status(), 404);
}

#[tokio::test]
async fn full_budget_is_503_for_look_ups_and_a_reset_for_changes() {
    let server = RunningServer::new(|settings| {
        (settings.unsent_bytes, settings.connection_unsent_bytes) =
            (2 * LARGE_ANSWER - 2_000, LARGE_ANSWER - 1_000);
        settings.unsent_stall_ms = 600_000;
    })
    .await;
    let mut client = Http2Client::connect(&server, |_| {}).await;
    let refusal = client.request("GET", "/large?a").await.await.unwrap();
    assert_eq!(refusal.status(), 503);
    assert_eq!(refusal.headers()["content-type"], "application/problem+json");
    let change = client.request("POST", "/large?a").await;
    let reason = read_body(change).await.unwrap_err().reason();
    assert_eq!(reason, Some(h2::Reason::ENHANCE_YOUR_CALM));
    assert_eq!(server.app.http.request_counts().refused_by_share, 2);
}

#[tokio::test]
async fn full_budget_refuses_look_ups_before_their_work() {
    let server = server(600_000).await;
    let mut greedy = Vec::new();
    for _ in 0..10 {
        let mut client = Http2Client::connect(&server, |builder| {
            builder.initial_window_size(0);
        })
        .await;
        greedy.push((client.request("GET", "/large?greedy").await.await, client));
    }
    let answers_made = server.app.answers_made.load(std::sync::atomic::Ordering::Relaxed);
    assert!((3..=4).contains(&answers_made), "half of {UNSENT_BYTES} bytes hold {answers_made} answers");
}

/// Preface of HTTP/2 with empty settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const PING: &[u8; 17] = b"\0\0\x08\x06\0\0\0\0\0 a ping ";

/// `GET /known` as the first stream of HTTP/2: a frame with uncompressed headers.
const KNOWN_REQUEST: &[u8] = b"\0\0\x0d\x01\x05\0\0\0\x01\x82\x86\x41\x01h\x04\x06/known";

impl Client {
    /// Writes until the server and the system accept no more bytes. Reads none.
    async fn write_until_blocked(&mut self, bytes: &[u8]) {
        let pause = Duration::from_millis(300);
        while let Ok(Ok(())) = timeout(pause, self.stream.write_all(bytes)).await {}
    }

    /// Waits for the end of the connection by writing to it. Reads none of its bytes.
    async fn wait_until_closed(&mut self, bytes: &[u8]) {
        let writing = async { while self.stream.write_all(bytes).await.is_ok() {} };
        timeout(PATIENCE, writing).await.expect("the connection did not end");
    }
}

/// HTTP/2 client that sends pings and reads no answers to them, with a valid key or without.
async fn pinging_client(server: &RunningServer, has_valid_key: bool) -> Client {
    let mut client = server.connect().await;
    client.send(HTTP2_PREFACE).await;
    if has_valid_key {
        client.send(KNOWN_REQUEST).await;
        let mut received_bytes = Vec::new();
        while !received_bytes.ends_with(b"known") {
            assert_ne!(client.stream.read_buf(&mut received_bytes).await.unwrap(), 0, "{received_bytes:?}");
        }
    }
    client.write_until_blocked(&PING.repeat(1_000)).await;
    client
}

/// HTTP/1.1 client that sends many requests and reads none of their short answers.
async fn pipelining_client(server: &RunningServer, path: &str) -> Client {
    let mut client = server.connect().await;
    client
        .write_until_blocked(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n").repeat(1_000).as_bytes())
        .await;
    client
}

#[tokio::test]
async fn unread_control_frames_or_short_answers_end_connections() {
    let server = server(2_000).await;
    for has_valid_key in [false, true] {
        pinging_client(&server, has_valid_key).await.wait_until_closed(PING).await;
    }
    for path in ["/nothing", "/known"] {
        pipelining_client(&server, path).await.wait_until_closed(b"GET").await;
    }
}

#[tokio::test]
async fn stop_does_not_wait_for_clients_without_pending_answers() {
    let server = RunningServer::new(|settings| {
        (settings.unsent_stall_ms, settings.drain_ms) = (600_000, 600_000);
    })
    .await;
    let mut clients = Vec::new();
    for has_valid_key in [false, true] {
        clients.push(pinging_client(&server, has_valid_key).await);
    }
    clients.push(pipelining_client(&server, "/nothing").await);
    assert_eq!(server.stop_and_drain().await, DrainOutcome::Clean);
    for mut client in clients {
        client.wait_until_closed(PING).await;
    }
}

#[tokio::test]
async fn unread_answers_do_not_force_a_drain() {
    let server = RunningServer::new(|settings| {
        (settings.unsent_stall_ms, settings.drain_ms) = (600_000, 2_000);
    })
    .await;
    let mut client = server.connect().await;
    client.send("GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    server.app.handler_entered.notified().await;
    let pipelined = pipelining_client(&server, "/known").await;
    let mut window = Http2Client::connect(&server, |builder| {
        builder.initial_window_size(0);
    })
    .await;
    let answer = window.request("GET", "/large?a").await.await.unwrap();
    assert_eq!(server.stop_and_drain().await, DrainOutcome::Clean);
    drop((client, pipelined, answer));
}
