//! A place among the works of a consumer that run at once, which can be left for a while.
//!
//! It does not say what the work does meanwhile.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) struct Place {
    places: Arc<Semaphore>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Place {
    pub(crate) fn new(places: Arc<Semaphore>, held: OwnedSemaphorePermit) -> Self {
        Self { places, held: Mutex::new(Some(held)) }
    }

    pub(crate) fn leave(&self) {
        drop(self.held.lock().take());
    }

    pub(crate) async fn take(&self) {
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        *self.held.lock() = place;
    }

    /// Waits for what is no work of ours: whoever has some may take the place, and one is awaited afterwards.
    pub(crate) async fn aside<T>(&self, wait: impl Future<Output = T>) -> T {
        self.leave();
        let awaited = wait.await;
        self.take().await;
        awaited
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn who_waits_aside_holds_no_place() {
        let places = Arc::new(Semaphore::new(1));
        let place = Place::new(Arc::clone(&places), Arc::clone(&places).try_acquire_owned().unwrap());
        let free = place.aside(async { places.available_permits() }).await;
        assert_eq!((free, places.available_permits()), (1, 0));
        drop(place);
        assert_eq!(places.available_permits(), 1);
    }
}
