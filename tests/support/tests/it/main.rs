//! The faulty link in front of a server that echoes and keeps the received bytes.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_test_support::{PATIENCE, Proxy, Way, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

struct Echo {
    proxy: Proxy,
    received: Arc<Mutex<Vec<u8>>>,
}

async fn echo() -> Echo {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap().to_string()).await.unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let memory = received.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let memory = memory.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    memory.lock().unwrap().extend_from_slice(&buffer[..count]);
                    if stream.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    Echo { proxy, received }
}

impl Echo {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }

    async fn received(&self, wanted: &[u8]) {
        eventually("the server to receive the bytes", PATIENCE, async || {
            (*self.received.lock().unwrap() == wanted).then_some(())
        })
        .await
        .unwrap();
    }
}

async fn answer(stream: &mut TcpStream, count: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("an answer or an end")?;
    Ok(bytes)
}

/// True if no byte arrives while another link carries bytes in both directions.
async fn is_silent(stream: &TcpStream) -> bool {
    let beside = echo().await;
    let mut open = beside.connect().await;
    for _ in 0..50 {
        open.write_all(b"a").await.unwrap();
        answer(&mut open, 1).await.unwrap();
    }
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn a_healthy_link_carries_both_ways_and_counts() {
    let echo = echo().await;
    let mut client = echo.connect().await;
    client.write_all(b"hello").await.unwrap();
    assert_eq!(answer(&mut client, 5).await.unwrap(), b"hello");
    assert_eq!((echo.proxy.bytes(Way::ToServer), echo.proxy.bytes(Way::ToClient)), (5, 5));
    assert_eq!((echo.proxy.accepted(), echo.proxy.cuts()), (1, 0));
}

#[tokio::test]
async fn end_of_writing_is_forwarded_and_the_answer_arrives() {
    let echo = echo().await;
    let mut client = echo.connect().await;
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    let mut all = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut all)).await.unwrap().unwrap();
    assert_eq!(all, b"last");
    assert_eq!(echo.proxy.cuts(), 0);
}

#[tokio::test]
async fn stalled_link_accepts_connections_but_carries_no_bytes() {
    let echo = echo().await;
    let mut before = echo.connect().await;
    before.write_all(b"a").await.unwrap();
    answer(&mut before, 1).await.unwrap();
    echo.proxy.stall();
    let mut during = echo.connect().await;
    before.write_all(b"b").await.unwrap();
    during.write_all(b"b").await.unwrap();
    assert!(is_silent(&before).await && is_silent(&during).await);
    echo.received(b"a").await;
    echo.proxy.pass().await.unwrap();
    assert_eq!(answer(&mut before, 1).await.unwrap(), b"b");
    assert_eq!(answer(&mut during, 1).await.unwrap(), b"b");
}

#[tokio::test]
async fn one_direction_alone_can_stall() {
    let echo = echo().await;
    echo.proxy.stall_way(Way::ToClient);
    let mut client = echo.connect().await;
    client.write_all(b"applied").await.unwrap();
    echo.received(b"applied").await;
    assert!(is_silent(&client).await);
}

#[tokio::test]
async fn a_cut_ends_existing_connections_and_not_new_ones() {
    let echo = echo().await;
    let mut old = echo.connect().await;
    old.write_all(b"a").await.unwrap();
    answer(&mut old, 1).await.unwrap();
    echo.proxy.cut();
    answer(&mut old, 1).await.unwrap_err();
    let mut new = echo.connect().await;
    new.write_all(b"b").await.unwrap();
    assert_eq!(answer(&mut new, 1).await.unwrap(), b"b");
    assert_eq!(echo.proxy.cuts(), 1);
}

#[tokio::test]
async fn refusal_rejects_new_connections_only() {
    let echo = echo().await;
    let mut old = echo.connect().await;
    old.write_all(b"a").await.unwrap();
    answer(&mut old, 1).await.unwrap();
    echo.proxy.refuse().await.unwrap();
    TcpStream::connect(echo.proxy.address()).await.unwrap_err();
    old.write_all(b"b").await.unwrap();
    assert_eq!(answer(&mut old, 1).await.unwrap(), b"b");
    echo.proxy.pass().await.unwrap();
    echo.connect().await;
}

#[tokio::test]
async fn a_request_can_be_carried_out_and_its_answer_lost() {
    let echo = echo().await;
    let mut client = echo.connect().await;
    echo.proxy.cut_after(Way::ToClient, 0);
    client.write_all(b"apply this").await.unwrap();
    answer(&mut client, 1).await.unwrap_err();
    echo.received(b"apply this").await;
    assert_eq!((echo.proxy.bytes(Way::ToClient), echo.proxy.cuts()), (0, 1));
    let mut again = echo.connect().await;
    again.write_all(b"!").await.unwrap();
    assert_eq!(answer(&mut again, 1).await.unwrap(), b"!", "the trigger works once");
}

#[tokio::test]
async fn a_request_can_be_cut_in_its_middle() {
    let echo = echo().await;
    echo.proxy.stall_way(Way::ToClient);
    echo.proxy.cut_after(Way::ToServer, 5);
    let mut client = echo.connect().await;
    client.write_all(b"apply this").await.unwrap();
    echo.received(b"apply").await;
    answer(&mut client, 1).await.unwrap_err();
    assert_eq!(echo.proxy.bytes(Way::ToServer), 5);
}

#[tokio::test]
async fn only_the_answer_to_a_named_request_is_lost() {
    let echo = echo().await;
    echo.proxy.cut_answer_to("UPDATE");
    let (mut other, mut named) = (echo.connect().await, echo.connect().await);
    other.write_all(b"SELECT").await.unwrap();
    assert_eq!(answer(&mut other, 6).await.unwrap(), b"SELECT");
    named.write_all(b"UPDATE").await.unwrap();
    answer(&mut named, 1).await.unwrap_err();
    echo.received(b"SELECTUPDATE").await;
    other.write_all(b"SELECT").await.unwrap();
    assert_eq!(answer(&mut other, 6).await.unwrap(), b"SELECT");
}

#[tokio::test]
async fn a_delay_and_a_throttle_take_their_time() {
    let echo = echo().await;
    let mut client = echo.connect().await;
    echo.proxy.delay(Way::ToServer, Duration::from_millis(100));
    let start = Instant::now();
    client.write_all(b"x").await.unwrap();
    answer(&mut client, 1).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(100));
    echo.proxy.pass().await.unwrap();
    echo.proxy.throttle(Way::ToClient, 10_000);
    let start = Instant::now();
    client.write_all(&[7; 3_000]).await.unwrap();
    assert_eq!(answer(&mut client, 3_000).await.unwrap(), [7; 3_000]);
    // The throttle delays all chunks except the last one, which takes at most a twentieth of a second.
    assert!(start.elapsed() >= Duration::from_millis(240));
}

#[tokio::test]
async fn a_server_that_is_down_looks_like_a_cut() {
    let down = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::to(down.to_string()).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    answer(&mut client, 1).await.unwrap_err();
    assert_eq!(proxy.cuts(), 1);
}
