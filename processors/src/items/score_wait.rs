//! Requests scores and texts of models for undecided rules and waits for them: briefly in the topic `items`, or long in
//! `items-slow`.
//!
//! `tidegate_moderation::scores` calls the models.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tidegate_catalog::Compiled;
use tidegate_moderation::{
    Error,
    items::evaluate::{self, PreparedItem},
    scores::{ScoreAnswer, Scorer},
};
use tidegate_rules::{Facts, Need, Scan};
use tidegate_scheduler::Scheduler;
use tidegate_schemas::{documents::RoutingList, ids::OrgId};
use tidegate_stream::consumer::ticket::Ticket;
use tokio::time::{Instant, sleep_until};

use super::{compute_pool::ComputePool, media_wait, slow_queue::SlowQueue};
use crate::{consumer::slot::ConcurrencySlot, metrics, settings::MediaSettings};

/// Kind of the wait, and its end.
enum WaitMode {
    /// Short wait. At its end the item is handed over to `items-slow`.
    Short(Scheduler),
    /// Long wait with a total time limit. At its end the missing scores have failed.
    Slow(SlowQueue, Duration),
}

pub(crate) struct ScoreWait {
    scorer: Scorer,
    /// Runs the rules that search texts returned by models.
    pool: ComputePool,
    wait_limit: Duration,
    mode: WaitMode,
}

pub(crate) enum ScoreWaitResult {
    /// The facts are complete.
    Complete(Facts),
    /// The item is to be handed over.
    HandOver,
    /// The partition was revoked during the wait.
    AssignmentLost,
}

/// Conditions that may depend on scores.
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

/// Request for the scores of one item. The wait ends if the ticket is cancelled.
#[derive(Clone, Copy)]
pub(crate) struct ScoreRequest<'a> {
    pub(crate) org: &'a OrgId,
    /// Memory of the item during the wait.
    pub(crate) bytes: usize,
    pub(crate) prepared: &'a PreparedItem,
    pub(crate) conditions: Conditions,
    pub(crate) scan: &'a Arc<Scan>,
    pub(crate) ticket: &'a Ticket,
    pub(crate) slot: &'a ConcurrencySlot,
}

enum WaitEnd {
    Answered,
    Failed(Error),
    TimedOut,
    AssignmentLost,
}

impl ScoreWait {
    pub(crate) fn short(scorer: Scorer, pool: ComputePool, settings: &MediaSettings) -> Self {
        let permits = media_wait::short_wait_permits(settings);
        Self {
            scorer,
            pool,
            wait_limit: Duration::from_millis(settings.wait_ms),
            mode: WaitMode::Short(permits),
        }
    }

    pub(crate) fn slow(scorer: Scorer, pool: ComputePool, settings: &MediaSettings) -> Self {
        // Each model counts as one host with a part of its org's permits. All are "known": the circuit breaker handles
        // models that do not answer.
        let queue = SlowQueue::new(media_wait::slow_limits(settings), |_, _| true);
        let total_limit = Duration::from_millis(settings.slow_total_ms);
        let wait_limit = Duration::from_millis(settings.slow_wait_ms);
        Self { scorer, pool, wait_limit, mode: WaitMode::Slow(queue, total_limit) }
    }

    /// Adds the required scores to the facts. The cheapest model of each rule is called first, the next one only if the
    /// rule still depends on it.
    pub(crate) async fn complete(
        &self,
        request: ScoreRequest<'_>,
        mut facts: Facts,
    ) -> Result<ScoreWaitResult, Error> {
        let models = undecided_models(&request, &facts);
        if !models.is_empty() {
            let wait_end = match &self.mode {
                WaitMode::Short(permits) => {
                    let Some(_permit) = permits.try_acquire(request.org, &[], 0) else {
                        metrics::record_handover("share");
                        return Ok(ScoreWaitResult::HandOver);
                    };
                    self.ask_until(request, &mut facts, Instant::now() + self.wait_limit).await
                }
                WaitMode::Slow(queue, total_limit) => {
                    self.ask_with_permit(queue, Instant::now() + *total_limit, request, models, &mut facts)
                        .await
                }
            };
            match (wait_end, &self.mode) {
                (WaitEnd::AssignmentLost, _) => return Ok(ScoreWaitResult::AssignmentLost),
                (WaitEnd::Failed(error), _) => return Err(error),
                (WaitEnd::TimedOut, WaitMode::Short(_)) => {
                    metrics::record_handover("time");
                    return Ok(ScoreWaitResult::HandOver);
                }
                (WaitEnd::TimedOut, WaitMode::Slow(..)) => {
                    self.fail_undecided(request, &mut facts, "deadline").await;
                }
                (WaitEnd::Answered, _) => {}
            }
        }
        // No rule depends on the remaining scores. Explanations show them as skipped instead of failed.
        facts.skip_scores(request.scan.pending_needs());
        Ok(ScoreWaitResult::Complete(facts))
    }

    async fn ask_with_permit(
        &self,
        queue: &SlowQueue,
        deadline: Instant,
        request: ScoreRequest<'_>,
        models: Vec<String>,
        facts: &mut Facts,
    ) -> WaitEnd {
        let hosts: Vec<_> = models.into_iter().map(Into::into).collect();
        let acquire_permit = async {
            tokio::select! {
                biased;
                () = request.ticket.cancelled() => Err(WaitEnd::AssignmentLost),
                permit = queue.acquire(request.org, &hosts, request.bytes) => Ok(permit),
                () = sleep_until(deadline) => Err(WaitEnd::TimedOut),
            }
        };
        let _permit = match request.slot.release_during(acquire_permit).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(queue_full)) => {
                metrics::record_refused_slow_item(queue_full);
                self.fail_undecided(request, facts, "over_share").await;
                return WaitEnd::Answered;
            }
            Err(wait_end) => return wait_end,
        };
        self.ask_until(request, facts, deadline.min(Instant::now() + self.wait_limit)).await
    }

    async fn ask_until(&self, request: ScoreRequest<'_>, facts: &mut Facts, deadline: Instant) -> WaitEnd {
        request
            .slot
            .release_during(async {
                tokio::select! {
                    biased;
                    () = request.ticket.cancelled() => WaitEnd::AssignmentLost,
                    result = self.ask_models(request, facts) => result.map_or_else(WaitEnd::Failed, |()| WaitEnd::Answered),
                    () = sleep_until(deadline) => WaitEnd::TimedOut,
                }
            })
            .await
    }

    /// Calls models until no rule depends on a score. Each round resolves at least one need, so the loop ends.
    async fn ask_models(&self, request: ScoreRequest<'_>, facts: &mut Facts) -> Result<(), Error> {
        loop {
            let mut cheapest_needs: Vec<Need> = Vec::new();
            for rule_needs in self.undecided_needs(request, facts).await {
                let cheapest = rule_needs.into_iter().min_by_key(|need| need_cost(request.prepared, need));
                cheapest_needs.extend(cheapest.filter(|need| !cheapest_needs.contains(need)));
            }
            if cheapest_needs.is_empty() {
                return Ok(());
            }
            let answers = join_all(cheapest_needs.iter().map(|need| self.score_need(request, need))).await;
            for (need, answer) in cheapest_needs.into_iter().zip(answers) {
                match answer? {
                    Some(Ok(scores)) => facts.set_scores(need, (*scores).clone()),
                    Some(Err(reason)) => facts.set_failed(need, &*reason),
                    None => facts.set_unknown(need),
                }
            }
        }
    }

    /// Returns the scores that each rule still depends on.
    async fn undecided_needs(&self, request: ScoreRequest<'_>, facts: &Facts) -> Vec<Vec<Need>> {
        let config = Arc::clone(&request.prepared.config);
        if !facts.has_texts() {
            return request.conditions.undecided_scores(&config, request.scan, facts);
        }
        let (scan, facts, conditions) = (Arc::clone(request.scan), facts.clone(), request.conditions);
        let find_undecided = move || conditions.undecided_scores(&config, &scan, &facts);
        // A panic is not reported here: it occurs again when the rules are decided, with the rule that caused it.
        self.pool.run(request.org, find_undecided).await.unwrap_or_default()
    }

    /// Marks the missing scores as failed.
    async fn fail_undecided(&self, request: ScoreRequest<'_>, facts: &mut Facts, reason: &str) {
        for need in self.undecided_needs(request, facts).await.into_iter().flatten() {
            facts.set_failed(need, reason);
        }
    }

    /// Requests the score of one model. Returns `None` if the item has no input for the model.
    async fn score_need(&self, request: ScoreRequest<'_>, need: &Need) -> Result<Option<ScoreAnswer>, Error> {
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

fn need_cost(prepared: &PreparedItem, need: &Need) -> u32 {
    match need {
        Need::Score { model, .. } => prepared.config.signal(model).map_or(0, |signal| signal.cost),
        _ => 0,
    }
}

/// Returns the models that the item may need, sorted, each once.
fn undecided_models(request: &ScoreRequest<'_>, facts: &Facts) -> Vec<String> {
    if !request.scan.pending_needs().iter().any(|need| matches!(need, Need::Score { .. })) {
        return Vec::new();
    }
    let undecided_needs = request.conditions.undecided_scores(&request.prepared.config, request.scan, facts);
    let mut models: Vec<String> = undecided_needs.into_iter().flatten().filter_map(model_of_need).collect();
    models.sort_unstable();
    models.dedup();
    models
}

fn model_of_need(need: Need) -> Option<String> {
    if let Need::Score { model, .. } = need { Some(model) } else { None }
}
