//! Opens review jobs, adds causes to open ones, and starts the next generation once a job is decided.
//!
//! Order of writes: pointers (`subject_jobs`, the queue's entry), then the job's row, then the cause's row. One
//! `insert_new` or `replace` of the job's row decides whether a cause or a decision is first; a cause that loses
//! opens the next generation. The cause's row is last, so it exists only where the job includes the cause. A replay
//! that finds it is finished. A replay without it, after a crash in between, raises the open job again, or opens the
//! next generation if the job was decided without showing the cause. A job without causes is not claimed. All ids are
//! derived, so a replay repeats the same steps.

use std::{collections::HashSet, sync::Arc};

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::QueueOrder,
    history::JobOpenedEvent,
    ids::{
        AppealId, DAY_MS, ItemId, ItemKey, JobId, Kind, Millis, OrgId, PolicyId, QueueId, ReportId,
        SubmissionId, TypeId, derive,
    },
    records::JobClass,
    string_enum,
};
use tidegate_store::{
    Batch, InsertOutcome, ReplaceOutcome, RowRange, Store, WriteTime,
    tables::{
        history::{
            child_safety_items::ChildSafetyItem,
            events::{EventHead, HistoryEvent},
        },
        review::{
            jobs::{CauseKind, Job, JobCause, JobState, QueueDay, QueueEntry, SubjectJob, SubjectReporter},
            queue_counts::QueueChange,
        },
    },
};
use uuid::Uuid;

use super::{
    priority::{MOST_REPORTERS, PrioritySignals},
    queue_counts, user_history,
};
use crate::{Error, metrics};

string_enum! {
    /// Queues that every org has.
    pub enum BuiltInQueue {
        Default = "default",
        Appeals = "appeals",
        ChildSafety = "child-safety",
    }
}

impl From<BuiltInQueue> for QueueId {
    fn from(queue: BuiltInQueue) -> Self {
        Self::new(queue.as_str())
    }
}

/// Cause that opens a job or joins an open one.
#[derive(Clone, Debug)]
pub struct Cause {
    pub id: Uuid,
    pub kind: CauseKind,
    pub at: Millis,
    pub report_id: Option<ReportId>,
    pub appeal_id: Option<AppealId>,
    pub submission_id: Option<SubmissionId>,
    /// JSON list of the rules that asked for a review.
    pub rules: String,
    /// JSON list of their hits, with versions.
    pub hits: Option<String>,
    /// JSON of the crossed threshold.
    pub threshold: Option<String>,
    /// Policies of the report, the rules or the appeal.
    pub policies: Vec<PolicyId>,
}

/// Request to open or join the job of a subject.
#[derive(Clone, Debug)]
pub struct JobRequest {
    pub org: OrgId,
    pub class: JobClass,
    pub subject: ItemKey,
    pub queue: QueueId,
    pub cause: Cause,
    pub placement: Placement,
}

/// Queue choice and priority data of a job.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Routing list and entry that chose the queue.
    pub routed_by: Option<String>,
    /// Report for which the routing list for reports chose the queue.
    pub routed_for: Option<ReportId>,
    /// Severity and reach from the cause, for the priority.
    pub signals: PrioritySignals,
    /// User who sent the report.
    pub reporter: Option<ItemKey>,
    /// User under whom the job is listed: the item's creator, or the item itself if it is a user.
    pub user: Option<ItemKey>,
    /// Configuration with the weights of the queues. Without it the default weights apply.
    pub config: Option<Arc<Compiled>>,
}

impl Placement {
    fn order_of(&self, queue: &QueueId) -> QueueOrder {
        let config = self.config.as_deref();
        config
            .and_then(|config| config.queue(queue))
            .map(|queue_config| queue_config.document.order.clone())
            .unwrap_or_default()
    }
}

/// Derives the cause id of a report.
pub(crate) fn report_cause_id(report_id: ReportId) -> Uuid {
    derive(Kind::JobCause, &[b"report", report_id.as_bytes()])
}

/// Opens a job for the cause or adds the cause to the open job. Returns the job with the cause.
pub async fn open_or_join(store: &Store, request: &JobRequest, now: Millis) -> Result<JobId, Error> {
    loop {
        let pointer = load_newest_generation(store, request).await?;
        // A replay may have its cause in a job that was decided since. Joining the newest job would show the cause twice.
        if let Some(job_id) = find_in_earlier_generations(store, request, pointer.generation).await? {
            return Ok(job_id);
        }
        if join_job(store, request, &pointer, now).await? {
            return Ok(pointer.job_id);
        }
        let generation = pointer.generation + 1;
        let next = SubjectJob {
            generation,
            job_id: derive_job_id(request, generation),
            previous_job_id: Some(pointer.job_id),
            ..pointer.clone()
        };
        // If another process wins, the next round finds its generation.
        store.replace(&next, pointer.version).await?;
    }
}

/// Opens the job of an appeal. Each appeal is its own subject, so its job has one cause and one generation.
pub async fn open_for_appeal(
    store: &Store,
    request: &JobRequest,
    appeal_id: &AppealId,
    now: Millis,
) -> Result<JobId, Error> {
    let job_id = appeal_job_id(&request.org, appeal_id);
    if !includes_cause(store, request, job_id).await?
        && !open_job(store, request, job_id, 1, request.placement.signals, now).await?.is_new()
    {
        // An earlier run crashed between the job's row and the cause's.
        put_cause(store, request, job_id).await?;
    }
    Ok(job_id)
}

/// Derives the id of an appeal's job.
pub(crate) fn appeal_job_id(org: &OrgId, appeal_id: &AppealId) -> JobId {
    derive(
        Kind::Job,
        &[org.as_str().as_bytes(), b"appeal", appeal_id.as_str().as_bytes(), &1_i64.to_be_bytes()],
    )
}

fn derive_job_id(request: &JobRequest, generation: i64) -> JobId {
    derive(
        Kind::Job,
        &[
            request.org.as_str().as_bytes(),
            request.class.as_str().as_bytes(),
            request.subject.type_id.as_str().as_bytes(),
            request.subject.id.as_str().as_bytes(),
            &generation.to_be_bytes(),
        ],
    )
}

async fn load_newest_generation(store: &Store, request: &JobRequest) -> Result<SubjectJob, Error> {
    let key = subject_key(&request.org, request.class, &request.subject);
    if let Some(pointer) = store.get::<SubjectJob>(&key).await? {
        return Ok(pointer);
    }
    let first = SubjectJob {
        org: request.org.clone(),
        class: request.class,
        type_id: request.subject.type_id.clone(),
        item_id: request.subject.id.clone(),
        generation: 1,
        job_id: derive_job_id(request, 1),
        previous_job_id: None,
        version: 1,
    };
    Ok(match store.insert_new(&first).await? {
        InsertOutcome::New => first,
        InsertOutcome::Existing(pointer) => pointer,
    })
}

async fn includes_cause(store: &Store, request: &JobRequest, job_id: JobId) -> Result<bool, Error> {
    let key = (request.org.clone(), job_id, request.cause.id);
    Ok(store.get::<JobCause>(&key).await?.is_some())
}

/// True if the job has a cause. Its opener may have crashed between the job's row and the cause's row: a decision
/// would then lack a subject, and the cause would later open another job.
pub(crate) async fn has_cause(store: &Store, org: &OrgId, job_id: JobId) -> Result<bool, Error> {
    let mut causes = store.scan::<JobCause>(&(org.clone(), job_id), RowRange::all().limit(1));
    Ok(!causes.all().await?.is_empty())
}

/// Returns the job of an earlier generation with this cause. All generations are searched, the latest first: a record
/// can be processed again after many decisions.
async fn find_in_earlier_generations(
    store: &Store,
    request: &JobRequest,
    generation: i64,
) -> Result<Option<JobId>, Error> {
    const KEYS_PER_READ: usize = 32;
    let job_ids: Vec<JobId> =
        (1..generation).rev().map(|generation| derive_job_id(request, generation)).collect();
    for job_ids_page in job_ids.chunks(KEYS_PER_READ) {
        let keys: Vec<_> =
            job_ids_page.iter().map(|job_id| (request.org.clone(), *job_id, request.cause.id)).collect();
        let causes = store.get_many::<JobCause>(&keys).await?;
        if let Some((job_id, _)) = job_ids_page.iter().zip(causes).find(|(_, cause)| cause.is_some()) {
            return Ok(Some(*job_id));
        }
    }
    Ok(None)
}

/// Adds the cause to the job. Returns false if the job was decided without the cause.
async fn join_job(
    store: &Store,
    request: &JobRequest,
    pointer: &SubjectJob,
    now: Millis,
) -> Result<bool, Error> {
    // A replay: the cause's row is written last, so the job includes the cause.
    if includes_cause(store, request, pointer.job_id).await? {
        return Ok(true);
    }
    let signals = count_signals(store, request, pointer.generation, now).await?;
    let mut job = match store.get::<Job>(&(request.org.clone(), pointer.job_id)).await? {
        Some(job) => job,
        None => match open_job(store, request, pointer.job_id, pointer.generation, signals, now).await? {
            InsertOutcome::New => return Ok(true),
            InsertOutcome::Existing(job) => job,
        },
    };
    // Each lost `replace` loads the current row: another cause may have raised it, or a decision closed it.
    while job.state == JobState::Open {
        let raised_job = raise_priority(store, request, &job, signals, now).await?;
        match store.replace(&raised_job, job.version).await? {
            ReplaceOutcome::Done => {
                put_cause(store, request, pointer.job_id).await?;
                return Ok(true);
            }
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Err(missing_row(pointer.job_id)),
        }
    }
    Ok(false)
}

/// Returns the signals of the job with its reporters counted, including this cause's.
async fn count_signals(
    store: &Store,
    request: &JobRequest,
    generation: i64,
    now: Millis,
) -> Result<PrioritySignals, Error> {
    let mut signals = request.placement.signals.of_class(request.class);
    let Some(reporter) = &request.placement.reporter else { return Ok(signals) };
    let subject_key = subject_key(&request.org, request.class, &request.subject);
    let row = SubjectReporter {
        org: request.org.clone(),
        class: request.class,
        type_id: request.subject.type_id.clone(),
        item_id: request.subject.id.clone(),
        generation,
        reporter_type: reporter.type_id.clone(),
        reporter_id: reporter.id.clone(),
        at: request.cause.at,
    };
    // One row per reporter: a repeated report of the same user does not raise the priority.
    store.put_rows(WriteTime::from_append(now, 0), &[row]).await?;
    let range = RowRange::with_prefix((generation,)).limit(MOST_REPORTERS);
    signals.reporters = store.scan::<SubjectReporter>(&subject_key, range).all().await?.len();
    Ok(signals)
}

/// Key of a subject's newest job and of its reporters.
pub(crate) fn subject_key(org: &OrgId, class: JobClass, item: &ItemKey) -> (OrgId, JobClass, TypeId, ItemId) {
    (org.clone(), class, item.type_id.clone(), item.id.clone())
}

/// Counts the distinct reporters of the item including `reporter`, up to [`MOST_REPORTERS`].
pub(crate) async fn count_reporters(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    reporter: &ItemKey,
) -> Result<usize, Error> {
    let subject_key = subject_key(org, JobClass::Review, item);
    // All generations are read, and a user can have a row in each, so the rows are reduced to distinct users.
    let rows =
        store.scan::<SubjectReporter>(&subject_key, RowRange::all().limit(MOST_REPORTERS)).all().await?;
    let mut users: HashSet<ItemKey> =
        rows.into_iter().map(|row| ItemKey { type_id: row.reporter_type, id: row.reporter_id }).collect();
    users.insert(reporter.clone());
    Ok(users.len())
}

/// Returns the job with the cause's signals added. A higher priority first gets a queue entry; the job's row then
/// states which of its entries is valid.
async fn raise_priority(
    store: &Store,
    request: &JobRequest,
    job: &Job,
    signals: PrioritySignals,
    now: Millis,
) -> Result<Job, Error> {
    let combined = PrioritySignals::parse_from(job)?.unwrap_or_default().combined_with(signals);
    // Weights may have been lowered since the job was opened, but another cause must not move the job back.
    let priority = combined.priority(&request.placement.order_of(&job.queue)).max(job.priority);
    let mut raised_job = Job { priority, signals: Some(signals_to_json(combined)?), ..job.clone() };
    // The entry is written first: a row that refers to a missing entry would hide the job.
    if priority != job.priority {
        let at = choose_entry_time(store, &job.org, &job.queue, priority, now).await?;
        put_entry(store, &raised_job, at, now).await?;
        raised_job.queued_at = Some(at);
    }
    Ok(raised_job)
}

pub(crate) fn signals_to_json(signals: PrioritySignals) -> Result<String, Error> {
    serde_json::to_string(&signals).map_err(Error::corrupt("job"))
}

/// Writes the queue entry of a job. Must happen before the job's row refers to it.
pub(crate) async fn put_entry(store: &Store, job: &Job, at: Millis, now: Millis) -> Result<(), Error> {
    let entry = QueueEntry {
        org: job.org.clone(),
        queue: job.queue.clone(),
        priority: job.priority,
        day: at.day(),
        created_at: at,
        job_id: job.job_id,
        item: job.item.clone(),
    };
    Ok(store.put_rows(WriteTime::from_append(now, 0), &[entry]).await?)
}

async fn open_job(
    store: &Store,
    request: &JobRequest,
    job_id: JobId,
    generation: i64,
    signals: PrioritySignals,
    now: Millis,
) -> Result<InsertOutcome<Job>, Error> {
    let priority = signals.priority(&request.placement.order_of(&request.queue));
    let created_at = choose_entry_time(store, &request.org, &request.queue, priority, now).await?;
    let job = Job {
        org: request.org.clone(),
        job_id,
        class: request.class,
        queue: request.queue.clone(),
        state: JobState::Open,
        item: request.subject.clone(),
        generation,
        priority,
        created_at,
        appeal_id: request.cause.appeal_id.clone(),
        epoch: 0,
        claimed_by: None,
        lease_until: None,
        decision: None,
        decision_state: None,
        queued_at: None,
        signals: Some(signals_to_json(signals)?),
        routed_by: request.placement.routed_by.clone(),
        routed_for: request.placement.routed_for,
        closed_at: None,
        moves: None,
        skips: None,
        version: 1,
    };
    // Pointers before the job's row: a job without an entry would never be claimed.
    put_entry(store, &job, created_at, now).await?;
    if let Some(user) = &request.placement.user {
        user_history::put_job(store, &job.org, user, (job_id, created_at), &job.item).await?;
    }
    // The event of a lost race does not count, because the winner's row does not confirm it.
    queue_counts::put_event(store, &job, QueueChange::Opened, created_at).await?;
    put_history(store, &job).await?;
    let inserted = store.insert_new(&job).await?;
    // A loser of the race joins the winner's row instead.
    if matches!(inserted, InsertOutcome::New) {
        metrics::job_opened(request.class.as_str());
        put_cause(store, request, job_id).await?;
    }
    Ok(inserted)
}

/// Returns the time of a new queue entry: now, or the scan start of the day if that is later because of a clock that
/// was ahead. Scans would miss an earlier entry.
pub(crate) async fn choose_entry_time(
    store: &Store,
    org: &OrgId,
    queue: &QueueId,
    priority: i64,
    now: Millis,
) -> Result<Millis, Error> {
    let mut at = now;
    loop {
        let day = at.day();
        let key = (org.clone(), queue.clone(), priority, day);
        let Some(day_row) = store.get::<QueueDay>(&key).await? else {
            let first_at = Millis(day * DAY_MS);
            let new_day = QueueDay { org: org.clone(), queue: queue.clone(), priority, day, first_at };
            // The day's start as write time: the row must never overwrite a later scan start.
            store.put_rows(WriteTime::from_append(first_at, 0), &[new_day]).await?;
            return Ok(at);
        };
        at = at.max(day_row.first_at);
        // The scan start of a finished day is its end, so the entry belongs to a later day.
        if at.day() == day {
            return Ok(at);
        }
    }
}

async fn put_cause(store: &Store, request: &JobRequest, job_id: JobId) -> Result<(), Error> {
    let cause = &request.cause;
    let row = JobCause {
        org: request.org.clone(),
        job_id,
        cause: cause.id,
        kind: cause.kind,
        at: cause.at,
        report_id: cause.report_id,
        appeal_id: cause.appeal_id.clone(),
        submission_id: cause.submission_id,
        rules: cause.rules.clone(),
        hits: cause.hits.clone(),
        threshold: cause.threshold.clone(),
        policies: policies_to_json(&cause.policies)?,
    };
    store.put_rows(WriteTime::from_append(cause.at, 0), &[row]).await?;
    Ok(())
}

/// Parses the policies of a stored cause.
pub(crate) fn parse_policies(text: Option<&str>) -> Result<Vec<PolicyId>, Error> {
    text.map_or(Ok(Vec::new()), serde_json::from_str).map_err(Error::corrupt("job"))
}

fn policies_to_json(policies: &[PolicyId]) -> Result<Option<String>, Error> {
    if policies.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(policies).map(Some).map_err(Error::corrupt("job"))
}

/// Writes the history event of a new job, and the entry of a child-safety job in the list of restricted items.
async fn put_history(store: &Store, job: &Job) -> Result<(), Error> {
    let is_child_safety = job.class == JobClass::ChildSafety;
    let head =
        EventHead { org: &job.org, id: job.job_id.0, at: job.created_at, item: &job.item, is_child_safety };
    let event = HistoryEvent::new(head, &JobOpenedEvent { class: job.class });
    let mut batch = Batch::new();
    let at = WriteTime::from_append(job.created_at, 0);
    batch.put_owned(at, event);
    if is_child_safety {
        batch.put_owned(at, ChildSafetyItem::new(&job.org, &job.item, job.created_at));
    }
    Ok(store.write(batch).await?)
}

fn missing_row(job_id: JobId) -> Error {
    Error::Corrupt { what: "job", detail: format!("row of job {job_id} is missing although it was stored") }
}
