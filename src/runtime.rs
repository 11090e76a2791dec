//! Runtimes for asynchronous work: one answers requests, the other runs workers on threads of a lower priority.

use std::{future::Future, process::ExitCode, time::Duration};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle, Runtime};

/// Section `runtime` of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Threads that serve requests, and the same number that drive consumers; 0 for one per core. Threads of Rayon and of the log
    /// are extra.
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

/// Time that blocking work gets to finish at the end of a runtime.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn runtime_builder(settings: Settings) -> Builder {
    let mut builder = Builder::new_multi_thread();
    if settings.workers > 0 {
        builder.worker_threads(settings.workers.into());
    }
    builder.enable_all();
    builder
}

/// Runtime of the roles that process accepted work. Threads that answer requests have precedence, so a flood of one organisation's
/// items delays their processing and not the answers to others.
pub(crate) struct WorkerRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl WorkerRuntime {
    pub(crate) fn start(settings: Settings) -> anyhow::Result<Self> {
        let mut builder = runtime_builder(settings);
        builder.thread_name("worker").on_thread_start(lower_priority());
        let runtime = builder.build().context("the runtime of workers cannot start")?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the runtime. After an orderly drain, no tasks are left on it.
    pub(crate) async fn end(mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let shutdown = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(SHUTDOWN_TIMEOUT)).await;
        if let Err(error) = shutdown {
            tracing::warn!(%error, "the runtime of workers did not end");
        }
    }
}

impl Drop for WorkerRuntime {
    fn drop(&mut self) {
        // A failed start drops it inside a task, which must not block on the threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns a hook that lowers the priority of each worker thread. Threads started by these inherit it: those of the compute pool, of
/// counting and of the log's consumers.
#[cfg(target_os = "linux")]
fn lower_priority() -> impl Fn() + Send + Sync + 'static {
    use rustix::process::{getpriority_process, setpriority_process};
    /// Gives a thread about a tenth of the time of one with normal priority while both want it.
    const NICE: i32 = 10;
    // Relative to the priority that the process was started with.
    let lower_priority = getpriority_process(None).map(|usual| usual + NICE);
    move || {
        // Linux changes only the calling thread. If it refuses, all threads keep the same priority.
        if let Err(error) = lower_priority.and_then(|priority| setpriority_process(None, priority)) {
            tracing::debug!(%error, "the priority of a worker's thread cannot be lowered");
        }
    }
}

/// Other systems have one priority for the whole process.
#[cfg(not(target_os = "linux"))]
fn lower_priority() -> impl Fn() + Send + Sync + 'static {
    || {}
}

pub(crate) fn run(
    settings: Settings,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let runtime = runtime_builder(settings).build().context("the runtime cannot start")?;
    let end = runtime.block_on(work);
    // Blocking work of a forced end may hang, so the wait for it is limited.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    end
}
