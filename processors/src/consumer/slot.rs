//! Concurrency slots of one consumer: the right to run one of its parts, shared fairly between orgs.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_scheduler::{Limits, Permit, Scheduler};
use tidegate_schemas::ids::OrgId;
use tokio::sync::Notify;

/// Slots of a consumer. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct ConcurrencySlots {
    scheduler: Scheduler,
    total: usize,
    released: Arc<Notify>,
}

/// Slot that a part holds while it runs. A part that waits for something outside releases it, so that others run.
pub(crate) struct ConcurrencySlot {
    slots: ConcurrencySlots,
    org: OrgId,
    permit: Mutex<Option<Permit>>,
}

impl ConcurrencySlots {
    /// Slots of which an org holds `per_org` at most, and never more than it leaves free. So a part of another org starts
    /// at once, however long the parts of a busy one take.
    pub(crate) fn new(per_org: usize) -> Self {
        let total = per_org.saturating_mul(2);
        let limits = Limits { running: total, ..Limits::UNLIMITED };
        Self { scheduler: Scheduler::new(limits, |_, _| true, |_| {}), total, released: Arc::default() }
    }

    /// Returns a slot if one is free for the org.
    pub(crate) fn try_acquire(&self, org: &OrgId) -> Option<ConcurrencySlot> {
        let permit = self.scheduler.try_acquire(org, &[], 0)?;
        Some(ConcurrencySlot { slots: self.clone(), org: org.clone(), permit: Mutex::new(Some(permit)) })
    }

    /// True if no slot is free for any org.
    pub(crate) fn are_taken(&self) -> bool {
        self.scheduler.totals().running >= self.total
    }

    /// Waits until a part that goes on running has released its slot since the last call.
    pub(crate) async fn released(&self) {
        self.released.notified().await;
    }
}

impl ConcurrencySlot {
    pub(crate) fn release(&self) {
        drop(self.permit.lock().take());
        self.slots.released.notify_one();
    }

    pub(crate) async fn acquire(&self) {
        // Refused only by a full queue, and there is no limit to the parts that wait.
        let permit = self.slots.scheduler.acquire(&self.org, &[], 0).await.ok();
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

    use futures::{FutureExt as _, poll};

    use super::*;

    fn take_all(slots: &ConcurrencySlots, org: &str) -> Vec<ConcurrencySlot> {
        let org = OrgId::new(org);
        std::iter::from_fn(|| slots.try_acquire(&org)).collect()
    }

    #[test]
    fn org_leaves_as_many_slots_free_as_it_holds() {
        let slots = ConcurrencySlots::new(8);
        let busy = take_all(&slots, "busy");
        let (second, third) = (take_all(&slots, "second"), take_all(&slots, "third"));
        assert_eq!((busy.len(), second.len(), third.len()), (8, 4, 2));
        assert!(!slots.are_taken(), "the next org finds a slot");
        drop(busy);
        assert_eq!(take_all(&slots, "third").len(), 4, "it may hold six now, as many as are free then");
    }

    #[tokio::test]
    async fn slot_is_free_for_others_during_a_wait() {
        let slots = ConcurrencySlots::new(1);
        let (org, other) = (OrgId::new("o"), OrgId::new("n"));
        let slot = slots.try_acquire(&org).unwrap();
        let _others = slots.try_acquire(&other).unwrap();
        assert!(slots.are_taken() && slots.released().now_or_never().is_none());
        let during = async { (slots.are_taken(), slots.try_acquire(&org).is_none()) };
        assert_eq!(slot.released_during(during).await, (false, false));
        assert!(slots.released().now_or_never().is_some(), "the loop hears of it");
        assert!(slots.are_taken());
    }

    #[tokio::test]
    async fn part_that_goes_on_takes_its_slot_before_a_new_part_of_its_org() {
        let slots = ConcurrencySlots::new(1);
        let org = OrgId::new("o");
        let waiting = slots.try_acquire(&org).unwrap();
        waiting.release();
        let running = slots.try_acquire(&org).unwrap();
        let mut again = waiting.acquire().boxed();
        assert!(poll!(&mut again).is_pending());
        drop(running);
        assert!(slots.try_acquire(&org).is_none(), "it went to the part that waited");
        assert!(poll!(&mut again).is_ready());
    }
}
