//! Content whose org's configuration is not here: it waits, makes room for others, and is never lost.

use tidegate_catalog::orgs;
use tidegate_moderation::dead_letters::{self, Filter, ReplayOptions};
use tidegate_processors::{MissingSettings, Settings};
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

/// A consumer that is full after four records, and patient for a moment only.
fn small() -> Settings {
    let missing = MissingSettings { grace_ms: 200, ..MissingSettings::default() };
    Settings { budget_records: 4, retry_max_ms: 200, missing, ..Settings::default() }
}

fn other() -> OrgId {
    OrgId::new("other")
}

/// A world with a second org, whose newest version only a newer Tidegate can run; and the text of the one before.
async fn with_an_org_that_does_not_compile(settings: Settings) -> (World, ConfigVersion, String) {
    let world = World::with(settings).await;
    orgs::create(&world.deps.store, &other(), "Other", Millis::now()).await.unwrap();
    world.configure_org(&other(), TYPES).await;
    let current = world.deps.live.latest(&other()).await.unwrap().version();
    let parts = world.rows::<ConfigSnapshot>(&ConfigSnapshot::partition(other(), current)).await;
    let good = parts.into_iter().map(|part| part.documents).collect();
    let newer = r#"{"format":99,"policyOrder":[],"typeVersions":{},"documents":[]}"#;
    let version = move_head(&world, newer).await;
    (world, version, good)
}

const TYPES: &str = "item_type: post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n";

async fn move_head(world: &World, text: &str) -> ConfigVersion {
    let store = &world.deps.store;
    let head = store.get::<ConfigHead>(&ConfigHead::key(other())).await.unwrap().unwrap();
    let version = ConfigVersion(head.config_version.0 + 1);
    let snapshot_id = CauseId::random().0;
    let now = Millis::now();
    let row = ConfigSnapshot {
        org: other(),
        config_version: version,
        snapshot_id,
        part: 0,
        parts: 1,
        documents: text.to_owned(),
        author: "newer".to_owned(),
        created_at: now,
    };
    store.put(WriteTime::of(now, 0), &[row]).await.unwrap();
    let next = ConfigHead { config_version: version, snapshot_id, changed_at: now, ..head.clone() };
    assert!(store.replace(&next, head.version).await.unwrap().is_done());
    version
}

/// Content of the other org, as a process that can run the version accepted it.
async fn accept(world: &World, version: ConfigVersion, id: &str) -> SubmissionId {
    let item = tidegate_schemas::records::ItemEntry {
        data: bytes::Bytes::from_static(br#"{"text": "hello"}"#),
        ..entry(&post(id), "hello")
    };
    let submission = item.submission_id;
    let record = Items { org: other(), config_version: version, ..world.prepare(vec![item]).await };
    world.send(record).await;
    submission
}

async fn letters(world: &World) -> Vec<DeadLetter> {
    world.tail(Topic::DeadLetters).await.iter().map(|tailed| tailed.decode().unwrap()).collect()
}

async fn evaluated_of_other(world: &World, id: &str, submission: SubmissionId) {
    let key = (other(), "post".into(), id.into());
    world
        .until("the item of the other org", async || {
            let rows = world.rows::<tidegate_store::tables::items::items::Item>(&key).await;
            rows.into_iter().find(|row| row.submission_id == submission)
        })
        .await;
}

fn options(again: bool) -> ReplayOptions {
    ReplayOptions { by: "somebody".to_owned(), again }
}

#[tokio::test(flavor = "multi_thread")]
async fn org_whose_config_does_not_compile_waits_alone() {
    let (mut world, version, good) = with_an_org_that_does_not_compile(Settings::default()).await;
    world.start();
    let waiting = accept(&world, version, "w1").await;
    for nth in 0..20 {
        let id = format!("p{nth}");
        let submission = world.submit_text(&id, "hello").await;
        world.evaluated(&post(&id), submission).await;
    }
    assert!(letters(&world).await.is_empty(), "it harms nobody, so it waits");
    assert!(world.deps.health.readiness().is_ready(), "the process is well");
    move_head(&world, &good).await;
    evaluated_of_other(&world, "w1", waiting).await;
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_content_that_blocks_others_goes_to_the_dead_letters() {
    let (mut world, version, good) = with_an_org_that_does_not_compile(small()).await;
    world.start();
    let mut waiting = Vec::new();
    // More than the consumer holds: without room the others behind it would never be read.
    for nth in 0..8 {
        waiting.push(accept(&world, version, &format!("w{nth}")).await);
    }
    for nth in 0..8 {
        let id = format!("p{nth}");
        let submission = world.submit_text(&id, "hello").await;
        world.evaluated(&post(&id), submission).await;
    }
    let all = world
        .until("the dead letters", async || {
            let letters = letters(&world).await;
            (letters.len() == 8).then_some(letters)
        })
        .await;
    assert!(all.iter().all(|letter| letter.reason == "config_missing" && letter.org == Some(other())));
    assert!(all[0].detail.contains("does not compile here"), "{}", all[0].detail);

    move_head(&world, &good).await;
    // As the task that follows changes sees it, before anybody can call it back.
    world.deps.live.latest(&other()).await.unwrap();
    let filter = Filter { reason: Some("config_missing".to_owned()), ..Filter::default() };
    assert_eq!(
        dead_letters::replay(&world.deps.log, &world.deps.store, &filter, &options(false))
            .await
            .unwrap()
            .replayed,
        8
    );
    for (nth, submission) in waiting.into_iter().enumerate() {
        evaluated_of_other(&world, &format!("w{nth}"), submission).await;
    }
    world.drain().await;
}

/// As after an older store was restored: what the log names is gone from it.
#[tokio::test(flavor = "multi_thread")]
async fn lost_config_version_halts_the_consumer_until_it_is_back() {
    let mut world = World::with(small()).await;
    world.start();
    let lost = ConfigVersion(world.version().await.0 + 5);
    let video = ItemKey::new("video", "v1");
    let item = tidegate_schemas::records::ItemEntry {
        data: bytes::Bytes::from_static(br#"{"text": "hello"}"#),
        ..entry(&video, "hello")
    };
    let submission = item.submission_id;
    let record = Items { config_version: lost, ..world.prepare(vec![item]).await };
    world.send(record).await;
    world
        .until("the complaint", async || match world.deps.health.readiness() {
            Readiness::NotReady { why } => why.contains("config_no_such_version").then_some(()),
            Readiness::Ready => None,
        })
        .await;
    // Something is configured, but not yet what the content needs.
    world.configure("policy: first\n", false).await;
    assert!(letters(&world).await.is_empty());
    world.configure("item_type: video\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n", false).await;
    assert!(world.version().await < lost);
    world.evaluated(&video, submission).await;
    world.until("readiness", async || world.deps.health.readiness().is_ready().then_some(())).await;
    world.drain().await;
    assert!(letters(&world).await.is_empty(), "an outage is not poison");
}
