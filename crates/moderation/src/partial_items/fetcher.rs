//! Executes stored requests: calls the platform, appends received items to the topic `items`, and stores the outcome.
//!
//! Every attempt can be repeated after a crash. Submission ids are derived from request and item, so the first of
//! several answers is kept.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use async_recursion::async_recursion as boxed;
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
    metrics,
    outbound::{
        host_breaker::{Admission, BreakerSettings, HostBreakers, OrgHost},
        single_flight::SingleFlight,
    },
};

/// Maximum number of remembered failing hosts, one per org.
const FAILING_HOSTS: usize = 10_000;

/// Pause before the next attempt after a failure of our own log or store.
const OUTAGE_PAUSE: Duration = Duration::from_secs(2);

/// Received item in its request's row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundItem {
    pub type_id: TypeId,
    pub id: ItemId,
    pub submission_id: SubmissionId,
    pub type_schema_variant: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// Entry that does not fit its type, in its request's row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InvalidEntry {
    pub type_id: TypeId,
    pub id: ItemId,
    pub faults: Vec<String>,
    /// Absent if the data exceeds the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Combined result of all calls of one request.
#[derive(Clone, Debug, Default)]
struct RequestOutcome {
    found: Vec<FoundItem>,
    missing: Vec<ItemKey>,
    dropped: usize,
    invalid: Vec<InvalidEntry>,
    status: Option<u16>,
    took: Duration,
}

impl RequestOutcome {
    /// Bytes of stored data of invalid entries.
    fn invalid_bytes(&self) -> usize {
        self.invalid.iter().filter_map(|entry| entry.data.as_ref()).map(|data| data.get().len()).sum()
    }
}

/// Reason why an attempt failed.
#[derive(Clone, Debug)]
enum RequestFailure {
    Platform(PartialItemsError),
    /// The endpoint rests after failures, at most until this instant.
    Resting(Instant),
    /// The request cannot be sent because of our configuration.
    NotSent {
        tag: &'static str,
        detail: String,
    },
    /// Log, store or configuration are unavailable.
    Outage {
        tag: &'static str,
        detail: String,
    },
}

/// Attempt at a request: the result up to the first failed call.
struct RequestAttempt {
    outcome: RequestOutcome,
    failure: Option<RequestFailure>,
}

/// Client for requests of items. Cheap to clone; clones share permits, breakers and running requests.
#[derive(Clone)]
pub struct PartialItemsFetcher(Arc<Inner>);

struct Inner {
    deps: Deps,
    client: Client,
    secrets: Secrets,
    endpoints: BTreeMap<OrgId, Endpoint>,
    limits: Limits,
    permits: OrgPermits,
    breakers: Mutex<HostBreakers>,
    running: SingleFlight<(OrgId, Vec<ItemKey>), Arc<RequestAttempt>>,
}

/// Right to execute one request of an org.
pub struct Permit(
    #[expect(dead_code, reason = "held until it is dropped")] tokio::sync::OwnedSemaphorePermit,
);

impl PartialItemsFetcher {
    /// `variable` returns environment variables, to which endpoints refer.
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
            // The due rows bound the attempts, so the breaker itself never gives a host up.
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
            running: SingleFlight::default(),
        })))
    }

    pub fn deps(&self) -> &Deps {
        &self.0.deps
    }

    /// Returns a permit of the org if one is free. Orgs do not compete for permits.
    pub fn permit(&self, org: &OrgId) -> Option<Permit> {
        self.0.permits.try_acquire(org).map(Permit)
    }

    /// Makes one attempt at a pending request and stores the outcome.
    #[boxed]
    pub async fn execute(&self, row: PartialRequest, _permit: Permit) -> Result<(), Error> {
        let mut requested_items: Vec<ItemKey> =
            serde_json::from_str(&row.asked).map_err(Error::corrupt("partial request"))?;
        // Sorted, so that equal requests share one call.
        requested_items.sort_unstable();
        let key = (row.org.clone(), requested_items.clone());
        let (fetcher, org, id) = (self.clone(), row.org.clone(), row.request_id);
        let (flight, is_joined) = self.0.running.join(&key, move || async move {
            Arc::new(fetcher.make_attempt(&org, id, requested_items).await)
        });
        if is_joined {
            metrics::partial_items_joined();
        }
        let attempt = flight.await;
        let row = self.row_after_attempt(row, &attempt)?;
        // Later than the previous write even if the clock was set back, so that the new state wins.
        let write_time = WriteTime::after(Some(WriteTime(row.written)), Millis::now());
        let row = PartialRequest { written: write_time.0, ..row };
        Ok(self.0.deps.store.put_rows(write_time, &[row]).await?)
    }

    async fn make_attempt(&self, org: &OrgId, id: Uuid, requested_items: Vec<ItemKey>) -> RequestAttempt {
        let mut outcome = RequestOutcome::default();
        let failure = self.request_items(org, id, requested_items, &mut outcome).await.err();
        RequestAttempt { outcome, failure }
    }

    /// Requests all items in as many calls as necessary, and appends the received ones.
    async fn request_items(
        &self,
        org: &OrgId,
        id: Uuid,
        requested_items: Vec<ItemKey>,
        outcome: &mut RequestOutcome,
    ) -> Result<(), RequestFailure> {
        let Some(endpoint) = self.0.endpoints.get(org) else {
            return Err(RequestFailure::NotSent {
                tag: "no_endpoint",
                detail: format!("no endpoint is configured: set partial_items.{org}.url"),
            });
        };
        let url_failure = |error: tidegate_egress::target::UrlError| RequestFailure::NotSent {
            tag: error.tag(),
            detail: error.to_string(),
        };
        let target = Target::parse(&endpoint.url).map_err(url_failure)?;
        let host = OrgHost { org: org.clone(), host: Arc::from(target.host()) };
        let secrets = self.load_secret(org).await?;
        for (nth, items) in requested_items.chunks(self.settings().items).enumerate() {
            self.admit(&host)?;
            let request = PartialItemsRequest {
                endpoint: endpoint.clone(),
                id: if nth == 0 { id.to_string() } else { format!("{id}-{nth}") },
                items: items.to_vec(),
                secrets: vec![secrets.clone()],
                limits: self.0.limits.clone(),
            };
            let unix_seconds = u64::try_from(Millis::now().0 / 1_000).unwrap_or_default();
            let answer = partial_items::fetch_items(&self.0.client, &request, unix_seconds).await;
            let answer = answer
                .map_err(|error| RequestFailure::NotSent { tag: error.tag(), detail: error.to_string() })?
                .map_err(|error| self.record_failure(org, &host, error))?;
            // An answer is a success of the host even if its entries turn out to be invalid.
            self.0.breakers.lock().record_success(&host);
            metrics::partial_items_asked("ok", answer.took.as_secs_f64());
            self.append_answer(org, id, answer, outcome)
                .await
                .map_err(|error| RequestFailure::Outage { tag: error.tag(), detail: error.to_string() })?;
        }
        Ok(())
    }

    fn admit(&self, host: &OrgHost) -> Result<(), RequestFailure> {
        let now = tokio::time::Instant::now();
        match self.0.breakers.lock().admit(host, now) {
            Admission::Allowed | Admission::Probe(_) => Ok(()),
            Admission::Resting(until) | Admission::Probing(until) => {
                Err(RequestFailure::Resting(until.into_std()))
            }
            // Not returned under these settings; treated as a short rest.
            Admission::GivenUp => Err(RequestFailure::Resting(now.into_std() + OUTAGE_PAUSE)),
        }
    }

    fn record_failure(&self, org: &OrgId, host: &OrgHost, error: PartialItemsError) -> RequestFailure {
        let now = tokio::time::Instant::now();
        let mut breakers = self.0.breakers.lock();
        // Only transient failures make an endpoint rest. An endpoint that answers badly is reachable.
        let is_resting = match error.error.is_transient() {
            true => breakers.record_failure(host, now),
            false => {
                breakers.record_success(host);
                false
            }
        };
        drop(breakers);
        metrics::partial_items_asked(error.error.tag(), error.took.as_secs_f64());
        // The interface requires the start of an unreadable answer in the log; the error contains it.
        tracing::warn!(%org, status = error.status, took_ms = millis(error.took), rests = is_resting, "{error}");
        RequestFailure::Platform(error)
    }

    /// Loads the signing secret of the org. The first use creates it.
    async fn load_secret(&self, org: &OrgId) -> Result<tidegate_egress::Secret, RequestFailure> {
        let secret = self.0.secrets.for_partial_items(org).await;
        secret.map_err(|error| match error.is_outage() {
            true => RequestFailure::Outage { tag: error.tag(), detail: error.to_string() },
            false => RequestFailure::NotSent { tag: error.tag(), detail: error.to_string() },
        })
    }

    fn settings(&self) -> &PartialItemsSettings {
        &self.0.client.settings().partial_items
    }

    /// Appends valid entries and records the invalid ones.
    async fn append_answer(
        &self,
        org: &OrgId,
        id: Uuid,
        answer: Answer,
        outcome: &mut RequestOutcome,
    ) -> Result<(), Error> {
        let config = related::load_config(&self.0.deps, org).await?;
        outcome.status = Some(answer.status);
        outcome.took += answer.took;
        outcome.dropped += answer.dropped;
        let (mut found_items, mut item_entries) = (Vec::new(), Vec::new());
        let (mut invalid_bytes, invalid_before) = (outcome.invalid_bytes(), outcome.invalid.len());
        for entry in answer.entries {
            let faults = find_faults(&config, &entry);
            let key = entry.item.key();
            if faults.is_empty() {
                let submission_id = submission_id(org, id, &key);
                found_items.push(FoundItem {
                    type_id: key.type_id,
                    id: key.id,
                    submission_id,
                    type_schema_variant: entry.item.variant.as_str().to_owned(),
                    faults: entry.faults,
                });
                item_entries.push(record_entry(entry.item, submission_id));
            } else {
                invalid_bytes += entry.item.data.len();
                let has_room = invalid_bytes <= self.settings().kept_invalid_bytes;
                outcome.invalid.push(InvalidEntry {
                    type_id: key.type_id,
                    id: key.id,
                    faults: entry.faults.into_iter().chain(faults).collect(),
                    data: if has_room { Some(context::raw(&entry.item.data)?) } else { None },
                });
            }
        }
        metrics::partial_items_entries("found", item_entries.len());
        metrics::partial_items_entries("missing", answer.missing.len());
        metrics::partial_items_entries("dropped", answer.dropped);
        metrics::partial_items_entries("invalid", outcome.invalid.len() - invalid_before);
        outcome.missing.extend(answer.missing);
        self.append_items(&config, id, item_entries).await?;
        // Only after the append, so that the request never lists items missing in the log.
        outcome.found.extend(found_items);
        Ok(())
    }

    async fn append_items(&self, config: &Compiled, id: Uuid, items: Vec<ItemEntry>) -> Result<(), Error> {
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
        let log_records: Vec<_> = records
            .iter()
            .map(|(key, datum)| (log.partition(Topic::Items, key), Record::new(key, datum.clone())))
            .collect();
        if !log_records.is_empty() {
            log.append(&log_records).await?;
        }
        tidegate_stream::failpoint!("after_partial_append");
        Ok(())
    }

    /// Builds the row after the attempt.
    fn row_after_attempt(
        &self,
        row: PartialRequest,
        attempt: &RequestAttempt,
    ) -> Result<PartialRequest, Error> {
        let now = Millis::now();
        let RequestAttempt { outcome, failure } = attempt;
        let row = merge_outcome(row, outcome)?;
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
        // A reviewer waits for a claim or a refresh and can ask again, so these are not retried.
        let is_patient = matches!(row.trigger, PartialTrigger::Report | PartialTrigger::Appeal);
        let next_at = match failure {
            RequestFailure::Outage { .. } => Some(now.plus(OUTAGE_PAUSE)),
            // At least the outage pause, so that an ended rest does not make the due row spin.
            RequestFailure::Resting(until) if is_patient => {
                Some(now.plus(until.saturating_duration_since(Instant::now()).max(OUTAGE_PAUSE)))
            }
            RequestFailure::Platform(error) if is_patient && error.error.is_transient() => {
                let doubled = settings.rest_ms.saturating_mul(1 << row.attempts.clamp(0, 16));
                Some(now.plus(Duration::from_millis(doubled.min(settings.longest_rest_ms))))
            }
            _ => None,
        };
        // Requests end at a fixed time, which bounds the backlog of a dead endpoint.
        let next_at = next_at.filter(|next| *next < give_up_at);
        // A request that was not sent does not count as an attempt.
        let is_attempt = matches!(failure, RequestFailure::Platform(_));
        let (status, took, name, detail) = failure.row_values();
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

impl RequestFailure {
    /// Returns status, duration, error name and detail for the row.
    fn row_values(&self) -> (Option<u16>, Duration, &'static str, String) {
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

/// Merges the outcome of the attempt with the items of earlier attempts, which had failed at a later call.
fn merge_outcome(row: PartialRequest, outcome: &RequestOutcome) -> Result<PartialRequest, Error> {
    // No call was answered, so the row keeps its earlier outcome.
    if outcome.status.is_none() {
        return Ok(row);
    }
    let earlier_items: Vec<FoundItem> =
        serde_json::from_str(&row.found).map_err(Error::corrupt("partial request"))?;
    let found_again: HashSet<_> = outcome.found.iter().map(|found| (&found.type_id, &found.id)).collect();
    let kept_items =
        earlier_items.into_iter().filter(|found| !found_again.contains(&(&found.type_id, &found.id)));
    let all_items: Vec<_> = outcome.found.iter().cloned().chain(kept_items).collect();
    Ok(PartialRequest {
        found: context::to_json(&all_items)?,
        missing: context::to_json(&outcome.missing)?,
        dropped: i64::try_from(outcome.dropped).unwrap_or(i64::MAX),
        invalid: context::to_json(&outcome.invalid)?,
        ..row
    })
}

/// Lists the reasons why an entry does not fit its type. Empty for a valid entry.
fn find_faults(config: &Compiled, entry: &Entry) -> Vec<String> {
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

fn record_entry(
    item: tidegate_schemas::wire::items::SubmittedItem,
    submission_id: SubmissionId,
) -> ItemEntry {
    ItemEntry {
        submission_id,
        type_id: item.type_id,
        id: item.id,
        type_version: item.type_version,
        variant: item.variant,
        data: item.data,
        origin: None,
        // A repeated attempt appends the same submission; with `keyed` the first one is kept.
        keyed: true,
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
