//! Lists of a user: items, jobs, and reports by and about the user.

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_schemas::{
    ids::{ItemKey, JobId, ReportId},
    records::JobClass,
};
use tidegate_store::{
    Store,
    tables::{
        items::{
            by_user::{CaseOfUser, ItemOfUser},
            items::Item,
        },
        review::{jobs::Job, reports::Report},
    },
};

use crate::{
    Error,
    child_safety::Clearance,
    items::{context, stored},
    jobs::summary::{self, JobSummaryResponse},
};

/// Report in the lists of a user.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserReportResponse {
    pub id: ReportId,
    pub reporter: ItemKey,
    pub reported_at: String,
    pub item: ItemKey,
    /// `{id, known}` as named by the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub csam: bool,
}

/// Loads the submissions of the pointers, in their order. `None` for a submission that is not stored.
#[boxed]
pub async fn load_items(
    store: &Store,
    pointers: &[ItemOfUser],
) -> Result<Vec<Option<stored::ItemResponse>>, Error> {
    let key = |pointer: &ItemOfUser| {
        (
            pointer.org.clone(),
            pointer.type_id.clone(),
            pointer.item_id.clone(),
            pointer.append_ms,
            pointer.offset,
            pointer.position,
        )
    };
    let keys: Vec<_> = pointers.iter().map(key).collect();
    let mut answers = Vec::with_capacity(keys.len());
    for row in store.get_many::<Item>(&keys).await? {
        answers.push(match row {
            Some(row) => Some(stored::render_row(store, row).await?),
            None => None,
        });
    }
    Ok(answers)
}

/// Loads the jobs of the pointers, in their order. `None` for an invalid pointer, and for jobs beyond the clearance.
#[boxed]
pub async fn load_jobs(
    store: &Store,
    pointers: &[CaseOfUser],
    clearance: Clearance,
) -> Result<Vec<Option<JobSummaryResponse>>, Error> {
    let keys: Vec<_> = pointers.iter().map(|pointer| (pointer.org.clone(), JobId(pointer.id))).collect();
    let rows = store.get_many::<Job>(&keys).await?;
    let visible_job = |(pointer, job): (&CaseOfUser, Option<Job>)| {
        // An opener that lost the race left a pointer with another time than the job's.
        job.filter(|job| job.created_at == pointer.at)
            .filter(|job| clearance.covers_child_safety() || job.class != JobClass::ChildSafety)
    };
    let jobs = pointers.iter().zip(rows).map(visible_job);
    jobs.map(|job| job.map(summary::summarize).transpose()).collect()
}

/// Loads the reports of the pointers, in their order. `None` for child-safety reports beyond the clearance.
#[boxed]
pub async fn load_reports(
    store: &Store,
    pointers: &[CaseOfUser],
    clearance: Clearance,
) -> Result<Vec<Option<UserReportResponse>>, Error> {
    let keys: Vec<_> = pointers.iter().map(|pointer| (pointer.org.clone(), ReportId(pointer.id))).collect();
    let entry = |row: Report| {
        Ok(UserReportResponse {
            id: row.report_id,
            reporter: row.reporter,
            reported_at: row.reported_at.iso(),
            item: row.item,
            policy: row.policy.map(|policy| context::raw(policy.as_bytes())).transpose()?,
            reason: row.reason,
            csam: row.csam,
        })
    };
    let rows = store.get_many::<Report>(&keys).await?.into_iter();
    // Hidden rows stay as `None`, so that the result is aligned with the pointers.
    let visible_rows = rows.map(|row| row.filter(|row| clearance.covers_child_safety() || !row.csam));
    visible_rows.map(|row| row.map(entry).transpose()).collect()
}
