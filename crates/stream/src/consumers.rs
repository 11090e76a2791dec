//! The consumers of one log: starts each on its thread, and ends them together.
//!
//! It does not drive them: a driver does.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    book::Book,
    budget::Budget,
    driver::{Driver, Parts},
    engine::Engine,
    error::ConsumeError,
    health::Health,
    inbox::{Drained, Inbox, Ownership, Tray},
    settings::Consume,
    signal::Signal,
    ticket::{Desk, Outlet},
    topics::{Group, Role},
};

/// What a consumer is started with, whichever engine reads for it.
pub(crate) struct Start {
    pub(crate) group: Group,
    pub(crate) role: Role,
    pub(crate) budget: Budget,
    pub(crate) stop: CancellationToken,
    pub(crate) settings: Consume,
    pub(crate) outlet: Outlet,
    pub(crate) health: Arc<Health>,
}

#[derive(Default)]
pub(crate) struct Consumers {
    closing: CancellationToken,
    running: Mutex<Vec<watch::Receiver<Option<Drained>>>>,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumers").finish_non_exhaustive()
    }
}

/// Ends the inbox whatever ends the thread, so that a role never waits for a driver that is gone.
struct Ending {
    tray: Arc<Tray>,
    role: Role,
    ownership: watch::Sender<Ownership>,
    drained: watch::Sender<Option<Drained>>,
    how: Drained,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let detail = "its consumer ended unexpectedly".to_owned();
        // The first end counts: after an orderly one this changes nothing.
        self.tray.end(Err(ConsumeError::Broken { role: self.role, detail }));
        self.ownership.send_replace(Ownership::default());
        self.drained.send_replace(Some(self.how));
    }
}

impl Consumers {
    /// `open` runs on the consumer's own thread; its error reaches the role through the inbox. Must be
    /// called inside a tokio runtime.
    pub(crate) fn start<E: Engine>(
        &self,
        start: Start,
        open: impl FnOnce(Arc<Signal>) -> Result<E, String> + Send + 'static,
    ) -> Inbox {
        let Start { group, role, budget, stop, settings, outlet, health } = start;
        let signal = Arc::new(Signal::default());
        let tray = Arc::new(Tray::default());
        let (ownership, owned) = watch::channel(Ownership::default());
        let (drained, was_drained) = watch::channel(None);
        let stop = stop.child_token();
        self.register(was_drained.clone());

        let parts = Parts {
            group,
            role,
            settings,
            codec: Arc::clone(&outlet.codec),
            outlet: Arc::new(outlet),
            health,
            tray: Arc::clone(&tray),
            desk: Arc::new(Desk::new(Arc::clone(&signal))),
            ownership: ownership.clone(),
            stop: stop.clone(),
            closing: self.closing.clone(),
        };
        let ending = Ending { tray: Arc::clone(&tray), role, ownership, drained, how: Drained::Forced };
        let ring = Arc::clone(&signal);
        let spawned = std::thread::Builder::new().name(format!("consume-{}", group.0)).spawn(move || {
            let mut ending = ending;
            match open(signal) {
                Ok(engine) => {
                    ending.how = Driver::new(engine, parts, Book::new(budget)).run();
                }
                Err(detail) => {
                    ending.tray.end(Err(ConsumeError::Refused { role, detail }));
                    ending.how = Drained::Clean;
                }
            }
        });
        if let Err(error) = spawned {
            // The closure, and with it the ending, was dropped: the inbox tells it.
            tracing::error!(%role, %error, "no thread for a consumer");
        }

        let closing = self.closing.clone();
        let stopping = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = closing.cancelled() => stopping.cancel(),
            }
            ring.ring();
        });
        Inbox { tray, ownership: owned, drained: was_drained, _stop_on_drop: stop.clone().drop_guard(), stop }
    }

    fn register(&self, drained: watch::Receiver<Option<Drained>>) {
        let mut running = self.running.lock();
        running.retain(|other| other.borrow().is_none());
        running.push(drained);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Stops every consumer and waits until each has drained, or the deadline.
    pub(crate) async fn close(&self, deadline: Instant) -> Drained {
        self.closing.cancel();
        let running = std::mem::take(&mut *self.running.lock());
        let mut all = Drained::Clean;
        for mut one in running {
            let how = match tokio::time::timeout_at(deadline, one.wait_for(Option::is_some)).await {
                Ok(Ok(how)) => how.unwrap_or(Drained::Forced),
                Ok(Err(_)) | Err(_) => Drained::Forced,
            };
            all = all.and(how);
        }
        all
    }
}
