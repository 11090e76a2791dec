//! Unprocessable content is sent to the dead letters alone and can be replayed.

use tidegate_catalog::orgs;
use tidegate_moderation::dead_letters::{self, DeadLetterFilter, ReplayOptions, ReplayResponse};
use tidegate_processors::{PoisonSettings, RoleError, Settings};
use tidegate_schemas::{
    ids::{ItemKey, Millis, OrgId},
    records::{DeadLetter, Items},
};
use tidegate_store::tables::items::{items::SubmissionState, plans::Plan, strikes::Strike};
use tidegate_stream::{Record, Topic};

use super::world::{World, entry, entry_of, org, post, store_of_rows, user};

fn of_unknown_type(id: &str) -> tidegate_schemas::records::ItemEntry {
    entry_of(&ItemKey::new("video", id), r#"{"text": "hello"}"#.to_owned())
}

async fn letters(world: &World, count: usize) -> Vec<DeadLetter> {
    world
        .wait_for("the dead letters", async || {
            let letters = world.tail(Topic::DeadLetters).await;
            (letters.len() >= count).then(|| letters.iter().map(|tailed| tailed.decode().unwrap()).collect())
        })
        .await
}

fn options(again: bool) -> ReplayOptions {
    ReplayOptions { by: "somebody".to_owned(), include_replayed: again }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_unprocessable_item_is_dead_lettered() {
    let mut world = World::started().await;
    let (good_entry, bad, other_entry) =
        (entry(&post("p1"), "hello"), of_unknown_type("v1"), entry(&post("p2"), "hello"));
    let submissions = (good_entry.submission_id, bad.submission_id, other_entry.submission_id);
    world.submit(vec![good_entry, bad, other_entry]).await;
    world.wait_until_evaluated(&post("p1"), submissions.0).await;
    world.wait_until_evaluated(&post("p2"), submissions.2).await;
    let letter = letters(&world, 1).await.remove(0);
    assert_eq!((letter.reason.as_str(), letter.stage.as_str()), ("unknown_type", "items"));
    assert_eq!(letter.submission_id, Some(submissions.1));
    assert_eq!(letter.org, Some(org()));
    world.drain().await;
    assert_eq!(world.tail(Topic::DeadLetters).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_of_invalid_data_names_no_values() {
    let mut world = World::started().await;
    world.submit(vec![entry_of(&post("p1"), r#"{"text": {"secret": 5}}"#.to_owned())]).await;
    let letter = letters(&world, 1).await.remove(0);
    assert_eq!(letter.reason, "unfit_data");
    assert!(!letter.detail.contains("secret"), "{}", letter.detail);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_record_is_dead_lettered_unchanged() {
    let mut world = World::started().await;
    let partition = world.deps.log.partition(Topic::Reports, b"key");
    world.deps.log.append(&[(partition, Record::new(b"key", &[255_u8; 9][..]))]).await.unwrap();
    let letter = letters(&world, 1).await.remove(0);
    assert_eq!((letter.reason.as_str(), letter.stage.as_str()), ("malformed_record", "reports"));
    assert!(letter.value.ends_with(&[255; 9]));
    // The org of the record is unknown, so only the operator sees it.
    for (include_unowned, listed) in [(true, 1), (false, 0)] {
        let filter = DeadLetterFilter { org: Some(org()), include_unowned, ..DeadLetterFilter::default() };
        let page =
            dead_letters::list_letters(&world.deps.log, &world.deps.store, &filter, 10, None).await.unwrap();
        assert_eq!(page.items.len(), listed, "{include_unowned}");
    }
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_list_no_content_and_are_replayed_in_order() {
    let mut world = World::started().await;
    let late_entry = entry(&post("p1"), "scamcoin");
    let bad = tidegate_schemas::records::ItemEntry {
        data: bytes::Bytes::from_static(br#"{"text": "scamcoin", "extra": 1}"#),
        ..late_entry
    };
    let submission = bad.submission_id;
    // The type of the item does not exist yet.
    let renamed = tidegate_schemas::records::ItemEntry { type_id: "video".into(), ..bad };
    world.submit(vec![renamed]).await;
    letters(&world, 1).await;
    world
        .configure(
            "item_type: video\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n---\n\
             rule: videos\nstatus: live\nitem_types: [video]\nwhen: {text: {in: [text], words: [scamcoin]}}\n\
             actions: [limit_reach]\n",
            false,
        )
        .await;
    let key = ItemKey::new("video", "p1");
    let newer_entry = entry(&key, "hello");
    let newest = newer_entry.submission_id;
    world.submit(vec![newer_entry]).await;
    world.wait_until_evaluated(&key, newest).await;

    let page = dead_letters::list_letters(
        &world.deps.log,
        &world.deps.store,
        &DeadLetterFilter::default(),
        10,
        None,
    )
    .await
    .unwrap();
    assert_eq!(page.items.len(), 1);
    assert!(!serde_json::to_string(&page).unwrap().contains("scamcoin"));
    let other_filter = DeadLetterFilter { org: Some(OrgId::new("other")), ..DeadLetterFilter::default() };
    assert!(
        dead_letters::list_letters(&world.deps.log, &world.deps.store, &other_filter, 10, None)
            .await
            .unwrap()
            .items
            .is_empty()
    );

    let one = DeadLetterFilter { id: Some(page.items[0].id.clone()), ..DeadLetterFilter::default() };
    let (log, store) = (&world.deps.log, &world.deps.store);
    assert_eq!(dead_letters::replay(log, store, &one, &options(false)).await.unwrap().replayed, 1);
    let marked = dead_letters::list_letters(log, store, &DeadLetterFilter::default(), 10, None)
        .await
        .unwrap()
        .items
        .remove(0);
    assert!(page.items[0].replayed_at.is_none() && marked.replayed_at.is_some());
    assert_eq!(marked.replayed_by.as_deref(), Some("somebody"));
    let replay_counts = |replayed, skipped| ReplayResponse { replayed, skipped, refused: 0 };
    for (which, again, expected) in [
        (&DeadLetterFilter::default(), false, replay_counts(0, 1)),
        (&DeadLetterFilter::default(), true, replay_counts(1, 0)),
        (&one, false, replay_counts(1, 0)),
        (
            &DeadLetterFilter { id: Some("nope".to_owned()), ..DeadLetterFilter::default() },
            false,
            replay_counts(0, 0),
        ),
    ] {
        let replayed = dead_letters::replay(log, store, which, &options(again)).await.unwrap();
        assert_eq!(replayed, expected, "{which:?}, {again}");
    }
    let row = world.wait_until_evaluated(&key, submission).await;
    assert_eq!(row.state, SubmissionState::Evaluated);
    assert!(row.matched.contains("videos") && row.actions.contains("superseded"), "{}", row.actions);
    let versions = world.versions(&key).await;
    assert_eq!(versions[0].submission_id, newest, "the replayed one did not overtake");
    world.drain().await;
    assert!(world.callbacks().await.is_empty(), "an older version takes no action");
}

/// A plan is stored before the row, which the store may refuse.
#[tokio::test(flavor = "multi_thread")]
async fn stored_plan_of_superseded_content_is_not_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let open_store = |max_row_bytes| store_of_rows(&db, max_row_bytes);
    let mut world = World::on(open_store(20_000)).await;
    world.start();
    let scams = ["p1", "p2"].map(|id| entry(&post(id), &format!("scamcoin {}", "long ".repeat(10_000))));
    let [overtaken, other] = scams.each_ref().map(|scam| scam.submission_id);
    for scam in scams {
        world.submit(vec![scam]).await;
    }
    for letter in letters(&world, 2).await {
        assert_eq!(letter.reason, "store_row_too_large");
        let cause = letter.submission_id.unwrap().0;
        assert_eq!(world.rows::<Plan>(&(org(), cause)).await.len(), 1, "{}", letter.detail);
    }
    let newer_submission = world.submit_text("p1", "good morning").await;
    world.wait_until_evaluated(&post("p1"), newer_submission).await;
    world.drain().await;

    world.deps.store = open_store(1_000_000);
    // In the second round all rows exist already.
    for again in [false, true] {
        world.start();
        let (log, store) = (&world.deps.log, &world.deps.store);
        let replayed =
            dead_letters::replay(log, store, &DeadLetterFilter::default(), &options(again)).await.unwrap();
        assert_eq!(replayed, ReplayResponse { replayed: 2, skipped: 0, refused: 0 });
        for id in ["p1", "p2"] {
            let marker = world.submit_text(id, "good evening").await;
            world.wait_until_evaluated(&post(id), marker).await;
        }
        let row = world.wait_until_evaluated(&post("p1"), overtaken).await;
        assert!(row.matched.contains("demo-scam") && row.actions.contains("superseded"), "{}", row.actions);
        assert!(!row.actions.contains("eventId"), "{}", row.actions);
        let row = world.wait_until_evaluated(&post("p2"), other).await;
        assert!(row.actions.contains("eventId") && !row.actions.contains("superseded"), "{}", row.actions);
        world.wait_for("the strike", async || world.rows::<Strike>(&(org(), user("u1"))).await.pop()).await;
        world.drain().await;
        assert_eq!(world.rows::<Strike>(&(org(), user("u1"))).await.len(), 1, "only the other one's");
        let callbacks = world.callbacks().await;
        let subjects: Vec<_> = callbacks.iter().map(|callback| callback.subject.id.as_str()).collect();
        assert!(!subjects.is_empty() && subjects.iter().all(|id| *id == "p2"), "{subjects:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn org_with_mostly_poison_is_diverted_alone() {
    let poison = PoisonSettings { least: 3, ..PoisonSettings::default() };
    let mut world = World::with(Settings { poison, ..Settings::default() }).await;
    let other_org = OrgId::new("other");
    orgs::create(&world.deps.store, &other_org, "Other", Millis::now()).await.unwrap();
    world.start();
    for nth in 0..3 {
        world.submit_as(&other_org, vec![of_unknown_type(&format!("v{nth}"))]).await;
    }
    letters(&world, 3).await;
    // The org is diverted after its dead letters are durable; parts before that are processed.
    let diverted = world
        .wait_for("a diverted item", async || {
            world.submit_as(&other_org, vec![of_unknown_type("more")]).await;
            let letters = world.tail(Topic::DeadLetters).await;
            letters
                .iter()
                .map(|tailed| tailed.decode::<DeadLetter>().unwrap())
                .find(|letter| letter.reason == "org_diverted")
        })
        .await;
    assert_eq!(diverted.org, Some(other_org));
    let submission = world.submit_text("p1", "hello").await;
    world.wait_until_evaluated(&post("p1"), submission).await;
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_of_several_orgs_stops_the_role() {
    let poison = PoisonSettings { least: 1, orgs: 2, ..PoisonSettings::default() };
    let mut world = World::with(Settings { poison, ..Settings::default() }).await;
    let other_org = OrgId::new("other");
    orgs::create(&world.deps.store, &other_org, "Other", Millis::now()).await.unwrap();
    world.start();
    world.submit(vec![of_unknown_type("v1")]).await;
    world.submit_as(&other_org, vec![of_unknown_type("v1")]).await;
    let ended = world.wait_for_end().await;
    assert!(matches!(&ended, Err(RoleError::Poison { role, .. }) if role.0 == "items"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_holds_one_item_with_its_coordinates() {
    let mut world = World::started().await;
    world.submit(vec![entry(&post("p1"), "hello"), of_unknown_type("v1")]).await;
    let letter = letters(&world, 1).await.remove(0);
    let at = world.tail(Topic::DeadLetters).await[0].at;
    let datum = world.deps.log.unframe(at, Topic::Items, &letter.value).unwrap();
    let record = <Items as tidegate_schemas::records::Record>::decode(&datum).unwrap();
    assert_eq!(record.items.len(), 1);
    let origin = record.items[0].origin.unwrap();
    assert_eq!((origin.append_ms, origin.offset, origin.position), (letter.written_at, letter.offset, 1));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_the_store_rejects_is_dead_lettered() {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    too_large_rows(World::on(store_of_rows(&db, 20_000)).await).await;
}

/// On any engine: content above the store's limit and content below it.
pub(crate) async fn too_large_rows(mut world: World) {
    world.start();
    let large = entry(&post("p1"), &"long ".repeat(10_000));
    let submission = large.submission_id;
    world.submit(vec![large]).await;
    let letter = letters(&world, 1).await.remove(0);
    assert_eq!((letter.reason.as_str(), letter.stage.as_str()), ("store_row_too_large", "items"));
    assert_eq!(letter.submission_id, Some(submission));
    assert!(letter.detail.contains("table items"), "{}", letter.detail);
    let good_submission = world.submit_text("p2", "hello").await;
    world.wait_until_evaluated(&post("p2"), good_submission).await;
    assert!(world.deps.health.readiness().is_ready(), "no part waits");
    // The item's key is above the key limit of any engine, but a row with the item's name is refused for its size first.
    let long = ItemKey::new("post", "i".repeat(70_000));
    world.submit(vec![entry(&long, "hello")]).await;
    let good_submission = world.submit_text("p3", "hello").await;
    world.wait_until_evaluated(&post("p3"), good_submission).await;
    let letter = letters(&world, 2).await.remove(1);
    assert_eq!(letter.reason, "store_row_too_large");
    assert!(letter.detail.contains("table items_by_hour"), "{}", letter.detail);
    world.drain().await;
}
