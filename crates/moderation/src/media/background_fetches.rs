//! Looks that go on although nobody waits for them any more: bounded in time and in number.
//!
//! It does not know what is looked at.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::time::timeout;

/// Cheap to clone; clones share the bound.
#[derive(Clone)]
pub(super) struct Left(Arc<Shared>);

struct Shared {
    most: usize,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    all: usize,
    by_org: HashMap<OrgId, usize>,
}

/// Given back when dropped.
struct Place {
    of: Left,
    org: OrgId,
}

impl Left {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, running: Mutex::default() }))
    }

    /// Lets a look of the org go on for so long, unless the org would have more of them than it leaves to the others:
    /// then it is dropped.
    pub(super) fn leave(&self, org: &OrgId, look: impl Future + Send + 'static, longest: Duration) {
        let Some(place) = self.place(org) else {
            metrics::counter!("tidegate_media_left_running_dropped_total").increment(1);
            return;
        };
        let until_then = async move {
            drop(timeout(longest, look).await);
            drop(place);
        };
        drop(tokio::spawn(until_then));
    }

    fn place(&self, org: &OrgId) -> Option<Place> {
        let running = &mut *self.0.running.lock();
        let own = running.by_org.get(org).copied().unwrap_or_default();
        if own >= self.0.most.saturating_sub(running.all) {
            return None;
        }
        running.by_org.insert(org.clone(), own + 1);
        running.all += 1;
        show(running.all);
        Some(Place { of: self.clone(), org: org.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let running = &mut *self.of.0.running.lock();
        running.all -= 1;
        if let Some(own) = running.by_org.get_mut(&self.org) {
            *own -= 1;
            if *own == 0 {
                running.by_org.remove(&self.org);
            }
        }
        show(running.all);
    }
}

fn show(running: usize) {
    metrics::gauge!("tidegate_media_left_running").set(u32::try_from(running).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use tidegate_test_support::{PATIENCE, eventually};
    use tokio::sync::oneshot;

    use super::*;

    fn running(left: &Left, org: &OrgId) -> (usize, usize) {
        let running = left.0.running.lock();
        (running.all, running.by_org.get(org).copied().unwrap_or_default())
    }

    #[tokio::test]
    async fn an_org_has_no_more_than_it_leaves_to_the_others() {
        let left = Left::new(16);
        let mut had = Vec::new();
        for org in ["a", "b", "c", "d", "e", "f"].map(OrgId::new) {
            (0..100).for_each(|_| left.leave(&org, pending::<()>(), PATIENCE));
            had.push(running(&left, &org));
        }
        assert_eq!(had, [(8, 8), (12, 4), (14, 2), (15, 1), (16, 1), (16, 0)]);
    }

    #[tokio::test]
    async fn whoever_ends_or_had_its_time_makes_room_for_the_next() {
        let (left, org) = (Left::new(4), OrgId::new("a"));
        let (end, ended) = oneshot::channel::<()>();
        left.leave(&org, ended, PATIENCE);
        left.leave(&org, pending::<()>(), Duration::ZERO);
        let (told, dropped) = oneshot::channel::<()>();
        left.leave(&org, async move { told }, PATIENCE);
        assert!(dropped.await.is_err(), "the third is dropped");
        let until = async |running_then: usize| {
            let are_so_many = async || (running(&left, &org).1 == running_then).then_some(());
            eventually("room", PATIENCE, are_so_many).await.unwrap();
        };
        until(1).await;
        drop(end);
        until(0).await;
        assert!(left.0.running.lock().by_org.is_empty());
        left.leave(&org, pending::<()>(), PATIENCE);
        assert_eq!(running(&left, &org), (1, 1));
    }

    #[tokio::test]
    async fn nothing_goes_on_where_nothing_may() {
        let (left, org) = (Left::new(0), OrgId::new("a"));
        left.leave(&org, pending::<()>(), PATIENCE);
        assert_eq!(running(&left, &org), (0, 0));
    }
}
