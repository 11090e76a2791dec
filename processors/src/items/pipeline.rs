//! The item pipeline: from a record of items to stored rows and effects. Methods stand in the order in which they run.
//!
//! Items that start together are first evaluated and stored as a batch. An item that needs more than its own data goes
//! through the steps of [`ItemRun`], each of which returns the next state or ends the run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate_catalog::{self as catalog, Compiled};
use tidegate_moderation::{
    self as moderation, child_safety,
    effects::{self, Plan, Refused},
    items::{
        batch::BatchItem,
        evaluate::{self, Prepared, ScanResult},
        stored::Submission,
        submissions::{self, ReplayState},
    },
    media::Wanted,
    review::{
        report_routing,
        rerouting::{Occasion, reroute_waiting_job},
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
    /// Evaluates items of one org in one task, and stores those without effects in one batch; others go on alone.
    pub(super) async fn run_batch(&self, mut parts: Vec<ItemBatchPart>) -> BatchOutcome {
        let count = parts.len();
        let guards: Vec<_> = parts.iter_mut().map(|part| part.guard.take()).collect();
        let newest = parts.iter().max_by_key(|part| part.job.record.config_version);
        let Some(job) = newest.map(|part| Arc::clone(&part.job)) else {
            return BatchOutcome::leave_all(count);
        };
        // Whatever fails here fails again, and by its name, when each item is handled by itself.
        let Ok(config) = self.config(&job.record, job.written_at).await else {
            return BatchOutcome::leave_all(count);
        };
        let evaluate = move |interrupt: &Interrupt| evaluate_batch(&parts, &config, interrupt);
        let Ok(items) = self.pool.run_for(&job.record.org, &job.ticket, evaluate).await else {
            return BatchOutcome::leave_all(count);
        };
        self.note_delay(&job);
        let is_done = |nth: &usize| matches!(items.get(*nth), Some(Some(BatchItem { rows: Some(_), .. })));
        let (done, left): (Vec<usize>, Vec<usize>) = (0..count).partition(is_done);
        // Items that may ask what windows have counted store their rows one after the other, each before it asks.
        let entries = items.iter().flatten().filter(|item| item.rows.is_some());
        let entries = entries.map(|item| (item.moment, &*item.entries));
        // New, since a record whose items may have been stored before never comes here.
        if self.facts.count(&job.record.org, entries, true).await.is_err() {
            return BatchOutcome::retry_all(count);
        }
        done.iter().filter_map(|nth| guards[*nth].as_ref()).for_each(WindowGuard::set_counted);
        drop(guards);
        let rows = items.into_iter().flatten().filter_map(|item| item.rows).collect::<Vec<_>>();
        match submissions::store_new(&self.deps, &rows).await {
            Ok(()) => {
                self.counters.count_quiet(&job.record.org, rows.len());
                BatchOutcome { left, is_retry: false }
            }
            Err(_) => BatchOutcome::retry_all(count),
        }
    }

    /// Takes one item through all steps.
    pub(super) async fn run_single(&self, part: Part<'_, records::Items>) -> Result<(), TaskError> {
        let Part { job, index, is_retry, slot } = part;
        if let Some(cause) = job.context_of {
            return self.look_at_attached_media(&job, index, cause, slot).await;
        }
        let window_guard = self.window_guard(&job, index).map(Arc::new);
        let submission = submission(&job, index);
        if is_retry || may_be_replay(&job, index) {
            let state = submissions::replay_state(&self.deps, &submission).await?;
            if !matches!(state, ReplayState::Fresh) {
                drop(window_guard);
                return self.finish_earlier_run(&job, &submission, state).await;
            }
        }
        window_guard.iter().for_each(|guard| guard.set_evaluated_here());
        let no_reviews = submissions::no_reviews(&self.deps, &job.record).await?;
        let config = self.config(&job.record, submission.at.append_ms).await?;
        let is_first_run = !is_retry && !may_be_replay(&job, index);
        let run = ItemRun {
            pipeline: self,
            job: &job,
            index,
            submission,
            config,
            no_reviews,
            slot,
            window_guard,
            is_first_run,
        };
        match job.record.source {
            Source::Retroact => run.reevaluate().await,
            Source::PartialItems => run.store_fetched().await,
            _ => run.run().await,
        }
    }

    /// Routes the waiting job of the item again, if the evaluation may have changed what the routing list for reports says.
    pub(super) async fn reroute(
        &self,
        submission: &Submission<'_>,
        opens_reviews: bool,
    ) -> Result<(), TaskError> {
        let Submission { header, entry, at, .. } = submission;
        if header.source != Source::Report && !opens_reviews {
            return Ok(());
        }
        let config = self.config(header, at.append_ms).await?;
        let (item, occasion) = (entry.key(), Occasion::Evaluated(header.report_id));
        let rerouted = reroute_waiting_job(&self.deps, &config, &item, occasion, Millis::now());
        Ok(Box::pin(rerouted).await?)
    }

    /// Tells ingest how long the org's items wait. Those that were handed over have waited for something else.
    fn note_delay(&self, job: &ItemJob) {
        if job.at.partition.topic == Topic::Items {
            let waited = Millis::now().0.saturating_sub(job.written_at.0).max(0);
            let delay = Duration::from_millis(waited.unsigned_abs());
            self.deps.live.processing_load().set_delay(&job.record.org, delay, Instant::now());
        }
    }

    /// Returns the configuration at the version that ingest validated the record with, or a later one.
    pub(super) async fn config(
        &self,
        header: &records::Items,
        written_at: Millis,
    ) -> Result<Arc<Compiled>, TaskError> {
        if let Some(config) = self.deps.live.org(&header.org)
            && config.version() >= header.config_version
        {
            return Ok(config);
        }
        let found = effects::config(&self.deps, &header.org, header.config_version, written_at);
        Ok(Box::pin(found).await?)
    }
}

/// One item on its way through the steps.
pub(super) struct ItemRun<'a> {
    pub(super) pipeline: &'a ItemPipeline,
    pub(super) job: &'a Arc<ItemJob>,
    pub(super) index: usize,
    pub(super) submission: Submission<'a>,
    pub(super) config: Arc<Compiled>,
    /// Reason why no reviews are opened for the item, if so.
    pub(super) no_reviews: Option<&'static str>,
    pub(super) slot: &'a ConcurrencySlot,
    /// Place among the items that are counted in windows.
    pub(super) window_guard: Option<Arc<WindowGuard>>,
    /// True if no earlier run has stored anything of the item.
    is_first_run: bool,
}

/// An item that fits its type, and how far its rules are decided.
pub(super) struct Evaluation {
    pub(super) prepared: Prepared,
    scan: ScanResult,
    wanted: Vec<Wanted>,
}

impl ItemRun<'_> {
    async fn run(mut self) -> Result<(), TaskError> {
        let evaluation = self.prepare().await?;
        // Counted before anything is waited for, so that slow media delay nobody who asks what windows have counted.
        self.count_windows(&evaluation).await?;
        let Some(evaluation) = self.await_media(evaluation).await? else { return Ok(()) };
        let Some((prepared, outcome)) = self.look_up_facts(evaluation).await? else { return Ok(()) };
        if !Box::pin(self.ask_routing_scores(&prepared, &outcome)).await? {
            return Ok(());
        }
        let refused = self.check_limits(&prepared, &outcome).await?;
        let plan = self.plan(&prepared, &outcome, &refused).await?;
        let opens_reviews = !plan.reviews.is_empty();
        self.carry_out(plan).await?;
        self.pipeline.reroute(&self.submission, opens_reviews).await
    }

    /// Checks the item against its type, and decides what can be decided from the item alone.
    pub(super) async fn prepare(&self) -> Result<Evaluation, TaskError> {
        let (job, index, config) = (Arc::clone(self.job), self.index, Arc::clone(&self.config));
        let prepare = move |interrupt: &Interrupt| {
            let Submission { header, entry, at, .. } = submission(&job, index);
            let prepared = evaluate::prepare(config, header.source, entry, at.append_ms)?;
            let Some(scan) = evaluate::scan_until(&prepared, interrupt) else { return Ok(None) };
            let wanted = prepared.wanted();
            Ok(Some(Evaluation { prepared, scan, wanted }))
        };
        let Job { record, ticket, .. } = &**self.job;
        let evaluation = self.pipeline.pool.run_for(&record.org, ticket, prepare).await?;
        self.pipeline.note_delay(self.job);
        let evaluation =
            evaluation.map_err(|error| not_configured_yet(error, record, self.config.version()))?;
        // Interrupted: the caller has given up by now.
        evaluation.ok_or(TaskError::AssignmentLost)
    }

    /// Stores what the item adds to windows.
    async fn count_windows(&self, evaluation: &Evaluation) -> Result<(), TaskError> {
        // Fetched items add to nothing: the platform may send the same ones again and again.
        let is_counted = self.job.record.source != Source::PartialItems;
        if let (true, ScanResult::Waiting(scan)) = (is_counted, &evaluation.scan) {
            let counted = (moment(self.job, self.index), scan.entries());
            // An item with media may be counted again after the wait for them.
            let is_new = self.is_first_run && evaluation.wanted.is_empty();
            self.pipeline.facts.count(&self.job.record.org, [counted], is_new).await?;
        }
        self.window_guard.iter().for_each(|guard| guard.set_counted());
        Ok(())
    }

    /// Waits for the item's media. `None`: the item was handed over to the topic of those that wait longer.
    pub(super) async fn await_media(
        &mut self,
        mut evaluation: Evaluation,
    ) -> Result<Option<Evaluation>, TaskError> {
        if evaluation.wanted.is_empty() || self.job.is_without_media {
            return Ok(Some(evaluation));
        }
        let (pipeline, job) = (self.pipeline, self.job);
        let bytes = self.submission.entry.data.len();
        let org = &job.record.org;
        let request =
            MediaRequest { org, item: &evaluation.prepared.key, bytes, ticket: &job.ticket, slot: self.slot };
        let found = match pipeline.media.wait_for_media(request, &evaluation.wanted).await {
            MediaWaitResult::Found(found) => found,
            MediaWaitResult::Later(media) => {
                let version = self.config.version();
                submissions::accept(&pipeline.deps, &self.submission, version, &media, job.is_resent).await?;
                return Ok(None);
            }
            MediaWaitResult::Left => return Err(TaskError::AssignmentLost),
        };
        // The wait may have been long: what is configured by now counts.
        let config = pipeline.config(&job.record, self.submission.at.append_ms).await?;
        if config.version() != self.config.version() {
            self.config = config;
            evaluation = self.prepare().await?;
            self.count_windows(&evaluation).await?;
        }
        let judge = move || {
            evaluation.prepared.judge(&found);
            evaluation
        };
        Ok(Some(pipeline.pool.run(org, judge).await?))
    }

    /// Looks up what undecided rules ask for, models last, and decides them. `None`: the item was handed over to the
    /// topic of those that wait longer.
    async fn look_up_facts(&self, evaluation: Evaluation) -> Result<Option<(Prepared, Outcome)>, TaskError> {
        let Evaluation { prepared, scan, .. } = evaluation;
        let scan = match scan {
            ScanResult::Finished(outcome) => return Ok(Some((prepared, outcome))),
            ScanResult::Waiting(scan) => Arc::new(scan),
        };
        let asking = FactRequest {
            org: &self.job.record.org,
            moment: moment(self.job, self.index),
            plan: prepared.config.plan(),
            media: &prepared.media,
            guard: self.window_guard.as_ref(),
        };
        let facts = self.pipeline.facts.fetch(asking, &scan).await?;
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
            ScoreWaitResult::Answered(facts) => facts,
            ScoreWaitResult::Later => {
                let (version, media) = (prepared.config.version(), &prepared.media.shown);
                submissions::accept(&pipeline.deps, &self.submission, version, media, job.is_resent).await?;
                return Ok(None);
            }
            ScoreWaitResult::Left => return Err(TaskError::AssignmentLost),
        };
        let finish = move |_: &Interrupt| {
            // A search that the wait has left behind may still hold it.
            let outcome = evaluate::finish(&prepared, Arc::unwrap_or_clone(scan), &facts);
            (prepared, outcome)
        };
        Ok(Some(pipeline.pool.run_for(&job.record.org, &job.ticket, finish).await?))
    }

    /// Asks models for the scores that the routing of the item's report depends on, so that they are kept for it. False: the
    /// item was handed over to the topic of those that wait longer.
    async fn ask_routing_scores(&self, prepared: &Prepared, outcome: &Outcome) -> Result<bool, TaskError> {
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
            ScoreWaitResult::Answered(_) => Ok(true),
            ScoreWaitResult::Later => {
                let (version, media) = (prepared.config.version(), &prepared.media.shown);
                submissions::accept(&pipeline.deps, &self.submission, version, media, job.is_resent).await?;
                Ok(false)
            }
            ScoreWaitResult::Left => Err(TaskError::AssignmentLost),
        }
    }

    /// Asks the limits of rules that are about to act. Returns the rules that may not.
    async fn check_limits(&self, prepared: &Prepared, outcome: &Outcome) -> Result<Refused, TaskError> {
        let claims = submissions::claims(&self.submission, prepared, outcome, self.no_reviews, None);
        if claims.is_empty() {
            return Ok(Refused::new());
        }
        let refused = self.pipeline.limits.request(self.applicant(), &claims).await?;
        tidegate_stream::failpoint!("after_limits");
        Ok(refused)
    }

    async fn plan(
        &self,
        prepared: &Prepared,
        outcome: &Outcome,
        refused: &Refused,
    ) -> Result<Plan, TaskError> {
        let mut plan = submissions::plan(&self.submission, prepared, outcome, self.no_reviews, refused, None);
        if self.job.is_resent && plan.has_effects() && self.pipeline.is_superseded(&self.submission).await? {
            plan.supersede()?;
        }
        Ok(plan)
    }

    pub(super) async fn carry_out(&self, plan: Plan) -> Result<(), TaskError> {
        let Submission { header, entry, at, .. } = self.submission;
        // Asked before the plan opens a job: the match that hands an item over to child safety counts like any other.
        let is_child_safety = !plan.counted.is_empty()
            && child_safety::is_restricted(&self.pipeline.deps.store, &header.org, &entry.key()).await?;
        let outcomes = submissions::carry_out(&self.pipeline.deps, &self.submission, plan).await?;
        self.pipeline.counters.count(&header.org, at.append_ms, &outcomes, is_child_safety);
        Ok(())
    }

    pub(super) fn applicant(&self) -> LimitRequest<'_> {
        let Submission { header, entry, at, .. } = &self.submission;
        LimitRequest { org: &header.org, submission: entry.submission_id, at: at.append_ms }
    }
}

/// Content that does not fit a configuration older than the one it was accepted under may fit once that one is there.
fn not_configured_yet(
    error: moderation::Error,
    header: &records::Items,
    head: ConfigVersion,
) -> moderation::Error {
    let wanted = header.config_version;
    match error {
        moderation::Error::Content { .. } if head < wanted => {
            catalog::Error::NoSuchVersion { org: header.org.clone(), wanted, head }.into()
        }
        other => other,
    }
}
