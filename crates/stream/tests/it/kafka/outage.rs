//! A separate broker is killed and restarted under appends and consumption.

use std::collections::BTreeSet;

use tidegate_stream::{
    Record, Topic, consumer::inbox::DrainResult, settings::kafka::GroupProtocol, topics::Partition,
};
use tidegate_test_support::{OwnServer, PATIENCE, eventually, servers};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fixture::{Installation, close, consume, settings};
use crate::support::{complete, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_under_load_loses_no_acknowledged_record() {
    if servers::kafka("kafka: broker killed").is_none() {
        return;
    }
    let server = OwnServer::start("kafka", &[]).await.unwrap();
    let mut settings = settings(&server.told("TIDEGATE_TEST_KAFKA").await.unwrap());
    settings.kafka.consumer.group_protocol = GroupProtocol::Consumer;
    // An append without a broker fails before the test times out.
    settings.kafka.socket_timeout_ms = 3_000;
    settings.kafka.producer.message_timeout_ms = 6_000;
    settings.kafka.producer.append_timeout_ms = 8_000;
    let installation = Installation::passing(settings);
    tidegate_stream::kafka::create_topics(&installation.settings).await.unwrap();
    let log = installation.open().await;

    let stop = CancellationToken::new();
    let appending = tokio::spawn({
        let (log, stop) = (log.clone(), stop.clone());
        async move {
            let (mut acknowledged, mut refused) = (Vec::new(), 0);
            for number in 0.. {
                if stop.is_cancelled() {
                    break;
                }
                let value = format!("{number:06}");
                let partition = Partition::new(Topic::Strikes, number % 2);
                match log.append(&[(partition, Record::new(b"key", value.as_bytes().to_vec()))]).await {
                    Ok(()) => acknowledged.push(value),
                    Err(error) => {
                        assert!(error.is_retriable(), "{error}");
                        refused += 1;
                    }
                }
            }
            (acknowledged, refused)
        }
    });
    let mut inbox = consume(&log, Topic::Strikes);
    let (read_values, mut progress) = (std::sync::Arc::new(parking_lot::Mutex::new(BTreeSet::new())), 0);
    let consuming = tokio::spawn({
        let read_values = std::sync::Arc::clone(&read_values);
        async move {
            while let Some(records) = inbox.next().await.unwrap() {
                read_values.lock().extend(records.iter().map(value));
                complete(records);
            }
            inbox.wait_until_drained().await
        }
    });
    let mut passes = async |expectation: &str| {
        eventually(expectation, PATIENCE, async || (read_values.lock().len() > progress + 20).then_some(()))
            .await
            .unwrap();
        progress = read_values.lock().len();
    };
    passes("the first records").await;
    for _ in 0..2 {
        server.kill().await.unwrap();
        eventually("not ready", PATIENCE, async || (!log.readiness().is_ready()).then_some(()))
            .await
            .unwrap();
        server.start_again().await.unwrap();
        eventually("ready", PATIENCE, async || log.readiness().is_ready().then_some(())).await.unwrap();
        passes("records after the restart").await;
    }
    stop.cancel();
    let (acknowledged, refused) = appending.await.unwrap();
    let count_missing = || acknowledged.iter().filter(|value| !read_values.lock().contains(*value)).count();
    eventually("every acknowledged record", PATIENCE, async || (count_missing() == 0).then_some(()))
        .await
        .unwrap();
    assert!(acknowledged.len() > 60, "{} acknowledged, {refused} refused", acknowledged.len());
    assert_eq!(close(&log).await, DrainResult::Clean);
    assert_eq!(timeout(PATIENCE, consuming).await.unwrap().unwrap(), DrainResult::Clean);
}
