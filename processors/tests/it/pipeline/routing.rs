//! Routing lists choose the queue of jobs, and the first choice stays.

use tidegate_moderation::{reporters, review::queues};
use tidegate_schemas::{
    ids::{Millis, QueueId},
    records::{Appeal, ItemEntry, Report, Verdict},
};
use tidegate_store::tables::review::jobs::{Job, SubjectJob};
use tidegate_stream::Topic;

use super::{
    reviews::{appeal, decide, report},
    world::{World, entry, org, post, user},
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

async fn job(world: &World, class: &str, item: &str) -> Job {
    world
        .until("the job", async || {
            let key = (org(), class.to_owned(), "post".into(), item.into());
            let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap()?;
            world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap()
        })
        .await
}

fn place(job: &Job) -> (&str, Option<&str>) {
    (job.queue.as_str(), job.routed_by.as_deref())
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_and_reviews_wait_where_the_lists_say() {
    let mut world = world().await;
    send(&world, "p1", 1, "my wallet", false).await;
    assert_eq!(place(&job(&world, "review", "p1").await), ("scams", Some("reports/scams")));
    send(&world, "p2", 1, "hello", false).await;
    assert_eq!(place(&job(&world, "review", "p2").await), ("default", None));
    world.submit_text("p3", "doubtful").await;
    assert_eq!(place(&job(&world, "review", "p3").await), ("doubts", Some("rules/doubts")));
    send(&world, "p4", 1, "my wallet", true).await;
    assert_eq!(place(&job(&world, "child_safety", "p4").await), ("child-safety", None));
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
    assert_eq!(place(&job(&world, "review", "p1").await), ("default", None), "nothing is known of the user");
    decide(&world, "default", Verdict::Ignore).await;
    let reporter = user("reporter-7");
    world
        .until("the decision", async || {
            reporters::accuracy(&world.deps.store, &org(), &reporter).await.unwrap()
        })
        .await;
    send(&world, "p2", 7, "hello", false).await;
    assert_eq!(place(&job(&world, "review", "p2").await), ("unlikely", Some("reports/wrong")));
    send(&world, "p3", 8, "hello", false).await;
    assert_eq!(place(&job(&world, "review", "p3").await), ("default", None));
    decide(&world, "unlikely", Verdict::Act).await;
    world
        .until("the other decision", async || {
            let accuracy = reporters::accuracy(&world.deps.store, &org(), &reporter).await.unwrap();
            (accuracy == Some(0.5)).then_some(())
        })
        .await;
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joined_job_and_a_replay_keep_the_first_queue() {
    let mut world = world().await;
    send(&world, "p1", 1, "hello", false).await;
    job(&world, "review", "p1").await;
    // A second reporter would send a new job elsewhere, but this one is open.
    send(&world, "p1", 2, "hello", false).await;
    world.drain().await;
    let first = job(&world, "review", "p1").await;
    assert_eq!(place(&first), ("default", None));

    let mut second = world.image().await;
    second.configure("routing: reports\nentries: [{queue: scams}]\n", false).await;
    second.start();
    second.drain().await;
    assert_eq!(place(&job(&second, "review", "p1").await), ("default", None));
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
    let found = world
        .until("the job", async || {
            let now = Millis::now();
            let (store, org) = (&world.deps.store, org());
            queues::waiting(store, &org, &queue, 1, now, |_| true).await.unwrap().pop()
        })
        .await;
    assert_eq!(place(&found), ("pleas", Some("appeals/1")));
    world.drain().await;
}
