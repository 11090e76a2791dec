//! How many items of one org, and of all, may wait for their media at once.
//!
//! It does not know what they wait for.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) struct Seats {
    per_org: usize,
    /// Items of one org that may stand in line for its seats.
    line: usize,
    all: Arc<Semaphore>,
    orgs: Mutex<HashMap<OrgId, Org>>,
}

struct Org {
    seats: Arc<Semaphore>,
    waiting: usize,
}

/// Given back when dropped.
pub(crate) struct Seat {
    _own: OwnedSemaphorePermit,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Seats {
    pub(crate) fn new(per_org: usize, line: usize, all: usize) -> Self {
        let all = Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS)));
        Self { per_org, line, all, orgs: Mutex::default() }
    }

    /// A seat, if one is free for the org.
    pub(crate) fn try_take(&self, org: &OrgId) -> Option<Seat> {
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let own = self.of(org, |_| Some(()))?.try_acquire_owned().ok()?;
        Some(Seat { _own: own, _of_all: Some(of_all) })
    }

    /// A seat as soon as one of the org's own is free; `None` at once if too many of the org wait already.
    pub(crate) async fn take(&self, org: &OrgId) -> Option<Seat> {
        if let Some(own) = self.of(org, |_| Some(())).and_then(|seats| seats.try_acquire_owned().ok()) {
            return Some(Seat { _own: own, _of_all: None });
        }
        let seats = self.of(org, |it| {
            let has_room = it.waiting < self.line;
            it.waiting += usize::from(has_room);
            has_room.then_some(())
        })?;
        let _waiting = Waiting { seats: self, org };
        let own = seats.acquire_owned().await.ok()?;
        Some(Seat { _own: own, _of_all: None })
    }

    fn of(&self, org: &OrgId, look: impl FnOnce(&mut Org) -> Option<()>) -> Option<Arc<Semaphore>> {
        /// Above it, orgs that nobody of sits or waits are forgotten.
        const MANY: usize = 1_024;
        let mut orgs = self.orgs.lock();
        if orgs.len() >= MANY && !orgs.contains_key(org) {
            orgs.retain(|_, it| it.waiting > 0 || it.seats.available_permits() < self.per_org);
        }
        let own = orgs
            .entry(org.clone())
            .or_insert_with(|| Org { seats: Arc::new(Semaphore::new(self.per_org)), waiting: 0 });
        look(own)?;
        Some(Arc::clone(&own.seats))
    }
}

/// One in the line of an org, until it has a seat or has left.
struct Waiting<'a> {
    seats: &'a Seats,
    org: &'a OrgId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(own) = self.seats.orgs.lock().get_mut(self.org) {
            own.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};

    use super::*;

    #[test]
    fn one_org_leaves_seats_to_the_others() {
        let (a, b, c) = (OrgId::new("a"), OrgId::new("b"), OrgId::new("c"));
        let seats = Seats::new(2, 0, 3);
        let held: Vec<_> = (0..2).map(|_| seats.try_take(&a).unwrap()).collect();
        assert!(seats.try_take(&a).is_none());
        let other = seats.try_take(&b).unwrap();
        assert!(seats.try_take(&c).is_none(), "all are taken");
        drop(held);
        assert!(seats.try_take(&c).is_some() && seats.try_take(&a).is_some());
        drop(other);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_not_joined() {
        let org = OrgId::new("a");
        let seats = Seats::new(1, 1, 0);
        let first = seats.take(&org).await.unwrap();
        let mut second = seats.take(&org).boxed();
        assert!(poll!(&mut second).is_pending());
        assert!(seats.take(&org).await.is_none());
        drop(first);
        assert!(second.await.is_some());
        assert_eq!(seats.orgs.lock()[&org].waiting, 0);
    }
}
