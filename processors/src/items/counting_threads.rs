//! Threads that read windows, separate from the process's other I/O because a look-up may read many rows.
//!
//! Each org has a limit of concurrent look-ups; further look-ups wait without a thread.

use std::{io, panic::resume_unwind, sync::Arc};

use tidegate_catalog::OrgPermits;
use tidegate_moderation::Error;
use tidegate_schemas::ids::OrgId;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// Handle of the threads. Cheap to clone; the threads end with the last clone.
#[derive(Clone)]
pub(crate) struct CountingThreads {
    handle: Handle,
    permits: OrgPermits,
    _runtime: Arc<OwnedRuntime>,
}

/// Runtime that a task may drop. Dropping a plain `Runtime` in a task would block on its threads, which panics.
struct OwnedRuntime(Option<Runtime>);

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl CountingThreads {
    pub(crate) fn new(threads: usize, per_org: usize) -> io::Result<Self> {
        // The embedded store reads on blocking threads, so they have the same limit.
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(threads)
            .thread_name("counting")
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            permits: OrgPermits::new(per_org),
            _runtime: Arc::new(OwnedRuntime(Some(runtime))),
        })
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        org: &OrgId,
        lookup: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let _permit = self.permits.acquire(org).await;
        let result = AbortOnDropHandle::new(self.handle.spawn(lookup)).await;
        // `self` keeps the runtime alive, so a join error can only be a panic.
        result.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}
