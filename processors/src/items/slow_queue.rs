//! Queue of items that wait long for media or models, with limits per org and per host.
//!
//! The fair scheduler selects the next item; `media_wait` and `score_wait` do the waiting.

use std::{mem::replace, sync::Arc};

use parking_lot::Mutex;
use tidegate_scheduler::{
    Limits, Permit, Scheduler,
    fair_queue::{QueueFull, Totals},
};
use tidegate_schemas::ids::OrgId;

use crate::metrics;

/// Queue of slow items. Cheap to clone; clones share all limits.
#[derive(Clone)]
pub(crate) struct SlowQueue(Scheduler);

/// Right of an item to use its hosts. Released on drop.
pub(crate) struct RunPermit {
    scheduler: Scheduler,
    org: OrgId,
    _permit: Permit,
}

impl SlowQueue {
    /// `is_known`: true if the host has delivered to the org and was not paused since. It must not call the queue, which
    /// holds its lock during the call.
    pub(crate) fn new(
        limits: Limits,
        is_known: impl Fn(&OrgId, &Arc<str>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let are_known = move |org: &OrgId, hosts: &[Arc<str>]| hosts.iter().all(|host| is_known(org, host));
        let last_totals = Mutex::new(Totals::default());
        let report = move |totals| {
            metrics::adjust_slow_queue_gauges(replace(&mut *last_totals.lock(), totals), totals);
        };
        Self(Scheduler::new(limits, are_known, report))
    }

    /// Waits for a permit for an item of `bytes` bytes. `hosts` must be sorted and unique. Dropping the future leaves the
    /// queue.
    pub(crate) async fn acquire(
        &self,
        org: &OrgId,
        hosts: &[Arc<str>],
        bytes: usize,
    ) -> Result<RunPermit, QueueFull> {
        let permit = self.0.acquire(org, hosts, bytes).await?;
        Ok(RunPermit { scheduler: self.0.clone(), org: org.clone(), _permit: permit })
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        // Hosts may have become known while items waited for them. The drop of the permit, which follows, starts the items
        // that may run now.
        self.scheduler.refresh_org(&self.org);
    }
}

#[cfg(test)]
#[path = "tests/slow_queue.rs"]
mod tests;
