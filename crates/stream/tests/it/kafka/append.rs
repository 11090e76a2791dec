//! An append waits once, for the outcome of all its records.

use tidegate_stream::{Record, Topic, consumer::inbox::DrainResult, error::AppendError, topics::Partition};
use tidegate_test_support::{PATIENCE, eventually_ok, servers};

use super::fixture::{Installation, append, close, consume, next, numbers, settings};
use crate::support::{complete, receive, value};

#[tokio::test(flavor = "multi_thread")]
async fn appended_records_are_read_back_in_order_with_all_parts() {
    let Some(brokers) = servers::kafka("kafka: append and consume") else { return };
    let installation = Installation::on(&brokers).await;
    let log = installation.open().await;
    let partition = log.partition(Topic::Strikes, b"somebody");
    append(&log, partition, numbers(0..500)).await;
    let headers: &[(&str, &[u8])] = &[("trace", b"00-11")];
    log.append(&[(partition, Record::new(b"somebody", b"last".to_vec()).with_headers(headers))])
        .await
        .unwrap();

    let mut inbox = consume(&log, Topic::Strikes);
    let records = receive(&mut inbox, 501).await;
    let texts: Vec<_> = records.iter().map(value).collect();
    assert_eq!(texts, numbers(0..500).chain(["last".to_owned()]).collect::<Vec<_>>());
    let last = records.last().unwrap();
    assert_eq!((&*last.key, last.at.partition, last.at.offset.0), (&b"somebody"[..], partition, 500));
    assert_eq!(last.headers.get("trace").map(|value| &**value), Some(&b"00-11"[..]));
    assert!(last.written_at.0 > 1_700_000_000_000, "the time is of the log's clock");
    complete(records);
    assert_eq!(close(&log).await, DrainResult::Clean);

    // All records were committed, so a successor receives only new ones.
    let log = installation.open().await;
    append(&log, partition, numbers(900..901)).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let records = next(&mut inbox).await;
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), ["000900"]);
    assert!(records[0].maybe_replayed);
    complete(records);
    assert_eq!(close(&log).await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn append_to_a_full_queue_waits_for_enqueued_records() {
    let Some(brokers) = servers::kafka("kafka: full queue") else { return };
    let mut settings = settings(&brokers);
    settings.kafka.producer.queue_records = 10;
    // No record leaves the queue while the append fills it.
    settings.kafka.producer.linger_ms = 1_000;
    let installation = Installation::with(settings).await;
    let log = installation.open().await;
    let partition = Partition::new(Topic::Strikes, 0);
    let values: Vec<String> = numbers(0..50).collect();
    let records: Vec<_> =
        values.iter().map(|value| (partition, Record::new(b"key", value.as_bytes().to_vec()))).collect();
    let error = log.append(&records).await.unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }) && error.is_retriable(), "{error}");
    assert!(log.readiness().is_ready(), "a full queue is no outage");

    // The append returned after the outcome of the ten records: they are durable by now, and the queue has room.
    let last = [(partition, Record::new(b"key", b"000050".to_vec()))];
    eventually_ok("room", PATIENCE, async || Ok(log.append(&last).await?)).await.unwrap();
    let mut inbox = consume(&log, Topic::Strikes);
    let records = receive(&mut inbox, 11).await;
    let texts: Vec<_> = records.iter().map(value).collect();
    assert_eq!(texts, numbers(0..10).chain(numbers(50..51)).collect::<Vec<_>>());
    complete(records);
    close(&log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_record_is_refused_before_any_is_sent() {
    let Some(brokers) = servers::kafka("kafka: record size") else { return };
    let installation = Installation::on(&brokers).await;
    let log = installation.open().await;
    let partition = Partition::new(Topic::Items, 0);
    let limit = Topic::Items.max_record_bytes();
    // No run repeats, so that compression does not help.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(limit)
    .collect();
    let small = (partition, Record::new(b"key", b"small".to_vec()));
    let error = log.append(&[small, (partition, Record::new(b"key", &noise[..]))]).await.unwrap_err();
    assert_eq!(error, AppendError::TooLarge { topic: Topic::Items, bytes: limit + 8, limit });
    log.append(&[(partition, Record::new(b"key", &noise[..limit - 8]))]).await.unwrap();

    let mut inbox = consume(&log, Topic::Items);
    let records = next(&mut inbox).await;
    assert_eq!((records.len(), records[0].value.len()), (1, limit - 8));
    complete(records);
    close(&log).await;
    let late_result = log.append(&[(partition, Record::new(b"key", b"late".to_vec()))]).await;
    assert_eq!(late_result, Err(AppendError::ShuttingDown));
}

#[tokio::test(flavor = "multi_thread")]
async fn close_waits_for_records_in_flight() {
    let Some(brokers) = servers::kafka("kafka: close") else { return };
    let mut settings = settings(&brokers);
    settings.kafka.producer.linger_ms = 2_000;
    let installation = Installation::with(settings).await;
    let log = installation.open().await;
    let partition = Partition::new(Topic::Strikes, 0);
    let appending = {
        let log = log.clone();
        tokio::spawn(async move {
            let records = [(partition, Record::new(b"key", b"value".to_vec()))];
            log.append(&records).await
        })
    };
    // The record must be in the queue, because a close before that would refuse it.
    tokio::task::yield_now().await;
    assert_eq!(close(&log).await, DrainResult::Clean);
    match appending.await.unwrap() {
        Ok(()) => {
            let log = installation.open().await;
            let mut inbox = consume(&log, Topic::Strikes);
            assert_eq!(next(&mut inbox).await.iter().map(value).collect::<Vec<_>>(), ["value"]);
            close(&log).await;
        }
        Err(error) => assert_eq!(error, AppendError::ShuttingDown),
    }
}
