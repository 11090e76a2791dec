//! Lists jobs of one or many queues: highest priority first, then those that have it for longest.
//!
//! The index of a queue grows and never shrinks, so a page is bounded by the rows that it reads: it may be short, even empty,
//! and still name where the next one begins. Entries of one priority and day are merged across queues.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    fmt,
    str::FromStr,
};

use futures::{StreamExt, TryStreamExt, stream};
use tidegate_schemas::ids::{DAY_MS, JobId, Millis, OrgId, QueueId};
use tidegate_store::{
    At, Cursor, Store,
    tables::review::jobs::{Job, QueueDay, QueueEntry},
};

use super::queues::is_present;
use crate::Error;

/// Number of queues whose days are read at once.
const QUEUES_AT_ONCE: usize = 16;

/// Least and largest number of entries of one queue that are read at once. Each further read of a queue takes twice as many.
const STEP: (usize, usize) = (8, 500);

/// Entries whose jobs are read at once.
const JOBS_AT_ONCE: usize = 500;

/// End of a page: entries of all queues with this priority and day are listed up to `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPosition {
    pub priority: i64,
    pub day: i64,
    /// Cursor in each queue's entries of the day; `None` if none of them is listed yet.
    pub after: Option<Cursor>,
}

impl fmt::Display for ListPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}~", self.priority, self.day)?;
        self.after.as_ref().map_or(Ok(()), |after| write!(f, "{after}"))
    }
}

impl FromStr for ListPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (priority, text) = text.split_once('~').ok_or(())?;
        let (day, after) = text.split_once('~').ok_or(())?;
        Ok(Self {
            priority: priority.parse().map_err(drop)?,
            day: day.parse().map_err(drop)?,
            after: if after.is_empty() { None } else { Some(after.parse().map_err(drop)?) },
        })
    }
}

/// Request for a page.
#[derive(Clone, Debug)]
pub struct ListRequest<'a> {
    pub org: &'a OrgId,
    pub queues: &'a [QueueId],
    pub from: Option<ListPosition>,
    /// Largest number of jobs of the page.
    pub jobs: usize,
    /// Number of index rows after which a page ends early.
    pub rows: usize,
    /// True if only open jobs are listed, so that the part of a day whose jobs are all decided need not be read.
    pub open_only: bool,
}

/// Jobs of a page, and where the next one begins.
#[derive(Debug)]
pub struct JobPage {
    pub jobs: Vec<Job>,
    pub next: Option<ListPosition>,
}

/// Lists the jobs that match `fits`.
pub async fn list(
    store: &Store,
    request: &ListRequest<'_>,
    fits: impl Fn(&Job) -> bool,
) -> Result<JobPage, Error> {
    let mut page =
        PageReader { store, request, fits, jobs: Vec::new(), rows_left: request.rows, has_advanced: false };
    for ((Reverse(priority), day), days) in bands(store, request).await? {
        let start = request.from.as_ref().filter(|from| (from.priority, from.day) == (priority, day));
        let after = start.and_then(|from| from.after.clone());
        if let Some(after) = page.read_band(&days, after).await? {
            return Ok(JobPage { jobs: page.jobs, next: Some(ListPosition { priority, day, after }) });
        }
    }
    Ok(JobPage { jobs: page.jobs, next: None })
}

/// Days of the queues by priority and day, from the position of the request on.
async fn bands(
    store: &Store,
    request: &ListRequest<'_>,
) -> Result<BTreeMap<(Reverse<i64>, i64), Vec<QueueDay>>, Error> {
    let from = request.from.as_ref().map(|from| (Reverse(from.priority), from.day));
    let range = || match from {
        Some((Reverse(priority), _)) => At::until(priority.saturating_add(1)),
        None => At::all(),
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

/// Entries of one queue, priority and day that are still to be merged.
struct Source<'a> {
    day: &'a QueueDay,
    entries: VecDeque<QueueEntry>,
    after: Option<Cursor>,
    step: usize,
    is_read: bool,
}

impl Source<'_> {
    fn next_place(&self) -> Option<(Millis, JobId)> {
        self.entries.front().map(|entry| (entry.created_at, entry.job_id))
    }

    fn must_be_read(&self) -> bool {
        self.entries.is_empty() && !self.is_read
    }

    /// Reads the next entries. Returns their number.
    async fn read(&mut self, store: &Store, open_only: bool) -> Result<usize, Error> {
        let QueueDay { org, queue, priority, day, first_at } = self.day;
        let partition = (org.clone(), queue.clone(), *priority, *day);
        // Entries before the mark of a day are of jobs that are decided for good.
        let range = if open_only { At::since(*first_at) } else { At::all() };
        let range = range.limit(self.step).page_size(self.step).after(self.after.clone());
        let mut scan = store.scan::<QueueEntry>(&partition, range);
        let entries = scan.all().await?;
        let count = entries.len();
        self.is_read = count < self.step;
        self.after = scan.cursor();
        self.step = (2 * self.step).min(STEP.1);
        self.entries = entries.into();
        Ok(count)
    }
}

struct PageReader<'a, F> {
    store: &'a Store,
    request: &'a ListRequest<'a>,
    fits: F,
    jobs: Vec<Job>,
    rows_left: usize,
    /// True once the page has passed an entry. Until then the bound of rows does not end it, or the next page would begin at
    /// the same place.
    has_advanced: bool,
}

impl<F: Fn(&Job) -> bool> PageReader<'_, F> {
    /// Lists the entries of one priority and day behind `after`. Returns the cursor behind the last one if the page is full.
    async fn read_band(
        &mut self,
        days: &[QueueDay],
        mut after: Option<Cursor>,
    ) -> Result<Option<Option<Cursor>>, Error> {
        let step = (2 * self.request.jobs / days.len().max(1)).clamp(STEP.0, STEP.1);
        let source =
            |day| Source { day, entries: VecDeque::new(), after: after.clone(), step, is_read: false };
        let mut sources: Vec<_> = days.iter().map(source).collect();
        loop {
            if self.jobs.len() >= self.request.jobs {
                return Ok(Some(after));
            }
            for source in sources.iter_mut().filter(|source| source.must_be_read()) {
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
            if let Some(listed) = self.list_jobs(&entries).await? {
                return Ok(Some(entries[..listed].last().map(Cursor::after).or(after)));
            }
            after = Some(end);
        }
    }

    /// Lists the jobs of the entries. Returns the number of entries that were used if the page has no room for more.
    async fn list_jobs(&mut self, entries: &[QueueEntry]) -> Result<Option<usize>, Error> {
        let keys: Vec<_> = entries.iter().map(|entry| (entry.org.clone(), entry.job_id)).collect();
        let jobs = self.store.get_many::<Job>(&keys).await?;
        for (place, (entry, job)) in entries.iter().zip(jobs).enumerate() {
            if let Some(job) = job.filter(|job| is_present(entry, job) && (self.fits)(job)) {
                if self.jobs.len() >= self.request.jobs {
                    return Ok(Some(place));
                }
                self.jobs.push(job);
            }
        }
        Ok(None)
    }
}

/// Takes entries off the sources, the earliest first, as far as the order is known without reading more.
fn merge(sources: &mut [Source<'_>]) -> Vec<QueueEntry> {
    let mut merged = Vec::new();
    while merged.len() < JOBS_AT_ONCE && !sources.iter().any(Source::must_be_read) {
        let filled = sources.iter_mut().filter(|source| !source.entries.is_empty());
        let Some(earliest) = filled.min_by_key(|source| source.next_place()) else { break };
        merged.extend(earliest.entries.pop_front());
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn position_survives_its_text_and_other_texts_are_refused() {
        let position = ListPosition { priority: -3, day: 20_778, after: Some("00ff".parse().unwrap()) };
        assert_eq!(position.to_string().parse::<ListPosition>().unwrap(), position);
        let start = ListPosition { after: None, ..position };
        assert_eq!(start.to_string().parse::<ListPosition>().unwrap(), start);
        for text in ["", "1", "1~2", "b~c~d", "1~2~xyz"] {
            assert!(text.parse::<ListPosition>().is_err(), "{text}");
        }
    }
}
