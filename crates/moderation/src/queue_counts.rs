//! Counts the jobs of review queues without reading them all.
//!
//! A job that enters or leaves a queue has an event in the hour, written before the job's row, which says whether the
//! change happened: `created_at` and `closed_at`. Hours that are over are added up once, by whoever asks first; the same
//! rows give the same sums, so it does not matter who it is, or how often.

use std::{collections::HashSet, time::Duration};

use tidegate_schemas::ids::{DAY_MS, JobId, Millis, OrgId, QueueId};
use tidegate_store::{
    At, Store, WriteTime,
    tables::review::{
        jobs::{Job, JobState, QueueDay},
        queue_counts::{QueueChange, QueueClaim, QueueEvent, QueueHour},
    },
};

use crate::{Error, job_moves};

const HOUR_MS: i64 = 3_600_000;

/// Time after the end of an hour until which its events may still be written.
const LATE_EVENTS: Duration = Duration::from_secs(600);

/// Jobs that entered and left a queue in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub opened: i64,
    pub closed: i64,
}

impl Flow {
    fn add(&mut self, other: Self) {
        self.opened += other.opened;
        self.closed += other.closed;
    }
}

/// Counts of a queue. A job counts as open until its decision cannot be undone any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub open: i64,
    pub last_hour: Flow,
    /// Flow since the start of the hour 24 hours ago.
    pub last_day: Flow,
}

/// Writes the event of a change that is about to happen.
pub(crate) async fn announce(store: &Store, job: &Job, change: QueueChange, at: Millis) -> Result<(), Error> {
    let event = QueueEvent {
        org: job.org.clone(),
        queue: job.queue.clone(),
        hour: hour_of(at),
        at,
        job_id: job.job_id,
        change,
        priority: job.priority,
    };
    Ok(store.put(WriteTime::of(at, 0), &[event]).await?)
}

/// Writes that a job is about to be claimed.
pub(crate) async fn announce_claim(store: &Store, job: &Job, now: Millis) -> Result<(), Error> {
    let claim = QueueClaim {
        org: job.org.clone(),
        queue: job.queue.clone(),
        hour: hour_of(now),
        job_id: job.job_id,
        at: now,
    };
    Ok(store.put(WriteTime::of(now, 0), &[claim]).await?)
}

fn hour_of(at: Millis) -> i64 {
    at.0.div_euclid(HOUR_MS)
}

pub async fn counts(store: &Store, org: &OrgId, queue: &QueueId, now: Millis) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    let this_hour = hour_of(now);
    let rolled = roll_up(store, org, queue, now).await?;
    counts.open = rolled.as_ref().map_or(0, |hour| hour.open);
    let unrolled = rolled.map_or(this_hour - 24, |hour| hour.hour + 1);
    let hour_ago = Millis(now.0 - HOUR_MS);
    for hour in unrolled.min(this_hour - 1)..=this_hour {
        for (change, at) in events(store, org, queue, hour).await? {
            let one = match change {
                QueueChange::Opened => Flow { opened: 1, closed: 0 },
                QueueChange::Closed => Flow { opened: 0, closed: 1 },
            };
            if hour >= unrolled {
                counts.open += one.opened - one.closed;
                counts.last_day.add(one);
            }
            if at >= hour_ago {
                counts.last_hour.add(one);
            }
        }
    }
    let since = At::since(this_hour - 24);
    for hour in store.scan::<QueueHour>(&(org.clone(), queue.clone()), since).all().await? {
        counts.last_day.add(Flow { opened: hour.opened, closed: hour.closed });
    }
    counts.open = counts.open.max(0);
    Ok(counts)
}

/// Adds up the hours that are over. Returns the last of them.
async fn roll_up(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    now: Millis,
) -> Result<Option<QueueHour>, Error> {
    let partition = (org.clone(), queue.clone());
    let newest = store.scan::<QueueHour>(&partition, At::all().limit(1)).all().await?;
    let mut last = newest.into_iter().next();
    let first = match &last {
        Some(last) => last.hour + 1,
        None => match first_day(store, org, queue).await? {
            Some(day) => day * (DAY_MS / HOUR_MS),
            None => return Ok(None),
        },
    };
    let end = hour_of(now.minus(LATE_EVENTS));
    for hour in first..end {
        let mut flow = Flow::default();
        for (change, _) in events(store, org, queue, hour).await? {
            match change {
                QueueChange::Opened => flow.opened += 1,
                QueueChange::Closed => flow.closed += 1,
            }
        }
        let open = last.as_ref().map_or(0, |last| last.open) + flow.opened - flow.closed;
        let row = QueueHour {
            org: org.clone(),
            queue: queue.clone(),
            hour,
            opened: flow.opened,
            closed: flow.closed,
            open,
        };
        store.put(WriteTime::of(Millis((hour + 1) * HOUR_MS), 0), std::slice::from_ref(&row)).await?;
        last = Some(row);
    }
    Ok(last)
}

/// Returns the first day in which the queue had jobs.
async fn first_day(store: &Store, org: &OrgId, queue: &QueueId) -> Result<Option<i64>, Error> {
    let days = store.scan::<QueueDay>(&(org.clone(), queue.clone()), At::all()).all().await?;
    Ok(days.iter().map(|day| day.day).min())
}

/// Returns the changes of an hour that happened.
async fn events(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    hour: i64,
) -> Result<Vec<(QueueChange, Millis)>, Error> {
    let mut happened = Vec::new();
    let mut rows = store.scan::<QueueEvent>(&(org.clone(), queue.clone(), hour), At::all());
    while let Some(rows) = rows.next_page().await? {
        let keys: Vec<_> = rows.iter().map(|row| (org.clone(), row.job_id)).collect();
        for (row, job) in rows.iter().zip(store.get_many::<Job>(&keys).await?) {
            // An attempt that a crash or another writer cut off left an event of another instant.
            let Some(job) = job else { continue };
            let moves = job_moves::of(&job)?;
            let says_so = match row.change {
                QueueChange::Opened => {
                    job.created_at == row.at || moves.iter().any(|it| it.at == row.at && it.to == *queue)
                }
                QueueChange::Closed => {
                    job.closed_at == Some(row.at)
                        || moves.iter().any(|it| it.at == row.at && it.from == *queue)
                }
            };
            if says_so {
                happened.push((row.change, row.at));
            }
        }
    }
    Ok(happened)
}

/// Returns the number of jobs of a queue that are claimed. A claim lasts for `lease` at most without being renewed.
pub async fn claimed(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    lease: Duration,
    now: Millis,
) -> Result<usize, Error> {
    let mut claimed: HashSet<JobId> = HashSet::new();
    for hour in hour_of(now.minus(lease))..=hour_of(now) {
        let mut rows = store.scan::<QueueClaim>(&(org.clone(), queue.clone(), hour), At::all());
        while let Some(rows) = rows.next_page().await? {
            let keys: Vec<_> = rows.iter().map(|row| (org.clone(), row.job_id)).collect();
            let jobs = store.get_many::<Job>(&keys).await?.into_iter().flatten();
            let held = jobs.filter(|job| {
                job.queue == *queue
                    && job.state == JobState::Open
                    && job.lease_until.is_some_and(|until| until > now)
            });
            claimed.extend(held.map(|job| job.job_id));
        }
    }
    Ok(claimed.len())
}
