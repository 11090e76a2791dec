//! Replays of submissions and of due decisions.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::support::{fixture, item_entry, org, post};
use bytes::Bytes;
use tidegate_catalog::orgs;
use tidegate_moderation::{
    Deps,
    effects::{self, Plan},
    items::{
        stored::{self, RESENT, Submission},
        submissions::{self, ReplayState},
    },
    jobs::{
        queue_counts,
        stored_decision::{Parameters, StoredDecision},
    },
    review::{
        decisions::{self, DueRowStep},
        reports,
    },
};
use tidegate_schemas::{
    ids::{ConfigVersion, DecisionId, ItemKey, JobId, Kind, Millis, QueueId, SubmissionId, derive},
    records::{self, Coordinates, Items, JobClass, Source, Variant, Verdict},
};
use tidegate_store::{
    Store,
    tables::{
        items::{
            items::{Item, Stage, SubmissionPlace, SubmissionState, write_time},
            plans::PlanKind,
        },
        review::{
            decisions::DecisionDue,
            jobs::{DecisionState, Job, JobState},
        },
    },
};
use tidegate_stream::{
    Topic,
    page_reader::{Order, Query},
};
use uuid::Uuid;

fn submission(nth: u128) -> SubmissionId {
    Uuid::from_u128(nth).into()
}

fn item(nth: u128, append_ms: i64) -> Item {
    Item {
        org: org(),
        type_id: post().type_id,
        item_id: post().id,
        append_ms: Millis(append_ms),
        offset: append_ms,
        position: 0,
        submission_id: submission(nth),
        source: Source::Api.into(),
        variant: Variant::Original.into(),
        type_version: None,
        data: Bytes::from_static(b"{}"),
        state: SubmissionState::Evaluated.into(),
        config_version: ConfigVersion(1),
        request_id: "request".to_owned(),
        received_at: Millis(append_ms),
        evaluated_at: Some(Millis(append_ms)),
        report_id: None,
        matched: "[]".to_owned(),
        errored: "[]".to_owned(),
        actions: "[]".to_owned(),
        media: "[]".to_owned(),
        left_out: None,
        followed_by: None,
    }
}

async fn store_item(store: &Store, nth: u128, append_ms: i64) {
    let at = write_time(Millis(append_ms), Stage::Evaluated);
    store.put_rows(at, &[item(nth, append_ms)]).await.unwrap();
}

#[tokio::test]
async fn look_up_waits_for_the_next_version_of_the_same_request() {
    let (deps, _folder) = fixture().await;
    let first = Item { followed_by: Some(submission(2)), ..item(1, 1_000) };
    deps.store.put_rows(write_time(Millis(1_000), Stage::Evaluated), &[first]).await.unwrap();
    let look_up = async |submission, wait_ms: u64| {
        let max_wait = Duration::from_millis(wait_ms);
        let answer = stored::wait_for_answer(&deps.store, &org(), &post(), submission, max_wait).await;
        answer.unwrap().unwrap().submission_id
    };
    let began = std::time::Instant::now();
    assert_eq!(
        look_up(None, 50).await,
        submission(1),
        "the look-up returns the present state at the end of the wait"
    );
    assert!(began.elapsed() >= Duration::from_millis(50), "the first version is not the newest one");
    // Only the requested submission is awaited.
    assert_eq!(look_up(Some(submission(1)), 60_000).await, submission(1));
    let second = Item { position: 1, ..item(2, 1_000) };
    let (awaited_id, ()) = tokio::join!(look_up(None, 60_000), async {
        deps.store.put_rows(write_time(Millis(1_000), Stage::Evaluated), &[second]).await.unwrap();
    });
    assert_eq!(awaited_id, submission(2));
}

/// Stores a submission with its place, so that it can be sent again.
async fn store_item_with_place(store: &Store, nth: u128, append_ms: i64) {
    let place = SubmissionPlace {
        org: org(),
        submission_id: submission(nth),
        type_id: post().type_id,
        item_id: post().id,
        append_ms: Millis(append_ms),
        offset: append_ms,
        position: 0,
    };
    store.put_rows(write_time(Millis(append_ms), Stage::Evaluated), &[place]).await.unwrap();
    store_item(store, nth, append_ms).await;
}

fn record(nth: u128) -> Items {
    Items {
        org: org(),
        config_version: ConfigVersion(1),
        source: Source::Api,
        received_at: Millis(1),
        request_id: "request".to_owned(),
        report_id: None,
        items: vec![item_entry(submission(nth), true)],
    }
}

async fn replay_state(deps: &Deps, nth: u128, append_ms: i64) -> ReplayState {
    let record = record(nth);
    let coordinates = Coordinates { append_ms: Millis(append_ms), offset: append_ms, position: 0 };
    submissions::load_replay_state(deps, &Submission::new(&record, &record.items[0], coordinates))
        .await
        .unwrap()
}

#[tokio::test]
async fn replay_carries_out_its_plan_and_repetition_has_no_effect() {
    let (deps, _folder) = fixture().await;
    assert!(matches!(replay_state(&deps, 1, 10).await, ReplayState::Fresh));
    let plan = Plan::empty(&org(), Uuid::from_u128(1), PlanKind::Item, ConfigVersion(1));
    effects::adopt(&deps.store, plan, Millis(10)).await.unwrap();
    assert!(
        matches!(replay_state(&deps, 1, 10).await, ReplayState::Planned { is_begun: false, .. }),
        "the process crashed before it wrote the row"
    );
    store_item_with_place(&deps.store, 1, 10).await;
    assert!(
        matches!(replay_state(&deps, 1, 10).await, ReplayState::Planned { is_begun: true, .. }),
        "the process crashed after it wrote the row"
    );
    assert!(
        matches!(replay_state(&deps, 1, 20).await, ReplayState::Evaluated),
        "the submission was sent again"
    );
}

#[tokio::test]
async fn a_repeated_submission_is_not_the_newest_version() {
    let (deps, _folder) = fixture().await;
    store_item_with_place(&deps.store, 1, 10).await;
    store_item(&deps.store, 2, 20).await;
    store_item(&deps.store, 1, 30).await;
    let newest = stored::load_newest(&deps.store, &org(), &post()).await.unwrap().unwrap();
    assert_eq!(newest.submission_id, submission(2));
    let latest = stored::find_version(&deps.store, &org(), &post(), None).await.unwrap().unwrap();
    assert_eq!(latest.submission_id, submission(2));
    let first =
        stored::find_version(&deps.store, &org(), &post(), Some(submission(1))).await.unwrap().unwrap();
    assert_eq!(first.append_ms, Millis(10));
}

#[tokio::test]
async fn old_versions_are_found_below_thousands_of_newer_ones() {
    const VERSIONS: u128 = 2_500;
    let (deps, _folder) = fixture().await;
    let store = &deps.store;
    for nth in 1..=VERSIONS {
        let append_ms = i64::try_from(nth).unwrap() * 10;
        let variant = if nth == 1 { Variant::Original } else { Variant::Partial };
        let row = Item { variant: variant.into(), ..item(nth, append_ms) };
        store.put_rows(write_time(Millis(append_ms), Stage::Evaluated), &[row]).await.unwrap();
    }
    let find =
        async |nth| stored::find_version(store, &org(), &post(), nth).await.unwrap().map(|row| row.append_ms);
    assert_eq!(find(Some(submission(1))).await, Some(Millis(10)));
    assert_eq!(find(Some(submission(VERSIONS))).await, Some(Millis(25_000)));
    assert_eq!(find(Some(submission(VERSIONS + 1))).await, None);
    assert_eq!(find(None).await, Some(Millis(25_000)));
    let newest = stored::load_newest(store, &org(), &post()).await.unwrap().unwrap();
    assert_eq!(newest.submission_id, submission(1), "a partial refresh never replaces an original");
    let mut repeated_record = record(1);
    repeated_record.items[0].keyed = false;
    let coordinates = Coordinates { append_ms: Millis(10), offset: 10, position: 0 };
    let state = submissions::load_replay_state(
        &deps,
        &Submission::new(&repeated_record, &repeated_record.items[0], coordinates),
    )
    .await;
    assert!(matches!(state.unwrap(), ReplayState::Evaluated));
}

#[tokio::test]
async fn submitted_versions_precede_fetched_ones() {
    let (deps, _folder) = fixture().await;
    let store = &deps.store;
    let (fetched, submitted) = (Source::PartialItems, Source::Report);
    // In ascending precedence, each older than its predecessors.
    let versions = [
        (1, 50, fetched, Variant::Partial),
        (2, 40, fetched, Variant::Original),
        (3, 30, submitted, Variant::Partial),
        (4, 20, submitted, Variant::Original),
    ];
    for (nth, append_ms, source, variant) in versions {
        let (source, variant) = (source.into(), variant.into());
        let row = Item { source, variant, ..item(nth, append_ms) };
        store.put_rows(write_time(Millis(append_ms), Stage::Evaluated), &[row]).await.unwrap();
        let newest = stored::load_newest(store, &org(), &post()).await.unwrap().unwrap();
        assert_eq!(newest.submission_id, submission(nth));
        let view_version = stored::find_version(store, &org(), &post(), None).await.unwrap().unwrap();
        // The view shows the newest submitted version, partial or not.
        assert_eq!(view_version.submission_id, submission(nth.min(3)));
    }
}

/// Lease that exceeds the duration of the test.
const LEASE: Duration = Duration::from_secs(600);

fn claimed_job(job_id: JobId, now: Millis) -> Job {
    Job {
        org: org(),
        job_id,
        class: JobClass::Review,
        queue: QueueId::new("default"),
        state: JobState::Open,
        item: post(),
        generation: 1,
        priority: 0,
        created_at: now,
        appeal_id: None,
        epoch: 2,
        claimed_by: Some("ann".to_owned()),
        lease_until: None,
        decision: None,
        decision_state: None,
        queued_at: None,
        signals: None,
        routed_by: None,
        routed_for: None,
        closed_at: None,
        moves: None,
        skips: None,
        version: 1,
    }
}

#[tokio::test]
async fn a_released_decision_is_appended_after_its_lease() {
    let (deps, _folder) = fixture().await;
    let job_id: JobId = Uuid::from_u128(8).into();
    let start = Millis::now();
    let decision_id: DecisionId = derive(Kind::Decision, &[job_id.as_bytes(), &2_i64.to_be_bytes()]);
    let due = DecisionDue { shard: 0, minute: 0, due_at: start, org: org(), job_id, decision_id };
    let decision = StoredDecision {
        decision_id,
        config_version: ConfigVersion(1),
        verdict: Verdict::Ignore,
        actions: Vec::new(),
        parameters: Parameters::new(),
        policies: Vec::new(),
        related: Vec::new(),
        reason: None,
        decided_by: "ann".to_owned(),
        decided_at: start,
        release_at: start,
    };
    let job = Job {
        state: JobState::Decided,
        decision: Some(serde_json::to_string(&decision).unwrap()),
        decision_state: Some(DecisionState::Pending),
        ..claimed_job(job_id, start)
    };
    deps.store.insert_new(&job).await.unwrap();
    // The closed log makes the append fail, as if the process died after the release.
    deps.log.close(tokio::time::Instant::now() + LEASE).await;
    assert!(decisions::release(&deps, &due, LEASE, start).await.is_err());
    let meanwhile = decisions::release(&deps, &due, LEASE, start.plus(LEASE / 2)).await.unwrap();
    assert_eq!(meanwhile, DueRowStep::RetryAt(start.plus(LEASE)));
    let after = decisions::release(&deps, &due, LEASE, start.plus(LEASE)).await;
    assert!(after.is_err(), "the release tries to append the decision: {after:?}");
    let (queue, later) = (QueueId::new("default"), start.plus(LEASE));
    let counts = queue_counts::load_counts(&deps.store, &org(), &queue, later).await.unwrap();
    assert_eq!(counts.last_hour.closed, 1, "a repeated release closes the job once");
    // The hour of the first attempt may be rolled up already, so its time must stay.
    let row = deps.store.get::<Job>(&(org(), job_id)).await.unwrap().unwrap();
    assert_eq!(row.closed_at, Some(start));
}

#[tokio::test]
async fn due_row_waits_while_its_claim_can_still_decide() {
    let (deps, _folder) = fixture().await;
    let job_id: JobId = Uuid::from_u128(7).into();
    let start = Millis::now();
    let decision_id: DecisionId = derive(Kind::Decision, &[job_id.as_bytes(), &2_i64.to_be_bytes()]);
    let due = DecisionDue { shard: 0, minute: 0, due_at: start, org: org(), job_id, decision_id };
    let mut job = claimed_job(job_id, start);
    deps.store.insert_new(&job).await.unwrap();
    // The console's clock is ten minutes behind the scanner's.
    let ahead = start.plus(Duration::from_secs(600));
    let retry = decisions::release(&deps, &due, LEASE, ahead).await.unwrap();
    assert!(matches!(retry, DueRowStep::RetryAt(at) if at > ahead));
    job.epoch = 3;
    assert!(deps.store.replace(&job, 1).await.unwrap().is_done());
    assert_eq!(
        decisions::release(&deps, &due, LEASE, start).await.unwrap(),
        DueRowStep::Finished,
        "the claim has a newer epoch"
    );
    job.state = JobState::Decided;
    assert!(deps.store.replace(&job, 2).await.unwrap().is_done());
    let due = DecisionDue {
        decision_id: derive(Kind::Decision, &[job_id.as_bytes(), &3_i64.to_be_bytes()]),
        ..due
    };
    assert_eq!(
        decisions::release(&deps, &due, LEASE, start).await.unwrap(),
        DueRowStep::Finished,
        "the job has another decision"
    );
}

#[tokio::test]
async fn item_of_a_replayed_report_keeps_its_position() {
    let (deps, _folder) = fixture().await;
    orgs::create(&deps.store, &org(), "Acme", Millis::now()).await.unwrap();
    let mut report = records::Report {
        org: org(),
        config_version: ConfigVersion(1),
        report_id: Uuid::from_u128(5).into(),
        keyed: false,
        received_at: Millis(15),
        request_id: "request".to_owned(),
        reported_at: Millis(15),
        reporter: ItemKey::new("user", "u1"),
        item: record(3).items.remove(0),
        policy_id: None,
        reason: None,
        csam: false,
        thread: Vec::new(),
        reported_in_thread: Vec::new(),
        additional: Vec::new(),
    };
    reports::accept(&deps, &report, Millis(100), false).await.unwrap();
    report.report_id = Uuid::from_u128(6).into();
    reports::accept(&deps, &report, Millis(100), true).await.unwrap();
    let query = Query { topic: Topic::Items, order: Order::Oldest, limit: 10, after: None };
    let tailed = deps.log.read_page(query).await.unwrap().records;
    let origins: Vec<_> = tailed
        .iter()
        .map(|tailed| {
            (tailed.headers.get(RESENT).is_some(), tailed.decode::<Items>().unwrap().items[0].origin)
        })
        .collect();
    let first_coordinates = Coordinates { append_ms: Millis(15), offset: 0, position: 0 };
    assert_eq!(origins, [(false, None), (true, Some(first_coordinates))]);
}
