//! The platform's callback endpoint: verifies signatures, keeps callbacks, and fails on request.
//!
//! It lives in the test's own process, so no kill reaches it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::Value;
use tidegate_egress::signature::{Secret, verify};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::oracle::SeenCallback;

/// Answer of an endpoint to the first attempts of each event; later attempts get 200.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    Well,
    /// No answer.
    Hang(usize),
    /// Status 500.
    Fail(usize),
    /// The connection is closed without an answer.
    Close(usize),
}

#[derive(Default)]
struct Shared {
    secrets: Mutex<Vec<Secret>>,
    manners: Mutex<BTreeMap<String, Manner>>,
    attempts: Mutex<BTreeMap<(String, String), usize>>,
    callbacks: Mutex<Vec<SeenCallback>>,
    unsigned: AtomicUsize,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Receiver {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let router = Router::new().route("/{endpoint}", post(receive)).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                panic!("the receiver ended: {error}");
            }
        });
        Ok(Self { address, shared, server })
    }

    pub(crate) fn url(&self, endpoint: &str) -> String {
        format!("http://{}/{endpoint}", self.address)
    }

    pub(crate) fn trust(&self, secret: &str) {
        self.shared.secrets.lock().unwrap().push(Secret::parse(secret).unwrap());
    }

    pub(crate) fn behave(&self, endpoint: &str, manner: Manner) {
        self.shared.manners.lock().unwrap().insert(endpoint.to_owned(), manner);
    }

    pub(crate) fn callbacks(&self) -> Vec<SeenCallback> {
        self.shared.callbacks.lock().unwrap().clone()
    }

    pub(crate) fn unsigned(&self) -> usize {
        self.shared.unsigned.load(Ordering::SeqCst)
    }
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    Path(endpoint): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    const TOLERANCE: u64 = 300;
    let secrets = shared.secrets.lock().unwrap().clone();
    if verify(&headers, &body, &secrets, unix_seconds(), TOLERANCE).is_err() {
        shared.unsigned.fetch_add(1, Ordering::SeqCst);
        return StatusCode::UNAUTHORIZED;
    }
    let Some(callback) = read(&body) else { return StatusCode::BAD_REQUEST };
    let event = callback.event.clone();
    // Kept before the answer: if the answer is lost, the delivery repeats.
    shared.callbacks.lock().unwrap().push(callback);
    let manner = shared.manners.lock().unwrap().get(&endpoint).copied().unwrap_or(Manner::Well);
    let attempt = {
        let mut attempts = shared.attempts.lock().unwrap();
        let count = attempts.entry((endpoint, event)).or_default();
        *count += 1;
        *count
    };
    match manner {
        Manner::Hang(times) if attempt <= times => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            StatusCode::OK
        }
        Manner::Fail(times) if attempt <= times => StatusCode::INTERNAL_SERVER_ERROR,
        // The server closes the connection of a handler that unwinds, without an answer.
        Manner::Close(times) if attempt <= times => std::panic::resume_unwind(Box::new("as asked")),
        _ => StatusCode::OK,
    }
}

fn read(body: &[u8]) -> Option<SeenCallback> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(SeenCallback {
        event: value.get("id")?.as_str()?.to_owned(),
        kind: value.get("type")?.as_str()?.to_owned(),
        item: text("/item/id"),
        action: text("/action/id"),
        user: text("/creator/id"),
        appeal: text("/appealId"),
        decision: text("/appealDecision"),
        decided: text("/decision/id"),
        reason: text("/decisionReason"),
        at: text("/occurredAt"),
        body: String::from_utf8_lossy(body).into_owned(),
    })
}
