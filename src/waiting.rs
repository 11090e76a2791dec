//! Opens what lies on servers, however long they are away: tries again, and says in the probes and the log why it waits.
//!
//! It decides nothing about faults: whoever opens something says whether its server is away or refuses.

use std::time::Duration;

use axum::Router;
use tidegate_web::HttpServer;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::health::Health;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why something is not open.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Its server is away: tried again.
    Away(String),
    /// Waiting does not help: the start ends with it.
    Refused(anyhow::Error),
}

impl Fault {
    pub(crate) fn of<E: std::error::Error + Send + Sync + 'static>(error: E, is_outage: bool) -> Self {
        if is_outage { Self::Away(error.to_string()) } else { Self::Refused(error.into()) }
    }
}

/// Patience with servers that are away: the retry, and the parties that are told.
#[derive(Clone)]
pub(crate) struct Patience {
    health: Health,
    /// Cancelled once something is away.
    away: CancellationToken,
}

impl Patience {
    pub(crate) fn new(health: Health) -> Self {
        Self { health, away: CancellationToken::new() }
    }

    /// Tries until it is open or refused. `part` is its name in `/readyz` and in the log.
    pub(crate) async fn open<T>(
        &self,
        part: &'static str,
        mut attempt: impl AsyncFnMut() -> Result<T, Fault>,
    ) -> anyhow::Result<T> {
        let mut pause = FIRST_PAUSE;
        self.health.part(part, Some("it is being opened".to_owned()));
        loop {
            match attempt().await {
                Ok(open) => {
                    self.health.part(part, None);
                    if pause > FIRST_PAUSE {
                        tracing::info!(part, "it is there; the start goes on");
                    }
                    return Ok(open);
                }
                Err(Fault::Refused(error)) => return Err(error),
                Err(Fault::Away(why)) => {
                    tracing::warn!(part, why, again_in = ?pause, "it is away; the start waits for it");
                    self.health.part(part, Some(why));
                    self.away.cancel();
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Answers 503 on a port whose server cannot start yet, so that no client hangs. Only once something is away: a
    /// start that goes well lets its first clients wait the moment that it takes.
    pub(crate) fn answer_on(&self, listener: &TcpListener, rooms: &Rooms) -> std::io::Result<()> {
        let listener = duplicate(listener)?;
        let (away, closing) = (self.away.clone(), rooms.closing.clone());
        rooms.tasks.spawn(async move {
            let is_needed = tokio::select! {
                () = away.cancelled() => true,
                () = closing.cancelled() => false,
            };
            if is_needed {
                let http = tidegate_web::Settings {
                    // The limit of open files is not divided yet.
                    connections: 256,
                    drain_ms: 1_000,
                    ..tidegate_web::Settings::default()
                };
                match HttpServer::new("starting", http) {
                    Ok(server) => drop(server.serve(listener, refusals(), closing).await),
                    Err(error) => tracing::error!(%error, "nobody answers until the start is done"),
                }
            }
        });
        Ok(())
    }
}

/// The servers that answer in place of others.
#[derive(Default)]
pub(crate) struct Rooms {
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Rooms {
    /// Frees the ports for their servers; connections that arrive meanwhile wait for them.
    pub(crate) async fn close(self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn refusals() -> Router {
    let refuse = || tidegate_web::Problem::unavailable("The service is starting.", Duration::from_secs(5));
    tidegate_web::with_envelope(Router::new().fallback(async move || refuse()))
}

/// Another handle of the same listening socket.
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
    async fn what_is_away_is_tried_again_and_named_until_it_is_there() {
        let health = Health::default();
        let mut tries = 0;
        let patience = Patience::new(health.clone());
        let opened = patience.open("store", async || {
            tries += 1;
            if tries > 1 {
                assert_eq!(health.report().complaints["store"], "refused by nobody");
            }
            if tries < 3 { Err(Fault::Away("refused by nobody".to_owned())) } else { Ok(tries) }
        });
        assert_eq!(opened.await.unwrap(), 3);
        assert!(!health.report().complaints.contains_key("store"));
    }

    #[tokio::test]
    async fn a_refusal_ends_the_start_at_once() {
        let patience = Patience::new(Health::default());
        let mut tries = 0;
        let refused = patience.open("store", async || {
            tries += 1;
            if tries < 3 {
                return Err(Fault::Away("away".to_owned()));
            }
            Err::<(), _>(Fault::Refused(anyhow::anyhow!("wrong password")))
        });
        assert_eq!(refused.await.unwrap_err().to_string(), "wrong password");
        assert_eq!(tries, 3);
    }
}
