//! An acknowledged append is durable, in order, and exactly what was appended.

use tidegate_stream::{Record, Topic, error::AppendError, topics::Partition};

use crate::{
    contract::fixture::{Fixture, contract},
    support::{BUDGET, append, complete, consume, items, numbers, receive, stop, values},
};

contract! {
    an_acknowledged_append_is_there_after_a_restart
    records_of_one_partition_keep_the_append_order
    record_is_read_back_unchanged
    append_times_never_go_backwards_within_a_partition
    oversized_or_misaddressed_append_is_refused_as_a_whole
    a_closed_log_refuses_appends_by_name
    a_record_larger_than_the_whole_budget_still_passes
}

async fn an_acknowledged_append_is_there_after_a_restart(fixture: &Fixture) {
    let log = fixture.open().await;
    append(&log, items(1), b"key", numbers(0..100)).await;
    fixture.close(log).await;

    let log = fixture.open().await;
    let mut inbox = consume(&log, BUDGET);
    let received = receive(&mut inbox, 100).await;
    assert_eq!(values(&received), numbers(0..100).collect::<Vec<_>>());
    complete(received);
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
    let received = receive(&mut inbox, 400).await;
    for index in [0, 3] {
        let own: Vec<_> = received
            .iter()
            .filter(|one| one.at.partition == items(index))
            .map(crate::support::value)
            .collect();
        assert_eq!(own, numbers(0..200).collect::<Vec<_>>(), "partition {index}");
    }
    for two in received.windows(2).filter(|two| two[0].at.partition == two[1].at.partition) {
        assert_eq!(two[0].at.offset.next().0, two[1].at.offset.0);
    }
    complete(received);
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
    let received = receive(&mut inbox, 2).await;
    assert_eq!((&received[0].key[..], &received[0].value[..]), (&b"key"[..], &b"\x00\xff value"[..]));
    let got: Vec<_> = received[0].headers.iter().map(|(name, value)| (name, &value[..])).collect();
    assert_eq!(got, headers);
    assert_eq!(received[0].headers.get("trace").map(|value| &value[..]), Some(&b"last"[..]));
    assert!(received[1].key.is_empty() && received[1].value.is_empty() && received[1].headers.is_empty());
    complete(received);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn append_times_never_go_backwards_within_a_partition(fixture: &Fixture) {
    let log = fixture.open().await;
    for n in 0..20 {
        append(&log, items(2), b"key", [n.to_string()]).await;
    }
    let mut inbox = consume(&log, BUDGET);
    let received = receive(&mut inbox, 20).await;
    assert!(received.windows(2).all(|two| two[0].written_at <= two[1].written_at));
    assert!(received[0].written_at.0 > 1_600_000_000_000, "the log's own clock");
    complete(received);
    stop(inbox).await;
    fixture.close(log).await;
}

async fn oversized_or_misaddressed_append_is_refused_as_a_whole(fixture: &Fixture) {
    let log = fixture.open().await;
    let large = vec![7; Topic::Items.max_record_bytes() + 1];
    let good = (items(0), Record::new(b"key", &b"good"[..]));
    let error = log.append(&[good.clone(), (items(0), Record::new(b"", &large))]).await.unwrap_err();
    assert_eq!((error.tag(), error.is_retriable()), ("too_large", false), "{error}");

    let nowhere = Partition::new(Topic::Items, 4);
    let error = log.append(&[good, (nowhere, Record::new(b"", &b""[..]))]).await.unwrap_err();
    assert_eq!(error, AppendError::NoSuchPartition { partition: nowhere, partitions: 4 });

    append(&log, items(0), b"key", ["first".to_owned()]).await;
    let mut inbox = consume(&log, BUDGET);
    let received = receive(&mut inbox, 1).await;
    assert_eq!(values(&received), ["first"]);
    complete(received);
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

async fn a_record_larger_than_the_whole_budget_still_passes(fixture: &Fixture) {
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
