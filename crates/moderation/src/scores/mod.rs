//! Scores of models for items: asks each model within limits, joins equal questions, and keeps the answers.
//!
//! The item pipeline decides when to ask, and how long an item waits.

mod inputs;
mod settings;

use std::{collections::HashMap, fmt::Write as _, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_catalog::{ScoreSignal, Secrets};
use tidegate_egress::{
    Client, Failure,
    score::{self, ScoreFailure, ScoreRequest},
};
use tidegate_rules::Scores;
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_store::{Store, WriteTime, tables::items::scores::SignalScore};
use tokio::time::Instant;

pub(crate) use self::inputs::inputs;
pub use self::settings::{Settings, SettingsError};
use crate::{
    Error,
    media::{
        fetch::draw,
        host_breaker::{Admission, HostBreakers, OrgHost},
        retry::Retries,
    },
    metrics,
    org_permits::OrgPermits,
    single_flight::SingleFlight,
};

/// Scores, or the reason for which there are none, as items show it.
pub type Answer = Result<Arc<Scores>, Arc<str>>;

/// Asks models. One per process, so that its limits hold for all of it; cheap to clone.
#[derive(Clone)]
pub struct Scorer(Arc<Inner>);

struct Inner {
    client: Client,
    store: Store,
    secrets: Secrets,
    settings: Settings,
    permits: OrgPermits,
    breakers: Mutex<HostBreakers>,
    /// Questions of items that wait: dropped when the last of them goes.
    flights: SingleFlight<(OrgId, String), Answer>,
    /// Calls under way, which end in any case.
    calls: SingleFlight<(OrgId, String), Answer>,
}

/// Numbers in the form of the store.
#[derive(Serialize, Deserialize)]
struct StoredScores {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<f64>,
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    labels: HashMap<String, f64>,
}

impl Scorer {
    pub fn new(client: Client, store: Store, secrets: Secrets, settings: &Settings) -> Self {
        Self(Arc::new(Inner {
            client,
            store,
            secrets,
            permits: OrgPermits::new(settings.calls_per_org),
            breakers: Mutex::new(HostBreakers::new(settings.breakers())),
            flights: SingleFlight::default(),
            calls: SingleFlight::default(),
            settings: settings.clone(),
        }))
    }

    /// Returns the scores of an item's inputs, the highest of each label. One input without an answer leaves the item
    /// without one: what the model did not see may be what it would have found.
    pub async fn score(&self, org: &OrgId, signal: &Arc<ScoreSignal>, inputs: &[Value]) -> Answer {
        if inputs.len() > self.0.settings.inputs_per_item {
            return Err("too_many_inputs".into());
        }
        let answers = join_all(inputs.iter().map(|input| self.one(org, signal, signal.body(input)))).await;
        answers.into_iter().collect::<Result<Vec<_>, _>>().map(highest)
    }

    async fn one(&self, org: &OrgId, signal: &Arc<ScoreSignal>, body: Bytes) -> Answer {
        if body.len() > self.0.settings.request_bytes {
            return Err("input_too_long".into());
        }
        let digest = signal.digest(&body);
        let (flight, is_joined) =
            self.0.flights.join(&(org.clone(), format!("{}/{digest}", signal.key)), || {
                let (scorer, org, signal) = (self.clone(), org.clone(), Arc::clone(signal));
                async move { scorer.find_or_ask(org, signal, digest, body).await }
            });
        if is_joined {
            metrics::score_lookup("joined");
        }
        flight.await
    }

    async fn find_or_ask(&self, org: OrgId, signal: Arc<ScoreSignal>, digest: String, body: Bytes) -> Answer {
        if let Some(scores) = self.kept(&org, &signal, &digest).await {
            metrics::score_lookup("store");
            return Ok(scores);
        }
        let key = (org.clone(), format!("{}/{digest}", signal.key));
        // Of an item that has moved on to the slow topic.
        if let Some(call) = self.0.calls.find(&key) {
            metrics::score_lookup("joined");
            return call.await;
        }
        let permit = self.0.permits.acquire(&org).await;
        // An equal call may have ended while this one waited.
        if let Some(scores) = self.kept(&org, &signal, &digest).await {
            metrics::score_lookup("store");
            return Ok(scores);
        }
        metrics::score_lookup("miss");
        let place = OrgHost { org: org.clone(), host: signal.key.as_str().into() };
        let admitted = self.0.breakers.lock().admit(&place, Instant::now());
        if !matches!(admitted, Admission::Allowed | Admission::Probe(_)) {
            metrics::score_call_ended("resting", 0.0);
            return Err("resting".into());
        }
        let scorer = self.clone();
        let (call, _) = self.0.calls.join(&key, || async move {
            let _permit = permit;
            scorer.ask(&org, &signal, &place, digest, body).await
        });
        // A call that is paid for ends and is kept although its item does not wait any more. There are no more of them
        // than permits, and each has its timeout.
        tokio::spawn(call.clone());
        call.await
    }

    /// Returns scores that are kept. An unreadable store counts as a miss: it costs a call, not the item.
    async fn kept(&self, org: &OrgId, signal: &ScoreSignal, digest: &str) -> Option<Arc<Scores>> {
        kept(&self.0.store, org, signal, digest).await.ok().flatten().map(Arc::new)
    }

    async fn ask(
        &self,
        org: &OrgId,
        signal: &Arc<ScoreSignal>,
        place: &OrgHost,
        digest: String,
        body: Bytes,
    ) -> Answer {
        let deadline = Instant::now() + signal.timeout;
        let mut attempt = 1;
        let (answer, outcome, is_resting) = loop {
            let began = Instant::now();
            let answer = self.call(org, signal, body.clone(), deadline - began).await;
            let outcome = answer.as_ref().map_or_else(CallError::tag, |_| "answered".into());
            metrics::score_call_ended(class(&outcome), began.elapsed().as_secs_f64());
            let mut is_resting = false;
            if answer.as_ref().is_err_and(CallError::is_the_models) {
                is_resting = self.0.breakers.lock().record_failure(place, Instant::now());
            } else {
                // Who sends odd items must not take the model from others: it answered, so it is there.
                self.0.breakers.lock().record_success(place);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let retries = Retries { attempts: self.0.settings.attempts, step: RETRY_STEP, longest: left };
            let retry_after = answer.as_ref().err().and_then(CallError::retry_after);
            let pause = retry_after.and_then(|asked| retries.pause(attempt, asked, draw()));
            // A pause that leaves no time for a call would only delay the error.
            match pause.filter(|pause| *pause < left && !is_resting) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break (answer, outcome, is_resting),
            }
            attempt += 1;
        };
        match answer {
            Ok(scores) => {
                let scores = Arc::new(scores);
                if signal.cache.is_some() {
                    self.keep(org, signal, digest, &scores).await;
                }
                Ok(scores)
            }
            Err(_) => {
                tracing::debug!(%org, signal = %signal.key, tag = &*outcome, is_resting, "a model gave no score");
                Err(outcome)
            }
        }
    }

    async fn call(
        &self,
        org: &OrgId,
        signal: &ScoreSignal,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Scores, CallError> {
        let open = |header: &str, value: &str| self.0.secrets.open_header(org, &signal.key, header, value);
        let headers = signal
            .resolve_headers(|name| std::env::var(name).ok(), open)
            .map_err(|error| CallError::NotSent(error.tag()))?;
        let request = ScoreRequest { url: signal.url.clone(), headers, body, timeout };
        let now = u64::try_from(Millis::now().0 / 1_000).unwrap_or_default();
        let answered = score::ask(&self.0.client, request, now)
            .await
            .map_err(|error| CallError::NotSent(error.tag()))?;
        let body = answered.map_err(CallError::Failed)?;
        signal.read(&body).map_err(|error| CallError::Answer(error.tag()))
    }

    async fn keep(&self, org: &OrgId, signal: &ScoreSignal, digest: String, scores: &Scores) {
        let stored = StoredScores { whole: scores.whole, labels: scores.labels.clone() };
        let Ok(scores) = serde_json::to_string(&stored) else { return };
        let now = Millis::now();
        let row = SignalScore { org: org.clone(), signal: signal.key.clone(), digest, scores, asked_at: now };
        if let Err(error) = self.0.store.put(WriteTime::of(now, 0), &[row]).await {
            tracing::debug!(tag = error.tag(), "a score cannot be stored: {error}");
        }
    }
}

/// First step of the backoff between the attempts of a call; each further one is twice as long.
const RETRY_STEP: Duration = Duration::from_millis(250);

/// Why a call brought no scores.
enum CallError {
    /// The configuration does not allow it: nothing was sent.
    NotSent(&'static str),
    Failed(ScoreFailure),
    /// An answer without the numbers.
    Answer(&'static str),
}

impl CallError {
    /// Returns the reason as items show it.
    fn tag(&self) -> Arc<str> {
        match self {
            Self::NotSent(tag) | Self::Answer(tag) => (*tag).into(),
            Self::Failed(ScoreFailure { failure: Failure::HttpStatus { status }, .. }) => {
                let mut tag = "status_".to_owned();
                let _infallible = write!(tag, "{status}");
                tag.into()
            }
            Self::Failed(ScoreFailure {
                failure: Failure::Timeout | Failure::BodyTimeout | Failure::ConnectTimeout,
                ..
            }) => "timeout".into(),
            Self::Failed(failed) => failed.failure.org_tag().into(),
        }
    }

    /// Returns the pause that the model asks for, if the call may succeed a moment later. `None`: it is not repeated.
    fn retry_after(&self) -> Option<Option<Duration>> {
        match self {
            Self::Failed(ScoreFailure {
                failure: Failure::HttpStatus { status: 429 | 502 | 503 | 504 },
                retry_after,
            }) => Some(*retry_after),
            _ => None,
        }
    }

    /// True if the model, and not this input, is at fault. A model that refuses an input as such is not resting.
    fn is_the_models(&self) -> bool {
        match self {
            Self::NotSent(_) => false,
            Self::Failed(ScoreFailure { failure: Failure::HttpStatus { status }, .. }) => {
                !matches!(status, 400 | 413 | 415 | 422)
            }
            Self::Failed(_) | Self::Answer(_) => true,
        }
    }
}

/// A label of few values for metrics.
fn class(outcome: &str) -> &'static str {
    match outcome {
        "answered" => "answered",
        "timeout" => "timeout",
        "shape" | "no_json" => "shape",
        "too_large" => "too_large",
        "blocked_address" => "blocked_address",
        status if status.starts_with("status_4") => "status_4xx",
        status if status.starts_with("status_5") => "status_5xx",
        _ => "other",
    }
}

/// Returns the highest number of each label, and of the whole.
fn highest(answers: Vec<Arc<Scores>>) -> Arc<Scores> {
    let mut answers = answers.into_iter();
    let Some(first) = answers.next() else { return Arc::default() };
    answers.fold(first, |all, one| {
        let mut all = (*all).clone();
        all.whole = match (all.whole, one.whole) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        for (label, number) in &one.labels {
            let known = all.labels.entry(label.clone()).or_insert(*number);
            *known = known.max(*number);
        }
        Arc::new(all)
    })
}

/// Returns the scores of inputs whose answers are all still kept, without asking anybody.
pub(crate) async fn remembered(
    store: &Store,
    org: &OrgId,
    signal: &ScoreSignal,
    inputs: &[Value],
) -> Result<Option<Arc<Scores>>, Error> {
    let mut answers = Vec::with_capacity(inputs.len());
    for input in inputs {
        let digest = signal.digest(&signal.body(input));
        match kept(store, org, signal, &digest).await? {
            Some(scores) => answers.push(Arc::new(scores)),
            None => return Ok(None),
        }
    }
    Ok(Some(highest(answers)))
}

async fn kept(
    store: &Store,
    org: &OrgId,
    signal: &ScoreSignal,
    digest: &str,
) -> Result<Option<Scores>, tidegate_store::Error> {
    let Some(cache) = signal.cache else { return Ok(None) };
    let key = (org.clone(), signal.key.clone(), digest.to_owned());
    let Some(row) = store.get::<SignalScore>(&key).await? else { return Ok(None) };
    let age = Millis::now().0.saturating_sub(row.asked_at.0);
    if u128::from(age.unsigned_abs()) > cache.as_millis() {
        return Ok(None);
    }
    let stored = serde_json::from_str::<StoredScores>(&row.scores).ok();
    Ok(stored.map(|it| Scores { whole: it.whole, labels: it.labels }))
}
