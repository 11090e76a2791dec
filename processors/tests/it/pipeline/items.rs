//! Items reach their rows, their plans and their events.

use tidegate_store::tables::items::{
    items::SubmissionState,
    plans::Plan,
    strikes::{ActionByItem, Strike},
};
use tidegate_stream::Topic;

use super::world::{World, entry, org, post, user};

#[tokio::test(flavor = "multi_thread")]
async fn a_matching_item_is_stored_planned_and_called_back_once() {
    let mut world = World::started().await;
    let submission = world.submit_text("p1", "buy scamcoin").await;
    let row = world.wait_until_evaluated(&post("p1"), submission).await;
    assert_eq!(row.state, SubmissionState::Evaluated);
    assert!(row.matched.contains("demo-scam"), "{}", row.matched);
    assert_eq!(row.config_version, world.version().await);

    world.wait_for("the strike", async || world.rows::<Strike>(&(org(), user("u1"))).await.pop()).await;
    let callbacks = world.callbacks().await;
    assert_eq!(callbacks.len(), 1);
    let body: serde_json::Value = serde_json::from_slice(&callbacks[0].body).unwrap();
    assert_eq!(body["item"], serde_json::json!({"id": "p1", "typeId": "post", "typeName": "post"}));
    assert!(row.actions.contains(&callbacks[0].event_id.to_string()));
    assert_eq!(world.rows::<Plan>(&(org(), submission.0)).await.len(), 1);
    assert_eq!(world.rows::<ActionByItem>(&(org(), "post".into(), "p1".into())).await.len(), 1);
    assert_eq!(world.tail(Topic::Evaluations).await.len(), 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harmless_item_is_stored_without_plan_or_event() {
    let mut world = World::started().await;
    let submission = world.submit_text("p1", "good morning").await;
    let row = world.wait_until_evaluated(&post("p1"), submission).await;
    assert_eq!((row.state.clone(), row.matched.as_str()), (SubmissionState::Evaluated.into(), "[]"));
    world.drain().await;
    assert!(world.callbacks().await.is_empty());
    assert!(world.rows::<Plan>(&(org(), submission.0)).await.is_empty());
    assert!(world.tail(Topic::Evaluations).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_an_item_are_stored_in_the_logs_order() {
    let mut world = World::started().await;
    let mut entries: Vec<_> = (0..20).map(|nth| entry(&post("p1"), &format!("version {nth}"))).collect();
    world.submit(entries.split_off(10)).await;
    let last = entries.last().unwrap().submission_id;
    world.submit(entries).await;
    let rows = world
        .wait_for("all versions", async || {
            Some(world.versions(&post("p1")).await).filter(|rows| rows.len() == 20)
        })
        .await;
    assert_eq!(rows[0].submission_id, last, "the latest is first");
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_see_the_strikes_that_a_user_has() {
    let mut world = World::started().await;
    world.submit_text("p1", "scamcoin").await;
    world.submit_text("p2", "scamcoin").await;
    world
        .wait_for("two strikes", async || {
            (world.rows::<Strike>(&(org(), user("u1"))).await.len() == 2).then_some(())
        })
        .await;
    let submission = world.submit_text("p3", "hello").await;
    let row = world.wait_until_evaluated(&post("p3"), submission).await;
    assert!(row.matched.contains("known-offender"), "{}", row.matched);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_items_of_one_record_are_all_stored() {
    let mut world = World::started().await;
    let entries: Vec<_> = (0..300).map(|nth| entry(&post(&format!("p{nth}")), "hello")).collect();
    let items: Vec<_> = entries.iter().map(|entry| (entry.key(), entry.submission_id)).collect();
    world.submit(entries).await;
    for (item, submission) in items {
        world.wait_until_evaluated(&item, submission).await;
    }
    world.drain().await;
}
