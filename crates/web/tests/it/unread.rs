//! Clients that do not take their answers.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use tidegate_test_support::{PATIENCE, eventually_ok};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

use crate::support::{LARGE, LONG, Running};

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
    let used = async || match server.app.http.answers().used() {
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
            let used = server.app.http.answers().used();
            assert!(used <= ALL, "{used} bytes are held");
        }
    }
    let used = server.app.http.answers().used();
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
    let server = Running::new(|settings| settings.unsent_stall_ms = 500).await;
    let mut client = server.connect().await;
    client.send("GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let held = async || match server.app.http.answers().used() {
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
