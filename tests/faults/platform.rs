//! The platform's endpoint for items: answers signed requests, after a first attempt that hangs, fails or closes.
//!
//! It lives in the test's own process, so no kill reaches it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use tidegate_egress::signature::{Secret, verify};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{fetched, receiver::unix_seconds};

/// Time longer than a request may take, by the settings below.
const HANG: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Shared {
    /// Attempts by the id of their request.
    attempts: Mutex<BTreeMap<String, usize>>,
    /// Headers, body and time of arrival of each request.
    requests: Mutex<Vec<(HeaderMap, Bytes, u64)>>,
}

pub(crate) struct Platform {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Platform {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let router = Router::new().route("/items", post(answer)).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                panic!("the platform ended: {error}");
            }
        });
        Ok(Self { address, shared, server })
    }

    /// Settings of an installation with this platform. Rests are short, so all requests are settled soon after the load.
    pub(crate) fn settings(&self) -> String {
        let Self { address, .. } = self;
        format!(
            "[egress.partial_items]\ntotal_ms = 500\nrest_ms = 100\nlongest_rest_ms = 200\nrequests_per_org = 16\n\
             [partial_items.default]\nurl = \"http://{address}/items\"\n"
        )
    }

    /// Ids of the requests that were made.
    pub(crate) fn request_ids(&self) -> BTreeSet<String> {
        self.shared.attempts.lock().unwrap().keys().cloned().collect()
    }

    /// Number of requests without a valid signature.
    pub(crate) fn unsigned(&self, secret: &str) -> usize {
        let secrets = [Secret::parse(secret).unwrap()];
        let requests = self.shared.requests.lock().unwrap();
        requests
            .iter()
            .filter(|(headers, body, at)| verify(headers, body, &secrets, *at, 300).is_err())
            .count()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    shared.requests.lock().unwrap().push((headers, body.clone(), unix_seconds()));
    let attempt = {
        let mut attempts = shared.attempts.lock().unwrap();
        let count = attempts.entry(id.clone()).or_default();
        *count += 1;
        *count
    };
    // By the id, so the attempts of a request fail in the same way from every process.
    match (attempt, id.bytes().last().unwrap_or_default() % 8) {
        (1, 0) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        (1, 1) => tokio::time::sleep(HANG).await,
        // The server closes the connection of a handler that unwinds, without an answer.
        (1, 2) => std::panic::resume_unwind(Box::new("as asked")),
        _ => {}
    }
    let Ok(asked) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let text = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let items: Vec<_> = asked["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| (text(item, "typeId"), text(item, "id")))
        .filter(fetched::has)
        .map(|(type_id, id)| {
            let name = if type_id == "user" { "name" } else { "text" };
            json!({ "typeId": type_id, "id": id, "data": { name: format!("buy scamcoin, as {id} is now") } })
        })
        .collect();
    axum::Json(json!({ "items": items })).into_response()
}
