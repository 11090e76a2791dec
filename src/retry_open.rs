//! Opens parts that depend on servers, with retries and backoff, and reports in probes and log why the start waits.
//!
//! The caller classifies errors: an outage is retried; any other error ends the start.

use std::time::Duration;

use axum::Router;
use tidegate_web::HttpServer;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::health::Health;

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Reason why a part could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The server cannot be reached; opening is retried.
    Unavailable(String),
    /// Permanent error; it ends the start.
    Refused(anyhow::Error),
}

impl OpenError {
    pub(crate) fn new<E: std::error::Error + Send + Sync + 'static>(error: E, is_outage: bool) -> Self {
        if is_outage { Self::Unavailable(error.to_string()) } else { Self::Refused(error.into()) }
    }
}

/// Opens parts with retries, and reports those that are unavailable.
#[derive(Clone)]
pub(crate) struct OpenRetry {
    health: Health,
    /// Cancelled as soon as a part is unavailable.
    unavailable: CancellationToken,
}

impl OpenRetry {
    pub(crate) fn new(health: Health) -> Self {
        Self { health, unavailable: CancellationToken::new() }
    }

    /// Retries until the part is open or refused. `part` is its name in `/readyz` and in the log.
    pub(crate) async fn open<T>(
        &self,
        part: &'static str,
        mut attempt: impl AsyncFnMut() -> Result<T, OpenError>,
    ) -> anyhow::Result<T> {
        let mut backoff = FIRST_BACKOFF;
        // Set before the first attempt, so that `/readyz` names the part while an attempt hangs.
        self.health.set_complaint(part, Some("it is being opened".to_owned()));
        loop {
            match attempt().await {
                Ok(opened_part) => {
                    self.health.set_complaint(part, None);
                    // The log said that the start waits, so it also says that the wait is over.
                    if backoff > FIRST_BACKOFF {
                        tracing::info!(part, "the part is available; the start continues");
                    }
                    return Ok(opened_part);
                }
                Err(OpenError::Refused(error)) => return Err(error),
                Err(OpenError::Unavailable(why)) => {
                    tracing::warn!(part, why, again_in = ?backoff, "the part is unavailable; the start waits for it");
                    self.health.set_complaint(part, Some(why));
                    self.unavailable.cancel();
                }
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Answers 503 on the port of a server that cannot start yet, so that clients do not hang. Starts only when a part is unavailable: during
    /// a normal start the first clients just wait.
    pub(crate) fn answer_unavailable(
        &self,
        listener: &TcpListener,
        placeholders: &PlaceholderServers,
    ) -> std::io::Result<()> {
        // A handle of its own: the port stays open for the real server when the placeholder closes.
        let listener = duplicate(listener)?;
        let (unavailable, closing) = (self.unavailable.clone(), placeholders.closing.clone());
        placeholders.tasks.spawn(async move {
            let is_needed = tokio::select! {
                () = unavailable.cancelled() => true,
                () = closing.cancelled() => false,
            };
            if is_needed {
                let http = tidegate_web::Settings {
                    // The limit of open files is not yet divided among the servers.
                    connections: 256,
                    drain_ms: 1_000,
                    ..tidegate_web::Settings::default()
                };
                match HttpServer::new("starting", http) {
                    Ok(server) => drop(server.serve(listener, refusal_router(), closing).await),
                    Err(error) => tracing::error!(%error, "requests hang until the start is done"),
                }
            }
        });
        Ok(())
    }
}

/// Servers that answer 503 until the real ones start.
#[derive(Default)]
pub(crate) struct PlaceholderServers {
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl PlaceholderServers {
    /// Stops the placeholders. Connections that arrive meanwhile wait for the real servers.
    pub(crate) async fn close(self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn refusal_router() -> Router {
    let refuse = || tidegate_web::Problem::unavailable("The service is starting.", Duration::from_secs(5));
    tidegate_web::with_error_envelope(Router::new().fallback(async move || refuse()))
}

/// Returns another handle of the same listening socket.
#[cfg(unix)]
fn duplicate(listener: &TcpListener) -> std::io::Result<TcpListener> {
    use std::os::fd::AsFd as _;
    TcpListener::from_std(std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn duplicate(listener: &TcpListener) -> std::io::Result<TcpListener> {
    use std::os::windows::io::AsSocket as _;
    TcpListener::from_std(std::net::TcpListener::from(listener.as_socket().try_clone_to_owned()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn an_unavailable_part_is_retried_and_reported() {
        let health = Health::default();
        let mut tries = 0;
        let retry = OpenRetry::new(health.clone());
        let opened = retry.open("store", async || {
            tries += 1;
            if tries > 1 {
                assert_eq!(health.report().complaints["store"], "refused by nobody");
            }
            if tries < 3 { Err(OpenError::Unavailable("refused by nobody".to_owned())) } else { Ok(tries) }
        });
        assert_eq!(opened.await.unwrap(), 3);
        assert!(!health.report().complaints.contains_key("store"));
    }

    #[tokio::test]
    async fn a_refused_part_ends_the_start() {
        let retry = OpenRetry::new(Health::default());
        let mut tries = 0;
        let refused = retry.open("store", async || {
            tries += 1;
            if tries < 3 {
                return Err(OpenError::Unavailable("away".to_owned()));
            }
            Err::<(), _>(OpenError::Refused(anyhow::anyhow!("wrong password")))
        });
        assert_eq!(refused.await.unwrap_err().to_string(), "wrong password");
        assert_eq!(tries, 3);
    }
}
