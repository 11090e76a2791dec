//! Waits for the media of items: briefly in the topic `items`, or long in `items-slow`.
//!
//! `tidegate_moderation::media` fetches and hashes the media.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_moderation::media::{
    self, InspectedMedium, Inspection, MediaFetches, MediaInspector, MediumRequest,
};
use tidegate_scheduler::{Limits, Scheduler, fair_queue::QueueFull};
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    wire::answers::Media,
};
use tidegate_stream::consumer::ticket::Ticket;
use tokio::time::{Instant, sleep_until};

use crate::{
    consumer::slot::ConcurrencySlot,
    items::slow_queue::{RunPermit, SlowQueue},
    metrics,
    settings::MediaSettings,
};

/// Kind of the wait, and its end.
enum WaitMode {
    /// Short wait. At its end the item is handed over to `items-slow`.
    Short(Scheduler),
    /// Long wait with a total time limit. At its end the missing media have failed.
    Slow(SlowQueue, Duration),
}

pub(crate) struct MediaWait {
    signals: MediaInspector,
    wait_limit: Duration,
    /// Time for which fetches continue after the item was handed over, so its second run finds the results.
    detached_fetch_time: Duration,
    mode: WaitMode,
    recent_timeouts: RecentTimeouts,
}

pub(crate) enum MediaWaitResult {
    Found(Vec<InspectedMedium>),
    /// The item is to be handed over, with the media known so far.
    HandOver(Vec<Media>),
    /// The partition was revoked during the wait.
    AssignmentLost,
}

/// Request for the media of one item. The wait ends if the ticket is cancelled.
#[derive(Clone, Copy)]
pub(crate) struct MediaRequest<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) item: &'a ItemKey,
    /// Memory of the item during the wait.
    pub(crate) bytes: usize,
    pub(crate) ticket: &'a Ticket,
    pub(crate) slot: &'a ConcurrencySlot,
}

impl MediaWait {
    pub(crate) fn short(signals: MediaInspector, settings: &MediaSettings) -> Self {
        let permits = short_wait_permits(settings);
        Self::new(signals, settings.wait_ms, settings, WaitMode::Short(permits))
    }

    pub(crate) fn slow(signals: MediaInspector, settings: &MediaSettings) -> Self {
        let known_hosts = signals.clone();
        let queue = SlowQueue::new(slow_limits(settings), move |org, host| known_hosts.is_known(org, host));
        let total_limit = Duration::from_millis(settings.slow_total_ms);
        Self::new(signals, settings.slow_wait_ms, settings, WaitMode::Slow(queue, total_limit))
    }

    fn new(signals: MediaInspector, wait_ms: u64, settings: &MediaSettings, mode: WaitMode) -> Self {
        let detached_fetch_time = Duration::from_millis(settings.slow_wait_ms);
        Self {
            signals,
            wait_limit: Duration::from_millis(wait_ms),
            detached_fetch_time,
            mode,
            recent_timeouts: RecentTimeouts::default(),
        }
    }

    pub(crate) async fn wait_for_media(
        &self,
        request: MediaRequest<'_>,
        wanted_media: &[MediumRequest],
    ) -> MediaWaitResult {
        match &self.mode {
            WaitMode::Short(permits) => self.wait_briefly(permits, request, wanted_media).await,
            WaitMode::Slow(queue, total_limit) => {
                self.wait_in_slow_queue(queue, Instant::now() + *total_limit, request, wanted_media).await
            }
        }
    }

    async fn wait_briefly(
        &self,
        permits: &Scheduler,
        request: MediaRequest<'_>,
        wanted_media: &[MediumRequest],
    ) -> MediaWaitResult {
        let Some(_permit) = permits.try_acquire(request.org, &[], 0) else {
            metrics::record_handover("share");
            return MediaWaitResult::HandOver(media::pending_rows(without_inspection(wanted_media)));
        };
        let mut search = self.signals.gather(request.org, wanted_media);
        // Remembered results are available at once, so the slot is not released for them.
        if search.settle().now_or_never().is_some() {
            return MediaWaitResult::Found(search.end());
        }
        let key = (request.org.clone(), request.item.clone());
        let wait_limit = if self.recent_timeouts.contains(&key, Instant::now()) {
            Duration::ZERO
        } else {
            self.wait_limit
        };
        match request.wait_for(&mut search, Instant::now() + wait_limit).await {
            WaitEnd::Settled => MediaWaitResult::Found(search.end()),
            WaitEnd::TimedOut => {
                metrics::record_handover("time");
                self.recent_timeouts.insert(key, Instant::now() + self.wait_limit);
                MediaWaitResult::HandOver(media::pending_rows(search.leave_running(self.detached_fetch_time)))
            }
            WaitEnd::AssignmentLost => MediaWaitResult::AssignmentLost,
        }
    }

    async fn wait_in_slow_queue(
        &self,
        queue: &SlowQueue,
        deadline: Instant,
        request: MediaRequest<'_>,
        wanted_media: &[MediumRequest],
    ) -> MediaWaitResult {
        // Remembered results need no permit. The search is dropped after this block, because a queued item must not
        // hold fetches.
        let hosts = {
            let mut search = self.signals.gather(request.org, wanted_media);
            if search.settle().now_or_never().is_some() {
                return MediaWaitResult::Found(search.end());
            }
            search.awaited_hosts()
        };
        let permit = request.slot.release_during(request.acquire(queue, &hosts, deadline)).await;
        let mut search = self.signals.gather(request.org, wanted_media);
        let _permit = match permit {
            Ok(Ok(permit)) => permit,
            Ok(Err(queue_full)) => {
                metrics::record_refused_slow_item(queue_full);
                return MediaWaitResult::Found(fail_all(wanted_media, "over_share"));
            }
            Err(WaitEnd::AssignmentLost) => return MediaWaitResult::AssignmentLost,
            Err(WaitEnd::TimedOut | WaitEnd::Settled) => {
                // Other items may have fetched some of the media meanwhile.
                let _settled = search.settle().now_or_never();
                return MediaWaitResult::Found(search.end());
            }
        };
        // The time limit starts with the permit. Started at arrival, it could end in the queue before the first fetch.
        match request.wait_for(&mut search, deadline.min(Instant::now() + self.wait_limit)).await {
            WaitEnd::Settled | WaitEnd::TimedOut => MediaWaitResult::Found(search.end()),
            WaitEnd::AssignmentLost => MediaWaitResult::AssignmentLost,
        }
    }
}

/// Items that were recently handed over after a timeout. A later version of such an item is handed over without a wait,
/// because versions of an item run one after another and their waits would add up.
#[derive(Default)]
struct RecentTimeouts(Mutex<HashMap<(OrgId, ItemKey), Instant>>);

impl RecentTimeouts {
    fn contains(&self, key: &(OrgId, ItemKey), now: Instant) -> bool {
        self.0.lock().get(key).is_some_and(|until| now < *until)
    }

    fn insert(&self, key: (OrgId, ItemKey), until: Instant) {
        /// Number of entries at which expired ones are removed.
        const CLEANUP_THRESHOLD: usize = 1_024;
        let mut timeouts = self.0.lock();
        if timeouts.len() >= CLEANUP_THRESHOLD {
            let now = Instant::now();
            timeouts.retain(|_, until| now < *until);
        }
        timeouts.insert(key, until);
    }
}

enum WaitEnd {
    Settled,
    TimedOut,
    AssignmentLost,
}

impl MediaRequest<'_> {
    async fn acquire(
        &self,
        queue: &SlowQueue,
        hosts: &[Arc<str>],
        deadline: Instant,
    ) -> Result<Result<RunPermit, QueueFull>, WaitEnd> {
        tokio::select! {
            // A lost ticket wins over a permit, so no fetch starts for a revoked item.
            biased;
            () = self.ticket.cancelled() => Err(WaitEnd::AssignmentLost),
            permit = queue.acquire(self.org, hosts, self.bytes) => Ok(permit),
            () = sleep_until(deadline) => Err(WaitEnd::TimedOut),
        }
    }

    async fn wait_for(&self, search: &mut MediaFetches, deadline: Instant) -> WaitEnd {
        self.slot
            .release_during(async {
                tokio::select! {
                    // A lost ticket ends the wait in any case; complete results win over the timeout.
                    biased;
                    () = self.ticket.cancelled() => WaitEnd::AssignmentLost,
                    () = search.settle() => WaitEnd::Settled,
                    () = sleep_until(deadline) => WaitEnd::TimedOut,
                }
            })
            .await
    }
}

/// Creates the permits of short waits. An item without a permit is handed over at once.
pub(super) fn short_wait_permits(settings: &MediaSettings) -> Scheduler {
    let limits =
        Limits { running: settings.waiting, running_per_org: settings.waiting_per_org, ..Limits::UNLIMITED };
    Scheduler::new(limits, |_, _| true, |_| {})
}

/// Returns the limits of long waits per org. The budget of the consumer bounds the total of all orgs.
pub(super) fn slow_limits(settings: &MediaSettings) -> Limits {
    // One third for running items, two thirds for queued ones.
    let bytes = usize::try_from(settings.slow_bytes_per_org).unwrap_or(usize::MAX);
    Limits {
        running_per_org: settings.slow_per_org,
        running_per_org_and_key: settings.slow_per_host,
        weight_per_org: bytes / 3,
        waiting_per_org: settings.slow_line_per_org,
        waiting_weight_per_org: bytes - bytes / 3,
        ..Limits::UNLIMITED
    }
}

fn without_inspection(wanted_media: &[MediumRequest]) -> Vec<(String, Option<Inspection>)> {
    wanted_media.iter().map(|media| (media.url.clone(), None)).collect()
}

fn fail_all(wanted_media: &[MediumRequest], reason: &'static str) -> Vec<InspectedMedium> {
    let failed_signal = |media: &MediumRequest| InspectedMedium {
        url: media.url.clone(),
        inspection: Inspection::FetchFailed(reason.into()),
    };
    wanted_media.iter().map(failed_signal).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn org_leaves_as_many_waits_free_as_it_holds() {
        let settings = MediaSettings { waiting: 5, waiting_per_org: 2, ..MediaSettings::default() };
        let permits = short_wait_permits(&settings);
        let acquire_all = |org: &str| {
            let org = OrgId::new(org);
            (0..9).filter_map(|_| permits.try_acquire(&org, &[], 0)).collect::<Vec<_>>()
        };
        let (first, second, third) = (acquire_all("a"), acquire_all("b"), acquire_all("c"));
        assert_eq!((first.len(), second.len(), third.len()), (2, 2, 1));
        assert!(acquire_all("d").is_empty(), "all are taken");
        drop(first);
        assert_eq!((acquire_all("d").len(), acquire_all("b").len()), (1, 0));
    }

    #[test]
    fn each_slow_setting_bounds_what_it_names() {
        let settings = MediaSettings {
            slow_per_org: 10,
            slow_per_host: 3,
            slow_line_per_org: 2,
            slow_bytes_per_org: 300,
            ..MediaSettings::default()
        };
        let (queue, org) = (Scheduler::new(slow_limits(&settings), |_, _| true, |_| {}), OrgId::new("o"));
        let run = |host: &str, bytes| queue.try_acquire(&org, &[host.into()], bytes);
        let wait = |bytes| {
            let (queue, org) = (queue.clone(), org.clone());
            async move { queue.acquire(&org, &["h".into()], bytes).await }.boxed()
        };
        let host_permits: Vec<_> = (0..9).filter_map(|_| run("h", 10)).collect();
        assert_eq!(host_permits.len(), 3);
        assert!(run("i", 71).is_none());
        let other_permits: Vec<_> = (0..9).filter_map(|nth| run(&nth.to_string(), 10)).collect();
        assert_eq!(host_permits.len() + other_permits.len(), 10);
        let mut first = wait(100);
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(wait(101).now_or_never().map(Result::err), Some(Some(QueueFull::Weight)));
        let mut second = wait(100);
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(wait(0).now_or_never().map(Result::err), Some(Some(QueueFull::Entries)));
    }

    #[test]
    fn version_after_a_timed_out_one_does_not_wait() {
        let (timeouts, now) = (RecentTimeouts::default(), Instant::now());
        let key = |id: &str| (OrgId::new("o"), ItemKey::new("post", id));
        let until = now + Duration::from_secs(2);
        timeouts.insert(key("a"), until);
        assert!(timeouts.contains(&key("a"), now) && !timeouts.contains(&key("b"), now));
        assert!(!timeouts.contains(&key("a"), until), "the next one may wait again");
        for nth in 0..5_000 {
            timeouts.insert(key(&nth.to_string()), now);
        }
        assert!(timeouts.0.lock().len() < 2_000, "expired entries are removed");
    }
}
