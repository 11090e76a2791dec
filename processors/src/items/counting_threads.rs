//! Threads that count windows, so that reading many rows holds up no other input and output of the process.
//!
//! Each org has a number of look-ups at once; further ones wait without a thread.

use std::{io, panic::resume_unwind, sync::Arc};

use tidegate_catalog::OrgPermits;
use tidegate_moderation::Error;
use tidegate_schemas::ids::OrgId;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// Cheap to clone; the threads end with the last clone.
#[derive(Clone)]
pub(crate) struct CountingThreads {
    handle: Handle,
    permits: OrgPermits,
    _runtime: Arc<OwnedRuntime>,
}

/// Runtime that may be dropped by a task, which must not wait for its threads.
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
        // The embedded store reads on blocking threads.
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
        look_up: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let _permit = self.permits.acquire(org).await;
        let ended = AbortOnDropHandle::new(self.handle.spawn(look_up)).await;
        // The threads live as long as this, so a look-up ends early by a panic only.
        ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}
