//! Consumer loop on its own thread: polls the engine, charges the budget, hands out records, collects settlements, commits,
//! and releases partitions.
//!
//! The pure modules `assignments` and `drain` decide; the driver acts through the `Engine` trait.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    assignments::{AssignmentError, Assignments, SettleResult},
    budget::GateChange,
    drain::{Drain, DrainCause, DrainStep},
    engine::{Engine, Event},
    inbox::{BatchQueue, CompletedTimes, DrainResult, Ownership, ReceivedRecord},
    ledger::LedgerError,
    ticket::{DeadLetterSink, Epoch, Lease, Origin, Outcome, Settlement, SettlementQueue, Ticket},
};
use crate::{
    codec::{Codec, UnframeError},
    error::{ConsumeError, StoppedPartition},
    health::Health,
    metrics::{self, Rebalance},
    record::FetchedRecord,
    settings::ConsumeSettings,
    topics::{Group, NextOffset, Partition, Role},
};

/// Next epoch. All consumers of the process share the sequence, so that an epoch is unique.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

/// Longest sleep of an idle driver.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(1);

struct OwnedPartition {
    lease: Arc<Lease>,
    /// Records that wait for the schema of the first one. The later ones wait too, to keep the order.
    waiting_records: VecDeque<FetchedRecord>,
    /// End of the partition as last reported by the engine.
    end: Option<NextOffset>,
}

/// Partitions that are being released.
struct Release {
    drain: Drain,
    partitions: Vec<Partition>,
}

/// Settings and shared handles of a driver.
pub(crate) struct DriverContext {
    pub(crate) group: Group,
    pub(crate) role: Role,
    pub(crate) settings: ConsumeSettings,
    pub(crate) codec: Arc<Codec>,
    pub(crate) dead_letters: Arc<dyn DeadLetterSink>,
    pub(crate) health: Arc<Health>,
    pub(crate) queue: Arc<BatchQueue>,
    pub(crate) settlements: Arc<SettlementQueue>,
    pub(crate) ownership: watch::Sender<Ownership>,
    pub(crate) completed_times: CompletedTimes,
    /// Cancelled by the role, or with the whole log.
    pub(crate) stop: CancellationToken,
    pub(crate) closing: CancellationToken,
}

impl DriverContext {
    fn is_stopping(&self) -> bool {
        self.stop.is_cancelled() || self.closing.is_cancelled()
    }
}

pub(crate) struct Driver<E: Engine> {
    engine: E,
    context: DriverContext,
    assignments: Assignments,
    owned: BTreeMap<Partition, OwnedPartition>,
    stopped: BTreeMap<Partition, StoppedPartition>,
    releases: Vec<Release>,
    /// Set when the consumer ends. No record is handed out any more.
    ending: Option<DrainCause>,
    has_left_work: bool,
    last_commit: Instant,
    /// True if the last commit failed. The next one then waits for its interval, even if the budget is full.
    commit_failed: bool,
    last_schema_retry: Instant,
    settlements: Vec<Settlement>,
    /// True if completed times changed since they were published.
    has_new_times: bool,
}

impl<E: Engine> Driver<E> {
    pub(crate) fn new(engine: E, context: DriverContext, assignments: Assignments) -> Self {
        let now = engine.current_time();
        Self {
            engine,
            context,
            assignments,
            owned: BTreeMap::new(),
            stopped: BTreeMap::new(),
            releases: Vec::new(),
            ending: None,
            has_left_work: false,
            last_commit: now,
            commit_failed: false,
            last_schema_retry: now,
            settlements: Vec::new(),
            has_new_times: false,
        }
    }

    /// Runs until the consumer is stopped or fails, and has drained.
    pub(crate) fn run(mut self) -> DrainResult {
        loop {
            let now = self.engine.current_time();
            self.collect_settlements();
            if self.ending.is_none() && self.context.is_stopping() {
                // The inbox ends first, so that the role takes no new work during the release.
                self.context.queue.end(Ok(()));
                self.end(DrainCause::Shutdown, now);
            }
            self.retry_schemas(now);
            self.commit_if_due(now);
            self.step_releases(now);
            if self.ending.is_some() && self.releases.is_empty() {
                break;
            }
            self.publish_completed_times();
            self.update_gate();
            let max_wait = self.next_wait(now);
            for event in self.engine.poll(max_wait, self.assignments.available()) {
                self.handle(event);
            }
        }
        self.engine.close();
        self.context.health.set_healthy(self.context.role.0);
        // The gauges would keep their last values after the end of the consumer.
        metrics::uncommitted(self.context.group, 0, 0, false);
        if self.has_left_work || self.ending == Some(DrainCause::Failed) {
            DrainResult::Forced
        } else {
            DrainResult::Clean
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.engine.current_time();
        let role = self.context.role;
        match event {
            Event::Assigned { partition, next, end } => self.assign(partition, next, end),
            Event::Fetched(records) => self.hand_out_fetched(records),
            Event::Revoking(partitions) => {
                metrics::rebalanced(self.context.group, Rebalance::Revoked, partitions.len());
                self.begin_release(DrainCause::Revoked, partitions, now);
            }
            Event::Lost(partitions) => self.handle_lost(&partitions),
            Event::Committed { partition, next } => {
                crate::failpoint!("after_commit");
                self.has_new_times = true;
                if let Err(error) = self.assignments.acknowledge(partition, next) {
                    tracing::warn!(%role, %error, "a commit was acknowledged that was never sent");
                }
            }
            Event::CommitFailed { partitions, tag, detail } => {
                metrics::commit_failed(self.context.group, tag);
                tracing::warn!(%role, tag, detail, "a commit failed and will be retried");
                self.commit_failed = true;
                for partition in partitions {
                    self.assignments.fail_commit(partition);
                }
            }
            Event::Gap { partition, committed, start } => {
                self.stop_partition(StoppedPartition::Gap { partition, committed, start });
            }
            Event::End { partition, end } => {
                if let Some(owned) = self.owned.get_mut(&partition) {
                    owned.end = Some(end);
                }
            }
            Event::EndSnapshot { complete_until, ends } => {
                self.has_new_times = true;
                for (partition, end) in ends {
                    self.assignments.observe_end(partition, end, complete_until);
                }
            }
            Event::Unreachable { detail } => {
                if self.context.health.set_unhealthy(role.0, detail.clone()) {
                    tracing::warn!(%role, detail, "the log is unreachable; retrying");
                }
            }
            Event::Reachable => {
                if self.context.health.set_healthy(role.0) {
                    tracing::info!(%role, "the log is reachable again");
                }
            }
            Event::Failed { detail } => self.fail(ConsumeError::Broken { role, detail }),
        }
    }

    fn assign(&mut self, partition: Partition, next: NextOffset, end: NextOffset) {
        metrics::rebalanced(self.context.group, Rebalance::Assigned, 1);
        let epoch = Epoch(EPOCHS.fetch_add(1, Ordering::Relaxed));
        let lease = Arc::new(Lease {
            partition,
            epoch,
            cancelled: CancellationToken::new(),
            settlements: Arc::clone(&self.context.settlements),
            codec: Arc::clone(&self.context.codec),
            dead_letters: Arc::clone(&self.context.dead_letters),
        });
        let new_partition = OwnedPartition { lease, waiting_records: VecDeque::new(), end: None };
        // The engine assigned the partition again without a revocation: settlements of the old epoch must not count.
        if let Some(former_assignment) = self.owned.insert(partition, new_partition) {
            former_assignment.lease.cancelled.cancel();
        }
        self.assignments.assign(partition, epoch, next, end);
        self.has_new_times = true;
        self.resume_if_stopped(partition);
        tracing::debug!(role = %self.context.role, %partition, %next, "assigned");
        if self.assignments.is_full() {
            // The gate pauses only the partitions owned at its change, so a new one is paused here.
            self.engine.pause(&[partition]);
        }
        // A rebalance may still assign partitions while the consumer ends: release them at once.
        if let Some(cause) = self.ending {
            self.begin_release(cause, vec![partition], self.engine.current_time());
        } else {
            self.publish_ownership();
        }
    }

    /// Hands out records in batches, as they were fetched.
    fn hand_out_fetched(&mut self, records: Vec<FetchedRecord>) {
        let mut batch = Vec::with_capacity(records.len());
        for record in records {
            let partition = record.at.partition;
            let Some(owned) = self.owned.get_mut(&partition) else { continue };
            // Fetched before the release began. The next owner reads the record.
            if owned.lease.cancelled.is_cancelled() || self.ending.is_some() {
                continue;
            }
            // An earlier record waits for its schema, and the order must hold.
            if !owned.waiting_records.is_empty() {
                owned.waiting_records.push_back(record);
                continue;
            }
            match self.receive(record) {
                Ok(received) => batch.extend(received),
                Err((record, schema)) => self.wait_for_schema(record, schema),
            }
        }
        self.context.queue.push(batch);
    }

    /// Unframes a record and counts it as delivered. `None`: the record is not handed out. An error: its schema is not
    /// known yet.
    fn receive(&mut self, record: FetchedRecord) -> Result<Option<ReceivedRecord>, (FetchedRecord, u32)> {
        let partition = record.at.partition;
        let role = self.context.role;
        let value = match self.context.codec.unframe(partition.topic, &record.framed) {
            Ok(value) => value,
            Err(UnframeError::UnknownSchema(schema)) => return Err((record, schema)),
            Err(UnframeError::Malformed(malformed)) => {
                let detail = malformed.to_string();
                self.fail(ConsumeError::Malformed { role, position: record.at, detail });
                return Ok(None);
            }
        };
        let Some(owned) = self.owned.get(&partition) else { return Ok(None) };
        let later_appends_from = record.written_at.minus(E::APPEND_TIME_STEP);
        let delivery =
            self.assignments.deliver(partition, record.at.offset, record.bytes(), later_appends_from);
        let maybe_replayed = match delivery {
            Ok(maybe_replayed) => maybe_replayed,
            // An engine may fetch a record again after a resume. Skip it: its first ticket is still open.
            Err(AssignmentError::Ledger { error: LedgerError::NotAscending { .. }, .. }) => return Ok(None),
            Err(error) => {
                tracing::warn!(%role, %error, "a fetched record belongs to no assignment");
                return Ok(None);
            }
        };
        let origin = Origin {
            key: record.key.clone(),
            headers: record.headers.clone(),
            written_at: record.written_at,
        };
        let ticket = Ticket::new(Arc::clone(&owned.lease), record.at.offset, origin);
        let FetchedRecord { at, key, headers, written_at, .. } = record;
        Ok(Some(ReceivedRecord { at, key, value, headers, written_at, maybe_replayed, ticket }))
    }

    /// Keeps a record until its schema is known, and pauses its partition, so that later records do not overtake it.
    fn wait_for_schema(&mut self, record: FetchedRecord, schema: u32) {
        let position = record.at;
        let partition = position.partition;
        self.engine.pause(&[partition]);
        if let Some(owned) = self.owned.get_mut(&partition) {
            owned.waiting_records.push_front(record);
        }
        self.stop_partition(StoppedPartition::UnknownSchema { position, schema });
    }

    fn retry_schemas(&mut self, now: Instant) {
        if now.duration_since(self.last_schema_retry) < self.context.settings.schema_retry() {
            return;
        }
        self.last_schema_retry = now;
        let blocked_partitions: Vec<Partition> = self
            .owned
            .iter()
            .filter(|(_, owned)| !owned.waiting_records.is_empty())
            .map(|(partition, _)| *partition)
            .collect();
        for partition in blocked_partitions {
            let mut batch = Vec::new();
            while let Some(record) =
                self.owned.get_mut(&partition).and_then(|owned| owned.waiting_records.pop_front())
            {
                match self.receive(record) {
                    Ok(received) => batch.extend(received),
                    Err((record, schema)) => {
                        self.wait_for_schema(record, schema);
                        break;
                    }
                }
            }
            // All waiting records are handed out, so the partition may be fetched again.
            if self.owned.get(&partition).is_some_and(|owned| owned.waiting_records.is_empty())
                && self.ending.is_none()
            {
                self.resume_if_stopped(partition);
                // A closed gate resumes the partition when it opens.
                if !self.assignments.is_full() {
                    self.engine.resume(&[partition]);
                }
            }
            self.context.queue.push(batch);
        }
    }

    fn stop_partition(&mut self, stop: StoppedPartition) {
        let partition = stop.partition();
        // Reported once, because every retry meets the same stop.
        if self.stopped.get(&partition) == Some(&stop) {
            return;
        }
        tracing::error!(role = %self.context.role, group = self.context.group.0, tag = stop.tag(), "{stop}");
        metrics::stopped(self.context.group, &stop, true);
        self.stopped.insert(partition, stop);
        self.publish_ownership();
    }

    fn resume_if_stopped(&mut self, partition: Partition) {
        if let Some(stop) = self.stopped.remove(&partition) {
            metrics::stopped(self.context.group, &stop, false);
            tracing::info!(role = %self.context.role, %partition, tag = stop.tag(), "the partition is read again");
            self.publish_ownership();
        }
    }

    fn collect_settlements(&mut self) {
        let role = self.context.role;
        let mut settlements = std::mem::take(&mut self.settlements);
        self.context.settlements.collect(&mut settlements);
        for settlement in settlements.drain(..) {
            let position = settlement.position();
            match self.assignments.settle(settlement) {
                Ok(SettleResult::Counted) => {
                    let is_owned = self
                        .owned
                        .get(&settlement.partition)
                        .is_some_and(|owned| !owned.lease.cancelled.is_cancelled());
                    // A stopping role may drop its tickets before this thread notices the stop.
                    if settlement.outcome == Outcome::Dropped && is_owned && !self.context.is_stopping() {
                        self.fail(ConsumeError::TicketDropped { role, position });
                    }
                }
                Ok(SettleResult::Stale) => {
                    tracing::debug!(%role, %position, "a ticket was settled after its assignment ended");
                }
                Err(error) => tracing::error!(%role, %error, "the ledger refused a settlement"),
            }
        }
        self.settlements = settlements;
    }

    /// Commits once an interval, and earlier if a commit frees budget.
    fn commit_if_due(&mut self, now: Instant) {
        let committable = self.assignments.committable();
        let is_due = now.duration_since(self.last_commit) >= self.context.settings.commit_interval();
        // A quarter of the budget: fewer records are not worth an extra commit.
        let frees_budget = committable >= (self.assignments.limit().records / 4).max(1)
            || (committable > 0 && self.assignments.is_full());
        // No early commit after a failure or during a commit: it would only queue up behind the broker.
        let may_hurry = !self.commit_failed && !self.assignments.has_commit_in_flight();
        if is_due || (frees_budget && may_hurry) {
            self.commit(now);
        }
    }

    fn commit(&mut self, now: Instant) {
        self.last_commit = now;
        self.commit_failed = false;
        let upto = self.assignments.begin_commit();
        if !upto.is_empty() {
            self.engine.commit(&upto);
        }
        let held_amount = self.assignments.held_amount();
        metrics::uncommitted(
            self.context.group,
            held_amount.records,
            held_amount.bytes,
            self.assignments.is_full(),
        );
        for (partition, frontier) in self.assignments.frontiers() {
            let end = self.owned.get(&partition).and_then(|owned| owned.end);
            metrics::frontier(self.context.group, partition, frontier, end);
        }
    }

    fn update_gate(&mut self) {
        match self.assignments.update_gate() {
            Some(GateChange::Pause) => {
                let all_partitions: Vec<Partition> = self.owned.keys().copied().collect();
                self.engine.pause(&all_partitions);
                self.context.queue.set_paused(true);
            }
            Some(GateChange::Resume) => {
                // Stopped partitions stay paused, and those being released must not be fetched again.
                let is_readable = |partition: &Partition, owned: &OwnedPartition| {
                    !self.stopped.contains_key(partition) && !owned.lease.cancelled.is_cancelled()
                };
                let readable: Vec<Partition> = self
                    .owned
                    .iter()
                    .filter(|(partition, owned)| is_readable(partition, owned))
                    .map(|(partition, _)| *partition)
                    .collect();
                self.engine.resume(&readable);
                self.context.queue.set_paused(false);
            }
            None => {}
        }
    }

    fn fail(&mut self, error: ConsumeError) {
        // Only the first failure is reported; later ones follow from it.
        if self.ending.is_none() {
            tracing::error!(role = %self.context.role, tag = error.tag(), "{error}");
            self.context.queue.end(Err(error));
            self.end(DrainCause::Failed, self.engine.current_time());
        }
    }

    fn end(&mut self, cause: DrainCause, now: Instant) {
        self.ending = Some(cause);
        // Partitions in a release keep their own deadline.
        let releasing: Vec<Partition> =
            self.releases.iter().flat_map(|release| release.partitions.iter().copied()).collect();
        let remaining_partitions =
            self.owned.keys().copied().filter(|partition| !releasing.contains(partition)).collect();
        self.begin_release(cause, remaining_partitions, now);
    }

    /// Starts the release of partitions: their queued records are removed, and running work is told to stop.
    fn begin_release(&mut self, cause: DrainCause, partitions: Vec<Partition>, now: Instant) {
        for partition in &partitions {
            if let Some(owned) = self.owned.get_mut(partition) {
                owned.lease.cancelled.cancel();
                owned.waiting_records.clear();
            }
        }
        self.context.queue.remove(|received| received.ticket.is_cancelled());
        let drain = Drain::new(cause, now, self.context.settings.drain_timeout());
        self.releases.push(Release { drain, partitions });
        self.publish_ownership();
    }

    fn step_releases(&mut self, now: Instant) {
        let mut unfinished = Vec::new();
        for mut release in std::mem::take(&mut self.releases) {
            // A step changes the state of the drain, so continue until it waits or releases.
            loop {
                let in_flight = self.assignments.in_flight(&release.partitions);
                let uncommitted = self.assignments.uncommitted(&release.partitions);
                let commit_timeout = self.context.settings.commit_timeout();
                match release.drain.step(now, in_flight, uncommitted, commit_timeout) {
                    DrainStep::Wait(_) => {
                        unfinished.push(release);
                        break;
                    }
                    DrainStep::Commit { clean } => {
                        if !clean {
                            tracing::warn!(role = %self.context.role, in_flight, "work did not finish before the drain's deadline");
                        }
                        self.commit(now);
                    }
                    DrainStep::Release { clean } => {
                        // Reported at the end: the caller must know that some records will be delivered again.
                        self.has_left_work |= !clean;
                        metrics::drained(
                            self.context.group,
                            release.drain.cause.label(),
                            release.drain.elapsed(now),
                        );
                        self.engine.release(&release.partitions);
                        self.forget(&release.partitions);
                        break;
                    }
                }
            }
        }
        self.releases.extend(unfinished);
    }

    fn handle_lost(&mut self, partitions: &[Partition]) {
        metrics::rebalanced(self.context.group, Rebalance::Lost, partitions.len());
        for partition in partitions {
            if let Some(owned) = self.owned.get(partition) {
                owned.lease.cancelled.cancel();
            }
        }
        self.context.queue.remove(|received| received.ticket.is_cancelled());
        // Lost partitions need no drain.
        for release in &mut self.releases {
            release.partitions.retain(|partition| !partitions.contains(partition));
        }
        self.forget(partitions);
        self.publish_ownership();
    }

    fn forget(&mut self, partitions: &[Partition]) {
        self.has_new_times = true;
        for partition in partitions {
            self.owned.remove(partition);
            self.assignments.release(*partition);
            if let Some(stop) = self.stopped.remove(partition) {
                metrics::stopped(self.context.group, &stop, false);
            }
        }
    }

    fn publish_completed_times(&mut self) {
        if std::mem::take(&mut self.has_new_times) {
            self.context.completed_times.replace(self.assignments.completed_times());
        }
    }

    fn publish_ownership(&self) {
        let active_partitions = self.owned.iter().filter(|(_, owned)| !owned.lease.cancelled.is_cancelled());
        self.context.ownership.send_replace(Ownership {
            partitions: active_partitions.map(|(partition, owned)| (*partition, owned.lease.epoch)).collect(),
            stopped: self.stopped.values().cloned().collect(),
        });
    }

    fn next_wait(&self, now: Instant) -> Duration {
        let settings = &self.context.settings;
        let mut max_wait = MAX_IDLE_WAIT;
        if self.assignments.committable() > 0 || !self.assignments.held_amount().is_zero() {
            let elapsed = now.duration_since(self.last_commit);
            max_wait = max_wait.min(settings.commit_interval().saturating_sub(elapsed));
        }
        if self.owned.values().any(|owned| !owned.waiting_records.is_empty()) {
            let elapsed = now.duration_since(self.last_schema_retry);
            max_wait = max_wait.min(settings.schema_retry().saturating_sub(elapsed));
        }
        let awaits_settlements = self.assignments.is_full() || !self.releases.is_empty();
        if awaits_settlements {
            // A settlement can free budget or end a drain, so the sleep must not outlast a missed wake-up.
            max_wait = max_wait.min(E::DEAF_FOR);
            if !self.context.settlements.await_next() {
                // A settlement arrived already: collect it before sleeping.
                return Duration::ZERO;
            }
        }
        max_wait
    }
}
