//! Search of stored items by time: each item once at any page size, and nested samples.

use std::collections::BTreeSet;

use tidegate_moderation::items::history::{HistoryCursor, Sample, SampledPeriod, load_page};
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::{Items, Source},
};

use super::world::{World, entry, org, post};

async fn find_items(world: &World, span: &SampledPeriod, limit: usize) -> Vec<SubmissionId> {
    let (mut found_ids, mut from) = (Vec::new(), None::<HistoryCursor>);
    loop {
        let page = load_page(&world.deps.store, &org(), span, from, limit).await.unwrap();
        assert!(page.items.len() <= limit, "{} of {limit}", page.items.len());
        found_ids.extend(page.items.iter().map(|row| row.submission_id));
        // In the form in which the command passes the cursor.
        from = page.next.map(|place| place.to_string().parse().unwrap());
        if from.is_none() {
            return found_ids;
        }
    }
}

pub(crate) async fn items_are_found_by_time(mut world: World) {
    world.start();
    let before = Millis::now();
    let (mut sent_ids, mut last_items) = (BTreeSet::new(), Vec::new());
    for nth in 0..60 {
        let item = post(&format!("p{nth}"));
        let entries = vec![entry(&item, "hello"), entry(&item, "hello again")];
        sent_ids.extend(entries.iter().map(|entry| entry.submission_id));
        last_items.push((item, entries[1].submission_id));
        world.submit(entries).await;
    }
    // All must be evaluated before the drain: they are in several partitions, and a drain leaves unread records.
    for (item, submission) in last_items {
        world.wait_until_evaluated(&item, submission).await;
    }
    world.drain().await;
    let span = |from: Millis, to: Millis, sample| SampledPeriod { time: from..to, sample };
    let full_span =
        span(before.minus(std::time::Duration::from_secs(7_200)), Millis(Millis::now().0 + 1), Sample::ALL);

    let found_ids = find_items(&world, &full_span, 64).await;
    assert_eq!((found_ids.len(), found_ids.iter().copied().collect::<BTreeSet<_>>()), (120, sent_ids));
    assert_eq!(
        find_items(&world, &full_span, 7).await,
        found_ids,
        "the order does not depend on the page size"
    );
    assert_eq!(find_items(&world, &full_span, 1).await, found_ids);

    let sampled =
        |percent| SampledPeriod { sample: Sample::of_percent(percent).unwrap(), ..full_span.clone() };
    let (small_sample, large_sample) =
        (find_items(&world, &sampled(10.0), 5).await, find_items(&world, &sampled(60.0), 5).await);
    assert!(
        small_sample.iter().all(|id| large_sample.contains(id))
            && large_sample.iter().all(|id| found_ids.contains(id))
    );
    assert!(
        small_sample.len() < large_sample.len() && large_sample.len() < found_ids.len(),
        "{} {}",
        small_sample.len(),
        large_sample.len()
    );

    let earlier_span =
        span(full_span.time.start, before.minus(std::time::Duration::from_secs(60)), Sample::ALL);
    assert_eq!(find_items(&world, &earlier_span, 10).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_item_is_found_once_at_any_page_size() {
    items_are_found_by_time(World::new().await).await;
}

/// Rules do not act on fetched items, so a retroactive rule skips them too.
#[tokio::test(flavor = "multi_thread")]
async fn search_finds_submitted_items_of_the_org_only() {
    let mut world = World::started().await;
    let first_submission = world.submit_text("p1", "hello").await;
    world.wait_until_evaluated(&post("p1"), first_submission).await;
    let second_submission = world.submit_text("p1", "hello").await;
    world.wait_until_evaluated(&post("p1"), second_submission).await;
    let entry = entry(&post("p1"), "hello");
    let fetched_id = entry.submission_id;
    let record = Items { source: Source::PartialItems, ..world.prepare(vec![entry]).await };
    world.send(record).await;
    world.wait_until_evaluated(&post("p1"), fetched_id).await;
    world.drain().await;
    let full_span = SampledPeriod {
        time: Millis(Millis::now().0 - 7_200_000)..Millis(Millis::now().0 + 1),
        sample: Sample::ALL,
    };
    let found_ids: BTreeSet<_> = find_items(&world, &full_span, 10).await.into_iter().collect();
    assert_eq!(found_ids, BTreeSet::from([first_submission, second_submission]));
    let page = load_page(&world.deps.store, &"other".into(), &full_span, None, 10).await.unwrap();
    assert!(page.items.is_empty());
}
