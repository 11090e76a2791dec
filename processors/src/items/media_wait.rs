//! Waits for the media of items: for a moment beside everybody else's work, or for long on a topic of their own.
//!
//! It fetches nothing itself, and decides nothing about the item.

use std::{collections::HashMap, time::Duration};

use futures::FutureExt as _;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidegate_moderation::media::{self, Look, Search, Shares, Signal, Signals, Wanted};
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    wire::answers::Media,
};
use tidegate_stream::consumer::ticket::Ticket;
use tokio::time::{Instant, sleep_until};

use crate::{
    consumer::slot::Place,
    items::slow_queue::seats::Seats,
    items::slow_queue::{Bounds, Full, Guest, Line, Seat},
};

/// The section `processors.media` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long an item waits for its media before it goes on to the topic `items-slow`, in milliseconds. Default 2,000.
    pub wait_ms: u64,
    /// Items that wait so at once; further ones go on at once. Default 4,096.
    pub waiting: usize,
    /// The same of one organisation. Default 512.
    pub waiting_per_org: usize,
    /// How long an item of `items-slow` waits from when it is its turn; what is missing then is `fetch_failed`, reason
    /// `deadline`, in milliseconds. Default 60,000.
    pub slow_wait_ms: u64,
    /// The same from when it came, its time in line included. Default 600,000.
    pub slow_total_ms: u64,
    /// Items of one organisation whose turn it is at once. Default 64.
    pub slow_per_org: usize,
    /// Those of them that wait for one host, as items name it. A host has no more of them than it leaves to the others,
    /// and hosts that rest, or never gave anything, have half of them together. Default 16.
    pub slow_per_host: usize,
    /// Further items of one organisation that stand in line for it; beyond, media are `fetch_failed`, reason
    /// `over_share`. Default 5,000.
    pub slow_line_per_org: usize,
    /// Bytes of one organisation's items. A third is for those whose turn it is, shared as their number is: others stand
    /// in line. The rest is for the line; beyond, the same as above. It should be a part of `processors.budget_bytes`.
    /// Default 24 MiB.
    pub slow_bytes_per_org: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait_ms: 2_000,
            waiting: 4_096,
            waiting_per_org: 512,
            slow_wait_ms: 60_000,
            slow_total_ms: 600_000,
            slow_per_org: 64,
            slow_per_host: 16,
            slow_line_per_org: 5_000,
            slow_bytes_per_org: 24 << 20,
        }
    }
}

impl Settings {
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (name, value) in [
            ("slow_wait_ms", self.slow_wait_ms),
            ("slow_per_org", self.slow_per_org as u64),
            ("slow_per_host", self.slow_per_host as u64),
            ("slow_bytes_per_org", self.slow_bytes_per_org),
        ] {
            if value == 0 {
                return Err(format!("processors.media.{name} must be above 0"));
            }
        }
        for (lesser, less, greater, great) in [
            ("wait_ms", self.wait_ms, "slow_wait_ms", self.slow_wait_ms),
            ("slow_wait_ms", self.slow_wait_ms, "slow_total_ms", self.slow_total_ms),
            ("waiting_per_org", self.waiting_per_org as u64, "waiting", self.waiting as u64),
            ("slow_per_host", self.slow_per_host as u64, "slow_per_org", self.slow_per_org as u64),
        ] {
            if less > great {
                return Err(format!(
                    "processors.media.{lesser} = {less} must not be above processors.media.{greater} = {great}"
                ));
            }
        }
        Ok(())
    }

    fn bounds(&self) -> Bounds {
        let bytes = usize::try_from(self.slow_bytes_per_org).unwrap_or(usize::MAX);
        Bounds {
            seats: Shares { all: self.slow_per_org, per_host: self.slow_per_host },
            seat_bytes: bytes / 3,
            line: self.slow_line_per_org,
            line_bytes: bytes - bytes / 3,
        }
    }
}

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
    pub(crate) place: &'a Place,
}

impl Looking {
    pub(crate) fn passing(signals: Signals, settings: &Settings) -> Self {
        let seats = Seats::new(settings.waiting_per_org, settings.waiting);
        Self::new(signals, settings.wait_ms, settings, Lane::Passing(seats))
    }

    pub(crate) fn slow(signals: Signals, settings: &Settings) -> Self {
        let bounds = settings.bounds();
        let known = signals.clone();
        let line = Line::new(bounds, move |org, host| known.is_known(org, host));
        let total = Duration::from_millis(settings.slow_total_ms);
        Self::new(signals, settings.slow_wait_ms, settings, Lane::Slow(line, total))
    }

    fn new(signals: Signals, wait_ms: u64, settings: &Settings, lane: Lane) -> Self {
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
            handed_over("share");
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
                handed_over("time");
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
        let seat = asker.place.aside(asker.seat(line, guest, end)).await;
        let mut search = self.signals.gather(asker.org, wanted);
        let _seat = match seat {
            Ok(Ok(seat)) => seat,
            Ok(Err(full)) => {
                metrics::counter!("tidegate_media_slow_refused_total", "why" => full.tag()).increment(1);
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
        self.place
            .aside(async {
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

fn handed_over(why: &'static str) {
    metrics::counter!("tidegate_media_items_slow_total", "why" => why).increment(1);
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
    fn what_cannot_work_is_refused_with_both_settings_named() {
        Settings::default().validate().unwrap();
        for (settings, named) in [
            (Settings { slow_per_org: 0, ..Settings::default() }, "processors.media.slow_per_org"),
            (Settings { wait_ms: 90_000, ..Settings::default() }, "processors.media.slow_wait_ms = 60000"),
            (Settings { slow_total_ms: 1, ..Settings::default() }, "processors.media.slow_total_ms = 1"),
            (Settings { waiting: 1, ..Settings::default() }, "processors.media.waiting = 1"),
            (Settings { slow_per_host: 65, ..Settings::default() }, "processors.media.slow_per_org = 64"),
            (
                Settings { slow_bytes_per_org: 0, ..Settings::default() },
                "processors.media.slow_bytes_per_org",
            ),
        ] {
            let fault = settings.validate().unwrap_err();
            assert!(fault.contains(named), "{fault}");
        }
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
