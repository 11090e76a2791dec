//! Topics are created with the required settings, and refused with others.

use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use tidegate_stream::{Log, Topic, error::OpenError, kafka};
use tidegate_test_support::servers;

use super::fixture::{Installation, close, settings};

#[tokio::test(flavor = "multi_thread")]
async fn creating_topics_twice_changes_no_topic() {
    let Some(brokers) = servers::kafka("kafka: make topics") else { return };
    let installation = Installation::on(&brokers).await;
    let report = kafka::create_topics(&installation.settings).await.unwrap();
    assert_eq!((report.created.len(), report.existing.len()), (0, Topic::ALL.len()));
    assert_eq!(report.warnings, Vec::<String>::new());
    close(&installation.open().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mismatched_partition_count_refuses_the_start() {
    let Some(brokers) = servers::kafka("kafka: partition count") else { return };
    let installation = Installation::on(&brokers).await;
    let mut changed_settings = installation.settings.clone();
    changed_settings.partitions = Some(3);
    for error in [
        kafka::create_topics(&changed_settings).await.unwrap_err(),
        Log::open_kafka(changed_settings.clone()).await.unwrap_err(),
    ] {
        let OpenError::PartitionCount { topic, configured: 3, found: 2, .. } = &error else {
            panic!("{error}")
        };
        assert!(error.to_string().contains(topic.label()), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_with_the_writers_clock_is_refused_by_name() {
    let Some(brokers) = servers::kafka("kafka: timestamp type") else { return };
    let installation = Installation::passing(settings(&brokers));
    let name = Topic::Callbacks.name(&installation.settings.prefix);
    let new_topic =
        NewTopic::new(&name, 2, TopicReplication::Fixed(1)).set("message.timestamp.type", "CreateTime");
    let results = installation.admin().create_topics([&new_topic], &AdminOptions::new()).await.unwrap();
    assert!(results[0].is_ok());
    let error = kafka::create_topics(&installation.settings).await.unwrap_err().to_string();
    installation.admin().delete_topics(&[&name], &AdminOptions::new()).await.unwrap();
    assert_eq!(error, format!("{name} has message.timestamp.type=CreateTime, but needs LogAppendTime"));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_refuses_the_start_with_a_remedy() {
    let Some(brokers) = servers::kafka("kafka: missing topic") else { return };
    let error = Log::open_kafka(settings(&brokers)).await.unwrap_err();
    assert_eq!(error.tag(), "topic");
    assert!(error.to_string().contains("tidegate topics create"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_broker_is_reported_before_the_timeout() {
    let mut settings = settings("127.0.0.1:1");
    settings.kafka.open_timeout_ms = 500;
    settings.kafka.socket_timeout_ms = 500;
    let error = Log::open_kafka(settings).await.unwrap_err();
    assert_eq!(error.tag(), "unavailable");
}
