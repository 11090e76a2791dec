//! Acknowledged appends are durable, ordered and unchanged.

use tidegate_stream::{Record, Topic, error::AppendError, topics::Partition};

use crate::{
    contract::fixture::{Fixture, contract},
    support::{BUDGET, append, complete, consume, items, numbers, receive, stop, values},
};

contract! {
    acknowledged_append_survives_a_restart
    records_of_one_partition_keep_the_append_order
    record_is_read_back_unchanged
    append_times_never_decrease_within_a_partition
    oversized_or_misaddressed_append_is_refused_as_a_whole
    a_closed_log_refuses_appends_by_name
    record_larger_than_the_budget_is_delivered
}

async fn acknowledged_append_survives_a_restart(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(1), b"key", numbers(0..100)).await;
    fixture.close(log).await;

    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 100).await;
    assert_eq!(values(&records), numbers(0..100).collect::<Vec<_>>());
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn records_of_one_partition_keep_the_append_order(fixture: &Fixture) {
    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    for round in 0..20 {
        append(&log, items(0), b"a", numbers(round * 10..round * 10 + 10)).await;
        append(&log, items(3), b"b", numbers(round * 10..round * 10 + 10)).await;
    }
    let records = receive(&mut inbox, 400).await;
    for index in [0, 3] {
        let partition_values: Vec<_> = records
            .iter()
            .filter(|one| one.at.partition == items(index))
            .map(crate::support::value)
            .collect();
        assert_eq!(partition_values, numbers(0..200).collect::<Vec<_>>(), "partition {index}");
    }
    for pair in records.windows(2).filter(|pair| pair[0].at.partition == pair[1].at.partition) {
        assert_eq!(pair[0].at.offset.next().0, pair[1].at.offset.0);
    }
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn record_is_read_back_unchanged(fixture: &Fixture) {
    let log = fixture.open().await;
    let headers: [(&str, &[u8]); 3] = [("trace", b"abc"), ("empty", b""), ("trace", b"last")];
    let records = [
        (items(0), Record::new(b"key", &b"\x00\xff value"[..]).with_headers(&headers)),
        (items(0), Record::new(b"", &b""[..])),
    ];
    log.append(&records).await.unwrap();
    let mut inbox = consume(&log, BUDGET);
    let read_records = receive(&mut inbox, 2).await;
    assert_eq!((&read_records[0].key[..], &read_records[0].value[..]), (&b"key"[..], &b"\x00\xff value"[..]));
    let read_headers: Vec<_> =
        read_records[0].headers.iter().map(|(name, value)| (name, &value[..])).collect();
    assert_eq!(read_headers, headers);
    assert_eq!(read_records[0].headers.get("trace").map(|value| &value[..]), Some(&b"last"[..]));
    assert!(
        read_records[1].key.is_empty()
            && read_records[1].value.is_empty()
            && read_records[1].headers.is_empty()
    );
    complete(read_records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn append_times_never_decrease_within_a_partition(fixture: &Fixture) {
    let log = fixture.open().await;
    for n in 0..20 {
        append(&log, items(2), b"key", [n.to_string()]).await;
    }
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 20).await;
    assert!(records.windows(2).all(|pair| pair[0].written_at <= pair[1].written_at));
    assert!(records[0].written_at.0 > 1_600_000_000_000, "the log's own clock");
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn oversized_or_misaddressed_append_is_refused_as_a_whole(fixture: &Fixture) {
    let log = fixture.open().await;
    let large = vec![7; Topic::Items.max_record_bytes() + 1];
    let valid_record = (items(0), Record::new(b"key", &b"good"[..]));
    let error = log.append(&[valid_record.clone(), (items(0), Record::new(b"", &large))]).await.unwrap_err();
    assert_eq!((error.tag(), error.is_retriable()), ("too_large", false), "{error}");

    let missing_partition = Partition::new(Topic::Items, 4);
    let error =
        log.append(&[valid_record, (missing_partition, Record::new(b"", &b""[..]))]).await.unwrap_err();
    assert_eq!(error, AppendError::NoSuchPartition { partition: missing_partition, partitions: 4 });

    append(&log, items(0), b"key", ["first".to_owned()]).await;
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 1).await;
    assert_eq!(values(&records), ["first"]);
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn a_closed_log_refuses_appends_by_name(fixture: &Fixture) {
    let log = fixture.open().await;
    assert!(log.readiness().is_ready());
    let clone = log.clone();
    fixture.close(log).await;
    let record = (items(0), Record::new(b"key", &b"late"[..]));
    assert_eq!(clone.append(&[record]).await, Err(AppendError::ShuttingDown));
    assert!(!clone.readiness().is_ready());
}

async fn record_larger_than_the_budget_is_delivered(fixture: &Fixture) {
    let log = fixture.open().await;
    let large = vec![b'x'; 2 << 20];
    log.append(&[(items(0), Record::new(b"", &large)), (items(0), Record::new(b"", &b"after"[..]))])
        .await
        .unwrap();
    let mut inbox = consume(&log, tidegate_stream::settings::Budget { records: 10, bytes: 1 << 20 });
    let first = receive(&mut inbox, 1).await;
    assert_eq!(first[0].value.len(), 2 << 20);
    complete(first);
    let second = receive(&mut inbox, 1).await;
    assert_eq!(values(&second), ["after"]);
    complete(second);
    stop(inbox).await;
    fixture.close(log).await;
}
