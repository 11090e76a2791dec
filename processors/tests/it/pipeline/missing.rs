//! Content with a missing configuration waits, makes room for other orgs, and is never lost.

use tidegate_catalog::orgs;
use tidegate_moderation::dead_letters::{self, DeadLetterFilter, ReplayOptions};
use tidegate_processors::{MissingConfigSettings, Settings};
use tidegate_schemas::{
    ids::{CauseId, ConfigVersion, ItemKey, Millis, OrgId, SubmissionId},
    records::{DeadLetter, Items},
};
use tidegate_store::{
    WriteTime,
    tables::catalog::configs::{ConfigHead, ConfigSnapshot},
};
use tidegate_stream::{Topic, health::Readiness};

use super::world::{World, entry, post};

/// Settings of a consumer that is full after four records, with a short grace period.
fn small() -> Settings {
    let missing_settings = MissingConfigSettings { grace_ms: 200, ..MissingConfigSettings::default() };
    Settings { budget_records: 4, retry_max_ms: 200, missing: missing_settings, ..Settings::default() }
}

fn other_org() -> OrgId {
    OrgId::new("other")
}

/// Creates a second org with a newest version that only a newer Tidegate can run. Returns the earlier version and its text.
async fn with_an_org_that_does_not_compile(settings: Settings) -> (World, ConfigVersion, String) {
    let world = World::with(settings).await;
    orgs::create(&world.deps.store, &other_org(), "Other", Millis::now()).await.unwrap();
    world.configure_org(&other_org(), TYPES).await;
    let current = world.deps.live.load_latest(&other_org()).await.unwrap().version();
    let parts = world.rows::<ConfigSnapshot>(&ConfigSnapshot::partition(other_org(), current)).await;
    let documents = parts.into_iter().map(|part| part.documents).collect();
    let unreadable_snapshot = r#"{"format":99,"policyOrder":[],"typeVersions":{},"documents":[]}"#;
    let version = move_head(&world, unreadable_snapshot).await;
    (world, version, documents)
}

const TYPES: &str = "item_type: post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n";

async fn move_head(world: &World, text: &str) -> ConfigVersion {
    let store = &world.deps.store;
    let head = store.get::<ConfigHead>(&ConfigHead::key(other_org())).await.unwrap().unwrap();
    let version = ConfigVersion(head.config_version.0 + 1);
    let snapshot_id = CauseId::random().0;
    let current_time = Millis::now();
    let row = ConfigSnapshot {
        org: other_org(),
        config_version: version,
        snapshot_id,
        part: 0,
        parts: 1,
        documents: text.to_owned(),
        author: "newer".to_owned(),
        created_at: current_time,
    };
    store.put_rows(WriteTime::from_append(current_time, 0), &[row]).await.unwrap();
    let next = ConfigHead { config_version: version, snapshot_id, changed_at: current_time, ..head.clone() };
    assert!(store.replace(&next, head.version).await.unwrap().is_done());
    version
}

/// Appends content of the other org, as accepted by a process that can run the version.
async fn accept(world: &World, version: ConfigVersion, id: &str) -> SubmissionId {
    let item = tidegate_schemas::records::ItemEntry {
        data: bytes::Bytes::from_static(br#"{"text": "hello"}"#),
        ..entry(&post(id), "hello")
    };
    let submission = item.submission_id;
    let record = Items { org: other_org(), config_version: version, ..world.prepare(vec![item]).await };
    world.send(record).await;
    submission
}

async fn letters(world: &World) -> Vec<DeadLetter> {
    world.tail(Topic::DeadLetters).await.iter().map(|tailed| tailed.decode().unwrap()).collect()
}

async fn evaluated_of_other(world: &World, id: &str, submission: SubmissionId) {
    let key = (other_org(), "post".into(), id.into());
    world
        .wait_for("the item of the other org", async || {
            let rows = world.rows::<tidegate_store::tables::items::items::Item>(&key).await;
            rows.into_iter().find(|row| row.submission_id == submission)
        })
        .await;
}

fn options(again: bool) -> ReplayOptions {
    ReplayOptions { by: "somebody".to_owned(), include_replayed: again }
}

#[tokio::test(flavor = "multi_thread")]
async fn org_whose_config_does_not_compile_waits_alone() {
    let (mut world, version, documents) = with_an_org_that_does_not_compile(Settings::default()).await;
    world.start();
    let waiting_item = accept(&world, version, "w1").await;
    for nth in 0..20 {
        let id = format!("p{nth}");
        let submission = world.submit_text(&id, "hello").await;
        world.wait_until_evaluated(&post(&id), submission).await;
    }
    assert!(letters(&world).await.is_empty(), "the content blocks no other org, so it waits");
    assert!(world.deps.health.readiness().is_ready(), "the process is ready");
    move_head(&world, &documents).await;
    evaluated_of_other(&world, "w1", waiting_item).await;
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_content_that_blocks_others_goes_to_the_dead_letters() {
    let (mut world, version, documents) = with_an_org_that_does_not_compile(small()).await;
    world.start();
    let mut waiting_items = Vec::new();
    // More than the consumer holds: without room, the content behind it would never be read.
    for nth in 0..8 {
        waiting_items.push(accept(&world, version, &format!("w{nth}")).await);
    }
    for nth in 0..8 {
        let id = format!("p{nth}");
        let submission = world.submit_text(&id, "hello").await;
        world.wait_until_evaluated(&post(&id), submission).await;
    }
    let letters = world
        .wait_for("the dead letters", async || {
            let letters = letters(&world).await;
            (letters.len() == 8).then_some(letters)
        })
        .await;
    assert!(
        letters.iter().all(|letter| letter.reason == "config_missing" && letter.org == Some(other_org()))
    );
    assert!(letters[0].detail.contains("does not compile here"), "{}", letters[0].detail);

    move_head(&world, &documents).await;
    // Loaded as by the task that follows changes.
    world.deps.live.load_latest(&other_org()).await.unwrap();
    let filter =
        DeadLetterFilter { reason: Some("config_missing".to_owned()), ..DeadLetterFilter::default() };
    assert_eq!(
        dead_letters::replay(&world.deps.log, &world.deps.store, &filter, &options(false))
            .await
            .unwrap()
            .replayed,
        8
    );
    for (nth, submission) in waiting_items.into_iter().enumerate() {
        evaluated_of_other(&world, &format!("w{nth}"), submission).await;
    }
    world.drain().await;
}

/// As after the restore of an older store: the log names a version that the store does not have.
#[tokio::test(flavor = "multi_thread")]
async fn lost_config_version_halts_the_consumer_until_it_is_back() {
    let mut world = World::with(small()).await;
    world.start();
    let lost_version = ConfigVersion(world.version().await.0 + 5);
    let video = ItemKey::new("video", "v1");
    let item = tidegate_schemas::records::ItemEntry {
        data: bytes::Bytes::from_static(br#"{"text": "hello"}"#),
        ..entry(&video, "hello")
    };
    let submission = item.submission_id;
    let record = Items { config_version: lost_version, ..world.prepare(vec![item]).await };
    world.send(record).await;
    world
        .wait_for("the complaint", async || match world.deps.health.readiness() {
            Readiness::NotReady { why } => why.contains("config_no_such_version").then_some(()),
            Readiness::Ready => None,
        })
        .await;
    // A new configuration exists, but without the type of the content.
    world.configure("policy: first\n", false).await;
    assert!(letters(&world).await.is_empty());
    world.configure("item_type: video\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n", false).await;
    assert!(world.version().await < lost_version);
    world.wait_until_evaluated(&video, submission).await;
    world.wait_for("readiness", async || world.deps.health.readiness().is_ready().then_some(())).await;
    world.drain().await;
    assert!(letters(&world).await.is_empty(), "an outage is not poison");
}
