//! Stored items found by when they came in: each once, whatever the pages, and samples that hold one another.

use std::collections::BTreeSet;

use tidegate_moderation::items::history::{HistoryCursor, Sample, Span, page};
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::{Items, Source},
};

use super::world::{World, entry, org, post};

async fn found(world: &World, span: &Span, most: usize) -> Vec<SubmissionId> {
    let (mut all, mut from) = (Vec::new(), None::<HistoryCursor>);
    loop {
        let page = page(&world.deps.store, &org(), span, from, most).await.unwrap();
        assert!(page.items.len() <= most, "{} of {most}", page.items.len());
        all.extend(page.items.iter().map(|row| row.submission_id));
        // As the command hands it back.
        from = page.next.map(|place| place.to_string().parse().unwrap());
        if from.is_none() {
            return all;
        }
    }
}

pub(crate) async fn items_are_found_by_time(mut world: World) {
    world.start();
    let before = Millis::now();
    let (mut sent, mut last) = (BTreeSet::new(), Vec::new());
    for nth in 0..60 {
        let item = post(&format!("p{nth}"));
        let entries = vec![entry(&item, "hello"), entry(&item, "hello again")];
        sent.extend(entries.iter().map(|entry| entry.submission_id));
        last.push((item, entries[1].submission_id));
        world.submit(entries).await;
    }
    // Of each: they lie in several partitions, and a drain leaves what was not fetched.
    for (item, submission) in last {
        world.evaluated(&item, submission).await;
    }
    world.drain().await;
    let span = |from: Millis, to: Millis, sample| Span { time: from..to, sample };
    let whole =
        span(before.minus(std::time::Duration::from_secs(7_200)), Millis(Millis::now().0 + 1), Sample::ALL);

    let all = found(&world, &whole, 64).await;
    assert_eq!((all.len(), all.iter().copied().collect::<BTreeSet<_>>()), (120, sent));
    assert_eq!(found(&world, &whole, 7).await, all, "in the same order, however they are cut");
    assert_eq!(found(&world, &whole, 1).await, all);

    let sampled = |percent| Span { sample: Sample::of_percent(percent).unwrap(), ..whole.clone() };
    let (few, more) = (found(&world, &sampled(10.0), 5).await, found(&world, &sampled(60.0), 5).await);
    assert!(few.iter().all(|id| more.contains(id)) && more.iter().all(|id| all.contains(id)));
    assert!(few.len() < more.len() && more.len() < all.len(), "{} {}", few.len(), more.len());

    let earlier = span(whole.time.start, before.minus(std::time::Duration::from_secs(60)), Sample::ALL);
    assert_eq!(found(&world, &earlier, 10).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_item_is_found_once_at_any_page_size() {
    items_are_found_by_time(World::new().await).await;
}

/// Rules never acted on what the service fetched, so a rule that acts on older items passes it by as well.
#[tokio::test(flavor = "multi_thread")]
async fn search_finds_submitted_items_of_the_org_only() {
    let mut world = World::started().await;
    let own = world.submit_text("p1", "hello").await;
    world.evaluated(&post("p1"), own).await;
    let again = world.submit_text("p1", "hello").await;
    world.evaluated(&post("p1"), again).await;
    let entry = entry(&post("p1"), "hello");
    let fetched = entry.submission_id;
    let record = Items { source: Source::PartialItems, ..world.prepare(vec![entry]).await };
    world.send(record).await;
    world.evaluated(&post("p1"), fetched).await;
    world.drain().await;
    let whole =
        Span { time: Millis(Millis::now().0 - 7_200_000)..Millis(Millis::now().0 + 1), sample: Sample::ALL };
    let all: BTreeSet<_> = found(&world, &whole, 10).await.into_iter().collect();
    assert_eq!(all, BTreeSet::from([own, again]));
    let page = page(&world.deps.store, &"other".into(), &whole, None, 10).await.unwrap();
    assert!(page.items.is_empty());
}
