//! Wake-up of one thread, which sleeps until it is notified or its time is over.
//!
//! It carries no data: work is stored elsewhere before the notification.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    is_notified: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        let mut is_notified = self.is_notified.lock();
        // One notification covers any number of events before the next wait.
        if !*is_notified {
            *is_notified = true;
            self.changed.notify_one();
        }
    }

    /// Waits for a notification. Returns at once if there was one since the last wait, so that none is lost between a check
    /// for work and the sleep.
    pub(crate) fn wait_up_to(&self, at_most: Duration) {
        let mut is_notified = self.is_notified.lock();
        if !*is_notified && !at_most.is_zero() {
            self.changed.wait_for(&mut is_notified, at_most);
        }
        *is_notified = false;
    }
}
