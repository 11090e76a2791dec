//! Moves open jobs to another queue of their class, or from child safety to a review queue.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::QueueClass,
    ids::{JobId, Kind, Millis, OrgId, QueueId, derive},
    records::JobClass,
};
use tidegate_store::{
    ReplaceOutcome, RowRange, Store,
    tables::review::{
        jobs::{Job, JobCause, JobState},
        queue_counts::QueueChange,
        reports::Report,
    },
};

use super::{comments, queues};
use crate::{
    Deps, Error,
    child_safety::AuthorizedJob,
    items::author,
    jobs::{
        self, Cause, JobRequest, Placement,
        job_moves::{self, JobMove},
        priority::PrioritySignals,
        queue_counts,
    },
    metrics,
};

/// Maximum number of moves of a job. The row keeps all of them, because the queue counts are checked against them.
const MOST_MOVES: usize = 100;

/// Move requested by a moderator.
#[derive(Clone, Debug)]
pub struct MoveRequest {
    pub queue: QueueId,
    pub by: String,
    pub reason: Option<String>,
}

/// Reason why a job cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveRefusal {
    NotFound,
    /// The job is decided, or was moved to another class.
    Closed,
    /// Another reviewer holds the job until `until`.
    Claimed {
        by: String,
        until: Millis,
    },
    /// The job's cause is not stored yet.
    Opening,
    TooManyMoves {
        most: usize,
    },
    Invalid {
        pointer: &'static str,
        detail: String,
    },
}

/// Moves a job that is free or held by the requester, and ends the claim. Returns the job that waits in the new
/// queue: a job that leaves child safety passes its causes to the item's review job. A repeated request completes an
/// interrupted one.
#[boxed]
pub async fn move_job(
    deps: &Deps,
    job: &AuthorizedJob,
    request: &MoveRequest,
    now: Millis,
) -> Result<Result<JobId, MoveRefusal>, Error> {
    let store = &deps.store;
    let Some(job) = store.get::<Job>(&job.key()).await? else {
        return Ok(Err(MoveRefusal::NotFound));
    };
    let config = deps.live.load_latest(&job.org).await?;
    let Some(queue) = config.queue(&request.queue) else {
        return Ok(Err(invalid_request("/queue", format!("there is no queue {}", request.queue))));
    };
    match (job.class, queue.document.class()) {
        (JobClass::Review, QueueClass::Review)
        | (JobClass::Appeal, QueueClass::Appeal)
        | (JobClass::ChildSafety, QueueClass::ChildSafety) => {
            move_within_class(store, job, &config, request, now).await
        }
        (JobClass::ChildSafety, QueueClass::Review) => {
            move_out_of_child_safety(store, job, &config, request, now).await
        }
        // An escalation keeps the job open and needs no clearance, unlike a move.
        (JobClass::Review | JobClass::Appeal, QueueClass::ChildSafety) => Ok(Err(invalid_request(
            "/queue",
            "a job is sent to child safety by POST /jobs/{id}/escalate".to_owned(),
        ))),
        (class, other) => {
            let (queue, other) = (&request.queue, other.as_str());
            let detail = format!("a job of class {class} cannot wait in the queue {queue} of class {other}");
            Ok(Err(invalid_request("/queue", detail)))
        }
    }
}

fn invalid_request(pointer: &'static str, detail: String) -> MoveRefusal {
    MoveRefusal::Invalid { pointer, detail }
}

fn find_refusal(job: &Job, moves: &[JobMove], by: &str, now: Millis) -> Option<MoveRefusal> {
    if job.state != JobState::Open {
        return Some(MoveRefusal::Closed);
    }
    if let Some((holder, until)) = queues::claimed_by_other(job, by, now) {
        return Some(MoveRefusal::Claimed { by: holder, until });
    }
    (moves.len() >= MOST_MOVES).then_some(MoveRefusal::TooManyMoves { most: MOST_MOVES })
}

/// Writes the entry in the other queue, then updates the job's row. The priority follows the other queue's weights.
async fn move_within_class(
    store: &Store,
    mut job: Job,
    config: &Compiled,
    request: &MoveRequest,
    now: Millis,
) -> Result<Result<JobId, MoveRefusal>, Error> {
    loop {
        let moves = job_moves::parse_moves(&job)?;
        if let Some(refusal) = find_refusal(&job, &moves, &request.by, now) {
            return Ok(Err(refusal));
        }
        // Without a routed report the job is not rerouted, so it stays where the moderator put it.
        let unrouted_job = Job { routed_by: None, routed_for: None, ..job.clone() };
        if job.queue == request.queue {
            // An earlier attempt may have crashed before its comment.
            if let Some(previous_move) = moves.last().filter(|last| !last.routed) {
                put_move_comment(store, &job.org, job.job_id, previous_move, request).await?;
            }
            if job.routed_for.is_some() {
                // Already in this queue: only the rerouting is switched off.
                match store.replace(&unrouted_job, job.version).await? {
                    ReplaceOutcome::Done => {}
                    ReplaceOutcome::Conflict(current) => {
                        job = current;
                        continue;
                    }
                    ReplaceOutcome::Missing => return Ok(Err(MoveRefusal::NotFound)),
                }
            }
            return Ok(Ok(job.job_id));
        }
        let signals = PrioritySignals::parse_from(&job)?.unwrap_or_default();
        let (moved_job, job_move) =
            prepare_move(store, config, &unrouted_job, &request.queue, signals, now).await?;
        match store.replace(&moved_job, job.version).await? {
            ReplaceOutcome::Done => {
                metrics::job_moved(job.class.as_str());
                put_move_comment(store, &job.org, job.job_id, &job_move, request).await?;
                return Ok(Ok(job.job_id));
            }
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Ok(Err(MoveRefusal::NotFound)),
        }
    }
}

/// Writes the entry and the count events of a move. Returns the job's row in the other queue, and the move.
pub(super) async fn prepare_move(
    store: &Store,
    config: &Compiled,
    job: &Job,
    to: &QueueId,
    signals: PrioritySignals,
    now: Millis,
) -> Result<(Job, JobMove), Error> {
    let order = config.queue(to).map(|queue| queue.document.order.clone()).unwrap_or_default();
    let priority = signals.priority(&order);
    let at = jobs::choose_entry_time(store, &job.org, to, priority, now).await?;
    // A move by hand has removed `routed_for` before, so its presence means that the routing list moves the job.
    let routed = job.routed_for.is_some();
    let job_move = JobMove { at, from: job.queue.clone(), to: to.clone(), job: None, routed };
    let mut moves = job_moves::parse_moves(job)?;
    moves.push(job_move.clone());
    let moved_job = Job {
        queue: to.clone(),
        priority,
        queued_at: Some(at),
        signals: Some(jobs::signals_to_json(signals)?),
        claimed_by: None,
        lease_until: None,
        moves: Some(moves_to_json(&moves)?),
        ..job.clone()
    };
    jobs::put_entry(store, &moved_job, at, now).await?;
    // Two events: the job leaves one queue and enters another. They count only once the row lists the move.
    queue_counts::put_event(store, job, QueueChange::Closed, at).await?;
    queue_counts::put_event(store, &moved_job, QueueChange::Opened, at).await?;
    Ok((moved_job, job_move))
}

/// Adds the causes of a child-safety job to the item's review job, then closes the child-safety job. Both jobs are
/// open until the second write, so a crash in between loses no cause.
async fn move_out_of_child_safety(
    store: &Store,
    mut job: Job,
    config: &Arc<Compiled>,
    request: &MoveRequest,
    now: Millis,
) -> Result<Result<JobId, MoveRefusal>, Error> {
    // The comment must explain why the restriction was lifted.
    if request.reason.is_none() {
        return Ok(Err(invalid_request("/reason", "a job leaves child safety with a reason".to_owned())));
    }
    loop {
        let mut moves = job_moves::parse_moves(&job)?;
        // An earlier attempt moved the job, but may have crashed before its comments.
        if job.state == JobState::Moved
            && let Some(job_move) = moves.pop()
        {
            return comment_both(store, &job, &job_move, request).await;
        }
        if let Some(refusal) = find_refusal(&job, &moves, &request.by, now) {
            return Ok(Err(refusal));
        }
        // Repeated for each version of the row, so that a cause that joined meanwhile is handed over too.
        let Some(review_job) = hand_over_causes(store, &job, config, &request.queue, now).await? else {
            return Ok(Err(MoveRefusal::Opening));
        };
        let job_move = JobMove {
            at: now,
            from: job.queue.clone(),
            to: request.queue.clone(),
            job: Some(review_job),
            routed: false,
        };
        moves.push(job_move.clone());
        let closed_job = Job {
            state: JobState::Moved,
            closed_at: Some(now),
            claimed_by: None,
            lease_until: None,
            moves: Some(moves_to_json(&moves)?),
            ..job.clone()
        };
        queue_counts::put_event(store, &job, QueueChange::Closed, now).await?;
        match store.replace(&closed_job, job.version).await? {
            ReplaceOutcome::Done => {
                metrics::job_moved(job.class.as_str());
                return comment_both(store, &job, &job_move, request).await;
            }
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Ok(Err(MoveRefusal::NotFound)),
        }
    }
}

/// Comments the moved child-safety job and the review job with its causes. Returns the review job.
async fn comment_both(
    store: &Store,
    moved_job: &Job,
    job_move: &JobMove,
    request: &MoveRequest,
) -> Result<Result<JobId, MoveRefusal>, Error> {
    let review_job = job_move.job.ok_or_else(|| Error::Corrupt {
        what: "job",
        detail: format!("moved job {} does not name the job with its causes", moved_job.job_id),
    })?;
    for job in [moved_job.job_id, review_job] {
        put_move_comment(store, &moved_job.org, job, job_move, request).await?;
    }
    Ok(Ok(review_job))
}

/// Opens or joins the review job for each cause. Returns that job, or `None` if no cause is stored yet.
async fn hand_over_causes(
    store: &Store,
    job: &Job,
    config: &Arc<Compiled>,
    queue: &QueueId,
    now: Millis,
) -> Result<Option<JobId>, Error> {
    let signals = PrioritySignals::parse_from(job)?.unwrap_or_default();
    let user = author::find_author(store, config, &job.item, None).await?;
    let mut review_job = None;
    let mut causes = store.scan::<JobCause>(&(job.org.clone(), job.job_id), RowRange::all());
    while let Some(page) = causes.next_page().await? {
        for cause in page {
            let report = match cause.report_id {
                Some(id) => store.get::<Report>(&(job.org.clone(), id)).await?,
                None => None,
            };
            let review_request = JobRequest {
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
                    policies: jobs::parse_policies(cause.policies.as_deref())?,
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
            review_job = Some(jobs::open_or_join(store, &review_request, now).await?);
        }
    }
    Ok(review_job)
}

fn moves_to_json(moves: &[JobMove]) -> Result<String, Error> {
    serde_json::to_string(moves).map_err(Error::corrupt("job"))
}

/// Comments the move on the job. The id is derived from the move, so a repeated request writes no second comment.
async fn put_move_comment(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    job_move: &JobMove,
    request: &MoveRequest,
) -> Result<(), Error> {
    let id = derive(
        Kind::JobCause,
        &[b"move", job_id.as_bytes(), &job_move.at.0.to_be_bytes(), job_move.to.as_str().as_bytes()],
    );
    let reason = request.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let text = format!("Moved from {} to {}{reason}", job_move.from, job_move.to);
    comments::put_once(store, org, job_id, id, &request.by, &text, job_move.at).await?;
    Ok(())
}
