//! Permits for tasks: waits in the queue, and releases on drop. The user of the scheduler defines which keys are proven.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::sync::oneshot;

use crate::{
    fair_queue::{EntryId, FairQueue, Grant, Key, QueueFull, Request, Totals},
    limits::Limits,
};

/// Scheduler that hands out permits. Clones share all limits.
#[derive(Clone)]
pub struct Scheduler(Arc<Shared>);

struct Shared {
    queue: Mutex<FairQueue<oneshot::Sender<Permit>>>,
    is_proven: Box<IsProven>,
    observe: Box<dyn Fn(Totals) + Send + Sync>,
}

type IsProven = dyn Fn(&OrgId, &[Key]) -> bool + Send + Sync;

/// Permission to run, released on drop.
pub struct Permit {
    scheduler: Scheduler,
    /// `None` only while the permit is dropped.
    grant: Option<Grant>,
}

impl Scheduler {
    /// `is_proven` tells whether all keys of an entry are proven; `observe` receives the new totals after
    /// each change. Neither may call the scheduler, because its lock is held.
    pub fn new(
        limits: Limits,
        is_proven: impl Fn(&OrgId, &[Key]) -> bool + Send + Sync + 'static,
        observe: impl Fn(Totals) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            queue: Mutex::new(FairQueue::new(limits)),
            is_proven: Box::new(is_proven),
            observe: Box::new(observe),
        }))
    }

    /// Waits for a permit. Dropping the future cancels the entry.
    pub async fn acquire(&self, org: &OrgId, keys: &[Key], weight: usize) -> Result<Permit, QueueFull> {
        let (sender, permit_receiver) = oneshot::channel();
        let id = {
            let mut queue = self.0.queue.lock();
            queue.push(self.build_request(org, keys, weight), sender)?
        };
        let _cancel = CancelOnDrop { scheduler: self, id };
        self.dispatch();
        // The sender is dropped unsent only if this future is dropped, so the error is never returned.
        permit_receiver.await.map_err(|_| QueueFull::Entries)
    }

    /// Returns a permit if one is free now.
    pub fn try_acquire(&self, org: &OrgId, keys: &[Key], weight: usize) -> Option<Permit> {
        let grant = {
            let mut queue = self.0.queue.lock();
            queue.try_start(self.build_request(org, keys, weight))?
        };
        self.report_totals();
        Some(Permit { scheduler: self.clone(), grant: Some(grant) })
    }

    /// Evaluates again whether these keys are proven, and starts the entries that became runnable.
    pub fn refresh(&self, org: &OrgId, keys: &[Key]) {
        {
            // Evaluated under the lock, so that no concurrent `push` stores an older result.
            let mut queue = self.0.queue.lock();
            queue.set_proven(org, keys, (self.0.is_proven)(org, keys));
        }
        self.dispatch();
    }

    /// Evaluates the same for all keys that entries of the org wait for. The next call starts the runnable
    /// entries.
    pub fn refresh_org(&self, org: &OrgId) {
        self.0.queue.lock().update_proven(org, |keys| (self.0.is_proven)(org, keys));
    }

    pub fn totals(&self) -> Totals {
        self.0.queue.lock().totals()
    }

    fn build_request(&self, org: &OrgId, keys: &[Key], weight: usize) -> Request {
        Request { org: org.clone(), keys: keys.into(), weight, is_proven: (self.0.is_proven)(org, keys) }
    }

    fn dispatch(&self) {
        loop {
            // The lock is released before the send, because a permit that is dropped locks the queue again.
            let next = self.0.queue.lock().start_next();
            let Some((grant, sender)) = next else { break };
            // If the future is dropped at this moment, the send fails and dropping the permit releases it to
            // the next entry.
            drop(sender.send(Permit { scheduler: self.clone(), grant: Some(grant) }));
        }
        self.report_totals();
    }

    fn report_totals(&self) {
        (self.0.observe)(self.totals());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.scheduler.0.queue.lock().finish(grant);
            self.scheduler.dispatch();
        }
    }
}

struct CancelOnDrop<'a> {
    scheduler: &'a Scheduler,
    id: EntryId,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let cancelled = self.scheduler.0.queue.lock().cancel(&self.id);
        if cancelled.is_some() {
            self.scheduler.report_totals();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, future::BoxFuture, poll};

    use super::*;

    fn one_at_a_time() -> Scheduler {
        Scheduler::new(Limits { running: 1, ..Limits::UNLIMITED }, |_, _| false, |_| {})
    }

    fn acquire(scheduler: &Scheduler) -> BoxFuture<'_, Result<Permit, QueueFull>> {
        async { scheduler.acquire(&OrgId::new("o"), &["key".into()], 1).await }.boxed()
    }

    #[tokio::test]
    async fn dropping_a_permit_starts_the_next_entry() {
        let scheduler = one_at_a_time();
        let first = acquire(&scheduler).await.unwrap();
        let mut second = acquire(&scheduler);
        assert!(poll!(&mut second).is_pending());
        drop(first);
        drop(second.now_or_never().unwrap());
        assert_eq!(scheduler.totals(), Totals::default());
    }

    #[tokio::test]
    async fn dropping_the_future_leaves_the_queue_at_once() {
        let scheduler = one_at_a_time();
        let first = acquire(&scheduler).await.unwrap();
        let mut second = acquire(&scheduler);
        let mut third = acquire(&scheduler);
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        for _ in 0..1_000 {
            assert!(acquire(&scheduler).now_or_never().is_none());
            assert_eq!(scheduler.totals(), Totals { running: 1, waiting: 2, weight: 3 });
        }
        drop(second);
        drop(first);
        assert!(third.now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn permit_of_a_dropped_future_is_passed_on() {
        let scheduler = one_at_a_time();
        let first = acquire(&scheduler).await.unwrap();
        let (mut second, mut third) = (acquire(&scheduler), acquire(&scheduler));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        // The permit is in the channel of the second entry, which drops it unread.
        drop(first);
        assert!(poll!(&mut third).is_pending());
        drop(second);
        assert!(third.now_or_never().unwrap().is_ok());
        assert_eq!(scheduler.totals(), Totals::default());
    }

    #[test]
    fn observer_sees_each_change() {
        let last_totals = Arc::new(Mutex::new(Totals::default()));
        let observed_totals = Arc::clone(&last_totals);
        let scheduler =
            Scheduler::new(Limits::UNLIMITED, |_, _| true, move |totals| *observed_totals.lock() = totals);
        let org = OrgId::new("o");
        let permits: Vec<_> = (0..3).map(|_| scheduler.try_acquire(&org, &[], 2).unwrap()).collect();
        assert_eq!(*last_totals.lock(), Totals { running: 3, waiting: 0, weight: 6 });
        drop(permits);
        assert_eq!(*last_totals.lock(), Totals::default());
    }

    #[tokio::test]
    async fn proven_keys_start_waiting_entries() {
        let proven = Arc::new(Mutex::new(false));
        let is_proven = Arc::clone(&proven);
        let limits = Limits { running_per_org: 2, ..Limits::UNLIMITED };
        let scheduler = Scheduler::new(limits, move |_, _| *is_proven.lock(), |_| {});
        let (org, keys) = (OrgId::new("o"), ["key".into()]);
        let _first = scheduler.try_acquire(&org, &["other".into()], 0).unwrap();
        let mut second = scheduler.acquire(&org, &keys, 0).boxed();
        assert!(poll!(&mut second).is_pending());
        *proven.lock() = true;
        scheduler.refresh(&org, &keys);
        let second = second.now_or_never().unwrap().unwrap();
        *proven.lock() = false;
        let mut third = scheduler.acquire(&org, &keys, 0).boxed();
        assert!(poll!(&mut third).is_pending());
        *proven.lock() = true;
        scheduler.refresh_org(&org);
        drop(second);
        assert!(third.now_or_never().unwrap().is_ok());
    }
}
