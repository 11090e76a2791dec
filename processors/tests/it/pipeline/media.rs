//! Items wait for their media, briefly in `items` and long in `items-slow`, and end in a visible state.

use std::sync::Arc;

use tidegate_moderation::{items::stored, review::job_view};
use tidegate_processors::{MediaSettings, Settings};
use tidegate_schemas::{
    ids::ItemKey,
    records::{ContextItem, ItemEntry, JobClass, Variant},
    wire::answers::Media,
};
use tidegate_store::tables::{
    items::items::{Item, SubmissionState},
    review::jobs::{Job, SubjectJob},
};
use tidegate_stream::Topic;
use tidegate_test_support::pictures::{Answer, Host, picture};
use tokio::sync::Semaphore;

use super::{
    reviews::report,
    world::{World, authorize, entry_of, org, post},
};

const RULES: &str = r"
rule: unseen
status: live
item_types: [post]
when: {media: {in: [images], state: [fetch_failed, blocked_address, too_large]}}
actions: [ban]
---
rule: seen
status: live
item_types: [post]
when: {media: {in: [images], state: [ok, low_quality]}}
actions: [limit_reach]
";

/// The field is built in, so the item type of the world does not declare it.
pub(crate) fn with_images(item: &ItemKey, urls: &[String]) -> ItemEntry {
    let author = serde_json::json!({"typeId": "user", "id": "u1"});
    entry_of(item, serde_json::json!({"text": "look", "author": author, "images": urls}).to_string())
}

/// Settings with which items are handed over at once, unless their media are remembered.
pub(crate) fn short_wait_settings() -> Settings {
    Settings { media: MediaSettings { wait_ms: 1, ..MediaSettings::default() }, ..Settings::default() }
}

/// Settings with waits that no test reaches.
pub(crate) fn long_wait_settings() -> Settings {
    let media = MediaSettings { wait_ms: 60_000, slow_wait_ms: 60_000, ..MediaSettings::default() };
    Settings { media, ..Settings::default() }
}

pub(crate) async fn world(settings: Settings, hosts: &[&Host]) -> World {
    let ports: Vec<_> = hosts.iter().map(|host| host.address.port()).collect();
    let mut world = World::with_media_ports(settings, &ports).await;
    world.configure(RULES, false).await;
    world.start();
    world
}

fn media(row: &Item) -> Vec<Media> {
    serde_json::from_str(&row.media).unwrap()
}

pub(crate) fn states(row: &Item) -> Vec<(String, Option<String>)> {
    media(row).into_iter().map(|medium| (medium.state, medium.reason)).collect()
}

/// Starts a host that sends its picture after the test adds a permit.
pub(crate) async fn start_held_host(go: &Arc<Semaphore>) -> Host {
    let go = Arc::clone(go);
    Host::start(move |_| Answer::After(Arc::clone(&go), Box::new(Answer::Picture(picture(1))))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_see_the_media_of_an_item_and_its_row_shows_them() {
    let host = Host::start(|head| match head.split(' ').nth(1).unwrap() {
        "/gone" => Answer::Head("404 Not Found".to_owned(), Vec::new()),
        _ => Answer::Picture(picture(1)),
    });
    let host = host.await.unwrap();
    let mut world = world(long_wait_settings(), &[&host]).await;
    let good_entry = with_images(&post("good"), &[host.url("a.bmp"), host.url("a.bmp")]);
    let bad = with_images(&post("bad"), &[host.url("gone"), "http://10.0.0.1/a.png".to_owned()]);
    let (good_id, bad_id) = (good_entry.submission_id, bad.submission_id);
    world.submit(vec![good_entry, bad]).await;
    let row = world.wait_until_evaluated(&post("good"), good_id).await;
    let shown_media = media(&row);
    assert_eq!((shown_media.len(), shown_media[0].state.as_str()), (1, "ok"));
    assert!(
        shown_media[0].pdq.as_ref().unwrap().len() == 64
            && shown_media[0].sha256.as_ref().unwrap().len() == 64
    );
    assert!(row.matched.contains("\"seen\"") && !row.matched.contains("unseen"), "{}", row.matched);
    let row = world.wait_until_evaluated(&post("bad"), bad_id).await;
    let failed = |reason: &str| ("fetch_failed".to_owned(), Some(reason.to_owned()));
    assert_eq!(states(&row), [failed("http_404"), failed("url_port")]);
    assert!(row.matched.contains("unseen"), "{}", row.matched);
    let answer = stored::load_answer(&world.deps.store, &org(), &post("bad"), None).await.unwrap().unwrap();
    assert!(answer.media.get().contains("http_404"));
    world.drain().await;
    assert!(world.tail(Topic::ItemsSlow).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn item_with_slow_media_is_handed_over_and_evaluated_later() {
    let go = Arc::new(Semaphore::new(0));
    let host = start_held_host(&go).await;
    let mut world = world(short_wait_settings(), &[&host]).await;
    let entry = with_images(&post("p1"), &[host.url("a.bmp")]);
    let submission = entry.submission_id;
    world.submit(vec![entry]).await;
    let row = world.wait_for("the accepted row", async || world.versions(&post("p1")).await.pop()).await;
    assert_eq!((row.state.clone(), row.submission_id), (SubmissionState::Accepted.into(), submission));
    assert_eq!(states(&row), [("pending".to_owned(), None)]);
    let text = world.submit_text("p2", "hello").await;
    world.wait_until_evaluated(&post("p2"), text).await;
    assert_eq!(
        world.versions(&post("p1")).await[0].state,
        SubmissionState::Accepted,
        "another item did not wait for the media"
    );
    go.add_permits(1);
    let row = world
        .wait_for("the evaluated row", async || {
            world.versions(&post("p1")).await.pop().filter(|row| row.state == SubmissionState::Evaluated)
        })
        .await;
    assert_eq!((states(&row)[0].0.as_str(), row.matched.contains("\"seen\"")), ("ok", true));
    assert_eq!(world.versions(&post("p1")).await.len(), 1, "the row keeps the position of its first record");
    world.drain().await;
    assert_eq!(host.asked("").len(), 1, "the running inspection continued");
    assert_eq!(world.events("action.automatic").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_fetch_ends_in_a_visible_state() {
    let host = Host::start(|_| Answer::Never).await.unwrap();
    let media = MediaSettings { wait_ms: 1, slow_wait_ms: 50, ..MediaSettings::default() };
    let mut world = world(Settings { media, ..Settings::default() }, &[&host]).await;
    let entry = with_images(&post("p1"), &[host.url("a.bmp")]);
    world.submit(vec![entry]).await;
    let row = world
        .wait_for("the evaluated row", async || {
            world.versions(&post("p1")).await.pop().filter(|row| row.state == SubmissionState::Evaluated)
        })
        .await;
    assert_eq!(states(&row), [("fetch_failed".to_owned(), Some("deadline".to_owned()))]);
    assert!(row.matched.contains("unseen"), "{}", row.matched);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_host_does_not_affect_items_of_other_hosts() {
    let hanging = Host::start(|_| Answer::Never).await.unwrap();
    let good_host = Host::start(|_| Answer::Picture(picture(1))).await.unwrap();
    // More items hang than are processed concurrently.
    let media = MediaSettings { wait_ms: 60_000, ..MediaSettings::default() };
    let mut world =
        world(Settings { concurrency: 4, media, ..Settings::default() }, &[&hanging, &good_host]).await;
    let stuck =
        (0..30).map(|nth| with_images(&post(&format!("stuck-{nth}")), &[hanging.url(&nth.to_string())]));
    world.submit(stuck.collect()).await;
    let url = |nth: u32| format!("http://localhost:{}/{nth}", good_host.address.port());
    let fine: Vec<_> = (0..30).map(|nth| with_images(&post(&format!("fine-{nth}")), &[url(nth)])).collect();
    let ids: Vec<_> = fine.iter().map(|entry| (entry.key(), entry.submission_id)).collect();
    world.submit(fine).await;
    for (item, submission) in ids {
        let row = world.wait_until_evaluated(&item, submission).await;
        assert_eq!(states(&row)[0].0, "ok");
    }
    assert!(world.versions(&post("stuck-0")).await.is_empty());
    // Waiting items remain for the next start; the stop does not wait for them.
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn org_above_its_share_of_waits_is_handed_over() {
    let go = Arc::new(Semaphore::new(0));
    let host = start_held_host(&go).await;
    let mut settings = long_wait_settings();
    settings.media.waiting_per_org = 1;
    let mut world = world(settings, &[&host]).await;
    let entries: Vec<_> =
        (0..3).map(|nth| with_images(&post(&format!("p{nth}")), &[host.url(&nth.to_string())])).collect();
    world.submit(entries).await;
    world
        .wait_for("two handed over", async || (world.tail(Topic::ItemsSlow).await.len() == 2).then_some(()))
        .await;
    go.add_permits(3);
    for nth in 0..3 {
        world
            .wait_for("an evaluated row", async || {
                let row = world.versions(&post(&format!("p{nth}"))).await.pop();
                row.filter(|row| row.state == SubmissionState::Evaluated)
            })
            .await;
    }
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_handed_over_before_a_crash_has_its_effects_once() {
    let go = Arc::new(Semaphore::new(0));
    let host = start_held_host(&go).await;
    let mut world = world(short_wait_settings(), &[&host]).await;
    let entry = with_images(&post("p1"), &[host.url("a.bmp")]);
    let submission = entry.submission_id;
    world.submit(vec![entry]).await;
    world.wait_for("the slow record", async || world.tail(Topic::ItemsSlow).await.pop()).await;
    // No record was committed: both are read again, and the host answers this time.
    let mut after = world.image().await;
    world.stop().await.unwrap();
    go.add_permits(16);
    after.start();
    let row = after
        .wait_for("the evaluated row", async || {
            let rows = after.versions(&post("p1")).await.into_iter();
            rows.rev().find(|row| row.submission_id == submission && row.state == SubmissionState::Evaluated)
        })
        .await;
    assert!(row.matched.contains("\"seen\""), "{}", row.matched);
    after.drain().await;
    assert_eq!(after.versions(&post("p1")).await.len(), 1);
    assert_eq!(after.events("action.automatic").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_opens_before_its_pictures_and_shows_them_later() {
    let go = Arc::new(Semaphore::new(0));
    let host = start_held_host(&go).await;
    let mut world = world(long_wait_settings(), &[&host]).await;
    let mut report_record = report(world.version().await, 1, "look", true);
    report_record.thread = vec![ContextItem {
        type_id: "post".into(),
        id: "before".into(),
        type_version: None,
        variant: Variant::Partial,
        data: serde_json::json!({"images": [host.url("a.bmp")]}).to_string().into(),
        fault: None,
        as_sent: None,
    }];
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report_record).await;
    let job = world
        .wait_for("the job", async || {
            let key = (org(), JobClass::ChildSafety, "post".into(), "p1".into());
            let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap()?;
            world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap()
        })
        .await;
    world.wait_for("the request", async || host.asked("").pop()).await;
    let media = async || {
        let limits = job_view::CauseLimits { causes: 10, bytes: usize::MAX };
        let causes = job_view::load_causes(
            &world.deps.store,
            &world.deps.live.org(&org()).unwrap(),
            &authorize(&world.deps.store, job.job_id).await,
            None,
            limits,
        )
        .await;
        causes.unwrap().0.into_iter().flat_map(|cause| cause.media).next()
    };
    assert!(media().await.is_none());
    go.add_permits(1);
    let medium = world.wait_for("the media", media).await;
    assert_eq!(medium.id.as_str(), "before");
    assert!(medium.media.get().contains("\"state\":\"ok\""), "{}", medium.media);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resent_item_waiting_for_media_is_the_same_version() {
    let go = Arc::new(Semaphore::new(0));
    let host = start_held_host(&go).await;
    let mut world = world(short_wait_settings(), &[&host]).await;
    let entry = ItemEntry { keyed: true, ..with_images(&post("p1"), &[host.url("a.bmp")]) };
    world.submit(vec![entry.clone()]).await;
    world.wait_for("the accepted row", async || world.versions(&post("p1")).await.pop()).await;
    let edit = world.submit_text("p1", "hello").await;
    world.wait_until_evaluated(&post("p1"), edit).await;
    world.submit(vec![entry.clone()]).await;
    // Records of one item are processed one after another.
    let last = world.submit_text("p1", "bye").await;
    world.wait_until_evaluated(&post("p1"), last).await;
    go.add_permits(2);
    let row = world
        .wait_for("the evaluated row", async || {
            let rows = world.versions(&post("p1")).await.into_iter();
            rows.rev().find(|row| {
                row.submission_id == entry.submission_id && row.state == SubmissionState::Evaluated
            })
        })
        .await;
    assert!(row.matched.contains("\"seen\""), "{}", row.matched);
    world.drain().await;
    let versions = world.versions(&post("p1")).await;
    assert_eq!(versions.len(), 3, "{versions:?}");
    assert_eq!(versions[2].submission_id, entry.submission_id, "the row keeps its first position");
    assert_eq!(world.events("action.automatic").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bank_matches_new_pictures_and_new_hashes_match_old_ones() {
    let bank_documents = |hash: &str| {
        format!(
            "bank: known\nkind: pdq\ndistance: 0\nentries: [{hash}]\n---\nrule: known\nstatus: live\n\
             item_types: [post]\nwhen: {{media: {{in: [images], bank: known}}}}\nactions: [ban]\n"
        )
    };
    let host = Host::start(|head| {
        let seed = if head.starts_with("GET /b") { 2 } else { 1 };
        Answer::Picture(picture(seed))
    });
    let host = host.await.unwrap();
    let mut world = World::with_media_ports(long_wait_settings(), &[host.address.port()]).await;
    world.configure(&bank_documents(&"0f".repeat(32)), false).await;
    world.start();
    let before = with_images(&post("before"), &[host.url("a.bmp")]);
    let other_entry = with_images(&post("other"), &[host.url("b.bmp")]);
    let (before_id, other_id) = (before.submission_id, other_entry.submission_id);
    world.submit(vec![before, other_entry]).await;
    let row = world.wait_until_evaluated(&post("before"), before_id).await;
    world.wait_until_evaluated(&post("other"), other_id).await;
    assert_eq!((media(&row)[0].matches.len(), row.matched.as_str()), (0, "[]"));

    let hash = media(&row)[0].pdq.clone().unwrap();
    world.configure(&bank_documents(&hash), false).await;
    let after = with_images(&post("after"), &[host.url("a.bmp")]);
    let after_id = after.submission_id;
    world.submit(vec![after]).await;
    let row = world.wait_until_evaluated(&post("after"), after_id).await;
    let matches = &media(&row)[0].matches;
    assert_eq!(
        (matches[0].bank.as_str(), matches[0].kind.as_str(), matches[0].distance),
        ("known", "pdq", 0)
    );
    assert!(row.matched.contains("\"known\"") && row.matched.contains(&matches[0].entry), "{}", row.matched);

    let request_count = host.asked("").len();
    drop(host);
    let run = super::retroact::run_to_end(&world, "known", false).await;
    assert_eq!((run.progress.items, run.progress.matched, run.progress.sent), (3, 2, 1));
    let row = super::retroact::wait_for_repeat(&world, "before").await;
    assert_eq!(media(&row)[0].matches, *matches, "its hashes were kept");
    assert!(row.matched.contains("\"known\""), "{}", row.matched);
    world.drain().await;
    assert_eq!(request_count, 2, "each picture is requested once");
    assert_eq!(world.events("action.automatic").await.len(), 2);
}
