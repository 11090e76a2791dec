//! Budget of bytes for bodies that grow while they are received: for the whole process, and per org.
//!
//! A body reserves its received bytes, not its announced length: otherwise a host that announces much and sends
//! little would block all other bodies. Growing reservations could deadlock, so each one is granted only if all
//! bodies can still complete in some order (the banker's algorithm). Two semaphores that reserve the whole bound at
//! once would be simpler, but one host with a large `content-length` could then stall its org.
//! [`FairBudget`](crate::FairBudget) refuses an amount at once instead.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::{sync::watch, time::timeout};

/// Budget for all bodies of the process. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct GrowingBudget(Arc<SharedBudget>);

struct SharedBudget {
    total_bytes: u64,
    bytes_per_org: u64,
    /// Longest wait for bytes before a request fails.
    max_wait: Duration,
    bodies: Mutex<Bodies>,
    /// Signalled whenever bytes are released.
    released: watch::Sender<()>,
}

#[derive(Default)]
struct Bodies {
    by_number: HashMap<u64, Claim>,
    next_number: u64,
}

#[derive(Clone)]
struct Claim {
    org: OrgId,
    reserved: u64,
    /// Upper bound of the body's reservation.
    bound: u64,
}

/// Refusal of bytes: they were not free in time, or a body grows beyond its announced length without free ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget is full")]
pub struct BudgetFull;

/// Bytes reserved for one body, released on drop.
pub struct Reservation {
    budget: GrowingBudget,
    number: u64,
    claim: Claim,
}

impl GrowingBudget {
    pub fn new(total_bytes: u64, bytes_per_org: u64, max_wait: Duration) -> Self {
        Self(Arc::new(SharedBudget {
            total_bytes,
            bytes_per_org: bytes_per_org.min(total_bytes),
            max_wait,
            bodies: Mutex::default(),
            released: watch::Sender::default(),
        }))
    }

    /// Reserves the first `initial` bytes of a body of at most `bound` bytes. Waits until they are free.
    pub async fn reserve(&self, org: &OrgId, initial: u64, bound: u64) -> Result<Reservation, BudgetFull> {
        let bound = bound.min(self.0.bytes_per_org);
        let number = {
            let mut bodies = self.0.bodies.lock();
            bodies.next_number += 1;
            bodies.next_number
        };
        let claim = Claim { org: org.clone(), reserved: initial.min(bound), bound };
        self.wait_until(|| self.try_grant(number, &claim)).await?;
        Ok(Reservation { budget: self.clone(), number, claim })
    }

    async fn wait_until(&self, mut is_granted: impl FnMut() -> bool) -> Result<(), BudgetFull> {
        let wait_for_grant = async {
            // Subscribe before the first attempt: a release in between would be missed.
            let mut releases = self.0.released.subscribe();
            while !is_granted() {
                releases.changed().await.map_err(|_| BudgetFull)?;
            }
            Ok(())
        };
        timeout(self.0.max_wait, wait_for_grant).await.map_err(|_| BudgetFull)?
    }

    /// Records the claim if all bodies can still complete with it. Otherwise restores the previous claim.
    fn try_grant(&self, number: u64, claim: &Claim) -> bool {
        let mut bodies = self.0.bodies.lock();
        let previous = bodies.by_number.insert(number, claim.clone());
        let claims_of_org = bodies.by_number.values().filter(|other| other.org == claim.org);
        let is_safe = all_can_complete(claims_of_org, self.0.bytes_per_org)
            && all_can_complete(bodies.by_number.values(), self.0.total_bytes);
        if !is_safe {
            match previous {
                Some(previous) => bodies.by_number.insert(number, previous),
                None => bodies.by_number.remove(&number),
            };
        }
        is_safe
    }
}

/// True if the bodies can complete one after the other. The body with the least missing bytes is first; each
/// completed body frees its reservation for the next ones.
fn all_can_complete<'c>(claims: impl Iterator<Item = &'c Claim>, budget: u64) -> bool {
    let mut missing_and_reserved: Vec<(u64, u64)> =
        claims.map(|claim| (claim.bound - claim.reserved, claim.reserved)).collect();
    let reserved = missing_and_reserved.iter().map(|(_, reserved)| reserved).sum();
    let Some(mut free) = budget.checked_sub(reserved) else { return false };
    missing_and_reserved.sort_unstable();
    missing_and_reserved.into_iter().all(|(missing, reserved)| {
        let completes = missing <= free;
        // A body that completes also gives its reservation back.
        free += reserved;
        completes
    })
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.claim.reserved
    }

    /// Grows to `to` bytes, or to twice the present size so that a long body asks seldom. Growth beyond the announced
    /// bound fails instead of waiting, because other bodies' bounds were granted without it. From then on `bound`
    /// applies.
    pub async fn grow(&mut self, to: u64, bound: u64) -> Result<(), BudgetFull> {
        let limit = self.budget.0.bytes_per_org;
        let to = to.min(limit);
        let claim = if to > self.claim.bound {
            let claim = Claim { reserved: to, bound: bound.clamp(to, limit), ..self.claim.clone() };
            self.budget.try_grant(self.number, &claim).then_some(claim).ok_or(BudgetFull)?
        } else {
            let reserved = to.max(self.claim.reserved.saturating_mul(2)).min(self.claim.bound);
            let claim = Claim { reserved, ..self.claim.clone() };
            self.budget.wait_until(|| self.budget.try_grant(self.number, &claim)).await?;
            claim
        };
        self.claim = claim;
        Ok(())
    }

    /// Marks the body as complete: the reservation does not grow any more.
    pub fn complete(&mut self) {
        // The lower bound can make waiting claims safe, so waiters are woken.
        self.claim.bound = self.claim.reserved;
        self.budget.0.bodies.lock().by_number.insert(self.number, self.claim.clone());
        self.budget.0.released.send_replace(());
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.bodies.lock().by_number.remove(&self.number);
        self.budget.0.released.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn org(name: &str) -> OrgId {
        OrgId::new(name)
    }

    #[tokio::test]
    async fn body_that_announces_much_and_sends_little_blocks_no_other() {
        let budget = GrowingBudget::new(512, 128, HOUR);
        let mut slow = Vec::new();
        for _ in 0..24 {
            slow.push(budget.reserve(&org("o"), 1, 100).now_or_never().unwrap().unwrap());
        }
        for size in [1, 20, 100] {
            let mut small_body = budget.reserve(&org("o"), 1, size).now_or_never().unwrap().unwrap();
            small_body.grow(size, size).now_or_never().unwrap().unwrap();
        }
        // One body may grow to its end; a second one must wait until the first has ended.
        slow[0].grow(100, 100).now_or_never().unwrap().unwrap();
        let mut second_growth = slow[1].grow(10, 100).boxed();
        assert!(poll!(&mut second_growth).is_pending());
        drop(second_growth);
        drop(slow.swap_remove(0));
        assert!(slow.last_mut().unwrap().grow(10, 100).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn org_reserves_at_most_its_share() {
        let budget = GrowingBudget::new(4, 2, HOUR);
        let first = budget.reserve(&org("greedy"), 9, 9).await.unwrap();
        assert_eq!(first.bytes(), 2, "the reservation is reduced to the share of the org");
        let (greedy, last) = (org("greedy"), org("last"));
        let mut second = budget.reserve(&greedy, 1, 1).boxed();
        assert!(poll!(&mut second).is_pending());
        let third = budget.reserve(&org("other"), 2, 2).now_or_never().unwrap().unwrap();
        let mut fourth = budget.reserve(&last, 1, 1).boxed();
        assert!(poll!(&mut fourth).is_pending());
        drop(first);
        assert!(second.await.is_ok() && fourth.await.is_ok());
        drop(third);
        assert!(budget.0.bodies.lock().by_number.is_empty());
        let zero_wait_budget = GrowingBudget::new(1, 1, Duration::ZERO);
        let _reservation = zero_wait_budget.reserve(&org("o"), 1, 1).await.unwrap();
        assert_eq!(zero_wait_budget.reserve(&org("o"), 1, 1).await.err(), Some(BudgetFull));
    }

    #[tokio::test]
    async fn growth_beyond_the_announced_bound_does_not_wait() {
        let budget = GrowingBudget::new(10, 10, HOUR);
        let mut reservation = budget.reserve(&org("o"), 2, 2).await.unwrap();
        let other_reservation = budget.reserve(&org("o"), 4, 4).await.unwrap();
        assert_eq!(reservation.grow(7, 20).await, Err(BudgetFull));
        assert_eq!(reservation.bytes(), 2);
        reservation.grow(6, 6).await.unwrap();
        drop(other_reservation);
        reservation.grow(7, 20).await.unwrap();
        assert_eq!(reservation.bytes(), 7);
        // A complete body needs no more budget.
        reservation.complete();
        assert!(budget.reserve(&org("o"), 3, 3).now_or_never().unwrap().is_ok());
    }

    proptest! {
        #[test]
        fn some_body_can_always_grow(
            sizes in proptest::collection::vec((1_u64..60, 0_u8..3), 1..30),
            picks in proptest::collection::vec(0_usize..30, 0..400),
        ) {
            let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _clock = clock.enter();
            let budget = GrowingBudget::new(100, 60, HOUR);
            let mut open: Vec<(Reservation, u64)> = Vec::new();
            let mut pending_bodies: Vec<_> = sizes.into_iter().collect();
            let mut picks = picks.into_iter();
            while !(open.is_empty() && pending_bodies.is_empty()) {
                if let Some((size, name)) = pending_bodies.pop() {
                    let entered = budget.reserve(&org(&name.to_string()), 1, size).now_or_never();
                    open.extend(entered.map(|reservation| (reservation.unwrap(), size)));
                }
                let can_grow = |(reservation, size): &mut (Reservation, u64)| {
                    let next = reservation.bytes() + 1;
                    next > *size || reservation.grow(next, *size).now_or_never().is_some()
                };
                let picked = picks.next().unwrap_or_default() % open.len().max(1);
                if !open.get_mut(picked).is_some_and(can_grow) {
                    prop_assert!(open.is_empty() || open.iter_mut().any(can_grow), "all bodies wait for each other");
                }
                open.retain(|(reservation, size)| reservation.bytes() < *size);
            }
        }
    }
}
