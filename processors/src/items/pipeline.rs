//! Item pipeline: evaluates items, stores their rows and carries out their effects. Methods stand in the order of
//! execution.
//!
//! Items that start together are first evaluated and stored as a batch. An item that needs more than its own data takes the
//! steps of [`ItemRun`]; each step returns the next state or ends the run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate_catalog::{self as catalog, Compiled};
use tidegate_moderation::{
    self as moderation, child_safety,
    effects::{self, LimitRefusals, Plan},
    items::{
        batch::BatchItem,
        evaluate::{self, PreparedItem, ScanResult},
        stored::Submission,
        submissions::{self, ReplayState},
    },
    media::MediumRequest,
    review::{
        report_routing,
        rerouting::{RerouteTrigger, reroute_waiting_job},
    },
};
use tidegate_rules::{Facts, Interrupt, Outcome};
use tidegate_schemas::{
    ids::{ConfigVersion, Millis},
    records::{self, Source},
};
use tidegate_stream::Topic;

use super::{
    compute_pool::ComputePool,
    fact_lookup::{FactLookup, FactRequest},
    job::{ItemBatchPart, ItemJob, evaluate_batch, may_be_replay, moment, submission},
    media_wait::{MediaRequest, MediaWait, MediaWaitResult},
    rule_counters::OutcomeCounters,
    rule_limits::{LimitRequest, RuleLimits},
    score_wait::{Conditions, ScoreRequest, ScoreWait, ScoreWaitResult},
    window_order::WindowGuard,
};
use crate::consumer::{
    error::TaskError,
    handler::{BatchOutcome, Job, Part},
    slot::ConcurrencySlot,
};

/// Handler of the topics `items` and `items-slow`.
pub(crate) struct ItemPipeline {
    pub(crate) deps: moderation::Deps,
    pub(crate) pool: ComputePool,
    pub(crate) facts: FactLookup,
    pub(crate) limits: RuleLimits,
    pub(crate) counters: OutcomeCounters,
    pub(crate) media: MediaWait,
    pub(crate) scores: ScoreWait,
}

impl ItemPipeline {
    /// Evaluates items of one org in one task and stores those without effects in one batch. The others remain for
    /// `run_single`.
    pub(super) async fn run_batch(&self, mut parts: Vec<ItemBatchPart>) -> BatchOutcome {
        let part_count = parts.len();
        // `parts` moves into the computation, but the guards must live until the items are counted.
        let guards: Vec<_> = parts.iter_mut().map(|part| part.guard.take()).collect();
        // An item may be evaluated under a later configuration than its own, so the newest one serves all.
        let newest_part = parts.iter().max_by_key(|part| part.job.record.config_version);
        let Some(job) = newest_part.map(|part| Arc::clone(&part.job)) else {
            return BatchOutcome::all_remaining(part_count);
        };
        // An error is not reported here: it occurs again in `run_single`, with the item that caused it.
        let Ok(config) = self.load_config(&job.record, job.written_at).await else {
            return BatchOutcome::all_remaining(part_count);
        };
        let evaluate = move |interrupt: &Interrupt| evaluate_batch(&parts, &config, interrupt);
        let Ok(items) = self.pool.run_for(&job.record.org, &job.ticket, evaluate).await else {
            return BatchOutcome::all_remaining(part_count);
        };
        self.report_delay(&job);
        let has_rows =
            |position: &usize| matches!(items.get(*position), Some(Some(BatchItem { rows: Some(_), .. })));
        let (storable_positions, remaining_positions): (Vec<usize>, Vec<usize>) =
            (0..part_count).partition(has_rows);
        // Only items that are done with this batch are counted here. The others count themselves in `run_single`.
        let storable_items = items.iter().flatten().filter(|item| item.rows.is_some());
        let window_entries = storable_items.map(|item| (item.moment, &*item.entries));
        // `true`: a batch has only items of first runs, so none of them has window rows yet.
        if self.facts.count_items(&job.record.org, window_entries, true).await.is_err() {
            return BatchOutcome::all_for_retry(part_count);
        }
        storable_positions
            .iter()
            .filter_map(|position| guards[*position].as_ref())
            .for_each(|guard| guard.set_counted());
        drop(guards);
        let rows = items.into_iter().flatten().filter_map(|item| item.rows).collect::<Vec<_>>();
        match submissions::store_new(&self.deps, &rows).await {
            Ok(()) => {
                self.counters.count_quiet(&job.record.org, rows.len());
                BatchOutcome { remaining_positions, is_retry: false }
            }
            Err(_) => BatchOutcome::all_for_retry(part_count),
        }
    }

    /// Processes one item: repairs an earlier run, or takes the item through all steps.
    pub(super) async fn run_single(&self, part: Part<'_, Self>) -> Result<(), TaskError> {
        let Part { job, index, is_retry, guard, slot } = part;
        if let Some(cause) = job.headers.context_of {
            return self.inspect_attached_media(&job, index, cause, slot).await;
        }
        // An attempt that failed before the count has given its place up. The item is now counted after later ones.
        if guard.is_none() {
            *guard = self.take_window_place(&job, index);
        }
        let submission = submission(&job, index);
        if is_retry || may_be_replay(&job, index) {
            let state = submissions::load_replay_state(&self.deps, &submission).await?;
            if !matches!(state, ReplayState::Fresh) {
                // The item is not counted again, so later readers of windows need not wait for it.
                *guard = None;
                return self.finish_earlier_run(&job, &submission, state).await;
            }
        }
        guard.iter().for_each(|guard| guard.set_evaluated_here());
        let no_reviews = submissions::review_suppression(&self.deps, &job.record).await?;
        let config = self.load_config(&job.record, submission.at.append_ms).await?;
        let is_first_run = !is_retry && !may_be_replay(&job, index);
        let run = ItemRun {
            pipeline: self,
            job: &job,
            index,
            submission,
            config,
            no_review_reason: no_reviews,
            slot,
            window_guard: guard.clone(),
            is_first_run,
        };
        match job.record.source {
            Source::Retroact => run.reevaluate().await,
            Source::PartialItems => run.store_fetched().await,
            _ => run.run().await,
        }
    }

    /// Routes the waiting job of the item again if the evaluation may have changed its queue.
    pub(super) async fn reroute_job(
        &self,
        submission: &Submission<'_>,
        opens_reviews: bool,
    ) -> Result<(), TaskError> {
        let Submission { header, entry, at, .. } = submission;
        if header.source != Source::Report && !opens_reviews {
            return Ok(());
        }
        let config = self.load_config(header, at.append_ms).await?;
        let (item, occasion) = (entry.key(), RerouteTrigger::Evaluated(header.report_id));
        let rerouting = reroute_waiting_job(&self.deps, &config, &item, occasion, Millis::now());
        Ok(Box::pin(rerouting).await?)
    }

    /// Reports the delay of the org's items to ingest. Items of `items-slow` are left out, because they also waited for
    /// media or models.
    fn report_delay(&self, job: &ItemJob) {
        if job.position.partition.topic == Topic::Items {
            let waited_ms = Millis::now().0.saturating_sub(job.written_at.0).max(0);
            let delay = Duration::from_millis(waited_ms.unsigned_abs());
            self.deps.live.processing_load().set_delay(&job.record.org, delay, Instant::now());
        }
    }

    /// Loads the configuration in the version that ingest validated the record with, or a later one.
    pub(super) async fn load_config(
        &self,
        header: &records::Items,
        written_at: Millis,
    ) -> Result<Arc<Compiled>, TaskError> {
        if let Some(config) = self.deps.live.org(&header.org)
            && config.version() >= header.config_version
        {
            return Ok(config);
        }
        let loading = effects::load_config(&self.deps, &header.org, header.config_version, written_at);
        Ok(Box::pin(loading).await?)
    }
}

/// Run of one item through the steps.
pub(super) struct ItemRun<'a> {
    pub(super) pipeline: &'a ItemPipeline,
    pub(super) job: &'a Arc<ItemJob>,
    pub(super) index: usize,
    pub(super) submission: Submission<'a>,
    pub(super) config: Arc<Compiled>,
    /// Reason that forbids reviews for the item, if any.
    pub(super) no_review_reason: Option<&'static str>,
    pub(super) slot: &'a ConcurrencySlot,
    /// Place in the order of window counts.
    pub(super) window_guard: Option<Arc<WindowGuard>>,
    /// True if no earlier run can have stored rows of the item.
    is_first_run: bool,
}

/// Validated item and the state of its rules.
pub(super) struct Evaluation {
    pub(super) prepared: PreparedItem,
    scan: ScanResult,
    wanted_media: Vec<MediumRequest>,
}

impl ItemRun<'_> {
    async fn run(mut self) -> Result<(), TaskError> {
        let evaluation = self.prepare().await?;
        // Before any wait: later items that read windows wait for this count, so slow media must not delay it.
        self.count_windows(&evaluation).await?;
        let Some(evaluation) = self.await_media(evaluation).await? else { return Ok(()) };
        let Some((prepared, outcome)) = self.look_up_facts(evaluation).await? else { return Ok(()) };
        if !Box::pin(self.ask_routing_scores(&prepared, &outcome)).await? {
            return Ok(());
        }
        let refused_rules = self.check_limits(&prepared, &outcome).await?;
        let plan = self.plan(&prepared, &outcome, &refused_rules).await?;
        let opens_reviews = !plan.reviews.is_empty();
        self.carry_out(plan).await?;
        self.pipeline.reroute_job(&self.submission, opens_reviews).await
    }

    /// Validates the item against its type and decides the rules that need only the item's data.
    pub(super) async fn prepare(&self) -> Result<Evaluation, TaskError> {
        let (job, index, config) = (Arc::clone(self.job), self.index, Arc::clone(&self.config));
        let prepare = move |interrupt: &Interrupt| {
            let Submission { header, entry, at, .. } = submission(&job, index);
            let prepared = evaluate::prepare(config, header.source, entry, at.append_ms)?;
            let Some(scan) = evaluate::scan_until(&prepared, interrupt) else { return Ok(None) };
            let wanted_media = prepared.media_to_inspect();
            Ok(Some(Evaluation { prepared, scan, wanted_media }))
        };
        let Job { record, ticket, .. } = &**self.job;
        let evaluation = self.pipeline.pool.run_for(&record.org, ticket, prepare).await?;
        self.pipeline.report_delay(self.job);
        let evaluation =
            evaluation.map_err(|error| map_outdated_config_error(error, record, self.config.version()))?;
        // `None`: the evaluation was interrupted, which happens only after the assignment was lost.
        evaluation.ok_or(TaskError::AssignmentLost)
    }

    /// Adds the item to its windows.
    async fn count_windows(&self, evaluation: &Evaluation) -> Result<(), TaskError> {
        // Fetched items are not counted, because the platform may return the same items for many requests.
        let is_counted = self.job.record.source != Source::PartialItems;
        if let (true, ScanResult::Waiting(scan)) = (is_counted, &evaluation.scan) {
            let counted_item = (moment(self.job, self.index), scan.entries());
            // An item with media may be counted a second time after the wait, under a newer configuration.
            let is_new = self.is_first_run && evaluation.wanted_media.is_empty();
            self.pipeline.facts.count_items(&self.job.record.org, [counted_item], is_new).await?;
        }
        self.window_guard.iter().for_each(|guard| guard.set_counted());
        Ok(())
    }

    /// Waits for the item's media. `None`: the item was handed over to `items-slow`.
    pub(super) async fn await_media(
        &mut self,
        mut evaluation: Evaluation,
    ) -> Result<Option<Evaluation>, TaskError> {
        if evaluation.wanted_media.is_empty() || self.job.headers.is_without_media {
            return Ok(Some(evaluation));
        }
        let (pipeline, job) = (self.pipeline, self.job);
        let bytes = self.submission.entry.data.len();
        let org = &job.record.org;
        let request =
            MediaRequest { org, item: &evaluation.prepared.key, bytes, ticket: &job.ticket, slot: self.slot };
        let signals = match pipeline.media.wait_for_media(request, &evaluation.wanted_media).await {
            MediaWaitResult::Found(signals) => signals,
            MediaWaitResult::HandOver(media) => {
                let version = self.config.version();
                submissions::accept(&pipeline.deps, &self.submission, version, &media, job.headers.is_resent)
                    .await?;
                return Ok(None);
            }
            MediaWaitResult::AssignmentLost => return Err(TaskError::AssignmentLost),
        };
        // After a long wait the configuration may have changed. Deciding under the old version would ignore the change.
        let config = pipeline.load_config(&job.record, self.submission.at.append_ms).await?;
        if config.version() != self.config.version() {
            self.config = config;
            evaluation = self.prepare().await?;
            self.count_windows(&evaluation).await?;
        }
        let judge = move || {
            evaluation.prepared.match_media(&signals);
            evaluation
        };
        Ok(Some(pipeline.pool.run(org, judge).await?))
    }

    /// Looks up the facts of undecided rules, models last, and decides the rules. `None`: the item was handed over to
    /// `items-slow`.
    async fn look_up_facts(
        &self,
        evaluation: Evaluation,
    ) -> Result<Option<(PreparedItem, Outcome)>, TaskError> {
        let Evaluation { prepared, scan, .. } = evaluation;
        let scan = match scan {
            ScanResult::Finished(outcome) => return Ok(Some((prepared, outcome))),
            ScanResult::Waiting(scan) => Arc::new(scan),
        };
        let fact_request = FactRequest {
            org: &self.job.record.org,
            moment: moment(self.job, self.index),
            plan: prepared.config.plan(),
            media: &prepared.media,
            guard: self.window_guard.as_ref(),
        };
        let facts = self.pipeline.facts.fetch_facts(fact_request, &scan).await?;
        let (pipeline, job) = (self.pipeline, self.job);
        let request = ScoreRequest {
            org: &job.record.org,
            bytes: self.submission.entry.data.len(),
            prepared: &prepared,
            conditions: Conditions::Rules,
            scan: &scan,
            ticket: &job.ticket,
            slot: self.slot,
        };
        let facts = match pipeline.scores.complete(request, facts).await? {
            ScoreWaitResult::Complete(facts) => facts,
            ScoreWaitResult::HandOver => {
                let (version, media) = (prepared.config.version(), &prepared.media.rows);
                submissions::accept(&pipeline.deps, &self.submission, version, media, job.headers.is_resent)
                    .await?;
                return Ok(None);
            }
            ScoreWaitResult::AssignmentLost => return Err(TaskError::AssignmentLost),
        };
        let decide = move |_: &Interrupt| {
            // An abandoned computation of the wait may still hold the scan, hence the clone.
            let outcome = evaluate::finish(&prepared, Arc::unwrap_or_clone(scan), &facts);
            (prepared, outcome)
        };
        Ok(Some(pipeline.pool.run_for(&job.record.org, &job.ticket, decide).await?))
    }

    /// Requests the scores that the routing of the item's report depends on; routing reads the stored scores. `false`:
    /// the item was handed over to `items-slow`.
    async fn ask_routing_scores(
        &self,
        prepared: &PreparedItem,
        outcome: &Outcome,
    ) -> Result<bool, TaskError> {
        let (pipeline, job) = (self.pipeline, self.job);
        let Some(report_id) = job.record.report_id else { return Ok(true) };
        let scan = report_routing::scan_scores(&pipeline.deps, prepared, outcome, report_id).await?;
        let Some(scan) = scan.map(Arc::new) else { return Ok(true) };
        let request = ScoreRequest {
            org: &job.record.org,
            bytes: self.submission.entry.data.len(),
            prepared,
            conditions: Conditions::ReportRouting,
            scan: &scan,
            ticket: &job.ticket,
            slot: self.slot,
        };
        match pipeline.scores.complete(request, Facts::new()).await? {
            ScoreWaitResult::Complete(_) => Ok(true),
            ScoreWaitResult::HandOver => {
                let (version, media) = (prepared.config.version(), &prepared.media.rows);
                submissions::accept(&pipeline.deps, &self.submission, version, media, job.headers.is_resent)
                    .await?;
                Ok(false)
            }
            ScoreWaitResult::AssignmentLost => Err(TaskError::AssignmentLost),
        }
    }

    /// Checks the limits of the matching rules. Returns the rules that may not act.
    async fn check_limits(
        &self,
        prepared: &PreparedItem,
        outcome: &Outcome,
    ) -> Result<LimitRefusals, TaskError> {
        let claims =
            submissions::limit_requests(&self.submission, prepared, outcome, self.no_review_reason, None);
        if claims.is_empty() {
            return Ok(LimitRefusals::new());
        }
        let refused_rules = self.pipeline.limits.request_claims(self.limit_request(), &claims).await?;
        tidegate_stream::failpoint!("after_limits");
        Ok(refused_rules)
    }

    async fn plan(
        &self,
        prepared: &PreparedItem,
        outcome: &Outcome,
        refused_rules: &LimitRefusals,
    ) -> Result<Plan, TaskError> {
        let mut plan = submissions::plan(
            &self.submission,
            prepared,
            outcome,
            self.no_review_reason,
            refused_rules,
            None,
        );
        // A resent dead letter may be older than the stored version of the item. Its effects would replace newer ones.
        if self.job.headers.is_resent
            && plan.has_effects()
            && self.pipeline.is_superseded(&self.submission).await?
        {
            plan.supersede()?;
        }
        Ok(plan)
    }

    pub(super) async fn carry_out(&self, plan: Plan) -> Result<(), TaskError> {
        let Submission { header, entry, at, .. } = self.submission;
        // Read before the plan opens a job: a match that sends the item to child safety is still counted in the statistics.
        let is_child_safety = !plan.rule_outcomes.is_empty()
            && child_safety::is_restricted(&self.pipeline.deps.store, &header.org, &entry.key()).await?;
        let outcomes = submissions::carry_out(&self.pipeline.deps, &self.submission, plan).await?;
        self.pipeline.counters.count(&header.org, at.append_ms, &outcomes, is_child_safety);
        Ok(())
    }

    pub(super) fn limit_request(&self) -> LimitRequest<'_> {
        let Submission { header, entry, at, .. } = &self.submission;
        LimitRequest { org: &header.org, submission: entry.submission_id, appended_at: at.append_ms }
    }
}

/// Maps a content error under an outdated configuration to a missing version. The content may be valid under the
/// version that accepted it, so it must wait for that version.
fn map_outdated_config_error(
    error: moderation::Error,
    header: &records::Items,
    loaded_version: ConfigVersion,
) -> moderation::Error {
    let required_version = header.config_version;
    match error {
        moderation::Error::Content { .. } if loaded_version < required_version => {
            catalog::Error::NoSuchVersion {
                org: header.org.clone(),
                wanted: required_version,
                head: loaded_version,
            }
            .into()
        }
        error => error,
    }
}
