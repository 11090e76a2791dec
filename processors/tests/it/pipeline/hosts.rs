//! Hanging, slow or invalid hosts do not affect items of a good host, and all items end in a visible state.

use std::{net::Ipv4Addr, sync::Arc};

use futures::future::join_all;
use tidegate_processors::{MediaSettings, Settings};
use tidegate_schemas::{ids::SubmissionId, records::ItemEntry};
use tidegate_store::tables::items::items::{Item, SubmissionState};
use tidegate_stream::Topic;
use tidegate_test_support::pictures::{Answer, Host, picture};
use tokio::sync::Semaphore;

use super::{
    media::{long_wait_settings, short_wait_settings, states, with_images, world},
    world::{World, post},
};

/// Builds one item for each picture of the hosts.
fn items(name: &str, hosts: &[Host], each: usize) -> Vec<ItemEntry> {
    let numbers = (0..each).flat_map(|nth| (0..hosts.len()).map(move |host| (nth, host)));
    numbers
        .map(|(nth, host)| {
            with_images(&post(&format!("{name}-{host}-{nth}")), &[hosts[host].url(&nth.to_string())])
        })
        .collect()
}

/// Starts hosts with separate addresses.
async fn hosts(
    first: u8,
    count: u8,
    answer: impl Fn() -> Answer + Clone + Send + Sync + 'static,
) -> Vec<Host> {
    let start = |nth| {
        let answer = answer.clone();
        Host::start_at(Ipv4Addr::new(127, 0, 0, nth), move |_| answer())
    };
    join_all((first..first + count).map(start)).await.into_iter().collect::<Result<_, _>>().unwrap()
}

async fn find_evaluated(world: &World, entry: &ItemEntry) -> Option<Item> {
    let rows = world.versions(&entry.key()).await;
    rows.into_iter()
        .find(|row| row.submission_id == entry.submission_id && row.state == SubmissionState::Evaluated)
}

/// Waits until all items are evaluated. Returns state and reason of the single medium of each.
async fn ends(world: &World, entries: &[ItemEntry]) -> Vec<(String, Option<String>)> {
    let mut ends = Vec::new();
    for entry in entries {
        let row = world.wait_for("an evaluated row", async || find_evaluated(world, entry).await).await;
        ends.extend(states(&row));
    }
    ends
}

async fn wait_for_all(world: &World, entries: &[ItemEntry]) -> Vec<SubmissionId> {
    let mut evaluated = Vec::new();
    for entry in entries {
        evaluated.extend(find_evaluated(world, entry).await.map(|row| row.submission_id));
    }
    evaluated
}

/// Checks that items of a good host are evaluated while others wait.
async fn goes_on_beside(world: &World, good: &[Host], stuck: &[ItemEntry]) {
    let fine = items("fine", good, 100);
    world.submit(fine.clone()).await;
    assert_eq!(ends(world, &fine).await, vec![ok(); 100]);
    assert!(wait_for_all(world, stuck).await.is_empty(), "the items still wait");
}

fn failed_state(reason: &str) -> (String, Option<String>) {
    ("fetch_failed".to_owned(), Some(reason.to_owned()))
}

fn ok() -> (String, Option<String>) {
    ("ok".to_owned(), None)
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_hosts_delay_no_item_of_a_good_host() {
    let go = Arc::new(Semaphore::new(0));
    let late_404 =
        Answer::After(Arc::clone(&go), Box::new(Answer::Head("404 Not Found".to_owned(), Vec::new())));
    let hanging = hosts(2, 12, move || late_404.clone()).await;
    let good_hosts = hosts(100, 1, || Answer::Picture(picture(1))).await;
    let mut world =
        world(short_wait_settings(), &hanging.iter().chain(&good_hosts).collect::<Vec<_>>()).await;
    let stuck = items("stuck", &hanging, 20);
    world.submit(stuck.clone()).await;
    world
        .wait_for("each to hang", async || {
            hanging.iter().all(|host| !host.asked("").is_empty()).then_some(())
        })
        .await;
    goes_on_beside(&world, &good_hosts, &stuck).await;
    go.add_permits(10_000);
    assert_eq!(ends(&world, &stuck).await, vec![failed_state("http_404"); 240]);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_beyond_the_fast_path_are_evaluated_by_the_slow_one() {
    let go = Arc::new(Semaphore::new(0));
    let late_404 =
        Answer::After(Arc::clone(&go), Box::new(Answer::Head("404 Not Found".to_owned(), Vec::new())));
    let hanging = hosts(2, 2, move || late_404.clone()).await;
    let good_hosts = hosts(100, 1, || Answer::Picture(picture(1))).await;
    let mut settings = long_wait_settings();
    settings.media.waiting_per_org = 8;
    let mut world = world(settings, &hanging.iter().chain(&good_hosts).collect::<Vec<_>>()).await;
    let stuck = items("stuck", &hanging, 20);
    world.submit(stuck.clone()).await;
    let handed_over = async || world.tail(Topic::ItemsSlow).await.len();
    world.wait_for("32 handed over", async || (handed_over().await == 32).then_some(())).await;
    goes_on_beside(&world, &good_hosts, &stuck).await;
    assert_eq!(handed_over().await, 132);
    go.add_permits(10_000);
    assert_eq!(ends(&world, &stuck).await, vec![failed_state("http_404"); 40]);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_or_invalid_hosts_do_not_affect_a_good_host() {
    let go = Arc::new(Semaphore::new(0));
    let drips = Answer::Drip(Arc::clone(&go), picture(1));
    let dripping = hosts(2, 3, move || drips.clone()).await;
    let boasting = hosts(20, 1, || Answer::Claim(1 << 20, picture(1))).await;
    let hiding = hosts(21, 1, || Answer::Claim(100, picture(1))).await;
    let good_hosts = hosts(100, 1, || Answer::Picture(picture(1))).await;
    let all_hosts: Vec<_> = dripping.iter().chain(&boasting).chain(&hiding).chain(&good_hosts).collect();
    let mut world = world(short_wait_settings(), &all_hosts).await;
    let slow = items("slow", &dripping, 20);
    world.submit(slow.clone()).await;
    world
        .wait_for("each to drip", async || {
            dripping.iter().all(|host| !host.asked("").is_empty()).then_some(())
        })
        .await;
    // Fewer failures than the number that pauses a host.
    let (long, short, fine) =
        (items("long", &boasting, 4), items("short", &hiding, 4), items("fine", &good_hosts, 100));
    world.submit([long.clone(), short.clone(), fine.clone()].concat()).await;
    assert_eq!(ends(&world, &fine).await, vec![ok(); 100]);
    assert_eq!(ends(&world, &long).await, vec![failed_state("reset"); 4]);
    let states: Vec<_> = ends(&world, &short).await.into_iter().map(|(state, _)| state).collect();
    assert_eq!(states, ["undecodable"; 4]);
    assert!(wait_for_all(&world, &slow).await.is_empty(), "the items still wait");
    go.add_permits(10_000);
    assert_eq!(ends(&world, &slow).await, vec![ok(); 60]);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_hosts_leave_permits_for_a_good_host() {
    let go = Arc::new(Semaphore::new(0));
    let stalls = Answer::Stall(Arc::clone(&go), 100 << 20, picture(1));
    let boasting = hosts(2, 4, move || stalls.clone()).await;
    let good_hosts = hosts(100, 1, || Answer::Picture(picture(1))).await;
    let mut world =
        world(short_wait_settings(), &boasting.iter().chain(&good_hosts).collect::<Vec<_>>()).await;
    // Fewer failures than the number that pauses a host.
    let slow = items("slow", &boasting, 4);
    world.submit(slow.clone()).await;
    world
        .wait_for("all to be asked", async || {
            boasting.iter().all(|host| host.asked("").len() == 4).then_some(())
        })
        .await;
    goes_on_beside(&world, &good_hosts, &slow).await;
    go.add_permits(10_000);
    assert_eq!(ends(&world, &slow).await, vec![failed_state("reset"); 16]);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_items_end_at_their_own_deadline() {
    let hanging = hosts(2, 1, || Answer::Never).await;
    // Sequentially, the items would take ten minutes.
    let media = MediaSettings {
        wait_ms: 1,
        slow_wait_ms: 2_000,
        slow_total_ms: 2_000,
        slow_per_org: 1,
        slow_per_host: 1,
        ..MediaSettings::default()
    };
    let mut world = world(Settings { media, ..Settings::default() }, &[&hanging[0]]).await;
    let stuck = items("stuck", &hanging, 300);
    world.submit(stuck.clone()).await;
    assert_eq!(ends(&world, &stuck).await, vec![failed_state("deadline"); 300]);
    world.drain().await;
}
