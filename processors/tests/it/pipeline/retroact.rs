//! Retroactive rules act on older items once, on the newest version only, also across crashes.

use std::time::Duration;

use tidegate_moderation::{
    child_safety::Clearance,
    items::stored,
    reevaluation::retroact::{self, RetroactionResponse, RunRefusal, RunRequest},
};
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::{JobClass, Source},
};
use tidegate_store::{
    RowRange,
    tables::items::{items::Item, retroactions::Retroaction, windows::HoursEntry},
};
use tidegate_stream::Topic;

use super::{
    reviews::{job, report},
    world::{World, entry, org, post},
};

const AUTOMATIC: &str = "action.automatic";

const MOON: &str = "\
rule: moon
status: live
item_types: [post]
when: {text: {in: [text], words: [moon]}}
actions: [limit_reach, ban]
---
rule: quiet
status: background
item_types: [post]
when: {text: {in: [text], words: [moon]}}
actions: [ban]
";

fn run_request(rule: &str, dry_run: bool) -> RunRequest {
    let current_time = Millis::now();
    RunRequest {
        rules: vec![rule.into()],
        since: current_time.minus(Duration::from_secs(7_200)),
        until: Millis(current_time.0 + 1),
        dry_run,
        clearance: Clearance::None,
        by: "test".to_owned(),
    }
}

async fn begin(world: &World, rule: &str, dry_run: bool) -> RetroactionResponse {
    retroact::begin(&world.moderation(), &org(), run_request(rule, dry_run), Millis::now())
        .await
        .unwrap()
        .unwrap()
}

async fn step(world: &World, run: &RetroactionResponse) -> Result<RetroactionResponse, RunRefusal> {
    step_as(world, run, Clearance::ChildSafety).await
}

async fn step_as(
    world: &World,
    run: &RetroactionResponse,
    clearance: Clearance,
) -> Result<RetroactionResponse, RunRefusal> {
    retroact::step(&world.moderation(), &org(), run.id, clearance, 1_000, 1_000, || false).await.unwrap()
}

pub(crate) async fn run_to_end(world: &World, rule: &str, dry_run: bool) -> RetroactionResponse {
    let mut run = begin(world, rule, dry_run).await;
    while run.finished_at.is_none() {
        run = step(world, &run).await.unwrap();
    }
    run
}

/// Waits for the row of the repeated submission of a run.
pub(crate) async fn wait_for_repeat(world: &World, id: &str) -> Item {
    world
        .wait_for("an item that was sent again", async || {
            let rows = world.versions(&post(id)).await;
            rows.into_iter().find(|row| row.source == Source::Retroact)
        })
        .await
}

/// Waits until `events` events were sent. The rows of an action are written before its event.
async fn wait_for_events(world: &World, events: usize) {
    world
        .wait_for("the events", async || (world.events(AUTOMATIC).await.len() >= events).then_some(()))
        .await;
}

async fn submit(world: &World, texts: &[(&str, &str)]) {
    let mut sent_ids: Vec<(&str, SubmissionId)> = Vec::new();
    for (id, text) in texts {
        sent_ids.push((id, world.submit_text(id, text).await));
    }
    for (id, submission) in sent_ids {
        world.wait_until_evaluated(&post(id), submission).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_acts_on_older_items_and_repeats_nothing() {
    let mut world = World::started().await;
    submit(&world, &[("p1", "moon"), ("p2", "a moon"), ("p3", "hello"), ("p4", "scamcoin moon")]).await;
    wait_for_events(&world, 1).await;
    world.configure(MOON, false).await;

    let dry_run = run_to_end(&world, "moon", true).await;
    assert_eq!((dry_run.progress.items, dry_run.progress.matched, dry_run.progress.sent), (4, 3, 3));
    assert_eq!(world.versions(&post("p1")).await.len(), 1, "a dry run sends no item");

    let run = run_to_end(&world, "moon", false).await;
    assert_eq!(run.progress, dry_run.progress);
    let actions: Vec<_> =
        run.progress.actions.iter().map(|(action, count)| (action.as_str(), *count)).collect();
    assert_eq!(actions, [("ban", 3), ("limit_reach", 2)], "one was taken before");
    for id in ["p1", "p2", "p4"] {
        let row = wait_for_repeat(&world, id).await;
        assert!(row.matched.contains("moon") && !row.matched.contains("demo-scam"), "{}", row.matched);
    }
    assert!(wait_for_repeat(&world, "p4").await.actions.contains("duplicate"));
    wait_for_events(&world, 6).await;
    let second_run = run_to_end(&world, "moon", false).await;
    assert_eq!((second_run.progress.sent, second_run.progress.done_before), (0, 3));
    // A repeated evaluation is not a newer version.
    let newest = stored::load_newest(&world.deps.store, &org(), &post("p1")).await.unwrap().unwrap();
    assert_eq!(newest.source, Source::Api);
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), 6);
    assert_eq!(world.callbacks().await.iter().filter(|it| it.event_type == AUTOMATIC).count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn retroact_step_repeated_after_a_crash_has_the_same_effects() {
    let mut world = World::started().await;
    submit(&world, &[("p1", "moon"), ("p2", "moon")]).await;
    world.configure(MOON, false).await;
    let run = begin(&world, "moon", false).await;
    let before = world.deps.store.get::<Retroaction>(&(org(), run.id)).await.unwrap().unwrap();
    step(&world, &run).await.unwrap();
    wait_for_repeat(&world, "p1").await;
    // State of the run at the time of the repeated submissions.
    let retroaction = world.deps.store.get::<Retroaction>(&(org(), run.id)).await.unwrap().unwrap();
    assert!(world.deps.store.replace(&before, retroaction.version).await.unwrap().is_done());
    let mut run = step(&world, &run).await.unwrap();
    while run.finished_at.is_none() {
        run = step(&world, &run).await.unwrap();
    }
    assert_eq!(run.progress.done_before + run.progress.sent, 2, "counted once");
    wait_for_repeat(&world, "p2").await;
    wait_for_events(&world, 4).await;
    for id in ["p1", "p2"] {
        assert_eq!(world.versions(&post(id)).await.len(), 2, "one submission, however often it is sent");
    }
    // A replay of all records under other rules has the same effects.
    let mut replayed = world.image().await;
    replayed.configure(&MOON.replace("[limit_reach, ban]", "[ban]"), false).await;
    replayed.start();
    replayed.submit_text("last", "harmless").await;
    replayed.wait_for("the last item", async || replayed.versions(&post("last")).await.pop()).await;
    replayed.drain().await;
    world.drain().await;
    assert_eq!((world.events(AUTOMATIC).await.len(), replayed.events(AUTOMATIC).await.len()), (4, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn retroact_acts_on_the_newest_version_and_counts_nothing() {
    let mut world = World::started().await;
    world.configure("window: by-author\nitem_types: [post]\nover: 6h\n", false).await;
    submit(&world, &[("p1", "moon"), ("p2", "moon")]).await;
    submit(&world, &[("p1", "harmless")]).await;
    world.configure(MOON, false).await;
    let run = run_to_end(&world, "moon", false).await;
    assert_eq!((run.progress.superseded, run.progress.sent), (1, 1));
    wait_for_repeat(&world, "p2").await;
    let mut rows = 0;
    let bucket = Millis::now().0.div_euclid(900_000);
    for bucket in bucket - 2..=bucket {
        let partition = (org(), "by-author".into(), "user/u1".to_owned(), bucket);
        rows += world.deps.store.scan::<HoursEntry>(&partition, RowRange::all()).all().await.unwrap().len();
    }
    assert_eq!(rows, 3);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_inactive_or_changed_rules_is_refused() {
    let world = World::new().await;
    world.configure(MOON, false).await;
    let begin_of = async |rules: &[&str]| {
        let rules = rules.iter().map(|rule| (*rule).into()).collect();
        let request = RunRequest { rules, ..run_request("moon", false) };
        retroact::begin(&world.moderation(), &org(), request, Millis::now()).await.unwrap()
    };
    assert_eq!(begin_of(&[]).await.unwrap_err(), RunRefusal::NoRules);
    assert_eq!(begin_of(&["moon", "sun"]).await.unwrap_err(), RunRefusal::NoSuchRule("sun".into()));
    assert_eq!(begin_of(&["quiet"]).await.unwrap_err(), RunRefusal::NotLive("quiet".into()));
    let run = begin_of(&["moon"]).await.unwrap();
    world.configure(&MOON.replace("words: [moon]", "words: [moon, stars]"), false).await;
    assert_eq!(step(&world, &run).await.unwrap_err(), RunRefusal::Changed("moon".into()));
    let stranger = RetroactionResponse { id: entry(&post("x"), "").submission_id.0, ..run };
    assert_eq!(step(&world, &stranger).await.unwrap_err(), RunRefusal::NoSuchRun);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_leaves_out_items_of_child_safety() {
    let mut world = World::started().await;
    submit(&world, &[("p1", "moon"), ("p2", "moon")]).await;
    world.configure(MOON, false).await;
    let report = report(world.version().await, 1, "moon", true);
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    job(&world, JobClass::ChildSafety, 1).await;
    world.wait_until_evaluated(&post("p1"), report.item.submission_id).await;

    let begin = async |clearance| {
        let request = RunRequest { clearance, ..run_request("moon", true) };
        retroact::begin(&world.moderation(), &org(), request, Millis::now()).await.unwrap().unwrap()
    };
    let without_clearance = begin(Clearance::None).await;
    assert_eq!(step(&world, &without_clearance).await.unwrap().progress.items, 1);
    let cleared = begin(Clearance::ChildSafety).await;
    assert_eq!(step_as(&world, &cleared, Clearance::None).await.unwrap_err(), RunRefusal::ChildSafety);
    assert_eq!(step(&world, &cleared).await.unwrap().progress.items, 3);
    let listed_runs = retroact::list_runs(&world.deps.store, &org(), Clearance::None).await.unwrap();
    assert_eq!(listed_runs.iter().map(|run| run.id).collect::<Vec<_>>(), [without_clearance.id]);
    world.drain().await;
}
