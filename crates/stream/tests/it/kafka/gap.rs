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

/// Waits until the broker has the start of a new group, which is committed concurrently with reading.
async fn wait_for_start_commit(installation: &Installation, partition: Partition) {
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

async fn wait_for_stop(inbox: &Inbox) -> Vec<StoppedPartition> {
    let mut ownership = inbox.ownership();
    let stopped = timeout(PATIENCE, ownership.wait_for(|state| !state.stopped.is_empty())).await;
    stopped.expect("no partition stopped").unwrap().stopped.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_offset_stops_only_its_partition() {
    let Some(brokers) = servers::kafka("kafka: gap") else { return };
    let installation = Installation::on(&brokers).await;
    let (cut_partition, intact_partition) =
        (Partition::new(Topic::Strikes, 0), Partition::new(Topic::Strikes, 1));
    let log = installation.open().await;
    append(&log, cut_partition, numbers(0..100)).await;
    append(&log, intact_partition, numbers(100..110)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let records = receive(&mut inbox, 110).await;
    let (first, uncommitted): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|record| record.at.partition == intact_partition || record.at.offset.0 < 40);
    complete(first);
    drop(inbox);
    drop(uncommitted);
    close(&log).await;

    delete_records(&installation, cut_partition, 70).await;
    let log = installation.open().await;
    append(&log, intact_partition, numbers(110..111)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let expected =
        StoppedPartition::Gap { partition: cut_partition, committed: NextOffset(40), start: NextOffset(70) };
    assert_eq!(wait_for_stop(&inbox).await, std::slice::from_ref(&expected));
    assert!(expected.to_string().contains("strikes[0]") && expected.to_string().contains("40"), "{expected}");
    let records = receive(&mut inbox, 1).await;
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), ["000110"], "the other partition continues");
    complete(records);
    append(&log, cut_partition, numbers(111..112)).await;
    append(&log, intact_partition, numbers(112..113)).await;
    let records = receive(&mut inbox, 1).await;
    assert_eq!(
        records.iter().map(value).collect::<Vec<_>>(),
        ["000112"],
        "no record of the stopped partition"
    );
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
    // The member reads the records and ends without a commit.
    let records = receive(&mut inbox, 10).await;
    wait_for_start_commit(&installation, partition).await;
    drop(records);
    drop(inbox);
    close(&log).await;

    delete_records(&installation, partition, 5).await;
    let log = installation.open().await;
    let inbox = consume(&log, Topic::Strikes);
    assert_eq!(
        wait_for_stop(&inbox).await,
        [StoppedPartition::Gap { partition, committed: NextOffset(0), start: NextOffset(5) }]
    );
    close(&log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_group_starts_at_the_oldest_remaining_record() {
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
