//! Routing lists choose the queue of jobs. The list for reports chooses again while a job waits.

use std::sync::Arc;

use serde_json::Value;
use tidegate_moderation::{
    jobs::queue_counts,
    review::{
        moves::{self, MoveRequest},
        queues::{self, ClaimOutcome, Reviewer},
    },
    users::reporters,
};
use tidegate_schemas::{
    ids::{Millis, QueueId},
    records::{Appeal, ItemEntry, JobClass, Report, Verdict},
};
use tidegate_store::tables::review::jobs::{Job, JobCause, SubjectJob};
use tidegate_stream::Topic;
use tidegate_test_support::pictures::{Answer, Host, picture};
use tokio::sync::Semaphore;

use super::{
    media::{short_wait_settings, start_held_host, with_images},
    reviews::{appeal, decide, report},
    world::{World, authorize, entry, org, post, user},
};

const LISTS: &str = "queue: scams\n---\nqueue: often\n---\nqueue: doubts\n---\nqueue: pleas\nclass: appeal\n---\n\
    routing: reports\nentries:\n\
    - {name: scams, when: {text: {in: [text], words: [wallet]}}, queue: scams}\n\
    - {when: {field: {path: report.reporters, gte: 2}}, queue: often}\n---\n\
    routing: rules\nentries:\n\
    - {name: doubts, when: {field: {path: rules.matched, eq: doubtful}}, queue: doubts}\n---\n\
    routing: appeals\nentries:\n\
    - {when: {field: {path: appeal.reason, eq: please}}, queue: pleas}\n";

async fn world() -> World {
    let mut world = World::new().await;
    world.configure(LISTS, false).await;
    world.start();
    world
}

async fn send(world: &World, item: &str, nth: u8, text: &str, csam: bool) {
    let report = report(world.version().await, nth, text, csam);
    let report = Report { item: ItemEntry { id: item.into(), ..report.item }, ..report };
    world.append(Topic::Reports, &post(item).log_key(&org()), &report).await;
}

async fn job(world: &World, class: JobClass, item: &str) -> Job {
    world
        .wait_for("the job", async || {
            let key = (org(), class, "post".into(), item.into());
            let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap()?;
            world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap()
        })
        .await
}

/// Waits until the job of an item has this number of reports.
async fn await_reports(world: &World, class: JobClass, item: &str, count: usize) {
    let job_id = job(world, class, item).await.job_id;
    world
        .wait_for("the reports of the job", async || {
            (world.rows::<JobCause>(&(org(), job_id)).await.len() == count).then_some(())
        })
        .await;
}

fn place(job: &Job) -> (&str, Option<&str>) {
    (job.queue.as_str(), job.routed_by.as_deref())
}

#[tokio::test(flavor = "multi_thread")]
async fn routing_lists_choose_the_queue_of_reports_and_reviews() {
    let mut world = world().await;
    send(&world, "p1", 1, "my wallet", false).await;
    assert_eq!(place(&job(&world, JobClass::Review, "p1").await), ("scams", Some("reports/scams")));
    send(&world, "p2", 1, "hello", false).await;
    assert_eq!(place(&job(&world, JobClass::Review, "p2").await), ("default", None));
    world.submit_text("p3", "doubtful").await;
    assert_eq!(place(&job(&world, JobClass::Review, "p3").await), ("doubts", Some("rules/doubts")));
    send(&world, "p4", 1, "my wallet", true).await;
    assert_eq!(place(&job(&world, JobClass::ChildSafety, "p4").await), ("child-safety", None));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_users_who_were_often_wrong_are_routed_apart() {
    let mut world = World::new().await;
    let list = "queue: unlikely\n---\nrouting: reports\nentries:\n\
                - {name: wrong, when: {field: {path: report.accuracy, lt: 0.5}}, queue: unlikely}\n";
    world.configure(list, false).await;
    world.start();
    send(&world, "p1", 7, "hello", false).await;
    assert_eq!(
        place(&job(&world, JobClass::Review, "p1").await),
        ("default", None),
        "the user has no history"
    );
    decide(&world, "default", Verdict::Ignore).await;
    let reporter = user("reporter-7");
    world
        .wait_for("the decision", async || {
            reporters::load_accuracy(&world.deps.store, &org(), &reporter).await.unwrap()
        })
        .await;
    send(&world, "p2", 7, "hello", false).await;
    assert_eq!(place(&job(&world, JobClass::Review, "p2").await), ("unlikely", Some("reports/wrong")));
    send(&world, "p3", 8, "hello", false).await;
    assert_eq!(place(&job(&world, JobClass::Review, "p3").await), ("default", None));
    decide(&world, "unlikely", Verdict::Act).await;
    world
        .wait_for("the other decision", async || {
            let accuracy = reporters::load_accuracy(&world.deps.store, &org(), &reporter).await.unwrap();
            (accuracy == Some(0.5)).then_some(())
        })
        .await;
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_job_follows_its_reporters_once() {
    let mut world = world().await;
    send(&world, "p1", 1, "hello", false).await;
    assert_eq!(place(&job(&world, JobClass::Review, "p1").await), ("default", None));
    send(&world, "p1", 2, "hello", false).await;
    send(&world, "p1", 3, "hello", false).await;
    await_reports(&world, JobClass::Review, "p1", 3).await;
    world.drain().await;
    let moved_job = job(&world, JobClass::Review, "p1").await;
    assert_eq!(place(&moved_job), ("often", Some("reports/2")));
    assert_eq!(moved_job.priority, 1, "three reporters double the priority once");
    assert_eq!((count_open_jobs(&world, "default").await, count_open_jobs(&world, "often").await), (0, 1));

    let mut second = world.image().await;
    second.start();
    second.drain().await;
    let same_job = job(&second, JobClass::Review, "p1").await;
    assert_eq!(
        (place(&same_job), &same_job.moves),
        (place(&moved_job), &moved_job.moves),
        "a replay moves no job"
    );
    assert_eq!((count_open_jobs(&second, "default").await, count_open_jobs(&second, "often").await), (0, 1));
}

async fn count_open_jobs(world: &World, queue: &str) -> i64 {
    let queue = QueueId::new(queue);
    queue_counts::load_counts(&world.deps.store, &org(), &queue, Millis::now()).await.unwrap().open
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_entry_of_a_joining_report_counts() {
    let mut world = world().await;
    send(&world, "p1", 1, "hello", false).await;
    job(&world, JobClass::Review, "p1").await;
    send(&world, "p1", 2, "my wallet", false).await;
    send(&world, "p1", 3, "hello", false).await;
    await_reports(&world, JobClass::Review, "p1", 3).await;
    world.drain().await;
    assert_eq!(place(&job(&world, JobClass::Review, "p1").await), ("scams", Some("reports/scams")));
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_and_moved_jobs_are_not_routed_again() {
    let mut world = world().await;
    let (deps, now) = (world.moderation(), Millis::now());
    let mut waiting_jobs = Vec::new();
    for item in ["free", "claimed", "moved", "kept", "safe"] {
        send(&world, item, 1, "hello", item == "safe").await;
        let class = if item == "safe" { JobClass::ChildSafety } else { JobClass::Review };
        waiting_jobs.push(job(&world, class, item).await.job_id);
    }
    let ann = Reviewer { name: "ann".to_owned(), lease: std::time::Duration::from_secs(600) };
    let claim =
        queues::claim(&deps.store, &authorize(&deps.store, waiting_jobs[1]).await, &ann, now).await.unwrap();
    assert!(matches!(claim, ClaimOutcome::Claimed(_)), "{claim:?}");
    for (job, queue) in [(waiting_jobs[2], "doubts"), (waiting_jobs[3], "default")] {
        let request = MoveRequest { queue: QueueId::new(queue), by: "ann".to_owned(), reason: None };
        assert_eq!(
            moves::move_job(&deps, &authorize(&deps.store, job).await, &request, now).await.unwrap(),
            Ok(job)
        );
    }
    for item in ["free", "claimed", "moved", "kept", "safe"] {
        send(&world, item, 2, "hello", item == "safe").await;
        let class = if item == "safe" { JobClass::ChildSafety } else { JobClass::Review };
        await_reports(&world, class, item, 2).await;
    }
    world.drain().await;
    for (item, class, expected) in [
        ("free", JobClass::Review, ("often", Some("reports/2"))),
        ("claimed", JobClass::Review, ("default", None)),
        ("moved", JobClass::Review, ("doubts", None)),
        ("kept", JobClass::Review, ("default", None)),
        ("safe", JobClass::ChildSafety, ("child-safety", None)),
    ] {
        assert_eq!(place(&job(&world, class, item).await), expected, "{item}");
    }
    let mut counts = Vec::new();
    for queue in ["default", "often", "doubts", "child-safety"] {
        counts.push(count_open_jobs(&world, queue).await);
    }
    assert_eq!(counts, [2, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replayed_report_of_a_decided_job_does_not_route_the_next_one() {
    let mut world = World::new().await;
    let list = "queue: scams\n---\nrouting: reports\nentries:\n\
                - {when: {text: {in: [text], words: [wallet]}}, queue: scams}\n";
    world.configure(list, false).await;
    world.start();
    send(&world, "p1", 1, "my wallet", false).await;
    let first = job(&world, JobClass::Review, "p1").await;
    assert_eq!(place(&first), ("scams", Some("reports/1")));
    decide(&world, "scams", Verdict::Ignore).await;
    send(&world, "p1", 2, "hello", false).await;
    let second = world
        .wait_for("the next job", async || {
            Some(job(&world, JobClass::Review, "p1").await).filter(|job| job.generation == 2)
        })
        .await;
    assert_eq!(place(&second), ("default", None));
    await_reports(&world, JobClass::Review, "p1", 1).await;
    world.drain().await;

    let mut replay = world.image().await;
    replay.start();
    replay.drain().await;
    let same_job = job(&replay, JobClass::Review, "p1").await;
    assert_eq!((place(&same_job), &same_job.moves), (("default", None), &None));
}

const FINDINGS: &str = "queue: spam\n---\nqueue: pictures\n---\nrule: plain\nstatus: live\nitem_types: [post]\n\
    when: {text: {in: [text], words: [badword]}}\nactions: [ban]\n---\n\
    routing: reports\nentries:\n\
    - {name: spam, when: {field: {path: rules.matched, eq: plain}}, queue: spam}\n\
    - {name: pictures, when: {field: {path: media.banks, eq: known}}, queue: pictures}\n";

#[tokio::test(flavor = "multi_thread")]
async fn first_report_is_routed_by_the_rules_that_its_text_matches() {
    let mut world = World::new().await;
    world.configure(FINDINGS, false).await;
    world.start();
    send(&world, "p1", 1, "a badword", false).await;
    let first = job(&world, JobClass::Review, "p1").await;
    assert_eq!((place(&first), &first.moves), (("spam", Some("reports/spam")), &None));
    world.drain().await;
    let routed = job(&world, JobClass::Review, "p1").await;
    assert_eq!((place(&routed), &routed.moves), (("spam", Some("reports/spam")), &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn first_report_opens_its_job_at_once_and_follows_its_pictures() {
    let quick = Host::start(|_| Answer::Picture(picture(1))).await.unwrap();
    let go = Arc::new(Semaphore::new(0));
    let slow = start_held_host(&go).await;
    let mut world =
        World::with_media_ports(short_wait_settings(), &[quick.address.port(), slow.address.port()]).await;
    world.start();
    let known_picture = with_images(&post("known"), &[quick.url("a.bmp")]);
    world.submit(vec![known_picture]).await;
    let hash = world
        .wait_for("the hash of the picture", async || {
            let row = world.versions(&post("known")).await.pop()?;
            let media: Value = serde_json::from_str(&row.media).unwrap();
            media[0]["pdq"].as_str().map(str::to_owned)
        })
        .await;
    let bank = format!("bank: known\nkind: pdq\ndistance: 0\nentries: [{hash}]\n---\n{FINDINGS}");
    world.configure(&bank, false).await;
    let report = report(world.version().await, 1, "look", false);
    let entry = with_images(&post("p1"), &[slow.url("b.bmp")]);
    let entry = ItemEntry { submission_id: report.item.submission_id, ..entry };
    let report = Report { item: entry, ..report };
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    assert_eq!(
        place(&job(&world, JobClass::Review, "p1").await),
        ("default", None),
        "the host has not answered yet"
    );
    go.add_permits(8);
    let moved_job = world
        .wait_for("the job to follow its pictures", async || {
            Some(job(&world, JobClass::Review, "p1").await).filter(|job| job.moves.is_some())
        })
        .await;
    assert_eq!(place(&moved_job), ("pictures", Some("reports/pictures")));
    world.drain().await;
    assert_eq!((count_open_jobs(&world, "default").await, count_open_jobs(&world, "pictures").await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn appeals_are_routed_by_their_own_list() {
    let mut world = world().await;
    let appeal = Appeal {
        reason: Some("please".to_owned()),
        ..appeal(world.version().await, entry(&post("p1"), "hello"))
    };
    world.append(Topic::Appeals, &post("p1").log_key(&org()), &appeal).await;
    let queue = QueueId::new("pleas");
    let job = world
        .wait_for("the job", async || {
            let current_time = Millis::now();
            let (store, org) = (&world.deps.store, org());
            queues::list_waiting(store, &org, &queue, 1, current_time, |_| true).await.unwrap().pop()
        })
        .await;
    assert_eq!(place(&job), ("pleas", Some("appeals/1")));
    world.drain().await;
}
