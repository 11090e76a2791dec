//! Waits for the media of items: for a moment beside everybody else's work, or for long on a topic of their own.
//!
//! It fetches nothing itself, and decides nothing about the item.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_moderation::media::{self, Inspection, Search, Signal, Signals, Wanted};
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

/// Length of the wait, and what follows it.
enum WaitMode {
    /// Then the item is handed over.
    Passing(Scheduler),
    /// Then what is missing has failed, as it has when so much time has passed in all.
    Slow(SlowQueue, Duration),
}

pub(crate) struct MediaWait {
    signals: Signals,
    wait: Duration,
    /// Time for which fetches go on without a waiting item after it was handed over.
    left_running: Duration,
    lane: WaitMode,
    late: Late,
}

pub(crate) enum MediaWaitResult {
    Found(Vec<Signal>),
    /// The item is to be handed over; this is what is known by now.
    Later(Vec<Media>),
    /// The assignment is gone, and with it all that was waited for.
    Left,
}

/// Media of one item, and the ticket that ends the wait if it is lost.
#[derive(Clone, Copy)]
pub(crate) struct MediaRequest<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) item: &'a ItemKey,
    /// Bytes that the item takes while it waits.
    pub(crate) bytes: usize,
    pub(crate) ticket: &'a Ticket,
    pub(crate) slot: &'a ConcurrencySlot,
}

impl MediaWait {
    pub(crate) fn passing(signals: Signals, settings: &MediaSettings) -> Self {
        let permits = passing_permits(settings);
        Self::new(signals, settings.wait_ms, settings, WaitMode::Passing(permits))
    }

    pub(crate) fn slow(signals: Signals, settings: &MediaSettings) -> Self {
        let known = signals.clone();
        let queue = SlowQueue::new(slow_limits(settings), move |org, host| known.is_known(org, host));
        let total = Duration::from_millis(settings.slow_total_ms);
        Self::new(signals, settings.slow_wait_ms, settings, WaitMode::Slow(queue, total))
    }

    fn new(signals: Signals, wait_ms: u64, settings: &MediaSettings, lane: WaitMode) -> Self {
        let left_running = Duration::from_millis(settings.slow_wait_ms);
        Self { signals, wait: Duration::from_millis(wait_ms), left_running, lane, late: Late::default() }
    }

    pub(crate) async fn wait_for_media(
        &self,
        request: MediaRequest<'_>,
        wanted: &[Wanted],
    ) -> MediaWaitResult {
        match &self.lane {
            WaitMode::Passing(permits) => self.in_passing(permits, request, wanted).await,
            WaitMode::Slow(queue, total) => {
                self.slowly(queue, Instant::now() + *total, request, wanted).await
            }
        }
    }

    async fn in_passing(
        &self,
        permits: &Scheduler,
        request: MediaRequest<'_>,
        wanted: &[Wanted],
    ) -> MediaWaitResult {
        let Some(_permit) = permits.try_acquire(request.org, &[], 0) else {
            metrics::item_handed_over("share");
            return MediaWaitResult::Later(media::pending(unknown(wanted)));
        };
        let mut search = self.signals.gather(request.org, wanted);
        // What is remembered is there at once, and no place need be left for it.
        if search.settle().now_or_never().is_some() {
            return MediaWaitResult::Found(search.end());
        }
        let key = (request.org.clone(), request.item.clone());
        let wait = if self.late.is_late(&key, Instant::now()) { Duration::ZERO } else { self.wait };
        match request.wait_for(&mut search, Instant::now() + wait).await {
            WaitEnd::Settled => MediaWaitResult::Found(search.end()),
            WaitEnd::TimeIsOver => {
                metrics::item_handed_over("time");
                self.late.note(key, Instant::now() + self.wait);
                MediaWaitResult::Later(media::pending(search.leave_running(self.left_running)))
            }
            WaitEnd::Lost => MediaWaitResult::Left,
        }
    }

    async fn slowly(
        &self,
        queue: &SlowQueue,
        end: Instant,
        request: MediaRequest<'_>,
        wanted: &[Wanted],
    ) -> MediaWaitResult {
        // What is remembered needs no permit. What is not is dropped: an item in the queue may hold no fetch.
        let hosts = {
            let mut search = self.signals.gather(request.org, wanted);
            if search.settle().now_or_never().is_some() {
                return MediaWaitResult::Found(search.end());
            }
            search.awaited_hosts()
        };
        let permit = request.slot.released_during(request.acquire(queue, &hosts, end)).await;
        let mut search = self.signals.gather(request.org, wanted);
        let _permit = match permit {
            Ok(Ok(permit)) => permit,
            Ok(Err(full)) => {
                metrics::slow_item_refused(full);
                return MediaWaitResult::Found(all_failed(wanted, "over_share"));
            }
            Err(WaitEnd::Lost) => return MediaWaitResult::Left,
            Err(WaitEnd::TimeIsOver | WaitEnd::Settled) => {
                // Others may have brought some of it meanwhile.
                let _all = search.settle().now_or_never();
                return MediaWaitResult::Found(search.end());
            }
        };
        // From its permit on it has a time of its own, so that its media are fetched although others ran before it.
        match request.wait_for(&mut search, end.min(Instant::now() + self.wait)).await {
            WaitEnd::Settled | WaitEnd::TimeIsOver => MediaWaitResult::Found(search.end()),
            WaitEnd::Lost => MediaWaitResult::Left,
        }
    }
}

/// Items that were just handed over because their time was over. A later version of one of them follows it without
/// waiting: versions of an item come one after the other, so their waiting would add up.
#[derive(Default)]
struct Late(Mutex<HashMap<(OrgId, ItemKey), Instant>>);

impl Late {
    fn is_late(&self, key: &(OrgId, ItemKey), now: Instant) -> bool {
        self.0.lock().get(key).is_some_and(|until| now < *until)
    }

    fn note(&self, key: (OrgId, ItemKey), until: Instant) {
        /// Above it, those that are long past are forgotten.
        const MANY: usize = 1_024;
        let mut late = self.0.lock();
        if late.len() >= MANY {
            let now = Instant::now();
            late.retain(|_, until| now < *until);
        }
        late.insert(key, until);
    }
}

enum WaitEnd {
    Settled,
    TimeIsOver,
    Lost,
}

impl MediaRequest<'_> {
    async fn acquire(
        &self,
        queue: &SlowQueue,
        hosts: &[Arc<str>],
        end: Instant,
    ) -> Result<Result<RunPermit, QueueFull>, WaitEnd> {
        tokio::select! {
            biased;
            () = self.ticket.cancelled() => Err(WaitEnd::Lost),
            permit = queue.acquire(self.org, hosts, self.bytes) => Ok(permit),
            () = sleep_until(end) => Err(WaitEnd::TimeIsOver),
        }
    }

    async fn wait_for(&self, search: &mut Search, end: Instant) -> WaitEnd {
        self.slot
            .released_during(async {
                tokio::select! {
                    biased;
                    () = self.ticket.cancelled() => WaitEnd::Lost,
                    () = search.settle() => WaitEnd::Settled,
                    () = sleep_until(end) => WaitEnd::TimeIsOver,
                }
            })
            .await
    }
}

/// Returns permits for items that wait for a moment. Nobody waits for one: an item that gets none is handed over.
pub(super) fn passing_permits(settings: &MediaSettings) -> Scheduler {
    let limits =
        Limits { running: settings.waiting, running_per_org: settings.waiting_per_org, ..Limits::UNLIMITED };
    Scheduler::new(limits, |_, _| true, |_| {})
}

/// Returns the limits of items that may wait for long. There is none for all orgs: what they hold in all is bounded by
/// the budget of the consumer.
pub(super) fn slow_limits(settings: &MediaSettings) -> Limits {
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

fn unknown(wanted: &[Wanted]) -> Vec<(String, Option<Inspection>)> {
    wanted.iter().map(|it| (it.url.clone(), None)).collect()
}

fn all_failed(wanted: &[Wanted], reason: &'static str) -> Vec<Signal> {
    let failed =
        |it: &Wanted| Signal { url: it.url.clone(), inspection: Inspection::FetchFailed(reason.into()) };
    wanted.iter().map(failed).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn org_leaves_as_many_waits_to_others_as_it_has() {
        let settings = MediaSettings { waiting: 5, waiting_per_org: 2, ..MediaSettings::default() };
        let permits = passing_permits(&settings);
        let held = |org: &str| {
            let org = OrgId::new(org);
            (0..9).filter_map(|_| permits.try_acquire(&org, &[], 0)).collect::<Vec<_>>()
        };
        let (first, second, third) = (held("a"), held("b"), held("c"));
        assert_eq!((first.len(), second.len(), third.len()), (2, 2, 1));
        assert!(held("d").is_empty(), "all are taken");
        drop(first);
        assert_eq!((held("d").len(), held("b").len()), (1, 0));
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
        let of_host: Vec<_> = (0..9).filter_map(|_| run("h", 10)).collect();
        assert_eq!(of_host.len(), 3);
        assert!(run("i", 71).is_none());
        let others: Vec<_> = (0..9).filter_map(|nth| run(&nth.to_string(), 10)).collect();
        assert_eq!(of_host.len() + others.len(), 10);
        let mut first = wait(100);
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(wait(101).now_or_never().map(Result::err), Some(Some(QueueFull::Weight)));
        let mut second = wait(100);
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(wait(0).now_or_never().map(Result::err), Some(Some(QueueFull::Entries)));
    }

    #[test]
    fn a_version_that_follows_a_late_one_does_not_wait() {
        let (late, now) = (Late::default(), Instant::now());
        let key = |id: &str| (OrgId::new("o"), ItemKey::new("post", id));
        let until = now + Duration::from_secs(2);
        late.note(key("a"), until);
        assert!(late.is_late(&key("a"), now) && !late.is_late(&key("b"), now));
        assert!(!late.is_late(&key("a"), until), "the next one may wait again");
        for nth in 0..5_000 {
            late.note(key(&nth.to_string()), now);
        }
        assert!(late.0.lock().len() < 2_000, "what is long past is forgotten");
    }
}
