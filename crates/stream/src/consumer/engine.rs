//! The interface of an engine to its driver: fetch, pause, resume, commit, let go.
//!
//! An engine holds no policy: it reports what happened and does what it is told. Ledger, budget, epochs and drain are
//! the driver's, the same for every engine.

use std::time::{Duration, Instant};

use super::budget::Amount;
use crate::{
    record::FetchedRecord,
    topics::{NextOffset, Partition},
};

/// One thing that happened since the last poll.
#[derive(Debug)]
pub(crate) enum Event {
    /// The partition is ours from here on; the next record fetched is at `next` or above. `end` is where the
    /// partition ended after its former owner had let go: nobody has been handed a record at `end` or above.
    Assigned { partition: Partition, next: NextOffset, end: NextOffset },
    /// Records, ascending by offset within each partition.
    Fetched(Vec<FetchedRecord>),
    /// The group wants the partitions back. They stay ours, and nobody else gets them, until `release`; the engine
    /// goes on answering polls and commits, but fetches nothing more from them. So a rebalance callback only notes the
    /// request and returns: the group waits for `release`, not for the callback.
    Revoking(Vec<Partition>),
    /// The partitions are gone already. They are released; a commit would be refused or, worse, count.
    Lost(Vec<Partition>),
    /// A commit is durable.
    Committed { partition: Partition, next: NextOffset },
    /// A commit failed; the driver tries again with what is complete by then.
    CommitFailed { partitions: Vec<Partition>, tag: &'static str, detail: String },
    /// Retention has passed the group's position. The partition is ours (`Assigned` came before), but the engine does
    /// not fetch it.
    Gap { partition: Partition, committed: NextOffset, start: NextOffset },
    /// End of a partition, for the lag.
    End { partition: Partition, end: NextOffset },
    /// The log cannot be reached; the engine keeps trying. Not fatal.
    Unreachable { detail: String },
    /// The log is reached (again).
    Reachable,
    /// The engine can never go on in this process.
    Failed { detail: String },
}

pub(crate) trait Engine: Send {
    /// Longest time that `poll` may sleep without noticing the driver's wakeup. The driver asks for no longer waits
    /// while it expects a settlement soon. An engine that sleeps on the wakeup itself names a long time.
    const DEAF_FOR: Duration;

    /// Waits for events at most `wait`, and returns them in order. Fetches at most `available`, except that one record
    /// is fetched although it alone is larger than `available.bytes`, if `available` has any record. With nothing
    /// available, or everything paused, it still serves the group and the commits.
    fn poll(&mut self, wait: Duration, available: Amount) -> Vec<Event>;

    fn pause(&mut self, partitions: &[Partition]);

    fn resume(&mut self, partitions: &[Partition]);

    /// Begins a commit. Each partition is answered by `Committed` or `CommitFailed` in a later poll.
    fn commit(&mut self, upto: &[(Partition, NextOffset)]);

    /// Lets go of partitions after `Revoking`, or at the end; the driver waited for their commit.
    fn release(&mut self, partitions: &[Partition]);

    /// Current time of the driver. Tests replace it.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Leaves the group. Called once, last, after everything is released.
    fn close(&mut self);
}
