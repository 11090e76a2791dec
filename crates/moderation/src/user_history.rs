//! Rows under a user: jobs about them, and reports by and of them. Those of items are written with the items.
//!
//! The console reads them, in `user_history`.

use futures::future;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{ItemKey, JobId, Millis, OrgId},
    records,
};
use tidegate_store::{
    At, Row as _, Store, WriteTime,
    tables::{
        items::by_user::{CaseKind, CaseOfUser, ItemOfUser, stretch},
        review::reports::Report,
    },
};
use uuid::Uuid;

use crate::Error;

/// Stores the pointer to a job under a user. It is written before the job's row, as the entry of its queue is.
pub(crate) async fn put_job(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    (job_id, created_at): (JobId, Millis),
    item: &ItemKey,
) -> Result<(), Error> {
    let row = case(org, user, CaseKind::Job, created_at, job_id.0, item);
    Ok(store.put(WriteTime::of(created_at, 0), &[row]).await?)
}

/// Returns the rows of a report: one under the reporter, and one under the user that it is about. A replay writes the same
/// ones.
pub(crate) fn report_rows(report: &Report, about: Option<&ItemKey>) -> Vec<CaseOfUser> {
    let row = |user, kind| case(&report.org, user, kind, report.written_at, report.report_id.0, &report.item);
    let made = row(&report.reporter, CaseKind::ReportMade);
    let received = about.map(|user| row(user, CaseKind::ReportReceived));
    [Some(made), received].into_iter().flatten().collect()
}

fn case(org: &OrgId, user: &ItemKey, kind: CaseKind, at: Millis, id: Uuid, item: &ItemKey) -> CaseOfUser {
    CaseOfUser {
        org: org.clone(),
        user: user.clone(),
        kind: kind.as_str().to_owned(),
        stretch: stretch(at),
        at,
        id,
        item: item.clone(),
    }
}

/// Returns the creator of an item that a report or an appeal is about, or the user that it is.
pub(crate) fn creator(config: &Compiled, item: &records::ItemEntry) -> Option<ItemKey> {
    let key = item.key();
    let today = config.item_type(&key.type_id)?;
    let item_type = config.item_type_at(&key.type_id, item.type_version.as_deref()).unwrap_or(today);
    item_type.creator(&key, &item.data)
}

/// True if a list of the user has an entry.
pub(crate) async fn has_entries(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    now: Millis,
) -> Result<bool, Error> {
    let lives = ItemOfUser::TABLE.ttl.unwrap_or_default();
    let has_some = |stretch: i64| async move {
        let items = ItemOfUser::partition(org.clone(), user.clone(), stretch);
        if !store.scan::<ItemOfUser>(&items, At::all().limit(1)).all().await?.is_empty() {
            return Ok(true);
        }
        for kind in CaseKind::ALL {
            let cases = CaseOfUser::partition(org.clone(), user.clone(), kind.as_str().to_owned(), stretch);
            if !store.scan::<CaseOfUser>(&cases, At::all().limit(1)).all().await?.is_empty() {
                return Ok(true);
            }
        }
        Ok::<_, Error>(false)
    };
    // A clock that was ahead may have written to the next stretch.
    let stretches = stretch(now.minus(lives))..=stretch(now) + 1;
    let found = future::try_join_all(stretches.rev().map(has_some)).await?;
    Ok(found.into_iter().any(|has_some| has_some))
}
