//! Retries a part until it is done, in the dead letters, or abandoned because its partition was revoked.

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
use tidegate_catalog::Live;
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
    error::{Disposition, Panicked, TaskError},
    handler::{BatchOutcome, BatchPart, DeadPart, Handler, Job, Part},
    key_queues::QueuedPart,
    missing_config::{ConsumerState, MissingConfigAction, MissingConfigs},
    slot::{ConcurrencySlot, ConcurrencySlots},
};
use crate::{
    health::{Health, OutageReport},
    metrics,
    settings::Settings,
};

/// Reason of dead letters that made room for other orgs while their own org's configuration was missing.
const CONFIG_MISSING: &str = "config_missing";

/// State that all parts of one consumer share.
pub(crate) struct RetryLoop<H> {
    pub(crate) role: Role,
    pub(crate) handler: H,
    pub(crate) settings: Arc<Settings>,
    pub(crate) slots: ConcurrencySlots,
    live: Arc<Live>,
    health: Health,
    /// Number of parts that wait for the log or the store.
    outages: AtomicUsize,
    /// Number of parts that wait for a catalog that is at fault.
    catalog_waits: AtomicUsize,
    missing_configs: Mutex<MissingConfigs>,
    progress: Mutex<Progress>,
    backpressure: Backpressure,
    started_at: Instant,
}

/// Tells how long the consumer has been stuck.
struct Progress {
    last_finished_at: Instant,
    /// Set while no further part can be admitted.
    full_since: Option<Instant>,
}

/// End of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOutcome {
    Done,
    DeadLettered,
    /// Sent to the dead letters without a try, or without it being at fault.
    Diverted,
    /// Left to the next owner of the partition.
    Abandoned,
}

impl<H: Handler> RetryLoop<H> {
    pub(crate) fn new(
        role: Role,
        handler: H,
        live: Arc<Live>,
        settings: Arc<Settings>,
        health: Health,
        backpressure: Backpressure,
    ) -> Self {
        let started_at = Instant::now();
        let missing_configs = MissingConfigs::new(settings.missing.clone(), settings.forget_missing());
        Self {
            role,
            handler,
            live,
            slots: ConcurrencySlots::new(settings.concurrency),
            outages: AtomicUsize::new(0),
            catalog_waits: AtomicUsize::new(0),
            missing_configs: Mutex::new(missing_configs),
            progress: Mutex::new(Progress { last_finished_at: started_at, full_since: None }),
            backpressure,
            started_at,
            settings,
            health,
        }
    }

    /// Runs a batch once. What it leaves is to be run part by part.
    pub(crate) async fn run_batch(&self, parts: Vec<BatchPart<H::Record, H::Guard>>) -> BatchOutcome {
        let count = parts.len();
        let result = AssertUnwindSafe(self.handler.handle_batch(parts)).catch_unwind().await;
        result.unwrap_or_else(|_| BatchOutcome::retry_all(count))
    }

    pub(crate) async fn run(
        &self,
        part: &QueuedPart<Arc<Job<H::Record>>>,
        slot: ConcurrencySlot,
        is_diverted: bool,
    ) -> PartOutcome {
        let job = &part.record;
        if is_diverted {
            let detail = "most of the org's content could not be processed".to_owned();
            return Box::pin(self.divert(part, "org_diverted", detail)).await;
        }
        let mut backoff = Backoff::new(&self.settings);
        let mut wait: Option<WaitGuard<'_>> = None;
        let mut unreadable_since = None;
        let mut is_retry = part.is_retry;
        loop {
            let attempt = Part { job: Arc::clone(job), index: part.index, is_retry, slot: &slot };
            let result = AssertUnwindSafe(self.handler.handle(attempt)).catch_unwind().await;
            let error = match result.unwrap_or(Err(TaskError::Panicked(Panicked))) {
                Ok(()) => return PartOutcome::Done,
                Err(error) => error,
            };
            let disposition = match error.disposition() {
                Disposition::Abandon => return PartOutcome::Abandoned,
                Disposition::AwaitConfig => match self.on_missing_config(&part.key.org, &error) {
                    MissingConfigAction::Wait => Disposition::AwaitConfig,
                    MissingConfigAction::HaltAll => Disposition::AwaitCatalog,
                    MissingConfigAction::Divert => {
                        return self.divert(part, CONFIG_MISSING, error.to_string()).await;
                    }
                },
                Disposition::RetryForAWhile => {
                    let since = *unreadable_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.settings.defect_patience() {
                        Disposition::DeadLetter
                    } else {
                        Disposition::RetryForAWhile
                    }
                }
                other => other,
            };
            if disposition == Disposition::DeadLetter {
                return Box::pin(self.dead_letter_part(part, error.tag(), error.to_string())).await;
            }
            // A part whose configuration was missing has failed before it wrote anything, so its next try is the first.
            is_retry |= !matches!(disposition, Disposition::AwaitConfig | Disposition::AwaitCatalog);
            let waits_as_before = wait.as_ref().is_some_and(|wait| wait.is_for(error.tag(), disposition));
            if !waits_as_before {
                tracing::debug!(role = %self.role, tag = error.tag(), "{error}");
                wait = Some(self.begin_wait(error.tag(), disposition));
            }
            // Without its slot, so that parts which wait for one org's configuration do not stop the others.
            slot.release();
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = job.ticket.cancelled() => return PartOutcome::Abandoned,
            }
            slot.acquire().await;
        }
    }

    fn on_missing_config(&self, org: &OrgId, error: &TaskError) -> MissingConfigAction {
        let state = ConsumerState {
            now: self.started_at.elapsed(),
            can_judge: self.live.ready() && self.outages.load(Ordering::Relaxed) == 0,
            running_orgs: self.live.running(),
            stuck_for: self.progress.lock().stuck_for(self.backpressure.paused_for()),
        };
        let (action, is_new, is_newly_diverted) = {
            let mut missing = self.missing_configs.lock();
            let before = (missing.count(), missing.diverted());
            let action = missing.decide(org, self.live.org(org).is_some(), state);
            metrics::set_missing_configurations(self.role, missing.count());
            (action, missing.count() > before.0, missing.diverted() > before.1)
        };
        if is_new {
            tracing::error!(role = %self.role, %org, tag = error.tag(),
                "content waits for its org's configuration: {error}");
        }
        if is_newly_diverted {
            tracing::error!(role = %self.role, %org, tag = error.tag(),
                "content that waits for its org's configuration blocks other orgs: it goes to the dead letters with \
                 the reason {CONFIG_MISSING}; replay it once the configuration is there");
        }
        action
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.progress.lock().set_full(is_full);
    }

    pub(crate) fn note_finished(&self) {
        self.progress.lock().last_finished_at = Instant::now();
    }

    /// True unless something is unavailable that every further part would need.
    pub(crate) fn may_admit(&self) -> bool {
        self.outages.load(Ordering::Relaxed) == 0 && self.catalog_waits.load(Ordering::Relaxed) == 0
    }

    async fn divert(
        &self,
        part: &QueuedPart<Arc<Job<H::Record>>>,
        tag: &'static str,
        detail: String,
    ) -> PartOutcome {
        match self.dead_letter_part(part, tag, detail).await {
            PartOutcome::DeadLettered => PartOutcome::Diverted,
            other => other,
        }
    }

    async fn dead_letter_part(
        &self,
        part: &QueuedPart<Arc<Job<H::Record>>>,
        tag: &'static str,
        detail: String,
    ) -> PartOutcome {
        let job = &part.record;
        let DeadPart { datum, submission_id } = H::dead_part(job, part.index);
        let reason = self.reason(tag, detail, Some(part.key.org.clone()), submission_id);
        self.dead_letter(&job.ticket, &datum, reason).await
    }

    /// Writes a dead letter, retrying until it is written or the partition is revoked.
    pub(crate) async fn dead_letter(
        &self,
        ticket: &Ticket,
        datum: &[u8],
        reason: DeadLetterReason,
    ) -> PartOutcome {
        let mut backoff = Backoff::new(&self.settings);
        let mut wait = None;
        loop {
            let Err(error) = ticket.dead_letter(datum, reason.clone()).await else {
                tracing::warn!(role = %self.role, position = %ticket.position(), tag = reason.tag, "to the dead letters");
                return PartOutcome::DeadLettered;
            };
            wait.get_or_insert_with(|| self.begin_wait(error.tag(), Disposition::AwaitRecovery));
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = ticket.cancelled() => return PartOutcome::Abandoned,
            }
        }
    }

    pub(crate) fn reason(
        &self,
        tag: &'static str,
        detail: String,
        org: Option<OrgId>,
        submission_id: Option<SubmissionId>,
    ) -> DeadLetterReason {
        DeadLetterReason { stage: self.role.0, tag, detail, org, submission_id }
    }

    fn begin_wait(&self, tag: &'static str, disposition: Disposition) -> WaitGuard<'_> {
        let count = match disposition {
            Disposition::AwaitRecovery => Some(&self.outages),
            Disposition::AwaitCatalog => Some(&self.catalog_waits),
            Disposition::DeadLetter
            | Disposition::RetryForAWhile
            | Disposition::AwaitConfig
            | Disposition::Abandon => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // A row or configuration that one org lacks is a metric and a log line. The process stays ready for the others.
        let report = count.map(|_| self.health.report_outage(self.role, tag));
        if report.is_none() {
            metrics::part_held(self.role, tag);
        }
        WaitGuard { tag, disposition, count, _report: report }
    }
}

/// Registered wait of a part. Dropping it ends the wait.
struct WaitGuard<'a> {
    tag: &'static str,
    disposition: Disposition,
    count: Option<&'a AtomicUsize>,
    _report: Option<OutageReport>,
}

impl WaitGuard<'_> {
    fn is_for(&self, tag: &str, disposition: Disposition) -> bool {
        self.tag == tag && self.disposition == disposition
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.count {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Progress {
    fn set_full(&mut self, is_full: bool) {
        self.full_since = is_full.then(|| self.full_since.unwrap_or_else(Instant::now));
    }

    /// Returns for how long nothing was finished while nothing could be admitted, here or because the log's budget was
    /// spent.
    fn stuck_for(&self, paused_for: Option<Duration>) -> Duration {
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
