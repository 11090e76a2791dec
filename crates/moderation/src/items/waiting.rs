//! Wakes look-ups that wait for a submission when this process has stored its evaluation.
//!
//! Only a hint: another process may evaluate the submission, so waiters also read the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tidegate_schemas::ids::SubmissionId;
use tokio::sync::Notify;

/// Waiters of the process. Static, because the waiting and the evaluating roles share only log and store.
static WAITING: LazyLock<WaiterRegistry> = LazyLock::new(WaiterRegistry::default);

#[derive(Default)]
struct WaiterRegistry {
    /// Number of waiters: an item without waiters costs one load and no lock.
    count: AtomicUsize,
    by_submission: Mutex<HashMap<SubmissionId, Vec<Arc<Notify>>>>,
}

/// Registered look-up. Deregisters on drop.
pub(super) struct Waiter {
    submission: SubmissionId,
    notify: Arc<Notify>,
}

/// Registers a look-up. Later evaluations wake it, so read the store after this call.
pub(super) fn wait_for(submission: SubmissionId) -> Waiter {
    let notify = Arc::new(Notify::new());
    // Before the entry: with a count of zero `wake_waiters` would skip it.
    WAITING.count.fetch_add(1, Ordering::SeqCst);
    WAITING.by_submission.lock().entry(submission).or_default().push(Arc::clone(&notify));
    Waiter { submission, notify }
}

/// Wakes the waiters of a submission. Call after its evaluation is stored.
pub(super) fn wake_waiters(submission: SubmissionId) {
    if WAITING.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    for notify in WAITING.by_submission.lock().get(&submission).into_iter().flatten() {
        // Stores a permit, so a waiter that is not polled yet is woken too.
        notify.notify_one();
    }
}

impl Waiter {
    /// Completes when this process has evaluated the submission, even before the call.
    pub(super) async fn wait_until_woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = WAITING.by_submission.lock();
        if let Some(notifiers) = waiters.get_mut(&self.submission) {
            notifiers.retain(|notify| !Arc::ptr_eq(notify, &self.notify));
            if notifiers.is_empty() {
                waiters.remove(&self.submission);
            }
        }
        WAITING.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn only_waiters_of_the_submission_are_woken() {
        let (wanted, other) = (SubmissionId::random(), SubmissionId::random());
        let waiters = [wait_for(wanted), wait_for(wanted)];
        let elsewhere = wait_for(other);
        wake_waiters(wanted);
        assert!(waiters.iter().all(|waiter| waiter.wait_until_woken().now_or_never().is_some()));
        assert!(elsewhere.wait_until_woken().now_or_never().is_none());
    }

    #[test]
    fn dropped_waiter_is_deregistered() {
        let wanted = SubmissionId::random();
        let (gone, stays) = (wait_for(wanted), wait_for(wanted));
        drop(gone);
        wake_waiters(wanted);
        assert!(stays.wait_until_woken().now_or_never().is_some());
        drop(stays);
        assert!(!WAITING.by_submission.lock().contains_key(&wanted));
    }
}
