//! Queue of items that may wait long for their media or models, with limits per org and per host.
//!
//! The fair scheduler says who is next. What is waited for, and for how long, is in `media_wait` and `score_wait`.

use std::{mem::replace, sync::Arc};

use parking_lot::Mutex;
use tidegate_scheduler::{
    Limits, Permit, Scheduler,
    fair_queue::{QueueFull, Totals},
};
use tidegate_schemas::ids::OrgId;

use crate::metrics;

/// Cheap to clone; clones share all limits.
#[derive(Clone)]
pub(crate) struct SlowQueue(Scheduler);

/// Right of an item to wait for its hosts, released on drop.
pub(crate) struct RunPermit {
    scheduler: Scheduler,
    org: OrgId,
    _permit: Permit,
}

impl SlowQueue {
    /// `is_known` says whether a host gave an org what it was asked for and has not rested since. It may not call the
    /// queue.
    pub(crate) fn new(
        limits: Limits,
        is_known: impl Fn(&OrgId, &Arc<str>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let are_known = move |org: &OrgId, hosts: &[Arc<str>]| hosts.iter().all(|host| is_known(org, host));
        let shown = Mutex::new(Totals::default());
        let show = move |totals| metrics::slow_queue_changed(replace(&mut *shown.lock(), totals), totals);
        Self(Scheduler::new(limits, are_known, show))
    }

    /// Waits for a permit for an item of so many bytes. `hosts` are those that it waits for, sorted, each once. Dropping
    /// the future leaves the queue.
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
        // Hosts may have become known since items began to wait for them. The permit, which is dropped next, starts those
        // that may run by that.
        self.scheduler.refresh_org(&self.org);
    }
}

#[cfg(test)]
#[path = "tests/slow_queue.rs"]
mod tests;
