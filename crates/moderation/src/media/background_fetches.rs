//! Keeps fetches running that no item waits for any more: bounded in time and in number.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::time::timeout;

use crate::metrics;

/// Cheap to clone; clones share the limit.
#[derive(Clone)]
pub(super) struct BackgroundFetches(Arc<Shared>);

struct Shared {
    limit: usize,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    total: usize,
    by_org: HashMap<OrgId, usize>,
}

/// Right to run one background fetch, released on drop.
struct Permit {
    owner: BackgroundFetches,
    org: OrgId,
}

impl BackgroundFetches {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Shared { limit, running: Mutex::default() }))
    }

    /// Runs a fetch of the org for at most `max_duration`. Drops it instead if the org would then have more background
    /// fetches than are left for all others.
    pub(super) fn spawn(&self, org: &OrgId, fetch: impl Future + Send + 'static, max_duration: Duration) {
        let Some(permit) = self.try_acquire(org) else {
            metrics::background_fetch_dropped();
            return;
        };
        drop(tokio::spawn(async move {
            drop(timeout(max_duration, fetch).await);
            drop(permit);
        }));
    }

    fn try_acquire(&self, org: &OrgId) -> Option<Permit> {
        let running = &mut *self.0.running.lock();
        let own = running.by_org.get(org).copied().unwrap_or_default();
        if own >= self.0.limit.saturating_sub(running.total) {
            return None;
        }
        running.by_org.insert(org.clone(), own + 1);
        running.total += 1;
        metrics::background_fetches(running.total);
        Some(Permit { owner: self.clone(), org: org.clone() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let running = &mut *self.owner.0.running.lock();
        running.total -= 1;
        if let Some(own) = running.by_org.get_mut(&self.org) {
            *own -= 1;
            if *own == 0 {
                running.by_org.remove(&self.org);
            }
        }
        metrics::background_fetches(running.total);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use tidegate_test_support::{PATIENCE, eventually};
    use tokio::sync::oneshot;

    use super::*;

    fn running(fetches: &BackgroundFetches, org: &OrgId) -> (usize, usize) {
        let running = fetches.0.running.lock();
        (running.total, running.by_org.get(org).copied().unwrap_or_default())
    }

    #[tokio::test]
    async fn an_org_leaves_as_many_fetches_as_it_has_to_others() {
        let fetches = BackgroundFetches::new(16);
        let mut had = Vec::new();
        for org in ["a", "b", "c", "d", "e", "f"].map(OrgId::new) {
            (0..100).for_each(|_| fetches.spawn(&org, pending::<()>(), PATIENCE));
            had.push(running(&fetches, &org));
        }
        assert_eq!(had, [(8, 8), (12, 4), (14, 2), (15, 1), (16, 1), (16, 0)]);
    }

    #[tokio::test]
    async fn a_fetch_that_ends_or_times_out_frees_its_permit() {
        let (fetches, org) = (BackgroundFetches::new(4), OrgId::new("a"));
        let (end, ended) = oneshot::channel::<()>();
        fetches.spawn(&org, ended, PATIENCE);
        fetches.spawn(&org, pending::<()>(), Duration::ZERO);
        let (told, dropped) = oneshot::channel::<()>();
        fetches.spawn(&org, async move { told }, PATIENCE);
        assert!(dropped.await.is_err(), "the third is dropped");
        let until = async |running_then: usize| {
            let are_so_many = async || (running(&fetches, &org).1 == running_then).then_some(());
            eventually("room", PATIENCE, are_so_many).await.unwrap();
        };
        until(1).await;
        drop(end);
        until(0).await;
        assert!(fetches.0.running.lock().by_org.is_empty());
        fetches.spawn(&org, pending::<()>(), PATIENCE);
        assert_eq!(running(&fetches, &org), (1, 1));
    }

    #[tokio::test]
    async fn a_limit_of_zero_drops_every_fetch() {
        let (fetches, org) = (BackgroundFetches::new(0), OrgId::new("a"));
        fetches.spawn(&org, pending::<()>(), PATIENCE);
        assert_eq!(running(&fetches, &org), (0, 0));
    }
}
