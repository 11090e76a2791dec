//! Stores requests for items. The owner of the shard executes them.

use async_recursion::async_recursion as boxed;
use tidegate_schemas::ids::{ItemKey, JobId, Millis, OrgId};
use tidegate_store::{
    RowRange, WriteTime,
    tables::review::partial_requests::{
        PartialDue, PartialRequest, PartialRequestOfJob, PartialState, PartialTrigger,
    },
};
use tidegate_stream::Topic;
use uuid::Uuid;

use crate::{Deps, Error, items::context};

/// Request to be stored.
#[derive(Clone, Debug)]
pub struct NewRequest {
    pub org: OrgId,
    /// Derived from the cause, so that a replay stores no second request.
    pub id: Uuid,
    pub trigger: PartialTrigger,
    pub job_id: Option<JobId>,
    /// Item that determines the process for the request.
    pub subject: ItemKey,
    pub items: Vec<ItemKey>,
    /// Time of the cause, which is equal in a replay.
    pub at: Millis,
}

/// Stores the request unless it exists. The owner of the shard calls the platform later.
#[boxed]
pub async fn store_request(deps: &Deps, request: NewRequest) -> Result<(), Error> {
    let NewRequest { org, id, trigger, job_id, subject, items, at } = request;
    let key = (org.clone(), at.day(), at, id);
    // A settled request stays. A pending one is written again, because its due row may be missing.
    if deps.store.get::<PartialRequest>(&key).await?.is_some_and(|row| row.state != PartialState::Pending) {
        return Ok(());
    }
    if let Some(job_id) = job_id {
        // A report sent again under its key has the same id but another time, so the key above does not find its
        // request.
        let requests_of_job =
            deps.store.scan::<PartialRequestOfJob>(&(org.clone(), job_id), RowRange::all()).all().await?;
        if requests_of_job.iter().any(|row| row.request_id == id && row.requested_at != at) {
            return Ok(());
        }
    }
    // The present time: scanners are past the minute of a record that was processed late.
    let due_at = Millis::now();
    let due = PartialDue {
        shard: i64::from(deps.log.partition(Topic::Reports, &subject.log_key(&org)).index),
        minute: due_at.minute(),
        due_at,
        org: org.clone(),
        request_id: id,
        requested_at: at,
    };
    // Before the request's row: a pending request without a due row would never be executed.
    deps.store.put_rows(WriteTime::from_append(due_at, 0), &[due]).await?;
    let write_time = WriteTime::from_append(at, 0);
    if let Some(job_id) = job_id {
        let row = PartialRequestOfJob { org: org.clone(), job_id, requested_at: at, request_id: id, trigger };
        deps.store.put_rows(write_time, &[row]).await?;
    }
    tidegate_stream::failpoint!("after_partial_due");
    let empty_list = || "[]".to_owned();
    let row = PartialRequest {
        org,
        day: at.day(),
        requested_at: at,
        request_id: id,
        trigger,
        job_id,
        state: PartialState::Pending,
        asked: context::to_json(&items)?,
        found: empty_list(),
        missing: empty_list(),
        dropped: 0,
        invalid: empty_list(),
        attempts: 0,
        next_at: None,
        settled_at: None,
        took_ms: 0,
        http_status: None,
        error: None,
        error_detail: None,
        written: write_time.0,
    };
    Ok(deps.store.put_rows(write_time, &[row]).await?)
}
