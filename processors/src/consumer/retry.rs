//! Tries a part until it is done, in the dead letters, or left because its assignment is gone.
//!
//! Which part is next is the `worker`'s matter, what a part leads to a `Handler`'s.

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
use tidegate_schemas::ids::{OrgId, SubmissionId};
use tidegate_stream::{
    consumer::{
        inbox::Backpressure,
        ticket::{DeadLetterReason, Ticket},
    },
    topics::Role,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};

use crate::{
    Health, Settings,
    consumer::backoff::Backoff,
    consumer::error::{Class, Fault},
    consumer::handler::{Handler, Job},
    consumer::key_queues::Work,
    consumer::missing_config::{Missing, Scene, Verdict},
    consumer::slot::Place,
    health::Complaint,
    items::compute_pool::Panicked,
};

/// The reason of dead letters that made room while their org's configuration was missing.
const CONFIG_MISSING: &str = "config_missing";

/// What all parts of one worker share.
pub(crate) struct Trying<H> {
    pub(crate) role: Role,
    pub(crate) handler: H,
    pub(crate) settings: Arc<Settings>,
    health: Health,
    pub(crate) slots: Arc<Semaphore>,
    /// Works that wait for the log or the store.
    outages: AtomicUsize,
    /// Works that wait for a catalog that is at fault.
    halts: AtomicUsize,
    missing: Mutex<Missing>,
    progress: Mutex<Progress>,
    gate: Backpressure,
    began: Instant,
}

/// Whether the consumer moves.
struct Progress {
    /// When a part was last finished.
    finished_at: Instant,
    /// Since when there is no room for more parts.
    full_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Done,
    Poisoned,
    Diverted,
    /// The assignment is gone: another owner works on it.
    Left,
}

impl<H: Handler> Trying<H> {
    pub(crate) fn new(
        role: Role,
        handler: H,
        settings: Arc<Settings>,
        health: Health,
        gate: Backpressure,
    ) -> Self {
        let began = Instant::now();
        Self {
            role,
            handler,
            slots: Arc::new(Semaphore::new(settings.concurrency)),
            outages: AtomicUsize::new(0),
            halts: AtomicUsize::new(0),
            missing: Mutex::new(Missing::new(settings.missing.clone(), settings.forget_missing())),
            progress: Mutex::new(Progress { finished_at: began, full_since: None }),
            gate,
            began,
            settings,
            health,
        }
    }

    pub(crate) async fn work(
        &self,
        work: &Work<Arc<Job<H::Record>>>,
        slot: OwnedSemaphorePermit,
        is_diverted: bool,
    ) -> How {
        let job = &work.record;
        if is_diverted {
            let detail = "most of the org's content could not be processed".to_owned();
            return match Box::pin(self.bury_part(work, "org_diverted", detail)).await {
                How::Poisoned => How::Diverted,
                other => other,
            };
        }
        let place = Place::new(Arc::clone(&self.slots), slot);
        let mut backoff = Backoff::new(&self.settings);
        let mut waits: Option<Waits<'_>> = None;
        let mut defect_since = None;
        let mut again = false;
        loop {
            let tried = AssertUnwindSafe(self.handler.handle(Arc::clone(job), work.part, again, &place));
            let fault = match tried.catch_unwind().await.unwrap_or(Err(Fault::Panicked(Panicked))) {
                Ok(()) => return How::Done,
                Err(fault) => fault,
            };
            let class = match fault.class() {
                Class::Lost => return How::Left,
                // Nothing was done: it failed before there was anything to do.
                Class::Missing => match self.missing(&work.key.org, &fault) {
                    Verdict::Wait => Class::Missing,
                    Verdict::Stop => Class::Halted,
                    Verdict::Divert => {
                        return match self.bury_part(work, CONFIG_MISSING, fault.to_string()).await {
                            How::Poisoned => How::Diverted,
                            other => other,
                        };
                    }
                },
                Class::Defect => {
                    let since = *defect_since.get_or_insert_with(Instant::now);
                    let is_spent = since.elapsed() >= self.settings.defect_patience();
                    if is_spent { Class::Content } else { Class::Defect }
                }
                other => other,
            };
            again |= !matches!(class, Class::Missing | Class::Halted);
            if class == Class::Content {
                return Box::pin(self.bury_part(work, fault.tag(), fault.to_string())).await;
            }
            let waits_as_before = waits.as_ref().is_some_and(|waits| waits.is_for(fault.tag(), class));
            if !waits_as_before {
                tracing::debug!(role = %self.role, tag = fault.tag(), "{fault}");
                waits = Some(self.wait_for(fault.tag(), class));
            }
            // Whoever waits for one org's configuration takes nobody's turn.
            place.leave();
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = job.ticket.cancelled() => return How::Left,
            }
            place.take().await;
        }
    }

    /// What becomes of a part whose configuration is missing.
    fn missing(&self, org: &OrgId, fault: &Fault) -> Verdict {
        let live = self.handler.live();
        let scene = Scene {
            now: self.began.elapsed(),
            is_calm: live.ready() && self.outages.load(Ordering::Relaxed) == 0,
            running: live.running(),
            stuck_for: self.progress.lock().stuck_for(self.gate.paused_for()),
        };
        let (verdict, is_new, makes_room) = {
            let mut missing = self.missing.lock();
            let before = (missing.count(), missing.diverted());
            let verdict = missing.judge(org, live.org(org).is_some(), scene);
            let count = u32::try_from(missing.count()).unwrap_or(u32::MAX);
            metrics::gauge!("tidegate_missing_configurations", "role" => self.role.0).set(count);
            (verdict, missing.count() > before.0, missing.diverted() > before.1)
        };
        if is_new {
            tracing::error!(role = %self.role, %org, tag = fault.tag(),
                "content waits for its org's configuration: {fault}");
        }
        if makes_room {
            tracing::error!(role = %self.role, %org, tag = fault.tag(),
                "content that waits for its org's configuration stands in the way of others: it goes to the dead \
                 letters, reason {CONFIG_MISSING}, to be replayed once the configuration is there");
        }
        verdict
    }

    /// Whether there is no room for more parts.
    pub(crate) fn full(&self, is_full: bool) {
        self.progress.lock().full(is_full);
    }

    /// A part has ended.
    pub(crate) fn finished(&self) {
        self.progress.lock().finished_at = Instant::now();
    }

    /// Nothing that every part would meet is in the way.
    pub(crate) fn may_begin(&self) -> bool {
        self.outages.load(Ordering::Relaxed) == 0 && self.halts.load(Ordering::Relaxed) == 0
    }

    async fn bury_part(&self, work: &Work<Arc<Job<H::Record>>>, tag: &'static str, detail: String) -> How {
        let job = &work.record;
        let submission_id = H::submission(&job.record, work.part);
        let why = self.reason(tag, detail, Some(work.key.org.clone()), submission_id);
        self.bury(&job.ticket, &H::alone(job, work.part), why).await
    }

    /// Writes a dead letter, however long it takes.
    pub(crate) async fn bury(&self, ticket: &Ticket, part: &[u8], why: DeadLetterReason) -> How {
        let mut backoff = Backoff::new(&self.settings);
        let mut waits = None;
        loop {
            let Err(error) = ticket.dead_letter(part, why.clone()).await else {
                tracing::warn!(role = %self.role, position = %ticket.position(), tag = why.tag, "to the dead letters");
                return How::Poisoned;
            };
            waits.get_or_insert_with(|| self.wait_for(error.tag(), Class::Outage));
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = ticket.cancelled() => return How::Left,
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

    fn wait_for(&self, tag: &'static str, class: Class) -> Waits<'_> {
        let counted = match class {
            Class::Outage => Some(&self.outages),
            Class::Halted => Some(&self.halts),
            Class::Content | Class::Defect | Class::Missing | Class::Lost => None,
        };
        if let Some(counted) = counted {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        // What one org's rows or configuration lack is a metric and a log line; the process stays ready for the rest.
        let complaint = counted.map(|_| self.health.complain(self.role, tag));
        if complaint.is_none() {
            metrics::counter!("tidegate_processing_held_total", "role" => self.role.0, "tag" => tag)
                .increment(1);
        }
        Waits { tag, class, counted, _complaint: complaint }
    }
}

/// A work that waits, and why. Dropping it ends the wait.
struct Waits<'a> {
    tag: &'static str,
    class: Class,
    counted: Option<&'a AtomicUsize>,
    _complaint: Option<Complaint>,
}

impl Waits<'_> {
    fn is_for(&self, tag: &str, class: Class) -> bool {
        self.tag == tag && self.class == class
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(counted) = self.counted {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Progress {
    fn full(&mut self, is_full: bool) {
        self.full_since = is_full.then(|| self.full_since.unwrap_or_else(Instant::now));
    }

    /// For how long there was no room, here or in the log's budget, and nothing was finished.
    fn stuck_for(&self, closed_for: Option<Duration>) -> Duration {
        let full_for = self.full_since.map(|since| since.elapsed());
        full_for.max(closed_for).unwrap_or_default().min(self.finished_at.elapsed())
    }
}

impl How {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Poisoned => "dead_letter",
            Self::Diverted => "diverted",
            Self::Left => "left",
        }
    }
}
