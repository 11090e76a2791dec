//! Threads that count windows, so that reading many rows holds up no other input and output of the process.
//!
//! Each org has a number of look-ups at once; further ones wait without a thread.

use std::{
    collections::HashMap,
    io,
    panic::resume_unwind,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tidegate_moderation::Error;
use tidegate_schemas::ids::OrgId;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
};
use tokio_util::task::AbortOnDropHandle;

/// Number of orgs at which those without look-ups are forgotten.
const SWEPT_ORGS: usize = 64;

/// Cheap to clone; the threads end with the last clone.
#[derive(Clone)]
pub(crate) struct CountingThreads {
    handle: Handle,
    per_org: usize,
    orgs: Arc<Mutex<HashMap<OrgId, Weak<Semaphore>>>>,
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
            per_org,
            orgs: Arc::default(),
            _runtime: Arc::new(OwnedRuntime(Some(runtime))),
        })
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        org: &OrgId,
        look_up: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let permits = self.permits(org);
        // Never closed.
        let _permit = permits.acquire().await;
        let ended = AbortOnDropHandle::new(self.handle.spawn(look_up)).await;
        // The threads live as long as this, so a look-up ends early by a panic only.
        ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }

    fn permits(&self, org: &OrgId) -> Arc<Semaphore> {
        let mut orgs = self.orgs.lock();
        if let Some(permits) = orgs.get(org).and_then(Weak::upgrade) {
            return permits;
        }
        if orgs.len() >= SWEPT_ORGS {
            orgs.retain(|_, permits| permits.strong_count() > 0);
        }
        let permits = Arc::new(Semaphore::new(self.per_org));
        orgs.insert(org.clone(), Arc::downgrade(&permits));
        permits
    }
}
