//! Concurrency slots of one consumer, shared fairly between orgs. A slot is the right to run one part.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_scheduler::{Limits, Permit, Scheduler};
use tidegate_schemas::ids::OrgId;
use tokio::sync::Notify;

/// Slots of a consumer. Cheap to clone; clones share the slots.
#[derive(Clone)]
pub(crate) struct ConcurrencySlots {
    scheduler: Scheduler,
    total: usize,
    slot_released: Arc<Notify>,
}

/// Slot of a running part. A part releases it while it waits for media, models or a retry, so other parts can run.
pub(crate) struct ConcurrencySlot {
    slots: ConcurrencySlots,
    org: OrgId,
    permit: Mutex<Option<Permit>>,
}

impl ConcurrencySlots {
    /// Creates slots of which an org holds at most `per_org`, and never more than it leaves free. A part of another org
    /// therefore starts at once, even beside long parts of a busy org.
    pub(crate) fn new(per_org: usize) -> Self {
        // Twice as many: an org at its limit leaves as many slots free.
        let total = per_org.saturating_mul(2);
        let limits = Limits { running: total, ..Limits::UNLIMITED };
        Self { scheduler: Scheduler::new(limits, |_, _| true, |_| {}), total, slot_released: Arc::default() }
    }

    /// Returns a slot if one is free for the org.
    pub(crate) fn try_acquire(&self, org: &OrgId) -> Option<ConcurrencySlot> {
        let permit = self.scheduler.try_acquire(org, &[], 0)?;
        Some(ConcurrencySlot { slots: self.clone(), org: org.clone(), permit: Mutex::new(Some(permit)) })
    }

    /// True if no slot is free for any org.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.scheduler.totals().running >= self.total
    }

    /// Waits for the next slot that a running part releases during a wait.
    pub(crate) async fn wait_for_release(&self) {
        self.slot_released.notified().await;
    }
}

impl ConcurrencySlot {
    pub(crate) fn release(&self) {
        drop(self.permit.lock().take());
        self.slots.slot_released.notify_one();
    }

    pub(crate) async fn acquire(&self) {
        // `acquire` fails only for a full queue, and this queue has no limit, so the error cannot occur.
        let permit = self.slots.scheduler.acquire(&self.org, &[], 0).await.ok();
        *self.permit.lock() = permit;
    }

    /// Awaits `operation` without the slot, then acquires a slot again.
    pub(crate) async fn release_during<T>(&self, operation: impl Future<Output = T>) -> T {
        self.release();
        let output = operation.await;
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
        let busy_slots = take_all(&slots, "busy");
        let (second, third) = (take_all(&slots, "second"), take_all(&slots, "third"));
        assert_eq!((busy_slots.len(), second.len(), third.len()), (8, 4, 2));
        assert!(!slots.is_exhausted(), "the next org finds a slot");
        drop(busy_slots);
        assert_eq!(take_all(&slots, "third").len(), 4, "it may hold six now, as many as are free then");
    }

    #[tokio::test]
    async fn slot_is_free_for_others_during_a_wait() {
        let slots = ConcurrencySlots::new(1);
        let (org, other) = (OrgId::new("o"), OrgId::new("n"));
        let slot = slots.try_acquire(&org).unwrap();
        let _other_slot = slots.try_acquire(&other).unwrap();
        assert!(slots.is_exhausted() && slots.wait_for_release().now_or_never().is_none());
        let check = async { (slots.is_exhausted(), slots.try_acquire(&org).is_none()) };
        assert_eq!(slot.release_during(check).await, (false, false));
        assert!(slots.wait_for_release().now_or_never().is_some(), "the loop hears of it");
        assert!(slots.is_exhausted());
    }

    #[tokio::test]
    async fn resumed_part_gets_a_slot_before_new_parts_of_its_org() {
        let slots = ConcurrencySlots::new(1);
        let org = OrgId::new("o");
        let waiting_slot = slots.try_acquire(&org).unwrap();
        waiting_slot.release();
        let running_slot = slots.try_acquire(&org).unwrap();
        let mut reacquire = waiting_slot.acquire().boxed();
        assert!(poll!(&mut reacquire).is_pending());
        drop(running_slot);
        assert!(slots.try_acquire(&org).is_none(), "it went to the part that waited");
        assert!(poll!(&mut reacquire).is_ready());
    }
}
