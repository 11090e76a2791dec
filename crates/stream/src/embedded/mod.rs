//! The log inside the process: partitions and offsets as in Kafka, in one database shared with the store.
//!
//! It does not rebalance: each group has one consumer, which owns every partition.

mod engine;
mod format;
mod keeper;
mod room;
mod segments;
mod settings;
mod state;
mod writer;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
};

use fjall::Database;
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

pub use self::settings::Settings;
use self::{
    engine::Engine,
    keeper::Keeper,
    room::Claim,
    state::{ReadError, State},
    writer::{Append, Job, Trim, Writer},
};
use crate::{
    budget::Budget,
    codec::Codec,
    consumers::{Consumers, Start},
    error::{AppendError, OpenError, TailError},
    health::{Health, Readiness},
    inbox::{Drained, Inbox},
    log,
    record::Addressed,
    settings::{self as all, Consume},
    signal::Signal,
    tail::{Order, Run},
    ticket::Outlet,
    topics::{Group, NextOffset, Partition, Role, Topic},
};

/// The embedded log. A clone is the same log; the last one dropped ends its threads.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
    claim: Claim,
}

struct Inner {
    state: Arc<State>,
    jobs: Sender<Job>,
    codec: Arc<Codec>,
    consume: Consume,
    consumers: Consumers,
    closed: AtomicBool,
    keeper: Arc<Signal>,
    stop_keeper: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("embedded::Log").field("claim", &self.claim).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_keeper.store(true, Ordering::Release);
        self.keeper.ring();
    }
}

impl Log {
    /// Opens the log in a database, making it there if it is new. Reads the disk, so not for an async
    /// thread. The keyspaces that begin with `log.` are the log's.
    pub(crate) fn open(db: Database, settings: &all::Settings, codec: Arc<Codec>) -> Result<Self, OpenError> {
        settings.validate()?;
        let health = Arc::new(Health::default());
        let state = State::open(db, settings.partition_count(), settings.embedded.clone(), health)?;
        let state = Arc::new(state);
        state.room.set(keeper::measure(&state));

        let (jobs, queue) = channel();
        let keeper = Arc::new(Signal::default());
        let stop_keeper = Arc::new(AtomicBool::new(false));
        let writer = Writer::new(Arc::clone(&state), queue, Arc::clone(&keeper));
        let looks_after = Keeper {
            state: Arc::clone(&state),
            jobs: jobs.clone(),
            signal: Arc::clone(&keeper),
            stop: Arc::clone(&stop_keeper),
        };
        let threads =
            vec![spawn("log-writer", move || writer.run())?, spawn("log-keeper", move || looks_after.run())?];
        let inner = Inner {
            state,
            jobs,
            codec,
            consume: settings.consume.clone(),
            consumers: Consumers::default(),
            closed: AtomicBool::new(false),
            keeper,
            stop_keeper,
            threads: Mutex::new(threads),
        };
        Ok(Self { inner: Arc::new(inner), claim: Claim::Request })
    }

    /// Why nothing that is written by this process will be found again, if that is so.
    pub(crate) fn lost(&self) -> Option<&str> {
        // Without traffic nobody else looks.
        let _told = self.inner.state.is_in_place();
        self.inner.state.lost.get().map(String::as_str)
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.inner.state.partitions
    }

    pub(crate) fn codec(&self) -> &Arc<Codec> {
        &self.inner.codec
    }

    pub(crate) fn reserved(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), claim: Claim::Reserved }
    }

    pub(crate) async fn append(&self, records: &[Addressed<'_>]) -> Result<(), AppendError> {
        if records.is_empty() {
            return Ok(());
        }
        let inner = &*self.inner;
        if inner.closed.load(Ordering::Acquire) {
            return Err(AppendError::ShuttingDown);
        }
        let mut stored = Vec::with_capacity(records.len());
        let mut bytes = 0;
        for (partition, record) in records {
            let (topic, size) = (partition.topic, record.bytes());
            if size > topic.max_record_bytes() {
                return Err(AppendError::TooLarge { topic, bytes: size, limit: topic.max_record_bytes() });
            }
            if partition.index >= inner.state.partitions {
                let partitions = inner.state.partitions;
                return Err(AppendError::NoSuchPartition { partition: *partition, partitions });
            }
            let record = format::encode(record, |datum, out| inner.codec.frame(topic, datum, out));
            bytes += record.len();
            stored.push((*partition, record));
        }
        if !inner.state.room.admits(self.claim, bytes) {
            inner.keeper.ring();
            return Err(AppendError::Full {
                detail: "the disk, or the share of it that was granted".to_owned(),
            });
        }
        self.enqueue(bytes)?;
        let (done, answer) = oneshot::channel();
        if inner.jobs.send(Job::Append(Append { records: stored, bytes, done })).is_err() {
            return Err(AppendError::ShuttingDown);
        }
        #[cfg(feature = "fault-ack-before-durable")]
        {
            // It is still written, a moment later: only a kill in between shows the fault.
            drop(tokio::spawn(answer));
            return Ok(());
        }
        #[cfg(not(feature = "fault-ack-before-durable"))]
        answer.await.unwrap_or(Err(AppendError::ShuttingDown))
    }

    /// Counts the bytes towards the writer's queue; it counts them off when they are written.
    fn enqueue(&self, bytes: usize) -> Result<(), AppendError> {
        let limit = self.inner.state.settings.queue_bytes;
        let waiting = self.inner.state.queued.fetch_add(bytes, Ordering::AcqRel);
        // A single append above the limit passes when nothing waits, or it would never pass.
        if waiting > 0 && waiting.saturating_add(bytes) > limit {
            self.inner.state.queued.fetch_sub(bytes, Ordering::AcqRel);
            let detail = format!("{waiting} bytes wait for the disk, and {limit} may");
            return Err(AppendError::Full { detail });
        }
        Ok(())
    }

    pub(crate) fn consume(
        &self,
        group: Group,
        topics: &[Topic],
        budget: Budget,
        role: Role,
        stop: CancellationToken,
    ) -> Inbox {
        let inner = &self.inner;
        let start = Start {
            group,
            role,
            budget,
            stop,
            settings: inner.consume.clone(),
            outlet: Outlet { log: log::Log::Embedded(self.reserved()), codec: Arc::clone(&inner.codec) },
            health: Arc::clone(&inner.state.health),
        };
        let (state, jobs, topics) = (Arc::clone(&inner.state), inner.jobs.clone(), topics.to_vec());
        let open = move |signal| Engine::open(state, jobs, group, &topics, signal);
        inner.consumers.start(start, open)
    }

    /// What the partition has at `from` (oldest first), or below it (newest first).
    pub(crate) async fn read(
        &self,
        partition: Partition,
        order: Order,
        from: Option<i64>,
        limit: usize,
    ) -> Result<Run, TailError> {
        /// One partition's share of a page in memory.
        const BYTES: usize = 4 << 20;
        let state = Arc::clone(&self.inner.state);
        let read = move || -> Result<Run, ReadError> {
            let Some(lane) = state.lane(partition) else { return Ok(Run::default()) };
            let (start, end) = (lane.start(), lane.end());
            let mut records = Vec::new();
            let more = match order {
                Order::Oldest => {
                    let from = from.unwrap_or(start).max(start);
                    state.read(partition, from, end, limit, BYTES, &mut records)?;
                    records.last().map_or(from, |last| last.at.offset.next().0) < end
                }
                Order::Newest => {
                    let below = from.unwrap_or(end).min(end);
                    records = state.read_back(partition, start, below, limit, BYTES)?;
                    records.last().map_or(below, |last| last.at.offset.0) > start
                }
            };
            Ok(Run { more: more && !records.is_empty(), records })
        };
        let unavailable = |detail: String| TailError::Unavailable { detail };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| unavailable(error.to_string()))?
            .map_err(|error| unavailable(error.to_string()))
    }

    /// Removes the records of a partition before an offset, also those that a group has not seen: for an
    /// operator. A group that stood before it is stopped there, naming the gap.
    pub async fn delete_records(
        &self,
        partition: Partition,
        before: NextOffset,
    ) -> Result<NextOffset, String> {
        let mut start = None;
        loop {
            let (done, answer) = oneshot::channel();
            let trim = Trim { partition, before, despite_groups: true, done };
            let gone = || "the log is shutting down".to_owned();
            self.inner.jobs.send(Job::Trim(trim)).map_err(|_| gone())?;
            let now = answer.await.map_err(|_| gone())??;
            if now >= before || start == Some(now) {
                return Ok(now);
            }
            start = Some(now);
        }
    }

    pub(crate) fn ready(&self) -> Readiness {
        if self.inner.closed.load(Ordering::Acquire) || self.inner.consumers.is_closing() {
            return Readiness::NotReady { why: "the log is shutting down".to_owned() };
        }
        if self.inner.state.room.is_full() {
            let why = "the disk, or the share of it that was granted, is full: requests are refused";
            return Readiness::NotReady { why: why.to_owned() };
        }
        self.inner.state.health.readiness()
    }

    /// Consumers first, so that what they still lead to can be appended; then the writer.
    pub(crate) async fn close(&self, deadline: Instant) -> Drained {
        let inner = &self.inner;
        let consumers = inner.consumers.close(deadline).await;
        inner.closed.store(true, Ordering::Release);
        inner.stop_keeper.store(true, Ordering::Release);
        inner.keeper.ring();
        let (done, closed) = oneshot::channel();
        let written = match inner.jobs.send(Job::Close(done)) {
            Ok(()) if timeout_at(deadline, closed).await.is_err() => Drained::Forced,
            // Closed now, or before.
            Ok(()) | Err(_) => Drained::Clean,
        };
        let threads = std::mem::take(&mut *inner.threads.lock());
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the log had panicked");
                }
            }
        });
        let ended = match timeout_at(deadline, joined).await {
            Ok(Ok(())) => Drained::Clean,
            _ => Drained::Forced,
        };
        consumers.and(written).and(ended)
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| OpenError::Unavailable { detail: format!("no thread for {name}: {error}") })
}

#[cfg(test)]
mod tests;
