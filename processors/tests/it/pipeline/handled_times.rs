//! Reported progress of the partitions, from which exports take their snapshot time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tidegate_schemas::ids::Millis;
use tidegate_store::{
    WriteTime,
    tables::history::handled_times::{ALL, HandledTime, TOPICS},
};
use tidegate_stream::Topic;

use super::world::{World, entry, post};

type Row = (String, i64);

async fn load_rows(world: &World) -> BTreeMap<Row, HandledTime> {
    let rows = world.rows::<HandledTime>(&HandledTime::partition(ALL)).await;
    rows.into_iter().map(|row| ((row.topic.clone(), row.partition_index), row)).collect()
}

/// Waits until every partition except `held` is complete beyond `time`.
async fn wait_until_passed(world: &World, time: Millis, held: Option<&Row>) -> BTreeMap<Row, HandledTime> {
    world
        .wait_for("the progress of all partitions", async || {
            let rows = load_rows(world).await;
            let has_passed = |(key, row): (&Row, &HandledTime)| Some(key) == held || row.until > time;
            (rows.len() == TOPICS.len() * 4 && rows.iter().all(has_passed)).then_some(rows)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_every_partition_is_reported_and_stops_at_open_records() {
    let world = World::started().await;
    let rows = wait_until_passed(&world, Millis(0), None).await;
    let topics: BTreeSet<&str> = rows.keys().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(topics, TOPICS.into_iter().collect());
    assert!(rows.values().all(|row| row.partition_count == 4));

    // The world commits only at a stop, so a restart would return the item.
    let item = post("p1");
    let entries = vec![entry(&item, "hello")];
    let submission = entries[0].submission_id;
    world.submit(entries).await;
    let row = world.wait_until_evaluated(&item, submission).await;
    let record = world.tail(Topic::Items).await.pop().unwrap();
    let held_partition = ("items".to_owned(), i64::from(record.at.partition.index));
    let rows =
        wait_until_passed(&world, row.append_ms.plus(Duration::from_secs(1)), Some(&held_partition)).await;
    assert!(
        rows[&held_partition].until <= row.append_ms,
        "{:?} passes {:?}",
        rows[&held_partition].until,
        row.append_ms
    );
    assert!(rows[&held_partition].seen_at > row.append_ms, "the owner still reports the partition");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_owner_never_lowers_the_reported_time() {
    let mut world = World::new().await;
    // The former owner had a fast clock, and had reached a later time.
    let future = Millis::now().plus(Duration::from_secs(3_600));
    let former_row = HandledTime {
        name: ALL.to_owned(),
        topic: "reports".to_owned(),
        partition_index: 2,
        until: future,
        partition_count: 4,
        seen_at: future,
    };
    world.deps.store.put_rows(WriteTime(future.0 * 1_000 + 7), &[former_row]).await.unwrap();
    world.start();
    let key = ("reports".to_owned(), 2);
    let renewed_row = world
        .wait_for("the row of the new owner", async || {
            load_rows(&world).await.remove(&key).filter(|row| row.seen_at > future)
        })
        .await;
    assert_eq!(renewed_row.until, future);
    let rows = wait_until_passed(&world, Millis(0), None).await;
    assert!(rows[&("reports".to_owned(), 1)].until < future);
}
