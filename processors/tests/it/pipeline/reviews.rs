//! Reports and appeals open jobs, and decisions take their effects.

use bytes::Bytes;
use tidegate_moderation::{
    child_safety::Clearance,
    jobs::stored_decision::Parameters,
    review::{
        decisions::{self, DecisionRequest},
        queues::{self, NextJobRequest, Reviewer},
    },
};
use tidegate_schemas::{
    documents::QueueOrder,
    ids::{AppealId, ConfigVersion, JobId, Kind, Millis, QueueId, ReportId, derive},
    records::{Appeal, ItemEntry, JobClass, Mention, Report, Variant, Verdict},
};
use tidegate_store::tables::{
    items::strikes::{Strike, StrikeReversal},
    review::jobs::{DecisionState, Job, JobCause, SubjectJob},
};
use tidegate_stream::Topic;

use super::world::{SHORT, World, authorize, entry, org, post, user};

pub(crate) fn report(world_version: ConfigVersion, nth: u8, text: &str, csam: bool) -> Report {
    let report_id = ReportId::random();
    let item = entry(&post("p1"), text);
    Report {
        org: org(),
        config_version: world_version,
        report_id,
        keyed: false,
        received_at: Millis::now(),
        request_id: "request".to_owned(),
        reported_at: Millis::now(),
        reporter: user(&format!("reporter-{nth}")),
        item: ItemEntry { submission_id: derive(Kind::Submission, &[report_id.as_bytes()]), ..item },
        policy_id: None,
        reason: Some("spam".to_owned()),
        csam,
        thread: Vec::new(),
        reported_in_thread: Vec::new(),
        additional: Vec::new(),
    }
}

/// Appeal against the actions on the item.
pub(crate) fn appeal(config_version: ConfigVersion, item: ItemEntry) -> Appeal {
    Appeal {
        org: org(),
        config_version,
        appeal_id: AppealId::new("a1"),
        received_at: Millis::now(),
        request_id: "request".to_owned(),
        appealed_at: Millis::now(),
        appealed_by: user("u1"),
        item,
        actions_taken: Vec::new(),
        violating_policies: Vec::new(),
        reason: None,
        additional: Vec::new(),
    }
}

async fn send_report(world: &World, nth: u8, text: &str, csam: bool) -> Report {
    let report = report(world.version().await, nth, text, csam);
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    report
}

pub(crate) async fn job(world: &World, class: JobClass, generation: i64) -> Job {
    world
        .wait_for("the job", async || {
            let key = (org(), class, "post".into(), "p1".into());
            let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap()?;
            (pointer.generation == generation).then_some(())?;
            world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap()
        })
        .await
}

async fn causes(world: &World, job_id: JobId, count: usize) {
    world
        .wait_for("the causes", async || {
            (world.rows::<JobCause>(&(org(), job_id)).await.len() == count).then_some(())
        })
        .await;
}

/// Claims the next job of the queue.
pub(crate) async fn claim(world: &World, queue: &str) -> Job {
    let reviewer = Reviewer { name: "ann".to_owned(), lease: std::time::Duration::from_secs(600) };
    let queue = QueueId::new(queue);
    world
        .wait_for("a job to claim", async || {
            let (store, order) = (&world.deps.store, QueueOrder::default());
            let next = NextJobRequest {
                queue: &queue,
                order: &order,
                reviewer: &reviewer,
                clearance: Clearance::ChildSafety,
                include_own: false,
            };
            let job = queues::claim_next(store, &org(), next, Millis::now(), |_| 0).await.unwrap().unwrap();
            job.map(|job| job.row().clone())
        })
        .await
}

/// Builds the request of a decision under a claim.
pub(crate) fn request(job: &Job, verdict: Verdict, actions: &[&str]) -> DecisionRequest {
    DecisionRequest {
        verdict,
        actions: actions.iter().map(|action| (*action).into()).collect(),
        parameters: Parameters::new(),
        policies: Vec::new(),
        related: Vec::new(),
        reason: Some("no violation".to_owned()),
        decided_by: "ann".to_owned(),
        epoch: job.epoch,
    }
}

pub(crate) async fn decide(world: &World, queue: &str, verdict: Verdict) -> Job {
    let job = claim(world, queue).await;
    let actions: &[&str] = if verdict == Verdict::Act { &["limit_reach"] } else { &[] };
    let (deps, request) = (world.moderation(), request(&job, verdict, actions));
    decisions::decide(&deps, &authorize(&deps.store, job.job_id).await, &request, SHORT, Millis::now())
        .await
        .unwrap()
        .unwrap();
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_opens_a_job_and_its_item_is_a_version() {
    let mut world = World::started().await;
    let report = send_report(&world, 1, "hello", false).await;
    let job = job(&world, JobClass::Review, 1).await;
    causes(&world, job.job_id, 1).await;
    assert_eq!(job.queue, QueueId::new("default"));
    let row = world.wait_until_evaluated(&post("p1"), report.item.submission_id).await;
    assert_eq!((row.source.to_string(), row.report_id), ("report".to_owned(), Some(report.report_id)));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_joins_an_open_job_and_reopens_a_decided_one() {
    let mut world = World::started().await;
    send_report(&world, 1, "hello", false).await;
    let first = job(&world, JobClass::Review, 1).await;
    send_report(&world, 2, "hello", false).await;
    causes(&world, first.job_id, 2).await;
    decide(&world, "default", Verdict::Ignore).await;
    send_report(&world, 3, "hello", false).await;
    let next = job(&world, JobClass::Review, 2).await;
    causes(&world, next.job_id, 1).await;
    causes(&world, first.job_id, 2).await;
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_csam_report_opens_the_child_safety_job_only() {
    let mut world = World::started().await;
    let report = send_report(&world, 1, "doubtful", true).await;
    let job = job(&world, JobClass::ChildSafety, 1).await;
    assert_eq!(job.queue, QueueId::new("child-safety"));
    let row = world.wait_until_evaluated(&post("p1"), report.item.submission_id).await;
    assert!(row.matched.contains("doubtful"), "the rule asked for a review: {}", row.matched);
    world.drain().await;
    let review = (org(), JobClass::Review, "post".into(), "p1".into());
    assert!(world.deps.store.get::<SubjectJob>(&review).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_strikes_and_an_accepted_appeal_takes_it_back() {
    let mut world = World::new().await;
    let endpoint = "endpoint: platform\nurl: https://platform.example/callbacks\ncustom: {region: eu}\n";
    world.configure(endpoint, false).await;
    world.start();
    send_report(&world, 1, "hello", false).await;
    decide(&world, "default", Verdict::Act).await;
    world
        .wait_for("the callback of the decision", async || world.events("decision.moderator").await.pop())
        .await;
    let strike =
        world.wait_for("the strike", async || world.rows::<Strike>(&(org(), user("u1"))).await.pop()).await;
    assert_eq!(strike.points, 1);

    let item = ItemEntry {
        variant: Variant::Original,
        data: Bytes::from_static(br#"{"text": "hello"}"#),
        ..entry(&post("p1"), "hello")
    };
    let appeal = Appeal {
        actions_taken: vec![Mention { id: "limit_reach".to_owned(), known: true }],
        ..appeal(world.version().await, item)
    };
    world.append(Topic::Appeals, &post("p1").log_key(&org()), &appeal).await;
    let job = decide(&world, "appeals", Verdict::Accept).await;
    assert_eq!((job.class, job.appeal_id), (JobClass::Appeal, Some(AppealId::new("a1"))));
    world.wait_for("the answer to the appeal", async || world.events("appeal.decision").await.pop()).await;
    let reversal = world
        .wait_for("the reversal", async || world.rows::<StrikeReversal>(&(org(), user("u1"))).await.pop())
        .await;
    assert_eq!(reversal.reversed, strike.cause);
    world.drain().await;
    let answer = world.callbacks().await.into_iter().find(|one| one.event_type == "appeal.decision").unwrap();
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((body["appealId"].as_str(), body["appealDecision"].as_str()), (Some("a1"), Some("ACCEPT")));
    let custom = &body["custom"];
    assert_eq!(
        (&custom["region"], &custom["actionsTakenBack"][0]["id"]),
        (&"eu".into(), &"limit_reach".into())
    );
    assert_eq!(body["item"]["typeName"], "post");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreleased_decision_is_released_by_the_next_process() {
    let mut first = World::started().await;
    send_report(&first, 1, "hello", false).await;
    let opened = job(&first, JobClass::Review, 1).await;
    causes(&first, opened.job_id, 1).await;
    first.drain().await;
    // The process is down while a moderator decides.
    decide(&first, "default", Verdict::Act).await;
    let mut second = first.image().await;
    assert!(second.tail(Topic::Decisions).await.is_empty());
    second.start();
    second
        .wait_for("the callback of the decision", async || second.events("decision.moderator").await.pop())
        .await;
    second.drain().await;
    assert_eq!(second.tail(Topic::Decisions).await.len(), 1);
    let job = second.deps.store.get::<Job>(&(org(), opened.job_id)).await.unwrap().unwrap();
    assert_eq!(job.decision_state, Some(DecisionState::Appended));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rules_review_waits_in_the_queue_that_its_action_names() {
    let mut world = World::new().await;
    let documents = "queue: spam\n---\naction: look-at-spam\nkind: enqueue_review\nqueue: spam\n---\n\
                     rule: cheap\nstatus: live\nitem_types: [post]\n\
                     when: {text: {in: [text], words: [cheap]}}\nactions: [look-at-spam]\n";
    world.configure(documents, false).await;
    world.start();
    world.submit_text("p1", "cheap").await;
    let job = job(&world, JobClass::Review, 1).await;
    assert_eq!(job.queue.as_str(), "spam");
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_subscribed_endpoint_receives_each_decision() {
    let mut world = World::new().await;
    let documents = "endpoint: audit\nurl: https://audit.example/\nevents: [decision.moderator]\n---\n\
                     endpoint: other\nurl: https://other.example/\nevents: [appeal.decision]\n";
    world.configure(documents, false).await;
    world.start();
    send_report(&world, 1, "hello", false).await;
    let ignored = decide(&world, "default", Verdict::Ignore).await;
    world
        .wait_for("both endpoints", async || {
            (world.events("decision.moderator").await.len() == 2).then_some(())
        })
        .await;
    send_report(&world, 2, "hello", false).await;
    let acted = decide(&world, "default", Verdict::Act).await;
    world
        .wait_for("both endpoints again", async || {
            (world.events("decision.moderator").await.len() == 4).then_some(())
        })
        .await;
    world.drain().await;
    let sent_events: Vec<(_, serde_json::Value)> = world
        .callbacks()
        .await
        .into_iter()
        .filter(|callback| callback.event_type == "decision.moderator")
        .map(|callback| (callback.endpoint.unwrap(), serde_json::from_slice(&callback.body).unwrap()))
        .collect();
    for endpoint in ["audit", "platform"] {
        let bodies: Vec<_> =
            sent_events.iter().filter(|(to, _)| to.as_str() == endpoint).map(|event| &event.1).collect();
        let [first, second] = bodies[..] else { panic!("{bodies:?}") };
        assert_eq!((first.get("action"), first["decision"]["verdict"].as_str()), (None, Some("ignore")));
        assert_eq!(first["decision"]["actions"], serde_json::json!([]));
        assert!(first["decision"]["decidedAt"].is_string() && first["decision"]["id"].is_string());
        assert_eq!(second["action"]["id"], "limit_reach");
        assert_eq!(second["decision"]["actions"], serde_json::json!([{"id": "limit_reach"}]));
        assert_eq!((&first["item"]["typeName"], &first["item"]["id"]), (&"post".into(), &"p1".into()));
        assert_eq!((&first["creator"]["id"], &first["userStrikeCount"]), (&"u1".into(), &0.into()));
        assert_eq!(second["userStrikeCount"], 1, "its own strike is counted");
        let history = first["custom"]["reportHistory"].as_array().unwrap();
        assert_eq!((history.len(), &history[0]["reporter"]["id"]), (1, &"reporter-1".into()));
        assert_eq!(history[0]["reason"], "spam");
        assert_eq!(first["custom"]["reason"], "no violation");
    }
    assert_ne!(ignored.job_id, acted.job_id);

    // The records are replayed; the stored plans send the same events.
    let mut second = world.image().await;
    second.start();
    second.drain().await;
    assert_eq!(second.events("decision.moderator").await, world.events("decision.moderator").await);
}
