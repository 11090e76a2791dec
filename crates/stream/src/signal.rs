//! One thread's alarm clock: it sleeps until somebody rings or its time is over.
//!
//! It carries no data; what there is to do lies elsewhere, written before the ring.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Signal {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Signal {
    pub(crate) fn ring(&self) {
        let mut rung = self.rung.lock();
        if !*rung {
            *rung = true;
            self.bell.notify_one();
        }
    }

    /// Returns at once if it rang since the last wait, so that no ring between a look and the sleep is lost.
    pub(crate) fn wait(&self, at_most: Duration) {
        let mut rung = self.rung.lock();
        if !*rung && !at_most.is_zero() {
            self.bell.wait_for(&mut rung, at_most);
        }
        *rung = false;
    }
}
