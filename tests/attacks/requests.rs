//! Attacks of HTTP/1.1: bodies that are not sent, answers that are not read, waiting look-ups, idle connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    attack::{Attack, Bars, Running, Target},
    http::{Connection, api_key, head},
    service::Start,
};

const ITEMS: &str = "/api/v1/items/async/";
const BODY: usize = 8 << 20;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        Attack {
            name: "bodies",
            about: "64 requests announce 8 MiB and send no byte of it, 16 send all but a byte, on both ports",
            start: Start::default(),
            bars: Bars::default(),
            run: bodies,
        },
        Attack {
            name: "unread",
            about: "200 connections ask for an item of 900 KB and do not read it",
            start: Start::default(),
            bars: Bars::default(),
            run: unread,
        },
        Attack {
            name: "waiting",
            about: "1,000 look-ups wait for an item that is never sent",
            start: Start::default(),
            bars: Bars::default(),
            run: wait_for_missing_item,
        },
        Attack {
            name: "idle",
            about: "3,000 connections send no request to a service with a limit of 1,024 open files",
            start: Start { files: Some(1_024), ..Start::default() },
            bars: Bars::default(),
            run: idle,
        },
    ]
}

/// Repeats an exchange in many tasks until `stop` is cancelled. Returns the number of requests.
async fn repeat<F>(
    tasks: usize,
    stop: &CancellationToken,
    exchange: impl Fn(usize) -> F + Clone + Send + 'static,
) -> usize
where
    F: Future<Output = Result<()>> + Send,
{
    let (done, mut all) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for task in 0..tasks {
        let (exchange, stop, done) = (exchange.clone(), stop.clone(), Arc::clone(&done));
        all.spawn(async move {
            while !stop.is_cancelled() {
                done.fetch_add(1, Ordering::Relaxed);
                let ended = stop.run_until_cancelled(exchange(task)).await;
                if ended.is_some_and(|ended| ended.is_err()) {
                    sleep(Duration::from_millis(50)).await;
                }
            }
        });
    }
    while all.join_next().await.is_some() {}
    done.load(Ordering::Relaxed)
}

fn bodies(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let body_bytes: Arc<[u8]> = vec![b' '; BODY - 1].into();
        let requests = repeat(112, &stop, move |task| {
            let (target, body_bytes) = (Arc::clone(&target), Arc::clone(&body_bytes));
            async move {
                let is_admin = task % 7 == 0;
                let address = if is_admin { &target.admin } else { &target.api };
                let path = if is_admin { "/admin/v1/config" } else { ITEMS };
                let mut connection = Connection::open(address).await?;
                let head = head("POST", path, &api_key(&target.key), BODY);
                connection.stream.write_all(head.as_bytes()).await?;
                if task % 7 == 1 {
                    connection.stream.write_all(&body_bytes).await?;
                }
                until_closed(&mut connection).await
            }
        });
        Ok(format!("{} requests", requests.await))
    })
}

/// Reads until the other side closes the connection.
async fn until_closed(connection: &mut Connection) -> Result<()> {
    let mut bytes = [0; 4096];
    while connection.stream.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// Submits an item of 900 KB, and waits until it can be looked up.
pub(crate) async fn large_item(target: &Target) -> Result<String> {
    let text = "x".repeat(900 << 10);
    let body = format!(r#"{{"items":[{{"id":"large","typeId":"post","data":{{"text":"{text}"}}}}]}}"#);
    let mut connection = Connection::open(&target.api).await?;
    connection.ask("POST", ITEMS, &api_key(&target.key), &body).await?.ok("the large item")?;
    let path = "/api/v1/items/post/large";
    connection.ask("GET", &format!("{path}?wait=30s"), &api_key(&target.key), "").await?.ok("its look-up")?;
    Ok(path.to_owned())
}

fn unread(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let path: Arc<str> = large_item(&target).await?.into();
        let requests = repeat(200, &stop, move |_| {
            let (target, path) = (Arc::clone(&target), Arc::clone(&path));
            async move {
                let mut connection = Connection::open(&target.api).await?;
                let head = head("GET", &path, &api_key(&target.key), 0);
                connection.stream.write_all(head.as_bytes()).await?;
                // The answer stays unread: the system's buffers may hold all of it after the connection has ended.
                loop {
                    sleep(Duration::from_secs(1)).await;
                    connection.stream.write_all(b" ").await?;
                }
            }
        });
        Ok(format!("{} requests", requests.await))
    })
}

fn wait_for_missing_item(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let requests = repeat(1_000, &stop, move |_| {
            let target = Arc::clone(&target);
            async move {
                let mut connection = Connection::open(&target.api).await?;
                let path = "/api/v1/items/post/never?wait=30s";
                let answer = connection.ask("GET", path, &api_key(&target.key), "").await?;
                if answer.status == 503 {
                    // As a client that keeps to `Retry-After`; without a pause this is a flood of requests.
                    sleep(Duration::from_secs(1)).await;
                }
                Ok(())
            }
        });
        Ok(format!("{} look-ups", requests.await))
    })
}

fn idle(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let connections = repeat(3_000, &stop, move |_| {
            let target = Arc::clone(&target);
            async move {
                let mut connection = Connection::open_from_afar(&target.api).await?;
                until_closed(&mut connection).await?;
                sleep(Duration::from_millis(200)).await;
                Ok(())
            }
        });
        Ok(format!("{} connections", connections.await))
    })
}
