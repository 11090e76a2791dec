//! Wake-up of one thread: it sleeps until it is notified or its time is over.
//!
//! It carries no data: what there is to do lies elsewhere, and is written before the notification.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        let mut notified = self.notified.lock();
        if !*notified {
            *notified = true;
            self.changed.notify_one();
        }
    }

    /// Waits for a notification. Returns at once if there was one since the last wait, so that none is lost between
    /// a look at the work and the sleep.
    pub(crate) fn wait(&self, at_most: Duration) {
        let mut notified = self.notified.lock();
        if !*notified && !at_most.is_zero() {
            self.changed.wait_for(&mut notified, at_most);
        }
        *notified = false;
    }
}
