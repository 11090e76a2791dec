//! One look at a medium: remembered, fetched in its turn, tried again, digested, and hashed off the async threads.
//!
//! It knows no items; who asks for the same medium of the same org at once has one answer.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use tidegate_egress::{
    Client,
    media::{self, Freshness, Outcome, Reason, Spent, Validators, Wanted},
    target::Target,
};
use tidegate_media::{Decoders, Digests, Done, Fingerprint, State};
use tidegate_schemas::ids::OrgId;
use tidegate_store::Store;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    Depth, Look, Settings,
    body::{Arrived, Body},
    body_memory::{Held, Rooms},
    fetch_scheduler::{Gate, Inside},
    fingerprint_cache::Contents,
    host_breaker::{Admission, Breakers, Site},
    lru::Keep,
    retry::Retries,
};

/// A look that several may wait for. When the last of them has left, it ends.
pub(super) type Flight = Shared<BoxFuture<'static, Look>>;

/// What is looked at, for whom.
///
/// The org is part of it although an unauthenticated GET brings everybody the same: whoever joined another org's look
/// would wait in that org's turn, and would learn from the time that it took that somebody had asked before.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    org: OrgId,
    /// However its URL was written.
    resource: Box<str>,
    depth: Depth,
}

/// What an address showed.
#[derive(Clone)]
struct Shown {
    print: Arc<Fingerprint>,
    validators: Validators,
    fresh_until: Instant,
    /// What it said itself of how long it stands.
    fresh_for: Option<Duration>,
}

/// Cheap to clone; clones share all bounds and all that is remembered.
#[derive(Clone)]
pub(super) struct Fetcher(Arc<Inner>);

struct Inner {
    client: Client,
    decoders: Decoders,
    gate: Gate,
    breakers: Mutex<Breakers>,
    /// Told when a trial of a host is over.
    trials: watch::Sender<()>,
    retries: Retries,
    room: Rooms,
    url_ttl: Duration,
    urls: Mutex<Keep<Question, Shown>>,
    contents: Contents,
    flights: Mutex<Board>,
}

/// How an attempt ended.
enum Attempt {
    Ended(Look),
    /// A host on the way is left alone until then.
    Resting(Instant),
    /// Another one tries a host on the way, until then at most, and tells when that is over.
    Tried(Instant, watch::Receiver<()>),
    Failed {
        reason: Reason,
        retry_after: Option<Duration>,
    },
}

/// The looks that are under way.
#[derive(Default)]
struct Board {
    by_question: HashMap<Question, (u64, WeakShared<BoxFuture<'static, Look>>)>,
    next: u64,
}

impl Fetcher {
    pub(super) fn new(client: Client, decoders: Decoders, store: Store, settings: &Settings) -> Self {
        let trial = Duration::from_millis(client.settings().media.total_ms);
        Self(Arc::new(Inner {
            decoders,
            gate: Gate::new(settings.bounds()),
            breakers: Mutex::new(Breakers::new(settings.patience(trial))),
            trials: watch::Sender::default(),
            retries: settings.retries(),
            room: Rooms::new(settings.body_bytes, settings.body_bytes_per_org, settings.room_wait()),
            url_ttl: settings.url_ttl(),
            urls: Mutex::new(Keep::new(settings.urls)),
            contents: Contents::new(store, settings.contents),
            flights: Mutex::default(),
            client,
        }))
    }

    pub(super) fn is_known(&self, org: &OrgId, host: &Arc<str>) -> bool {
        self.0.gate.is_known(&Site { org: org.clone(), host: Arc::clone(host) })
    }

    /// Joins the look that is under way, or begins one; nothing happens before it is polled.
    pub(super) fn look(&self, org: &OrgId, url: &str, depth: Depth) -> Flight {
        let target = match Target::parse(url) {
            Ok(target) => target,
            Err(fault) => {
                let refused = async move { Look::FetchFailed(fault.tag().into()).counted() };
                return refused.boxed().shared();
            }
        };
        let question = Question { org: org.clone(), resource: target.resource().into(), depth };
        let mut board = self.0.flights.lock();
        if let Some(flight) = board.by_question.get(&question).and_then(|(_, flight)| flight.upgrade()) {
            metrics::counter!("tidegate_media_joined_total").increment(1);
            return flight;
        }
        board.next += 1;
        let nth = board.next;
        let landing = Landing { inner: Arc::clone(&self.0), question: question.clone(), nth };
        let flight = async move { landing.inner.look(&landing.question, &target).await.counted() };
        let flight = flight.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            board.by_question.insert(question, (nth, weak));
        }
        flight
    }
}

/// Takes the look off the board when it is over, or when nobody waits for it any more.
struct Landing {
    inner: Arc<Inner>,
    question: Question,
    nth: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut board = self.inner.flights.lock();
        // A later look of the same question may be there already.
        if board.by_question.get(&self.question).is_some_and(|(nth, _)| *nth == self.nth) {
            board.by_question.remove(&self.question);
        }
    }
}

impl Inner {
    async fn look(&self, question: &Question, target: &Target) -> Look {
        let mut attempt = 0;
        loop {
            let shown = self.urls.lock().get(question);
            if let Some(shown) = &shown
                && Instant::now() < shown.fresh_until
            {
                metrics::counter!("tidegate_media_urls_total", "found" => "fresh").increment(1);
                return Look::Seen(Arc::clone(&shown.print));
            }
            attempt += 1;
            match self.attempt(question, target.clone(), shown).await {
                Attempt::Ended(look) => return look,
                Attempt::Resting(_) if attempt >= self.retries.attempts => return Look::unavailable(),
                Attempt::Resting(until) => sleep_until(until).await,
                Attempt::Tried(until, mut ended) => {
                    drop(timeout_at(until, ended.changed()).await);
                    // It waited for somebody else's attempt.
                    attempt -= 1;
                }
                Attempt::Failed { reason, retry_after } => {
                    let pause = reason.may_pass().then(|| self.retries.pause(attempt, retry_after, draw()));
                    let Some(pause) = pause.flatten() else { return Look::FetchFailed(reason.shown()) };
                    sleep(pause).await;
                }
            }
        }
    }

    /// One request after the other until none redirects; each is in the turn of the host that it goes to. What it holds
    /// is others' when it is over.
    async fn attempt(&self, question: &Question, mut target: Target, shown: Option<Shown>) -> Attempt {
        let org = &question.org;
        let mut body = Body::new(question.depth, self.decoders.limits().bytes, self.room.clone(), org);
        let (mut spent, mut way) = (Spent::default(), Freshness::default());
        let mut inside: Option<Inside> = None;
        let mut trial = None;
        loop {
            let site = Site { org: org.clone(), host: target.host().into() };
            if inside.as_ref().is_none_or(|inside| *inside.host() != site.host) {
                // Who waits for one host's turn must not hold another one's.
                drop(inside.take());
                inside = Some(self.gate.enter(&site).await);
                let (admission, ended) = {
                    let mut breakers = self.breakers.lock();
                    (breakers.admit(&site, Instant::now()), self.trials.subscribe())
                };
                match admission {
                    Admission::Go => {}
                    Admission::Try(until) => {
                        trial = Some(Trial { inner: self, site: site.clone(), until });
                    }
                    Admission::Wait(until) => return Attempt::Resting(until),
                    Admission::Watch(until) => return Attempt::Tried(until, ended),
                    Admission::GivenUp => return Attempt::Ended(Look::unavailable()),
                }
            }
            let validators = shown.as_ref().map(|shown| &shown.validators).filter(|known| !known.is_empty());
            let wanted = Wanted { org, target: target.clone(), validators };
            let began = Instant::now();
            let outcome = media::fetch(&self.client, wanted, &mut spent, &mut body, unix_seconds()).await;
            self.tell(&site, &target, &outcome, began);
            // If something was learnt, it is over; else another one may try.
            drop(trial.take());
            return Attempt::Ended(match outcome {
                Outcome::Redirected { to, freshness } => {
                    target = *to;
                    way = freshness.within(&way);
                    continue;
                }
                Outcome::Ok(arrived) => {
                    // Still inside, so that an org and a host have no more of the decoders than of the fetches.
                    let print = self.print(question.depth, body.finish()).await;
                    drop(inside);
                    self.remember(question, &print, &arrived.freshness.within(&way));
                    Look::Seen(print)
                }
                Outcome::Unchanged(freshness) => {
                    let Some(shown) = shown else { return Attempt::Ended(Look::failed("http_304")) };
                    let validators = match freshness.validators.is_empty() {
                        true => shown.validators,
                        false => freshness.validators.clone(),
                    };
                    // What an answer does not say again still holds.
                    let fresh_for = freshness.fresh_for.or(shown.fresh_for);
                    let freshness = Freshness { validators, fresh_for, ..freshness };
                    self.remember(question, &shown.print, &freshness);
                    Look::Seen(shown.print)
                }
                Outcome::TooLarge => Look::TooLarge,
                Outcome::BlockedAddress => Look::BlockedAddress,
                Outcome::FetchFailed { reason, retry_after } => {
                    return Attempt::Failed { reason, retry_after };
                }
            });
        }
    }

    /// Tells the breaker, the metrics and the log how an attempt went.
    fn tell(&self, site: &Site, target: &Target, outcome: &Outcome, began: Instant) {
        let reason = match outcome {
            Outcome::FetchFailed { reason, .. } => Some(reason),
            _ => None,
        };
        let (rests, open) = {
            let mut breakers = self.breakers.lock();
            let rests = match reason {
                Some(reason) if reason.is_of_host() => breakers.failed(site, Instant::now()),
                // Nothing was learnt about the host.
                Some(Reason::NoRoom) => false,
                _ => {
                    breakers.succeeded(site);
                    false
                }
            };
            (rests, breakers.open())
        };
        match outcome {
            Outcome::Ok(_) | Outcome::Unchanged(_) | Outcome::Redirected { .. } => {
                self.gate.learn(site, true);
            }
            // One address that fails says nothing of the others.
            _ if rests => self.gate.learn(site, false),
            _ => {}
        }
        metrics::gauge!("tidegate_media_hosts_resting").set(u32::try_from(open).unwrap_or(u32::MAX));
        let tag = reason.map_or("", Reason::tag);
        metrics::counter!("tidegate_media_fetches_total", "outcome" => outcome.tag(), "reason" => tag)
            .increment(1);
        metrics::histogram!("tidegate_media_fetch_seconds").record(began.elapsed().as_secs_f64());
        match outcome {
            Outcome::Ok(arrived) => {
                metrics::counter!("tidegate_media_bytes_total").increment(arrived.bytes);
            }
            Outcome::Unchanged(_) => {
                metrics::counter!("tidegate_media_urls_total", "found" => "unchanged").increment(1);
            }
            _ => tracing::debug!(url = %target.shown(), outcome = outcome.tag(), reason = tag, "no medium"),
        }
    }

    async fn print(&self, depth: Depth, arrived: Arrived) -> Arc<Fingerprint> {
        let Arrived { digests, kept, room } = arrived;
        let Some(bytes) = kept else {
            return Arc::new(match depth {
                Depth::Exact => Fingerprint::unhashed(State::Ok, None, digests),
                Depth::Picture => Fingerprint::too_many_bytes(digests),
            });
        };
        if let Some(print) = self.contents.find(&digests).await {
            return print;
        }
        let print = Arc::new(self.decode(Kept { bytes, _room: room }, digests).await);
        self.contents.keep(&print).await;
        print
    }

    /// What waits for the decoders holds its room, so that is what bounds them.
    async fn decode(&self, kept: Kept, digests: Digests) -> Fingerprint {
        let (sender, decoded) = oneshot::channel();
        let began = Instant::now();
        self.decoders.submit(kept, digests, Waiter(sender));
        let decoded = decoded.await;
        metrics::histogram!("tidegate_media_decode_seconds").record(began.elapsed().as_secs_f64());
        decoded.unwrap_or_else(|_| Fingerprint::unhashed(State::Undecodable, None, digests))
    }

    fn remember(&self, question: &Question, print: &Arc<Fingerprint>, freshness: &Freshness) {
        let fresh_for = freshness.fresh_for.map_or(self.url_ttl, |fresh| fresh.min(self.url_ttl));
        let mut urls = self.urls.lock();
        if freshness.no_store || (fresh_for.is_zero() && freshness.validators.is_empty()) {
            urls.forget(question);
            return;
        }
        let shown = Shown {
            print: Arc::clone(print),
            validators: freshness.validators.clone(),
            fresh_until: Instant::now() + fresh_for,
            fresh_for: freshness.fresh_for,
        };
        urls.put(question.clone(), shown);
    }
}

/// The one fetch that tries a host which rested; given back when dropped, as many are that nobody waits for any more.
struct Trial<'a> {
    inner: &'a Inner,
    site: Site,
    until: Instant,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.inner.breakers.lock().left(&self.site, self.until, Instant::now());
        self.inner.trials.send_replace(());
    }
}

/// A body, and the room that it takes: both are there until it is decoded, whoever has left meanwhile.
struct Kept {
    bytes: Vec<u8>,
    _room: Option<Held>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Nobody decodes for whoever has left.
struct Waiter(oneshot::Sender<Fingerprint>);

impl Done for Waiter {
    fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    fn pass(self, print: Fingerprint) {
        drop(self.0.send(print));
    }
}

impl Look {
    fn counted(self) -> Self {
        metrics::counter!("tidegate_media_looks_total", "state" => self.tag()).increment(1);
        self
    }

    fn failed(reason: &'static str) -> Self {
        Self::FetchFailed(Cow::Borrowed(reason))
    }

    fn unavailable() -> Self {
        Self::failed("host_unavailable")
    }

    pub(super) fn given_up() -> Self {
        Self::failed("deadline")
    }

    pub(super) fn too_many() -> Self {
        Self::failed("too_many")
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// From 0 to 1: every `RandomState` has keys of its own.
fn draw() -> f64 {
    let drawn = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(drawn).unwrap_or_default()) / f64::from(u32::MAX)
}
