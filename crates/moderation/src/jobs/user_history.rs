//! Rows in the lists of a user: jobs about the user, and reports by and about the user. `items::submissions` writes
//! the rows of items, and the console reads all of them.

use futures::future;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{ItemKey, JobId, Millis, OrgId},
    records,
};
use tidegate_store::{
    Row as _, RowRange, Store, WriteTime,
    tables::{
        items::by_user::{CaseKind, CaseOfUser, ItemOfUser, stretch},
        review::reports::Report,
    },
};
use uuid::Uuid;

use crate::Error;

/// Stores the pointer to a job under a user. Must happen before the job's row, like the queue entry.
pub(crate) async fn put_job(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    (job_id, created_at): (JobId, Millis),
    item: &ItemKey,
) -> Result<(), Error> {
    let row = case_row(org, user, CaseKind::Job, created_at, job_id.0, item);
    Ok(store.put_rows(WriteTime::from_append(created_at, 0), &[row]).await?)
}

/// Builds the rows of a report: one under the reporter, one under the reported user. A replay builds the same rows.
pub(crate) fn report_rows(report: &Report, reported_user: Option<&ItemKey>) -> Vec<CaseOfUser> {
    let row =
        |user, kind| case_row(&report.org, user, kind, report.written_at, report.report_id.0, &report.item);
    let made_row = row(&report.reporter, CaseKind::ReportMade);
    let received_row = reported_user.map(|user| row(user, CaseKind::ReportReceived));
    [Some(made_row), received_row].into_iter().flatten().collect()
}

fn case_row(org: &OrgId, user: &ItemKey, kind: CaseKind, at: Millis, id: Uuid, item: &ItemKey) -> CaseOfUser {
    CaseOfUser {
        org: org.clone(),
        user: user.clone(),
        kind,
        stretch: stretch(at),
        at,
        id,
        item: item.clone(),
    }
}

/// Returns the creator of a reported or appealed item, or the item itself if it is a user.
pub(crate) fn creator_of(config: &Compiled, item: &records::ItemEntry) -> Option<ItemKey> {
    let key = item.key();
    let current_type = config.item_type(&key.type_id)?;
    let item_type = config.item_type_at(&key.type_id, item.type_version.as_deref()).unwrap_or(current_type);
    item_type.creator(&key, &item.data)
}

/// True if a list of the user has an entry.
pub(crate) async fn has_entries(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    now: Millis,
) -> Result<bool, Error> {
    let lifetime = ItemOfUser::TABLE.ttl.unwrap_or_default();
    let has_entries_in = |stretch: i64| async move {
        let items = ItemOfUser::partition(org.clone(), user.clone(), stretch);
        if !store.scan::<ItemOfUser>(&items, RowRange::all().limit(1)).all().await?.is_empty() {
            return Ok(true);
        }
        for kind in CaseKind::ALL {
            let cases = CaseOfUser::partition(org.clone(), user.clone(), *kind, stretch);
            if !store.scan::<CaseOfUser>(&cases, RowRange::all().limit(1)).all().await?.is_empty() {
                return Ok(true);
            }
        }
        Ok::<_, Error>(false)
    };
    // Includes the next stretch, because a clock that was ahead may have written there.
    let stretches = stretch(now.minus(lifetime))..=stretch(now) + 1;
    let results = future::try_join_all(stretches.rev().map(has_entries_in)).await?;
    Ok(results.into_iter().any(|is_present| is_present))
}
