//! Requests newer data for a claimed job. The claim does not wait for it.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use tidegate_schemas::ids::{ItemKey, Kind, Millis, OrgId, derive};
use tidegate_store::{
    RowRange,
    tables::{
        items::items::Item,
        review::{
            appeals::Appeal,
            jobs::{Job, JobCause},
            partial_requests::{PartialRequestOfJob, PartialTrigger},
            reports::Report,
        },
    },
};

use super::{
    expiry::has_expired_url,
    requests::{self, NewRequest},
};
use crate::{
    Deps, Error,
    child_safety::AuthorizedJob,
    items::{context::StoredItem, stored},
};

/// Number of causes checked for items with expired URLs.
const MAX_CAUSES: usize = 20;

/// Number of the job's requests searched for one of an earlier claim.
const MAX_EARLIER_REQUESTS: usize = 10;

/// Requests the item of a claimed job if its newest data is older than `refresh_after` or has an expired URL, and
/// context items with an expired URL. At most once per `refresh_after`. Data from a report or an appeal counts before
/// it is stored.
#[boxed]
pub async fn refresh_claimed(
    deps: &Deps,
    job: &AuthorizedJob,
    refresh_after: Duration,
    now: Millis,
) -> Result<(), Error> {
    let job = job.row();
    if !deps.partial_items.has_endpoint(&job.org) {
        return Ok(());
    }
    let oldest_fresh = now.minus(refresh_after);
    let range = RowRange::all().limit(MAX_EARLIER_REQUESTS);
    let earlier_requests =
        deps.store.scan::<PartialRequestOfJob>(&(job.org.clone(), job.job_id), range).all().await?;
    let is_claim = |row: &&PartialRequestOfJob| row.trigger == PartialTrigger::Claim;
    // Several reviewers may claim the job within a short time.
    if earlier_requests.iter().filter(is_claim).any(|row| row.requested_at > oldest_fresh) {
        return Ok(());
    }
    let causes = load_causes(deps, job).await?;
    let mut items = Vec::new();
    if !is_being_stored(deps, job, &causes, oldest_fresh, now).await?
        && is_stale(deps, &job.org, &job.item, oldest_fresh, now).await?
    {
        items.push(job.item.clone());
    }
    items.extend(list_expired_context_items(deps, job, &causes, now).await?);
    items.sort_unstable();
    items.dedup();
    if items.is_empty() {
        return Ok(());
    }
    // The time is part of the id, so that a later claim makes a new request.
    let at = now.0.to_be_bytes();
    let request = NewRequest {
        org: job.org.clone(),
        id: derive(
            Kind::PartialRequest,
            &[job.org.as_str().as_bytes(), b"claim", job.job_id.as_bytes(), &at],
        ),
        trigger: PartialTrigger::Claim,
        job_id: Some(job.job_id),
        subject: job.item.clone(),
        items,
        at: now,
    };
    requests::store_request(deps, request).await
}

/// Cause with its report or appeal.
struct LoadedCause {
    cause: JobCause,
    report: Option<Report>,
    appeal: Option<Appeal>,
}

async fn load_causes(deps: &Deps, job: &Job) -> Result<Vec<LoadedCause>, Error> {
    let (store, org) = (&deps.store, &job.org);
    let rows =
        store.scan::<JobCause>(&(org.clone(), job.job_id), RowRange::all().limit(MAX_CAUSES)).all().await?;
    let mut causes = Vec::with_capacity(rows.len());
    for cause in rows {
        let report = match cause.report_id {
            Some(report) => store.get::<Report>(&(org.clone(), report)).await?,
            None => None,
        };
        let appeal = match &cause.appeal_id {
            Some(appeal) => store.get::<Appeal>(&(org.clone(), appeal.clone())).await?,
            None => None,
        };
        causes.push(LoadedCause { cause, report, appeal });
    }
    Ok(causes)
}

/// True if a report or an appeal sent the item after `since` and the item is not stored yet, because its media are
/// awaited.
async fn is_being_stored(
    deps: &Deps,
    job: &Job,
    causes: &[LoadedCause],
    since: Millis,
    now: Millis,
) -> Result<bool, Error> {
    let sent_at = |LoadedCause { cause, report, appeal }: &LoadedCause| {
        // A cause without report and appeal is a rule, which opens its job after the item is stored.
        let (item, data) = match (report, appeal) {
            (Some(report), _) => (&report.item, &report.data),
            (None, Some(appeal)) => (&appeal.item, &appeal.data),
            (None, None) => return None,
        };
        (*item == job.item && !has_expired_url(data, now)).then_some(cause.at)
    };
    let Some(sent_at) = causes.iter().filter_map(sent_at).max().filter(|at| *at >= since) else {
        return Ok(false);
    };
    let newest = stored::find_newest_data_place(&deps.store, &job.org, &job.item).await?;
    Ok(newest.is_none_or(|place| place.append_ms < sent_at))
}

/// True if the newest data of the item is older than `since`, has an expired URL, or is missing.
async fn is_stale(
    deps: &Deps,
    org: &OrgId,
    item: &ItemKey,
    since: Millis,
    now: Millis,
) -> Result<bool, Error> {
    let Some(newest) = stored::find_newest_data_place(&deps.store, org, item).await? else { return Ok(true) };
    if newest.append_ms < since {
        return Ok(true);
    }
    let key = (
        org.clone(),
        item.type_id.clone(),
        item.id.clone(),
        newest.append_ms,
        newest.offset,
        newest.position,
    );
    let row = deps.store.get::<Item>(&key).await?;
    Ok(row.is_some_and(|row| has_expired_url(&row.data, now)))
}

/// Lists the context items of the causes with an expired URL, except those with newer stored data.
async fn list_expired_context_items(
    deps: &Deps,
    job: &Job,
    causes: &[LoadedCause],
    now: Millis,
) -> Result<Vec<ItemKey>, Error> {
    let (store, org) = (&deps.store, &job.org);
    let mut expired_items = Vec::new();
    for LoadedCause { cause, report, appeal } in causes {
        let report_lists = report.iter().flat_map(|report| [&report.thread, &report.additional]);
        let appeal_lists = appeal.iter().map(|appeal| &appeal.additional);
        for list in report_lists.chain(appeal_lists) {
            let items: Vec<StoredItem> =
                serde_json::from_str(list).map_err(Error::corrupt("context list"))?;
            let expired = items
                .into_iter()
                .filter(|item| item.fault.is_none() && has_expired_url(item.data.get().as_bytes(), now));
            for item in expired {
                let key = ItemKey { type_id: item.type_id, id: item.id };
                let newest = stored::find_newest_data_place(store, org, &key).await?;
                if newest.is_none_or(|place| place.append_ms < cause.at) {
                    expired_items.push(key);
                }
            }
        }
    }
    Ok(expired_items)
}
