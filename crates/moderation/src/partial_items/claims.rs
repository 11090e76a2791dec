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
/// items that came along and have one. At most once in `refresh_after`.
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
    let mut items = Vec::new();
    if is_stale(deps, &job.org, &job.item, since, now).await? {
        items.push(job.item.clone());
    }
    items.extend(expired_along(deps, job, now).await?);
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
async fn expired_along(deps: &Deps, job: &Job, now: Millis) -> Result<Vec<ItemKey>, Error> {
    let (store, org) = (&deps.store, &job.org);
    let causes = store.scan::<JobCause>(&(org.clone(), job.job_id), At::all().limit(CAUSES)).all().await?;
    let mut found = Vec::new();
    for cause in causes {
        let mut lists = Vec::new();
        if let Some(report) = cause.report_id {
            let row = store.get::<Report>(&(org.clone(), report)).await?;
            lists.extend(row.into_iter().flat_map(|row| [row.thread, row.additional]));
        }
        if let Some(appeal) = cause.appeal_id {
            let row = store.get::<Appeal>(&(org.clone(), appeal)).await?;
            lists.extend(row.map(|row| row.additional));
        }
        for list in lists {
            let items: Vec<StoredItem> =
                serde_json::from_str(&list).map_err(Error::corrupt("context list"))?;
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
