//! Tests on librdkafka's own mock cluster, which need no server.

use std::{collections::BTreeSet, time::Duration};

use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
use tidegate_stream::{Log, Topic, consumer::inbox::DrainResult, topics::Partition};
use tidegate_test_support::{PATIENCE, eventually};

use super::fixture::{append, close, consume, next, numbers, settings};
use crate::support::{complete, receive, value};

/// Starts a cluster that lives as long as the process, because clients of a stopped cluster do not end.
fn cluster() -> &'static MockCluster<'static, DefaultProducerContext> {
    Box::leak(Box::new(MockCluster::new(1).unwrap()))
}

async fn open(cluster: &MockCluster<'static, DefaultProducerContext>) -> Log {
    let settings = settings(&cluster.bootstrap_servers());
    for topic in Topic::ALL {
        cluster.create_topic(&topic.name(&settings.prefix), 2, 1).unwrap();
    }
    Log::open_kafka(settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_pass_through_the_mock_cluster() {
    let log = open(cluster()).await;
    append(&log, Partition::new(Topic::Strikes, 1), numbers(0..1_000)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let records = receive(&mut inbox, 1_000).await;
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), numbers(0..1_000).collect::<Vec<_>>());
    complete(records);
    assert_eq!(close(&log).await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_waits_until_the_broker_has_the_topic() {
    let cluster = cluster();
    let settings = settings(&cluster.bootstrap_servers());
    let names = Topic::ALL.map(|topic| topic.name(&settings.prefix));
    let (late_topic, existing_topics) = names.split_last().unwrap();
    for name in existing_topics {
        cluster.create_topic(name, 2, 1).unwrap();
    }
    let mut opening = tokio::spawn(Log::open_kafka(settings));
    let early_result = tokio::time::timeout(Duration::from_millis(500), &mut opening).await;
    assert!(
        early_result.is_err(),
        "opening ended before the topic existed: {:?}",
        early_result.map(|opened| opened.unwrap().err())
    );
    cluster.create_topic(late_topic, 2, 1).unwrap();
    let log = opening.await.unwrap().unwrap();
    assert_eq!(close(&log).await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_outage_makes_the_log_unready_without_loss() {
    let cluster = cluster();
    let log = open(cluster).await;
    let partition = Partition::new(Topic::Strikes, 0);
    append(&log, partition, numbers(0..10)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    complete(receive(&mut inbox, 10).await);
    cluster.broker_down(1).unwrap();
    eventually("not ready", PATIENCE, async || (!log.readiness().is_ready()).then_some(())).await.unwrap();
    let appending = {
        let log = log.clone();
        tokio::spawn(async move { append(&log, partition, numbers(10..20)).await })
    };
    cluster.broker_up(1).unwrap();
    appending.await.unwrap();
    eventually("ready", PATIENCE, async || log.readiness().is_ready().then_some(())).await.unwrap();
    let mut read_values = BTreeSet::new();
    while read_values.len() < 10 {
        let records = next(&mut inbox).await;
        read_values.extend(records.iter().map(value));
        complete(records);
    }
    assert_eq!(read_values, numbers(10..20).collect());
    close(&log).await;
}
