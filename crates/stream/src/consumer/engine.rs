//! Interface between an engine and its driver: fetch, pause, resume, commit, release.
//!
//! An engine holds no policy: it reports events and executes calls. Ledger, budget, epochs and drain belong to the driver and
//! are the same for every engine.

use std::time::{Duration, Instant};

use tidegate_schemas::ids::Millis;

use super::budget::Amount;
use crate::{
    record::FetchedRecord,
    topics::{NextOffset, Partition},
};

/// Event since the last poll.
#[derive(Debug)]
pub(crate) enum Event {
    /// The partition is ours; the next fetched record is at `next` or above. `end` is the end of the partition after its
    /// former owner released it: no owner has received a record at `end` or above.
    Assigned { partition: Partition, next: NextOffset, end: NextOffset },
    /// Records, ascending by offset within each partition.
    Fetched(Vec<FetchedRecord>),
    /// The group revokes the partitions. They stay ours until `release`, and no other member gets them before; the engine
    /// still answers polls and commits, but fetches no more records of them. A rebalance callback therefore only records
    /// the request: the group waits for `release`, not for the callback.
    Revoking(Vec<Partition>),
    /// The partitions are lost and released already. A commit would be refused or, worse, overwrite the new owner's.
    Lost(Vec<Partition>),
    /// A commit is durable.
    Committed { partition: Partition, next: NextOffset },
    /// A commit failed; the driver retries with the frontier of that time.
    CommitFailed { partitions: Vec<Partition>, tag: &'static str, detail: String },
    /// Retention has passed the group's position. The partition is ours (after `Assigned`), but the engine does not fetch
    /// it.
    Gap { partition: Partition, committed: NextOffset, start: NextOffset },
    /// End of a partition, for the lag.
    End { partition: Partition, end: NextOffset },
    /// Ends of assigned partitions, about once a second: every record with an append time below `complete_until` is below
    /// the end of its partition, including records that are appended later.
    EndSnapshot { complete_until: Millis, ends: Vec<(Partition, NextOffset)> },
    /// The log is unreachable; the engine keeps trying. Not fatal.
    Unreachable { detail: String },
    /// The log is reachable again.
    Reachable,
    /// The engine cannot continue in this process.
    Failed { detail: String },
}

pub(crate) trait Engine: Send {
    /// Longest time for which `poll` may miss the driver's wakeup. While the driver expects a settlement, it requests no
    /// longer waits. An engine that sleeps on the wakeup itself can use a long time.
    const DEAF_FOR: Duration;

    /// Largest time by which a record can have an earlier append time than the record before it.
    const APPEND_TIME_STEP: Duration;

    /// Waits up to `wait` for events and returns them in order. Fetches at most `available`, but always allows one record
    /// of any size if `available.records` is above 0. Serves the group and the commits even if no amount is available or
    /// all partitions are paused.
    fn poll(&mut self, wait: Duration, available: Amount) -> Vec<Event>;

    fn pause(&mut self, partitions: &[Partition]);

    fn resume(&mut self, partitions: &[Partition]);

    /// Begins a commit. Each partition is answered by `Committed` or `CommitFailed` in a later poll.
    fn commit(&mut self, upto: &[(Partition, NextOffset)]);

    /// Releases partitions after `Revoking` or at the end. The driver has waited for their commit.
    fn release(&mut self, partitions: &[Partition]);

    /// Current time of the driver. Tests replace it.
    fn current_time(&self) -> Instant {
        Instant::now()
    }

    /// Leaves the group. Called once, after the last release.
    fn close(&mut self);
}
