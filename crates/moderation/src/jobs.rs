//! Opens review jobs, adds causes to open ones, and starts the next generation once a job is decided.
//!
//! Order of writes: pointers first (`subject_jobs`, the queue's entry), then the job's row, then the cause's row. One
//! `insert_new` or `replace` of the job decides whether the cause or a decision came first; a cause that lost goes
//! to the next generation. The cause's row is written last, so it exists only where the job took the cause in: a
//! replay that finds it is done, and one that does not, because a crash came between, raises the open job once
//! more or, if it was decided without anybody seeing the cause, opens the next generation. A job that has no cause at
//! all is not claimed. Every id is derived, so a replay walks the same path.

use std::{collections::HashSet, sync::Arc};

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::QueueOrder,
    ids::{
        AppealId, DAY_MS, ItemId, ItemKey, JobId, Kind, Millis, OrgId, QueueId, ReportId, SubmissionId,
        TypeId, derive,
    },
    records::JobClass,
    string_enum,
};
use tidegate_store::{
    At, Inserted, Replaced, Store, WriteTime,
    tables::review::{
        jobs::{CauseKind, Job, JobCause, JobState, QueueDay, QueueEntry, SubjectJob, SubjectReporter},
        queue_counts::QueueChange,
    },
};
use uuid::Uuid;

use crate::{
    Error, metrics,
    priority::{MOST_REPORTERS, Signals},
    queue_counts, user_history,
};

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
    /// JSON: the threshold that was crossed.
    pub threshold: Option<String>,
}

/// The subject of a job and the queue that it waits in.
#[derive(Clone, Debug)]
pub struct JobRequest {
    pub org: OrgId,
    pub class: JobClass,
    pub subject: ItemKey,
    pub queue: QueueId,
    pub cause: Cause,
    pub placement: Placement,
}

/// Reasons for a job's queue and its place in it.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Routing list and entry that chose the queue.
    pub routed_by: Option<String>,
    /// Report by which the routing list for reports chose the queue, if it did.
    pub routed_for: Option<ReportId>,
    /// Severity and reach that the cause adds to the priority.
    pub signals: Signals,
    /// User whose report it is.
    pub reporter: Option<ItemKey>,
    /// User under whom the job is listed: the creator of the item, or the user that it is.
    pub user: Option<ItemKey>,
    /// Configuration with the weights of the queues; the default ones hold without it.
    pub config: Option<Arc<Compiled>>,
}

impl Placement {
    fn order(&self, queue: &QueueId) -> QueueOrder {
        let config = self.config.as_deref();
        config.and_then(|config| config.queue(queue)).map(|it| it.document.order.clone()).unwrap_or_default()
    }
}

/// Returns the id of a report as a cause.
pub(crate) fn report_cause(report_id: ReportId) -> Uuid {
    derive(Kind::JobCause, &[b"report", report_id.as_bytes()])
}

/// Opens a job for the cause or adds it to the open one. Returns the job that has the cause.
pub async fn open_or_join(store: &Store, request: &JobRequest, now: Millis) -> Result<JobId, Error> {
    loop {
        let pointer = newest_generation(store, request).await?;
        if let Some(earlier) = find_in_earlier_generations(store, request, pointer.generation).await? {
            return Ok(earlier);
        }
        if join(store, request, &pointer, now).await? {
            return Ok(pointer.job_id);
        }
        let generation = pointer.generation + 1;
        let next = SubjectJob {
            generation,
            job_id: job_id(request, generation),
            previous_job_id: Some(pointer.job_id),
            ..pointer.clone()
        };
        // If another process wins, the next round finds its generation.
        store.replace(&next, pointer.version).await?;
    }
}

/// Opens the job of an appeal. An appeal is its own subject: it never joins and never has a second generation.
pub async fn open_for_appeal(
    store: &Store,
    request: &JobRequest,
    appeal_id: &AppealId,
    now: Millis,
) -> Result<JobId, Error> {
    let job_id = derive(
        Kind::Job,
        &[request.org.as_str().as_bytes(), b"appeal", appeal_id.as_str().as_bytes(), &1_i64.to_be_bytes()],
    );
    if !has_this_cause(store, request, job_id).await?
        && !open(store, request, job_id, 1, request.placement.signals, now).await?.is_new()
    {
        // An earlier run crashed between the job's row and the cause's.
        put_cause(store, request, job_id).await?;
    }
    Ok(job_id)
}

fn job_id(request: &JobRequest, generation: i64) -> JobId {
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

async fn newest_generation(store: &Store, request: &JobRequest) -> Result<SubjectJob, Error> {
    let key = (
        request.org.clone(),
        request.class.as_str().to_owned(),
        request.subject.type_id.clone(),
        request.subject.id.clone(),
    );
    if let Some(pointer) = store.get::<SubjectJob>(&key).await? {
        return Ok(pointer);
    }
    let first = SubjectJob {
        org: request.org.clone(),
        class: request.class.as_str().to_owned(),
        type_id: request.subject.type_id.clone(),
        item_id: request.subject.id.clone(),
        generation: 1,
        job_id: job_id(request, 1),
        previous_job_id: None,
        version: 1,
    };
    Ok(match store.insert_new(&first).await? {
        Inserted::New => first,
        Inserted::Existing(pointer) => pointer,
    })
}

async fn has_this_cause(store: &Store, request: &JobRequest, job_id: JobId) -> Result<bool, Error> {
    let key = (request.org.clone(), job_id, request.cause.id);
    Ok(store.get::<JobCause>(&key).await?.is_some())
}

/// True if the job has a cause. The job's row is written first, and its opener may have crashed before the cause's. A
/// decision then would be about nothing, and the cause would open another job.
pub(crate) async fn has_cause(store: &Store, org: &OrgId, job_id: JobId) -> Result<bool, Error> {
    let mut causes = store.scan::<JobCause>(&(org.clone(), job_id), At::all().limit(1));
    Ok(!causes.all().await?.is_empty())
}

/// Returns the job of an earlier generation that has the cause. All are searched, the latest first: a record may be
/// processed again, or sent again under its key, after many decisions.
async fn find_in_earlier_generations(
    store: &Store,
    request: &JobRequest,
    generation: i64,
) -> Result<Option<JobId>, Error> {
    const AT_ONCE: usize = 32;
    let earlier: Vec<JobId> = (1..generation).rev().map(|earlier| job_id(request, earlier)).collect();
    for jobs in earlier.chunks(AT_ONCE) {
        let keys: Vec<_> =
            jobs.iter().map(|job_id| (request.org.clone(), *job_id, request.cause.id)).collect();
        let held = store.get_many::<JobCause>(&keys).await?;
        if let Some((job_id, _)) = jobs.iter().zip(held).find(|(_, cause)| cause.is_some()) {
            return Ok(Some(*job_id));
        }
    }
    Ok(None)
}

/// Adds the cause to the job. Returns false if the job was decided without it.
async fn join(store: &Store, request: &JobRequest, pointer: &SubjectJob, now: Millis) -> Result<bool, Error> {
    if has_this_cause(store, request, pointer.job_id).await? {
        return Ok(true);
    }
    let signals = signals(store, request, pointer.generation, now).await?;
    let mut job = match store.get::<Job>(&(request.org.clone(), pointer.job_id)).await? {
        Some(job) => job,
        None => match open(store, request, pointer.job_id, pointer.generation, signals, now).await? {
            Inserted::New => return Ok(true),
            Inserted::Existing(job) => job,
        },
    };
    while job.state == JobState::Open {
        let raised = raised(store, request, &job, signals, now).await?;
        match store.replace(&raised, job.version).await? {
            Replaced::Yes => {
                put_cause(store, request, pointer.job_id).await?;
                return Ok(true);
            }
            Replaced::No(current) => job = current,
            Replaced::Gone => return Err(lost_row(pointer.job_id)),
        }
    }
    Ok(false)
}

/// Returns the parts of the priority with the reporters counted, this cause's included.
async fn signals(
    store: &Store,
    request: &JobRequest,
    generation: i64,
    now: Millis,
) -> Result<Signals, Error> {
    let mut signals = request.placement.signals.of_class(request.class);
    let Some(reporter) = &request.placement.reporter else { return Ok(signals) };
    let subject = subject(&request.org, request.class, &request.subject);
    let row = SubjectReporter {
        org: request.org.clone(),
        class: request.class.as_str().to_owned(),
        type_id: request.subject.type_id.clone(),
        item_id: request.subject.id.clone(),
        generation,
        reporter_type: reporter.type_id.clone(),
        reporter_id: reporter.id.clone(),
        at: request.cause.at,
    };
    store.put(WriteTime::of(now, 0), &[row]).await?;
    let counted = At::under((generation,)).limit(MOST_REPORTERS);
    signals.reporters = store.scan::<SubjectReporter>(&subject, counted).all().await?.len();
    Ok(signals)
}

/// Key of the reporters of a subject.
pub(crate) fn subject(org: &OrgId, class: JobClass, item: &ItemKey) -> (OrgId, String, TypeId, ItemId) {
    (org.clone(), class.as_str().to_owned(), item.type_id.clone(), item.id.clone())
}

/// Returns the number of different users who reported the item so far, and of `with`, up to [`MOST_REPORTERS`].
pub(crate) async fn reporters(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    with: &ItemKey,
) -> Result<usize, Error> {
    let subject = subject(org, JobClass::Review, item);
    let rows = store.scan::<SubjectReporter>(&subject, At::all().limit(MOST_REPORTERS)).all().await?;
    let mut known: HashSet<ItemKey> =
        rows.into_iter().map(|row| ItemKey { type_id: row.reporter_type, id: row.reporter_id }).collect();
    known.insert(with.clone());
    Ok(known.len())
}

/// Returns the job with the cause's parts of the priority. A job that rises gets an entry at its new priority first; the
/// job's row says which of its entries holds.
async fn raised(
    store: &Store,
    request: &JobRequest,
    job: &Job,
    signals: Signals,
    now: Millis,
) -> Result<Job, Error> {
    let joined = Signals::of(job)?.unwrap_or_default().joined(signals);
    let priority = joined.priority(&request.placement.order(&job.queue)).max(job.priority);
    let mut raised = Job { priority, signals: Some(signals_text(joined)?), ..job.clone() };
    if priority != job.priority {
        let at = entry_time(store, &job.org, &job.queue, priority, now).await?;
        put_entry(store, &raised, at, now).await?;
        raised.queued_at = Some(at);
    }
    Ok(raised)
}

pub(crate) fn signals_text(signals: Signals) -> Result<String, Error> {
    serde_json::to_string(&signals).map_err(Error::corrupt("job"))
}

/// Writes the pointer to a job in its queue. It is written before the job's row says that it waits there.
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
    Ok(store.put(WriteTime::of(now, 0), &[entry]).await?)
}

async fn open(
    store: &Store,
    request: &JobRequest,
    job_id: JobId,
    generation: i64,
    signals: Signals,
    now: Millis,
) -> Result<Inserted<Job>, Error> {
    let priority = signals.priority(&request.placement.order(&request.queue));
    let created_at = entry_time(store, &request.org, &request.queue, priority, now).await?;
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
        signals: Some(signals_text(signals)?),
        routed_by: request.placement.routed_by.clone(),
        routed_for: request.placement.routed_for,
        closed_at: None,
        moves: None,
        skips: None,
        version: 1,
    };
    put_entry(store, &job, created_at, now).await?;
    if let Some(user) = &request.placement.user {
        user_history::put_job(store, &job.org, user, (job_id, created_at), &job.item).await?;
    }
    queue_counts::announce(store, &job, QueueChange::Opened, created_at).await?;
    let inserted = store.insert_new(&job).await?;
    if matches!(inserted, Inserted::New) {
        metrics::job_opened(request.class.as_str());
        put_cause(store, request, job_id).await?;
    }
    Ok(inserted)
}

/// Returns the instant of a new queue entry. It is now, or the instant from which the day is scanned if that is
/// later because of a clock that was ahead: nobody would find an earlier entry.
pub(crate) async fn entry_time(
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
        let Some(known) = store.get::<QueueDay>(&key).await? else {
            let first_at = Millis(day * DAY_MS);
            let new = QueueDay { org: org.clone(), queue: queue.clone(), priority, day, first_at };
            // Written with the day's start as its time, so that it never overwrites a later mark of the decided part.
            store.put(WriteTime::of(first_at, 0), &[new]).await?;
            return Ok(at);
        };
        at = at.max(known.first_at);
        // A day that is over and decided begins at its end.
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
    };
    store.put(WriteTime::of(cause.at, 0), &[row]).await?;
    Ok(())
}

fn lost_row(job_id: JobId) -> Error {
    Error::Corrupt { what: "job", detail: format!("job {job_id} was there and is gone") }
}
