//! Concurrency slot of a part of a record: the right to run among the parts of one consumer.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slot that a part holds while it runs. A part that waits for something outside releases it, so that others run.
pub(crate) struct ConcurrencySlot {
    semaphore: Arc<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl ConcurrencySlot {
    pub(crate) fn new(semaphore: Arc<Semaphore>, permit: OwnedSemaphorePermit) -> Self {
        Self { semaphore, permit: Mutex::new(Some(permit)) }
    }

    pub(crate) fn release(&self) {
        drop(self.permit.lock().take());
    }

    pub(crate) async fn acquire(&self) {
        let permit = Arc::clone(&self.semaphore).acquire_owned().await.ok();
        *self.permit.lock() = permit;
    }

    /// Awaits `wait` without the slot, then waits for a slot again.
    pub(crate) async fn released_during<T>(&self, wait: impl Future<Output = T>) -> T {
        self.release();
        let output = wait.await;
        self.acquire().await;
        output
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn slot_is_free_for_others_during_a_wait() {
        let semaphore = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&semaphore).try_acquire_owned().unwrap();
        let slot = ConcurrencySlot::new(Arc::clone(&semaphore), permit);
        let free = slot.released_during(async { semaphore.available_permits() }).await;
        assert_eq!((free, semaphore.available_permits()), (1, 0));
        drop(slot);
        assert_eq!(semaphore.available_permits(), 1);
    }
}
