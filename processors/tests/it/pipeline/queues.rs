//! Settings of queues: priorities of jobs, and required and forbidden parts of decisions.

use tidegate_moderation::{
    child_safety::Clearance,
    jobs::{
        queue_counts::{self, QueueFlow},
        stored_decision::Parameters,
    },
    review::{
        decisions::{self, DecisionRefusal, DecisionRequest},
        queues::{self, NextJobRequest, Reviewer},
    },
};
use tidegate_processors::Settings;
use tidegate_schemas::{
    documents::QueueOrder,
    ids::{Millis, QueueId},
    records::{JobClass, Mention, Verdict},
};
use tidegate_store::tables::review::jobs::{DecisionState, Job, JobState, SubjectJob};
use tidegate_stream::Topic;

use super::{
    reviews::report,
    world::{SHORT, World, authorize, org, post},
};

const STRICT: &str = "queue: default\nhidden_actions: [ban]\nrequire: {reason: true, policy: true}\n\
                      order: {severity: 2}\n---\npolicy: scam\nname: Scam\nseverity: high\n";

async fn claim(world: &World) -> Job {
    let reviewer = Reviewer { name: "ann".to_owned(), lease: std::time::Duration::from_secs(600) };
    let (store, queue) = (&world.deps.store, QueueId::new("default"));
    world
        .wait_for("a job to claim", async || {
            let order = QueueOrder::default();
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

#[tokio::test(flavor = "multi_thread")]
async fn severity_of_the_reported_policy_raises_the_priority() {
    let mut world = World::new().await;
    world.configure(STRICT, false).await;
    world.start();
    let config = world.deps.live.load_latest(&org()).await.unwrap();
    let policy = config.policies().iter().find(|policy| policy.key == "scam").unwrap().id.to_string();
    let mut report = report(world.version().await, 1, "hello", false);
    report.policy_id = Some(Mention { id: policy, known: true });
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    assert_eq!(claim(&world).await.priority, 6);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_requirements_and_hidden_actions_bind_decisions() {
    let mut world = World::new().await;
    world.configure(STRICT, false).await;
    world.start();
    let report = report(world.version().await, 1, "hello", false);
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    let job = claim(&world).await;
    let config = world.deps.live.load_latest(&org()).await.unwrap();
    let valid_request = DecisionRequest {
        verdict: Verdict::Act,
        actions: vec!["limit_reach".into()],
        parameters: Parameters::new(),
        policies: vec![config.policies()[0].id.clone()],
        related: Vec::new(),
        reason: Some("a scam".to_owned()),
        decided_by: "ann".to_owned(),
        epoch: job.epoch,
    };
    let deps = world.moderation();
    let decide = async |request: &DecisionRequest| {
        decisions::decide(&deps, &authorize(&deps.store, job.job_id).await, request, SHORT, Millis::now())
            .await
            .unwrap()
    };
    for (wrong, at) in [
        (DecisionRequest { reason: None, ..valid_request.clone() }, "/reason"),
        (DecisionRequest { reason: Some(" ".to_owned()), ..valid_request.clone() }, "/reason"),
        (DecisionRequest { policies: Vec::new(), ..valid_request.clone() }, "/policies"),
        (
            DecisionRequest { actions: vec!["limit_reach".into(), "ban".into()], ..valid_request.clone() },
            "/actions/1",
        ),
    ] {
        let refusal = decide(&wrong).await.unwrap_err();
        assert!(
            matches!(&refusal, DecisionRefusal::Invalid { pointer, .. } if pointer == at),
            "{at}: {refusal:?}"
        );
    }
    decide(&valid_request).await.unwrap();
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_job_is_closed_once_and_no_replay_opens_it() {
    let mut world = World::with(Settings { auto_close_every_ms: 1_000, ..Settings::default() }).await;
    world.configure("queue: default\nauto_close_after: 1s\n", false).await;
    world.start();
    let first = report(world.version().await, 1, "hello", false);
    world.append(Topic::Reports, &post("p1").log_key(&org()), &first).await;
    let newest = async |world: &World| {
        let key = (org(), JobClass::Review, "post".into(), "p1".into());
        let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap()?;
        world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap()
    };
    let is_closed = |job: &Job| job.state == JobState::Closed;
    let closed = world.wait_for("a closed job", async || newest(&world).await.filter(is_closed)).await;
    assert_eq!((closed.generation, &closed.decision), (1, &None));
    world.drain().await;
    assert!(world.callbacks().await.is_empty(), "no decision was made");

    let mut second = world.image().await;
    second.start();
    let later_report = report(second.version().await, 2, "hello", false);
    second.append(Topic::Reports, &post("p1").log_key(&org()), &later_report).await;
    // This report follows the replayed first one.
    let next = second
        .wait_for("the next job", async || newest(&second).await.filter(|job| job.generation == 2))
        .await;
    assert_ne!(next.job_id, closed.job_id);
    let row = second.deps.store.get::<Job>(&(org(), closed.job_id)).await.unwrap().unwrap();
    assert_eq!((row.closed_at, row.version), (closed.closed_at, closed.version));
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_follow_jobs_and_are_the_same_after_a_replay() {
    let mut world = World::started().await;
    for (nth, item) in (1..).zip(["p1", "p2", "p3"]) {
        let mut report = report(world.version().await, nth, "hello", false);
        report.item.id = item.into();
        world.append(Topic::Reports, &post(item).log_key(&org()), &report).await;
    }
    let queue = QueueId::new("default");
    let counts = async |world: &World| {
        let current_time = Millis::now();
        queue_counts::load_counts(&world.deps.store, &org(), &queue, current_time).await.unwrap()
    };
    world.wait_for("three jobs", async || (counts(&world).await.open == 3).then_some(())).await;
    let job = claim(&world).await;
    let lease = std::time::Duration::from_secs(600);
    let claim_next = async |world: &World| {
        let current_time = Millis::now();
        queue_counts::count_claimed(&world.deps.store, &org(), &queue, lease, current_time).await.unwrap()
    };
    assert_eq!(claim_next(&world).await, 1);
    let request = DecisionRequest {
        verdict: Verdict::Ignore,
        actions: Vec::new(),
        parameters: Parameters::new(),
        policies: Vec::new(),
        related: Vec::new(),
        reason: None,
        decided_by: "ann".to_owned(),
        epoch: job.epoch,
    };
    let deps = world.moderation();
    decisions::decide(&deps, &authorize(&deps.store, job.job_id).await, &request, SHORT, Millis::now())
        .await
        .unwrap()
        .unwrap();
    world.wait_for("two jobs", async || (counts(&world).await.open == 2).then_some(())).await;
    assert_eq!(
        (counts(&world).await.last_hour, claim_next(&world).await),
        (QueueFlow { opened: 3, closed: 1 }, 0)
    );
    world.drain().await;

    let mut second = world.image().await;
    second.start();
    second
        .wait_for("the decision again", async || {
            let row = second.deps.store.get::<Job>(&(org(), job.job_id)).await.unwrap()?;
            (row.decision_state == Some(DecisionState::Appended)).then_some(())
        })
        .await;
    second.drain().await;
    let after = counts(&second).await;
    assert_eq!((after.open, after.last_hour), (2, QueueFlow { opened: 3, closed: 1 }));
    // Hours later the counts are read from the sums.
    let hours_later = Millis::now().plus(std::time::Duration::from_secs(7_300));
    let store = &second.deps.store;
    let rolled = queue_counts::load_counts(store, &org(), &queue, hours_later).await.unwrap();
    assert_eq!((rolled.open, rolled.last_hour), (2, QueueFlow::default()));
    assert_eq!(rolled.last_day, QueueFlow { opened: 3, closed: 1 });
    assert_eq!(queue_counts::load_counts(store, &org(), &queue, hours_later).await.unwrap(), rolled);
}
