//! Claims of jobs in review queues.
//!
//! The index of a queue only grows, and a job's row is the truth. Each day of a queue stores up to where all its entries
//! are decided, with a margin for late entries, so that a claim does not read the whole day.

use std::{
    cmp::Reverse,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tidegate_schemas::{
    documents::QueueOrder,
    ids::{DAY_MS, JobId, Millis, OrgId, QueueId},
};
use tidegate_store::{
    At, Replaced, Store, WriteTime,
    tables::review::jobs::{DecisionState, Job, JobState, QueueDay, QueueEntry},
};

use super::skips;
use crate::{Error, jobs::has_cause, metrics, queue_counts};

/// Longest delay between the instant of a queue entry and its write.
const LATE_ENTRIES: Duration = Duration::from_secs(600);

/// Number of oldest jobs among which a claim starts at random, so that reviewers do not all compete for the first.
const SPREAD: usize = 50;

/// Least and largest number of entries that are read at once; each costs a read of its job.
const PAGE: (usize, usize) = (32, 500);

/// Attempts to find the cause of a job that is being opened, and the pause between them. The cause follows the job's row
/// at once unless the opener crashed.
const OPENING_ATTEMPTS: u32 = 25;
const OPENING_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Reviewer {
    pub name: String,
    /// Duration of a claim without a heartbeat.
    pub lease: Duration,
}

#[derive(Debug)]
pub enum Claim {
    Yours(Box<Job>),
    /// Another reviewer has claimed the job until then.
    Taken {
        by: String,
        until: Millis,
    },
    Decided,
    /// The job has no cause yet. It is about to follow, or is added when its record is processed again after a crash.
    Opening,
    NotFound,
}

/// Request for the next job of a queue.
#[derive(Clone, Copy, Debug)]
pub struct ClaimNext<'a> {
    pub queue: &'a QueueId,
    pub order: &'a QueueOrder,
    pub reviewer: &'a Reviewer,
    /// True if a job that the reviewer has claimed already may be the next one.
    pub include_held: bool,
}

/// Handling of a job that the reviewer has claimed already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnClaim {
    Renew,
    Refuse,
}

/// Claims one job, or renews the reviewer's own claim. Waits a moment for a job that is just being opened.
pub async fn claim(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    reviewer: &Reviewer,
    now: Millis,
) -> Result<Claim, Error> {
    claim_opened(store, (org, job_id), (reviewer, OwnClaim::Renew), now).await
}

async fn claim_opened(
    store: &Store,
    job: (&OrgId, JobId),
    reviewer: (&Reviewer, OwnClaim),
    now: Millis,
) -> Result<Claim, Error> {
    for _ in 1..OPENING_ATTEMPTS {
        match claim_at_once(store, job, reviewer, now).await? {
            Claim::Opening => tokio::time::sleep(OPENING_PAUSE).await,
            other => return Ok(other),
        }
    }
    claim_at_once(store, job, reviewer, now).await
}

async fn claim_at_once(
    store: &Store,
    (org, job_id): (&OrgId, JobId),
    (reviewer, own_claim): (&Reviewer, OwnClaim),
    now: Millis,
) -> Result<Claim, Error> {
    let Some(mut job) = store.get::<Job>(&(org.clone(), job_id)).await? else {
        return Ok(Claim::NotFound);
    };
    if !has_cause(store, org, job_id).await? {
        return Ok(Claim::Opening);
    }
    loop {
        if job.state != JobState::Open {
            return Ok(Claim::Decided);
        }
        if let Some((by, until)) = claimed_by_other(&job, &reviewer.name, now) {
            return Ok(Claim::Taken { by, until });
        }
        let held_until = job.lease_until.filter(|until| *until > now);
        let renewed = job.claimed_by.as_deref() == Some(&reviewer.name) && held_until.is_some();
        // Two requests of one reviewer at once may both have found the job free.
        if let (true, OwnClaim::Refuse, Some(until)) = (renewed, own_claim, held_until) {
            return Ok(Claim::Taken { by: reviewer.name.clone(), until });
        }
        let claimed = Job {
            epoch: if renewed { job.epoch } else { job.epoch + 1 },
            claimed_by: Some(reviewer.name.clone()),
            lease_until: Some(now.plus(reviewer.lease)),
            ..job.clone()
        };
        queue_counts::announce_claim(store, &claimed, now).await?;
        match store.replace(&claimed, job.version).await? {
            Replaced::Yes => return Ok(Claim::Yours(Box::new(Job { version: job.version + 1, ..claimed }))),
            Replaced::No(current) => job = current,
            Replaced::Gone => return Ok(Claim::NotFound),
        }
    }
}

/// Returns the other reviewer whose claim holds, and until when.
pub(super) fn claimed_by_other(job: &Job, reviewer: &str, now: Millis) -> Option<(String, Millis)> {
    let by = job.claimed_by.as_ref().filter(|by| *by != reviewer)?;
    job.lease_until.filter(|until| *until > now).map(|until| (by.clone(), until))
}

/// Gives a claimed job back to its queue. Returns false if the claim was not the reviewer's any more.
pub async fn release(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    epoch: i64,
    reviewer: &str,
) -> Result<bool, Error> {
    let Some(mut job) = store.get::<Job>(&(org.clone(), job_id)).await? else {
        return Ok(false);
    };
    while job.state == JobState::Open && job.epoch == epoch && job.claimed_by.as_deref() == Some(reviewer) {
        let free = Job { claimed_by: None, lease_until: None, ..job.clone() };
        match store.replace(&free, job.version).await? {
            Replaced::Yes => return Ok(true),
            Replaced::No(current) => job = current,
            Replaced::Gone => return Ok(false),
        }
    }
    Ok(false)
}

/// Claims the next free job: one that has waited for longer than the queue's bound, the oldest first, or else one of the
/// oldest of the highest priority, or else one that the reviewer skipped. Jobs that the reviewer holds are passed by unless the
/// request includes them. `draw` picks the one to start at among equals.
pub async fn claim_next(
    store: &Store,
    org: &OrgId,
    request: ClaimNext<'_>,
    now: Millis,
    draw: impl Fn(usize) -> usize,
) -> Result<Option<Job>, Error> {
    let ClaimNext { queue, order, reviewer, include_held } = request;
    let own_claim = if include_held { OwnClaim::Renew } else { OwnClaim::Refuse };
    let claimant = (reviewer, own_claim);
    let is_own = |job: &Job| include_held && job.claimed_by.as_deref() == Some(&reviewer.name);
    let is_free = |job: &Job| job.lease_until.is_none_or(|until| until <= now) || is_own(job);
    let has_skipped = AtomicBool::new(false);
    let is_new = |job: &Job| {
        let is_skipped = is_free(job) && skips::skipped_at(job, &reviewer.name).is_some();
        has_skipped.fetch_or(is_skipped, Ordering::Relaxed);
        is_free(job) && !is_skipped
    };
    let mut opening = None;
    let mut days: Vec<QueueDay> =
        store.scan::<QueueDay>(&(org.clone(), queue.clone()), At::all()).all().await?;

    let overdue = Wanted::WaitingSince(now.minus(order.max_wait.duration()));
    days.sort_by_key(|day| day.first_at);
    let mut found = Vec::new();
    for day in &days {
        scan_day(store, day, now, (overdue, SPREAD), &is_new, &mut found).await?;
        if found.len() >= SPREAD {
            break;
        }
    }
    found.sort_by_key(|job| job.created_at);
    if let Some(job) = claim_one_of(store, org, &found, claimant, now, &draw, &mut opening).await? {
        metrics::job_claimed("overdue");
        return Ok(Some(job));
    }

    let today = now.day();
    let rank = |day: &QueueDay| day.priority + i64::from(order.age) * (today - day.day).max(0);
    days.sort_by_key(|day| (Reverse(rank(day)), day.day));
    for equals in days.chunk_by(|one, other| rank(one) == rank(other)) {
        let mut found = Vec::new();
        for day in equals {
            scan_day(store, day, now, (Wanted::Present, SPREAD), &is_new, &mut found).await?;
            if found.len() >= SPREAD {
                break;
            }
        }
        if let Some(job) = claim_one_of(store, org, &found, claimant, now, &draw, &mut opening).await? {
            metrics::job_claimed("priority");
            return Ok(Some(job));
        }
    }
    if has_skipped.into_inner() {
        let is_skipped = |job: &Job| is_free(job) && skips::skipped_at(job, &reviewer.name).is_some();
        let mut found = Vec::new();
        for day in &days {
            scan_day(store, day, now, (Wanted::Present, SPREAD), &is_skipped, &mut found).await?;
            if found.len() >= SPREAD {
                break;
            }
        }
        // The one that was skipped longest ago, so that a reviewer who is alone sees all of them in turn.
        found.sort_by_key(|job| skips::skipped_at(job, &reviewer.name));
        if let Some(job) = claim_one_of(store, org, &found, claimant, now, &|_| 0, &mut opening).await? {
            metrics::job_claimed("skipped");
            return Ok(Some(job));
        }
    }
    // No other job is free, so waiting for the one that is being opened pays.
    let Some(job_id) = opening else { return Ok(None) };
    match claim_opened(store, (org, job_id), claimant, now).await? {
        Claim::Yours(job) => Ok(Some(*job)),
        _ => Ok(None),
    }
}

/// Claims one of the jobs, from a random one on. Remembers one that is still being opened.
async fn claim_one_of(
    store: &Store,
    org: &OrgId,
    jobs: &[Job],
    claimant: (&Reviewer, OwnClaim),
    now: Millis,
    draw: &impl Fn(usize) -> usize,
    opening: &mut Option<JobId>,
) -> Result<Option<Job>, Error> {
    let start = if jobs.is_empty() { 0 } else { draw(jobs.len()) % jobs.len() };
    for job in jobs[start..].iter().chain(&jobs[..start]) {
        match claim_at_once(store, (org, job.job_id), claimant, now).await? {
            Claim::Yours(job) => return Ok(Some(*job)),
            Claim::Opening => *opening = opening.or(Some(job.job_id)),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns up to `limit` open jobs of a queue that match `fits`, highest priority first, oldest first within it.
pub async fn waiting(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    limit: usize,
    now: Millis,
    fits: impl Fn(&Job) -> bool,
) -> Result<Vec<Job>, Error> {
    scan_queue(store, (org, queue), now, (Wanted::Present, limit), fits).await
}

/// Returns up to `limit` open jobs that have been in a queue since `end` or longer and match `fits`, in no order.
pub(super) async fn waiting_since(
    store: &Store,
    (org, queue): (&OrgId, &QueueId),
    end: Millis,
    limit: usize,
    now: Millis,
    fits: impl Fn(&Job) -> bool,
) -> Result<Vec<Job>, Error> {
    scan_queue(store, (org, queue), now, (Wanted::WaitingSince(end), limit), fits).await
}

async fn scan_queue(
    store: &Store,
    (org, queue): (&OrgId, &QueueId),
    now: Millis,
    (wanted, limit): (Wanted, usize),
    fits: impl Fn(&Job) -> bool,
) -> Result<Vec<Job>, Error> {
    let mut found = Vec::new();
    let mut days = store.scan::<QueueDay>(&(org.clone(), queue.clone()), At::all());
    while let Some(days) = days.next_page().await? {
        for day in days {
            scan_day(store, &day, now, (wanted, limit), &fits, &mut found).await?;
            if found.len() >= limit {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Returns the time at which the oldest open job of a queue was opened.
pub async fn oldest(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    now: Millis,
) -> Result<Option<Millis>, Error> {
    let mut days: Vec<QueueDay> =
        store.scan::<QueueDay>(&(org.clone(), queue.clone()), At::all()).all().await?;
    days.sort_by_key(|day| day.first_at);
    let mut oldest: Option<Millis> = None;
    for day in days {
        if oldest.is_some_and(|oldest| oldest <= day.first_at) {
            break;
        }
        let mut found = Vec::new();
        scan_day(store, &day, now, (Wanted::WaitingSince(now), 1), &|_| true, &mut found).await?;
        let first = found.first().map(|job| job.created_at);
        oldest = [oldest, first].into_iter().flatten().min();
    }
    Ok(oldest)
}

/// True if the entry is the one that holds for the job: its queue, its present priority, and the instant of that entry.
pub fn is_present(entry: &QueueEntry, job: &Job) -> bool {
    job.queue == entry.queue
        && job.priority == entry.priority
        && job.queued_at.unwrap_or(job.created_at) == entry.created_at
}

/// Jobs that a scan looks for.
#[derive(Clone, Copy)]
enum Wanted {
    /// Jobs at their present priority.
    Present,
    /// Jobs that were opened until this instant, whatever their priority. They are found by their first entry too.
    WaitingSince(Millis),
}

async fn scan_day(
    store: &Store,
    day: &QueueDay,
    now: Millis,
    (wanted, limit): (Wanted, usize),
    fits: &impl Fn(&Job) -> bool,
    found: &mut Vec<Job>,
) -> Result<(), Error> {
    let day_end = Millis((day.day + 1) * DAY_MS);
    let is_finished = day.first_at >= day_end;
    if is_finished || matches!(wanted, Wanted::WaitingSince(end) if day.first_at > end) {
        return Ok(());
    }
    let partition = (day.org.clone(), day.queue.clone(), day.priority, day.day);
    let page = (2 * limit).clamp(PAGE.0, PAGE.1);
    let mut entries = store.scan::<QueueEntry>(&partition, At::since(day.first_at).page_size(page));
    let mut all_decided = true;
    let mut decided_until = day.first_at;
    let mut read_all = true;
    'pages: while let Some(entries) = entries.next_page().await? {
        let keys: Vec<_> = entries.iter().map(|entry| (entry.org.clone(), entry.job_id)).collect();
        for (entry, job) in entries.iter().zip(store.get_many::<Job>(&keys).await?) {
            if matches!(wanted, Wanted::WaitingSince(end) if entry.created_at > end) {
                read_all = false;
                break 'pages;
            }
            let Some(job) = job else {
                // The entry is written before the job, which may be about to follow.
                all_decided = false;
                continue;
            };
            // A job has the entry that it was opened with and the one of its present priority. An opener that crashed, or
            // lost the race to open it, left an entry of another instant.
            let is_first = job.queue == day.queue && job.created_at == entry.created_at;
            let is_present = is_present(entry, &job);
            if !is_first && !is_present {
                // The entry of a rise is written before the job rises.
                all_decided &= job.queue != day.queue || job.state != JobState::Open;
                continue;
            }
            // A decision that can be undone gives the job back to the queue.
            all_decided &= job.state != JobState::Open && job.decision_state != Some(DecisionState::Pending);
            let is_wanted = match wanted {
                Wanted::Present => is_present,
                Wanted::WaitingSince(end) => {
                    job.created_at <= end && !found.iter().any(|it| it.job_id == job.job_id)
                }
            };
            if all_decided {
                decided_until = entry.created_at;
            } else if job.state == JobState::Open && is_wanted && fits(&job) && found.len() < limit {
                found.push(job);
            }
        }
        if found.len() >= limit {
            read_all = false;
            break;
        }
    }
    // A day that is over and decided is not read again. `jobs` puts later entries into the next one.
    if read_all && all_decided && now.minus(LATE_ENTRIES) >= day_end {
        decided_until = day_end;
    }
    let settled = decided_until.min(now.minus(LATE_ENTRIES));
    if settled > day.first_at {
        store.put(WriteTime::of(now, 0), &[QueueDay { first_at: settled, ..day.clone() }]).await?;
    }
    Ok(())
}
