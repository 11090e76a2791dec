//! Asks models for the scores and texts that rules still depend on, and waits for them: for a moment beside everybody
//! else's work, or for long on the topic of slow items.
//!
//! It calls no model itself, and decides nothing about the item.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tidegate_catalog::Compiled;
use tidegate_moderation::{
    Error,
    items::evaluate::{self, Prepared},
    scores::{Answer, Scorer},
};
use tidegate_rules::{Facts, Need, Scan};
use tidegate_scheduler::Scheduler;
use tidegate_schemas::{documents::RoutingList, ids::OrgId};
use tidegate_stream::consumer::ticket::Ticket;
use tokio::time::{Instant, sleep_until};

use super::{compute_pool::ComputePool, media_wait, slow_queue::SlowQueue};
use crate::{consumer::slot::ConcurrencySlot, metrics, settings::MediaSettings};

/// Length of the wait, and what follows it.
enum WaitMode {
    /// Then the item is handed over.
    Passing(Scheduler),
    /// Then the scores that are missing have failed, as they have when so much time has passed in all.
    Slow(SlowQueue, Duration),
}

pub(crate) struct ScoreWait {
    scorer: Scorer,
    /// Runs the searches of texts that models return.
    pool: ComputePool,
    wait: Duration,
    mode: WaitMode,
}

pub(crate) enum ScoreWaitResult {
    /// The facts are complete.
    Answered(Facts),
    /// The item is to be handed over.
    Later,
    /// The assignment is gone, and with it all that was waited for.
    Left,
}

/// Conditions that ask for scores.
#[derive(Clone, Copy)]
pub(crate) enum Conditions {
    Rules,
    /// Conditions of the routing list for reports.
    ReportRouting,
}

impl Conditions {
    /// Returns the scores that each condition of the scan still depends on.
    fn undecided_scores(self, config: &Compiled, scan: &Scan, facts: &Facts) -> Vec<Vec<Need>> {
        match self {
            Self::Rules => evaluate::undecided_scores(config, scan, facts),
            Self::ReportRouting => config
                .router(RoutingList::Reports)
                .map(|router| router.plan().undecided_scores(scan, facts))
                .unwrap_or_default(),
        }
    }
}

/// One item, and the ticket that ends the wait if it is lost.
#[derive(Clone, Copy)]
pub(crate) struct ScoreRequest<'a> {
    pub(crate) org: &'a OrgId,
    /// Bytes that the item takes while it waits.
    pub(crate) bytes: usize,
    pub(crate) prepared: &'a Prepared,
    pub(crate) conditions: Conditions,
    pub(crate) scan: &'a Arc<Scan>,
    pub(crate) ticket: &'a Ticket,
    pub(crate) slot: &'a ConcurrencySlot,
}

enum WaitEnd {
    Answered,
    Failed(Error),
    TimeIsOver,
    Lost,
}

impl ScoreWait {
    pub(crate) fn passing(scorer: Scorer, pool: ComputePool, settings: &MediaSettings) -> Self {
        let permits = media_wait::passing_permits(settings);
        Self { scorer, pool, wait: Duration::from_millis(settings.wait_ms), mode: WaitMode::Passing(permits) }
    }

    pub(crate) fn slow(scorer: Scorer, pool: ComputePool, settings: &MediaSettings) -> Self {
        // A model is one host. Each has its part of its org's permits; which of them answer is the breaker's concern.
        let queue = SlowQueue::new(media_wait::slow_limits(settings), |_, _| true);
        let total = Duration::from_millis(settings.slow_total_ms);
        let wait = Duration::from_millis(settings.slow_wait_ms);
        Self { scorer, pool, wait, mode: WaitMode::Slow(queue, total) }
    }

    /// Adds to the facts the scores that matter. The cheapest model of each rule is asked first, and the next one only
    /// if the rule still depends on it.
    pub(crate) async fn complete(
        &self,
        request: ScoreRequest<'_>,
        mut facts: Facts,
    ) -> Result<ScoreWaitResult, Error> {
        let models = models(&request, &facts);
        if !models.is_empty() {
            let end = match &self.mode {
                WaitMode::Passing(permits) => {
                    let Some(_permit) = permits.try_acquire(request.org, &[], 0) else {
                        metrics::item_handed_over("share");
                        return Ok(ScoreWaitResult::Later);
                    };
                    self.ask_until(request, &mut facts, Instant::now() + self.wait).await
                }
                WaitMode::Slow(queue, total) => {
                    self.ask_in_turn(queue, Instant::now() + *total, request, models, &mut facts).await
                }
            };
            match (end, &self.mode) {
                (WaitEnd::Lost, _) => return Ok(ScoreWaitResult::Left),
                (WaitEnd::Failed(error), _) => return Err(error),
                (WaitEnd::TimeIsOver, WaitMode::Passing(_)) => {
                    metrics::item_handed_over("time");
                    return Ok(ScoreWaitResult::Later);
                }
                (WaitEnd::TimeIsOver, WaitMode::Slow(..)) => self.fail(request, &mut facts, "deadline").await,
                (WaitEnd::Answered, _) => {}
            }
        }
        facts.skip_scores(request.scan.needs());
        Ok(ScoreWaitResult::Answered(facts))
    }

    async fn ask_in_turn(
        &self,
        queue: &SlowQueue,
        end: Instant,
        request: ScoreRequest<'_>,
        models: Vec<String>,
        facts: &mut Facts,
    ) -> WaitEnd {
        let hosts: Vec<_> = models.into_iter().map(Into::into).collect();
        let permit = async {
            tokio::select! {
                biased;
                () = request.ticket.cancelled() => Err(WaitEnd::Lost),
                permit = queue.acquire(request.org, &hosts, request.bytes) => Ok(permit),
                () = sleep_until(end) => Err(WaitEnd::TimeIsOver),
            }
        };
        let _permit = match request.slot.released_during(permit).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(full)) => {
                metrics::slow_item_refused(full);
                self.fail(request, facts, "over_share").await;
                return WaitEnd::Answered;
            }
            Err(end) => return end,
        };
        self.ask_until(request, facts, end.min(Instant::now() + self.wait)).await
    }

    async fn ask_until(&self, request: ScoreRequest<'_>, facts: &mut Facts, end: Instant) -> WaitEnd {
        request
            .slot
            .released_during(async {
                tokio::select! {
                    biased;
                    () = request.ticket.cancelled() => WaitEnd::Lost,
                    asked = self.ask(request, facts) => asked.map_or_else(WaitEnd::Failed, |()| WaitEnd::Answered),
                    () = sleep_until(end) => WaitEnd::TimeIsOver,
                }
            })
            .await
    }

    /// Asks until no rule depends on a score. Each round answers at least one need, so it ends.
    async fn ask(&self, request: ScoreRequest<'_>, facts: &mut Facts) -> Result<(), Error> {
        loop {
            let mut asked: Vec<Need> = Vec::new();
            for needs in self.undecided(request, facts).await {
                let cheapest = needs.into_iter().min_by_key(|need| cost(request.prepared, need));
                asked.extend(cheapest.filter(|need| !asked.contains(need)));
            }
            if asked.is_empty() {
                return Ok(());
            }
            let answers = join_all(asked.iter().map(|need| self.answer(request, need))).await;
            for (need, answer) in asked.into_iter().zip(answers) {
                match answer? {
                    Some(Ok(scores)) => facts.scores(need, (*scores).clone()),
                    Some(Err(reason)) => facts.failed(need, &*reason),
                    None => facts.unknown(need),
                }
            }
        }
    }

    /// Returns the scores that each rule still depends on.
    async fn undecided(&self, request: ScoreRequest<'_>, facts: &Facts) -> Vec<Vec<Need>> {
        let config = Arc::clone(&request.prepared.config);
        if !facts.have_texts() {
            return request.conditions.undecided_scores(&config, request.scan, facts);
        }
        let (scan, facts, conditions) = (Arc::clone(request.scan), facts.clone(), request.conditions);
        let undecided = move || conditions.undecided_scores(&config, &scan, &facts);
        // What panics here panics again, and by its name, when the rules are decided.
        self.pool.run(request.org, undecided).await.unwrap_or_default()
    }

    /// Ends the wait for the scores that are still missing.
    async fn fail(&self, request: ScoreRequest<'_>, facts: &mut Facts, reason: &str) {
        for need in self.undecided(request, facts).await.into_iter().flatten() {
            facts.failed(need, reason);
        }
    }

    /// Returns `None` if the item has nothing for the model.
    async fn answer(&self, request: ScoreRequest<'_>, need: &Need) -> Result<Option<Answer>, Error> {
        let Need::Score { model, .. } = need else { return Ok(None) };
        let Some(signal) = request.prepared.config.signal(model) else {
            return Ok(Some(Err("no_signal".into())));
        };
        let inputs = request.prepared.score_inputs(signal);
        if inputs.is_empty() {
            return Ok(None);
        }
        let item = &request.prepared.key;
        self.scorer.score(request.org, signal, item, &inputs).await.map(Some)
    }
}

fn cost(prepared: &Prepared, need: &Need) -> u32 {
    match need {
        Need::Score { model, .. } => prepared.config.signal(model).map_or(0, |signal| signal.cost),
        _ => 0,
    }
}

/// Returns the models that the item may ask, each once.
fn models(request: &ScoreRequest<'_>, facts: &Facts) -> Vec<String> {
    if !request.scan.needs().iter().any(|need| matches!(need, Need::Score { .. })) {
        return Vec::new();
    }
    let undecided = request.conditions.undecided_scores(&request.prepared.config, request.scan, facts);
    let undecided = undecided.into_iter().flatten();
    let mut models: Vec<String> = undecided.filter_map(model).collect();
    models.sort_unstable();
    models.dedup();
    models
}

fn model(need: Need) -> Option<String> {
    if let Need::Score { model, .. } = need { Some(model) } else { None }
}
