//! Waits for the media of items: for a moment beside everybody else's work, or for long on a topic of their own.
//!
//! It fetches nothing itself, and decides nothing about the item.

use std::{collections::HashMap, time::Duration};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_moderation::media::{self, Look, Search, Shares, Signal, Signals, Wanted};
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    wire::answers::Media,
};
use tidegate_stream::consumer::ticket::Ticket;
use tokio::time::{Instant, sleep_until};

use crate::{
    consumer::slot::ConcurrencySlot,
    items::slow_queue::seats::Seats,
    items::slow_queue::{Bounds, Full, Guest, Line, Seat},
    metrics,
    settings::MediaSettings,
};

/// How long is waited, and what follows.
enum Lane {
    /// Then the item is handed over.
    Passing(Seats),
    /// Then what is missing has failed, as it has when so much time has passed in all.
    Slow(Line, Duration),
}

pub(crate) struct Looking {
    signals: Signals,
    wait: Duration,
    /// How long fetches go on that nobody waits for, after an item was handed over.
    left_running: Duration,
    lane: Lane,
    late: Late,
}

pub(crate) enum Looked {
    Found(Vec<Signal>),
    /// The item is to be handed over; this is what is known by now.
    Later(Vec<Media>),
    /// The assignment is gone, and with it all that was waited for.
    Left,
}

/// Whose media, and what is given up if that is lost.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) item: &'a ItemKey,
    /// That the item takes while it waits.
    pub(crate) bytes: usize,
    pub(crate) ticket: &'a Ticket,
    pub(crate) slot: &'a ConcurrencySlot,
}

impl Looking {
    pub(crate) fn passing(signals: Signals, settings: &MediaSettings) -> Self {
        let seats = Seats::new(settings.waiting_per_org, settings.waiting);
        Self::new(signals, settings.wait_ms, settings, Lane::Passing(seats))
    }

    pub(crate) fn slow(signals: Signals, settings: &MediaSettings) -> Self {
        let bounds = bounds(settings);
        let known = signals.clone();
        let line = Line::new(bounds, move |org, host| known.is_known(org, host));
        let total = Duration::from_millis(settings.slow_total_ms);
        Self::new(signals, settings.slow_wait_ms, settings, Lane::Slow(line, total))
    }

    fn new(signals: Signals, wait_ms: u64, settings: &MediaSettings, lane: Lane) -> Self {
        let left_running = Duration::from_millis(settings.slow_wait_ms);
        Self { signals, wait: Duration::from_millis(wait_ms), left_running, lane, late: Late::default() }
    }

    pub(crate) async fn look(&self, asker: Asker<'_>, wanted: &[Wanted]) -> Looked {
        match &self.lane {
            Lane::Passing(seats) => self.in_passing(seats, asker, wanted).await,
            Lane::Slow(line, total) => self.slowly(line, Instant::now() + *total, asker, wanted).await,
        }
    }

    async fn in_passing(&self, seats: &Seats, asker: Asker<'_>, wanted: &[Wanted]) -> Looked {
        let Some(_seat) = seats.try_take(asker.org) else {
            metrics::item_handed_over("share");
            return Looked::Later(media::pending(unknown(wanted)));
        };
        let mut search = self.signals.gather(asker.org, wanted);
        // What is remembered is there at once, and no place need be left for it.
        if search.settle().now_or_never().is_some() {
            return Looked::Found(search.end());
        }
        let key = (asker.org.clone(), asker.item.clone());
        let wait = if self.late.is_late(&key, Instant::now()) { Duration::ZERO } else { self.wait };
        match asker.wait_for(&mut search, Instant::now() + wait).await {
            Waited::Settled => Looked::Found(search.end()),
            Waited::TimeIsOver => {
                metrics::item_handed_over("time");
                self.late.note(key, Instant::now() + self.wait);
                Looked::Later(media::pending(search.leave_running(self.left_running)))
            }
            Waited::Lost => Looked::Left,
        }
    }

    async fn slowly(&self, line: &Line, end: Instant, asker: Asker<'_>, wanted: &[Wanted]) -> Looked {
        // What is remembered needs no seat. What is not is let go: who stands in line may hold no turn.
        let hosts = {
            let mut search = self.signals.gather(asker.org, wanted);
            if search.settle().now_or_never().is_some() {
                return Looked::Found(search.end());
            }
            search.awaited_hosts()
        };
        let guest = Guest { hosts, bytes: asker.bytes };
        let seat = asker.slot.released_during(asker.seat(line, guest, end)).await;
        let mut search = self.signals.gather(asker.org, wanted);
        let _seat = match seat {
            Ok(Ok(seat)) => seat,
            Ok(Err(full)) => {
                metrics::slow_item_refused(full.tag());
                return Looked::Found(all_failed(wanted, "over_share"));
            }
            Err(Waited::Lost) => return Looked::Left,
            Err(Waited::TimeIsOver | Waited::Settled) => {
                // Others may have brought some of it meanwhile.
                let _all = search.settle().now_or_never();
                return Looked::Found(search.end());
            }
        };
        // From its seat on it has a time of its own, so that it is looked for although others stood before it.
        match asker.wait_for(&mut search, end.min(Instant::now() + self.wait)).await {
            Waited::Settled | Waited::TimeIsOver => Looked::Found(search.end()),
            Waited::Lost => Looked::Left,
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

enum Waited {
    Settled,
    TimeIsOver,
    Lost,
}

impl Asker<'_> {
    async fn seat(&self, line: &Line, guest: Guest, end: Instant) -> Result<Result<Seat, Full>, Waited> {
        tokio::select! {
            biased;
            () = self.ticket.cancelled() => Err(Waited::Lost),
            seat = line.take(self.org, guest) => Ok(seat),
            () = sleep_until(end) => Err(Waited::TimeIsOver),
        }
    }

    async fn wait_for(&self, search: &mut Search, end: Instant) -> Waited {
        self.slot
            .released_during(async {
                tokio::select! {
                    biased;
                    () = self.ticket.cancelled() => Waited::Lost,
                    () = search.settle() => Waited::Settled,
                    () = sleep_until(end) => Waited::TimeIsOver,
                }
            })
            .await
    }
}

fn bounds(settings: &MediaSettings) -> Bounds {
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
