//! Waits for the media of items: for a moment beside everybody else's work, or for long on a topic of their own.
//!
//! It fetches nothing itself, and decides nothing about the item.

use std::{collections::HashMap, time::Duration};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_moderation::media::{self, Look, Search, Signal, Signals, Wanted};
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    wire::answers::Media,
};
use tidegate_stream::consumer::ticket::Ticket;
use tokio::time::{Instant, sleep_until};

use crate::{
    consumer::slot::ConcurrencySlot,
    items::slow_queue::wait_permits::WaitPermits,
    items::slow_queue::{Bounds, QueueFull, QueuedItem, RunPermit, Shares, SlowQueue},
    metrics,
    settings::MediaSettings,
};

/// Length of the wait, and what follows it.
enum WaitMode {
    /// Then the item is handed over.
    Passing(WaitPermits),
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
        let seats = WaitPermits::new(settings.waiting_per_org, settings.waiting);
        Self::new(signals, settings.wait_ms, settings, WaitMode::Passing(seats))
    }

    pub(crate) fn slow(signals: Signals, settings: &MediaSettings) -> Self {
        let bounds = bounds(settings);
        let known = signals.clone();
        let line = SlowQueue::new(bounds, move |org, host| known.is_known(org, host));
        let total = Duration::from_millis(settings.slow_total_ms);
        Self::new(signals, settings.slow_wait_ms, settings, WaitMode::Slow(line, total))
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
            WaitMode::Passing(seats) => self.in_passing(seats, request, wanted).await,
            WaitMode::Slow(line, total) => self.slowly(line, Instant::now() + *total, request, wanted).await,
        }
    }

    async fn in_passing(
        &self,
        seats: &WaitPermits,
        request: MediaRequest<'_>,
        wanted: &[Wanted],
    ) -> MediaWaitResult {
        let Some(_seat) = seats.try_take(request.org) else {
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
        line: &SlowQueue,
        end: Instant,
        request: MediaRequest<'_>,
        wanted: &[Wanted],
    ) -> MediaWaitResult {
        // What is remembered needs no seat. What is not is let go: who stands in line may hold no turn.
        let hosts = {
            let mut search = self.signals.gather(request.org, wanted);
            if search.settle().now_or_never().is_some() {
                return MediaWaitResult::Found(search.end());
            }
            search.awaited_hosts()
        };
        let guest = QueuedItem { hosts, bytes: request.bytes };
        let seat = request.slot.released_during(request.seat(line, guest, end)).await;
        let mut search = self.signals.gather(request.org, wanted);
        let _seat = match seat {
            Ok(Ok(seat)) => seat,
            Ok(Err(full)) => {
                metrics::slow_item_refused(full.tag());
                return MediaWaitResult::Found(all_failed(wanted, "over_share"));
            }
            Err(WaitEnd::Lost) => return MediaWaitResult::Left,
            Err(WaitEnd::TimeIsOver | WaitEnd::Settled) => {
                // Others may have brought some of it meanwhile.
                let _all = search.settle().now_or_never();
                return MediaWaitResult::Found(search.end());
            }
        };
        // From its seat on it has a time of its own, so that it is looked for although others stood before it.
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
    async fn seat(
        &self,
        line: &SlowQueue,
        guest: QueuedItem,
        end: Instant,
    ) -> Result<Result<RunPermit, QueueFull>, WaitEnd> {
        tokio::select! {
            biased;
            () = self.ticket.cancelled() => Err(WaitEnd::Lost),
            seat = line.take(self.org, guest) => Ok(seat),
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

pub(super) fn bounds(settings: &MediaSettings) -> Bounds {
    let bytes = usize::try_from(settings.slow_bytes_per_org).unwrap_or(usize::MAX);
    Bounds {
        seats: Shares { all: settings.slow_per_org, per_host: settings.slow_per_host },
        seat_bytes: bytes / 3,
        line: settings.slow_line_per_org,
        line_bytes: bytes - bytes / 3,
    }
}

fn unknown(wanted: &[Wanted]) -> Vec<(String, Option<Look>)> {
    wanted.iter().map(|it| (it.url.clone(), None)).collect()
}

fn all_failed(wanted: &[Wanted], reason: &'static str) -> Vec<Signal> {
    let failed = |it: &Wanted| Signal { url: it.url.clone(), look: Look::FetchFailed(reason.into()) };
    wanted.iter().map(failed).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

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
