//! Counts the jobs of review queues without reading them all.
//!
//! A job that enters or leaves a queue first writes an event into the hour. The event counts only if the job's row
//! confirms it by `created_at` or `closed_at`. The first reader of a past hour stores its sums. Equal rows give equal
//! sums, so repeated or concurrent sums are harmless.

use std::{collections::HashSet, time::Duration};

use async_recursion::async_recursion as boxed;
use tidegate_schemas::ids::{DAY_MS, JobId, Millis, OrgId, QueueId};
use tidegate_store::{
    RowRange, Store, WriteTime,
    tables::review::{
        jobs::{Job, JobState, QueueDay},
        queue_counts::{QueueChange, QueueClaim, QueueEvent, QueueHour},
    },
};

use super::job_moves;
use crate::Error;

const HOUR_MS: i64 = 3_600_000;

/// Delay after the end of an hour until its events are complete.
const LATE_EVENTS: Duration = Duration::from_secs(600);

/// Numbers of jobs that entered and left a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFlow {
    pub opened: i64,
    pub closed: i64,
}

impl QueueFlow {
    fn add(&mut self, other: Self) {
        self.opened += other.opened;
        self.closed += other.closed;
    }
}

/// Counts of a queue. A job is open until its decision can no longer be undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    pub open: i64,
    pub last_hour: QueueFlow,
    /// Flow since the start of the hour 24 hours ago.
    pub last_day: QueueFlow,
}

/// Writes the event of an imminent change. Must happen before the change of the job's row.
pub(crate) async fn put_event(
    store: &Store,
    job: &Job,
    change: QueueChange,
    at: Millis,
) -> Result<(), Error> {
    let event = QueueEvent {
        org: job.org.clone(),
        queue: job.queue.clone(),
        hour: hour_of(at),
        at,
        job_id: job.job_id,
        change,
        priority: job.priority,
    };
    Ok(store.put_rows(WriteTime::from_append(at, 0), &[event]).await?)
}

/// Writes the event of an imminent claim.
pub(crate) async fn put_claim_event(store: &Store, job: &Job, now: Millis) -> Result<(), Error> {
    let claim = QueueClaim {
        org: job.org.clone(),
        queue: job.queue.clone(),
        hour: hour_of(now),
        job_id: job.job_id,
        at: now,
    };
    Ok(store.put_rows(WriteTime::from_append(now, 0), &[claim]).await?)
}

fn hour_of(at: Millis) -> i64 {
    at.0.div_euclid(HOUR_MS)
}

#[boxed]
pub async fn load_counts(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    now: Millis,
) -> Result<QueueCounts, Error> {
    let mut totals = QueueCounts::default();
    let this_hour = hour_of(now);
    let last_rolled_up = roll_up(store, org, queue, now).await?;
    totals.open = last_rolled_up.as_ref().map_or(0, |hour| hour.open);
    let first_open_hour = last_rolled_up.map_or(this_hour - 24, |hour| hour.hour + 1);
    let hour_ago = Millis(now.0 - HOUR_MS);
    // The last hour starts within the previous clock hour, which may be rolled up already; it is read for `last_hour`
    // only.
    for hour in first_open_hour.min(this_hour - 1)..=this_hour {
        for (change, at) in load_confirmed_events(store, org, queue, hour).await? {
            let flow = match change {
                QueueChange::Opened => QueueFlow { opened: 1, closed: 0 },
                QueueChange::Closed => QueueFlow { opened: 0, closed: 1 },
            };
            if hour >= first_open_hour {
                totals.open += flow.opened - flow.closed;
                totals.last_day.add(flow);
            }
            if at >= hour_ago {
                totals.last_hour.add(flow);
            }
        }
    }
    let range = RowRange::starting_at(this_hour - 24);
    for hour in store.scan::<QueueHour>(&(org.clone(), queue.clone()), range).all().await? {
        totals.last_day.add(QueueFlow { opened: hour.opened, closed: hour.closed });
    }
    // Jobs of earlier versions have no opening event, so the difference can be negative.
    totals.open = totals.open.max(0);
    Ok(totals)
}

/// Stores the sums of past hours. Returns the last of these rows.
async fn roll_up(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    now: Millis,
) -> Result<Option<QueueHour>, Error> {
    let partition = (org.clone(), queue.clone());
    let newest = store.scan::<QueueHour>(&partition, RowRange::all().limit(1)).all().await?;
    let mut last_hour = newest.into_iter().next();
    let first = match &last_hour {
        Some(last) => last.hour + 1,
        None => match find_first_day(store, org, queue).await? {
            Some(day) => day * (DAY_MS / HOUR_MS),
            None => return Ok(None),
        },
    };
    // An hour is summed only after its late events had time to arrive, because its row is final.
    let end = hour_of(now.minus(LATE_EVENTS));
    for hour in first..end {
        let mut flow = QueueFlow::default();
        for (change, _) in load_confirmed_events(store, org, queue, hour).await? {
            match change {
                QueueChange::Opened => flow.opened += 1,
                QueueChange::Closed => flow.closed += 1,
            }
        }
        let open = last_hour.as_ref().map_or(0, |last| last.open) + flow.opened - flow.closed;
        let row = QueueHour {
            org: org.clone(),
            queue: queue.clone(),
            hour,
            opened: flow.opened,
            closed: flow.closed,
            open,
        };
        // The end of the hour as write time, so that every process writes the same row.
        store
            .put_rows(WriteTime::from_append(Millis((hour + 1) * HOUR_MS), 0), std::slice::from_ref(&row))
            .await?;
        last_hour = Some(row);
    }
    Ok(last_hour)
}

/// Returns the first day with jobs in the queue.
async fn find_first_day(store: &Store, org: &OrgId, queue: &QueueId) -> Result<Option<i64>, Error> {
    let days = store.scan::<QueueDay>(&(org.clone(), queue.clone()), RowRange::all()).all().await?;
    Ok(days.iter().map(|day| day.day).min())
}

/// Returns the confirmed changes of an hour.
async fn load_confirmed_events(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    hour: i64,
) -> Result<Vec<(QueueChange, Millis)>, Error> {
    let mut confirmed = Vec::new();
    let mut rows = store.scan::<QueueEvent>(&(org.clone(), queue.clone(), hour), RowRange::all());
    while let Some(rows) = rows.next_page().await? {
        let keys: Vec<_> = rows.iter().map(|row| (org.clone(), row.job_id)).collect();
        for (row, job) in rows.iter().zip(store.get_many::<Job>(&keys).await?) {
            // A crash or a lost `replace` leaves an event without a job, or with another time than the job's.
            let Some(job) = job else { continue };
            let moves = job_moves::parse_moves(&job)?;
            let is_confirmed = match row.change {
                QueueChange::Opened => {
                    job.created_at == row.at
                        || moves.iter().any(|job_move| job_move.at == row.at && job_move.to == *queue)
                }
                QueueChange::Closed => {
                    job.closed_at == Some(row.at)
                        || moves.iter().any(|job_move| job_move.at == row.at && job_move.from == *queue)
                }
            };
            if is_confirmed {
                confirmed.push((row.change, row.at));
            }
        }
    }
    Ok(confirmed)
}

/// Counts the claimed jobs of a queue. Without renewal a claim lasts at most `lease`, so older claim events are not
/// read.
#[boxed]
pub async fn count_claimed(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    lease: Duration,
    now: Millis,
) -> Result<usize, Error> {
    let mut job_ids: HashSet<JobId> = HashSet::new();
    for hour in hour_of(now.minus(lease))..=hour_of(now) {
        let mut rows = store.scan::<QueueClaim>(&(org.clone(), queue.clone(), hour), RowRange::all());
        while let Some(rows) = rows.next_page().await? {
            let keys: Vec<_> = rows.iter().map(|row| (org.clone(), row.job_id)).collect();
            let jobs = store.get_many::<Job>(&keys).await?.into_iter().flatten();
            let claimed_jobs = jobs.filter(|job| {
                job.queue == *queue
                    && job.state == JobState::Open
                    && job.lease_until.is_some_and(|until| until > now)
            });
            job_ids.extend(claimed_jobs.map(|job| job.job_id));
        }
    }
    Ok(job_ids.len())
}
