//! Works stored requests off: asks the platform, appends what comes back to the topic `items`, and stores the outcome.
//!
//! Every attempt may be repeated after a crash. The ids of the submissions are derived from the request and the item, so
//! that the first of several answers stands.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_catalog::{Compiled, OrgPermits, Secrets};
use tidegate_egress::{
    Client,
    partial_items::{self, Answer, Entry, PartialItemsError, PartialItemsRequest},
    settings::{
        PartialItemsSettings,
        partial_items::{Endpoint, EndpointError},
    },
    target::Target,
};
use tidegate_schemas::{
    ids::{ItemId, ItemKey, Kind, Millis, OrgId, SubmissionId, TypeId, derive},
    item_types::Mode,
    records::{self, ItemEntry, Record as _, Source, Variant},
    validation_error::Pointer,
    wire::Limits,
};
use tidegate_store::{
    WriteTime,
    tables::review::partial_requests::{PartialRequest, PartialState, PartialTrigger},
};
use tidegate_stream::{Record, Topic};
use uuid::Uuid;

use super::related;
use crate::{
    Deps, Error,
    items::context,
    media::host_breaker::{Admission, BreakerSettings, HostBreakers, OrgHost},
    metrics,
    single_flight::SingleFlight,
};

/// Hosts whose failures are remembered: each org has one.
const FAILING_HOSTS: usize = 10_000;

/// Pause before a request is tried again that failed because of our own log or store.
const OUTAGE_PAUSE: Duration = Duration::from_secs(2);

/// An item that came, as its request lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    pub type_id: TypeId,
    pub id: ItemId,
    pub submission_id: SubmissionId,
    pub type_schema_variant: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// An entry that does not fit its type, as its request keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invalid {
    pub type_id: TypeId,
    pub id: ItemId,
    pub faults: Vec<String>,
    /// Absent if it is too long to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Result of all answers to one request.
#[derive(Clone, Debug, Default)]
struct Outcome {
    found: Vec<Found>,
    missing: Vec<ItemKey>,
    dropped: usize,
    invalid: Vec<Invalid>,
    status: Option<u16>,
    took: Duration,
}

impl Outcome {
    /// Bytes of the data that is kept of entries that do not fit their types.
    fn kept_bytes(&self) -> usize {
        self.invalid.iter().filter_map(|entry| entry.data.as_ref()).map(|data| data.get().len()).sum()
    }
}

/// Why a request brought nothing.
#[derive(Clone, Debug)]
enum Failure {
    Platform(PartialItemsError),
    /// The endpoint rests after failures, at most until then.
    Resting(Instant),
    /// The request cannot be sent; the reason is in our configuration.
    NotSent {
        tag: &'static str,
        detail: String,
    },
    /// The log, the store or the configuration cannot be reached.
    Outage {
        tag: &'static str,
        detail: String,
    },
}

/// One attempt at a request: what came, until the call that failed if one did.
struct Attempt {
    outcome: Outcome,
    failure: Option<Failure>,
}

/// Asks platforms. Cheap to clone; clones share permits, breakers and requests under way.
#[derive(Clone)]
pub struct Fetcher(Arc<Inner>);

struct Inner {
    deps: Deps,
    client: Client,
    secrets: Secrets,
    endpoints: BTreeMap<OrgId, Endpoint>,
    limits: Limits,
    permits: OrgPermits,
    breakers: Mutex<HostBreakers>,
    under_way: SingleFlight<(OrgId, Vec<ItemKey>), Arc<Attempt>>,
}

/// Right to work one request of an org off.
pub struct Permit(
    #[expect(dead_code, reason = "held until it is dropped")] tokio::sync::OwnedSemaphorePermit,
);

impl Fetcher {
    /// `variable` knows the variables that endpoints refer to: those of the environment.
    pub fn new(
        deps: Deps,
        client: Client,
        secrets: Secrets,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, EndpointError> {
        let endpoints = deps.partial_items.resolve(variable)?;
        let settings = &client.settings().partial_items;
        let breakers = HostBreakers::new(BreakerSettings {
            failures: settings.failures,
            rest: Duration::from_millis(settings.rest_ms),
            longest_rest: Duration::from_millis(settings.longest_rest_ms),
            probe: Duration::from_millis(settings.total_ms),
            // Requests are due again after each rest, however many there were.
            rests: u32::MAX,
            hosts: FAILING_HOSTS,
        });
        let permits = OrgPermits::new(settings.requests_per_org);
        Ok(Self(Arc::new(Inner {
            deps,
            client,
            secrets,
            endpoints,
            limits: Limits::default(),
            permits,
            breakers: Mutex::new(breakers),
            under_way: SingleFlight::default(),
        })))
    }

    pub fn deps(&self) -> &Deps {
        &self.0.deps
    }

    /// Returns a permit of the org if one is free. The requests of one org wait for its own permits only.
    pub fn permit(&self, org: &OrgId) -> Option<Permit> {
        self.0.permits.try_acquire(org).map(Permit)
    }

    /// Makes one attempt at a pending request and stores what came of it.
    pub async fn work_off(&self, row: PartialRequest, _permit: Permit) -> Result<(), Error> {
        let mut asked: Vec<ItemKey> =
            serde_json::from_str(&row.asked).map_err(Error::corrupt("partial request"))?;
        asked.sort_unstable();
        let key = (row.org.clone(), asked.clone());
        let (fetcher, org, id) = (self.clone(), row.org.clone(), row.request_id);
        let (flight, is_joined) = self
            .0
            .under_way
            .join(&key, move || async move { Arc::new(fetcher.attempt(&org, id, asked).await) });
        if is_joined {
            metrics::partial_items_joined();
        }
        let attempt = flight.await;
        let row = self.settled(row, &attempt)?;
        let written = WriteTime::after(Some(WriteTime(row.written)), Millis::now());
        let row = PartialRequest { written: written.0, ..row };
        Ok(self.0.deps.store.put(written, &[row]).await?)
    }

    async fn attempt(&self, org: &OrgId, id: Uuid, asked: Vec<ItemKey>) -> Attempt {
        let mut outcome = Outcome::default();
        let failure = self.ask(org, id, asked, &mut outcome).await.err();
        Attempt { outcome, failure }
    }

    /// Asks for all items, in as many calls as they need, and appends what came.
    async fn ask(
        &self,
        org: &OrgId,
        id: Uuid,
        asked: Vec<ItemKey>,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let Some(endpoint) = self.0.endpoints.get(org) else {
            return Err(Failure::NotSent {
                tag: "no_endpoint",
                detail: format!("no endpoint is configured: set partial_items.{org}.url"),
            });
        };
        let not_sent = |error: tidegate_egress::target::UrlError| Failure::NotSent {
            tag: error.tag(),
            detail: error.to_string(),
        };
        let target = Target::parse(&endpoint.url).map_err(not_sent)?;
        let host = OrgHost { org: org.clone(), host: Arc::from(target.host()) };
        let secrets = self.secret(org).await?;
        for (nth, items) in asked.chunks(self.settings().items).enumerate() {
            self.admit(&host)?;
            let request = PartialItemsRequest {
                endpoint: endpoint.clone(),
                id: if nth == 0 { id.to_string() } else { format!("{id}-{nth}") },
                items: items.to_vec(),
                secrets: vec![secrets.clone()],
                limits: self.0.limits.clone(),
            };
            let now = u64::try_from(Millis::now().0 / 1_000).unwrap_or_default();
            let answer = partial_items::fetch(&self.0.client, &request, now).await;
            let answer = answer
                .map_err(|error| Failure::NotSent { tag: error.tag(), detail: error.to_string() })?
                .map_err(|error| self.failed(org, &host, error))?;
            self.0.breakers.lock().record_success(&host);
            metrics::partial_items_asked("ok", answer.took.as_secs_f64());
            self.take(org, id, answer, outcome)
                .await
                .map_err(|error| Failure::Outage { tag: error.tag(), detail: error.to_string() })?;
        }
        Ok(())
    }

    fn admit(&self, host: &OrgHost) -> Result<(), Failure> {
        let now = tokio::time::Instant::now();
        match self.0.breakers.lock().admit(host, now) {
            Admission::Allowed | Admission::Probe(_) => Ok(()),
            Admission::Resting(until) | Admission::Probing(until) => Err(Failure::Resting(until.into_std())),
            Admission::GivenUp => Err(Failure::Resting(now.into_std() + OUTAGE_PAUSE)),
        }
    }

    fn failed(&self, org: &OrgId, host: &OrgHost, error: PartialItemsError) -> Failure {
        let now = tokio::time::Instant::now();
        let mut breakers = self.0.breakers.lock();
        // An endpoint that answers, however badly, need not rest.
        let rests = match error.error.is_transient() {
            true => breakers.record_failure(host, now),
            false => {
                breakers.record_success(host);
                false
            }
        };
        drop(breakers);
        metrics::partial_items_asked(error.error.tag(), error.took.as_secs_f64());
        // The prefix of an unreadable answer is a part of the error, as the interface asks.
        tracing::warn!(%org, status = error.status, took_ms = millis(error.took), rests, "{error}");
        Failure::Platform(error)
    }

    /// Returns the secret to sign with. The first use makes it.
    async fn secret(&self, org: &OrgId) -> Result<tidegate_egress::Secret, Failure> {
        let found = self.0.secrets.for_partial_items(org).await;
        found.map_err(|error| match error.is_outage() {
            true => Failure::Outage { tag: error.tag(), detail: error.to_string() },
            false => Failure::NotSent { tag: error.tag(), detail: error.to_string() },
        })
    }

    fn settings(&self) -> &PartialItemsSettings {
        &self.0.client.settings().partial_items
    }

    /// Appends the entries that fit their types, and notes the others.
    async fn take(&self, org: &OrgId, id: Uuid, answer: Answer, outcome: &mut Outcome) -> Result<(), Error> {
        let config = related::config(&self.0.deps, org).await?;
        outcome.status = Some(answer.status);
        outcome.took += answer.took;
        outcome.dropped += answer.dropped;
        let (mut found, mut taken) = (Vec::new(), Vec::new());
        let (mut kept, invalid_before) = (outcome.kept_bytes(), outcome.invalid.len());
        for entry in answer.entries {
            let faults = faults_of(&config, &entry);
            let key = entry.item.key();
            if faults.is_empty() {
                let submission_id = submission_id(org, id, &key);
                found.push(Found {
                    type_id: key.type_id,
                    id: key.id,
                    submission_id,
                    type_schema_variant: entry.item.variant.as_str().to_owned(),
                    faults: entry.faults,
                });
                taken.push(entry_of(entry.item, submission_id));
            } else {
                kept += entry.item.data.len();
                let fits = kept <= self.settings().kept_invalid_bytes;
                outcome.invalid.push(Invalid {
                    type_id: key.type_id,
                    id: key.id,
                    faults: entry.faults.into_iter().chain(faults).collect(),
                    data: if fits { Some(context::raw(&entry.item.data)?) } else { None },
                });
            }
        }
        metrics::partial_items_entries("found", taken.len());
        metrics::partial_items_entries("missing", answer.missing.len());
        metrics::partial_items_entries("dropped", answer.dropped);
        metrics::partial_items_entries("invalid", outcome.invalid.len() - invalid_before);
        outcome.missing.extend(answer.missing);
        self.append(&config, id, taken).await?;
        outcome.found.extend(found);
        Ok(())
    }

    async fn append(&self, config: &Compiled, id: Uuid, items: Vec<ItemEntry>) -> Result<(), Error> {
        let head = records::Items {
            org: config.org().clone(),
            config_version: config.version(),
            source: Source::PartialItems,
            received_at: Millis::now(),
            request_id: id.to_string(),
            report_id: None,
            items: Vec::new(),
        };
        let log = &self.0.deps.log;
        let records: Vec<_> = items
            .into_iter()
            .map(|item| {
                let key = item.key().log_key(&head.org);
                (key, head.with(vec![item]).to_datum())
            })
            .collect();
        let appended: Vec<_> = records
            .iter()
            .map(|(key, datum)| (log.partition(Topic::Items, key), Record::new(key, datum.clone())))
            .collect();
        if !appended.is_empty() {
            log.append(&appended).await?;
        }
        tidegate_stream::failpoint!("after_partial_append");
        Ok(())
    }

    /// Returns the row after the attempt.
    fn settled(&self, row: PartialRequest, attempt: &Attempt) -> Result<PartialRequest, Error> {
        let now = Millis::now();
        let Attempt { outcome, failure } = attempt;
        let row = with_outcome(row, outcome)?;
        let Some(failure) = failure else {
            return Ok(PartialRequest {
                state: PartialState::Done,
                attempts: row.attempts + 1,
                next_at: None,
                settled_at: Some(now),
                took_ms: millis(outcome.took),
                http_status: outcome.status.map(i64::from),
                error: None,
                error_detail: None,
                ..row
            });
        };
        let settings = self.settings();
        let give_up_at = row.requested_at.plus(Duration::from_millis(settings.give_up_after_ms));
        // Somebody waits for what a claim or a refresh brings, and asks again if it brings nothing.
        let is_patient = matches!(row.trigger, PartialTrigger::Report | PartialTrigger::Appeal);
        let next_at = match failure {
            Failure::Outage { .. } => Some(now.plus(OUTAGE_PAUSE)),
            Failure::Resting(until) if is_patient => {
                Some(now.plus(until.saturating_duration_since(Instant::now()).max(OUTAGE_PAUSE)))
            }
            Failure::Platform(error) if is_patient && error.error.is_transient() => {
                let doubled = settings.rest_ms.saturating_mul(1 << row.attempts.clamp(0, 16));
                Some(now.plus(Duration::from_millis(doubled.min(settings.longest_rest_ms))))
            }
            _ => None,
        };
        let next_at = next_at.filter(|next| *next < give_up_at);
        // A request that was not made is no attempt.
        let is_attempt = matches!(failure, Failure::Platform(_));
        let (status, took, name, detail) = failure.shown();
        Ok(PartialRequest {
            state: if next_at.is_some() { PartialState::Pending } else { PartialState::Failed },
            attempts: row.attempts + i64::from(is_attempt),
            next_at,
            settled_at: next_at.is_none().then_some(now),
            took_ms: millis(took),
            http_status: status.map(i64::from),
            error: Some(name.to_owned()),
            error_detail: Some(detail),
            ..row
        })
    }
}

impl Failure {
    /// Returns status, duration, name and explanation.
    fn shown(&self) -> (Option<u16>, Duration, &'static str, String) {
        match self {
            Self::Platform(error) => (error.status, error.took, error.error.name(), error.error.to_string()),
            Self::Resting(_) => (
                None,
                Duration::ZERO,
                "PartialItemsEndpointUnreachableError",
                "the endpoint rests after failures in a row (egress.partial_items.failures)".to_owned(),
            ),
            Self::NotSent { tag, detail } | Self::Outage { tag, detail } => {
                (None, Duration::ZERO, tag, detail.clone())
            }
        }
    }
}

/// Lists what the attempt brought, and what earlier attempts did before a later call of theirs failed: it is stored.
fn with_outcome(row: PartialRequest, outcome: &Outcome) -> Result<PartialRequest, Error> {
    // No call was answered.
    if outcome.status.is_none() {
        return Ok(row);
    }
    let earlier: Vec<Found> = serde_json::from_str(&row.found).map_err(Error::corrupt("partial request"))?;
    let again: HashSet<_> = outcome.found.iter().map(|found| (&found.type_id, &found.id)).collect();
    let earlier = earlier.into_iter().filter(|found| !again.contains(&(&found.type_id, &found.id)));
    let found: Vec<_> = outcome.found.iter().cloned().chain(earlier).collect();
    Ok(PartialRequest {
        found: context::text(&found)?,
        missing: context::text(&outcome.missing)?,
        dropped: i64::try_from(outcome.dropped).unwrap_or(i64::MAX),
        invalid: context::text(&outcome.invalid)?,
        ..row
    })
}

/// Returns why an entry does not fit its type; nothing if it does.
fn faults_of(config: &Compiled, entry: &Entry) -> Vec<String> {
    let item = &entry.item;
    if !entry.is_usable {
        return vec!["The data is too long to be stored.".to_owned()];
    }
    let Some(item_type) = config.item_type_at(&item.type_id, item.type_version.as_deref()) else {
        let version = item.type_version.as_deref().unwrap_or("any");
        return vec![format!("There is no item type `{}` of version `{version}`.", item.type_id)];
    };
    let mode = if item.variant == Variant::Partial { Mode::Partial } else { Mode::Strict };
    match item_type.check(&item.data, mode, &Pointer::Root.key("data")) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().take(5).map(ToString::to_string).collect(),
    }
}

fn submission_id(org: &OrgId, request: Uuid, key: &ItemKey) -> SubmissionId {
    let (type_id, id) = (key.type_id.as_str().as_bytes(), key.id.as_str().as_bytes());
    derive(Kind::Submission, &[b"partial", org.as_str().as_bytes(), request.as_bytes(), type_id, id])
}

fn entry_of(item: tidegate_schemas::wire::items::SubmittedItem, submission_id: SubmissionId) -> ItemEntry {
    ItemEntry {
        submission_id,
        type_id: item.type_id,
        id: item.id,
        type_version: item.type_version,
        variant: item.variant,
        data: item.data,
        origin: None,
        // A second attempt appends the same submission again: the first one stands.
        keyed: true,
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
