//! Keeps fetches running that no item waits for any more: bounded in time and in number.

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

    /// Runs a fetch of the org for at most `max_duration`. Drops it instead if the org would then have more background
    /// fetches than are left for all others.
    pub(super) fn spawn(&self, org: &OrgId, fetch: impl Future + Send + 'static, max_duration: Duration) {
        let Some(permit) = self.0.try_acquire(org, &[], 0) else {
            metrics::background_fetch_dropped();
            return;
        };
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
    async fn an_org_leaves_as_many_fetches_as_it_has_to_others() {
        let fetches = BackgroundFetches::new(16);
        let mut had = Vec::new();
        for org in ["a", "b", "c", "d", "e", "f"].map(OrgId::new) {
            (0..100).for_each(|_| fetches.spawn(&org, pending::<()>(), PATIENCE));
            had.push(running(&fetches));
        }
        assert_eq!(had, [8, 8 + 4, 8 + 4 + 2, 15, 16, 16]);
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
    async fn a_limit_of_zero_drops_every_fetch() {
        let (fetches, org) = (BackgroundFetches::new(0), OrgId::new("a"));
        fetches.spawn(&org, pending::<()>(), PATIENCE);
        assert_eq!(running(&fetches), 0);
    }
}
