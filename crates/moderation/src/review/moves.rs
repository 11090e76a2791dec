//! Moves open jobs: to another queue of their class, or out of child safety into a review queue.

use std::sync::Arc;

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::QueueClass,
    ids::{JobId, Kind, Millis, OrgId, QueueId, derive},
    records::JobClass,
};
use tidegate_store::{
    At, Replaced, Store,
    tables::review::{
        jobs::{Job, JobCause, JobState},
        queue_counts::QueueChange,
        reports::Report,
    },
};

use super::{comments, queues};
use crate::{
    Deps, Error,
    items::author,
    job_moves::{self, JobMove},
    jobs::{self, Cause, JobRequest, Placement},
    metrics,
    priority::Signals,
    queue_counts,
};

/// Number of times that a job may be moved. Its row keeps all moves, because the counts of queues are checked against them.
const MOST_MOVES: usize = 100;

/// A move as a moderator requests it.
#[derive(Clone, Debug)]
pub struct MoveRequest {
    pub queue: QueueId,
    pub by: String,
    pub reason: Option<String>,
}

/// Reason why a job is not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    /// The job is decided, or moved to another class.
    Closed,
    /// Another reviewer has claimed the job until then.
    Claimed {
        by: String,
        until: Millis,
    },
    /// The job has no cause yet, which is about to follow.
    Opening,
    TooManyMoves {
        most: usize,
    },
    Invalid {
        pointer: &'static str,
        detail: String,
    },
}

/// Moves a job that is free or claimed by the requester, which ends the claim. Returns the job that waits in a queue now: a
/// job that leaves child safety hands its causes to the review job of its item. A repeated request finishes what a crash
/// cut off.
pub async fn move_job(
    deps: &Deps,
    org: &OrgId,
    job_id: JobId,
    request: &MoveRequest,
    now: Millis,
) -> Result<Result<JobId, Refusal>, Error> {
    let store = &deps.store;
    let Some(job) = store.get::<Job>(&(org.clone(), job_id)).await? else {
        return Ok(Err(Refusal::NotFound));
    };
    let config = deps.live.latest(org).await?;
    let Some(queue) = config.queue(&request.queue) else {
        return Ok(Err(invalid("/queue", format!("there is no queue {}", request.queue))));
    };
    match (job.class, queue.document.class()) {
        (JobClass::Review, QueueClass::Review)
        | (JobClass::Appeal, QueueClass::Appeal)
        | (JobClass::ChildSafety, QueueClass::ChildSafety) => {
            to_queue_of_class(store, job, &config, request, now).await
        }
        (JobClass::ChildSafety, QueueClass::Review) => {
            out_of_child_safety(store, job, &config, request, now).await
        }
        (JobClass::Review | JobClass::Appeal, QueueClass::ChildSafety) => {
            Ok(Err(invalid("/queue", "a job is sent to child safety by POST /jobs/{id}/escalate".to_owned())))
        }
        (class, other) => {
            let (queue, other) = (&request.queue, other.as_str());
            let detail = format!("a job of class {class} cannot wait in the queue {queue} of class {other}");
            Ok(Err(invalid("/queue", detail)))
        }
    }
}

fn invalid(pointer: &'static str, detail: String) -> Refusal {
    Refusal::Invalid { pointer, detail }
}

fn refusal(job: &Job, moves: &[JobMove], by: &str, now: Millis) -> Option<Refusal> {
    if job.state != JobState::Open {
        return Some(Refusal::Closed);
    }
    if let Some((by, until)) = queues::claimed_by_other(job, by, now) {
        return Some(Refusal::Claimed { by, until });
    }
    (moves.len() >= MOST_MOVES).then_some(Refusal::TooManyMoves { most: MOST_MOVES })
}

/// Gives the job an entry in the other queue and then says so in its row. Its priority is that of the other queue's weights.
async fn to_queue_of_class(
    store: &Store,
    mut job: Job,
    config: &Compiled,
    request: &MoveRequest,
    now: Millis,
) -> Result<Result<JobId, Refusal>, Error> {
    loop {
        let moves = job_moves::of(&job)?;
        if let Some(refusal) = refusal(&job, &moves, &request.by, now) {
            return Ok(Err(refusal));
        }
        // Routing does not move it back.
        let by_hand = Job { routed_by: None, routed_for: None, ..job.clone() };
        if job.queue == request.queue {
            if let Some(last) = moves.last().filter(|last| !last.routed) {
                comment(store, &job.org, job.job_id, last, request).await?;
            }
            if job.routed_for.is_some() {
                // The job stays in this queue from now on.
                match store.replace(&by_hand, job.version).await? {
                    Replaced::Yes => {}
                    Replaced::No(current) => {
                        job = current;
                        continue;
                    }
                    Replaced::Gone => return Ok(Err(Refusal::NotFound)),
                }
            }
            return Ok(Ok(job.job_id));
        }
        let signals = Signals::of(&job)?.unwrap_or_default();
        let (moved, last) = prepare_move(store, config, &by_hand, &request.queue, signals, now).await?;
        match store.replace(&moved, job.version).await? {
            Replaced::Yes => {
                metrics::job_moved(job.class.as_str());
                comment(store, &job.org, job.job_id, &last, request).await?;
                return Ok(Ok(job.job_id));
            }
            Replaced::No(current) => job = current,
            Replaced::Gone => return Ok(Err(Refusal::NotFound)),
        }
    }
}

/// Writes the entry of a move and its events. Returns the row of the free job in the other queue, and the move.
pub(super) async fn prepare_move(
    store: &Store,
    config: &Compiled,
    job: &Job,
    to: &QueueId,
    signals: Signals,
    now: Millis,
) -> Result<(Job, JobMove), Error> {
    let order = config.queue(to).map(|queue| queue.document.order.clone()).unwrap_or_default();
    let priority = signals.priority(&order);
    let at = jobs::entry_time(store, &job.org, to, priority, now).await?;
    // A move by hand takes the report away by which the list would route the job again.
    let routed = job.routed_for.is_some();
    let last = JobMove { at, from: job.queue.clone(), to: to.clone(), job: None, routed };
    let mut moves = job_moves::of(job)?;
    moves.push(last.clone());
    let moved = Job {
        queue: to.clone(),
        priority,
        queued_at: Some(at),
        signals: Some(jobs::signals_text(signals)?),
        claimed_by: None,
        lease_until: None,
        moves: Some(text(&moves)?),
        ..job.clone()
    };
    jobs::put_entry(store, &moved, at, now).await?;
    queue_counts::announce(store, job, QueueChange::Closed, at).await?;
    queue_counts::announce(store, &moved, QueueChange::Opened, at).await?;
    Ok((moved, last))
}

/// Adds the causes of a child-safety job to the review job of its item, and then closes it. Both are under way until the job
/// is closed, so nothing is lost by a crash in between.
async fn out_of_child_safety(
    store: &Store,
    mut job: Job,
    config: &Arc<Compiled>,
    request: &MoveRequest,
    now: Millis,
) -> Result<Result<JobId, Refusal>, Error> {
    if request.reason.is_none() {
        return Ok(Err(invalid("/reason", "a job leaves child safety with a reason".to_owned())));
    }
    loop {
        let mut moves = job_moves::of(&job)?;
        if job.state == JobState::Moved
            && let Some(last) = moves.pop()
        {
            return comment_both(store, &job, &last, request).await;
        }
        if let Some(refusal) = refusal(&job, &moves, &request.by, now) {
            return Ok(Err(refusal));
        }
        // Again for each version of the job: a cause that joined meanwhile goes along.
        let Some(opened) = hand_over_causes(store, &job, config, &request.queue, now).await? else {
            return Ok(Err(Refusal::Opening));
        };
        let last = JobMove {
            at: now,
            from: job.queue.clone(),
            to: request.queue.clone(),
            job: Some(opened),
            routed: false,
        };
        moves.push(last.clone());
        let closed = Job {
            state: JobState::Moved,
            closed_at: Some(now),
            claimed_by: None,
            lease_until: None,
            moves: Some(text(&moves)?),
            ..job.clone()
        };
        queue_counts::announce(store, &job, QueueChange::Closed, now).await?;
        match store.replace(&closed, job.version).await? {
            Replaced::Yes => {
                metrics::job_moved(job.class.as_str());
                return comment_both(store, &job, &last, request).await;
            }
            Replaced::No(current) => job = current,
            Replaced::Gone => return Ok(Err(Refusal::NotFound)),
        }
    }
}

/// Comments a child-safety job that was moved, and the review job that has its causes. Returns the latter.
async fn comment_both(
    store: &Store,
    moved: &Job,
    last: &JobMove,
    request: &MoveRequest,
) -> Result<Result<JobId, Refusal>, Error> {
    let opened = last.job.ok_or_else(|| Error::Corrupt {
        what: "job",
        detail: format!("job {} was moved and does not say where its causes are", moved.job_id),
    })?;
    for job in [moved.job_id, opened] {
        comment(store, &moved.org, job, last, request).await?;
    }
    Ok(Ok(opened))
}

/// Opens or joins the review job for each cause. Returns that job; `None` if there is no cause yet.
async fn hand_over_causes(
    store: &Store,
    job: &Job,
    config: &Arc<Compiled>,
    queue: &QueueId,
    now: Millis,
) -> Result<Option<JobId>, Error> {
    let signals = Signals::of(job)?.unwrap_or_default();
    let user = author::find(store, config, &job.item, None).await?;
    let mut opened = None;
    let mut causes = store.scan::<JobCause>(&(job.org.clone(), job.job_id), At::all());
    while let Some(page) = causes.next_page().await? {
        for cause in page {
            let report = match cause.report_id {
                Some(id) => store.get::<Report>(&(job.org.clone(), id)).await?,
                None => None,
            };
            let request = JobRequest {
                org: job.org.clone(),
                class: JobClass::Review,
                subject: job.item.clone(),
                queue: queue.clone(),
                cause: Cause {
                    id: cause.cause,
                    kind: cause.kind,
                    at: cause.at,
                    report_id: cause.report_id,
                    appeal_id: cause.appeal_id,
                    submission_id: cause.submission_id,
                    rules: cause.rules,
                    hits: cause.hits,
                    threshold: cause.threshold,
                },
                placement: Placement {
                    routed_by: None,
                    routed_for: None,
                    signals,
                    reporter: report.map(|report| report.reporter),
                    user: user.clone(),
                    config: Some(Arc::clone(config)),
                },
            };
            opened = Some(jobs::open_or_join(store, &request, now).await?);
        }
    }
    Ok(opened)
}

fn text(moves: &[JobMove]) -> Result<String, Error> {
    serde_json::to_string(moves).map_err(Error::corrupt("job"))
}

/// Comments the job with the move. The id comes from the move, so a repeated request writes no second comment.
async fn comment(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    last: &JobMove,
    request: &MoveRequest,
) -> Result<(), Error> {
    let id = derive(
        Kind::JobCause,
        &[b"move", job_id.as_bytes(), &last.at.0.to_be_bytes(), last.to.as_str().as_bytes()],
    );
    let reason = request.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let text = format!("Moved from {} to {}{reason}", last.from, last.to);
    comments::put(store, org, job_id, id, &request.by, &text, last.at).await?;
    Ok(())
}
