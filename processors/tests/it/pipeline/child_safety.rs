//! Actions of kind `enqueue_child_safety`, by rules, thresholds and moderators.

use serde_json::Value;
use tidegate_moderation::review::{
    comments,
    decisions::{self, DecisionRefusal},
};
use tidegate_schemas::{
    ids::{ItemKey, Millis},
    records::{Decision, JobClass, Verdict},
};
use tidegate_store::tables::review::jobs::{CauseKind, Job, JobCause, SubjectJob};
use tidegate_stream::Topic;
use tidegate_test_support::pictures::{Answer, Host, picture};

use super::{
    media::{long_wait_settings, with_images},
    reviews::{claim, report, request},
    world::{SHORT, World, authorize, org, post, user},
};

const DOCUMENTS: &str = "\
queue: minors
class: child_safety
---
action: hand_over
kind: enqueue_child_safety
---
action: hand_over_user
kind: enqueue_child_safety
queue: minors
---
rule: known-hash
status: live
on: [item, report]
item_types: [post]
when: {text: {in: [text], words: [match]}}
actions: [hand_over]
---
threshold: three
strikes: 3
within: 30d
action: hand_over_user
";

async fn world() -> World {
    let mut world = World::new().await;
    world.configure(DOCUMENTS, false).await;
    world.start();
    world
}

/// Returns the first job of the class for the item, with its causes.
async fn job(world: &World, class: JobClass, item: &ItemKey) -> Option<(Job, Vec<JobCause>)> {
    let key = (org(), class, item.type_id.clone(), item.id.clone());
    let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap()?;
    assert_eq!(pointer.generation, 1);
    let job = world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap()?;
    Some((job, world.rows::<JobCause>(&(org(), pointer.job_id)).await))
}

async fn wait_for_job(world: &World, item: &ItemKey) -> (Job, Vec<JobCause>) {
    world
        .wait_for("the child-safety job", async || {
            job(world, JobClass::ChildSafety, item).await.filter(|(_, causes)| !causes.is_empty())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_opens_a_child_safety_job_and_no_review() {
    let mut world = world().await;
    world.submit_text("p1", "match").await;
    let (child_safety_job, causes) = wait_for_job(&world, &post("p1")).await;
    assert_eq!(
        (child_safety_job.queue.as_str(), child_safety_job.priority),
        ("child-safety", 8),
        "it is severe without a policy"
    );
    assert_eq!((causes.len(), causes[0].kind), (1, CauseKind::Rule));
    assert!(causes[0].rules.contains("known-hash"), "{}", causes[0].rules);
    // A later version joins the job that is open.
    world.submit_text("p1", "match doubtful").await;
    world
        .wait_for("the second cause", async || {
            (wait_for_job(&world, &post("p1")).await.1.len() == 2).then_some(())
        })
        .await;
    world.drain().await;
    let (review, causes) = job(&world, JobClass::Review, &post("p1")).await.unwrap();
    assert_ne!(review.job_id, child_safety_job.job_id);
    assert_eq!(causes.len(), 1, "only the rule that asks for a review is a cause of the review");
    assert!(world.events("action.automatic").await.is_empty(), "no callback is sent");

    let mut second = world.image().await;
    second.start();
    second.drain().await;
    assert_eq!(wait_for_job(&second, &post("p1")).await.1.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_adds_its_hit_to_the_job_of_a_child_safety_report() {
    let mut world = world().await;
    let report = report(world.version().await, 1, "match", true);
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    world
        .wait_for("both causes", async || {
            (wait_for_job(&world, &post("p1")).await.1.len() == 2).then_some(())
        })
        .await;
    world.drain().await;
    assert!(job(&world, JobClass::Review, &post("p1")).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn threshold_escalates_the_user_to_its_queue() {
    let mut world = world().await;
    for id in ["p1", "p2", "p3"] {
        world.submit_text(id, "scamcoin").await;
    }
    let (job, causes) = wait_for_job(&world, &user("u1")).await;
    assert_eq!((job.queue.as_str(), causes[0].kind), ("minors", CauseKind::Threshold));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_to_escalate_is_recorded_with_its_reason() {
    let mut world = world().await;
    world.submit_text("p1", "doubtful").await;
    let review = claim(&world, "default").await;
    let deps = world.moderation();
    let decide = async |job: &Job, actions: &[&str]| {
        let request = request(job, Verdict::Act, actions);
        decisions::decide(&deps, &authorize(&deps.store, job.job_id).await, &request, SHORT, Millis::now())
            .await
            .unwrap()
    };
    decide(&review, &["hand_over"]).await.unwrap();
    world.wait_for("its callback", async || world.events("decision.moderator").await.pop()).await;
    // The record is appended again, as after a crash of the scanner.
    let record: Decision = world.tail(Topic::Decisions).await[0].decode().unwrap();
    world.append(Topic::Decisions, &post("p1").log_key(&org()), &record).await;
    world.wait_for("the second round", async || (world.callbacks().await.len() == 2).then_some(())).await;
    let (child_safety, causes) = wait_for_job(&world, &post("p1")).await;
    assert_eq!((causes.len(), causes[0].kind, causes[0].submission_id), (1, CauseKind::Escalation, None));
    let store = world.deps.store.clone();
    let escalated_job = authorize(&store, child_safety.job_id).await;
    let comments = async || {
        let comments = comments::list_comments(&store, &escalated_job, None, 10).await.unwrap();
        comments.0.into_iter().map(|comment| (comment.author, comment.text)).collect::<Vec<_>>()
    };
    let expected_comments = vec![("ann".to_owned(), "no violation".to_owned())];
    world.wait_for("the reason", async || (comments().await == expected_comments).then_some(())).await;

    let claimed_job = claim(&world, "child-safety").await;
    let refusal = decide(&claimed_job, &["limit_reach", "hand_over"]).await.unwrap_err();
    assert!(
        matches!(&refusal, DecisionRefusal::Invalid { pointer, .. } if pointer == "/actions/1"),
        "{refusal:?}"
    );
    world.drain().await;
    assert_eq!(comments().await, expected_comments);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_match_opens_a_child_safety_job_without_a_report() {
    let host = Host::start(|_| Answer::Picture(picture(1))).await.unwrap();
    let mut world = World::with_media_ports(long_wait_settings(), &[host.address.port()]).await;
    world.start();
    let send = async |item: &str| {
        let entry = with_images(&post(item), &[host.url("a.bmp")]);
        let submission = entry.submission_id;
        world.submit(vec![entry]).await;
        world.wait_until_evaluated(&post(item), submission).await
    };
    let before = send("before").await;
    let media: Value = serde_json::from_str(&before.media).unwrap();
    let documents = format!(
        "bank: known\nkind: pdq\ndistance: 0\nentries: [{}]\n---\n\
         action: hand_over\nkind: enqueue_child_safety\n---\nrule: known\nstatus: live\n\
         item_types: [post]\nwhen: {{media: {{in: [images], bank: known}}}}\nactions: [hand_over]\n",
        media[0]["pdq"].as_str().unwrap()
    );
    world.configure(&documents, false).await;
    send("after").await;
    let (_, causes) = wait_for_job(&world, &post("after")).await;
    assert!(causes[0].rules.contains("known"), "{}", causes[0].rules);
    assert!(job(&world, JobClass::ChildSafety, &post("before")).await.is_none());
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn child_safety_decision_is_sent_to_cleared_endpoints_only() {
    let mut world = world().await;
    let wait_for_endpoints = async |world: &World, count: usize| {
        let callbacks = async || {
            let all = world.callbacks().await.into_iter();
            let all: Vec<_> = all.filter(|it| it.event_type == "decision.moderator").collect();
            (all.len() == count).then_some(all)
        };
        let all = world.wait_for("the callbacks", callbacks).await;
        all.into_iter().map(|it| it.endpoint.map(|endpoint| endpoint.to_string())).collect::<Vec<_>>()
    };
    world.submit_text("p1", "match").await;
    wait_for_job(&world, &post("p1")).await;
    let decide = async |world: &World| {
        let job = claim(world, "child-safety").await;
        let (deps, request) = (world.moderation(), request(&job, Verdict::Ignore, &[]));
        decisions::decide(&deps, &authorize(&deps.store, job.job_id).await, &request, SHORT, Millis::now())
            .await
            .unwrap()
            .unwrap();
    };
    decide(&world).await;
    // The only endpoint lacks the clearance, so the event waits for a cleared one.
    assert_eq!(wait_for_endpoints(&world, 1).await, [None]);
    let safety = "endpoint: safety\nurl: https://safety.example/\nchild_safety: true\n";
    world.configure(safety, false).await;
    world.submit_text("p2", "match").await;
    wait_for_job(&world, &post("p2")).await;
    decide(&world).await;
    assert_eq!(wait_for_endpoints(&world, 2).await, [None, Some("safety".to_owned())]);
    world.drain().await;
}
