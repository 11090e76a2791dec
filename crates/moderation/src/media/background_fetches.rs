//! Keeps fetches running after their items were handed over, within bounds of time and number.

use std::time::Duration;

use tidegate_scheduler::{Limits, Scheduler};
use tidegate_schemas::ids::OrgId;
use tokio::time::timeout;

use crate::metrics;

/// Cheap to clone; clones share the limit.
#[derive(Clone)]
pub(super) struct BackgroundFetches(Scheduler);

impl BackgroundFetches {
    pub(super) fn new(limit: usize) -> Self {
        let limits = Limits { running: limit, ..Limits::UNLIMITED };
        Self(Scheduler::new(limits, |_, _| true, |totals| metrics::background_fetches(totals.running)))
    }

    /// Runs a fetch for at most `max_duration`. Drops it if the org would then hold more background fetches than it
    /// leaves to all others.
    pub(super) fn spawn(&self, org: &OrgId, fetch: impl Future + Send + 'static, max_duration: Duration) {
        let Some(permit) = self.0.try_acquire(org, &[], 0) else {
            metrics::background_fetch_dropped();
            return;
        };
        // Detached: the item finds the result in the cache, or joins the fetch.
        drop(tokio::spawn(async move {
            drop(timeout(max_duration, fetch).await);
            drop(permit);
        }));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use tidegate_test_support::{PATIENCE, eventually};
    use tokio::sync::oneshot;

    use super::*;

    fn running(fetches: &BackgroundFetches) -> usize {
        fetches.0.totals().running
    }

    #[tokio::test]
    async fn org_leaves_half_of_the_free_fetches_to_others() {
        let fetches = BackgroundFetches::new(16);
        let mut had = Vec::new();
        for org in ["a", "b", "c", "d", "e", "f"].map(OrgId::new) {
            (0..100).for_each(|_| fetches.spawn(&org, pending::<()>(), PATIENCE));
            had.push(running(&fetches));
        }
        assert_eq!(had, [8, 8 + 4, 8 + 4 + 2, 15, 16, 16]);
    }

    #[tokio::test]
    async fn ended_or_timed_out_fetch_frees_its_permit() {
        let (fetches, org) = (BackgroundFetches::new(4), OrgId::new("a"));
        let (end, ended) = oneshot::channel::<()>();
        fetches.spawn(&org, ended, PATIENCE);
        fetches.spawn(&org, pending::<()>(), Duration::ZERO);
        let (told, dropped) = oneshot::channel::<()>();
        fetches.spawn(&org, async move { told }, PATIENCE);
        assert!(dropped.await.is_err(), "the third is dropped");
        let until = async |running_then: usize| {
            let are_so_many = async || (running(&fetches) == running_then).then_some(());
            eventually("room", PATIENCE, are_so_many).await.unwrap();
        };
        until(1).await;
        drop(end);
        until(0).await;
        fetches.spawn(&org, pending::<()>(), PATIENCE);
        assert_eq!(running(&fetches), 1);
    }

    #[tokio::test]
    async fn limit_of_zero_drops_every_fetch() {
        let (fetches, org) = (BackgroundFetches::new(0), OrgId::new("a"));
        fetches.spawn(&org, pending::<()>(), PATIENCE);
        assert_eq!(running(&fetches), 0);
    }
}
