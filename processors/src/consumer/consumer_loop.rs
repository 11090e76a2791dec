//! Loop of every consumer: admits records to the key queues, runs their parts, and completes their tickets.
//!
//! A part ends as done, as a dead letter, or abandoned after its partition was revoked. All other failures are retried
//! without limit. While the log or the store is unavailable, no new record is admitted.

use std::{sync::Arc, time::Duration};

use tidegate_catalog::LiveConfigs;
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
    handler::{BatchOutcome, BatchPart, Handler, HandlerJob, Job},
    key_queues::{Capacity, FinishedRecord, KeyQueues, QueuedPart, ReadyWork},
    poison_monitor::{PoisonAction, PoisonMonitor},
    retry::{PartOutcome, RetryLoop},
    slot::ConcurrencySlot,
};
use crate::{health::Health, metrics, settings::Settings};

/// Largest batch. A batch is one turn of its org, so a longer one would delay the other orgs.
const BATCH_LIMIT: Capacity = Capacity { parts: 64, bytes: 256 << 10 };

type JobPart<H> = QueuedPart<Arc<HandlerJob<H>>>;

/// Result of a spawned task.
enum FinishedTask<H: Handler> {
    Batch { parts: Vec<JobPart<H>>, outcome: BatchOutcome },
    Part { part: JobPart<H>, outcome: PartOutcome },
    UnreadableRecord { ticket: Ticket, outcome: PartOutcome },
}

pub(crate) struct ConsumerLoop<H: Handler> {
    retry_loop: Arc<RetryLoop<H>>,
    inbox: Inbox,
    queues: KeyQueues<Arc<HandlerJob<H>>>,
    running_tasks: JoinSet<FinishedTask<H>>,
    poison_monitor: PoisonMonitor,
    started_at: Instant,
    is_inbox_open: bool,
    failure: Option<RoleError>,
}

impl<H: Handler> ConsumerLoop<H> {
    pub(crate) fn new(
        role: Role,
        inbox: Inbox,
        handler: H,
        live: Arc<LiveConfigs>,
        settings: Arc<Settings>,
        health: Health,
    ) -> Self {
        Self {
            queues: KeyQueues::new(
                Capacity { parts: settings.room_works, bytes: settings.budget_bytes },
                BATCH_LIMIT,
            ),
            running_tasks: JoinSet::new(),
            poison_monitor: PoisonMonitor::new(settings.poison.clone()),
            started_at: Instant::now(),
            is_inbox_open: true,
            failure: None,
            retry_loop: Arc::new(RetryLoop::new(role, handler, live, settings, health, inbox.backpressure())),
            inbox,
        }
    }

    /// Runs until the inbox ends and all started parts have ended.
    pub(crate) async fn run(mut self) -> Result<DrainResult, RoleError> {
        let mut ownership = self.inbox.ownership();
        let mut has_ownership_updates = true;
        // Reset when the inbox closes. Until then its branch of the `select!` is disabled.
        let drain_deadline = sleep_until(self.started_at);
        tokio::pin!(drain_deadline);
        let mut is_forced = false;
        loop {
            self.start_ready();
            if !self.is_inbox_open && self.queues.is_empty() && self.running_tasks.is_empty() {
                break;
            }
            let was_open = self.is_inbox_open;
            let has_capacity = self.queues.has_capacity();
            self.retry_loop.set_full(!has_capacity);
            let may_admit = self.is_inbox_open && has_capacity && self.retry_loop.may_admit();
            tokio::select! {
                // Finished parts first: they free capacity and slots before new records are admitted.
                biased;
                Some(task) = self.running_tasks.join_next() => self.handle_finished_task(task),
                change = ownership.changed(), if has_ownership_updates => {
                    has_ownership_updates = change.is_ok();
                    self.drop_revoked_parts();
                }
                // A waiting part released its slot, so the next iteration may start a ready part.
                () = self.retry_loop.slots.wait_for_release(), if self.queues.has_ready_parts() => {}
                batch = self.inbox.next(), if may_admit => match batch {
                    Ok(Some(batch)) => {
                        failpoint!("after_poll");
                        for received_record in batch {
                            self.admit(received_record);
                        }
                    }
                    Ok(None) => self.is_inbox_open = false,
                    Err(error) => self.fail_role(error.into()),
                },
                () = &mut drain_deadline, if !self.is_inbox_open => {
                    is_forced = true;
                    break;
                }
            }
            if was_open && !self.is_inbox_open {
                drain_deadline.as_mut().reset(Instant::now() + self.retry_loop.settings.drain_timeout());
            }
        }
        // Queued and running parts hold tickets. Dropped here, they are uncommitted and the next owner processes them.
        self.running_tasks.shutdown().await;
        drop(self.queues);
        let drain_result = self.inbox.wait_until_drained().await;
        match self.failure {
            Some(failure) => Err(failure),
            None if is_forced => Ok(DrainResult::Forced),
            None => Ok(drain_result),
        }
    }

    fn admit(&mut self, received_record: ReceivedRecord) {
        let record = match received_record.decode::<H::Record>() {
            Ok(record) => record,
            Err(error) => return self.dead_letter_unreadable(received_record, error.to_string()),
        };
        let job = Job {
            record,
            headers: H::parse_headers(&received_record.headers),
            value: received_record.value,
            position: received_record.at,
            written_at: received_record.written_at,
            maybe_replayed: received_record.maybe_replayed,
            ticket: received_record.ticket,
        };
        let parts = H::parts(&job);
        if let Some(finished_record) = self.queues.admit(Arc::new(job), parts) {
            self.complete_record(finished_record);
        }
    }

    /// Starts ready parts while their orgs have free slots.
    fn start_ready(&mut self) {
        while self.queues.has_ready_parts() && !self.retry_loop.slots.is_exhausted() {
            match self.queues.next_ready(|org| self.retry_loop.slots.try_acquire(org)) {
                Some((ReadyWork::Batch(parts), slot)) => self.start_batch(parts, slot),
                Some((ReadyWork::Single(part), slot)) => self.start_part(part, slot),
                None => return,
            }
        }
    }

    fn start_batch(&mut self, parts: Vec<JobPart<H>>, slot: ConcurrencySlot) {
        // The next owner of a revoked partition processes its parts.
        let (revoked_parts, parts): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.record.ticket.is_cancelled());
        for part in revoked_parts {
            self.finish_part(part, PartOutcome::Abandoned);
        }
        // All parts were revoked. Returning releases the slot.
        let Some(first_part) = parts.first() else { return };
        if self.poison_monitor.is_diverted(&first_part.key.org, self.started_at.elapsed()) {
            // Single parts reach the diversion check of `start_part`. No part was attempted, so this is no retry.
            return self.queues.separate(parts, false);
        }
        let retry_loop = Arc::clone(&self.retry_loop);
        let batch = parts.iter().map(|part| BatchPart {
            job: Arc::clone(&part.record),
            index: part.index,
            guard: retry_loop.handler.start(&part.record, part.index),
        });
        let batch: Vec<_> = batch.collect();
        self.running_tasks.spawn(async move {
            let outcome = retry_loop.run_batch(batch).await;
            drop(slot);
            FinishedTask::Batch { parts, outcome }
        });
    }

    fn start_part(&mut self, part: JobPart<H>, slot: ConcurrencySlot) {
        if part.record.ticket.is_cancelled() {
            return self.finish_part(part, PartOutcome::Abandoned);
        }
        let is_diverted = self.poison_monitor.is_diverted(&part.key.org, self.started_at.elapsed());
        let retry_loop = Arc::clone(&self.retry_loop);
        // The guard records the order of starts. Tasks may be polled in another order than they are spawned, so the
        // call stands outside of the task.
        let mut guard = retry_loop.handler.start(&part.record, part.index);
        self.running_tasks.spawn(async move {
            let outcome = retry_loop.run_part(&part, &mut guard, slot, is_diverted).await;
            drop(guard);
            FinishedTask::Part { part, outcome }
        });
    }

    fn dead_letter_unreadable(&mut self, received_record: ReceivedRecord, detail: String) {
        let retry_loop = Arc::clone(&self.retry_loop);
        self.running_tasks.spawn(async move {
            let ReceivedRecord { ticket, value, .. } = received_record;
            let reason = retry_loop.dead_letter_reason("malformed_record", detail, None, None);
            let outcome = retry_loop.write_dead_letter(&ticket, &value, reason).await;
            FinishedTask::UnreadableRecord { ticket, outcome }
        });
    }

    fn handle_finished_task(&mut self, task: Result<FinishedTask<H>, JoinError>) {
        match task {
            Ok(FinishedTask::Batch { parts, outcome }) => self.handle_finished_batch(parts, &outcome),
            Ok(FinishedTask::Part { part, outcome }) => {
                self.record_outcome(&part.key.org, outcome, 1);
                self.finish_part(part, outcome);
            }
            // Its partition was revoked, so the next owner reads the record again.
            Ok(FinishedTask::UnreadableRecord { ticket, outcome: PartOutcome::Abandoned }) => drop(ticket),
            Ok(FinishedTask::UnreadableRecord { ticket, .. }) => {
                ticket.complete();
                let action = self.poison_monitor.record_unreadable(self.started_at.elapsed());
                self.apply_poison_action(action, None);
            }
            // Panics of handlers are caught inside the task, so this panic is a bug of the consumer.
            Err(error) => {
                let role = self.retry_loop.role;
                self.fail_role(RoleError::Failure { role, detail: error.to_string() });
            }
        }
    }

    fn handle_finished_batch(&mut self, parts: Vec<JobPart<H>>, outcome: &BatchOutcome) {
        let done_parts = parts.len() - outcome.remaining_positions.len();
        if let Some(first_part) = parts.first().filter(|_| done_parts > 0) {
            self.record_outcome(&first_part.key.org, PartOutcome::Done, done_parts);
        }
        let mut remaining_parts = Vec::with_capacity(outcome.remaining_positions.len());
        for (position, part) in parts.into_iter().enumerate() {
            if outcome.remaining_positions.binary_search(&position).is_ok() {
                remaining_parts.push(part);
            } else {
                self.finish_part(part, PartOutcome::Done);
            }
        }
        self.queues.separate(remaining_parts, outcome.is_retry);
    }

    fn record_outcome(&mut self, org: &OrgId, outcome: PartOutcome, parts: usize) {
        if matches!(outcome, PartOutcome::Done | PartOutcome::DeadLettered) {
            self.retry_loop.record_progress();
        }
        match outcome {
            PartOutcome::Done => self.poison_monitor.record_success(org, parts, self.started_at.elapsed()),
            PartOutcome::DeadLettered => {
                let action = self.poison_monitor.record_poison(org, self.started_at.elapsed());
                self.apply_poison_action(action, Some(org));
            }
            // No evidence about the content: it was not attempted, or its configuration was missing.
            PartOutcome::Diverted | PartOutcome::Abandoned => {}
        }
        metrics::record_ended_parts(self.retry_loop.role, outcome.label(), parts);
    }

    fn apply_poison_action(&mut self, action: PoisonAction, org: Option<&OrgId>) {
        let role = self.retry_loop.role;
        match action {
            PoisonAction::Continue => {}
            PoisonAction::Divert => {
                // An unreadable record has no org and never causes a diversion.
                if let Some(org) = org {
                    tracing::error!(%role, %org, "most of an org's content cannot be processed; it is diverted to the dead letters");
                }
                metrics::set_diverted_orgs(role, self.poison_monitor.count_diverted());
            }
            PoisonAction::Stop { reason } => self.fail_role(RoleError::Poison { role, reason }),
        }
    }

    fn finish_part(&mut self, part: JobPart<H>, outcome: PartOutcome) {
        if let Some(finished_record) = self.queues.finish(part, outcome != PartOutcome::Abandoned) {
            self.complete_record(finished_record);
        }
    }

    fn complete_record(&self, finished_record: FinishedRecord<Arc<HandlerJob<H>>>) {
        let FinishedRecord { record, is_complete } = finished_record;
        // A handler that still holds the job holds its ticket too; the log then reports the ticket as dropped.
        let Some(job) = Arc::into_inner(record) else { return };
        if !is_complete {
            return;
        }
        failpoint!("before_complete");
        let elapsed_ms = Millis::now().0.saturating_sub(job.written_at.0).max(0);
        metrics::record_completion(self.retry_loop.role, Duration::from_millis(elapsed_ms.unsigned_abs()));
        job.ticket.complete();
    }

    fn drop_revoked_parts(&mut self) {
        for finished_record in self.queues.drop_revoked(|job| job.ticket.is_cancelled()) {
            self.complete_record(finished_record);
        }
    }

    fn fail_role(&mut self, failure: RoleError) {
        tracing::error!(role = %self.retry_loop.role, tag = failure.tag(), "{failure}");
        // The first failure is reported; later ones are usually consequences.
        self.failure.get_or_insert(failure);
        self.is_inbox_open = false;
        self.inbox.stop();
    }
}
