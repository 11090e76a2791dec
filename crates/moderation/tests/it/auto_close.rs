//! Unclaimed jobs are closed at the maximum age of their queue.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tempfile::TempDir;
use tidegate_catalog::{Change, Changes, MasterKey, Secrets, orgs};
use tidegate_moderation::{
    Deps,
    jobs::{
        self, Cause, JobRequest, Placement,
        priority::PrioritySignals,
        queue_counts::{self, QueueFlow},
    },
    review::{
        auto_close::{self, ClosingPass},
        queues::{self, ClaimOutcome, Reviewer},
    },
};
use tidegate_schemas::{
    documents::Severity,
    ids::{DAY_MS, ItemKey, JobId, Millis, QueueId},
    records::JobClass,
};
use tidegate_store::{
    RowRange, WriteTime,
    tables::{
        catalog::audit::AuditEntry,
        review::{
            jobs::{CauseKind, Job, JobState},
            queue_counts::{QueueChange, QueueEvent},
        },
    },
};
use uuid::Uuid;

use crate::support::{authorize, fixture, org};

const DOCUMENTS: &str = "queue: default\nauto_close_after: 30d\n";

const LIMIT: usize = 100;

async fn configured(documents: &str) -> (Deps, TempDir) {
    let (deps, folder) = fixture().await;
    orgs::create(&deps.store, &org(), "Acme", Millis::now()).await.unwrap();
    let settings = tidegate_catalog::Settings::default();
    let secrets = Secrets::new(deps.store.clone(), MasterKey::new([7; 32]), &settings);
    let change = Change {
        files: vec![("config.yaml".to_owned(), documents.to_owned())],
        author: "test".to_owned(),
        expected_version: None,
        prune: false,
    };
    Changes::new(deps.store.clone(), secrets, &settings).apply(&org(), change).await.unwrap();
    deps.live.load_latest(&org()).await.unwrap();
    (deps, folder)
}

fn days_ago(days: i64) -> Millis {
    Millis(Millis::now().0 - days * DAY_MS)
}

fn request(item: &str, cause: u128, class: JobClass) -> JobRequest {
    JobRequest {
        org: org(),
        class,
        subject: ItemKey::new("post", item),
        queue: QueueId::new("default"),
        cause: Cause {
            id: Uuid::from_u128(cause),
            kind: CauseKind::Report,
            at: Millis(1_000),
            report_id: None,
            appeal_id: None,
            submission_id: None,
            rules: "[]".to_owned(),
            hits: None,
            threshold: None,
            policies: Vec::new(),
        },
        placement: Placement::default(),
    }
}

async fn open(deps: &Deps, item: &str, cause: u128, at: Millis) -> JobId {
    jobs::open_or_join(&deps.store, &request(item, cause, JobClass::Review), at).await.unwrap()
}

async fn job(deps: &Deps, id: JobId) -> Job {
    deps.store.get::<Job>(&(org(), id)).await.unwrap().unwrap()
}

async fn claim(deps: &Deps, id: JobId) -> ClaimOutcome {
    let ann = Reviewer { name: "ann".to_owned(), lease: Duration::from_secs(600) };
    queues::claim(&deps.store, &authorize(&deps.store, id).await, &ann, Millis::now()).await.unwrap()
}

async fn close_old(deps: &Deps, limit: usize) -> ClosingPass {
    let config = deps.live.org(&org()).unwrap();
    auto_close::close_old(&deps.store, &config, limit, Millis::now()).await.unwrap()
}

async fn audited(deps: &Deps) -> Vec<(String, Option<i64>)> {
    let mut entries = Vec::new();
    // Includes yesterday, because the day may change after the closing pass.
    for day in [Millis::now().day() - 1, Millis::now().day()] {
        entries.extend(deps.store.scan::<AuditEntry>(&(org(), day), RowRange::all()).all().await.unwrap());
    }
    entries.retain(|entry| entry.action == auto_close::ACTION && entry.actor == auto_close::ACTOR);
    entries.into_iter().map(|entry| (entry.object, entry.status)).collect()
}

#[tokio::test]
async fn only_old_unclaimed_jobs_are_closed() {
    let (deps, _folder) = configured(DOCUMENTS).await;
    let old = open(&deps, "old", 1, days_ago(31)).await;
    let claimed_job = open(&deps, "claimed", 2, days_ago(31)).await;
    let young = open(&deps, "young", 3, days_ago(29)).await;
    assert!(matches!(claim(&deps, claimed_job).await, ClaimOutcome::Claimed(_)));

    assert_eq!(close_old(&deps, LIMIT).await, ClosingPass { closed: 1, has_more: false });
    let row = job(&deps, old).await;
    assert_eq!((row.state, row.decision), (JobState::Closed, None));
    assert!(row.closed_at.is_some());
    for open in [claimed_job, young] {
        assert_eq!(job(&deps, open).await.state, JobState::Open);
    }
    assert!(matches!(claim(&deps, old).await, ClaimOutcome::Decided), "the job is closed");
    assert_eq!(audited(&deps).await, [(format!("/jobs/{old}"), Some(200))]);
    let queue = QueueId::new("default");
    let counts = queue_counts::load_counts(&deps.store, &org(), &queue, Millis::now()).await.unwrap();
    assert_eq!((counts.open, counts.last_hour), (2, QueueFlow { opened: 0, closed: 1 }));

    assert_eq!(close_old(&deps, LIMIT).await, ClosingPass::default(), "another pass closes no job");
    assert_eq!(open(&deps, "old", 1, Millis::now()).await, old, "a replay finds its closed job");
    let next = open(&deps, "old", 4, Millis::now()).await;
    assert_eq!(
        (next != old, job(&deps, next).await.generation),
        (true, 2),
        "a new report opens the next generation"
    );
}

#[tokio::test]
async fn queues_without_the_setting_keep_their_jobs() {
    let (deps, _folder) = configured("queue: default\n").await;
    let old = open(&deps, "old", 1, days_ago(300)).await;
    assert_eq!(close_old(&deps, LIMIT).await, ClosingPass::default());
    assert_eq!(job(&deps, old).await.state, JobState::Open);
}

#[tokio::test]
async fn child_safety_job_is_never_closed_by_age() {
    // The queue was a child-safety queue when the job was opened.
    let (deps, _folder) = configured(DOCUMENTS).await;
    let safety = request("p", 1, JobClass::ChildSafety);
    let safety = jobs::open_or_join(&deps.store, &safety, days_ago(31)).await.unwrap();
    let review = open(&deps, "p", 2, days_ago(31)).await;
    assert_eq!(close_old(&deps, LIMIT).await.closed, 1);
    assert_eq!(job(&deps, review).await.state, JobState::Closed);
    assert_eq!(job(&deps, safety).await.state, JobState::Open);
}

#[tokio::test]
async fn age_of_a_raised_job_counts_from_its_opening() {
    let (deps, _folder) = configured(DOCUMENTS).await;
    let old = open(&deps, "p", 1, days_ago(31)).await;
    let mut severe = request("p", 2, JobClass::Review);
    severe.placement.signals = PrioritySignals { severity: Severity::Severe, ..PrioritySignals::default() };
    assert_eq!(jobs::open_or_join(&deps.store, &severe, days_ago(1)).await.unwrap(), old);
    assert_eq!(job(&deps, old).await.priority, 8, "the present entry is a day old");
    assert_eq!(close_old(&deps, LIMIT).await.closed, 1);
}

#[tokio::test]
async fn job_without_a_cause_is_not_closed_by_age() {
    let (deps, _folder) = configured(DOCUMENTS).await;
    let (elsewhere, _other) = configured(DOCUMENTS).await;
    let at = days_ago(31);
    let id = open(&elsewhere, "p", 1, at).await;
    let entered = open(&deps, "other", 2, at).await;
    let row = Job { created_at: job(&deps, entered).await.created_at, ..job(&elsewhere, id).await };
    // The state after a crash between the job's row and the cause's row.
    let entry = tidegate_store::tables::review::jobs::QueueEntry {
        org: org(),
        queue: row.queue.clone(),
        priority: row.priority,
        day: row.created_at.day(),
        created_at: row.created_at,
        job_id: id,
        item: row.item.clone(),
    };
    deps.store.put_rows(WriteTime::from_append(at, 0), &[entry]).await.unwrap();
    deps.store.insert_new(&row).await.unwrap();
    assert_eq!(close_old(&deps, LIMIT).await.closed, 1, "the pass closes only the other job");
    assert_eq!(job(&deps, id).await.state, JobState::Open);
    assert_eq!(open(&deps, "p", 1, Millis::now()).await, id, "the repeated record joins the job");
    assert_eq!(close_old(&deps, LIMIT).await.closed, 1, "the pass closes the old job once it has a cause");
}

#[tokio::test]
async fn interrupted_pass_is_counted_once_by_the_next() {
    let (deps, _folder) = configured(DOCUMENTS).await;
    let old = open(&deps, "p", 1, days_ago(31)).await;
    let row = job(&deps, old).await;
    let at = Millis(Millis::now().0 - 60_000);
    let event = QueueEvent {
        org: org(),
        queue: row.queue.clone(),
        hour: at.0.div_euclid(3_600_000),
        at,
        job_id: old,
        change: QueueChange::Closed,
        priority: row.priority,
    };
    // The event is written, but the job's row is unchanged.
    deps.store.put_rows(WriteTime::from_append(at, 0), &[event]).await.unwrap();
    let counts = async || {
        let queue = QueueId::new("default");
        queue_counts::load_counts(&deps.store, &org(), &queue, Millis::now()).await.unwrap()
    };
    assert_eq!((counts().await.open, counts().await.last_day.closed), (1, 0));
    assert_eq!(close_old(&deps, LIMIT).await.closed, 1);
    assert_eq!((counts().await.open, counts().await.last_day.closed), (0, 1));
}

#[tokio::test]
async fn each_pass_closes_a_bounded_number_of_jobs() {
    let (deps, _folder) = configured(DOCUMENTS).await;
    for nth in 0..5 {
        open(&deps, &format!("p{nth}"), nth, days_ago(31)).await;
    }
    assert_eq!(close_old(&deps, 2).await, ClosingPass { closed: 2, has_more: true });
    assert_eq!(close_old(&deps, 2).await, ClosingPass { closed: 2, has_more: true });
    assert_eq!(close_old(&deps, 2).await, ClosingPass { closed: 1, has_more: false });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn job_is_claimed_or_closed_and_never_both() {
    let (deps, _folder) = configured(DOCUMENTS).await;
    let mut jobs = Vec::new();
    for nth in 0..60 {
        jobs.push(open(&deps, &format!("p{nth}"), nth, days_ago(31)).await);
    }
    let passes: Vec<_> = (0..2)
        .map(|_| {
            let deps = deps.clone();
            tokio::spawn(async move { close_old(&deps, LIMIT).await.closed })
        })
        .collect();
    let mut claimed_count = 0;
    for id in jobs.iter().rev() {
        match claim(&deps, *id).await {
            ClaimOutcome::Claimed(_) => {
                claimed_count += 1;
                assert_eq!(job(&deps, *id).await.state, JobState::Open, "a claimed job stays open");
            }
            ClaimOutcome::Decided => assert_eq!(job(&deps, *id).await.state, JobState::Closed),
            other => panic!("{other:?}"),
        }
    }
    let mut closed_count = 0;
    for pass in passes {
        closed_count += pass.await.unwrap();
    }
    assert_eq!(claimed_count + closed_count, jobs.len(), "each job is either claimed or closed");
    let audited_count = audited(&deps).await.iter().filter(|(_, status)| *status == Some(200)).count();
    assert_eq!(audited_count, closed_count, "each closed job has one audit entry");
}
