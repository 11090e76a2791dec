//! Plays the platform: takes callbacks, believes only what is signed, keeps and prints it.
//!
//! It acts on nothing. What it received lies in a file, so that another start still knows it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::Value;
use tidegate_egress::{Secret, signature};
use tidegate_schemas::{ids::Millis, names::OneLine};
use tidegate_stream::consumer::inbox::DrainResult;
use tidegate_web::HttpServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::output::print_line;

const FILE: &str = "received.ndjson";
/// Greatest age of a signature in seconds.
const TOLERANCE: u64 = 300;
const LARGEST: usize = 1 << 20;

/// One callback a line, as its bytes were but for line ends.
struct Received {
    path: PathBuf,
    file: Mutex<File>,
}

pub(super) struct Receiver {
    /// Secrets to verify with. Without one, every callback is refused.
    secrets: Vec<Secret>,
    received: Arc<Received>,
}

type Shared = Arc<Receiver>;

impl Receiver {
    pub(super) async fn open(folder: &Path, secret: Option<Secret>) -> anyhow::Result<Self> {
        let path = folder.join(FILE);
        let shown = path.display().to_string();
        let received = tokio::task::spawn_blocking(move || Received::open(path)).await?;
        let received = received.with_context(|| format!("cannot use {shown}"))?;
        Ok(Self { secrets: secret.into_iter().collect(), received: Arc::new(received) })
    }

    fn router(self) -> Router {
        Router::new()
            .route("/callbacks", post(receive))
            .route("/received", get(list))
            .layer(DefaultBodyLimit::max(LARGEST))
            .with_state(Arc::new(self))
    }

    pub(super) async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> anyhow::Result<DrainResult> {
        let http = tidegate_web::Settings { connections: 256, ..tidegate_web::Settings::default() };
        HttpServer::new("demo", http)?.serve(listener, self.router(), stop).await;
        // Whoever waits for its answers is none of the service's requests.
        Ok(DrainResult::Clean)
    }
}

async fn receive(State(receiver): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let now = u64::try_from(Millis::now().0 / 1_000).unwrap_or(0);
    if let Err(rejected) = signature::verify(&headers, &body, &receiver.secrets, now, TOLERANCE) {
        print_line(format!("refused a callback: {rejected}"));
        return (StatusCode::UNAUTHORIZED, rejected.tag()).into_response();
    }
    let Ok(callback) = serde_json::from_slice::<Callback>(&body) else {
        print_line("refused a callback: its body is no JSON object");
        return StatusCode::BAD_REQUEST.into_response();
    };
    let received = Arc::clone(&receiver.received);
    let kept = tokio::task::spawn_blocking(move || received.keep(&body)).await;
    match kept {
        Ok(Ok(())) => {
            print_line(OneLine(format_args!("{}", callback.line())));
            StatusCode::OK.into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// `GET /received`: every verified callback, in the order of arrival.
async fn list(State(receiver): State<Shared>) -> Response {
    let received = Arc::clone(&receiver.received);
    match tokio::task::spawn_blocking(move || received.list()).await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl Received {
    /// A line that a crash cut short is cut off: its sender was not answered and comes again.
    fn open(path: PathBuf) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        let content = fs::read(&path)?;
        let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < content.len() {
            file.set_len(whole as u64)?;
        }
        Ok(Self { path, file: Mutex::new(file) })
    }

    fn keep(&self, body: &[u8]) -> io::Result<()> {
        // Line ends stand only between JSON's tokens, never inside one.
        let mut line: Vec<u8> =
            body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }

    fn list(&self) -> io::Result<String> {
        let _no_half_line = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = fs::read_to_string(&self.path)?;
        Ok(format!("[{}]", lines.lines().collect::<Vec<_>>().join(",")))
    }
}

/// Parts of a callback that are printed.
#[derive(Deserialize)]
struct Callback {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    action: Value,
    #[serde(default)]
    item: Value,
    #[serde(rename = "appealDecision", default)]
    appeal_decision: Option<String>,
    #[serde(default)]
    sequence: Option<i64>,
}

impl Callback {
    fn line(&self) -> String {
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
        let what = self.appeal_decision.clone().unwrap_or_else(|| text(&self.action, "id"));
        let (type_id, id) = (text(&self.item, "typeId"), text(&self.item, "id"));
        let sequence = self.sequence.map(|sequence| format!("  sequence {sequence}")).unwrap_or_default();
        format!("verified callback  {}  {what}  {type_id} {id}{sequence}", self.kind)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_was_received_is_there_after_another_start_without_a_line_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let first = Received::open(path.clone()).unwrap();
        first.keep(b"{\"a\":\n1}").unwrap();
        assert_eq!(first.list().unwrap(), r#"[{"a": 1}]"#);
        drop(first);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"b\":").unwrap();
        let second = Received::open(path).unwrap();
        assert_eq!(second.list().unwrap(), r#"[{"a": 1}]"#);
        second.keep(b"{}").unwrap();
        assert_eq!(second.list().unwrap(), r#"[{"a": 1},{}]"#);
    }
}
