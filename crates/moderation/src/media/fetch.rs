//! Fetches one medium: cache look-up, permit, attempts with retries, digests, and hashing outside the async threads.
//! Concurrent callers of one org share the fetch of a URL.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_egress::{
    Client,
    media::{self, AttemptUsage, FetchError, FetchOutcome, FetchRequest, Freshness, Validators},
    target::Target,
};
use tidegate_media::{Decoders, Digests, Fingerprint, FingerprintReceiver, State};
use tidegate_scheduler::{GrowingBudget, Reservation};
use tidegate_schemas::ids::OrgId;
use tidegate_store::Store;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    HashDepth, Inspection, Settings,
    body::{Body, ReceivedBody},
    fetch_scheduler::{FetchPermit, FetchScheduler},
    fingerprint_cache::FingerprintCache,
    lru::LruCache,
};
use crate::{
    metrics,
    outbound::{
        host_breaker::{Admission, HostBreakers, OrgHost},
        retry::{Retries, random_fraction},
        single_flight::{Flight, SingleFlight},
    },
};

/// Fetch that several callers can await. It ends when the last of them drops it.
pub(super) type InspectionFlight = Flight<Inspection>;

/// Key of shared fetches and of the URL cache.
///
/// Includes the org, although an unauthenticated GET has the same answer for every org: joining another org's fetch
/// would impose that org's permits on the caller, and the timing would reveal that the org has asked before.
#[derive(Clone, PartialEq, Eq, Hash)]
struct FetchKey {
    org: OrgId,
    /// Normalised URL.
    resource: Box<str>,
    depth: HashDepth,
}

/// Last answer of a URL.
#[derive(Clone)]
struct CachedAnswer {
    print: Arc<Fingerprint>,
    validators: Validators,
    fresh_until: Instant,
    /// Freshness stated by the answer.
    fresh_for: Option<Duration>,
}

/// Cheap to clone; clones share all limits and caches.
#[derive(Clone)]
pub(super) struct Fetcher(Arc<Inner>);

struct Inner {
    client: Client,
    decoders: Decoders,
    scheduler: FetchScheduler,
    breakers: Mutex<HostBreakers>,
    /// Signalled when the probe of a host ends.
    probes: watch::Sender<()>,
    retries: Retries,
    body_memory: GrowingBudget,
    url_ttl: Duration,
    urls: Mutex<LruCache<FetchKey, CachedAnswer>>,
    fingerprints: FingerprintCache,
    flights: SingleFlight<FetchKey, Inspection>,
}

/// Result of one attempt.
enum Attempt {
    Ended(Inspection),
    /// The host, or a host that it redirects to, rests until this instant.
    Resting(Instant),
    /// Another fetch probes the host until this instant at most. The receiver is notified when the probe ends.
    Probing(Instant, watch::Receiver<()>),
    Failed {
        reason: FetchError,
        retry_after: Option<Duration>,
    },
}

impl Fetcher {
    pub(super) fn new(client: Client, decoders: Decoders, store: Store, settings: &Settings) -> Self {
        let probe = Duration::from_millis(client.settings().media.total_ms);
        Self(Arc::new(Inner {
            decoders,
            scheduler: FetchScheduler::new(settings.limits(), settings.hosts),
            breakers: Mutex::new(HostBreakers::new(settings.breakers(probe))),
            probes: watch::Sender::default(),
            retries: settings.retries(),
            body_memory: GrowingBudget::new(
                settings.body_bytes,
                settings.body_bytes_per_org,
                settings.room_wait(),
            ),
            url_ttl: settings.url_ttl(),
            urls: Mutex::new(LruCache::new(settings.urls)),
            fingerprints: FingerprintCache::new(store, settings.contents),
            flights: SingleFlight::default(),
            client,
        }))
    }

    pub(super) fn is_known(&self, org: &OrgId, host: &Arc<str>) -> bool {
        self.0.scheduler.is_known(org, host)
    }

    /// Joins the running fetch of the medium, or prepares one. It starts when polled.
    pub(super) fn inspect(&self, org: &OrgId, url: &str, depth: HashDepth) -> InspectionFlight {
        let target = match Target::parse(url) {
            Ok(target) => target,
            Err(error) => {
                let invalid_url = async move { Inspection::FetchFailed(error.tag().into()).record_metric() };
                return invalid_url.boxed().shared();
            }
        };
        let key = FetchKey { org: org.clone(), resource: target.normalized().into(), depth };
        let (inner, flight_key) = (Arc::clone(&self.0), key.clone());
        let (flight, is_joined) = self
            .0
            .flights
            .join(&key, || async move { inner.inspect(&flight_key, &target).await.record_metric() });
        if is_joined {
            metrics::media_inspection_joined();
        }
        flight
    }
}

impl Inner {
    async fn inspect(&self, key: &FetchKey, target: &Target) -> Inspection {
        let mut attempt = 0;
        loop {
            let cached = self.urls.lock().get(key);
            if let Some(cached) = &cached
                && Instant::now() < cached.fresh_until
            {
                metrics::media_url_cached("fresh");
                return Inspection::Hashed(Arc::clone(&cached.print));
            }
            attempt += 1;
            match self.make_attempt(key, target.clone(), cached).await {
                Attempt::Ended(inspection) => return inspection,
                Attempt::Resting(_) if attempt >= self.retries.attempts => return Inspection::unavailable(),
                Attempt::Resting(until) => sleep_until(until).await,
                Attempt::Probing(until, mut ended) => {
                    drop(timeout_at(until, ended.changed()).await);
                    // This attempt only waited for another fetch's probe, so it does not count.
                    attempt -= 1;
                }
                Attempt::Failed { reason, retry_after } => {
                    let pause = reason
                        .is_retryable()
                        .then(|| self.retries.pause(attempt, retry_after, random_fraction()));
                    let Some(pause) = pause.flatten() else {
                        return Inspection::FetchFailed(reason.detail());
                    };
                    sleep(pause).await;
                }
            }
        }
    }

    /// Sends requests until one is not a redirect, each under a permit for its host. The permit and the memory are
    /// released when the attempt ends.
    async fn make_attempt(
        &self,
        key: &FetchKey,
        mut target: Target,
        cached: Option<CachedAnswer>,
    ) -> Attempt {
        let org = &key.org;
        let mut body = Body::new(key.depth, self.decoders.limits().bytes, self.body_memory.clone(), org);
        let (mut usage, mut redirect_freshness) = (AttemptUsage::default(), Freshness::default());
        let mut permit: Option<FetchPermit> = None;
        let mut probe = None;
        loop {
            let host = OrgHost { org: org.clone(), host: target.host().into() };
            if permit.as_ref().is_none_or(|permit| *permit.host() != host.host) {
                // A fetch that waits for one host must not hold the permit of another: two such fetches could
                // block each other.
                drop(permit.take());
                let Ok(acquired) = self.scheduler.acquire(&host).await else {
                    return Attempt::Ended(Inspection::failed("over_share"));
                };
                permit = Some(acquired);
                // Subscribed under the lock, so that the end of a probe between the two calls is not missed.
                let (admission, ended) = {
                    let mut breakers = self.breakers.lock();
                    (breakers.admit(&host, Instant::now()), self.probes.subscribe())
                };
                match admission {
                    Admission::Allowed => {}
                    Admission::Probe(until) => {
                        probe = Some(Probe { inner: self, host: host.clone(), until });
                    }
                    Admission::Resting(until) => return Attempt::Resting(until),
                    Admission::Probing(until) => return Attempt::Probing(until, ended),
                    Admission::GivenUp => return Attempt::Ended(Inspection::unavailable()),
                }
            }
            let validators =
                cached.as_ref().map(|cached| &cached.validators).filter(|validators| !validators.is_empty());
            let request = FetchRequest { org, target: target.clone(), validators };
            let began = Instant::now();
            let outcome = media::fetch(&self.client, request, &mut usage, &mut body, unix_seconds()).await;
            self.record_outcome(&host, &target, &outcome, began);
            // An outcome without evidence about the host ends the probe here, so that another fetch can probe.
            drop(probe.take());
            return Attempt::Ended(match outcome {
                FetchOutcome::Redirected { to, freshness } => {
                    target = *to;
                    redirect_freshness = freshness.limited_by(&redirect_freshness);
                    continue;
                }
                FetchOutcome::Ok(answer) => {
                    // The permit is held while decoding, so that the limits per org and host also bound the use
                    // of the decoders.
                    let print = self.find_or_decode(key.depth, body.finish()).await;
                    drop(permit);
                    self.cache_answer(key, &print, &answer.freshness.limited_by(&redirect_freshness));
                    Inspection::Hashed(print)
                }
                FetchOutcome::Unchanged(freshness) => {
                    let Some(cached) = cached else { return Attempt::Ended(Inspection::failed("http_304")) };
                    let validators = match freshness.validators.is_empty() {
                        true => cached.validators,
                        false => freshness.validators.clone(),
                    };
                    // A 304 may omit the freshness; the one of the cached answer then still applies.
                    let fresh_for = freshness.fresh_for.or(cached.fresh_for);
                    let freshness = Freshness { validators, fresh_for, ..freshness };
                    self.cache_answer(key, &cached.print, &freshness);
                    Inspection::Hashed(cached.print)
                }
                FetchOutcome::TooLarge => Inspection::TooLarge,
                FetchOutcome::BlockedAddress => Inspection::BlockedAddress,
                FetchOutcome::FetchFailed { reason, retry_after } => {
                    return Attempt::Failed { reason, retry_after };
                }
            });
        }
    }

    /// Reports an outcome to breaker, scheduler, metrics and log.
    fn record_outcome(&self, host: &OrgHost, target: &Target, outcome: &FetchOutcome, began: Instant) {
        let reason = match outcome {
            FetchOutcome::FetchFailed { reason, .. } => Some(reason),
            _ => None,
        };
        let (rests, open) = {
            let mut breakers = self.breakers.lock();
            let rests = match reason {
                Some(reason) if reason.is_host_failure() => breakers.record_failure(host, Instant::now()),
                // Our own memory was short, which is no evidence about the host.
                Some(FetchError::NoRoom) => false,
                _ => {
                    breakers.record_success(host);
                    false
                }
            };
            (rests, breakers.open_count())
        };
        match outcome {
            FetchOutcome::Ok(_) | FetchOutcome::Unchanged(_) | FetchOutcome::Redirected { .. } => {
                self.scheduler.set_known(host, true);
            }
            // One failing URL is no evidence about the host's other URLs.
            _ if rests => self.scheduler.set_known(host, false),
            _ => {}
        }
        metrics::media_hosts_resting(open);
        let tag = reason.map_or("", FetchError::tag);
        metrics::media_request_ended(outcome.tag(), tag, began.elapsed().as_secs_f64());
        match outcome {
            FetchOutcome::Ok(answer) => metrics::media_received(answer.bytes),
            FetchOutcome::Unchanged(_) => metrics::media_url_cached("unchanged"),
            _ => tracing::debug!(url = %target.for_log(), outcome = outcome.tag(), reason = tag, "no medium"),
        }
    }

    async fn find_or_decode(&self, depth: HashDepth, body: ReceivedBody) -> Arc<Fingerprint> {
        let ReceivedBody { digests, kept, reservation } = body;
        let Some(bytes) = kept else {
            return Arc::new(match depth {
                HashDepth::Exact => Fingerprint::unhashed(State::Ok, None, digests),
                HashDepth::Picture => Fingerprint::too_many_bytes(digests),
            });
        };
        if let Some(print) = self.fingerprints.find(&digests).await {
            return print;
        }
        let print = Arc::new(self.decode(ReservedBytes { bytes, _reservation: reservation }, digests).await);
        self.fingerprints.insert(&print).await;
        print
    }

    /// Decodes and hashes the bytes. The decoders' queue is bounded by the memory that waiting bodies reserve.
    async fn decode(&self, bytes: ReservedBytes, digests: Digests) -> Fingerprint {
        let (sender, decoded) = oneshot::channel();
        let began = Instant::now();
        self.decoders.submit(bytes, digests, Waiter(sender));
        let decoded = decoded.await;
        metrics::media_decoded(began.elapsed().as_secs_f64());
        decoded.unwrap_or_else(|_| Fingerprint::unhashed(State::Undecodable, None, digests))
    }

    fn cache_answer(&self, key: &FetchKey, print: &Arc<Fingerprint>, freshness: &Freshness) {
        let fresh_for = freshness.fresh_for.map_or(self.url_ttl, |fresh| fresh.min(self.url_ttl));
        let mut urls = self.urls.lock();
        // Without freshness and validators the next use would fetch again anyway.
        if freshness.no_store || (fresh_for.is_zero() && freshness.validators.is_empty()) {
            urls.remove(key);
            return;
        }
        let cached = CachedAnswer {
            print: Arc::clone(print),
            validators: freshness.validators.clone(),
            fresh_until: Instant::now() + fresh_for,
            fresh_for: freshness.fresh_for,
        };
        urls.insert(key.clone(), cached);
    }
}

/// The only probe of a host that has rested. Dropping it ends the probe: fetches are dropped when no item awaits
/// them.
struct Probe<'a> {
    inner: &'a Inner,
    host: OrgHost,
    until: Instant,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.inner.breakers.lock().abandon_probe(&self.host, self.until, Instant::now());
        self.inner.probes.send_replace(());
    }
}

/// Bytes with their memory reservation. Both live until decoding ends, even if the fetch is dropped.
struct ReservedBytes {
    bytes: Vec<u8>,
    _reservation: Option<Reservation>,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Receiver of a decoding result. Decoders skip work for a dropped receiver.
struct Waiter(oneshot::Sender<Fingerprint>);

impl FingerprintReceiver for Waiter {
    fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    fn receive(self, print: Fingerprint) {
        drop(self.0.send(print));
    }
}

impl Inspection {
    fn record_metric(self) -> Self {
        metrics::media_inspection_ended(self.tag());
        self
    }

    fn failed(reason: &'static str) -> Self {
        Self::FetchFailed(Cow::Borrowed(reason))
    }

    fn unavailable() -> Self {
        Self::failed("host_unavailable")
    }

    pub(super) fn deadline_exceeded() -> Self {
        Self::failed("deadline")
    }

    pub(super) fn too_many() -> Self {
        Self::failed("too_many")
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
