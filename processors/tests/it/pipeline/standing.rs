//! A user's strikes cross a threshold once, however they arrive.

use tidegate_moderation::{
    effects::events::CrossedThreshold,
    review::job_view::{self, CauseLimits},
};
use tidegate_schemas::{
    ids::{CauseId, Millis},
    records::{JobClass, Strike},
};
use tidegate_store::tables::{
    items::strikes as tables,
    review::jobs::{CauseKind, Job, JobCause, SubjectJob},
};
use tidegate_stream::Topic;
use uuid::Uuid;

use super::world::{World, authorize, org, post, user};

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
    let current_time = Millis::now();
    for cause in 1..=3 {
        strike(&world, cause, current_time, None).await;
    }
    // Two replays, and a late strike with an earlier cause.
    strike(&world, 3, current_time, None).await;
    strike(&world, 1, current_time, None).await;
    strike(&world, 4, Millis(current_time.0 - 60_000), None).await;
    world
        .wait_for("all strikes", async || {
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
    let current_time = Millis::now();
    strike(&world, 1, current_time, None).await;
    strike(&world, 2, current_time, None).await;
    strike(&world, 100, current_time, Some(1)).await;
    strike(&world, 3, current_time, None).await;
    world
        .wait_for("the third strike", async || {
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
    world.wait_for("the crossing", async || world.events(THRESHOLD).await.pop()).await;
    world.drain().await;
    assert_eq!(world.events(THRESHOLD).await.len(), 1);
    assert_eq!(world.events("action.automatic").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn threshold_that_enqueues_a_review_opens_a_job_about_the_user() {
    let mut world = World::new().await;
    let documents = "queue: people\n---\naction: look-at-user\nkind: enqueue_review\nqueue: people\n---\n\
                     threshold: three\nstrikes: 3\nwithin: 30d\naction: look-at-user\n";
    world.configure(documents, false).await;
    world.start();
    for id in ["p1", "p2", "p3"] {
        world.submit_text(id, "scamcoin").await;
    }
    world.wait_for("the crossing", async || world.events(THRESHOLD).await.pop()).await;
    world.drain().await;
    let assert_one_job = async |world: &World| {
        let key = (org(), JobClass::Review, "user".into(), "u1".into());
        let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap().unwrap();
        let job = world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap().unwrap();
        assert_eq!((job.item, job.queue.as_str(), job.generation), (user("u1"), "people", 1));
        let causes = world.rows::<JobCause>(&(org(), pointer.job_id)).await;
        assert_eq!(causes.len(), 1);
        assert_eq!((causes[0].kind, causes[0].submission_id), (CauseKind::Threshold, None));
        let config = world.deps.live.load_latest(&org()).await.unwrap();
        let limits = CauseLimits { causes: 10, bytes: 1_000_000 };
        let job = authorize(&world.deps.store, pointer.job_id).await;
        let view = job_view::load_view(&world.deps.store, &config, &job, limits).await.unwrap().unwrap();
        let crossed = CrossedThreshold { id: "three".to_owned(), limit: 3, strikes: 3 };
        assert_eq!(view.causes[0].threshold.as_ref(), Some(&crossed));
        let callback = world.callbacks().await.into_iter().find(|one| one.event_type == THRESHOLD).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&callback.body).unwrap();
        assert_eq!(body["threshold"], serde_json::to_value(crossed).unwrap());
        assert_eq!(world.events(THRESHOLD).await.len(), 1, "the callback is sent in any case");
    };
    assert_one_job(&world).await;
    // Every record is replayed, because commits occur only at a stop.
    let mut second = world.image().await;
    second.start();
    second.drain().await;
    assert_one_job(&second).await;
}
