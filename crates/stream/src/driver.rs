//! One consumer on its own thread: polls the engine, charges the budget, hands records out, collects
//! what became of them, commits, and lets partitions go.
//!
//! It decides by the pure parts (`book`, `drain`) and acts through the engine; it knows no engine by name.

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

use crate::{
    book::{Book, BookError, Fate},
    budget::Turn,
    codec::{Codec, Unreadable},
    drain::{Cause, Drain, Step},
    engine::{Engine, Event},
    error::{ConsumeError, Stopped},
    health::Health,
    inbox::{Drained, Ownership, Tray},
    ledger::LedgerError,
    metrics,
    record::{Fetched, Received},
    settings::Consume,
    ticket::{Desk, Epoch, Lease, Origin, Outcome, Outlet, Settled, Ticket},
    topics::{Group, NextOffset, Partition, Role},
};

/// Epochs of all consumers of the process come from one sequence, so that one is never another's.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

/// The longest the driver sleeps with nothing to do.
const IDLE: Duration = Duration::from_secs(1);

/// An owned partition.
struct Lane {
    lease: Arc<Lease>,
    /// Read, but not handed out: the first one's schema is not known yet, and order must hold.
    held: VecDeque<Fetched>,
    /// Where the partition ends, as far as the engine told.
    end: Option<NextOffset>,
}

/// Partitions being let go.
struct Letting {
    drain: Drain,
    partitions: Vec<Partition>,
}

/// What a driver is started with.
pub(crate) struct Parts {
    pub(crate) group: Group,
    pub(crate) role: Role,
    pub(crate) settings: Consume,
    pub(crate) codec: Arc<Codec>,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) health: Arc<Health>,
    pub(crate) tray: Arc<Tray>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) ownership: watch::Sender<Ownership>,
    /// Asked to stop: by the role, or with the whole log.
    pub(crate) stop: CancellationToken,
    pub(crate) closing: CancellationToken,
}

impl Parts {
    fn is_stopping(&self) -> bool {
        self.stop.is_cancelled() || self.closing.is_cancelled()
    }
}

pub(crate) struct Driver<E: Engine> {
    engine: E,
    parts: Parts,
    book: Book,
    lanes: BTreeMap<Partition, Lane>,
    stopped: BTreeMap<Partition, Stopped>,
    letting: Vec<Letting>,
    /// Why the consumer ends; nothing is handed out any more.
    ending: Option<Cause>,
    left_work: bool,
    last_commit: Instant,
    /// The last commit failed: the next waits for its interval, however much the budget waits for it.
    commit_failed: bool,
    last_schema_try: Instant,
    reports: Vec<Settled>,
}

impl<E: Engine> Driver<E> {
    pub(crate) fn new(engine: E, parts: Parts, book: Book) -> Self {
        let now = engine.now();
        Self {
            engine,
            parts,
            book,
            lanes: BTreeMap::new(),
            stopped: BTreeMap::new(),
            letting: Vec::new(),
            ending: None,
            left_work: false,
            last_commit: now,
            commit_failed: false,
            last_schema_try: now,
            reports: Vec::new(),
        }
    }

    /// Runs until asked to stop, or failed, and drained.
    pub(crate) fn run(mut self) -> Drained {
        loop {
            let now = self.engine.now();
            self.collect_reports();
            if self.ending.is_none() && self.parts.is_stopping() {
                self.parts.tray.end(Ok(()));
                self.end(Cause::Shutdown, now);
            }
            self.retry_schemas(now);
            self.commit_if_due(now);
            self.let_go(now);
            if self.ending.is_some() && self.letting.is_empty() {
                break;
            }
            self.turn_gate();
            let wait = self.wait(now);
            for event in self.engine.poll(wait, self.book.room()) {
                self.handle(event);
            }
        }
        self.engine.close();
        self.parts.health.recover(self.parts.role.0);
        metrics::held(self.parts.group, 0, 0, false);
        if self.left_work || self.ending == Some(Cause::Failed) { Drained::Forced } else { Drained::Clean }
    }

    fn handle(&mut self, event: Event) {
        let now = self.engine.now();
        match event {
            Event::Assigned { partition, next, end } => self.assigned(partition, next, end),
            Event::Fetched(records) => self.fetched(records),
            Event::Revoking(partitions) => {
                metrics::rebalanced(self.parts.group, "revoked", partitions.len());
                self.begin_letting_go(Cause::Revoked, partitions, now);
            }
            Event::Lost(partitions) => self.lost(&partitions),
            Event::Committed { partition, next } => {
                crate::failpoint!("after_commit");
                if let Err(error) = self.book.acknowledge(partition, next) {
                    tracing::warn!(role = %self.parts.role, %error, "a commit was acknowledged that was not asked for");
                }
            }
            Event::CommitFailed { partitions, tag, detail } => {
                metrics::commit_failed(self.parts.group, tag);
                tracing::warn!(role = %self.parts.role, tag, detail, "a commit failed and is tried again");
                self.commit_failed = true;
                for partition in partitions {
                    self.book.fail_commit(partition);
                }
            }
            Event::Gap { partition, committed, start } => {
                self.stop_partition(Stopped::Gap { partition, committed, start });
            }
            Event::End { partition, end } => {
                if let Some(lane) = self.lanes.get_mut(&partition) {
                    lane.end = Some(end);
                }
            }
            Event::Unreachable { detail } => {
                if self.parts.health.complain(self.parts.role.0, detail.clone()) {
                    tracing::warn!(role = %self.parts.role, detail, "the log is unreachable, trying on");
                }
            }
            Event::Reachable => {
                if self.parts.health.recover(self.parts.role.0) {
                    tracing::info!(role = %self.parts.role, "the log is reachable again");
                }
            }
            Event::Failed { detail } => {
                self.fail(ConsumeError::Broken { role: self.parts.role, detail });
            }
        }
    }

    fn assigned(&mut self, partition: Partition, next: NextOffset, end: NextOffset) {
        metrics::rebalanced(self.parts.group, "assigned", 1);
        let epoch = Epoch(EPOCHS.fetch_add(1, Ordering::Relaxed));
        let lease = Arc::new(Lease {
            partition,
            epoch,
            lost: CancellationToken::new(),
            desk: Arc::clone(&self.parts.desk),
            outlet: Arc::clone(&self.parts.outlet),
        });
        if let Some(before) = self.lanes.insert(partition, Lane { lease, held: VecDeque::new(), end: None }) {
            before.lease.lost.cancel();
        }
        self.book.assign(partition, epoch, next, end);
        self.resume_if_stopped(partition);
        tracing::debug!(role = %self.parts.role, %partition, %next, "assigned");
        if self.book.is_full() {
            self.engine.pause(&[partition]);
        }
        if let Some(cause) = self.ending {
            self.begin_letting_go(cause, vec![partition], self.engine.now());
        } else {
            self.publish_ownership();
        }
    }

    /// Hands records out, in batches as they were fetched.
    fn fetched(&mut self, records: Vec<Fetched>) {
        let mut batch = Vec::with_capacity(records.len());
        for record in records {
            let partition = record.at.partition;
            let Some(lane) = self.lanes.get_mut(&partition) else { continue };
            if lane.lease.lost.is_cancelled() || self.ending.is_some() {
                continue;
            }
            if !lane.held.is_empty() {
                lane.held.push_back(record);
                continue;
            }
            match self.open(record) {
                Ok(received) => batch.extend(received),
                Err((record, schema)) => self.hold(record, schema),
            }
        }
        self.parts.tray.put(batch);
    }

    /// Takes a record out of its framing and enters it in the book. `None`: it is not handed out.
    fn open(&mut self, record: Fetched) -> Result<Option<Received>, (Fetched, u32)> {
        let partition = record.at.partition;
        let value = match self.parts.codec.open(partition.topic, &record.framed) {
            Ok(value) => value,
            Err(Unreadable::UnknownSchema(schema)) => return Err((record, schema)),
            Err(Unreadable::Malformed(malformed)) => {
                let role = self.parts.role;
                self.fail(ConsumeError::Malformed {
                    role,
                    position: record.at,
                    detail: malformed.to_string(),
                });
                return Ok(None);
            }
        };
        let Some(lane) = self.lanes.get(&partition) else { return Ok(None) };
        let maybe_replayed = match self.book.deliver(partition, record.at.offset, record.bytes()) {
            Ok(maybe_replayed) => maybe_replayed,
            // An engine may fetch again after a resume; what is out already is not handed out twice.
            Err(BookError::Ledger { error: LedgerError::NotAscending { .. }, .. }) => return Ok(None),
            Err(error) => {
                tracing::warn!(role = %self.parts.role, %error, "a record came for nobody");
                return Ok(None);
            }
        };
        let origin = Origin {
            key: record.key.clone(),
            headers: record.headers.clone(),
            written_at: record.written_at,
        };
        let ticket = Ticket::new(Arc::clone(&lane.lease), record.at.offset, origin);
        #[cfg(feature = "fault-commit-at-poll")]
        let ticket = ticket.settled_before_work();
        let Fetched { at, key, headers, written_at, .. } = record;
        Ok(Some(Received { at, key, value, headers, written_at, maybe_replayed, ticket }))
    }

    fn hold(&mut self, record: Fetched, schema: u32) {
        let position = record.at;
        let partition = position.partition;
        self.engine.pause(&[partition]);
        if let Some(lane) = self.lanes.get_mut(&partition) {
            lane.held.push_front(record);
        }
        self.stop_partition(Stopped::UnknownSchema { position, schema });
    }

    fn retry_schemas(&mut self, now: Instant) {
        if now.duration_since(self.last_schema_try) < self.parts.settings.schema_retry() {
            return;
        }
        self.last_schema_try = now;
        let waiting: Vec<Partition> =
            self.lanes.iter().filter(|(_, lane)| !lane.held.is_empty()).map(|(own, _)| *own).collect();
        for partition in waiting {
            let mut batch = Vec::new();
            while let Some(record) = self.lanes.get_mut(&partition).and_then(|lane| lane.held.pop_front()) {
                match self.open(record) {
                    Ok(received) => batch.extend(received),
                    Err((record, schema)) => {
                        self.hold(record, schema);
                        break;
                    }
                }
            }
            if self.lanes.get(&partition).is_some_and(|lane| lane.held.is_empty()) && self.ending.is_none() {
                self.resume_if_stopped(partition);
                if !self.book.is_full() {
                    self.engine.resume(&[partition]);
                }
            }
            self.parts.tray.put(batch);
        }
    }

    fn stop_partition(&mut self, why: Stopped) {
        let partition = why.partition();
        if self.stopped.get(&partition) == Some(&why) {
            return;
        }
        tracing::error!(role = %self.parts.role, group = self.parts.group.0, tag = why.tag(), "{why}");
        metrics::stopped(self.parts.group, &why, true);
        self.stopped.insert(partition, why);
        self.publish_ownership();
    }

    fn resume_if_stopped(&mut self, partition: Partition) {
        if let Some(why) = self.stopped.remove(&partition) {
            metrics::stopped(self.parts.group, &why, false);
            tracing::info!(role = %self.parts.role, %partition, tag = why.tag(), "the partition goes on");
            self.publish_ownership();
        }
    }

    fn collect_reports(&mut self) {
        let mut reports = std::mem::take(&mut self.reports);
        self.parts.desk.collect(&mut reports);
        for settled in reports.drain(..) {
            let position = settled.position();
            match self.book.settle(settled) {
                Ok(Fate::Counted) => {
                    let owned = self
                        .lanes
                        .get(&settled.partition)
                        .is_some_and(|lane| !lane.lease.lost.is_cancelled());
                    // A role that was asked to stop may drop its tickets before this thread hears of it.
                    if settled.outcome == Outcome::Dropped && owned && !self.parts.is_stopping() {
                        let role = self.parts.role;
                        self.fail(ConsumeError::TicketDropped { role, position });
                    }
                }
                Ok(Fate::Straggler) => {
                    tracing::debug!(role = %self.parts.role, %position, "settled after its assignment ended");
                }
                Err(error) => tracing::error!(role = %self.parts.role, %error, "the ledger refused a report"),
            }
        }
        self.reports = reports;
    }

    /// Once an interval, and earlier when commits are what the budget waits for.
    fn commit_if_due(&mut self, now: Instant) {
        let committable = self.book.committable();
        let due = now.duration_since(self.last_commit) >= self.parts.settings.commit_interval();
        let pressed =
            committable >= (self.book.cap().records / 4).max(1) || (committable > 0 && self.book.is_full());
        if due || (pressed && !self.commit_failed && !self.book.is_commit_unanswered()) {
            self.commit(now);
        }
    }

    fn commit(&mut self, now: Instant) {
        self.last_commit = now;
        self.commit_failed = false;
        let upto = self.book.begin_commit();
        if !upto.is_empty() {
            self.engine.commit(&upto);
        }
        let used = self.book.used();
        metrics::held(self.parts.group, used.records, used.bytes, self.book.is_full());
        for (partition, frontier) in self.book.frontiers() {
            let end = self.lanes.get(&partition).and_then(|lane| lane.end);
            metrics::frontier(self.parts.group, partition, frontier, end);
        }
    }

    fn turn_gate(&mut self) {
        match self.book.turn() {
            Some(Turn::Pause) => {
                let all: Vec<Partition> = self.lanes.keys().copied().collect();
                self.engine.pause(&all);
                self.parts.tray.full(true);
            }
            Some(Turn::Resume) => {
                let readable: Vec<Partition> = self
                    .lanes
                    .iter()
                    .filter(|(partition, lane)| {
                        !self.stopped.contains_key(partition) && !lane.lease.lost.is_cancelled()
                    })
                    .map(|(partition, _)| *partition)
                    .collect();
                self.engine.resume(&readable);
                self.parts.tray.full(false);
            }
            None => {}
        }
    }

    fn fail(&mut self, error: ConsumeError) {
        if self.ending.is_none() {
            tracing::error!(role = %self.parts.role, tag = error.tag(), "{error}");
            self.parts.tray.end(Err(error));
            self.end(Cause::Failed, self.engine.now());
        }
    }

    fn end(&mut self, cause: Cause, now: Instant) {
        self.ending = Some(cause);
        let under_way: Vec<Partition> =
            self.letting.iter().flat_map(|letting| letting.partitions.iter().copied()).collect();
        let rest = self.lanes.keys().copied().filter(|own| !under_way.contains(own)).collect();
        self.begin_letting_go(cause, rest, now);
    }

    /// From here on nothing of these partitions is handed out, and waiting work is cancelled.
    fn begin_letting_go(&mut self, cause: Cause, partitions: Vec<Partition>, now: Instant) {
        for partition in &partitions {
            if let Some(lane) = self.lanes.get_mut(partition) {
                lane.lease.lost.cancel();
                lane.held.clear();
            }
        }
        self.parts.tray.take_back(|received| received.ticket.is_lost());
        let drain = Drain::new(cause, now, self.parts.settings.drain_timeout());
        self.letting.push(Letting { drain, partitions });
        self.publish_ownership();
    }

    fn let_go(&mut self, now: Instant) {
        let mut still = Vec::new();
        for mut letting in std::mem::take(&mut self.letting) {
            loop {
                let in_flight = self.book.in_flight(&letting.partitions);
                let uncommitted = self.book.uncommitted(&letting.partitions);
                match letting.drain.step(now, in_flight, uncommitted, self.parts.settings.commit_timeout()) {
                    Step::Wait(_) => {
                        still.push(letting);
                        break;
                    }
                    Step::Commit { clean } => {
                        if !clean {
                            tracing::warn!(role = %self.parts.role, in_flight, "work ran over the drain's deadline");
                        }
                        self.commit(now);
                    }
                    Step::Release { clean } => {
                        self.left_work |= !clean;
                        metrics::drained(self.parts.group, letting.drain.cause, letting.drain.took(now));
                        self.engine.release(&letting.partitions);
                        self.forget(&letting.partitions);
                        break;
                    }
                }
            }
        }
        self.letting.extend(still);
    }

    fn lost(&mut self, partitions: &[Partition]) {
        metrics::rebalanced(self.parts.group, "lost", partitions.len());
        for partition in partitions {
            if let Some(lane) = self.lanes.get(partition) {
                lane.lease.lost.cancel();
            }
        }
        self.parts.tray.take_back(|received| received.ticket.is_lost());
        for letting in &mut self.letting {
            letting.partitions.retain(|own| !partitions.contains(own));
        }
        self.forget(partitions);
        self.publish_ownership();
    }

    fn forget(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.lanes.remove(partition);
            self.book.release(*partition);
            if let Some(why) = self.stopped.remove(partition) {
                metrics::stopped(self.parts.group, &why, false);
            }
        }
    }

    fn publish_ownership(&self) {
        let owned = self.lanes.iter().filter(|(_, lane)| !lane.lease.lost.is_cancelled());
        self.parts.ownership.send_replace(Ownership {
            partitions: owned.map(|(partition, lane)| (*partition, lane.lease.epoch)).collect(),
            stopped: self.stopped.values().cloned().collect(),
        });
    }

    fn wait(&self, now: Instant) -> Duration {
        let mut wait = IDLE;
        if self.book.committable() > 0 || !self.book.used().is_zero() {
            let since = now.duration_since(self.last_commit);
            wait = wait.min(self.parts.settings.commit_interval().saturating_sub(since));
        }
        if self.lanes.values().any(|lane| !lane.held.is_empty()) {
            let since = now.duration_since(self.last_schema_try);
            wait = wait.min(self.parts.settings.schema_retry().saturating_sub(since));
        }
        let awaits_reports = self.book.is_full() || !self.letting.is_empty();
        if awaits_reports {
            wait = wait.min(E::DEAF_FOR);
            if !self.parts.desk.await_report() {
                return Duration::ZERO;
            }
        }
        wait
    }
}

#[cfg(test)]
mod tests;
