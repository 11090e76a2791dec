//! Demo platform: accepts signed callbacks, stores them in a file and prints them.
//!
//! The file keeps callbacks across restarts.

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
/// Maximum age of a signature in seconds.
const MAX_SIGNATURE_AGE_SECONDS: u64 = 300;
const MAX_BODY_BYTES: usize = 1 << 20;

/// File with one callback per line; line ends within a body are replaced by spaces.
struct CallbackFile {
    path: PathBuf,
    file: Mutex<File>,
}

pub(super) struct Receiver {
    /// Secrets that verify callbacks. Without one, every callback is refused.
    secrets: Vec<Secret>,
    callbacks: Arc<CallbackFile>,
}

type Shared = Arc<Receiver>;

impl Receiver {
    pub(super) async fn open(folder: &Path, secret: Option<Secret>) -> anyhow::Result<Self> {
        let path = folder.join(FILE);
        let display_path = path.display().to_string();
        let open_result = tokio::task::spawn_blocking(move || CallbackFile::open(path)).await?;
        let callbacks = open_result.with_context(|| format!("cannot use {display_path}"))?;
        Ok(Self { secrets: secret.into_iter().collect(), callbacks: Arc::new(callbacks) })
    }

    fn router(self) -> Router {
        Router::new()
            .route("/callbacks", post(receive))
            .route("/received", get(list))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(Arc::new(self))
    }

    pub(super) async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> anyhow::Result<DrainResult> {
        let http = tidegate_web::Settings { connections: 256, ..tidegate_web::Settings::default() };
        HttpServer::new("demo", http)?.serve(listener, self.router(), stop).await;
        // Requests to the receiver are none of the service's, so their end does not count as a forced drain.
        Ok(DrainResult::Clean)
    }
}

async fn receive(State(receiver): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let now_seconds = u64::try_from(Millis::now().0 / 1_000).unwrap_or(0);
    if let Err(rejected) =
        signature::verify(&headers, &body, &receiver.secrets, now_seconds, MAX_SIGNATURE_AGE_SECONDS)
    {
        print_line(format!("refused a callback: {rejected}"));
        return (StatusCode::UNAUTHORIZED, rejected.tag()).into_response();
    }
    let Ok(callback) = serde_json::from_slice::<Callback>(&body) else {
        print_line("refused a callback: its body is not a JSON object");
        return StatusCode::BAD_REQUEST.into_response();
    };
    let callbacks = Arc::clone(&receiver.callbacks);
    // Stored before the answer, because a callback with a failed answer is sent again.
    let write_result = tokio::task::spawn_blocking(move || callbacks.append(&body)).await;
    match write_result {
        Ok(Ok(())) => {
            print_line(OneLine(format_args!("{}", callback.summary_line())));
            StatusCode::OK.into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// `GET /received`: every verified callback, in the order of arrival.
async fn list(State(receiver): State<Shared>) -> Response {
    let callbacks = Arc::clone(&receiver.callbacks);
    match tokio::task::spawn_blocking(move || callbacks.list()).await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl CallbackFile {
    /// Opens the file and removes a line that a crash cut off: its sender got no answer and sends it again.
    fn open(path: PathBuf) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        let content = fs::read(&path)?;
        let complete_bytes = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
        if complete_bytes < content.len() {
            file.set_len(complete_bytes as u64)?;
        }
        Ok(Self { path, file: Mutex::new(file) })
    }

    fn append(&self, body: &[u8]) -> io::Result<()> {
        // JSON has line ends only between tokens, so the value stays the same.
        let mut line: Vec<u8> =
            body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }

    fn list(&self) -> io::Result<String> {
        // Held while reading, because a writer may have appended half of a line.
        let _no_half_line = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = fs::read_to_string(&self.path)?;
        Ok(format!("[{}]", lines.lines().collect::<Vec<_>>().join(",")))
    }
}

/// Printed parts of a callback.
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
    fn summary_line(&self) -> String {
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
        let decision = self.appeal_decision.clone().unwrap_or_else(|| text(&self.action, "id"));
        let (type_id, id) = (text(&self.item, "typeId"), text(&self.item, "id"));
        let sequence = self.sequence.map(|sequence| format!("  sequence {sequence}")).unwrap_or_default();
        format!("verified callback  {}  {decision}  {type_id} {id}{sequence}", self.kind)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn restart_keeps_callbacks_and_drops_a_cut_off_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let first = CallbackFile::open(path.clone()).unwrap();
        first.append(b"{\"a\":\n1}").unwrap();
        assert_eq!(first.list().unwrap(), r#"[{"a": 1}]"#);
        drop(first);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"b\":").unwrap();
        let second = CallbackFile::open(path).unwrap();
        assert_eq!(second.list().unwrap(), r#"[{"a": 1}]"#);
        second.append(b"{}").unwrap();
        assert_eq!(second.list().unwrap(), r#"[{"a": 1},{}]"#);
    }
}
