//! A user's strikes cross a threshold once, however they arrive.

use tidegate_schemas::{
    ids::{CauseId, Millis},
    records::Strike,
};
use tidegate_store::tables::items::strikes as tables;
use tidegate_stream::Topic;
use uuid::Uuid;

use super::world::{World, org, post, user};

const THRESHOLD: &str = "user.threshold";

async fn strike(world: &World, cause: u128, at: Millis, reverses: Option<u128>) {
    let strike = Strike {
        org: org(),
        user: user("u1"),
        cause: CauseId(Uuid::from_u128(cause)),
        at,
        points: 1,
        action: "limit_reach".into(),
        item: post("p1"),
        reverses: reverses.map(|cause| CauseId(Uuid::from_u128(cause))),
        config_version: world.version().await,
    };
    world.append(Topic::Strikes, &user("u1").log_key(&org()), &strike).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threshold_is_crossed_once_despite_replays_and_late_strikes() {
    let mut world = World::started().await;
    let now = Millis::now();
    for cause in 1..=3 {
        strike(&world, cause, now, None).await;
    }
    // Replayed, and one that was caused before the others and came last.
    strike(&world, 3, now, None).await;
    strike(&world, 1, now, None).await;
    strike(&world, 4, Millis(now.0 - 60_000), None).await;
    world
        .until("all strikes", async || {
            (world.rows::<tables::Strike>(&(org(), user("u1"))).await.len() == 4).then_some(())
        })
        .await;
    world.drain().await;
    let events = world.events(THRESHOLD).await;
    assert_eq!(events.len(), 1);
    let callback = world.callbacks().await.into_iter().find(|one| one.event_type == THRESHOLD).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&callback.body).unwrap();
    assert_eq!(body["userStrikeCount"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_strike_does_not_count_towards_the_threshold() {
    let mut world = World::started().await;
    let now = Millis::now();
    strike(&world, 1, now, None).await;
    strike(&world, 2, now, None).await;
    strike(&world, 100, now, Some(1)).await;
    strike(&world, 3, now, None).await;
    world
        .until("the third strike", async || {
            (world.rows::<tables::Strike>(&(org(), user("u1"))).await.len() == 3).then_some(())
        })
        .await;
    world.drain().await;
    assert!(world.events(THRESHOLD).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn three_scams_of_one_user_cross_the_threshold() {
    let mut world = World::started().await;
    for id in ["p1", "p2", "p3"] {
        world.submit_text(id, "scamcoin").await;
    }
    world.until("the crossing", async || world.events(THRESHOLD).await.pop()).await;
    world.drain().await;
    assert_eq!(world.events(THRESHOLD).await.len(), 1);
    assert_eq!(world.events("action.automatic").await.len(), 3);
}
