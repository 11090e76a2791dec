//! Retries a part until it is done, written to the dead letters, or abandoned after its partition was revoked.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_catalog::LiveConfigs;
use tidegate_schemas::ids::{OrgId, SubmissionId};
use tidegate_stream::{
    consumer::{
        inbox::Backpressure,
        ticket::{DeadLetterReason, Ticket},
    },
    topics::Role,
};
use tokio::time::{Instant, sleep};

use super::{
    backoff::Backoff,
    error::{ComputationPanic, Disposition, TaskError},
    handler::{BatchOutcome, DeadLetterContent, Handler, HandlerBatchPart, HandlerJob, Part},
    key_queues::QueuedPart,
    missing_config::{ConsumerState, MissingConfigAction, MissingConfigs},
    slot::{ConcurrencySlot, ConcurrencySlots},
};
use crate::{
    health::{Health, OutageReport},
    metrics,
    settings::Settings,
};

/// Reason of dead letters that were diverted because their org's configuration was missing.
const CONFIG_MISSING: &str = "config_missing";

/// Shared state of the parts of one consumer.
pub(crate) struct RetryLoop<H> {
    pub(crate) role: Role,
    pub(crate) handler: H,
    pub(crate) settings: Arc<Settings>,
    pub(crate) slots: ConcurrencySlots,
    live: Arc<LiveConfigs>,
    health: Health,
    /// Number of parts that wait for the log or the store.
    parts_in_outage: AtomicUsize,
    /// Number of parts that wait for the catalog.
    catalog_waits: AtomicUsize,
    missing_configs: Mutex<MissingConfigs>,
    stall_timer: Mutex<StallTimer>,
    backpressure: Backpressure,
    started_at: Instant,
}

/// Measures how long the consumer has been full without finishing a part.
struct StallTimer {
    last_finished_at: Instant,
    /// Set while no further part can be admitted.
    full_since: Option<Instant>,
}

/// Final state of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOutcome {
    Done,
    DeadLettered,
    /// Sent to the dead letters without an attempt, or for a missing configuration.
    Diverted,
    /// The next owner of the partition processes it.
    Abandoned,
}

impl<H: Handler> RetryLoop<H> {
    pub(crate) fn new(
        role: Role,
        handler: H,
        live: Arc<LiveConfigs>,
        settings: Arc<Settings>,
        health: Health,
        backpressure: Backpressure,
    ) -> Self {
        let started_at = Instant::now();
        let missing_configs =
            MissingConfigs::new(settings.missing.clone(), settings.missing_config_retention());
        Self {
            role,
            handler,
            live,
            slots: ConcurrencySlots::new(settings.concurrency),
            parts_in_outage: AtomicUsize::new(0),
            catalog_waits: AtomicUsize::new(0),
            missing_configs: Mutex::new(missing_configs),
            stall_timer: Mutex::new(StallTimer { last_finished_at: started_at, full_since: None }),
            backpressure,
            started_at,
            settings,
            health,
        }
    }

    /// Runs a batch once. Its remaining parts are run one by one.
    pub(crate) async fn run_batch(&self, parts: Vec<HandlerBatchPart<H>>) -> BatchOutcome {
        let part_count = parts.len();
        let result = AssertUnwindSafe(self.handler.handle_batch(parts)).catch_unwind().await;
        result.unwrap_or_else(|_| BatchOutcome::all_for_retry(part_count))
    }

    pub(crate) async fn run_part(
        &self,
        part: &QueuedPart<Arc<HandlerJob<H>>>,
        guard: &mut H::Guard,
        slot: ConcurrencySlot,
        is_diverted: bool,
    ) -> PartOutcome {
        let job = &part.record;
        if is_diverted {
            // Boxed: otherwise the rare path would enlarge the future of every part.
            let detail = "most of the org's content could not be processed".to_owned();
            return Box::pin(self.divert_part(part, "org_diverted", detail)).await;
        }
        let mut backoff = Backoff::new(&self.settings);
        let mut wait_guard: Option<WaitGuard<'_>> = None;
        let mut defect_since = None;
        let mut is_retry = part.is_retry;
        loop {
            let attempt =
                Part { job: Arc::clone(job), index: part.index, is_retry, guard: &mut *guard, slot: &slot };
            let result = AssertUnwindSafe(self.handler.handle(attempt)).catch_unwind().await;
            let error = match result.unwrap_or(Err(TaskError::Panicked(ComputationPanic))) {
                Ok(()) => return PartOutcome::Done,
                Err(error) => error,
            };
            H::release_waiters(guard);
            let disposition = match error.disposition() {
                Disposition::Abandon => return PartOutcome::Abandoned,
                Disposition::AwaitConfig => match self.decide_missing_config(&part.key.org, &error) {
                    MissingConfigAction::Wait => Disposition::AwaitConfig,
                    MissingConfigAction::HaltAll => Disposition::AwaitCatalog,
                    MissingConfigAction::Divert => {
                        return self.divert_part(part, CONFIG_MISSING, error.to_string()).await;
                    }
                },
                Disposition::RetryForLimitedTime => {
                    let first_failure = *defect_since.get_or_insert_with(Instant::now);
                    if first_failure.elapsed() >= self.settings.defect_patience() {
                        Disposition::DeadLetter
                    } else {
                        Disposition::RetryForLimitedTime
                    }
                }
                other => other,
            };
            if disposition == Disposition::DeadLetter {
                return Box::pin(self.dead_letter_part(part, error.tag(), error.to_string())).await;
            }
            // A missing configuration is detected before the first write, so the next attempt still counts as the first.
            is_retry |= !matches!(disposition, Disposition::AwaitConfig | Disposition::AwaitCatalog);
            let is_same_wait =
                wait_guard.as_ref().is_some_and(|guard| guard.has_reason(error.tag(), disposition));
            // Logged and registered once per wait, not at every retry.
            if !is_same_wait {
                tracing::debug!(role = %self.role, tag = error.tag(), "{error}");
                wait_guard = Some(self.begin_wait(error.tag(), disposition));
            }
            // The wait holds no slot: parts that wait for one org's configuration must not block the other orgs.
            slot.release();
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = job.ticket.cancelled() => return PartOutcome::Abandoned,
            }
            slot.acquire().await;
        }
    }

    fn decide_missing_config(&self, org: &OrgId, error: &TaskError) -> MissingConfigAction {
        let state = ConsumerState {
            now: self.started_at.elapsed(),
            // During an outage the newest configuration cannot be read, so a missing one proves no defect.
            is_catalog_current: self.live.is_ready() && self.parts_in_outage.load(Ordering::Relaxed) == 0,
            running_orgs: self.live.count_running_orgs(),
            stalled_for: self.stall_timer.lock().stalled_for(self.backpressure.pause_duration()),
        };
        let (action, is_new, is_newly_diverted) = {
            let mut missing_configs = self.missing_configs.lock();
            let counts_before = (missing_configs.count_orgs(), missing_configs.count_diverted());
            let action = missing_configs.decide(org, self.live.org(org).is_some(), state);
            metrics::set_missing_configurations(self.role, missing_configs.count_orgs());
            (
                action,
                missing_configs.count_orgs() > counts_before.0,
                missing_configs.count_diverted() > counts_before.1,
            )
        };
        if is_new {
            tracing::error!(role = %self.role, %org, tag = error.tag(),
                "content waits for its org's configuration: {error}");
        }
        if is_newly_diverted {
            tracing::error!(role = %self.role, %org, tag = error.tag(),
                "content that waits for its org's configuration blocks other orgs: it is sent to the dead letters with \
                 the reason {CONFIG_MISSING}; replay it after the configuration is loaded");
        }
        action
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.stall_timer.lock().set_full(is_full);
    }

    pub(crate) fn record_progress(&self) {
        self.stall_timer.lock().last_finished_at = Instant::now();
    }

    /// True while log, store and catalog are available. Every further part needs them.
    pub(crate) fn may_admit(&self) -> bool {
        self.parts_in_outage.load(Ordering::Relaxed) == 0 && self.catalog_waits.load(Ordering::Relaxed) == 0
    }

    async fn divert_part(
        &self,
        part: &QueuedPart<Arc<HandlerJob<H>>>,
        tag: &'static str,
        detail: String,
    ) -> PartOutcome {
        match self.dead_letter_part(part, tag, detail).await {
            PartOutcome::DeadLettered => PartOutcome::Diverted,
            outcome => outcome,
        }
    }

    async fn dead_letter_part(
        &self,
        part: &QueuedPart<Arc<HandlerJob<H>>>,
        tag: &'static str,
        detail: String,
    ) -> PartOutcome {
        let job = &part.record;
        let DeadLetterContent { datum, submission_id } = H::dead_letter_content(job, part.index);
        let reason = self.dead_letter_reason(tag, detail, Some(part.key.org.clone()), submission_id);
        self.write_dead_letter(&job.ticket, &datum, reason).await
    }

    /// Writes a dead letter, retrying until it is written or the partition is revoked.
    pub(crate) async fn write_dead_letter(
        &self,
        ticket: &Ticket,
        datum: &[u8],
        reason: DeadLetterReason,
    ) -> PartOutcome {
        let mut backoff = Backoff::new(&self.settings);
        let mut wait_guard = None;
        loop {
            let Err(error) = ticket.dead_letter(datum, reason.clone()).await else {
                tracing::warn!(role = %self.role, position = %ticket.position(), tag = reason.tag, "a part was written to the dead letters");
                return PartOutcome::DeadLettered;
            };
            wait_guard.get_or_insert_with(|| self.begin_wait(error.tag(), Disposition::AwaitRecovery));
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = ticket.cancelled() => return PartOutcome::Abandoned,
            }
        }
    }

    pub(crate) fn dead_letter_reason(
        &self,
        tag: &'static str,
        detail: String,
        org: Option<OrgId>,
        submission_id: Option<SubmissionId>,
    ) -> DeadLetterReason {
        DeadLetterReason { stage: self.role.0, tag, detail, org, submission_id }
    }

    fn begin_wait(&self, tag: &'static str, disposition: Disposition) -> WaitGuard<'_> {
        let counter = match disposition {
            Disposition::AwaitRecovery => Some(&self.parts_in_outage),
            Disposition::AwaitCatalog => Some(&self.catalog_waits),
            Disposition::DeadLetter
            | Disposition::RetryForLimitedTime
            | Disposition::AwaitConfig
            | Disposition::Abandon => None,
        };
        if let Some(count) = counter {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // A missing row or configuration concerns one org. It is counted and logged, and the process stays ready for
        // the others.
        let outage_report = counter.map(|_| self.health.report_outage(self.role, tag));
        if outage_report.is_none() {
            metrics::record_held_part(self.role, tag);
        }
        WaitGuard { tag, disposition, counter, _report: outage_report }
    }
}

/// Registered wait of a part. Dropping it unregisters the wait.
struct WaitGuard<'a> {
    tag: &'static str,
    disposition: Disposition,
    counter: Option<&'a AtomicUsize>,
    _report: Option<OutageReport>,
}

impl WaitGuard<'_> {
    fn has_reason(&self, tag: &str, disposition: Disposition) -> bool {
        self.tag == tag && self.disposition == disposition
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.counter {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl StallTimer {
    fn set_full(&mut self, is_full: bool) {
        self.full_since = is_full.then(|| self.full_since.unwrap_or_else(Instant::now));
    }

    /// Returns the time without a finished part during which no part could be admitted: the consumer was full, or the log's
    /// budget was spent for `paused_for`.
    fn stalled_for(&self, paused_for: Option<Duration>) -> Duration {
        // A full consumer that still finishes parts is busy, not stalled.
        let full_for = self.full_since.map(|since| since.elapsed());
        full_for.max(paused_for).unwrap_or_default().min(self.last_finished_at.elapsed())
    }
}

impl PartOutcome {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::DeadLettered => "dead_letter",
            Self::Diverted => "diverted",
            Self::Abandoned => "left",
        }
    }
}
