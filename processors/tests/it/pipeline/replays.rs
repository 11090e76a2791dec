//! Work interrupted by a crash is repeated, and its effects happen once.

use tidegate_schemas::records::ItemEntry;
use tidegate_store::tables::items::{
    by_user::{ItemOfUser, stretch},
    strikes::Strike,
};
use tidegate_stream::{Topic, health::Readiness};

use super::world::{World, entry, org, post, user};

const AUTOMATIC: &str = "action.automatic";

/// Creates a world with one completely processed item and no commit.
async fn world_with_processed_item() -> World {
    let world = World::started().await;
    world.submit_text("p1", "scamcoin").await;
    world.wait_for("the strike", async || world.rows::<Strike>(&(org(), user("u1"))).await.pop()).await;
    // The evaluation record is the last effect of an item.
    world.wait_for("its evaluation", async || world.tail(Topic::Evaluations).await.pop()).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_after_a_crash_has_the_same_effects() {
    let mut first = world_with_processed_item().await;
    let mut second = first.image().await;
    first.drain().await;
    second.start();
    // Items of one key are processed in order, so this one follows all replayed versions.
    let marker = second.submit_text("p1", "good morning").await;
    second.wait_until_evaluated(&post("p1"), marker).await;
    second.drain().await;
    assert!(second.callbacks().await.len() > 1, "the replay appended again");
    assert_eq!(second.events(AUTOMATIC).await, first.events(AUTOMATIC).await);
    assert_eq!(second.versions(&post("p1")).await.len(), 2);
    assert_eq!(second.rows::<Strike>(&(org(), user("u1"))).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn item_is_listed_once_for_its_user_after_a_replay() {
    let mut first = world_with_processed_item().await;
    let mut second = first.image().await;
    first.drain().await;
    second.start();
    // The first item has a stored plan. This version follows all replayed ones of its item.
    let marker = second.submit_text("p1", "good morning").await;
    let newest = second.wait_until_evaluated(&post("p1"), marker).await;
    second.drain().await;
    let partition = (org(), user("u1"), stretch(newest.append_ms));
    let item_rows = second.rows::<ItemOfUser>(&partition).await;
    let listed_ids: Vec<_> = item_rows.into_iter().map(|row| row.submission_id).collect();
    let stored = second.versions(&post("p1")).await.into_iter().map(|row| row.submission_id);
    assert_eq!(listed_ids, stored.collect::<Vec<_>>());
    assert_eq!(listed_ids.len(), 2);
}

/// Replays a matched item under other rules and checks that the first plan is carried out.
async fn replay_under(rules: &str) {
    let mut first = world_with_processed_item().await;
    let mut second = first.image().await;
    first.drain().await;
    second.configure(rules, false).await;
    second.start();
    let marker = second.submit_text("p1", "good morning").await;
    second.wait_until_evaluated(&post("p1"), marker).await;
    second.drain().await;
    assert_eq!(second.events(AUTOMATIC).await, first.events(AUTOMATIC).await);
    let rows = second.versions(&post("p1")).await;
    assert!(rows.iter().any(|row| row.matched.contains("demo-scam")), "the row stands");
    assert!(rows.iter().all(|row| !row.matched.contains("other")));
}

const NO_MORE: &str = "rule: demo-scam\nstatus: archived\nwhen: {text: {in: [text], words: [scamcoin]}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn replay_under_rules_without_match_carries_out_the_first_plan() {
    replay_under(NO_MORE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_under_other_actions_carries_out_the_first_plan() {
    let other_rule =
        "rule: other\nstatus: live\nwhen: {text: {in: [text], words: [scamcoin]}}\nactions: [ban]\n";
    replay_under(&format!("{NO_MORE}---\n{other_rule}")).await;
}

/// The first process held more uncommitted records than the budget of the second one allows.
#[tokio::test(flavor = "multi_thread")]
async fn replay_with_a_smaller_budget_reevaluates_no_planned_item() {
    const ITEMS: usize = 6;
    let mut first = World::started().await;
    for _ in 0..ITEMS {
        first.submit_text("p1", "scamcoin").await;
    }
    first
        .wait_for("all evaluations", async || {
            (first.tail(Topic::Evaluations).await.len() == ITEMS).then_some(())
        })
        .await;
    first
        .wait_for("all rows", async || (first.versions(&post("p1")).await.len() == ITEMS).then_some(()))
        .await;
    let mut second = first.image().await;
    first.drain().await;
    second.settings.budget_records = 1;
    second.configure(NO_MORE, false).await;
    second.start();
    let marker = second.submit_text("p1", "good morning").await;
    second.wait_until_evaluated(&post("p1"), marker).await;
    second.drain().await;
    let rows = second.versions(&post("p1")).await;
    assert_eq!(rows.iter().filter(|row| row.matched.contains("demo-scam")).count(), ITEMS);
    assert_eq!(second.events(AUTOMATIC).await, first.events(AUTOMATIC).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_item_that_is_sent_again_is_the_same_submission() {
    let mut world = World::started().await;
    let keyed = ItemEntry { keyed: true, ..entry(&post("p1"), "scamcoin") };
    world.submit(vec![keyed.clone()]).await;
    world.submit(vec![keyed.clone()]).await;
    let marker = world.submit_text("p1", "good morning").await;
    world.wait_until_evaluated(&post("p1"), marker).await;
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), 1);
    assert!(world.rows::<Strike>(&(org(), user("u1"))).await.len() <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_outage_is_reported_and_loses_no_work() {
    let mut world = World::started().await;
    let first_submission = world.submit_text("p0", "hello").await;
    world.wait_until_evaluated(&post("p0"), first_submission).await;
    let held_entry = entry(&post("p1"), "scamcoin");
    let submission = held_entry.submission_id;
    // The outage must start after the configuration is loaded.
    world.deps.live.load_latest(&org()).await.unwrap();
    let record_ready = world.prepare(vec![held_entry]).await;
    world.deps.store.close().await.unwrap();
    world.send(record_ready).await;
    world
        .wait_for("the complaint", async || {
            matches!(world.deps.health.readiness(), Readiness::NotReady { .. }).then_some(())
        })
        .await;
    world.stop().await.unwrap();
    assert!(world.deps.health.readiness().is_ready(), "no part waits any more");
    let mut second = world.image().await;
    second.start();
    let row = second.wait_until_evaluated(&post("p1"), submission).await;
    assert!(row.matched.contains("demo-scam"));
    second.drain().await;
    assert!(second.tail(Topic::DeadLetters).await.is_empty(), "an outage is not poison");
}
