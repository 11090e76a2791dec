//! Wakes look-ups that wait for a submission once this process has stored its evaluation.
//!
//! It is a hint only: whoever waits looks at the store too, since another process may evaluate the submission.

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

/// Look-ups of the process. It is a static because the roles that wait and that evaluate share only log and store.
static WAITING: LazyLock<Waiting> = LazyLock::new(Waiting::default);

#[derive(Default)]
struct Waiting {
    /// Number of waiters, so that an item that nobody waits for costs one load and no lock.
    count: AtomicUsize,
    by_submission: Mutex<HashMap<SubmissionId, Vec<Arc<Notify>>>>,
}

/// A look-up that waits for a submission, until it is dropped.
pub(super) struct Waiter {
    submission: SubmissionId,
    woken: Arc<Notify>,
}

/// Registers a look-up. What is stored from now on wakes it, so look at the store after this.
pub(super) fn wait_for(submission: SubmissionId) -> Waiter {
    let woken = Arc::new(Notify::new());
    WAITING.count.fetch_add(1, Ordering::SeqCst);
    WAITING.by_submission.lock().entry(submission).or_default().push(Arc::clone(&woken));
    Waiter { submission, woken }
}

/// Wakes those who wait for a submission whose evaluation is stored.
pub(super) fn evaluated(submission: SubmissionId) {
    if WAITING.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    for woken in WAITING.by_submission.lock().get(&submission).into_iter().flatten() {
        woken.notify_one();
    }
}

impl Waiter {
    /// Ends once the submission is evaluated by this process, also if that was before the call.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = WAITING.by_submission.lock();
        if let Some(all) = waiting.get_mut(&self.submission) {
            all.retain(|woken| !Arc::ptr_eq(woken, &self.woken));
            if all.is_empty() {
                waiting.remove(&self.submission);
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
    fn each_waiter_of_a_submission_is_woken_and_no_other() {
        let (wanted, other) = (SubmissionId::random(), SubmissionId::random());
        let waiters = [wait_for(wanted), wait_for(wanted)];
        let elsewhere = wait_for(other);
        evaluated(wanted);
        assert!(waiters.iter().all(|waiter| waiter.woken().now_or_never().is_some()));
        assert!(elsewhere.woken().now_or_never().is_none());
    }

    #[test]
    fn waiter_that_is_gone_leaves_nothing_behind() {
        let wanted = SubmissionId::random();
        let (gone, stays) = (wait_for(wanted), wait_for(wanted));
        drop(gone);
        evaluated(wanted);
        assert!(stays.woken().now_or_never().is_some());
        drop(stays);
        assert!(!WAITING.by_submission.lock().contains_key(&wanted));
    }
}
