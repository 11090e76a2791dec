//! The loop of every consumer: admits records to the lanes, works on their parts, and completes their tickets.
//!
//! It does not know what a record leads to: a `Handler` does.
//!
//! A part ends in one of three ways: done, in the dead letters, or left because its assignment is gone. Whatever
//! else happens is tried again without limit; while the log or the store is away nothing new is admitted.

use std::{sync::Arc, time::Duration};

use tidegate_moderation::items::{
    context_media::{self as context, CONTEXT},
    stored::RESENT,
};
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_stream::{
    consumer::{
        inbox::{DrainResult, Inbox, ReceivedRecord},
        ticket::Ticket,
    },
    failpoint,
    topics::Role,
};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    Health, RoleError, Settings,
    consumer::handler::{Handler, Job},
    consumer::key_queues::{Ended, Lanes, Work},
    consumer::poison_monitor::{self as poison, Watch},
    consumer::retry::{How, Trying},
};

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

pub(crate) struct Worker<H: Handler> {
    trying: Arc<Trying<H>>,
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
            trying: Arc::new(Trying::new(role, handler, settings, health, inbox.backpressure())),
            inbox,
        }
    }

    /// Runs until the inbox ends, and what was begun has ended.
    pub(crate) async fn run(mut self) -> Result<DrainResult, RoleError> {
        let mut ownership = self.inbox.ownership();
        let mut driver_lives = true;
        let give_up = sleep_until(self.began);
        tokio::pin!(give_up);
        let mut is_forced = false;
        loop {
            while self.lanes.has_ready()
                && let Ok(slot) = Arc::clone(&self.trying.slots).try_acquire_owned()
            {
                self.start(slot);
            }
            if !self.is_open && self.lanes.is_empty() && self.under_way.is_empty() {
                break;
            }
            let was_open = self.is_open;
            let has_room = self.lanes.has_room();
            self.trying.full(!has_room);
            let admits = self.is_open && has_room && self.trying.may_begin();
            tokio::select! {
                biased;
                Some(done) = self.under_way.join_next() => self.ended(done),
                changed = ownership.changed(), if driver_lives => {
                    driver_lives = changed.is_ok();
                    self.drop_lost();
                }
                slot = Arc::clone(&self.trying.slots).acquire_owned(), if self.lanes.has_ready() => {
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
                give_up.as_mut().reset(Instant::now() + self.trying.settings.drain());
            }
        }
        self.under_way.shutdown().await;
        drop(self.lanes);
        let drained = self.inbox.drained().await;
        match self.failure {
            Some(failure) => Err(failure),
            None if is_forced => Ok(DrainResult::Forced),
            None => Ok(drained),
        }
    }

    fn admit(&mut self, received: ReceivedRecord) {
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
        if work.record.ticket.is_cancelled() {
            return self.finish(work, How::Left);
        }
        let is_diverted = self.watch.is_diverted(&work.key.org, self.began.elapsed());
        let trying = Arc::clone(&self.trying);
        let turn = trying.handler.line_up(&work.record, work.part);
        self.under_way.spawn(async move {
            let how = trying.work(&work, slot, is_diverted).await;
            drop(turn);
            Done::Part { work, how }
        });
    }

    fn unreadable(&mut self, received: ReceivedRecord, detail: String) {
        let trying = Arc::clone(&self.trying);
        self.under_way.spawn(async move {
            let ReceivedRecord { ticket, value, .. } = received;
            let why = trying.reason("malformed_record", detail, None, None);
            let how = trying.bury(&ticket, &value, why).await;
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
                let role = self.trying.role;
                self.fail(RoleError::Broken { role, detail: error.to_string() });
            }
        }
    }

    fn count(&mut self, org: &OrgId, how: How) {
        if matches!(how, How::Done | How::Poisoned) {
            self.trying.finished();
        }
        match how {
            How::Done => self.watch.good(org, self.began.elapsed()),
            How::Poisoned => {
                let verdict = self.watch.poison(org, self.began.elapsed());
                self.judge(verdict, Some(org));
            }
            How::Diverted | How::Left => {}
        }
        metrics::counter!("tidegate_processed_total", "role" => self.trying.role.0, "outcome" => how.label())
            .increment(1);
    }

    fn judge(&mut self, verdict: poison::Verdict, org: Option<&OrgId>) {
        let role = self.trying.role;
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
        metrics::histogram!("tidegate_processing_seconds", "role" => self.trying.role.0)
            .record(Duration::from_millis(took.unsigned_abs()).as_secs_f64());
        job.ticket.complete();
    }

    fn drop_lost(&mut self) {
        for ended in self.lanes.drop_lost(|job| job.ticket.is_cancelled()) {
            self.settle(ended);
        }
    }

    fn fail(&mut self, failure: RoleError) {
        tracing::error!(role = %self.trying.role, tag = failure.tag(), "{failure}");
        self.failure.get_or_insert(failure);
        self.is_open = false;
        self.inbox.stop();
    }
}
