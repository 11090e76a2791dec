//! Jobs are opened once, joined while open, and followed by the next generation.
#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, time::Duration};

use tidegate_moderation::{
    child_safety::{AuthorizedJob, Clearance, JobRefusal},
    jobs::{self, Cause, JobRequest, Placement, priority::PrioritySignals, queue_counts},
    review::{
        job_list::{self, JobListRequest},
        queues::{self, ClaimOutcome, NextJobRequest, Reviewer},
    },
};
use tidegate_schemas::{
    documents::{QueueOrder, Severity},
    ids::{DAY_MS, ItemKey, JobId, Millis, OrgId, QueueId},
    records::JobClass,
};
use tidegate_store::{
    ReplaceOutcome, RowRange, Store, WriteTime,
    tables::review::{
        jobs::{CauseKind, Job, JobCause, JobState, QueueDay, QueueEntry},
        queue_counts::{QueueChange, QueueEvent},
    },
};
use uuid::Uuid;

use crate::support::authorize;

struct Fixture {
    store: Store,
    _folder: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
    Fixture { store, _folder: folder }
}

fn org() -> OrgId {
    OrgId::new("acme")
}

fn job_request(cause: u128, class: JobClass) -> JobRequest {
    JobRequest {
        org: org(),
        class,
        subject: ItemKey::new("post", "p1"),
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

async fn join(store: &Store, cause: u128) -> JobId {
    jobs::open_or_join(store, &job_request(cause, JobClass::Review), Millis::now()).await.unwrap()
}

async fn causes(store: &Store, job: JobId) -> HashSet<u128> {
    let rows = store.scan::<JobCause>(&(org(), job), RowRange::all()).all().await.unwrap();
    rows.into_iter().map(|row| row.cause.as_u128()).collect()
}

async fn decide(store: &Store, job: JobId) {
    loop {
        let row = store.get::<Job>(&(org(), job)).await.unwrap().unwrap();
        let decided_row = Job { state: JobState::Decided, ..row.clone() };
        if matches!(store.replace(&decided_row, row.version).await.unwrap(), ReplaceOutcome::Done) {
            return;
        }
    }
}

fn order() -> QueueOrder {
    QueueOrder::default()
}

fn reviewer(name: &str) -> Reviewer {
    Reviewer { name: name.to_owned(), lease: Duration::from_secs(600) }
}

#[tokio::test]
async fn a_second_cause_joins_the_open_job_once() {
    let Fixture { store, _folder } = fixture();
    let job = join(&store, 1).await;
    assert_eq!(join(&store, 2).await, job);
    let version = store.get::<Job>(&(org(), job)).await.unwrap().unwrap().version;
    assert_eq!(join(&store, 1).await, job);
    assert_eq!(join(&store, 2).await, job);
    assert_eq!(causes(&store, job).await, HashSet::from([1, 2]));
    assert_eq!(store.get::<Job>(&(org(), job)).await.unwrap().unwrap().version, version);
}

#[tokio::test]
async fn a_cause_after_a_decision_opens_the_next_generation() {
    let Fixture { store, _folder } = fixture();
    let first = join(&store, 1).await;
    decide(&store, first).await;
    assert_eq!(join(&store, 1).await, first, "a replay finds its decided job");
    let second = join(&store, 2).await;
    assert_ne!(second, first);
    assert_eq!(join(&store, 1).await, first, "a replay finds its job even if a later generation is open");
    assert_eq!(causes(&store, second).await, HashSet::from([2]));
    assert_eq!(store.get::<Job>(&(org(), second)).await.unwrap().unwrap().generation, 2);
}

#[tokio::test]
async fn a_repeated_cause_finds_its_old_generation() {
    let Fixture { store, _folder } = fixture();
    let first = join(&store, 1).await;
    for cause in 2..=5 {
        decide(&store, join(&store, 1).await).await;
        let next = join(&store, cause).await;
        decide(&store, next).await;
    }
    let open = join(&store, 6).await;
    assert_eq!(join(&store, 1).await, first);
    assert_eq!(join(&store, 3).await, join(&store, 3).await);
    assert_eq!(causes(&store, open).await, HashSet::from([6]));
}

#[tokio::test]
async fn stale_queue_entry_does_not_list_a_job_twice() {
    let Fixture { store, _folder } = fixture();
    let job_id = join(&store, 1).await;
    let job = store.get::<Job>(&(org(), job_id)).await.unwrap().unwrap();
    let stale_entry = QueueEntry {
        org: org(),
        queue: job.queue.clone(),
        priority: job.priority,
        day: job.created_at.day(),
        created_at: Millis(job.created_at.0 - 1),
        job_id,
        item: job.item.clone(),
    };
    store.put_rows(WriteTime::from_append(stale_entry.created_at, 0), &[stale_entry]).await.unwrap();
    let waiting_jobs =
        queues::list_waiting(&store, &org(), &job.queue, 10, Millis::now(), |_| true).await.unwrap();
    assert_eq!(waiting_jobs.iter().map(|job| job.job_id).collect::<Vec<_>>(), [job_id]);
}

#[tokio::test]
async fn job_opened_after_a_clock_set_back_can_be_claimed() {
    let Fixture { store, _folder } = fixture();
    const HOUR: i64 = 3_600_000;
    let today = Millis::now().day();
    let at = |hour: i64| Millis(today * DAY_MS + hour * HOUR);
    let mut opened = Vec::new();
    for (cause, hour, item) in [(1, 5, "p1"), (2, 6, "p2")] {
        let request =
            JobRequest { subject: ItemKey::new("post", item), ..job_request(cause, JobClass::Review) };
        opened.push(jobs::open_or_join(&store, &request, at(hour)).await.unwrap());
    }
    let next = async |hour, name| claim_next(&store, name, at(hour), false).await.map(|job| job.job_id);
    for job in &opened {
        decide(&store, *job).await;
    }
    assert!(next(9, "ada").await.is_none(), "all jobs are decided, so the scan start moves");

    let late_request = JobRequest { subject: ItemKey::new("post", "p3"), ..job_request(3, JobClass::Review) };
    let late_job = jobs::open_or_join(&store, &late_request, at(1)).await.unwrap();
    assert_eq!(next(1, "ada").await, Some(late_job));
    assert_eq!(
        next(9, "bob").await,
        Some(late_job),
        "the job stays claimable after the clock catches up and the claim expires"
    );
}

#[tokio::test]
async fn child_safety_and_review_never_share_a_job() {
    let Fixture { store, _folder } = fixture();
    let review = join(&store, 1).await;
    let child_safety =
        jobs::open_or_join(&store, &job_request(2, JobClass::ChildSafety), Millis::now()).await.unwrap();
    assert_ne!(review, child_safety);
    assert_eq!(causes(&store, review).await, HashSet::from([1]));
    assert_eq!(causes(&store, child_safety).await, HashSet::from([2]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cause_that_races_with_a_decision_has_exactly_one_job() {
    let Fixture { store, _folder } = fixture();
    let joins: Vec<_> = (1..=60_u128)
        .map(|cause| {
            let store = store.clone();
            tokio::spawn(async move {
                let job = join(&store, cause).await;
                if cause % 5 == 0 {
                    decide(&store, job).await;
                }
                (cause, job)
            })
        })
        .collect();
    let mut jobs = HashSet::new();
    for joined in joins {
        let (cause, job) = joined.await.unwrap();
        assert!(causes(&store, job).await.contains(&cause), "the job of cause {cause} lacks its row");
        jobs.insert(job);
    }
    let mut all_causes = Vec::new();
    for job in &jobs {
        all_causes.extend(causes(&store, *job).await);
    }
    all_causes.sort_unstable();
    assert_eq!(all_causes, (1..=60).collect::<Vec<u128>>(), "each cause belongs to exactly one job");
    assert!(jobs.len() > 1, "at least one decision precedes a cause");
}

#[tokio::test]
async fn a_job_without_a_cause_cannot_be_claimed() {
    let Fixture { store, _folder } = fixture();
    let elsewhere = fixture();
    let job = join(&elsewhere.store, 1).await;
    let row = elsewhere.store.get::<Job>(&(org(), job)).await.unwrap().unwrap();
    // State after a crash between the job's row and the cause's row.
    store.insert_new(&row).await.unwrap();
    let authorized_job = authorize(&store, job).await;
    let start = Millis::now();
    assert!(matches!(
        queues::claim(&store, &authorized_job, &reviewer("ann"), start).await.unwrap(),
        ClaimOutcome::Opening
    ));
    assert_eq!(join(&store, 1).await, job, "the replay finds the job open");
    assert!(matches!(
        queues::claim(&store, &authorized_job, &reviewer("ann"), start).await.unwrap(),
        ClaimOutcome::Claimed(_)
    ));
}

#[tokio::test]
async fn a_claim_is_exclusive_until_its_lease_expires() {
    let Fixture { store, _folder } = fixture();
    let authorized_job = authorize(&store, join(&store, 1).await).await;
    let start = Millis::now();
    let ClaimOutcome::Claimed(mine) =
        queues::claim(&store, &authorized_job, &reviewer("ann"), start).await.unwrap()
    else {
        panic!("the free job was not claimed");
    };
    assert_eq!(mine.epoch, 1);
    let outcome = queues::claim(&store, &authorized_job, &reviewer("bob"), start).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::HeldByOther { by, .. } if by == "ann"));
    let ClaimOutcome::Claimed(renewed) =
        queues::claim(&store, &authorized_job, &reviewer("ann"), start).await.unwrap()
    else {
        panic!("the claim was not renewed");
    };
    assert_eq!(renewed.epoch, 1, "a renewal keeps the epoch");
    let after_lease = start.plus(Duration::from_secs(601));
    let ClaimOutcome::Claimed(lapsed) =
        queues::claim(&store, &authorized_job, &reviewer("bob"), after_lease).await.unwrap()
    else {
        panic!("the job with a lapsed claim was not claimed");
    };
    assert_eq!(lapsed.epoch, 2, "a takeover raises the epoch");
    assert!(
        !queues::release(&store, &authorized_job, 1, "ann").await.unwrap(),
        "the old epoch cannot release the claim"
    );
    assert!(queues::release(&store, &authorized_job, 2, "bob").await.unwrap());
}

async fn claim_next(store: &Store, name: &str, now: Millis, include_held: bool) -> Option<Job> {
    let (queue, reviewer, order) = (QueueId::new("default"), reviewer(name), order());
    let next = NextJobRequest {
        queue: &queue,
        order: &order,
        reviewer: &reviewer,
        clearance: Clearance::None,
        include_own: include_held,
    };
    let job = queues::claim_next(store, &org(), next, now, |free| free / 2).await.unwrap().unwrap();
    job.map(|job| job.row().clone())
}

#[tokio::test]
async fn job_of_another_org_or_class_is_refused() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let review_job = join(&store, 1).await;
    let request = job_request(2, JobClass::ChildSafety);
    let child_safety_job = jobs::open_or_join(&store, &request, start).await.unwrap();
    let load = async |org: &str, job, clearance| {
        let result = AuthorizedJob::load(&store, &OrgId::new(org), job, clearance).await.unwrap();
        result.map(|job| job.id())
    };
    assert_eq!(load("acme", review_job, Clearance::None).await, Ok(review_job));
    assert_eq!(load("other", review_job, Clearance::ChildSafety).await, Err(JobRefusal::NotFound));
    assert_eq!(load("acme", child_safety_job, Clearance::None).await, Err(JobRefusal::NotCleared));
    assert_eq!(load("acme", child_safety_job, Clearance::ChildSafety).await, Ok(child_safety_job));
}

#[tokio::test]
async fn next_job_beyond_the_clearance_is_released() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let request = job_request(1, JobClass::ChildSafety);
    let job = jobs::open_or_join(&store, &request, start).await.unwrap();
    let (queue, reviewer, order) = (request.queue, reviewer("ann"), order());
    let next = NextJobRequest {
        queue: &queue,
        order: &order,
        reviewer: &reviewer,
        clearance: Clearance::None,
        include_own: false,
    };
    let result = queues::claim_next(&store, &org(), next, start, |_| 0).await.unwrap();
    assert_eq!(result.err(), Some(JobRefusal::NotCleared));
    let row = store.get::<Job>(&(org(), job)).await.unwrap().unwrap();
    assert_eq!((row.claimed_by, row.lease_until), (None, None));
}

#[tokio::test]
async fn claim_next_returns_every_job_once() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    for index in 0..20_u128 {
        let mut request = job_request(index, JobClass::Review);
        request.subject = ItemKey::new("post", index.to_string().as_str());
        jobs::open_or_join(&store, &request, start).await.unwrap();
    }
    let mut claimed_ids = HashSet::new();
    for index in 0..20 {
        let job = claim_next(&store, &format!("r{index}"), start, false).await;
        assert!(claimed_ids.insert(job.expect("no job is free").job_id));
    }
    assert!(claim_next(&store, "late", start, false).await.is_none());
}

#[tokio::test]
async fn claim_next_skips_jobs_that_the_reviewer_holds() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    for index in 0..3_u128 {
        let subject = ItemKey::new("post", index.to_string().as_str());
        let request = JobRequest { subject, ..job_request(index, JobClass::Review) };
        jobs::open_or_join(&store, &request, start).await.unwrap();
    }
    let mut claimed_jobs = HashSet::new();
    for _ in 0..3 {
        let job = claim_next(&store, "ann", start, false).await.expect("every open job is held by ann");
        assert!(claimed_jobs.insert(job.job_id), "{job:?} was claimed twice");
    }
    assert!(claim_next(&store, "ann", start, false).await.is_none(), "ann holds all jobs");
    let held_job = claim_next(&store, "ann", start, true).await.expect("no job that ann holds was returned");
    assert!(claimed_jobs.contains(&held_job.job_id) && held_job.epoch == 1, "{held_job:?}");
    assert!(claim_next(&store, "bob", start, true).await.is_none(), "bob does not get ann's jobs");
    let after_lease = start.plus(Duration::from_secs(601));
    assert!(
        claim_next(&store, "ann", after_lease, false).await.is_some(),
        "an expired claim does not hold its job"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_claims_of_one_reviewer_get_different_jobs() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    for index in 0..8_u128 {
        let subject = ItemKey::new("post", index.to_string().as_str());
        let request = JobRequest { subject, ..job_request(index, JobClass::Review) };
        jobs::open_or_join(&store, &request, start).await.unwrap();
    }
    let claims = (0..8).map(|_| claim_next(&store, "ann", start, false));
    let jobs: HashSet<_> =
        futures::future::join_all(claims).await.into_iter().flatten().map(|job| job.job_id).collect();
    assert_eq!(jobs.len(), 8);
}

/// Request with a cause of the item's job, of this severity.
fn request_of(item: &str, cause: u128, severity: Severity) -> JobRequest {
    let placement = Placement {
        signals: PrioritySignals { severity, ..PrioritySignals::default() },
        reporter: Some(ItemKey::new("user", cause.to_string().as_str())),
        ..Placement::default()
    };
    JobRequest { subject: ItemKey::new("post", item), placement, ..job_request(cause, JobClass::Review) }
}

async fn next(store: &Store, name: &str, now: Millis) -> Option<JobId> {
    claim_next(store, name, now, false).await.map(|job| job.job_id)
}

#[tokio::test]
async fn severe_and_often_reported_jobs_are_claimed_first() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let open = async |item: &str, cause: u128, severity| {
        jobs::open_or_join(&store, &request_of(item, cause, severity), start).await.unwrap()
    };
    let mild = open("mild", 1, Severity::None).await;
    let severe = open("severe", 2, Severity::High).await;
    let mut often = open("often", 10, Severity::None).await;
    for cause in 11..14 {
        often = open("often", cause, Severity::None).await;
    }
    let repeated_request = JobRequest {
        cause: Cause { id: Uuid::from_u128(99), ..request_of("often", 13, Severity::None).cause },
        ..request_of("often", 13, Severity::None)
    };
    jobs::open_or_join(&store, &repeated_request, start).await.unwrap();
    let priority = store.get::<Job>(&(org(), often)).await.unwrap().unwrap().priority;
    assert_eq!(priority, 2, "four different reporters are two doublings; the fifth report is one of theirs");
    let mut order = Vec::new();
    for name in ["a", "b", "c", "d"] {
        order.push(next(&store, name, start).await);
    }
    assert_eq!(order, [Some(severe), Some(often), Some(mild), None]);
}

#[tokio::test]
async fn raised_job_is_listed_once_at_its_new_priority() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let job = jobs::open_or_join(&store, &request_of("p", 1, Severity::None), start).await.unwrap();
    // At the same time, so that the entries differ in their priority only.
    jobs::open_or_join(&store, &request_of("p", 2, Severity::Severe), start).await.unwrap();
    let queue = QueueId::new("default");
    let waiting_jobs = queues::list_waiting(&store, &org(), &queue, 10, start, |_| true).await.unwrap();
    assert_eq!(waiting_jobs.iter().map(|job| (job.job_id, job.priority)).collect::<Vec<_>>(), [(job, 9)]);
    // A later cause of lower severity does not lower the priority.
    jobs::open_or_join(&store, &request_of("p", 3, Severity::None), start).await.unwrap();
    assert_eq!(store.get::<Job>(&(org(), job)).await.unwrap().unwrap().priority, 9);
}

#[tokio::test]
async fn overdue_job_precedes_higher_priorities() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let max_wait = order().max_wait.duration();
    let long_ago = start.minus(max_wait + Duration::from_secs(3_600));
    let old = jobs::open_or_join(&store, &request_of("old", 1, Severity::None), long_ago).await.unwrap();
    // The job has risen since, so its present entry has a later time.
    let old_again = request_of("old", 2, Severity::Low);
    assert_eq!(jobs::open_or_join(&store, &old_again, start).await.unwrap(), old);
    let severe = jobs::open_or_join(&store, &request_of("new", 3, Severity::Severe), start).await.unwrap();
    assert_eq!(next(&store, "a", start).await, Some(old));
    assert_eq!(next(&store, "b", start).await, Some(severe));
}

#[tokio::test]
async fn first_entry_of_a_raised_open_job_is_still_scanned() {
    let Fixture { store, _folder } = fixture();
    const HOUR: i64 = 3_600_000;
    let start = Millis(Millis::now().day() * DAY_MS);
    let at = |hour: i64| Millis(start.0 + hour * HOUR);
    let rising = jobs::open_or_join(&store, &request_of("p1", 1, Severity::None), at(1)).await.unwrap();
    jobs::open_or_join(&store, &request_of("p1", 2, Severity::Severe), at(2)).await.unwrap();
    let other_job = jobs::open_or_join(&store, &request_of("p2", 3, Severity::None), at(3)).await.unwrap();
    decide(&store, other_job).await;
    let queue = QueueId::new("default");
    assert_eq!(queues::list_waiting(&store, &org(), &queue, 10, at(9), |_| true).await.unwrap().len(), 1);
    assert_eq!(queues::find_oldest(&store, &org(), &queue, at(9)).await.unwrap(), Some(at(1)));
    // Three days later the job is overdue, and its first entry finds it.
    assert_eq!(next(&store, "a", at(72)).await, Some(rising));
}

#[tokio::test]
async fn event_without_an_opened_job_is_not_counted() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let job_id = jobs::open_or_join(&store, &request_of("p1", 1, Severity::None), start).await.unwrap();
    let queue = QueueId::new("default");
    // The event of an opener that crashed or lost the race.
    let orphan_event = QueueEvent {
        org: org(),
        queue: queue.clone(),
        hour: start.0.div_euclid(3_600_000),
        at: Millis(start.0 - 1),
        job_id,
        change: QueueChange::Opened,
        priority: 0,
    };
    store.put_rows(WriteTime::from_append(start, 0), &[orphan_event]).await.unwrap();
    let counts = queue_counts::load_counts(&store, &org(), &queue, start).await.unwrap();
    assert_eq!((counts.open, counts.last_hour.opened), (1, 1));
}

#[tokio::test]
async fn decided_day_is_skipped_and_late_job_enters_the_next() {
    let Fixture { store, _folder } = fixture();
    const HOUR: i64 = 3_600_000;
    let today = Millis::now().day();
    let at = |hour: i64| Millis(today * DAY_MS + hour * HOUR);
    let queue = QueueId::new("default");
    let first = jobs::open_or_join(&store, &request_of("p1", 1, Severity::None), at(1)).await.unwrap();
    assert_eq!(queues::find_oldest(&store, &org(), &queue, at(30)).await.unwrap(), Some(at(1)));
    let key = (org(), queue.clone(), 0, today);
    let load_first_at = async || store.get::<QueueDay>(&key).await.unwrap().unwrap().first_at;
    assert!(load_first_at().await < at(24), "the day has an open job");
    decide(&store, first).await;
    assert_eq!(next(&store, "a", at(23)).await, None);
    assert!(load_first_at().await < at(24), "the day is not over");
    assert_eq!(next(&store, "a", at(30)).await, None);
    assert_eq!(load_first_at().await, at(24));
    // The clock was set back.
    let late_job = jobs::open_or_join(&store, &request_of("p2", 2, Severity::None), at(2)).await.unwrap();
    let row = store.get::<Job>(&(org(), late_job)).await.unwrap().unwrap();
    assert_eq!(row.created_at, at(24));
    assert_eq!(next(&store, "a", at(30)).await, Some(late_job));
}

/// Lists jobs page by page and returns their items. Fails if a page does not advance.
async fn list_items(store: &Store, queues: &[&str], jobs: usize, rows: usize) -> Vec<String> {
    let (org, queues) = (org(), queues.iter().map(|queue| QueueId::new(*queue)).collect::<Vec<_>>());
    let mut request = JobListRequest { org: &org, queues: &queues, from: None, jobs, rows, open_only: true };
    let mut items = Vec::new();
    loop {
        let page = job_list::list_jobs(store, &request, |job| job.state == JobState::Open).await.unwrap();
        assert!(page.jobs.len() <= jobs);
        items.extend(page.jobs.iter().map(|job| job.item.id.to_string()));
        let Some(next) = page.next else { return items };
        assert_ne!(request.from.as_ref(), Some(&next), "the page did not advance");
        request.from = Some(next.to_string().parse().unwrap());
    }
}

#[tokio::test]
async fn jobs_are_listed_by_priority_across_queues_then_by_age() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let severities = [Severity::None, Severity::Severe, Severity::Low];
    let mut expected_jobs = Vec::new();
    for (nth, queue) in (0..60_u64).zip(["a", "b", "c"].into_iter().cycle()) {
        let severity = severities[usize::try_from(nth).unwrap() / 2 % 3];
        // Spread over three days, with two jobs at each instant.
        let at = start.minus(Duration::from_secs((60 - nth / 2 * 2) * 3_600));
        let item = format!("p{nth:02}");
        let request = JobRequest { queue: QueueId::new(queue), ..request_of(&item, nth.into(), severity) };
        let job = jobs::open_or_join(&store, &request, at).await.unwrap();
        expected_jobs.push((std::cmp::Reverse(severity), at, job, item));
    }
    expected_jobs.sort();
    let of = |queues: &[&str]| {
        let in_queue = |item: &str| {
            let nth: usize = item[1..].parse().unwrap();
            queues.contains(&["a", "b", "c"][nth % 3])
        };
        let items = expected_jobs.iter().map(|(.., item)| item.clone());
        items.filter(|item| in_queue(item)).collect::<Vec<_>>()
    };
    for queues in [&["a", "b", "c"][..], &["b"], &["c", "a"]] {
        for (jobs, rows) in [(100, 5_000), (1, 5_000), (7, 5_000), (60, 5_000), (7, 1), (100, 20)] {
            assert_eq!(list_items(&store, queues, jobs, rows).await, of(queues), "{queues:?} {jobs} {rows}");
        }
    }
}

#[tokio::test]
async fn first_page_of_open_jobs_starts_after_decided_ones() {
    let Fixture { store, _folder } = fixture();
    let start = Millis::now();
    let open = async |nth: u64| {
        let at = start.minus(Duration::from_secs(10_000 - nth));
        let request = request_of(&format!("p{nth:03}"), nth.into(), Severity::None);
        jobs::open_or_join(&store, &request, at).await.unwrap()
    };
    for nth in 0..200 {
        let job = open(nth).await;
        decide(&store, job).await;
    }
    for nth in 200..203 {
        open(nth).await;
    }
    // Like a claim, this moves the scan start of the day past finally decided jobs.
    queues::list_waiting(&store, &org(), &QueueId::new("default"), 10, start, |_| true).await.unwrap();
    let (org, queue) = (org(), [QueueId::new("default")]);
    let request = JobListRequest { org: &org, queues: &queue, from: None, jobs: 3, rows: 8, open_only: true };
    let page = job_list::list_jobs(&store, &request, |job| job.state == JobState::Open).await.unwrap();
    let items: Vec<_> = page.jobs.iter().map(|job| job.item.id.as_str()).collect();
    assert_eq!(items, ["p200", "p201", "p202"], "the page reads 8 of 203 entries");
}
