//! The log inside the process: partitions and offsets as in Kafka, in one database shared with the store.
//!
//! Each group has one consumer, which owns every partition.

mod disk_quota;
mod disk_rate;
mod disk_watch;
mod durability;
mod engine;
mod format;
mod recovery;
mod retention;
mod segments;
mod state;
mod stored_partition;
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
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tidegate_schemas::{DiskSpace, DurableMark};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

pub use self::format::SYNCS_KEY;
use self::{
    disk_quota::AppendClass,
    disk_watch::DiskWatch,
    engine::EmbeddedEngine,
    retention::RetentionTask,
    state::State,
    stored_partition::ReadError,
    writer::{Append, LogWriter, Trim, WriteRequest},
};
use crate::{
    codec::Codec,
    consumer::{
        inbox::{DrainResult, Inbox},
        threads::{ConsumerStart, ConsumerThreads},
        ticket::DeadLetterSink,
    },
    error::{AppendError, OpenError, PageError},
    health::{Health, Readiness},
    page_reader::{Cursor, Order, PartitionRecords},
    record::{AddressedRecord, Record},
    settings::{Budget, ConsumeSettings, Settings},
    topics::{Group, NextOffset, Partition, Role, Topic, partition_of},
    wakeup::Wakeup,
};

/// The embedded log. A clone is the same log; the last one dropped ends its threads.
#[derive(Clone)]
pub struct EmbeddedLog {
    inner: Arc<Inner>,
    class: AppendClass,
}

struct Inner {
    state: Arc<State>,
    requests: Sender<WriteRequest>,
    codec: Arc<Codec>,
    consume: ConsumeSettings,
    consumers: ConsumerThreads,
    closed: AtomicBool,
    retention_wakeup: Arc<Wakeup>,
    disk_wakeup: Arc<Wakeup>,
    stop_retention: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLog").field("class", &self.class).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_retention.store(true, Ordering::Release);
        self.retention_wakeup.notify();
        self.disk_wakeup.notify();
    }
}

impl EmbeddedLog {
    /// Opens the log in a database, and makes it there if it is new. Reads the disk, so do not call it on an async
    /// thread. The keyspaces that begin with `log.` are the log's.
    pub(crate) fn open(
        db: Database,
        settings: &Settings,
        codec: Arc<Codec>,
        mark: Option<Arc<DurableMark>>,
        disk: Option<Arc<DiskSpace>>,
    ) -> Result<Self, OpenError> {
        settings.validate()?;
        let health = Arc::new(Health::default());
        let (partitions, embedded) = (settings.partition_count(), &settings.embedded);
        let open = |db, health, mark, disk| State::open(db, partitions, embedded.clone(), health, mark, disk);
        let mut state = open(db.clone(), Arc::clone(&health), mark.clone(), disk.clone())?;
        let has_lost = match &mark {
            Some(mark) => durability::check(&state, mark)?,
            None => false,
        };
        if has_lost {
            state = open(db, health, mark, disk)?;
        }
        let state = Arc::new(state);

        let (requests, queue) = channel();
        let retention_wakeup = Arc::new(Wakeup::default());
        let stop_retention = Arc::new(AtomicBool::new(false));
        let disk_wakeup = Arc::new(Wakeup::default());
        let writer = LogWriter::new(Arc::clone(&state), queue, Arc::clone(&disk_wakeup));
        let retention = RetentionTask {
            state: Arc::clone(&state),
            requests: requests.clone(),
            wakeup: Arc::clone(&retention_wakeup),
            stop: Arc::clone(&stop_retention),
        };
        let disk_watch =
            DiskWatch::new(Arc::clone(&state), Arc::clone(&disk_wakeup), Arc::clone(&stop_retention));
        let threads = vec![
            spawn("log-disk", move || disk_watch.run())?,
            spawn("log-writer", move || writer.run())?,
            spawn("log-retention", move || retention.run())?,
        ];
        let inner = Inner {
            state,
            requests,
            codec,
            consume: settings.consume.clone(),
            consumers: ConsumerThreads::default(),
            closed: AtomicBool::new(false),
            retention_wakeup,
            disk_wakeup,
            stop_retention,
            threads: Mutex::new(threads),
        };
        Ok(Self { inner: Arc::new(inner), class: AppendClass::Request })
    }

    /// Error after which nothing that this process writes will be found again, if there was one.
    pub(crate) fn fatal_error(&self) -> Option<&str> {
        // Without traffic nothing else checks the folder.
        let _remembered = self.inner.state.is_in_place();
        self.inner.state.fatal_error.get().map(String::as_str)
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.inner.state.partition_count
    }

    pub(crate) fn codec(&self) -> &Arc<Codec> {
        &self.inner.codec
    }

    pub(crate) fn reserved(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), class: AppendClass::Reserved }
    }

    pub(crate) async fn append(&self, records: &[AddressedRecord<'_>]) -> Result<(), AppendError> {
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
            if partition.index >= inner.state.partition_count {
                let partitions = inner.state.partition_count;
                return Err(AppendError::NoSuchPartition { partition: *partition, partitions });
            }
            let record = format::encode(record, |datum, out| inner.codec.frame(topic, datum, out));
            bytes += record.len();
            stored.push((*partition, record));
        }
        if !inner.state.quota.admits(self.class, bytes) {
            inner.disk_wakeup.notify();
            return Err(AppendError::Full { detail: inner.state.describe_full() });
        }
        self.reserve_queue(bytes)?;
        let (done, answer) = oneshot::channel();
        if inner.requests.send(WriteRequest::Append(Append { records: stored, bytes, done })).is_err() {
            return Err(AppendError::ShuttingDown);
        }
        answer.await.unwrap_or(Err(AppendError::ShuttingDown))
    }

    /// Reserves bytes in the writer's queue; the writer frees them.
    fn reserve_queue(&self, bytes: usize) -> Result<(), AppendError> {
        let limit = self.inner.state.settings.queue_bytes;
        let waiting = self.inner.state.queued.fetch_add(bytes, Ordering::AcqRel);
        // A single append above the limit passes when nothing waits, or it would never pass.
        if waiting > 0 && waiting.saturating_add(bytes) > limit {
            self.inner.state.queued.fetch_sub(bytes, Ordering::AcqRel);
            let detail =
                format!("{waiting} bytes wait for the disk, and stream.embedded.queue_bytes is {limit}");
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
        let start = ConsumerStart {
            group,
            role,
            budget,
            stop,
            settings: inner.consume.clone(),
            codec: Arc::clone(&inner.codec),
            dead_letters: Arc::new(self.reserved()),
            health: Arc::clone(&inner.state.health),
        };
        let (state, requests, topics) = (Arc::clone(&inner.state), inner.requests.clone(), topics.to_vec());
        let open = move |wakeup| EmbeddedEngine::open(state, requests, group, &topics, wakeup);
        inner.consumers.start(start, open)
    }

    /// Returns where a group goes on in a topic.
    pub(crate) fn committed(&self, group: Group, topic: Topic) -> Cursor {
        let groups = self.inner.state.groups.read();
        let own = groups.get(group.0).into_iter().flatten();
        let of_topic = own.filter(|(partition, _)| partition.topic == topic);
        Cursor(of_topic.map(|(partition, next)| (partition.index, next.0)).collect())
    }

    /// Reads records of the partition from `from` on (oldest first), or below it (newest first).
    pub(crate) async fn read(
        &self,
        partition: Partition,
        order: Order,
        from: Option<i64>,
        limit: usize,
    ) -> Result<PartitionRecords, PageError> {
        /// Largest share of one partition of a page in memory.
        const BYTES: usize = 4 << 20;
        let state = Arc::clone(&self.inner.state);
        let read = move || -> Result<PartitionRecords, ReadError> {
            let Some(stored) = state.stored(partition) else { return Ok(PartitionRecords::default()) };
            let (start, end) = (stored.start(), stored.end());
            let mut records = Vec::new();
            let more = match order {
                Order::Oldest => {
                    let from = from.unwrap_or(start).max(start);
                    stored.read(partition, from, end, limit, BYTES, &mut records)?;
                    records.last().map_or(from, |last| last.at.offset.next().0) < end
                }
                Order::Newest => {
                    let below = from.unwrap_or(end).min(end);
                    records = stored.read_back(partition, start, below, limit, BYTES)?;
                    records.last().map_or(below, |last| last.at.offset.0) > start
                }
            };
            Ok(PartitionRecords { more: more && !records.is_empty(), records })
        };
        let unavailable = |detail: String| PageError::Unavailable { detail };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| unavailable(error.to_string()))?
            .map_err(|error| unavailable(error.to_string()))
    }

    /// Removes the records of a partition before an offset, also those that a group has not seen: for an operator. A
    /// group whose position is before it is stopped there, naming the gap.
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
            self.inner.requests.send(WriteRequest::Trim(trim)).map_err(|_| gone())?;
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
        if self.inner.state.quota.is_full() {
            let why = format!(
                "requests are refused because the disk is full: {}",
                self.inner.state.describe_full()
            );
            return Readiness::NotReady { why };
        }
        self.inner.state.health.readiness()
    }

    /// Closes the consumers first, so that effects of their last records can be appended; then the writer.
    pub(crate) async fn close(&self, deadline: Instant) -> DrainResult {
        let inner = &self.inner;
        let consumers = inner.consumers.close(deadline).await;
        inner.closed.store(true, Ordering::Release);
        inner.stop_retention.store(true, Ordering::Release);
        inner.retention_wakeup.notify();
        inner.disk_wakeup.notify();
        let (done, closed) = oneshot::channel();
        let written = match inner.requests.send(WriteRequest::Close(done)) {
            Ok(()) if timeout_at(deadline, closed).await.is_err() => DrainResult::Forced,
            // Closed now, or by an earlier call: then the channel has no receiver any more.
            Ok(()) | Err(_) => DrainResult::Clean,
        };
        let threads = std::mem::take(&mut *inner.threads.lock());
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the log panicked");
                }
            }
        });
        let ended = match timeout_at(deadline, joined).await {
            Ok(Ok(())) => DrainResult::Clean,
            _ => DrainResult::Forced,
        };
        consumers.and(written).and(ended)
    }
}

impl DeadLetterSink for EmbeddedLog {
    fn append<'a>(&'a self, letter: Record<'a>) -> BoxFuture<'a, Result<(), AppendError>> {
        Box::pin(async move {
            let to = partition_of(Topic::DeadLetters, letter.key, self.partitions());
            EmbeddedLog::append(self, &[(to, letter)]).await
        })
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
