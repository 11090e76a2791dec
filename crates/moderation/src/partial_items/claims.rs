//! Newer data for a job that a moderator claimed. The claim does not wait for it.

use std::time::Duration;

use tidegate_schemas::ids::{ItemKey, Kind, Millis, OrgId, derive};
use tidegate_store::{
    At,
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
    items::{context::StoredItem, stored},
};

/// Causes of a job whose items are looked at for expired addresses.
const CAUSES: usize = 20;

/// Requests of a job that are looked at for an earlier one of a claim.
const EARLIER: usize = 10;

/// Asks for the item of a claimed job if its newest data is older than `refresh_after` or has an expired address, and for
/// items that came along and have one. At most once in `refresh_after`. Data that a report or an appeal sent counts before it is stored.
pub async fn refresh_claimed(
    deps: &Deps,
    job: &Job,
    refresh_after: Duration,
    now: Millis,
) -> Result<(), Error> {
    if !deps.partial_items.has(&job.org) {
        return Ok(());
    }
    let since = now.minus(refresh_after);
    let range = At::all().limit(EARLIER);
    let earlier = deps.store.scan::<PartialRequestOfJob>(&(job.org.clone(), job.job_id), range).all().await?;
    let is_claim = |row: &&PartialRequestOfJob| row.trigger == PartialTrigger::Claim;
    if earlier.iter().filter(is_claim).any(|row| row.requested_at > since) {
        return Ok(());
    }
    let causes = load_causes(deps, job).await?;
    let mut items = Vec::new();
    if !is_on_its_way(deps, job, &causes, since, now).await?
        && is_stale(deps, &job.org, &job.item, since, now).await?
    {
        items.push(job.item.clone());
    }
    items.extend(expired_along(deps, job, &causes, now).await?);
    items.sort_unstable();
    items.dedup();
    if items.is_empty() {
        return Ok(());
    }
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
    requests::store(deps, request).await
}

/// Cause of a job with the report or appeal that it stands for.
struct LoadedCause {
    cause: JobCause,
    report: Option<Report>,
    appeal: Option<Appeal>,
}

async fn load_causes(deps: &Deps, job: &Job) -> Result<Vec<LoadedCause>, Error> {
    let (store, org) = (&deps.store, &job.org);
    let rows = store.scan::<JobCause>(&(org.clone(), job.job_id), At::all().limit(CAUSES)).all().await?;
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

/// True if a report or an appeal brought the item since then and it is not stored yet, for example because its media are awaited.
async fn is_on_its_way(
    deps: &Deps,
    job: &Job,
    causes: &[LoadedCause],
    since: Millis,
    now: Millis,
) -> Result<bool, Error> {
    let sent_at = |LoadedCause { cause, report, appeal }: &LoadedCause| {
        // A cause without either is a rule, which opens its job after the item is stored.
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
    let newest = stored::newest_data_place(&deps.store, &job.org, &job.item).await?;
    Ok(newest.is_none_or(|place| place.append_ms < sent_at))
}

/// True if the newest data of the item is from before `since` or has an expired address, or none is stored.
async fn is_stale(
    deps: &Deps,
    org: &OrgId,
    item: &ItemKey,
    since: Millis,
    now: Millis,
) -> Result<bool, Error> {
    let Some(newest) = stored::newest_data_place(&deps.store, org, item).await? else { return Ok(true) };
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

/// Returns the items that came along with the causes of the job and have an expired address, unless newer data of them
/// is stored.
async fn expired_along(
    deps: &Deps,
    job: &Job,
    causes: &[LoadedCause],
    now: Millis,
) -> Result<Vec<ItemKey>, Error> {
    let (store, org) = (&deps.store, &job.org);
    let mut found = Vec::new();
    for LoadedCause { cause, report, appeal } in causes {
        let of_report = report.iter().flat_map(|report| [&report.thread, &report.additional]);
        let of_appeal = appeal.iter().map(|appeal| &appeal.additional);
        for list in of_report.chain(of_appeal) {
            let items: Vec<StoredItem> =
                serde_json::from_str(list).map_err(Error::corrupt("context list"))?;
            let expired = items
                .into_iter()
                .filter(|item| item.fault.is_none() && has_expired_url(item.data.get().as_bytes(), now));
            for item in expired {
                let key = ItemKey { type_id: item.type_id, id: item.id };
                let newest = stored::newest_data_place(store, org, &key).await?;
                if newest.is_none_or(|place| place.append_ms < cause.at) {
                    found.push(key);
                }
            }
        }
    }
    Ok(found)
}
