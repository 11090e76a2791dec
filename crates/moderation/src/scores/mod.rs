//! Scores of models for items: asks each model within limits, joins equal questions, and keeps the answers.
//!
//! The item pipeline decides when to ask, and how long an item waits.

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

use self::batches::{BatchLimits, Batches, Waiting};
pub(crate) use self::inputs::inputs;
pub use self::settings::{Settings, SettingsError};
use crate::{
    Error,
    child_safety::Clearance,
    media::{
        fetch::draw,
        host_breaker::{Admission, HostBreakers, OrgHost},
        retry::Retries,
    },
    metrics,
    single_flight::{Flight, SingleFlight},
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
    /// Inputs that no call has been made for yet.
    batches: Batches<Destination, Question, Flight<Answer>>,
    /// Calls under way by input, which end in any case.
    calls: SingleFlight<(OrgId, String), Answer>,
}

/// A model as one configuration of an org sets it up: inputs of the same one may share a call.
#[derive(Clone)]
struct Destination {
    org: OrgId,
    signal: Arc<ScoreSignal>,
}

/// An input, and the digest under which its answer is kept.
struct Question {
    input: Value,
    digest: String,
}

/// An answer in the form of the store.
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

    /// Returns the scores of an item's inputs, the highest of each label, and a text for each. One input without an answer leaves the item
    /// without one: what the model did not see may be what it would have found. An item of child safety is sent only to
    /// models whose documents say that they may have it. Fails if the store does not answer.
    pub async fn score(
        &self,
        org: &OrgId,
        signal: &Arc<ScoreSignal>,
        item: &ItemKey,
        inputs: &[Value],
    ) -> Result<Answer, Error> {
        if inputs.len() > self.0.settings.inputs_per_item {
            return Ok(Err("too_many_inputs".into()));
        }
        let clearance = Clearance::from_flag(signal.child_safety);
        if !clearance.withheld_items(&self.0.store, org, slice::from_ref(item)).await?.is_empty() {
            return Ok(Err(CHILD_SAFETY.into()));
        }
        let answers = join_all(inputs.iter().map(|input| self.one(org, signal, input))).await;
        Ok(answers.into_iter().collect::<Result<Vec<_>, _>>().map(highest))
    }

    async fn one(&self, org: &OrgId, signal: &Arc<ScoreSignal>, input: &Value) -> Answer {
        let body = signal.body(slice::from_ref(input));
        if body.len() > self.0.settings.request_bytes {
            return Err("input_too_long".into());
        }
        let question = Question { input: input.clone(), digest: signal.digest(&body) };
        let to = Destination { org: org.clone(), signal: Arc::clone(signal) };
        let (flight, is_joined) = self.0.flights.join(&to.key(&question.digest), || {
            let (scorer, bytes) = (self.clone(), body.len());
            async move { scorer.find_or_ask(to, question, bytes).await }
        });
        if is_joined {
            metrics::score_lookup("joined");
        }
        flight.await
    }

    async fn find_or_ask(&self, to: Destination, question: Question, bytes: usize) -> Answer {
        if let Some(scores) = self.kept(&to.org, &to.signal, &question.digest).await {
            metrics::score_lookup("store");
            return Ok(scores);
        }
        // Of an item that has moved on to the slow topic.
        if let Some(call) = self.0.calls.find(&to.key(&question.digest)) {
            metrics::score_lookup("joined");
            return call.await;
        }
        let limits = self.batch_limits(&to.signal);
        let (call, is_new) = self.0.batches.push(&to, question, bytes, &limits, Instant::now());
        if is_new {
            tokio::spawn(self.clone().send_batches(to));
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

    /// Makes calls for the inputs of a destination until none waits. Inputs that wait for a permit gather as well.
    async fn send_batches(self, to: Destination) {
        let limits = self.batch_limits(&to.signal);
        while self.0.batches.ready(&to, &limits).await {
            let permit = self.0.permits.acquire(&to.org).await;
            let batch = self.0.batches.take(&to, &limits);
            if !batch.is_empty() {
                // A call that is paid for ends and is kept although its items do not wait any more. There are no more of
                // them than permits, and each has its timeout.
                tokio::spawn(self.clone().send(to.clone(), batch, permit));
            }
        }
    }

    async fn send(
        self,
        to: Destination,
        batch: Vec<Waiting<Question, Flight<Answer>>>,
        _permit: OwnedSemaphorePermit,
    ) {
        // Equal calls may have ended while these inputs waited.
        let kept = batch.iter().map(|it| self.kept(&to.org, &to.signal, &it.input.digest));
        let kept = join_all(kept).await;
        let (mut questions, mut replies) = (Vec::new(), Vec::new());
        for (waiting, kept) in batch.into_iter().zip(kept) {
            let Waiting { input: question, reply, .. } = waiting;
            if let Some(scores) = kept {
                metrics::score_lookup("store");
                let _gone = reply.send(ended(Ok(scores)));
            } else if let Some(call) = self.0.calls.find(&to.key(&question.digest)) {
                metrics::score_lookup("joined");
                let _gone = reply.send(call);
            } else {
                metrics::score_lookup("miss");
                replies.push((to.key(&question.digest), reply));
                questions.push(question);
            }
        }
        if questions.is_empty() {
            return;
        }
        let admitted = self.0.breakers.lock().admit(&to.host(), Instant::now());
        if !matches!(admitted, Admission::Allowed | Admission::Probe(_)) {
            metrics::score_call_ended("resting", 0.0);
            for (_, reply) in replies {
                let _gone = reply.send(ended(Err("resting".into())));
            }
            return;
        }
        if to.signal.takes_batches() {
            metrics::score_batch(questions.len());
        }
        let scorer = self.clone();
        let answers = async move { scorer.ask_all(&to, &questions).await }.boxed().shared();
        let calls = replies.into_iter().enumerate().map(|(nth, (key, reply))| {
            let answers = answers.clone();
            let own =
                async move { answers.await.get(nth).cloned().unwrap_or_else(|| Err("interrupted".into())) };
            let (call, _) = self.0.calls.join(&key, || own);
            let _gone = reply.send(call.clone());
            call
        });
        join_all(calls.collect::<Vec<_>>()).await;
    }

    /// Returns scores that are kept. An unreadable store counts as a miss: it costs a call, not the item.
    async fn kept(&self, org: &OrgId, signal: &ScoreSignal, digest: &str) -> Option<Arc<Scores>> {
        kept(&self.0.store, org, signal, digest).await.ok().flatten().map(Arc::new)
    }

    /// Asks for all inputs in one call, and keeps the answers. If the model refuses the call because of an input, asks
    /// for each half of them, so that one input cannot take the others' scores.
    async fn ask_all(&self, to: &Destination, questions: &[Question]) -> Arc<[Answer]> {
        let deadline = Instant::now() + to.signal.timeout;
        let mut answers = Vec::with_capacity(questions.len());
        let mut parts: Vec<Range<usize>> = once(0..questions.len()).collect();
        while let Some(part) = parts.pop() {
            // The first call has its timeout; halves share what is left of it.
            if part.len() < questions.len() && deadline <= Instant::now() {
                answers.extend(repeat_n(Err("timeout".into()), part.len()));
                continue;
            }
            match self.ask(to, &questions[part.clone()], deadline).await {
                Ok(all) => answers.extend(all),
                Err(error) if error.is_about_input() && part.len() > 1 => {
                    let middle = part.start.midpoint(part.end);
                    parts.extend([middle..part.end, part.start..middle]);
                }
                Err(error) => answers.extend(repeat_n(Err(error.tag()), part.len())),
            }
        }
        if to.signal.cache.is_some() {
            self.keep(to, questions, &answers).await;
        }
        answers.into()
    }

    async fn ask(
        &self,
        to: &Destination,
        questions: &[Question],
        deadline: Instant,
    ) -> Result<Vec<Answer>, CallError> {
        let inputs: Vec<Value> = questions.iter().map(|question| question.input.clone()).collect();
        let body = to.signal.body(&inputs);
        let mut attempt = 1;
        loop {
            let began = Instant::now();
            let answer = self.call(to, inputs.len(), body.clone(), deadline - began).await;
            let outcome = answer.as_ref().map_or_else(CallError::tag, |_| "answered".into());
            metrics::score_call_ended(class(&outcome), began.elapsed().as_secs_f64());
            let mut is_resting = false;
            if answer.as_ref().is_err_and(CallError::is_the_models) {
                is_resting = self.0.breakers.lock().record_failure(&to.host(), Instant::now());
            } else {
                // Who sends odd items must not take the model from others: it answered, so it is there.
                self.0.breakers.lock().record_success(&to.host());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let retries = Retries { attempts: self.0.settings.attempts, step: RETRY_STEP, longest: left };
            let retry_after = answer.as_ref().err().and_then(CallError::retry_after);
            let pause = retry_after.and_then(|asked| retries.pause(attempt, asked, draw()));
            // A pause that leaves no time for a call would only delay the error.
            match pause.filter(|pause| *pause < left && !is_resting) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => {
                    if answer.is_err() {
                        let (org, signal) = (&to.org, &to.signal.key);
                        tracing::debug!(%org, %signal, tag = &*outcome, is_resting, "a model gave no score");
                    }
                    return answer;
                }
            }
            attempt += 1;
        }
    }

    async fn call(
        &self,
        to: &Destination,
        inputs: usize,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Vec<Answer>, CallError> {
        let Destination { org, signal } = to;
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
        let scores = signal.read(&body, inputs).map_err(|error| CallError::Answer(error.tag()))?;
        Ok(scores
            .into_iter()
            .map(|scores| scores.map(Arc::new).map_err(|error| error.tag().into()))
            .collect())
    }

    async fn keep(&self, to: &Destination, questions: &[Question], answers: &[Answer]) {
        let now = Millis::now();
        let answered = questions.iter().zip(answers).filter_map(|(question, answer)| {
            let scores = answer.as_ref().ok()?;
            let texts = scores.texts.iter().map(|text| text.as_ref().to_owned()).collect();
            let stored = StoredScores { whole: scores.whole, labels: scores.labels.clone(), texts };
            Some(SignalScore {
                org: to.org.clone(),
                signal: to.signal.key.clone(),
                digest: question.digest.clone(),
                scores: serde_json::to_string(&stored).ok()?,
                asked_at: now,
            })
        });
        let rows: Vec<_> = answered.collect();
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.0.store.put(WriteTime::of(now, 0), &rows).await {
            tracing::debug!(tag = error.tag(), "scores cannot be stored: {error}");
        }
    }
}

impl Destination {
    /// Key of an input's call.
    fn key(&self, digest: &str) -> (OrgId, String) {
        (self.org.clone(), format!("{}/{digest}", self.signal.key))
    }

    fn host(&self) -> OrgHost {
        OrgHost { org: self.org.clone(), host: self.signal.key.as_str().into() }
    }
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
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

/// Returns an answer that is there in the form of one that is waited for.
fn ended(answer: Answer) -> Flight<Answer> {
    ready(answer).boxed().shared()
}

/// Reason why a model has no score for an item of child safety: its document does not say `child_safety: true`.
const CHILD_SAFETY: &str = "child_safety";

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

/// A label of few values for metrics.
fn class(outcome: &str) -> &'static str {
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

/// Returns the highest number of each label and of the whole, and all texts.
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
        all.texts.extend(one.texts.iter().cloned());
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
        let digest = signal.digest(&signal.body(slice::from_ref(input)));
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
    Ok(stored.map(|it| {
        let texts = it.texts.into_iter().map(Arc::from).collect();
        Scores { whole: it.whole, labels: it.labels, texts }
    }))
}
