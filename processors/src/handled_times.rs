//! Reports the completed time of every owned partition in the table `handled_times`, for the snapshot time of exports.

use std::{collections::BTreeMap, time::Duration};

use tidegate_schemas::ids::Millis;
use tidegate_store::{
    Error, Store, WriteTime,
    tables::history::handled_times::{ALL, HandledTime},
};
use tidegate_stream::{Log, consumer::inbox::CompletedTimes, topics::Partition};
use tokio_util::sync::CancellationToken;

/// Interval between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// Writer of the rows of this process's partitions.
pub(crate) struct HandledTimesWriter {
    log: Log,
    store: Store,
    completed_times: Vec<CompletedTimes>,
    /// Reported time of each owned partition.
    reported_times: BTreeMap<Partition, Millis>,
    last_write: Option<WriteTime>,
}

impl HandledTimesWriter {
    pub(crate) const fn new(log: Log, store: Store, completed_times: Vec<CompletedTimes>) -> Self {
        Self { log, store, completed_times, reported_times: BTreeMap::new(), last_write: None }
    }

    /// Writes the rows at each interval, until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(REPORT_INTERVAL) => {}
                () = stop.cancelled() => return,
            }
            // A process without the log or the store reports no progress, so its rows grow old.
            if !self.log.readiness().is_ready() {
                continue;
            }
            if let Err(error) = self.write_rows(Millis::now()).await {
                tracing::debug!(
                    tag = error.tag(),
                    "the progress of partitions cannot be written; the next report includes it"
                );
            }
        }
    }

    async fn write_rows(&mut self, now: Millis) -> Result<(), Error> {
        let completed_times: BTreeMap<Partition, Millis> =
            self.completed_times.iter().flat_map(CompletedTimes::read).collect();
        self.reported_times.retain(|partition, _| completed_times.contains_key(partition));
        self.load_former_times(completed_times.keys()).await?;
        for (partition, completed_until) in completed_times {
            // A new owner starts before the time that its predecessor reached.
            let reported_time = self.reported_times.entry(partition).or_insert(completed_until);
            *reported_time = completed_until.max(*reported_time);
        }
        let write_time = WriteTime::after(self.last_write, now);
        let rows: Vec<HandledTime> = self
            .reported_times
            .iter()
            .map(|(partition, until)| HandledTime {
                name: ALL.to_owned(),
                topic: partition.topic.label().to_owned(),
                partition_index: i64::from(partition.index),
                until: *until,
                partition_count: i64::from(self.log.partitions()),
                seen_at: write_time.millis(),
            })
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.store.put_rows(write_time, &rows).await?;
        self.last_write = Some(write_time);
        Ok(())
    }

    /// Reads the rows of newly assigned partitions, as written by their former owners.
    async fn load_former_times(&mut self, partitions: impl Iterator<Item = &Partition>) -> Result<(), Error> {
        let new_partitions: Vec<Partition> =
            partitions.filter(|partition| !self.reported_times.contains_key(partition)).copied().collect();
        if new_partitions.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = new_partitions
            .iter()
            .map(|partition| HandledTime::key(ALL, partition.topic.label(), i64::from(partition.index)))
            .collect();
        let rows = self.store.get_many::<HandledTime>(&keys).await?;
        for (partition, row) in new_partitions.into_iter().zip(rows) {
            let Some(row) = row else { continue };
            self.reported_times.insert(partition, row.until);
            // The clock of the former owner may be ahead. Its write time lies in the millisecond of `seen_at`.
            let former_write = WriteTime(row.seen_at.0.saturating_mul(1_000).saturating_add(999));
            self.last_write = self.last_write.max(Some(former_write));
        }
        Ok(())
    }
}
