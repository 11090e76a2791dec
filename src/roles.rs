//! Runs roles beside each other: the first failure stops all, a signal drains all, and the end says how it went.
//!
//! It does not know what a role does. Servers stop first and workers after them, so that a request under way still
//! sees what its records lead to.

use std::{future::Future, pin::Pin, process::ExitCode, time::Duration};

use tidegate_stream::consumer::inbox::DrainResult;
use tokio::{
    runtime::Handle,
    task::{Id, JoinError, JoinSet},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::health::{self, Health};

type Run = Pin<Box<dyn Future<Output = anyhow::Result<DrainResult>> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Takes requests: stops first.
    Server,
    /// Works on what was taken: stops when the servers have.
    Worker,
}

pub(crate) struct Role {
    name: &'static str,
    phase: Phase,
    start: Box<dyn FnOnce(CancellationToken) -> Run + Send>,
}

impl Role {
    pub(crate) fn new<F>(
        name: &'static str,
        phase: Phase,
        start: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = anyhow::Result<DrainResult>> + Send + 'static,
    {
        Self { name, phase, start: Box::new(move |stop| Box::pin(start(stop))) }
    }
}

/// End of the process; the exit code follows from it.
#[derive(Debug)]
pub(crate) enum End {
    /// Told to stop; nothing was left under way.
    Clean,
    /// Told to stop; time ran out with work under way, which is done again at the next start.
    Forced,
    Failed {
        role: &'static str,
        error: anyhow::Error,
    },
}

/// Exit codes of the commands that run roles; documented in the help of `up`.
pub(crate) const FORCED: u8 = 3;
pub(crate) const ROLE_FAILED: u8 = 4;

impl End {
    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::Clean => ExitCode::SUCCESS,
            Self::Forced => ExitCode::from(FORCED),
            Self::Failed { .. } => ExitCode::from(ROLE_FAILED),
        }
    }
}

pub(crate) struct Timing {
    /// Time between "not ready" and the end of accepting.
    pub(crate) linger: Duration,
    /// Time for everything after that.
    pub(crate) drain: Duration,
}

/// Runs until `signal` is cancelled, twice cancelled (`force`), a role fails, or what all of them need is lost. Workers run on
/// the runtime of `workers`.
pub(crate) async fn run(
    roles: Vec<Role>,
    workers: &Handle,
    health: &Health,
    timing: &Timing,
    signal: CancellationToken,
    force: CancellationToken,
) -> End {
    let mut crew = Crew::start(roles, workers, health);
    let failed = tokio::select! {
        () = signal.cancelled() => None,
        ended = crew.next() => Some(ended),
        why = health.lost() => Some(("data", Err(anyhow::anyhow!(why)))),
    };
    health.stopping();
    if let Some((role, ended)) = failed {
        crew.servers.cancel();
        crew.workers.cancel();
        let error = match ended {
            Ok(_) => anyhow::anyhow!("it ended without being told to"),
            Err(error) => error,
        };
        tracing::error!(role, error = format!("{error:#}"), "a role failed, so all stop");
        let _others = crew.all(Instant::now() + timing.drain, &force).await;
        return End::Failed { role, error };
    }
    tracing::info!("stopping: not ready any more");
    let _forced_earlier = force.run_until_cancelled(tokio::time::sleep(timing.linger)).await;
    let deadline = Instant::now() + timing.drain;
    crew.servers.cancel();
    crew.drain(deadline, &force).await
}

struct Crew {
    tasks: JoinSet<anyhow::Result<DrainResult>>,
    names: Vec<(Id, &'static str, Phase)>,
    servers: CancellationToken,
    workers: CancellationToken,
    health: Health,
}

impl Crew {
    fn start(roles: Vec<Role>, workers: &Handle, health: &Health) -> Self {
        let mut crew = Self {
            tasks: JoinSet::new(),
            names: Vec::new(),
            servers: CancellationToken::new(),
            workers: CancellationToken::new(),
            health: health.clone(),
        };
        for Role { name, phase, start } in roles {
            health.role(name, health::Role::Running);
            let task = match phase {
                Phase::Server => crew.tasks.spawn(start(crew.servers.child_token())),
                Phase::Worker => crew.tasks.spawn_on(start(crew.workers.child_token()), workers),
            };
            crew.names.push((task.id(), name, phase));
        }
        crew
    }

    /// The next role that ends, and how.
    async fn next(&mut self) -> (&'static str, anyhow::Result<DrainResult>) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, result))) => (self.ended(id), result),
            Some(Err(error)) => (self.ended(error.id()), Err(panicked(&error))),
            // No roles: nothing ever ends.
            None => std::future::pending().await,
        }
    }

    fn ended(&mut self, id: Id) -> &'static str {
        let Some(at) = self.names.iter().position(|(known, ..)| *known == id) else { return "unknown" };
        let (_, name, _) = self.names.remove(at);
        self.health.role(name, health::Role::Ended);
        name
    }

    fn has(&self, phase: Phase) -> bool {
        self.names.iter().any(|(.., of)| *of == phase)
    }

    /// Waits for the servers, tells the workers, and waits for them.
    async fn drain(&mut self, deadline: Instant, force: &CancellationToken) -> End {
        let mut how = DrainResult::Clean;
        while !self.names.is_empty() {
            if !self.has(Phase::Server) {
                self.workers.cancel();
            }
            let ended = tokio::select! {
                () = force.cancelled() => return End::Forced,
                ended = timeout_at(deadline, self.next()) => ended,
            };
            match ended {
                Ok((role, Ok(drained))) => {
                    tracing::info!(role, clean = drained == DrainResult::Clean, "drained");
                    how = how.and(drained);
                }
                Ok((role, Err(error))) => {
                    tracing::error!(role, error = format!("{error:#}"), "a role failed while it drained");
                    self.workers.cancel();
                    let _others = self.all(deadline, force).await;
                    return End::Failed { role, error };
                }
                Err(_) => {
                    let left: Vec<_> = self.names.iter().map(|(_, name, _)| *name).collect();
                    tracing::warn!(
                        ?left,
                        "time to drain is over; what is left is done again at the next start"
                    );
                    return End::Forced;
                }
            }
        }
        match how {
            DrainResult::Clean => End::Clean,
            DrainResult::Forced => End::Forced,
        }
    }

    async fn all(&mut self, deadline: Instant, force: &CancellationToken) -> bool {
        while !self.names.is_empty() {
            let next = timeout_at(deadline, self.next());
            match force.run_until_cancelled(next).await {
                Some(Ok((role, Err(error)))) => {
                    tracing::error!(role, error = format!("{error:#}"), "another role failed");
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return false,
            }
        }
        true
    }
}

fn panicked(error: &JoinError) -> anyhow::Error {
    // What it said went to standard error with its place.
    if error.is_panic() { anyhow::anyhow!("it panicked") } else { anyhow::anyhow!("it was aborted") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use super::*;

    const SOON: Timing = Timing { linger: Duration::ZERO, drain: Duration::from_secs(60) };

    type Order = Arc<Mutex<Vec<&'static str>>>;

    fn obedient(name: &'static str, phase: Phase, order: &Order) -> Role {
        let order = Arc::clone(order);
        Role::new(name, phase, move |stop| async move {
            stop.cancelled().await;
            order.lock().unwrap().push(name);
            Ok(DrainResult::Clean)
        })
    }

    #[test]
    fn the_exit_code_tells_how_it_ended() {
        let failed = End::Failed { role: "ingest", error: anyhow::anyhow!("gone") };
        let codes = [End::Clean, End::Forced, failed].map(|end| format!("{:?}", end.code()));
        assert_eq!(codes, [0, 3, 4].map(|code| format!("{:?}", ExitCode::from(code))));
    }

    #[tokio::test]
    async fn a_signal_stops_servers_before_workers_and_ends_clean() {
        let order = Order::default();
        let roles =
            vec![obedient("deliver", Phase::Worker, &order), obedient("ingest", Phase::Server, &order)];
        let signal = CancellationToken::new();
        signal.cancel();
        let end =
            run(roles, &Handle::current(), &Health::default(), &SOON, signal, CancellationToken::new()).await;
        assert!(matches!(end, End::Clean), "{end:?}");
        assert_eq!(*order.lock().unwrap(), ["ingest", "deliver"]);
    }

    #[tokio::test]
    async fn the_first_failure_stops_all_and_is_named() {
        let order = Order::default();
        let roles = vec![
            obedient("ingest", Phase::Server, &order),
            Role::new("process", Phase::Worker, |_| async { Err(anyhow::anyhow!("no disk")) }),
        ];
        let never = CancellationToken::new();
        let end = run(roles, &Handle::current(), &Health::default(), &SOON, never.clone(), never).await;
        let End::Failed { role, error } = end else { panic!("{end:?}") };
        assert_eq!((role, error.to_string().as_str()), ("process", "no disk"));
        assert_eq!(*order.lock().unwrap(), ["ingest"]);
    }

    #[tokio::test]
    async fn a_role_that_ends_by_itself_or_panics_is_a_failure() {
        for role in [
            Role::new("process", Phase::Worker, |_| async { Ok(DrainResult::Clean) }),
            Role::new("process", Phase::Worker, |_| async { panic!("a defect") }),
        ] {
            let never = CancellationToken::new();
            let end =
                run(vec![role], &Handle::current(), &Health::default(), &SOON, never.clone(), never).await;
            assert!(matches!(end, End::Failed { role: "process", .. }), "{end:?}");
        }
    }

    #[tokio::test]
    async fn a_role_that_does_not_drain_in_time_is_left_and_the_end_says_so() {
        let roles = vec![Role::new("process", Phase::Worker, |_| std::future::pending())];
        let signal = CancellationToken::new();
        signal.cancel();
        let at_once = Timing { linger: Duration::ZERO, drain: Duration::ZERO };
        let end =
            run(roles, &Handle::current(), &Health::default(), &at_once, signal, CancellationToken::new())
                .await;
        assert!(matches!(end, End::Forced), "{end:?}");
    }

    #[tokio::test]
    async fn a_second_signal_does_not_wait() {
        let roles = vec![Role::new("process", Phase::Worker, |_| std::future::pending())];
        let (signal, force) = (CancellationToken::new(), CancellationToken::new());
        signal.cancel();
        force.cancel();
        let end = run(roles, &Handle::current(), &Health::default(), &SOON, signal, force).await;
        assert!(matches!(end, End::Forced), "{end:?}");
    }
}
