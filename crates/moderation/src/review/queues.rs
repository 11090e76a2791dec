//! Claims jobs of review queues.
//!
//! The index of a queue only grows, and the job's row is authoritative. Each day of a queue stores a scan start: all
//! earlier entries are decided, with a margin for late writes. So a claim does not read the whole day.

use std::{
    cmp::Reverse,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_recursion::async_recursion as boxed;
use tidegate_schemas::{
    documents::QueueOrder,
    ids::{DAY_MS, JobId, Millis, OrgId, QueueId},
};
use tidegate_store::{
    ReplaceOutcome, RowRange, Store, WriteTime,
    tables::review::jobs::{DecisionState, Job, JobState, QueueDay, QueueEntry},
};

use crate::{
    Error,
    child_safety::{AuthorizedJob, Clearance, JobRefusal},
    jobs::{has_cause, job_skips, queue_counts},
    metrics,
};

/// Maximum delay between the time of a queue entry and its write.
const LATE_ENTRIES: Duration = Duration::from_secs(600);

/// Number of oldest jobs among which a claim starts at random. Concurrent reviewers would otherwise compete for the
/// first.
const SPREAD: usize = 50;

/// Minimum and maximum number of entries per read. Each entry costs a read of its job.
const PAGE: (usize, usize) = (32, 500);

/// Attempts to find the cause of a job that is being opened, and the pause between them. The cause is written right
/// after the job's row unless the opener crashed.
const OPENING_ATTEMPTS: u32 = 25;
const OPENING_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Reviewer {
    pub name: String,
    /// Duration of a claim without a heartbeat.
    pub lease: Duration,
}

#[derive(Debug)]
pub enum ClaimOutcome {
    Claimed(Box<Job>),
    /// Another reviewer holds the job until `until`.
    HeldByOther {
        by: String,
        until: Millis,
    },
    Decided,
    /// The job's cause is not stored yet. The opener is about to write it, or the replay of its record does after a
    /// crash.
    Opening,
    NotFound,
}

/// Request for the next job of a queue.
#[derive(Clone, Copy, Debug)]
pub struct NextJobRequest<'a> {
    pub queue: &'a QueueId,
    pub order: &'a QueueOrder,
    pub reviewer: &'a Reviewer,
    /// Clearance of the caller.
    pub clearance: Clearance,
    /// True if a job that the reviewer holds already may be returned.
    pub include_own: bool,
}

/// Handling of a job that the reviewer holds already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnClaim {
    Renew,
    Refuse,
}

/// Claims one job, or renews the reviewer's own claim. Waits briefly for a job that is being opened.
#[boxed]
pub async fn claim(
    store: &Store,
    job: &AuthorizedJob,
    reviewer: &Reviewer,
    now: Millis,
) -> Result<ClaimOutcome, Error> {
    claim_opened(store, (job.org(), job.id()), (reviewer, OwnClaim::Renew), now).await
}

async fn claim_opened(
    store: &Store,
    job: (&OrgId, JobId),
    reviewer: (&Reviewer, OwnClaim),
    now: Millis,
) -> Result<ClaimOutcome, Error> {
    for _ in 1..OPENING_ATTEMPTS {
        match try_claim(store, job, reviewer, now).await? {
            ClaimOutcome::Opening => tokio::time::sleep(OPENING_PAUSE).await,
            other => return Ok(other),
        }
    }
    try_claim(store, job, reviewer, now).await
}

async fn try_claim(
    store: &Store,
    (org, job_id): (&OrgId, JobId),
    (reviewer, own_claim): (&Reviewer, OwnClaim),
    now: Millis,
) -> Result<ClaimOutcome, Error> {
    let Some(mut job) = store.get::<Job>(&(org.clone(), job_id)).await? else {
        return Ok(ClaimOutcome::NotFound);
    };
    if !has_cause(store, org, job_id).await? {
        return Ok(ClaimOutcome::Opening);
    }
    loop {
        if job.state != JobState::Open {
            return Ok(ClaimOutcome::Decided);
        }
        if let Some((by, until)) = claimed_by_other(&job, &reviewer.name, now) {
            return Ok(ClaimOutcome::HeldByOther { by, until });
        }
        let lease_until = job.lease_until.filter(|until| *until > now);
        let is_renewal = job.claimed_by.as_deref() == Some(&reviewer.name) && lease_until.is_some();
        // Two concurrent requests of one reviewer can both have seen the job as free.
        if let (true, OwnClaim::Refuse, Some(until)) = (is_renewal, own_claim, lease_until) {
            return Ok(ClaimOutcome::HeldByOther { by: reviewer.name.clone(), until });
        }
        // A new claim has a new epoch, which invalidates decisions under the previous claim.
        let claimed_job = Job {
            epoch: if is_renewal { job.epoch } else { job.epoch + 1 },
            claimed_by: Some(reviewer.name.clone()),
            lease_until: Some(now.plus(reviewer.lease)),
            ..job.clone()
        };
        queue_counts::put_claim_event(store, &claimed_job, now).await?;
        match store.replace(&claimed_job, job.version).await? {
            ReplaceOutcome::Done => {
                return Ok(ClaimOutcome::Claimed(Box::new(Job { version: job.version + 1, ..claimed_job })));
            }
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Ok(ClaimOutcome::NotFound),
        }
    }
}

/// Returns the other reviewer with a valid claim, and the end of the claim.
pub(super) fn claimed_by_other(job: &Job, reviewer: &str, now: Millis) -> Option<(String, Millis)> {
    let by = job.claimed_by.as_ref().filter(|by| *by != reviewer)?;
    job.lease_until.filter(|until| *until > now).map(|until| (by.clone(), until))
}

/// Releases a claimed job. Returns false if the claim is no longer the reviewer's.
#[boxed]
pub async fn release(store: &Store, job: &AuthorizedJob, epoch: i64, reviewer: &str) -> Result<bool, Error> {
    release_claim(store, job.key(), epoch, reviewer).await
}

async fn release_claim(
    store: &Store,
    key: (OrgId, JobId),
    epoch: i64,
    reviewer: &str,
) -> Result<bool, Error> {
    let Some(mut job) = store.get::<Job>(&key).await? else {
        return Ok(false);
    };
    while job.state == JobState::Open && job.epoch == epoch && job.claimed_by.as_deref() == Some(reviewer) {
        let unclaimed_job = Job { claimed_by: None, lease_until: None, ..job.clone() };
        match store.replace(&unclaimed_job, job.version).await? {
            ReplaceOutcome::Done => return Ok(true),
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Ok(false),
        }
    }
    Ok(false)
}

/// Claims the next free job. Order: jobs beyond the queue's maximum wait, oldest first; then the oldest of the
/// highest priority; then jobs that the reviewer skipped. Jobs that the reviewer holds are passed over unless the
/// request includes them. `draw` selects the start among equals. A job beyond the caller's clearance is released again.
pub async fn claim_next(
    store: &Store,
    org: &OrgId,
    request: NextJobRequest<'_>,
    now: Millis,
    draw: impl Fn(usize) -> usize,
) -> Result<Result<Option<AuthorizedJob>, JobRefusal>, Error> {
    let Some(row) = claim_next_row(store, org, request, now, draw).await? else { return Ok(Ok(None)) };
    let (key, epoch) = ((row.org.clone(), row.job_id), row.epoch);
    match AuthorizedJob::from_row(row, request.clearance) {
        Ok(job) => Ok(Ok(Some(job))),
        // A configuration older than the job can lack its class, so that the check of the queue permitted the claim.
        Err(refusal) => {
            release_claim(store, key, epoch, &request.reviewer.name).await?;
            Ok(Err(refusal))
        }
    }
}

async fn claim_next_row(
    store: &Store,
    org: &OrgId,
    request: NextJobRequest<'_>,
    now: Millis,
    draw: impl Fn(usize) -> usize,
) -> Result<Option<Job>, Error> {
    let NextJobRequest { queue, order, reviewer, include_own: include_held, .. } = request;
    let own_claim = if include_held { OwnClaim::Renew } else { OwnClaim::Refuse };
    let claimant = (reviewer, own_claim);
    let is_own = |job: &Job| include_held && job.claimed_by.as_deref() == Some(&reviewer.name);
    let is_free = |job: &Job| job.lease_until.is_none_or(|until| until <= now) || is_own(job);
    let has_skipped = AtomicBool::new(false);
    let is_unskipped = |job: &Job| {
        let is_skipped = is_free(job) && job_skips::skipped_at(job, &reviewer.name).is_some();
        has_skipped.fetch_or(is_skipped, Ordering::Relaxed);
        is_free(job) && !is_skipped
    };
    let mut opening = None;
    let mut days: Vec<QueueDay> =
        store.scan::<QueueDay>(&(org.clone(), queue.clone()), RowRange::all()).all().await?;

    // First the overdue jobs of all priorities: a steady inflow of urgent jobs would otherwise starve the others.
    let overdue = Selection::WaitingSince(now.minus(order.max_wait.duration()));
    days.sort_by_key(|day| day.first_at);
    let mut jobs = Vec::new();
    for day in &days {
        scan_day(store, day, now, (overdue, SPREAD), &is_unskipped, &mut jobs).await?;
        if jobs.len() >= SPREAD {
            break;
        }
    }
    jobs.sort_by_key(|job| job.created_at);
    if let Some(job) = claim_one_of(store, org, &jobs, claimant, now, &draw, &mut opening).await? {
        metrics::job_claimed("overdue");
        return Ok(Some(job));
    }

    let today = now.day();
    // Aging is added when days are ordered, so no row changes while a job waits.
    let effective_priority = |day: &QueueDay| day.priority + i64::from(order.age) * (today - day.day).max(0);
    days.sort_by_key(|day| (Reverse(effective_priority(day)), day.day));
    for same_priority in days.chunk_by(|one, other| effective_priority(one) == effective_priority(other)) {
        let mut jobs = Vec::new();
        for day in same_priority {
            scan_day(store, day, now, (Selection::Present, SPREAD), &is_unskipped, &mut jobs).await?;
            if jobs.len() >= SPREAD {
                break;
            }
        }
        if let Some(job) = claim_one_of(store, org, &jobs, claimant, now, &draw, &mut opening).await? {
            metrics::job_claimed("priority");
            return Ok(Some(job));
        }
    }
    if has_skipped.into_inner() {
        let is_skipped = |job: &Job| is_free(job) && job_skips::skipped_at(job, &reviewer.name).is_some();
        let mut jobs = Vec::new();
        for day in &days {
            scan_day(store, day, now, (Selection::Present, SPREAD), &is_skipped, &mut jobs).await?;
            if jobs.len() >= SPREAD {
                break;
            }
        }
        // The longest-skipped job first: a reviewer who is alone then sees all skipped jobs in turn.
        jobs.sort_by_key(|job| job_skips::skipped_at(job, &reviewer.name));
        if let Some(job) = claim_one_of(store, org, &jobs, claimant, now, &|_| 0, &mut opening).await? {
            metrics::job_claimed("skipped");
            return Ok(Some(job));
        }
    }
    // No other job is free, so it is worth waiting for the one that is being opened.
    let Some(job_id) = opening else { return Ok(None) };
    match claim_opened(store, (org, job_id), claimant, now).await? {
        ClaimOutcome::Claimed(job) => Ok(Some(*job)),
        _ => Ok(None),
    }
}

/// Claims one of the jobs, starting at a random one. Remembers a job that is still being opened.
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
        match try_claim(store, (org, job.job_id), claimant, now).await? {
            ClaimOutcome::Claimed(job) => return Ok(Some(*job)),
            ClaimOutcome::Opening => *opening = opening.or(Some(job.job_id)),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns up to `limit` open jobs of a queue that match `is_match`: highest priority first, then oldest first.
pub async fn list_waiting(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    limit: usize,
    now: Millis,
    is_match: impl Fn(&Job) -> bool,
) -> Result<Vec<Job>, Error> {
    scan_queue(store, (org, queue), now, (Selection::Present, limit), is_match).await
}

/// Returns up to `limit` open jobs that entered a queue before `end` and match `is_match`, unordered.
pub(super) async fn list_waiting_since(
    store: &Store,
    (org, queue): (&OrgId, &QueueId),
    end: Millis,
    limit: usize,
    now: Millis,
    is_match: impl Fn(&Job) -> bool,
) -> Result<Vec<Job>, Error> {
    scan_queue(store, (org, queue), now, (Selection::WaitingSince(end), limit), is_match).await
}

async fn scan_queue(
    store: &Store,
    (org, queue): (&OrgId, &QueueId),
    now: Millis,
    (selection, limit): (Selection, usize),
    is_match: impl Fn(&Job) -> bool,
) -> Result<Vec<Job>, Error> {
    let mut jobs = Vec::new();
    let mut days = store.scan::<QueueDay>(&(org.clone(), queue.clone()), RowRange::all());
    while let Some(days) = days.next_page().await? {
        for day in days {
            scan_day(store, &day, now, (selection, limit), &is_match, &mut jobs).await?;
            if jobs.len() >= limit {
                return Ok(jobs);
            }
        }
    }
    Ok(jobs)
}

/// Returns the opening time of a queue's oldest open job.
#[boxed]
pub async fn find_oldest(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    now: Millis,
) -> Result<Option<Millis>, Error> {
    let mut days: Vec<QueueDay> =
        store.scan::<QueueDay>(&(org.clone(), queue.clone()), RowRange::all()).all().await?;
    days.sort_by_key(|day| day.first_at);
    let mut oldest_opening: Option<Millis> = None;
    for day in days {
        // Days are sorted by scan start, so no later day holds an older job.
        if oldest_opening.is_some_and(|opening| opening <= day.first_at) {
            break;
        }
        let mut jobs = Vec::new();
        scan_day(store, &day, now, (Selection::WaitingSince(now), 1), &|_| true, &mut jobs).await?;
        let first = jobs.first().map(|job| job.created_at);
        oldest_opening = [oldest_opening, first].into_iter().flatten().min();
    }
    Ok(oldest_opening)
}

/// True if the entry is the job's valid one: same queue, present priority, and time of that entry.
pub fn is_valid_entry(entry: &QueueEntry, job: &Job) -> bool {
    job.queue == entry.queue
        && job.priority == entry.priority
        && job.queued_at.unwrap_or(job.created_at) == entry.created_at
}

/// Selection of jobs in a scan.
#[derive(Clone, Copy)]
enum Selection {
    /// Jobs at their present priority.
    Present,
    /// Jobs opened until this instant at any priority. Their first entry finds them too.
    WaitingSince(Millis),
}

async fn scan_day(
    store: &Store,
    day: &QueueDay,
    now: Millis,
    (selection, limit): (Selection, usize),
    is_match: &impl Fn(&Job) -> bool,
    jobs: &mut Vec<Job>,
) -> Result<(), Error> {
    let day_end = Millis((day.day + 1) * DAY_MS);
    let is_finished = day.first_at >= day_end;
    if is_finished || matches!(selection, Selection::WaitingSince(end) if day.first_at > end) {
        return Ok(());
    }
    let partition = (day.org.clone(), day.queue.clone(), day.priority, day.day);
    let page = (2 * limit).clamp(PAGE.0, PAGE.1);
    let mut entries =
        store.scan::<QueueEntry>(&partition, RowRange::starting_at(day.first_at).page_size(page));
    let mut all_decided = true;
    let mut decided_until = day.first_at;
    let mut has_read_all = true;
    'pages: while let Some(entries) = entries.next_page().await? {
        let keys: Vec<_> = entries.iter().map(|entry| (entry.org.clone(), entry.job_id)).collect();
        for (entry, job) in entries.iter().zip(store.get_many::<Job>(&keys).await?) {
            if matches!(selection, Selection::WaitingSince(end) if entry.created_at > end) {
                has_read_all = false;
                break 'pages;
            }
            let Some(job) = job else {
                // The entry is written before the job's row, which may still follow.
                all_decided = false;
                continue;
            };
            // A job has an entry from its opening and one of its present priority. A crashed or overtaken opener
            // leaves an entry with another time.
            let is_first_entry = job.queue == day.queue && job.created_at == entry.created_at;
            let is_valid = is_valid_entry(entry, &job);
            if !is_first_entry && !is_valid {
                // The entry of a new priority is written before the job's row changes, so the job may still become
                // its owner.
                all_decided &= job.queue != day.queue || job.state != JobState::Open;
                continue;
            }
            // A decision that can be undone may return the job to the queue, so it is not final.
            all_decided &= job.state != JobState::Open && job.decision_state != Some(DecisionState::Pending);
            let is_selected = match selection {
                Selection::Present => is_valid,
                Selection::WaitingSince(end) => {
                    job.created_at <= end
                        && !jobs.iter().any(|selected_job| selected_job.job_id == job.job_id)
                }
            };
            if all_decided {
                decided_until = entry.created_at;
            } else if job.state == JobState::Open && is_selected && is_match(&job) && jobs.len() < limit {
                jobs.push(job);
            }
        }
        if jobs.len() >= limit {
            has_read_all = false;
            break;
        }
    }
    // A finished day is not read again: `jobs::choose_entry_time` puts later entries into the next day.
    if has_read_all && all_decided && now.minus(LATE_ENTRIES) >= day_end {
        decided_until = day_end;
    }
    // The margin keeps entries with a delayed write behind the scan start from being lost.
    let scan_start = decided_until.min(now.minus(LATE_ENTRIES));
    if scan_start > day.first_at {
        store
            .put_rows(WriteTime::from_append(now, 0), &[QueueDay { first_at: scan_start, ..day.clone() }])
            .await?;
    }
    Ok(())
}
