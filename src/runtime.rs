//! The threads that asynchronous work runs on, and how they end.
//!
//! It does not know what runs.

use std::{future::Future, process::ExitCode, time::Duration};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;

/// The section `runtime` of the service's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Threads that serve requests and drive consumers; 0 for one a core. Rayon's and the log's own come on top.
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

pub(crate) fn run(
    settings: Settings,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let mut threads = Builder::new_multi_thread();
    if settings.workers > 0 {
        threads.worker_threads(settings.workers.into());
    }
    let runtime = threads.enable_all().build().context("the runtime cannot start")?;
    let end = runtime.block_on(work);
    runtime.shutdown_timeout(LEAVE);
    end
}
