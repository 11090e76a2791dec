//! Rows of requests: made here, worked off by whoever owns the shard.

use tidegate_schemas::ids::{ItemKey, JobId, Millis, OrgId};
use tidegate_store::{
    At, WriteTime,
    tables::review::partial_requests::{
        PartialDue, PartialRequest, PartialRequestOfJob, PartialState, PartialTrigger,
    },
};
use tidegate_stream::Topic;
use uuid::Uuid;

use crate::{Deps, Error, items::context};

/// A request to be made.
#[derive(Clone, Debug)]
pub struct NewRequest {
    pub org: OrgId,
    /// Derived from the cause, so that a replay makes no second request.
    pub id: Uuid,
    pub trigger: PartialTrigger,
    pub job_id: Option<JobId>,
    /// Item that decides which process works the request off.
    pub subject: ItemKey,
    pub items: Vec<ItemKey>,
    /// Time of the cause: the same for a replay.
    pub at: Millis,
}

/// Stores the request unless it is stored already. The platform is asked later, by the owner of the shard.
pub async fn store(deps: &Deps, request: NewRequest) -> Result<(), Error> {
    let NewRequest { org, id, trigger, job_id, subject, items, at } = request;
    let key = (org.clone(), at.day(), at, id);
    if deps.store.get::<PartialRequest>(&key).await?.is_some_and(|row| row.state != PartialState::Pending) {
        return Ok(());
    }
    if let Some(job_id) = job_id {
        // A report that is sent again under its key has the same id and another time.
        let earlier = deps.store.scan::<PartialRequestOfJob>(&(org.clone(), job_id), At::all()).all().await?;
        if earlier.iter().any(|row| row.request_id == id && row.requested_at != at) {
            return Ok(());
        }
    }
    // The time of now: scanners do not look at the minute of a record that came to processing late.
    let due_at = Millis::now();
    let due = PartialDue {
        shard: i64::from(deps.log.partition(Topic::Reports, &subject.log_key(&org)).index),
        minute: due_at.minute(),
        due_at,
        org: org.clone(),
        request_id: id,
        requested_at: at,
    };
    deps.store.put(WriteTime::of(due_at, 0), &[due]).await?;
    let written = WriteTime::of(at, 0);
    if let Some(job_id) = job_id {
        let row = PartialRequestOfJob { org: org.clone(), job_id, requested_at: at, request_id: id, trigger };
        deps.store.put(written, &[row]).await?;
    }
    tidegate_stream::failpoint!("after_partial_due");
    let none = || "[]".to_owned();
    let row = PartialRequest {
        org,
        day: at.day(),
        requested_at: at,
        request_id: id,
        trigger,
        job_id,
        state: PartialState::Pending,
        asked: context::text(&items)?,
        found: none(),
        missing: none(),
        dropped: 0,
        invalid: none(),
        attempts: 0,
        next_at: None,
        settled_at: None,
        took_ms: 0,
        http_status: None,
        error: None,
        error_detail: None,
        written: written.0,
    };
    Ok(deps.store.put(written, &[row]).await?)
}
