//! Lists jobs of one or more queues by priority, then by the time since they have that priority.
//!
//! The index of a queue only grows, so the number of rows read per page is bounded. A page can therefore be short or
//! even empty and still have a successor. Entries of one priority and day are merged across queues.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    fmt,
    str::FromStr,
};

use futures::{StreamExt, TryStreamExt, stream};
use tidegate_schemas::ids::{DAY_MS, JobId, Millis, OrgId, QueueId};
use tidegate_store::{
    Cursor, CursorPartition, PartitionCursor, RowRange, Store,
    tables::review::jobs::{Job, QueueDay, QueueEntry},
};

use super::queues::is_valid_entry;
use crate::Error;

/// Number of queues read concurrently.
const QUEUES_AT_ONCE: usize = 16;

/// Minimum and maximum number of entries per read of a queue. Each further read doubles the number.
const STEP: (usize, usize) = (8, 500);

/// Number of jobs per read.
const JOBS_AT_ONCE: usize = 500;

/// End of a page: all entries of the band are listed up to the cursor in it.
pub type ListPosition = PartitionCursor<Band>;

/// Entries of one priority and day, over all queues of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    pub priority: i64,
    pub day: i64,
}

impl CursorPartition for Band {}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.priority, self.day)
    }
}

impl FromStr for Band {
    type Err = tidegate_store::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (priority, day) = text.split_once('~')?;
            Some(Self { priority: priority.parse().ok()?, day: day.parse().ok()? })
        };
        parse().ok_or(tidegate_store::Error::BadCursor)
    }
}

/// Request for a page.
#[derive(Clone, Debug)]
pub struct JobListRequest<'a> {
    pub org: &'a OrgId,
    pub queues: &'a [QueueId],
    pub from: Option<ListPosition>,
    /// Maximum number of jobs on the page.
    pub jobs: usize,
    /// Number of index rows after which the page ends early.
    pub rows: usize,
    /// True if only open jobs are listed. The fully decided part of a day is then not read.
    pub open_only: bool,
}

/// Jobs of a page and the start of the next page.
#[derive(Debug)]
pub struct JobListPage {
    pub jobs: Vec<Job>,
    pub next: Option<ListPosition>,
}

/// Lists the jobs that match `is_match`.
pub async fn list_jobs(
    store: &Store,
    request: &JobListRequest<'_>,
    is_match: impl Fn(&Job) -> bool,
) -> Result<JobListPage, Error> {
    let mut page = PageReader {
        store,
        request,
        is_match,
        jobs: Vec::new(),
        rows_left: request.rows,
        has_advanced: false,
    };
    for ((Reverse(priority), day), days) in load_bands(store, request).await? {
        let band = Band { priority, day };
        let position = request.from.as_ref().filter(|from| from.partition == band);
        let after = position.and_then(|from| from.after.clone());
        if let Some(after) = page.read_band(&days, after).await? {
            return Ok(JobListPage { jobs: page.jobs, next: Some(ListPosition { partition: band, after }) });
        }
    }
    Ok(JobListPage { jobs: page.jobs, next: None })
}

/// Groups the queues' days by priority and day, from the request's position on.
async fn load_bands(
    store: &Store,
    request: &JobListRequest<'_>,
) -> Result<BTreeMap<(Reverse<i64>, i64), Vec<QueueDay>>, Error> {
    let from = request.from.as_ref().map(|from| (Reverse(from.partition.priority), from.partition.day));
    let range = || match from {
        Some((Reverse(priority), _)) => RowRange::ending_before(priority.saturating_add(1)),
        None => RowRange::all(),
    };
    let scan = |queue: &QueueId| store.scan::<QueueDay>(&(request.org.clone(), queue.clone()), range());
    let scans: Vec<_> = request.queues.iter().map(scan).collect();
    let days = stream::iter(scans).map(|mut scan| async move { scan.all().await }).buffered(QUEUES_AT_ONCE);
    let days: Vec<Vec<QueueDay>> = days.try_collect().await?;
    let mut bands: BTreeMap<_, Vec<QueueDay>> = BTreeMap::new();
    for day in days.into_iter().flatten() {
        let key = (Reverse(day.priority), day.day);
        let is_decided = day.first_at >= Millis((day.day + 1) * DAY_MS);
        if from.is_none_or(|from| key >= from) && !(request.open_only && is_decided) {
            bands.entry(key).or_default().push(day);
        }
    }
    Ok(bands)
}

/// Unmerged entries of one queue, priority and day.
struct QueueReader<'a> {
    day: &'a QueueDay,
    entries: VecDeque<QueueEntry>,
    after: Option<Cursor>,
    next_read: usize,
    is_exhausted: bool,
}

impl QueueReader<'_> {
    fn front_position(&self) -> Option<(Millis, JobId)> {
        self.entries.front().map(|entry| (entry.created_at, entry.job_id))
    }

    fn needs_read(&self) -> bool {
        self.entries.is_empty() && !self.is_exhausted
    }

    /// Reads the next entries. Returns their number.
    async fn read(&mut self, store: &Store, open_only: bool) -> Result<usize, Error> {
        let QueueDay { org, queue, priority, day, first_at } = self.day;
        let partition = (org.clone(), queue.clone(), *priority, *day);
        // Entries before the scan start belong to jobs that are finally decided.
        let range = if open_only { RowRange::starting_at(*first_at) } else { RowRange::all() };
        let range = range.limit(self.next_read).page_size(self.next_read).after(self.after.clone());
        let mut scan = store.scan::<QueueEntry>(&partition, range);
        let entries = scan.all().await?;
        let count = entries.len();
        self.is_exhausted = count < self.next_read;
        self.after = scan.cursor();
        self.next_read = (2 * self.next_read).min(STEP.1);
        self.entries = entries.into();
        Ok(count)
    }
}

struct PageReader<'a, F> {
    store: &'a Store,
    request: &'a JobListRequest<'a>,
    is_match: F,
    jobs: Vec<Job>,
    rows_left: usize,
    /// True once the page has passed an entry. Until then the row limit must not end the page, or the next page would
    /// start at the same position.
    has_advanced: bool,
}

impl<F: Fn(&Job) -> bool> PageReader<'_, F> {
    /// Lists the entries of one priority and day after `after`. Returns the cursor of the last listed entry if the
    /// page is full.
    async fn read_band(
        &mut self,
        days: &[QueueDay],
        mut after: Option<Cursor>,
    ) -> Result<Option<Option<Cursor>>, Error> {
        let step = (2 * self.request.jobs / days.len().max(1)).clamp(STEP.0, STEP.1);
        let source = |day| QueueReader {
            day,
            entries: VecDeque::new(),
            after: after.clone(),
            next_read: step,
            is_exhausted: false,
        };
        let mut sources: Vec<_> = days.iter().map(source).collect();
        loop {
            if self.jobs.len() >= self.request.jobs {
                return Ok(Some(after));
            }
            for source in sources.iter_mut().filter(|source| source.needs_read()) {
                if self.rows_left == 0 && self.has_advanced {
                    return Ok(Some(after));
                }
                let rows = source.read(self.store, self.request.open_only).await?;
                self.rows_left = self.rows_left.saturating_sub(rows);
            }
            let entries = merge(&mut sources);
            let Some(last) = entries.last() else { return Ok(None) };
            self.has_advanced = true;
            let end = Cursor::after(last);
            if let Some(consumed) = self.list_jobs(&entries).await? {
                return Ok(Some(entries[..consumed].last().map(Cursor::after).or(after)));
            }
            after = Some(end);
        }
    }

    /// Lists the jobs of the entries. Returns the number of consumed entries if the page is full.
    async fn list_jobs(&mut self, entries: &[QueueEntry]) -> Result<Option<usize>, Error> {
        let keys: Vec<_> = entries.iter().map(|entry| (entry.org.clone(), entry.job_id)).collect();
        let jobs = self.store.get_many::<Job>(&keys).await?;
        for (position, (entry, job)) in entries.iter().zip(jobs).enumerate() {
            if let Some(job) = job.filter(|job| is_valid_entry(entry, job) && (self.is_match)(job)) {
                if self.jobs.len() >= self.request.jobs {
                    return Ok(Some(position));
                }
                self.jobs.push(job);
            }
        }
        Ok(None)
    }
}

/// Takes entries off the sources in ascending order, as long as no source needs another read.
fn merge(sources: &mut [QueueReader<'_>]) -> Vec<QueueEntry> {
    let mut merged = Vec::new();
    // An empty source may still hold the earliest entry, so merging stops until it is read.
    while merged.len() < JOBS_AT_ONCE && !sources.iter().any(QueueReader::needs_read) {
        let nonempty = sources.iter_mut().filter(|source| !source.entries.is_empty());
        let Some(earliest) = nonempty.min_by_key(|source| source.front_position()) else { break };
        merged.extend(earliest.entries.pop_front());
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn position_round_trips_through_text() {
        let position = ListPosition {
            partition: Band { priority: -3, day: 20_778 },
            after: Some("00ff".parse().unwrap()),
        };
        assert_eq!(position.to_string().parse::<ListPosition>().unwrap(), position);
        let start = ListPosition::start_of(position.partition);
        assert_eq!(start.to_string().parse::<ListPosition>().unwrap(), start);
        for text in ["", "1", "1~2", "b~c~d", "1~2~xyz"] {
            assert!(text.parse::<ListPosition>().is_err(), "{text}");
        }
    }
}
