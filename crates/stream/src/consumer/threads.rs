//! Starts the driver threads of the consumers of one log, and stops them together.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    assignments::Assignments,
    driver::{Driver, DriverContext},
    engine::Engine,
    inbox::{BatchQueue, CompletedTimes, DrainResult, Inbox, Ownership},
    ticket::{DeadLetterSink, SettlementQueue},
};
use crate::{
    codec::Codec,
    error::ConsumeError,
    health::Health,
    settings::{Budget, ConsumeSettings},
    topics::{Group, Role},
    wakeup::Wakeup,
};

/// Parameters of a consumer, common to both engines.
pub(crate) struct ConsumerStart {
    pub(crate) group: Group,
    pub(crate) role: Role,
    pub(crate) budget: Budget,
    pub(crate) stop: CancellationToken,
    pub(crate) settings: ConsumeSettings,
    pub(crate) codec: Arc<Codec>,
    pub(crate) dead_letters: Arc<dyn DeadLetterSink>,
    pub(crate) health: Arc<Health>,
}

#[derive(Default)]
pub(crate) struct ConsumerThreads {
    closing: CancellationToken,
    drain_results: Mutex<Vec<watch::Receiver<Option<DrainResult>>>>,
}

impl fmt::Debug for ConsumerThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerThreads").finish_non_exhaustive()
    }
}

/// Ends the inbox when the thread ends, also by a panic, so that a role never waits for a dead driver.
struct EndGuard {
    queue: Arc<BatchQueue>,
    role: Role,
    ownership: watch::Sender<Ownership>,
    completed_times: CompletedTimes,
    drained: watch::Sender<Option<DrainResult>>,
    result: DrainResult,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        let detail = "its consumer ended unexpectedly".to_owned();
        // The queue keeps its first end, so this has no effect after an orderly one.
        self.queue.end(Err(ConsumeError::Broken { role: self.role, detail }));
        self.ownership.send_replace(Ownership::default());
        self.completed_times.replace(std::iter::empty());
        self.drained.send_replace(Some(self.result));
    }
}

impl ConsumerThreads {
    /// Starts a consumer. `open` runs on the consumer's own thread; its error reaches the role through the inbox. Must
    /// be called inside a tokio runtime.
    pub(crate) fn start<E: Engine>(
        &self,
        start: ConsumerStart,
        open: impl FnOnce(Arc<Wakeup>) -> Result<E, String> + Send + 'static,
    ) -> Inbox {
        let ConsumerStart { group, role, budget, stop, settings, codec, dead_letters, health } = start;
        let wakeup = Arc::new(Wakeup::default());
        let queue = Arc::new(BatchQueue::default());
        let (ownership, ownership_watch) = watch::channel(Ownership::default());
        let (drained, drain_result) = watch::channel(None);
        let completed_times = CompletedTimes::default();
        let stop = stop.child_token();
        self.register(drain_result.clone());

        let context = DriverContext {
            group,
            role,
            settings,
            codec,
            dead_letters,
            health,
            queue: Arc::clone(&queue),
            settlements: Arc::new(SettlementQueue::new(Arc::clone(&wakeup))),
            ownership: ownership.clone(),
            completed_times: completed_times.clone(),
            stop: stop.clone(),
            closing: self.closing.clone(),
        };
        // `Forced` holds if the thread panics; an orderly end replaces it.
        let guard = EndGuard {
            queue: Arc::clone(&queue),
            role,
            ownership,
            completed_times: completed_times.clone(),
            drained,
            result: DrainResult::Forced,
        };
        let driver_wakeup = Arc::clone(&wakeup);
        let thread = std::thread::Builder::new().name(format!("consume-{}", group.0)).spawn(move || {
            let mut guard = guard;
            match open(driver_wakeup) {
                Ok(engine) => {
                    guard.result = Driver::new(engine, context, Assignments::new(budget)).run();
                }
                Err(detail) => {
                    guard.queue.end(Err(ConsumeError::Refused { role, detail }));
                    // No record was handed out, so no work is lost.
                    guard.result = DrainResult::Clean;
                }
            }
        });
        if let Err(error) = thread {
            // The closure was dropped, and the guard with it: the inbox reports the end.
            tracing::error!(%role, %error, "no thread could be started for a consumer");
        }

        // The driver sleeps on a thread, so a task turns the cancellation into a wake-up.
        let closing = self.closing.clone();
        let stop_on_close = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop_on_close.cancelled() => {}
                () = closing.cancelled() => stop_on_close.cancel(),
            }
            wakeup.notify();
        });
        Inbox {
            queue,
            ownership: ownership_watch,
            completed_times,
            drained: drain_result,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        }
    }

    fn register(&self, drained: watch::Receiver<Option<DrainResult>>) {
        let mut drain_results = self.drain_results.lock();
        // Removes ended consumers, so that the list stays short.
        drain_results.retain(|result| result.borrow().is_none());
        drain_results.push(drained);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Stops every consumer and waits until each has drained, or the deadline.
    pub(crate) async fn close(&self, deadline: Instant) -> DrainResult {
        self.closing.cancel();
        let drain_results = std::mem::take(&mut *self.drain_results.lock());
        let mut overall_result = DrainResult::Clean;
        for mut drain_result in drain_results {
            let result = match tokio::time::timeout_at(deadline, drain_result.wait_for(Option::is_some)).await
            {
                Ok(Ok(result)) => result.unwrap_or(DrainResult::Forced),
                Ok(Err(_)) | Err(_) => DrainResult::Forced,
            };
            overall_result = overall_result.and(result);
        }
        overall_result
    }
}
