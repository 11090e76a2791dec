//! Runs roles concurrently: the first failure stops all, a signal drains all, and the exit code reports the outcome.
//!
//! Servers stop before workers, so that the last accepted requests still see the effects of their records.

use std::{future::Future, pin::Pin, process::ExitCode, time::Duration};

use tidegate_stream::consumer::inbox::DrainResult;
use tokio::{
    runtime::Handle,
    task::{Id, JoinError, JoinSet},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::health::{self, Health};

type RoleFuture = Pin<Box<dyn Future<Output = anyhow::Result<DrainResult>> + Send>>;

/// Part of the shutdown in which a role stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Accepts requests; stops first.
    Server,
    /// Processes accepted records; stops after the servers.
    Worker,
}

pub(crate) struct Role {
    name: &'static str,
    phase: Phase,
    start: Box<dyn FnOnce(CancellationToken) -> RoleFuture + Send>,
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

/// Outcome of running the roles, from which the exit code follows.
#[derive(Debug)]
pub(crate) enum End {
    /// Stopped by a signal, with no work left.
    Clean,
    /// Stopped by a signal, but not drained in time; the next start repeats the unfinished work.
    Forced,
    Failed {
        role: &'static str,
        error: anyhow::Error,
    },
}

/// Exit codes of the commands that run roles; documented in the help of `up`.
pub(crate) const EXIT_FORCED: u8 = 3;
pub(crate) const EXIT_ROLE_FAILED: u8 = 4;

impl End {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Clean => ExitCode::SUCCESS,
            Self::Forced => ExitCode::from(EXIT_FORCED),
            Self::Failed { .. } => ExitCode::from(EXIT_ROLE_FAILED),
        }
    }
}

pub(crate) struct Timing {
    /// Time between reporting "not ready" and refusing connections.
    pub(crate) linger: Duration,
    /// Time for draining after that.
    pub(crate) drain: Duration,
}

/// Runs until `signal` is cancelled, a role fails, or log or store is lost for good. Cancelling `force` ends the drain. Workers run
/// on the runtime of `workers`.
pub(crate) async fn run(
    roles: Vec<Role>,
    workers: &Handle,
    health: &Health,
    timing: &Timing,
    signal: CancellationToken,
    force: CancellationToken,
) -> End {
    let mut running_roles = RunningRoles::start(roles, workers, health);
    let early_end = tokio::select! {
        () = signal.cancelled() => None,
        role_end = running_roles.join_next() => Some(role_end),
        // All roles use the lost log or store, so the failure is reported under a separate name.
        reason = health.wait_for_fatal_error() => Some(("data", Err(anyhow::anyhow!(reason)))),
    };
    health.set_stopping();
    if let Some((role, result)) = early_end {
        // Workers stop without waiting for the servers: after a failure the requests may wait for results in vain.
        running_roles.stop_servers.cancel();
        running_roles.stop_workers.cancel();
        let error = match result {
            // A role has no reason to end before it is told to.
            Ok(_) => anyhow::anyhow!("it ended without a stop signal"),
            Err(error) => error,
        };
        tracing::error!(role, error = format!("{error:#}"), "a role failed, so all stop");
        // The first error is the cause; errors of the other roles are only logged.
        let _others = running_roles.join_all(Instant::now() + timing.drain, &force).await;
        return End::Failed { role, error };
    }
    tracing::info!("stopping: not ready any more");
    // Load balancers see the failing probe during this time and stop sending requests.
    let _forced_earlier = force.run_until_cancelled(tokio::time::sleep(timing.linger)).await;
    let deadline = Instant::now() + timing.drain;
    running_roles.stop_servers.cancel();
    running_roles.drain(deadline, &force).await
}

struct RunningRoles {
    tasks: JoinSet<anyhow::Result<DrainResult>>,
    /// Roles that have not ended, with the ids of their tasks.
    names: Vec<(Id, &'static str, Phase)>,
    stop_servers: CancellationToken,
    stop_workers: CancellationToken,
    health: Health,
}

impl RunningRoles {
    fn start(roles: Vec<Role>, workers: &Handle, health: &Health) -> Self {
        let mut running_roles = Self {
            tasks: JoinSet::new(),
            names: Vec::new(),
            stop_servers: CancellationToken::new(),
            stop_workers: CancellationToken::new(),
            health: health.clone(),
        };
        for Role { name, phase, start } in roles {
            health.set_role(name, health::Role::Running);
            // Threads of the worker runtime have a lower priority than those of servers.
            let task = match phase {
                Phase::Server => running_roles.tasks.spawn(start(running_roles.stop_servers.child_token())),
                Phase::Worker => {
                    running_roles.tasks.spawn_on(start(running_roles.stop_workers.child_token()), workers)
                }
            };
            running_roles.names.push((task.id(), name, phase));
        }
        running_roles
    }

    /// Waits for the next role to end, and returns its name and result.
    async fn join_next(&mut self) -> (&'static str, anyhow::Result<DrainResult>) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, result))) => (self.mark_ended(id), result),
            Some(Err(error)) => (self.mark_ended(error.id()), Err(join_error(&error))),
            // Without roles, the process waits for its signal.
            None => std::future::pending().await,
        }
    }

    /// Reports the role of the task as ended, and returns its name.
    fn mark_ended(&mut self, id: Id) -> &'static str {
        let Some(index) = self.names.iter().position(|(task_id, ..)| *task_id == id) else {
            return "unknown";
        };
        let (_, name, _) = self.names.remove(index);
        self.health.set_role(name, health::Role::Ended);
        name
    }

    fn has_running(&self, phase: Phase) -> bool {
        self.names.iter().any(|(.., role_phase)| *role_phase == phase)
    }

    /// Waits for the servers, then stops the workers and waits for them.
    async fn drain(&mut self, deadline: Instant, force: &CancellationToken) -> End {
        let mut outcome = DrainResult::Clean;
        while !self.names.is_empty() {
            // Workers stop after the last server, because requests may still wait for their results.
            if !self.has_running(Phase::Server) {
                self.stop_workers.cancel();
            }
            let role_end = tokio::select! {
                () = force.cancelled() => return End::Forced,
                ended = timeout_at(deadline, self.join_next()) => ended,
            };
            match role_end {
                Ok((role, Ok(drained))) => {
                    tracing::info!(role, clean = drained == DrainResult::Clean, "drained");
                    outcome = outcome.and(drained);
                }
                Ok((role, Err(error))) => {
                    tracing::error!(role, error = format!("{error:#}"), "a role failed while it drained");
                    self.stop_workers.cancel();
                    let _others = self.join_all(deadline, force).await;
                    return End::Failed { role, error };
                }
                Err(_) => {
                    let unfinished_roles: Vec<_> = self.names.iter().map(|(_, name, _)| *name).collect();
                    tracing::warn!(
                        left = ?unfinished_roles,
                        "the time to drain is over; the next start repeats unfinished work"
                    );
                    return End::Forced;
                }
            }
        }
        match outcome {
            DrainResult::Clean => End::Clean,
            DrainResult::Forced => End::Forced,
        }
    }

    /// Waits for all roles and logs their errors. False if the deadline or `force` ends the wait.
    async fn join_all(&mut self, deadline: Instant, force: &CancellationToken) -> bool {
        while !self.names.is_empty() {
            let next = timeout_at(deadline, self.join_next());
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

fn join_error(error: &JoinError) -> anyhow::Error {
    // The panic hook wrote the message and its location to standard error.
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
    fn exit_code_reports_the_outcome() {
        let failed = End::Failed { role: "ingest", error: anyhow::anyhow!("gone") };
        let codes = [End::Clean, End::Forced, failed].map(|end| format!("{:?}", end.exit_code()));
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
    async fn role_that_does_not_drain_in_time_forces_the_end() {
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
    async fn second_signal_ends_the_drain() {
        let roles = vec![Role::new("process", Phase::Worker, |_| std::future::pending())];
        let (signal, force) = (CancellationToken::new(), CancellationToken::new());
        signal.cancel();
        force.cancel();
        let end = run(roles, &Handle::current(), &Health::default(), &SOON, signal, force).await;
        assert!(matches!(end, End::Forced), "{end:?}");
    }
}
