//! Repeated context items of a report or an appeal share one row with the media of all versions.

use tidegate_moderation::{
    child_safety::{AuthorizedJob, Clearance},
    dead_letters::{self, DeadLetterFilter, ReplayOptions},
    review::job_view::{self, CauseLimits},
};
use tidegate_schemas::{
    ids::{ItemKey, JobId, Kind, derive},
    records::{Appeal, ContextItem, DeadLetter, Items, Record as _, Report, Variant},
    wire::answers::Media,
};
use tidegate_stream::Topic;
use tidegate_test_support::pictures::{Answer, Host, picture};

use super::{
    media::{long_wait_settings, with_images},
    reviews::{appeal, report},
    world::{World, org, post, store_of_rows},
};

const CLIPS: &str = r"
item_type: clip
kind: CONTENT
fields:
  - {name: film, type: VIDEO}
";

fn context_item(item: &ItemKey, data: &serde_json::Value) -> ContextItem {
    ContextItem {
        type_id: item.type_id.clone(),
        id: item.id.clone(),
        type_version: None,
        variant: Variant::Partial,
        data: data.to_string().into(),
        fault: None,
        as_sent: None,
    }
}

fn images(item: &ItemKey, urls: &[String]) -> ContextItem {
    context_item(item, &serde_json::json!({"images": urls}))
}

async fn host() -> Host {
    let host = Host::start(|head| match head.split(' ').nth(1).unwrap() {
        path if path.starts_with("/gone") => Answer::Head("404 Not Found".to_owned(), Vec::new()),
        _ => Answer::Picture(picture(1)),
    });
    host.await.unwrap()
}

async fn world(host: &Host) -> World {
    let mut world = World::with_media_ports(long_wait_settings(), &[host.address.port()]).await;
    world.configure(CLIPS, false).await;
    world.start();
    world
}

async fn send(world: &World, report: &Report) {
    world.append(Topic::Reports, &post("p1").log_key(&org()), report).await;
}

/// Returns the id of the report's job, the first of its subject.
fn report_job_id() -> JobId {
    job_id(&[b"child_safety", b"post", b"p1"])
}

fn job_id(of: &[&[u8]]) -> JobId {
    let (org, first) = (org(), 1_i64.to_be_bytes());
    derive(Kind::Job, &[&[org.as_str().as_bytes()], of, &[&first]].concat())
}

/// Returns the media of each item that a job shows with its cause.
async fn displayed_media(world: &World, job: JobId) -> Vec<(String, Vec<Media>)> {
    let limits = CauseLimits { causes: 10, bytes: usize::MAX };
    let store = &world.deps.store;
    // Tests ask from before the job is opened.
    let Ok(job) = AuthorizedJob::load(store, &org(), job, Clearance::ChildSafety).await.unwrap() else {
        return Vec::new();
    };
    let causes = job_view::load_causes(store, &world.deps.live.org(&org()).unwrap(), &job, None, limits)
        .await
        .unwrap()
        .0;
    let media = causes.into_iter().flat_map(|cause| cause.media);
    media.map(|it| (it.id.to_string(), serde_json::from_str(it.media.get()).unwrap())).collect()
}

/// Returns the displayed media after `items` items have been inspected.
async fn wait_for_media(world: &mut World, job: JobId, items: usize) -> Vec<(String, Vec<(String, bool)>)> {
    world
        .wait_for("the rows", async || (displayed_media(world, job).await.len() == items).then_some(()))
        .await;
    world.drain().await;
    let one = |medium: Media| {
        let path = medium.url.rsplit('/').next().unwrap().to_owned();
        (path, medium.pdq.is_some())
    };
    let rows = displayed_media(world, job).await.into_iter();
    rows.map(|(id, media)| (id, media.into_iter().map(one).collect())).collect()
}

fn item(id: &str, media: &[(&str, bool)]) -> (String, Vec<(String, bool)>) {
    (id.to_owned(), media.iter().map(|(path, has_pdq)| ((*path).to_owned(), *has_pdq)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_in_a_report_show_the_media_of_both() {
    let host = host().await;
    let mut world = world(&host).await;
    let mut report_record = report(world.version().await, 1, "look", true);
    let url = |path| host.url(path);
    report_record.thread =
        vec![images(&post("x"), &[url("seen"), url("both")]), images(&post("y"), &[url("gone-y")])];
    report_record.additional = vec![images(&post("x"), &[url("both"), url("gone")])];
    send(&world, &report_record).await;
    let expected_media =
        [item("x", &[("seen", true), ("both", true), ("gone", false)]), item("y", &[("gone-y", false)])];
    assert_eq!(wait_for_media(&mut world, report_job_id(), 2).await, expected_media);
    assert_eq!(host.asked("both").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn address_is_inspected_for_the_needs_of_all_versions() {
    let host = host().await;
    let mut world = world(&host).await;
    let mut report_record = report(world.version().await, 1, "look", true);
    let clip = ItemKey::new("clip", "x");
    report_record.thread = vec![context_item(&clip, &serde_json::json!({"film": host.url("a")}))];
    report_record.additional = vec![images(&clip, &[host.url("a")])];
    send(&world, &report_record).await;
    assert_eq!(wait_for_media(&mut world, report_job_id(), 1).await, [item("x", &[("a", true)])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn appealed_item_sent_again_shows_the_media_of_both() {
    let host = host().await;
    let mut world = world(&host).await;
    let acted_on = with_images(&post("p1"), &[host.url("acted-on")]);
    let appeal = Appeal {
        additional: vec![images(&post("p1"), &[host.url("gone")])],
        ..appeal(world.version().await, acted_on)
    };
    world.append(Topic::Appeals, &post("p1").log_key(&org()), &appeal).await;
    assert_eq!(
        wait_for_media(&mut world, job_id(&[b"appeal", b"a1"]), 1).await,
        [item("p1", &[("acted-on", true), ("gone", false)])]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_contains_all_entries_of_a_shared_row() {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let open_store = |max_row_bytes| store_of_rows(&db, max_row_bytes);
    let mut world = World::on(open_store(20_000)).await;
    world.start();
    let mut report_record = report(world.version().await, 1, "look", true);
    let urls = |name: &str| (0..200).map(|nth| format!("http://a:1/{name}{nth}")).collect::<Vec<_>>();
    report_record.thread = vec![images(&post("x"), &urls("a")), images(&post("y"), &urls("y")[..1])];
    report_record.additional = vec![images(&post("x"), &urls("b"))];
    send(&world, &report_record).await;
    let letter = world.wait_for("the dead letter", async || world.tail(Topic::DeadLetters).await.pop()).await;
    world
        .wait_for("the other item's row", async || displayed_media(&world, report_job_id()).await.pop())
        .await;
    world.drain().await;
    assert_eq!(world.tail(Topic::DeadLetters).await.len(), 1);
    let dead_record: DeadLetter = letter.decode().unwrap();
    assert_eq!(dead_record.reason, "store_row_too_large");
    let datum = world.deps.log.unframe(letter.at, Topic::ItemsSlow, &dead_record.value).unwrap();
    assert_eq!(Items::decode(&datum).unwrap().items.len(), 2);

    world.deps.store = open_store(1_000_000);
    world.start();
    let options = ReplayOptions { by: "somebody".to_owned(), include_replayed: false };
    let (log, store) = (&world.deps.log, &world.deps.store);
    dead_letters::replay(log, store, &DeadLetterFilter::default(), &options).await.unwrap();
    world
        .wait_for("both rows", async || {
            (displayed_media(&world, report_job_id()).await.len() == 2).then_some(())
        })
        .await;
    world.drain().await;
    let rows = displayed_media(&world, report_job_id()).await;
    assert_eq!((rows[0].0.as_str(), rows[0].1.len()), ("x", 400));
}
