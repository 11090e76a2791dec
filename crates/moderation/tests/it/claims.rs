//! Claims of jobs with a reported item that is not stored yet.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use tempfile::TempDir;
use tidegate_catalog::orgs;
use tidegate_moderation::{
    Deps,
    partial_items::claims,
    review::{
        job_view::{self, CauseLimits, JobResponse},
        reports,
    },
};
use tidegate_schemas::{
    ids::{ConfigVersion, ItemKey, Millis, ReportId, SubmissionId},
    records::{JobClass, Report},
};
use tidegate_store::{
    RowRange,
    tables::review::{
        jobs::{Job, SubjectJob},
        partial_requests::PartialRequestOfJob,
    },
};

use crate::support::{authorize, fixture, item_entry, org, post};

const REFRESH_AFTER: Duration = Duration::from_secs(3_600);

/// Job of a report, from a platform with an items endpoint. No processor runs, so the item is not stored.
async fn reported(written_at: Millis) -> (Deps, Job, SubmissionId, TempDir) {
    let (deps, folder) = fixture().await;
    let endpoints = serde_json::from_str(r#"{"acme": {"url": "https://platform.example/items"}}"#).unwrap();
    let deps = Deps { partial_items: Arc::new(endpoints), ..deps };
    orgs::create(&deps.store, &org(), "Acme", Millis::now()).await.unwrap();
    let submission_id = SubmissionId::random();
    let report = Report {
        org: org(),
        config_version: ConfigVersion(1),
        report_id: ReportId::random(),
        keyed: false,
        received_at: written_at,
        request_id: "request".to_owned(),
        reported_at: written_at,
        reporter: ItemKey::new("user", "u1"),
        item: item_entry(submission_id, false),
        policy_id: None,
        reason: None,
        csam: false,
        thread: Vec::new(),
        reported_in_thread: Vec::new(),
        additional: Vec::new(),
    };
    reports::accept(&deps, &report, written_at, false).await.unwrap();
    let subject = (org(), JobClass::Review, post().type_id, post().id);
    let pointer = deps.store.get::<SubjectJob>(&subject).await.unwrap().unwrap();
    let job = deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap().unwrap();
    (deps, job, submission_id, folder)
}

async fn requests(deps: &Deps, job: &Job) -> usize {
    let rows = deps.store.scan::<PartialRequestOfJob>(&(org(), job.job_id), RowRange::all()).all().await;
    rows.unwrap().len()
}

#[tokio::test]
async fn claim_does_not_request_an_item_that_is_being_stored() {
    let now = Millis::now();
    let (deps, job, _, _folder) = reported(now).await;
    let authorized_job = authorize(&deps.store, job.job_id).await;
    claims::refresh_claimed(&deps, &authorized_job, REFRESH_AFTER, now).await.unwrap();
    assert_eq!(requests(&deps, &job).await, 0);
    // Older data is requested, like stored data of that age.
    let refresh_time = now.plus(REFRESH_AFTER).plus(Duration::from_secs(1));
    claims::refresh_claimed(&deps, &authorized_job, REFRESH_AFTER, refresh_time).await.unwrap();
    assert_eq!(requests(&deps, &job).await, 1);
}

#[tokio::test]
async fn job_shows_the_sent_item_until_it_is_stored() {
    let (deps, job, submission_id, _folder) = reported(Millis::now()).await;
    let config = deps.live.load_latest(&org()).await.unwrap();
    let limits = CauseLimits { causes: 10, bytes: 1 << 20 };
    let job = authorize(&deps.store, job.job_id).await;
    let view = job_view::load_view(&deps.store, &config, &job, limits).await.unwrap().unwrap();
    let JobResponse { latest_item: Some(item), .. } = view else { panic!("no item: {view:?}") };
    assert_eq!(
        (item.submission_id, item.state.to_string(), item.source.to_string()),
        (submission_id, "accepted".to_owned(), "report".to_owned())
    );
    assert_eq!((item.data.get(), item.evaluated_at), ("{}", None));
}
