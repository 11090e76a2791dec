//! The loop of every consumer: admits records to the lanes, works on their parts, and completes their tickets.
//!
//! It does not know what a record leads to: a `Handler` does.
//!
//! A part ends in one of three ways: done, in the dead letters, or left because its assignment is gone. Whatever
//! else happens is tried again without limit; while the log or the store is away nothing new is admitted.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_catalog::Live;
use tidegate_moderation::{
    context_media::{self as context, CONTEXT},
    submissions::RESENT,
};
use tidegate_schemas::{
    ids::{Millis, OrgId, SubmissionId},
    records::Record,
};
use tidegate_stream::{Drained, Gate, Inbox, Position, Reason, Received, Role, Ticket, failpoint};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
    time::{Instant, sleep, sleep_until},
};
use uuid::Uuid;

use crate::{
    Health, RoleError, Settings,
    backoff::Backoff,
    error::{Class, Fault},
    health::Complaint,
    lanes::{Ended, Key, Lanes, Work},
    missing::{Missing, Scene, Verdict},
    place::Place,
    poison::{self, Watch},
    pool::Panicked,
};

/// The reason of dead letters that made room while their org's configuration was missing.
const CONFIG_MISSING: &str = "config_missing";

/// A record that is worked on.
#[derive(Debug)]
pub(crate) struct Job<R> {
    pub(crate) record: R,
    pub(crate) value: Bytes,
    pub(crate) at: Position,
    pub(crate) written_at: Millis,
    pub(crate) maybe_replayed: bool,
    /// It was a dead letter.
    pub(crate) is_resent: bool,
    /// Only the media of its items are wanted, for the job that has this cause.
    pub(crate) context_of: Option<Uuid>,
    pub(crate) ticket: Ticket,
}

/// What the records of a topic lead to.
pub(crate) trait Handler: Send + Sync + 'static {
    type Record: Record + Send + Sync + 'static;

    /// The key and the size of each part.
    fn parts(record: &Self::Record) -> Vec<(Key, usize)>;

    fn submission(record: &Self::Record, part: usize) -> Option<SubmissionId>;

    /// Whose configurations run here.
    fn live(&self) -> &Live;

    /// The datum of a record that holds nothing but the part.
    fn alone(job: &Job<Self::Record>, part: usize) -> Vec<u8> {
        let _ = part;
        job.value.to_vec()
    }

    /// Done when everything that the part leads to is durable. `again`: this process has tried it before. It may leave
    /// its place while it waits for others.
    fn handle(
        &self,
        job: Arc<Job<Self::Record>>,
        part: usize,
        again: bool,
        place: &Place,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// What the tasks of one worker share.
struct Shared<H> {
    role: Role,
    handler: H,
    settings: Arc<Settings>,
    health: Health,
    slots: Arc<Semaphore>,
    /// Works that wait for the log or the store.
    outages: AtomicUsize,
    /// Works that wait for a catalog that is at fault.
    halts: AtomicUsize,
    missing: Mutex<Missing>,
    progress: Mutex<Progress>,
    gate: Gate,
    began: Instant,
}

/// Whether the consumer moves.
struct Progress {
    /// When a part was last finished.
    finished_at: Instant,
    /// Since when there is no room for more parts.
    full_since: Option<Instant>,
}

enum Done<R> {
    Part {
        work: Work<Arc<Job<R>>>,
        how: How,
    },
    /// A record that could not be read.
    Unreadable {
        ticket: Ticket,
        how: How,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Done,
    Poisoned,
    Diverted,
    /// The assignment is gone: another owner works on it.
    Left,
}

pub(crate) struct Worker<H: Handler> {
    shared: Arc<Shared<H>>,
    inbox: Inbox,
    lanes: Lanes<Arc<Job<H::Record>>>,
    under_way: JoinSet<Done<H::Record>>,
    watch: Watch,
    began: Instant,
    is_open: bool,
    failure: Option<RoleError>,
}

impl<H: Handler> Worker<H> {
    pub(crate) fn new(role: Role, inbox: Inbox, handler: H, settings: Arc<Settings>, health: Health) -> Self {
        let began = Instant::now();
        Self {
            lanes: Lanes::new(settings.room()),
            under_way: JoinSet::new(),
            watch: Watch::new(settings.poison.clone()),
            began,
            is_open: true,
            failure: None,
            shared: Arc::new(Shared {
                role,
                handler,
                slots: Arc::new(Semaphore::new(settings.concurrency)),
                outages: AtomicUsize::new(0),
                halts: AtomicUsize::new(0),
                missing: Mutex::new(Missing::new(settings.missing.clone(), settings.forget_missing())),
                progress: Mutex::new(Progress { finished_at: began, full_since: None }),
                gate: inbox.gate(),
                began,
                settings,
                health,
            }),
            inbox,
        }
    }

    /// Runs until the inbox ends, and what was begun has ended.
    pub(crate) async fn run(mut self) -> Result<Drained, RoleError> {
        let mut ownership = self.inbox.ownership();
        let mut driver_lives = true;
        let give_up = sleep_until(self.began);
        tokio::pin!(give_up);
        let mut is_forced = false;
        loop {
            while self.lanes.has_ready()
                && let Ok(slot) = Arc::clone(&self.shared.slots).try_acquire_owned()
            {
                self.start(slot);
            }
            if !self.is_open && self.lanes.is_empty() && self.under_way.is_empty() {
                break;
            }
            let was_open = self.is_open;
            let has_room = self.lanes.has_room();
            self.shared.progress.lock().full(!has_room);
            let admits = self.is_open && has_room && self.shared.may_begin();
            tokio::select! {
                biased;
                Some(done) = self.under_way.join_next() => self.ended(done),
                changed = ownership.changed(), if driver_lives => {
                    driver_lives = changed.is_ok();
                    self.drop_lost();
                }
                slot = Arc::clone(&self.shared.slots).acquire_owned(), if self.lanes.has_ready() => {
                    if let Ok(slot) = slot {
                        self.start(slot);
                    }
                }
                batch = self.inbox.next(), if admits => match batch {
                    Ok(Some(batch)) => {
                        failpoint!("after_poll");
                        for received in batch {
                            self.admit(received);
                        }
                    }
                    Ok(None) => self.is_open = false,
                    Err(error) => self.fail(error.into()),
                },
                () = &mut give_up, if !self.is_open => {
                    is_forced = true;
                    break;
                }
            }
            if was_open && !self.is_open {
                give_up.as_mut().reset(Instant::now() + self.shared.settings.drain());
            }
        }
        self.under_way.shutdown().await;
        drop(self.lanes);
        let drained = self.inbox.drained().await;
        match self.failure {
            Some(failure) => Err(failure),
            None if is_forced => Ok(Drained::Forced),
            None => Ok(drained),
        }
    }

    fn admit(&mut self, received: Received) {
        let record = match received.decode::<H::Record>() {
            Ok(record) => record,
            Err(malformed) => return self.unreadable(received, malformed.to_string()),
        };
        let parts = H::parts(&record);
        let job = Arc::new(Job {
            record,
            value: received.value,
            at: received.at,
            written_at: received.written_at,
            maybe_replayed: received.maybe_replayed,
            is_resent: received.headers.get(RESENT).is_some(),
            context_of: received.headers.get(CONTEXT).and_then(|cause| context::cause_of(cause)),
            ticket: received.ticket,
        });
        if let Some(ended) = self.lanes.admit(job, parts) {
            self.settle(ended);
        }
    }

    fn start(&mut self, slot: OwnedSemaphorePermit) {
        let Some(work) = self.lanes.start() else { return };
        if work.record.ticket.is_lost() {
            return self.finish(work, How::Left);
        }
        let is_diverted = self.watch.is_diverted(&work.key.org, self.began.elapsed());
        let shared = Arc::clone(&self.shared);
        self.under_way.spawn(async move {
            let how = shared.work(&work, slot, is_diverted).await;
            Done::Part { work, how }
        });
    }

    fn unreadable(&mut self, received: Received, detail: String) {
        let shared = Arc::clone(&self.shared);
        self.under_way.spawn(async move {
            let Received { ticket, value, .. } = received;
            let why = shared.reason("malformed_record", detail, None, None);
            let how = shared.bury(&ticket, &value, why).await;
            Done::Unreadable { ticket, how }
        });
    }

    fn ended(&mut self, done: Result<Done<H::Record>, JoinError>) {
        match done {
            Ok(Done::Part { work, how }) => {
                self.count(&work.key.org, how);
                self.finish(work, how);
            }
            Ok(Done::Unreadable { ticket, how: How::Left }) => drop(ticket),
            Ok(Done::Unreadable { ticket, .. }) => {
                ticket.complete();
                let verdict = self.watch.unreadable(self.began.elapsed());
                self.judge(verdict, None);
            }
            // Panics of handlers are caught in the task.
            Err(error) => {
                let role = self.shared.role;
                self.fail(RoleError::Broken { role, detail: error.to_string() });
            }
        }
    }

    fn count(&mut self, org: &OrgId, how: How) {
        if matches!(how, How::Done | How::Poisoned) {
            self.shared.progress.lock().finished_at = Instant::now();
        }
        match how {
            How::Done => self.watch.good(org, self.began.elapsed()),
            How::Poisoned => {
                let verdict = self.watch.poison(org, self.began.elapsed());
                self.judge(verdict, Some(org));
            }
            How::Diverted | How::Left => {}
        }
        metrics::counter!("tidegate_processed_total", "role" => self.shared.role.0, "outcome" => how.label())
            .increment(1);
    }

    fn judge(&mut self, verdict: poison::Verdict, org: Option<&OrgId>) {
        let role = self.shared.role;
        match verdict {
            poison::Verdict::GoOn => {}
            poison::Verdict::Divert => {
                if let Some(org) = org {
                    tracing::error!(%role, %org, "most of an org's content cannot be processed; it is diverted to the dead letters");
                }
                let diverted = u32::try_from(self.watch.diverted()).unwrap_or(u32::MAX);
                metrics::gauge!("tidegate_diverted_orgs", "role" => role.0).set(diverted);
            }
            poison::Verdict::Stop { why } => self.fail(RoleError::Poison { role, why }),
        }
    }

    fn finish(&mut self, work: Work<Arc<Job<H::Record>>>, how: How) {
        if let Some(ended) = self.lanes.finish(work, how != How::Left) {
            self.settle(ended);
        }
    }

    fn settle(&self, ended: Ended<Arc<Job<H::Record>>>) {
        let Ended { record, is_whole } = ended;
        // A handler that kept the job keeps its ticket, and the log will say that it was dropped.
        let Some(job) = Arc::into_inner(record) else { return };
        if !is_whole {
            return;
        }
        failpoint!("before_complete");
        let took = Millis::now().0.saturating_sub(job.written_at.0).max(0);
        metrics::histogram!("tidegate_processing_seconds", "role" => self.shared.role.0)
            .record(Duration::from_millis(took.unsigned_abs()).as_secs_f64());
        job.ticket.complete();
    }

    fn drop_lost(&mut self) {
        for ended in self.lanes.drop_lost(|job| job.ticket.is_lost()) {
            self.settle(ended);
        }
    }

    fn fail(&mut self, failure: RoleError) {
        tracing::error!(role = %self.shared.role, tag = failure.tag(), "{failure}");
        self.failure.get_or_insert(failure);
        self.is_open = false;
        self.inbox.stop();
    }
}

impl<H: Handler> Shared<H> {
    async fn work(
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
                () = job.ticket.lost() => return How::Left,
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
            stuck_for: self.progress.lock().stuck_for(self.gate.closed_for()),
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

    /// Nothing that every part would meet is in the way.
    fn may_begin(&self) -> bool {
        self.outages.load(Ordering::Relaxed) == 0 && self.halts.load(Ordering::Relaxed) == 0
    }

    async fn bury_part(&self, work: &Work<Arc<Job<H::Record>>>, tag: &'static str, detail: String) -> How {
        let job = &work.record;
        let submission_id = H::submission(&job.record, work.part);
        let why = self.reason(tag, detail, Some(work.key.org.clone()), submission_id);
        self.bury(&job.ticket, &H::alone(job, work.part), why).await
    }

    /// Writes a dead letter, however long it takes.
    async fn bury(&self, ticket: &Ticket, part: &[u8], why: Reason) -> How {
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
                () = ticket.lost() => return How::Left,
            }
        }
    }

    fn reason(
        &self,
        tag: &'static str,
        detail: String,
        org: Option<OrgId>,
        submission_id: Option<SubmissionId>,
    ) -> Reason {
        Reason { stage: self.role.0, tag, detail, org, submission_id }
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
    const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Poisoned => "dead_letter",
            Self::Diverted => "diverted",
            Self::Left => "left",
        }
    }
}
