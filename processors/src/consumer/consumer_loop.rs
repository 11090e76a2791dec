//! The loop of every consumer: admits records to the key queues, runs their parts, and completes their tickets.
//!
//! A part ends in one of three ways: done, in the dead letters, or abandoned because its partition was revoked. Everything
//! else is retried without limit. While the log or the store is unavailable, no new record is admitted.

use std::{sync::Arc, time::Duration};

use tidegate_catalog::Live;
use tidegate_moderation::items::{
    context_media::{self as context, CONTEXT},
    stored::{RESENT, WITHOUT_MEDIA},
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
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use super::{
    error::RoleError,
    handler::{BatchOutcome, BatchPart, Handler, Job},
    key_queues::{Capacity, FinishedRecord, KeyQueues, QueuedPart, ReadyWork},
    poison_monitor::{PoisonAction, PoisonMonitor},
    retry::{PartOutcome, RetryLoop},
    slot::ConcurrencySlot,
};
use crate::{health::Health, metrics, settings::Settings};

/// Parts that start together at most. A batch is one turn of its org, so it is kept short.
const BATCH_LIMIT: Capacity = Capacity { parts: 64, bytes: 256 << 10 };

type JobPart<R> = QueuedPart<Arc<Job<R>>>;

/// End of a spawned task.
enum Ended<R> {
    Batch { parts: Vec<JobPart<R>>, outcome: BatchOutcome },
    Part { part: JobPart<R>, outcome: PartOutcome },
    UnreadableRecord { ticket: Ticket, outcome: PartOutcome },
}

pub(crate) struct ConsumerLoop<H: Handler> {
    retry: Arc<RetryLoop<H>>,
    inbox: Inbox,
    queues: KeyQueues<Arc<Job<H::Record>>>,
    running: JoinSet<Ended<H::Record>>,
    poison: PoisonMonitor,
    started_at: Instant,
    is_open: bool,
    failure: Option<RoleError>,
}

impl<H: Handler> ConsumerLoop<H> {
    pub(crate) fn new(
        role: Role,
        inbox: Inbox,
        handler: H,
        live: Arc<Live>,
        settings: Arc<Settings>,
        health: Health,
    ) -> Self {
        Self {
            queues: KeyQueues::new(
                Capacity { parts: settings.room_works, bytes: settings.budget_bytes },
                BATCH_LIMIT,
            ),
            running: JoinSet::new(),
            poison: PoisonMonitor::new(settings.poison.clone()),
            started_at: Instant::now(),
            is_open: true,
            failure: None,
            retry: Arc::new(RetryLoop::new(role, handler, live, settings, health, inbox.backpressure())),
            inbox,
        }
    }

    /// Runs until the inbox ends and every part that was started has ended.
    pub(crate) async fn run(mut self) -> Result<DrainResult, RoleError> {
        let mut ownership = self.inbox.ownership();
        let mut driver_lives = true;
        let drain_deadline = sleep_until(self.started_at);
        tokio::pin!(drain_deadline);
        let mut is_forced = false;
        loop {
            self.start_ready();
            if !self.is_open && self.queues.is_empty() && self.running.is_empty() {
                break;
            }
            let was_open = self.is_open;
            let has_capacity = self.queues.has_capacity();
            self.retry.set_full(!has_capacity);
            let admits = self.is_open && has_capacity && self.retry.may_admit();
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next() => self.on_ended(ended),
                changed = ownership.changed(), if driver_lives => {
                    driver_lives = changed.is_ok();
                    self.drop_lost();
                }
                () = self.retry.slots.released(), if self.queues.has_ready() => {}
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
                () = &mut drain_deadline, if !self.is_open => {
                    is_forced = true;
                    break;
                }
            }
            if was_open && !self.is_open {
                drain_deadline.as_mut().reset(Instant::now() + self.retry.settings.drain());
            }
        }
        self.running.shutdown().await;
        drop(self.queues);
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
            Err(malformed) => return self.dead_letter_unreadable(received, malformed.to_string()),
        };
        let job = Job {
            record,
            value: received.value,
            at: received.at,
            written_at: received.written_at,
            maybe_replayed: received.maybe_replayed,
            is_resent: received.headers.get(RESENT).is_some(),
            is_without_media: received.headers.get(WITHOUT_MEDIA).is_some(),
            context_of: received.headers.get(CONTEXT).and_then(|cause| context::cause_of(cause)),
            ticket: received.ticket,
        };
        let parts = H::parts(&job);
        if let Some(finished) = self.queues.admit(Arc::new(job), parts) {
            self.complete(finished);
        }
    }

    /// Starts the parts that are ready and find a slot.
    fn start_ready(&mut self) {
        while self.queues.has_ready() && !self.retry.slots.are_taken() {
            match self.queues.next_ready(|org| self.retry.slots.try_acquire(org)) {
                Some((ReadyWork::Batch(parts), slot)) => self.start_batch(parts, slot),
                Some((ReadyWork::Single(part), slot)) => self.start_part(part, slot),
                None => return,
            }
        }
    }

    fn start_batch(&mut self, parts: Vec<JobPart<H::Record>>, slot: ConcurrencySlot) {
        let (lost, parts): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.record.ticket.is_cancelled());
        for part in lost {
            self.finish(part, PartOutcome::Abandoned);
        }
        let Some(first) = parts.first() else { return };
        if self.poison.is_diverted(&first.key.org, self.started_at.elapsed()) {
            return self.queues.separate(parts, false);
        }
        let retry = Arc::clone(&self.retry);
        let batch = parts.iter().map(|part| BatchPart {
            job: Arc::clone(&part.record),
            index: part.index,
            guard: retry.handler.start(&part.record, part.index),
        });
        let batch: Vec<_> = batch.collect();
        self.running.spawn(async move {
            let outcome = retry.run_batch(batch).await;
            drop(slot);
            Ended::Batch { parts, outcome }
        });
    }

    fn start_part(&mut self, part: JobPart<H::Record>, slot: ConcurrencySlot) {
        if part.record.ticket.is_cancelled() {
            return self.finish(part, PartOutcome::Abandoned);
        }
        let is_diverted = self.poison.is_diverted(&part.key.org, self.started_at.elapsed());
        let retry = Arc::clone(&self.retry);
        // Here rather than in the task, since tasks may be polled in another order than they are spawned.
        let guard = retry.handler.start(&part.record, part.index);
        self.running.spawn(async move {
            let outcome = retry.run(&part, slot, is_diverted).await;
            drop(guard);
            Ended::Part { part, outcome }
        });
    }

    fn dead_letter_unreadable(&mut self, received: ReceivedRecord, detail: String) {
        let retry = Arc::clone(&self.retry);
        self.running.spawn(async move {
            let ReceivedRecord { ticket, value, .. } = received;
            let reason = retry.reason("malformed_record", detail, None, None);
            let outcome = retry.dead_letter(&ticket, &value, reason).await;
            Ended::UnreadableRecord { ticket, outcome }
        });
    }

    fn on_ended(&mut self, ended: Result<Ended<H::Record>, JoinError>) {
        match ended {
            Ok(Ended::Batch { parts, outcome }) => self.on_batch_ended(parts, &outcome),
            Ok(Ended::Part { part, outcome }) => {
                self.count(&part.key.org, outcome, 1);
                self.finish(part, outcome);
            }
            Ok(Ended::UnreadableRecord { ticket, outcome: PartOutcome::Abandoned }) => drop(ticket),
            Ok(Ended::UnreadableRecord { ticket, .. }) => {
                ticket.complete();
                let action = self.poison.record_unreadable(self.started_at.elapsed());
                self.on_poison(action, None);
            }
            // A panic of a handler is caught in the task, so this one is a bug of the consumer.
            Err(error) => {
                let role = self.retry.role;
                self.fail(RoleError::Broken { role, detail: error.to_string() });
            }
        }
    }

    fn on_batch_ended(&mut self, parts: Vec<JobPart<H::Record>>, outcome: &BatchOutcome) {
        let done = parts.len() - outcome.left.len();
        if let Some(first) = parts.first().filter(|_| done > 0) {
            self.count(&first.key.org, PartOutcome::Done, done);
        }
        let mut left = Vec::with_capacity(outcome.left.len());
        for (position, part) in parts.into_iter().enumerate() {
            if outcome.left.binary_search(&position).is_ok() {
                left.push(part);
            } else {
                self.finish(part, PartOutcome::Done);
            }
        }
        self.queues.separate(left, outcome.is_retry);
    }

    fn count(&mut self, org: &OrgId, outcome: PartOutcome, parts: usize) {
        if matches!(outcome, PartOutcome::Done | PartOutcome::DeadLettered) {
            self.retry.note_finished();
        }
        match outcome {
            PartOutcome::Done => self.poison.record_success(org, parts, self.started_at.elapsed()),
            PartOutcome::DeadLettered => {
                let action = self.poison.record_poison(org, self.started_at.elapsed());
                self.on_poison(action, Some(org));
            }
            PartOutcome::Diverted | PartOutcome::Abandoned => {}
        }
        metrics::parts_ended(self.retry.role, outcome.label(), parts);
    }

    fn on_poison(&mut self, action: PoisonAction, org: Option<&OrgId>) {
        let role = self.retry.role;
        match action {
            PoisonAction::Continue => {}
            PoisonAction::Divert => {
                if let Some(org) = org {
                    tracing::error!(%role, %org, "most of an org's content cannot be processed; it is diverted to the dead letters");
                }
                metrics::set_diverted_orgs(role, self.poison.diverted());
            }
            PoisonAction::Stop { why } => self.fail(RoleError::Poison { role, why }),
        }
    }

    fn finish(&mut self, part: JobPart<H::Record>, outcome: PartOutcome) {
        if let Some(finished) = self.queues.finish(part, outcome != PartOutcome::Abandoned) {
            self.complete(finished);
        }
    }

    fn complete(&self, finished: FinishedRecord<Arc<Job<H::Record>>>) {
        let FinishedRecord { record, is_complete } = finished;
        // A handler that kept the job keeps its ticket, and the log reports the ticket as dropped.
        let Some(job) = Arc::into_inner(record) else { return };
        if !is_complete {
            return;
        }
        failpoint!("before_complete");
        let took = Millis::now().0.saturating_sub(job.written_at.0).max(0);
        metrics::record_completed(self.retry.role, Duration::from_millis(took.unsigned_abs()));
        job.ticket.complete();
    }

    fn drop_lost(&mut self) {
        for finished in self.queues.drop_lost(|job| job.ticket.is_cancelled()) {
            self.complete(finished);
        }
    }

    fn fail(&mut self, failure: RoleError) {
        tracing::error!(role = %self.retry.role, tag = failure.tag(), "{failure}");
        self.failure.get_or_insert(failure);
        self.is_open = false;
        self.inbox.stop();
    }
}
