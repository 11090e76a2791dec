//! The threads that asynchronous work runs on, and how they end: those that answer requests, and those of workers, to which
//! the system gives less time while both want it.

use std::{future::Future, process::ExitCode, time::Duration};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle, Runtime};

/// The section `runtime` of the service's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Threads that serve requests, and as many that drive consumers; 0 for one a core. Rayon's and the log's own come on
    /// top.
    pub(crate) workers: u16,
    /// Open files that are kept for data and calls, at most half of the process's limit; clients' connections get the
    /// rest.
    pub(crate) reserved_files: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { workers: 0, reserved_files: 2_048 }
    }
}

/// Blocking work of a forced end is not waited for longer.
const LEAVE: Duration = Duration::from_secs(1);

fn threads(settings: Settings) -> Builder {
    let mut threads = Builder::new_multi_thread();
    if settings.workers > 0 {
        threads.worker_threads(settings.workers.into());
    }
    threads.enable_all();
    threads
}

/// Runtime of the roles that work on what was accepted. A request that arrives while both want a processor comes first, so
/// that a flood of one organisation's items delays their processing and not the answers to others.
pub(crate) struct WorkerRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl WorkerRuntime {
    pub(crate) fn start(settings: Settings) -> anyhow::Result<Self> {
        let mut threads = threads(settings);
        threads.thread_name("worker").on_thread_start(lower_priority());
        let runtime = threads.build().context("the runtime of workers cannot start")?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends it like the other one. Nothing is left on it after an orderly end.
    pub(crate) async fn end(mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(LEAVE)).await;
        if let Err(error) = ended {
            tracing::warn!(%error, "the runtime of workers did not end");
        }
    }
}

impl Drop for WorkerRuntime {
    fn drop(&mut self) {
        // A task drops it when a start fails, and must not wait for its threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns a step for each thread of workers that lowers its priority. The threads that it starts inherit it: those of the
/// compute pool, of counting and of the log's consumers.
#[cfg(target_os = "linux")]
fn lower_priority() -> impl Fn() + Send + Sync + 'static {
    use rustix::process::{getpriority_process, setpriority_process};
    /// About a tenth of the time of a thread at the usual priority, while both want it.
    const NICE: i32 = 10;
    let lowered = getpriority_process(None).map(|usual| usual + NICE);
    move || {
        // Linux changes the calling thread alone. If it refuses, all threads have the same priority.
        if let Err(error) = lowered.and_then(|priority| setpriority_process(None, priority)) {
            tracing::debug!(%error, "the priority of a worker's thread cannot be lowered");
        }
    }
}

/// Elsewhere a priority is that of the whole process.
#[cfg(not(target_os = "linux"))]
fn lower_priority() -> impl Fn() + Send + Sync + 'static {
    || {}
}

pub(crate) fn run(
    settings: Settings,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let runtime = threads(settings).build().context("the runtime cannot start")?;
    let end = runtime.block_on(work);
    runtime.shutdown_timeout(LEAVE);
    end
}
