//! Records removed by retention before they are read stop the partition by name.

use std::time::Duration;

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::AdminOptions,
    consumer::{BaseConsumer, Consumer as _},
};
use tidegate_stream::{
    Topic,
    consumer::inbox::Inbox,
    error::StoppedPartition,
    topics::{NextOffset, Partition},
};
use tidegate_test_support::{PATIENCE, eventually, servers};
use tokio::time::timeout;

use super::fixture::{GROUP, Installation, append, close, consume, numbers};
use crate::support::{complete, receive, value};

async fn delete_records(installation: &Installation, partition: Partition, before: i64) {
    let mut list = TopicPartitionList::new();
    let name = partition.topic.name(&installation.settings.prefix);
    let index = i32::try_from(partition.index).unwrap();
    list.add_partition_offset(&name, index, Offset::Offset(before)).unwrap();
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    installation.admin().delete_records(&list, &options).await.unwrap();
}

/// The start of a new group is committed beside its reading: waits until the broker has it.
async fn start_is_committed(installation: &Installation, partition: Partition) {
    let settings = &installation.settings;
    let member: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", settings.kafka.brokers.join(","))
        .set("group.id", GROUP.id(&settings.prefix))
        .create()
        .unwrap();
    let name = partition.topic.name(&settings.prefix);
    let index = i32::try_from(partition.index).unwrap();
    let committed = async || {
        let mut list = TopicPartitionList::new();
        list.add_partition(&name, index);
        let list = member.committed_offsets(list, Duration::from_secs(5)).ok()?;
        matches!(list.find_partition(&name, index)?.offset(), Offset::Offset(_)).then_some(())
    };
    eventually("the group's start to be committed", PATIENCE, committed).await.unwrap();
}

async fn stopped(inbox: &Inbox) -> Vec<StoppedPartition> {
    let mut ownership = inbox.ownership();
    let stopped = timeout(PATIENCE, ownership.wait_for(|own| !own.stopped.is_empty())).await;
    stopped.expect("no partition stopped").unwrap().stopped.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_offset_stops_only_its_partition() {
    let Some(brokers) = servers::kafka("kafka: gap") else { return };
    let installation = Installation::on(&brokers).await;
    let (gone, whole) = (Partition::new(Topic::Strikes, 0), Partition::new(Topic::Strikes, 1));
    let log = installation.open().await;
    append(&log, gone, numbers(0..100)).await;
    append(&log, whole, numbers(100..110)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let records = receive(&mut inbox, 110).await;
    let (first, rest): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.at.partition == whole || record.at.offset.0 < 40);
    complete(first);
    drop(inbox);
    drop(rest);
    close(&log).await;

    delete_records(&installation, gone, 70).await;
    let log = installation.open().await;
    append(&log, whole, numbers(110..111)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let expected =
        StoppedPartition::Gap { partition: gone, committed: NextOffset(40), start: NextOffset(70) };
    assert_eq!(stopped(&inbox).await, std::slice::from_ref(&expected));
    assert!(expected.to_string().contains("strikes[0]") && expected.to_string().contains("40"), "{expected}");
    let records = receive(&mut inbox, 1).await;
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), ["000110"], "the other partition goes on");
    complete(records);
    append(&log, gone, numbers(111..112)).await;
    append(&log, whole, numbers(112..113)).await;
    let records = receive(&mut inbox, 1).await;
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), ["000112"], "nothing of the stopped one");
    complete(records);
    close(&log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_group_detects_removals_before_its_first_commit() {
    let Some(brokers) = servers::kafka("kafka: gap before the first commit") else { return };
    let installation = Installation::on(&brokers).await;
    let partition = Partition::new(Topic::Strikes, 0);
    let log = installation.open().await;
    append(&log, partition, numbers(0..10)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    // Read, and died with it.
    let records = receive(&mut inbox, 10).await;
    start_is_committed(&installation, partition).await;
    drop(records);
    drop(inbox);
    close(&log).await;

    delete_records(&installation, partition, 5).await;
    let log = installation.open().await;
    let inbox = consume(&log, Topic::Strikes);
    assert_eq!(
        stopped(&inbox).await,
        [StoppedPartition::Gap { partition, committed: NextOffset(0), start: NextOffset(5) }]
    );
    close(&log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_begins_at_the_oldest_record_that_is_left() {
    let Some(brokers) = servers::kafka("kafka: start of a new group") else { return };
    let installation = Installation::on(&brokers).await;
    let partition = Partition::new(Topic::Strikes, 0);
    let log = installation.open().await;
    append(&log, partition, numbers(0..10)).await;
    delete_records(&installation, partition, 5).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let records = receive(&mut inbox, 5).await;
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), numbers(5..10).collect::<Vec<_>>());
    complete(records);
    close(&log).await;
}
