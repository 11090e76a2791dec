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
use tidegate_embedded_data::{DiskSpace, DurableMark};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

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

/// Handle to the embedded log. Clones share it; dropping the last one stops its threads.
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
        // The threads check the flag only when they wake.
        self.stop_retention.store(true, Ordering::Release);
        self.retention_wakeup.notify();
        self.disk_wakeup.notify();
    }
}

impl EmbeddedLog {
    /// Opens or creates the log in a database, in keyspaces that begin with `log.`. Reads the disk, so do not call it on an
    /// async thread.
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
        let accepted_loss = match &mark {
            Some(mark) => durability::check(&state, mark)?,
            None => false,
        };
        // The check changed the stored positions, so they are read again.
        if accepted_loss {
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

    /// Returns the error after which all writes of this process are lost, if any.
    pub(crate) fn fatal_error(&self) -> Option<&str> {
        // Without traffic no write checks the folder.
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
            // Stored bytes with headers and framing, as the disk quota counts them.
            bytes += record.len();
            stored.push((*partition, record));
        }
        if !inner.state.quota.admits(self.class, bytes) {
            // Requests a measurement, since space may have been freed meanwhile.
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

    /// Reserves bytes in the writer's queue. The writer frees them.
    fn reserve_queue(&self, bytes: usize) -> Result<(), AppendError> {
        let limit = self.inner.state.settings.queue_bytes;
        // Reserved before the check, so that concurrent appends cannot pass it together.
        let queued_bytes = self.inner.state.queued.fetch_add(bytes, Ordering::AcqRel);
        // An append above the limit passes if the queue is empty, or it would never pass.
        if queued_bytes > 0 && queued_bytes.saturating_add(bytes) > limit {
            self.inner.state.queued.fetch_sub(bytes, Ordering::AcqRel);
            let detail =
                format!("{queued_bytes} bytes wait for the disk, and stream.embedded.queue_bytes is {limit}");
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

    /// Returns the position of a group in a topic.
    pub(crate) fn committed(&self, group: Group, topic: Topic) -> Cursor {
        let groups = self.inner.state.groups.read();
        let positions = groups.get(group.0).into_iter().flatten();
        let topic_positions = positions.filter(|(partition, _)| partition.topic == topic);
        Cursor(topic_positions.map(|(partition, next)| (partition.index, next.0)).collect())
    }

    /// Reads records of the partition from `start_offset` on (oldest first), or below it (newest first).
    pub(crate) async fn read(
        &self,
        partition: Partition,
        order: Order,
        start_offset: Option<i64>,
        limit: usize,
    ) -> Result<PartitionRecords, PageError> {
        /// Largest number of bytes of one partition in a page.
        const MAX_PAGE_BYTES: usize = 4 << 20;
        let state = Arc::clone(&self.inner.state);
        let read = move || -> Result<PartitionRecords, ReadError> {
            let Some(stored) = state.stored(partition) else { return Ok(PartitionRecords::default()) };
            let (start, end) = (stored.start(), stored.end());
            let mut records = Vec::new();
            let has_more = match order {
                Order::Oldest => {
                    let from = start_offset.unwrap_or(start).max(start);
                    stored.read(partition, from, end, limit, MAX_PAGE_BYTES, &mut records)?;
                    records.last().map_or(from, |last| last.at.offset.next().0) < end
                }
                Order::Newest => {
                    let below = start_offset.unwrap_or(end).min(end);
                    records = stored.read_back(partition, start, below, limit, MAX_PAGE_BYTES)?;
                    records.last().map_or(below, |last| last.at.offset.0) > start
                }
            };
            Ok(PartitionRecords { more: has_more && !records.is_empty(), records })
        };
        let unavailable = |detail: String| PageError::Unavailable { detail };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| unavailable(error.to_string()))?
            .map_err(|error| unavailable(error.to_string()))
    }

    /// Removes the records of a partition before an offset, even if a group has not processed them, on request of an
    /// operator. A group with an earlier position stops there and reports the gap.
    pub async fn delete_records(
        &self,
        partition: Partition,
        before: NextOffset,
    ) -> Result<NextOffset, String> {
        let mut start = None;
        loop {
            let (done, answer) = oneshot::channel();
            let trim = Trim { partition, before, ignores_groups: true, done };
            let shutdown_error = || "the log is shutting down".to_owned();
            self.inner.requests.send(WriteRequest::Trim(trim)).map_err(|_| shutdown_error())?;
            let new_start = answer.await.map_err(|_| shutdown_error())??;
            // The writer removes a limited number of records at a time. No progress: the end is reached.
            if new_start >= before || start == Some(new_start) {
                return Ok(new_start);
            }
            start = Some(new_start);
        }
    }

    pub(crate) fn ready(&self) -> Readiness {
        if self.inner.closed.load(Ordering::Acquire) || self.inner.consumers.is_closing() {
            return Readiness::NotReady { why: "the log is shutting down".to_owned() };
        }
        if self.inner.state.quota.is_full() {
            let reason = format!(
                "requests are refused because the disk is full: {}",
                self.inner.state.describe_full()
            );
            return Readiness::NotReady { why: reason };
        }
        self.inner.state.health.readiness()
    }

    /// Closes the consumers before the writer, so that the effects of their last records can be appended.
    pub(crate) async fn close(&self, deadline: Instant) -> DrainResult {
        let inner = &self.inner;
        let consumers_result = inner.consumers.close(deadline).await;
        inner.closed.store(true, Ordering::Release);
        inner.stop_retention.store(true, Ordering::Release);
        inner.retention_wakeup.notify();
        inner.disk_wakeup.notify();
        let (done, closed) = oneshot::channel();
        let writer_result = match inner.requests.send(WriteRequest::Close(done)) {
            Ok(()) if timeout_at(deadline, closed).await.is_err() => DrainResult::Forced,
            // Closed now or by an earlier call, after which the channel has no receiver.
            Ok(()) | Err(_) => DrainResult::Clean,
        };
        let threads = std::mem::take(&mut *inner.threads.lock());
        let join_task = tokio::task::spawn_blocking(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the log panicked");
                }
            }
        });
        let threads_result = match timeout_at(deadline, join_task).await {
            Ok(Ok(())) => DrainResult::Clean,
            _ => DrainResult::Forced,
        };
        consumers_result.and(writer_result).and(threads_result)
    }
}

impl DeadLetterSink for EmbeddedLog {
    fn append<'a>(&'a self, letter: Record<'a>) -> BoxFuture<'a, Result<(), AppendError>> {
        Box::pin(async move {
            let partition = partition_of(Topic::DeadLetters, letter.key, self.partitions());
            EmbeddedLog::append(self, &[(partition, letter)]).await
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
