//! The organisation that uses the service properly, and its measurements.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::http::{self, Connection, api_key};

/// Times and failures that the good client noticed.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    /// Times of the answers to its submissions.
    pub(crate) answers: Vec<Duration>,
    /// Times from the acceptance of its items to their evaluation.
    pub(crate) evaluated: Vec<Duration>,
    /// Times of the answers to `POST /api/v1/content`, which wait for the evaluation.
    pub(crate) content: Vec<Duration>,
    pub(crate) probes: Vec<Duration>,
    /// Requests that were not answered with 2xx.
    pub(crate) failures: Vec<String>,
}

impl Noticed {
    fn add(&mut self, other: Self) {
        self.answers.extend(other.answers);
        self.evaluated.extend(other.evaluated);
        self.content.extend(other.content);
        self.probes.extend(other.probes);
        self.failures.extend(other.failures);
    }
}

/// A new item with a unique id.
fn item() -> (String, String) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = format!("good-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let text = "a post of some length, as people write them every day. ".repeat(5);
    let body = json!({ "items": [{ "id": id, "typeId": "post", "data": { "text": text } }] });
    (id, body.to_string())
}

pub(crate) struct GoodClient {
    tasks: JoinSet<Noticed>,
    stop: CancellationToken,
}

impl GoodClient {
    pub(crate) fn start(api: &str, operations: &str, key: &str) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (api, operations, key) =
            (Arc::<str>::from(api), Arc::<str>::from(operations), Arc::<str>::from(key));
        tasks.spawn(submit(Arc::clone(&api), Arc::clone(&key), stop.clone()));
        tasks.spawn(follow_items(Arc::clone(&api), Arc::clone(&key), stop.clone()));
        tasks.spawn(submit_content(api, key, stop.clone()));
        tasks.spawn(probe(operations, stop.clone()));
        Self { tasks, stop }
    }

    pub(crate) async fn stop(mut self) -> Result<Noticed> {
        self.stop.cancel();
        let mut noticed = Noticed::default();
        while let Some(result) = self.tasks.join_next().await {
            noticed.add(result?);
        }
        Ok(noticed)
    }
}

/// Forty items a second on one connection; every tenth on a new one.
async fn submit(api: Arc<str>, key: Arc<str>, stop: CancellationToken) -> Noticed {
    let (mut noticed, mut connection, mut count) = (Noticed::default(), None, 0);
    while !stop.is_cancelled() {
        let began = Instant::now();
        count += 1;
        if count % 10 == 0 {
            connection = None;
        }
        let request = async {
            let open = match connection.take() {
                Some(open) => open,
                None => Connection::open(&api).await?,
            };
            let open = connection.insert(open);
            open.ask("POST", "/api/v1/items/async/", &api_key(&key), &item().1).await
        };
        match request.await {
            Ok(answer) if answer.status == 202 => noticed.answers.push(began.elapsed()),
            Ok(answer) => {
                noticed.failures.push(format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)));
            }
            Err(error) => {
                connection = None;
                noticed.failures.push(format!("{error:#}"));
            }
        }
        sleep(Duration::from_millis(25).saturating_sub(began.elapsed())).await;
    }
    noticed
}

/// Four items a second, each followed until it is evaluated.
async fn follow_items(api: Arc<str>, key: Arc<str>, stop: CancellationToken) -> Noticed {
    let mut noticed = Noticed::default();
    while !stop.is_cancelled() {
        let (id, body) = item();
        let began = Instant::now();
        let header = api_key(&key);
        let followed = async {
            let mut connection = Connection::open(&api).await?;
            connection.ask("POST", "/api/v1/items/async/", &header, &body).await?.ok("its item")?;
            let accepted_at = Instant::now();
            let path = format!("/api/v1/items/post/{id}?wait=30s");
            connection.ask("GET", &path, &header, "").await?.ok("its look-up")?;
            anyhow::Ok(accepted_at.elapsed())
        };
        match followed.await {
            Ok(took) => noticed.evaluated.push(took),
            Err(error) => noticed.failures.push(format!("{error:#}")),
        }
        sleep(Duration::from_millis(250).saturating_sub(began.elapsed())).await;
    }
    noticed
}

/// Four items a second through the endpoint that answers with the outcome.
async fn submit_content(api: Arc<str>, key: Arc<str>, stop: CancellationToken) -> Noticed {
    let mut noticed = Noticed::default();
    let text = "a post of some length, as people write them every day. ".repeat(5);
    let mut count = 0;
    while !stop.is_cancelled() {
        count += 1;
        let content = json!({ "text": text });
        let body =
            json!({ "contentType": "post", "contentId": format!("content-{count}"), "content": content });
        let began = Instant::now();
        let request = async {
            let mut connection = Connection::open(&api).await?;
            connection
                .ask("POST", "/api/v1/content", &api_key(&key), &body.to_string())
                .await?
                .ok("its content")
        };
        match request.await {
            Ok(_) => noticed.content.push(began.elapsed()),
            Err(error) => noticed.failures.push(format!("{error:#}")),
        }
        sleep(Duration::from_millis(250).saturating_sub(began.elapsed())).await;
    }
    noticed
}

async fn probe(operations: Arc<str>, stop: CancellationToken) -> Noticed {
    let mut noticed = Noticed::default();
    while !stop.is_cancelled() {
        let began = Instant::now();
        let request =
            timeout(Duration::from_secs(30), http::ask(&operations, "GET", "/livez", "accept: */*", ""));
        match request.await {
            Ok(Ok(answer)) if answer.status == 200 => noticed.probes.push(began.elapsed()),
            other => noticed.failures.push(format!("a probe: {other:?}")),
        }
        sleep(Duration::from_millis(200)).await;
    }
    noticed
}
