//! Scores of models for items: calls each model within limits, joins equal questions, and stores the answers.
//!
//! The item pipeline decides when to ask and how long an item waits.

mod batches;
mod inputs;
mod settings;

use std::{
    collections::HashMap,
    fmt::Write as _,
    hash::{Hash, Hasher},
    iter::{once, repeat_n},
    ops::Range,
    slice,
    sync::Arc,
    time::Duration,
};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{join_all, ready},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_catalog::{OrgPermits, ScoreSignal, Secrets};
use tidegate_egress::{
    Client, Failure,
    score::{self, ScoreFailure, ScoreRequest},
};
use tidegate_rules::Scores;
use tidegate_schemas::ids::{ItemKey, Millis, OrgId};
use tidegate_store::{Store, WriteTime, tables::items::scores::SignalScore};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use self::batches::{BatchLimits, Batches, WaitingInput};
pub(crate) use self::inputs::model_inputs;
pub use self::settings::{Settings, SettingsError};
use crate::{
    Error,
    child_safety::Clearance,
    metrics,
    outbound::{
        host_breaker::{Admission, HostBreakers, OrgHost},
        retry::{Retries, random_fraction},
        single_flight::{Flight, SingleFlight},
    },
};

/// Scores, or the reason for their absence in the form of the item's row.
pub type ScoreAnswer = Result<Arc<Scores>, Arc<str>>;

/// Calls models. Shared by the whole process, so that its limits hold for all items; cheap to clone.
#[derive(Clone)]
pub struct Scorer(Arc<Inner>);

struct Inner {
    client: Client,
    store: Store,
    secrets: Secrets,
    settings: Settings,
    permits: OrgPermits,
    breakers: Mutex<HostBreakers>,
    /// Questions of waiting items. Dropped with their last waiter.
    flights: SingleFlight<(OrgId, String), ScoreAnswer>,
    /// Inputs without a call yet.
    batches: Batches<Destination, ScoreInput, Flight<ScoreAnswer>>,
    /// Running calls by input. They complete even without waiters.
    calls: SingleFlight<(OrgId, String), ScoreAnswer>,
}

/// Model in one configuration of an org. Inputs of the same destination can share a call.
#[derive(Clone)]
struct Destination {
    org: OrgId,
    signal: Arc<ScoreSignal>,
}

/// Input with the digest under which its answer is stored.
struct ScoreInput {
    input: Value,
    digest: String,
}

/// Answer in the form of the store.
#[derive(Serialize, Deserialize)]
struct StoredScores {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<f64>,
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    labels: HashMap<String, f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    texts: Vec<String>,
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
            batches: Batches::default(),
            calls: SingleFlight::default(),
            settings: settings.clone(),
        }))
    }

    /// Returns the scores of an item's inputs: the highest of each label, and all texts. A failed input fails the
    /// item, because the model might have found something in it. A child-safety item is only sent to models with
    /// `child_safety: true`. Fails if the store is unavailable.
    #[boxed]
    pub async fn score(
        &self,
        org: &OrgId,
        signal: &Arc<ScoreSignal>,
        item: &ItemKey,
        inputs: &[Value],
    ) -> Result<ScoreAnswer, Error> {
        if inputs.len() > self.0.settings.inputs_per_item {
            return Ok(Err("too_many_inputs".into()));
        }
        let clearance = Clearance::from_flag(signal.child_safety);
        // Checked at each call, because a child-safety job can be opened at any time.
        if !clearance.withheld_items(&self.0.store, org, slice::from_ref(item)).await?.is_empty() {
            return Ok(Err(CHILD_SAFETY.into()));
        }
        let answers = join_all(inputs.iter().map(|input| self.score_input(org, signal, input))).await;
        Ok(answers.into_iter().collect::<Result<Vec<_>, _>>().map(merge_highest))
    }

    async fn score_input(&self, org: &OrgId, signal: &Arc<ScoreSignal>, input: &Value) -> ScoreAnswer {
        let body = signal.body(slice::from_ref(input));
        // Refused instead of cut: padding could otherwise hide content from the model.
        if body.len() > self.0.settings.request_bytes {
            return Err("input_too_long".into());
        }
        let question = ScoreInput { input: input.clone(), digest: signal.digest(&body) };
        let destination = Destination { org: org.clone(), signal: Arc::clone(signal) };
        let (flight, is_joined) = self.0.flights.join(&destination.key(&question.digest), || {
            let (scorer, bytes) = (self.clone(), body.len());
            async move { scorer.find_or_ask(destination, question, bytes).await }
        });
        if is_joined {
            metrics::score_lookup("joined");
        }
        flight.await
    }

    async fn find_or_ask(&self, destination: Destination, question: ScoreInput, bytes: usize) -> ScoreAnswer {
        if let Some(scores) = self.find_stored(&destination.org, &destination.signal, &question.digest).await
        {
            metrics::score_lookup("store");
            return Ok(scores);
        }
        // The call belongs to an item that was handed over to the slow topic meanwhile.
        if let Some(call) = self.0.calls.find(&destination.key(&question.digest)) {
            metrics::score_lookup("joined");
            return call.await;
        }
        let limits = self.batch_limits(&destination.signal);
        let (call, is_new) = self.0.batches.push(&destination, question, bytes, &limits, Instant::now());
        if is_new {
            tokio::spawn(self.clone().send_batches(destination));
        }
        match call.await {
            Ok(call) => call.await,
            Err(_) => Err("interrupted".into()),
        }
    }

    fn batch_limits(&self, signal: &ScoreSignal) -> BatchLimits {
        let Settings { request_bytes, batch_wait_ms, .. } = self.0.settings;
        BatchLimits {
            inputs: signal.inputs_per_call(),
            bytes: request_bytes,
            wait: Duration::from_millis(batch_wait_ms),
        }
    }

    /// Calls the model until no input waits. Inputs that wait for a permit join the next batch.
    async fn send_batches(self, destination: Destination) {
        let limits = self.batch_limits(&destination.signal);
        while self.0.batches.ready(&destination, &limits).await {
            let permit = self.0.permits.acquire(&destination.org).await;
            let batch = self.0.batches.take(&destination, &limits);
            if !batch.is_empty() {
                // Detached, because a paid call must complete and be stored even without waiting items. The number of
                // such calls is bounded by the permits, their duration by the timeout.
                tokio::spawn(self.clone().send(destination.clone(), batch, permit));
            }
        }
    }

    async fn send(
        self,
        destination: Destination,
        batch: Vec<WaitingInput<ScoreInput, Flight<ScoreAnswer>>>,
        _permit: OwnedSemaphorePermit,
    ) {
        // Equal calls may have completed while these inputs waited.
        let lookups = batch.iter().map(|waiting_input| {
            self.find_stored(&destination.org, &destination.signal, &waiting_input.input.digest)
        });
        let stored_scores = join_all(lookups).await;
        let (mut questions, mut replies) = (Vec::new(), Vec::new());
        for (waiting_input, scores_if_stored) in batch.into_iter().zip(stored_scores) {
            let WaitingInput { input: question, reply, .. } = waiting_input;
            if let Some(scores) = scores_if_stored {
                metrics::score_lookup("store");
                let _unsent = reply.send(completed_flight(Ok(scores)));
            } else if let Some(call) = self.0.calls.find(&destination.key(&question.digest)) {
                metrics::score_lookup("joined");
                let _unsent = reply.send(call);
            } else {
                metrics::score_lookup("miss");
                replies.push((destination.key(&question.digest), reply));
                questions.push(question);
            }
        }
        if questions.is_empty() {
            return;
        }
        let admission = self.0.breakers.lock().admit(&destination.host(), Instant::now());
        if !matches!(admission, Admission::Allowed | Admission::Probe(_)) {
            // No call is made, but the missing score must show in the metrics.
            metrics::score_call_ended("resting", 0.0);
            for (_, reply) in replies {
                let _unsent = reply.send(completed_flight(Err("resting".into())));
            }
            return;
        }
        if destination.signal.takes_batches() {
            metrics::score_batch(questions.len());
        }
        let scorer = self.clone();
        let answers = async move { scorer.ask_all(&destination, &questions).await }.boxed().shared();
        let calls = replies.into_iter().enumerate().map(|(nth, (key, reply))| {
            let answers = answers.clone();
            let call_answer =
                async move { answers.await.get(nth).cloned().unwrap_or_else(|| Err("interrupted".into())) };
            // Registered per input, so that an item on the slow topic finds the running call.
            let (call, _) = self.0.calls.join(&key, || call_answer);
            let _unsent = reply.send(call.clone());
            call
        });
        join_all(calls.collect::<Vec<_>>()).await;
    }

    /// Loads stored scores. An unreadable store counts as a miss, which costs a call instead of the item.
    async fn find_stored(&self, org: &OrgId, signal: &ScoreSignal, digest: &str) -> Option<Arc<Scores>> {
        load_answer(&self.0.store, org, signal, digest).await.ok().flatten().map(Arc::new)
    }

    /// Sends all inputs in one call and stores the answers. If the model refuses the call because of an input, sends
    /// each half separately, so that one input cannot prevent the scores of the others.
    async fn ask_all(&self, destination: &Destination, questions: &[ScoreInput]) -> Arc<[ScoreAnswer]> {
        let deadline = Instant::now() + destination.signal.timeout;
        let mut answers = Vec::with_capacity(questions.len());
        let mut parts: Vec<Range<usize>> = once(0..questions.len()).collect();
        while let Some(part) = parts.pop() {
            // The first call has the whole timeout; the halves share the remaining time.
            if part.len() < questions.len() && deadline <= Instant::now() {
                answers.extend(repeat_n(Err("timeout".into()), part.len()));
                continue;
            }
            match self.call_with_retries(destination, &questions[part.clone()], deadline).await {
                Ok(part_answers) => answers.extend(part_answers),
                Err(error) if error.is_about_input() && part.len() > 1 => {
                    let middle = part.start.midpoint(part.end);
                    // In reverse, because `pop` takes the last part and the answers keep the order of the inputs.
                    parts.extend([middle..part.end, part.start..middle]);
                }
                Err(error) => answers.extend(repeat_n(Err(error.tag()), part.len())),
            }
        }
        if destination.signal.cache.is_some() {
            self.store_answers(destination, questions, &answers).await;
        }
        answers.into()
    }

    async fn call_with_retries(
        &self,
        destination: &Destination,
        questions: &[ScoreInput],
        deadline: Instant,
    ) -> Result<Vec<ScoreAnswer>, CallError> {
        let inputs: Vec<Value> = questions.iter().map(|question| question.input.clone()).collect();
        let body = destination.signal.body(&inputs);
        let mut attempt = 1;
        loop {
            let began = Instant::now();
            let answer = self.send_request(destination, inputs.len(), body.clone(), deadline - began).await;
            let outcome = answer.as_ref().map_or_else(CallError::tag, |_| "answered".into());
            metrics::score_call_ended(outcome_class(&outcome), began.elapsed().as_secs_f64());
            let mut is_resting = false;
            if answer.as_ref().is_err_and(CallError::is_model_fault) {
                is_resting = self.0.breakers.lock().record_failure(&destination.host(), Instant::now());
            } else {
                // A refused input is no failure of the model: its sender must not make the model rest for others.
                self.0.breakers.lock().record_success(&destination.host());
            }
            let remaining_time = deadline.saturating_duration_since(Instant::now());
            // All attempts share the signal's timeout, so a pause must fit into the remaining time.
            let retries =
                Retries { attempts: self.0.settings.attempts, step: RETRY_STEP, longest: remaining_time };
            let retry_after = answer.as_ref().err().and_then(CallError::retry_after);
            let pause = retry_after
                .and_then(|requested_pause| retries.pause(attempt, requested_pause, random_fraction()));
            // Without time for another call, a pause would only delay the error.
            match pause.filter(|pause| *pause < remaining_time && !is_resting) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => {
                    if answer.is_err() {
                        let (org, signal) = (&destination.org, &destination.signal.key);
                        tracing::debug!(%org, %signal, tag = &*outcome, is_resting, "a model returned no score");
                    }
                    return answer;
                }
            }
            attempt += 1;
        }
    }

    async fn send_request(
        &self,
        destination: &Destination,
        inputs: usize,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Vec<ScoreAnswer>, CallError> {
        let Destination { org, signal } = destination;
        let open = |header: &str, value: &str| self.0.secrets.open_header(org, &signal.key, header, value);
        let headers = signal
            .resolve_headers(|name| std::env::var(name).ok(), open)
            .map_err(|error| CallError::NotSent(error.tag()))?;
        let request = ScoreRequest { url: signal.url.clone(), headers, body, timeout };
        let unix_seconds = u64::try_from(Millis::now().0 / 1_000).unwrap_or_default();
        let response = score::request_scores(&self.0.client, request, unix_seconds)
            .await
            .map_err(|error| CallError::NotSent(error.tag()))?;
        let body = response.map_err(CallError::Failed)?;
        let scores = signal.read(&body, inputs).map_err(|error| CallError::Answer(error.tag()))?;
        Ok(scores
            .into_iter()
            .map(|scores| scores.map(Arc::new).map_err(|error| error.tag().into()))
            .collect())
    }

    async fn store_answers(
        &self,
        destination: &Destination,
        questions: &[ScoreInput],
        answers: &[ScoreAnswer],
    ) {
        let asked_at = Millis::now();
        let answered_rows = questions.iter().zip(answers).filter_map(|(question, answer)| {
            let scores = answer.as_ref().ok()?;
            let texts = scores.texts.iter().map(|text| text.as_ref().to_owned()).collect();
            let stored = StoredScores { whole: scores.overall, labels: scores.labels.clone(), texts };
            Some(SignalScore {
                org: destination.org.clone(),
                signal: destination.signal.key.clone(),
                digest: question.digest.clone(),
                scores: serde_json::to_string(&stored).ok()?,
                asked_at,
            })
        });
        let rows: Vec<_> = answered_rows.collect();
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.0.store.put_rows(WriteTime::from_append(asked_at, 0), &rows).await {
            tracing::debug!(tag = error.tag(), "scores cannot be stored: {error}");
        }
    }
}

impl Destination {
    /// Key of the call for an input.
    fn key(&self, digest: &str) -> (OrgId, String) {
        (self.org.clone(), format!("{}/{digest}", self.signal.key))
    }

    fn host(&self) -> OrgHost {
        // One breaker per model: several models of one host fail independently.
        OrgHost { org: self.org.clone(), host: self.signal.key.as_str().into() }
    }
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        // By pointer, because another configuration may have another address or template.
        self.org == other.org && Arc::ptr_eq(&self.signal, &other.signal)
    }
}

impl Eq for Destination {}

impl Hash for Destination {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.org.hash(state);
        Arc::as_ptr(&self.signal).hash(state);
    }
}

/// Wraps an existing answer as a completed flight.
fn completed_flight(answer: ScoreAnswer) -> Flight<ScoreAnswer> {
    ready(answer).boxed().shared()
}

/// Reason for a missing score: the item is a child-safety one, and the model's document lacks `child_safety: true`.
const CHILD_SAFETY: &str = "child_safety";

/// First backoff step between attempts of a call. Each further step is twice as long.
const RETRY_STEP: Duration = Duration::from_millis(250);

/// Reason why a call returned no scores.
enum CallError {
    /// The configuration does not permit the call, so it was not sent.
    NotSent(&'static str),
    Failed(ScoreFailure),
    /// The answer lacks the numbers.
    Answer(&'static str),
}

impl CallError {
    /// Returns the reason in the form of the item's row.
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

    /// Returns the model's requested pause if a later call may succeed. `None`: the call is not repeated.
    fn retry_after(&self) -> Option<Option<Duration>> {
        match self {
            Self::Failed(ScoreFailure {
                failure: Failure::HttpStatus { status: 429 | 502 | 503 | 504 },
                retry_after,
            }) => Some(*retry_after),
            _ => None,
        }
    }

    /// True if the model is at fault instead of the input or our configuration.
    fn is_model_fault(&self) -> bool {
        !matches!(self, Self::NotSent(_)) && !self.is_about_input()
    }

    /// True if the model refuses an input as such.
    fn is_about_input(&self) -> bool {
        matches!(
            self,
            Self::Failed(ScoreFailure { failure: Failure::HttpStatus { status: 400 | 413 | 415 | 422 }, .. })
        )
    }
}

/// Returns a metric label with few possible values.
fn outcome_class(outcome: &str) -> &'static str {
    match outcome {
        "answered" => "answered",
        "timeout" => "timeout",
        "shape" | "no_json" => "shape",
        "batch_length" => "batch_length",
        "too_large" => "too_large",
        "blocked_address" => "blocked_address",
        status if status.starts_with("status_4") => "status_4xx",
        status if status.starts_with("status_5") => "status_5xx",
        _ => "other",
    }
}

/// Merges scores: the highest number of each label and of the whole, and all texts.
fn merge_highest(answers: Vec<Arc<Scores>>) -> Arc<Scores> {
    let mut answers = answers.into_iter();
    let Some(first) = answers.next() else { return Arc::default() };
    answers.fold(first, |merged, scores| {
        let mut merged = (*merged).clone();
        merged.overall = match (merged.overall, scores.overall) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        for (label, number) in &scores.labels {
            let highest_number = merged.labels.entry(label.clone()).or_insert(*number);
            *highest_number = highest_number.max(*number);
        }
        merged.texts.extend(scores.texts.iter().cloned());
        Arc::new(merged)
    })
}

/// Returns the scores if the answers of all inputs are stored. Calls no model.
pub(crate) async fn load_stored(
    store: &Store,
    org: &OrgId,
    signal: &ScoreSignal,
    inputs: &[Value],
) -> Result<Option<Arc<Scores>>, Error> {
    let mut answers = Vec::with_capacity(inputs.len());
    for input in inputs {
        let digest = signal.digest(&signal.body(slice::from_ref(input)));
        match load_answer(store, org, signal, &digest).await? {
            Some(scores) => answers.push(Arc::new(scores)),
            None => return Ok(None),
        }
    }
    Ok(Some(merge_highest(answers)))
}

async fn load_answer(
    store: &Store,
    org: &OrgId,
    signal: &ScoreSignal,
    digest: &str,
) -> Result<Option<Scores>, tidegate_store::Error> {
    let Some(cache) = signal.cache else { return Ok(None) };
    let key = (org.clone(), signal.key.clone(), digest.to_owned());
    let Some(row) = store.get::<SignalScore>(&key).await? else { return Ok(None) };
    let age = Millis::now().0.saturating_sub(row.asked_at.0);
    // Absolute, because the clock of the asking process may have been ahead.
    if u128::from(age.unsigned_abs()) > cache.as_millis() {
        return Ok(None);
    }
    let stored_scores = serde_json::from_str::<StoredScores>(&row.scores).ok();
    Ok(stored_scores.map(|stored| {
        let texts = stored.texts.into_iter().map(Arc::from).collect();
        Scores { overall: stored.whole, labels: stored.labels, texts }
    }))
}
