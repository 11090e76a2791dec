//! Reading without a group, in pages.

use std::time::Duration;

use tidegate_stream::{
    Log, Topic,
    page_reader::{Cursor, Order, Query},
};
use tidegate_test_support::{PATIENCE, eventually_ok};

use crate::{
    contract::fixture::{Fixture, contract},
    support::{BUDGET, GROUP, append, complete, consume, items, numbers, receive, stop, value},
};

contract! {
    pages_from_either_end_show_every_record_once
    an_empty_topic_is_one_empty_page
    oldest_uncommitted_record_is_visible_to_all_processes
}

async fn pages(log: &Log, order: Order, limit: usize) -> Vec<String> {
    let mut read_values = Vec::new();
    let mut after = None;
    loop {
        let page = log.read_page(Query { topic: Topic::Items, order, limit, after }).await.unwrap();
        assert!(page.records.len() <= limit);
        read_values
            .extend(page.records.iter().map(|record| String::from_utf8(record.value.to_vec()).unwrap()));
        // The cursor passes through its text form, as in a URL.
        let Some(next) = page.next else { return read_values };
        after = Some(next.to_string().parse::<Cursor>().unwrap());
    }
}

async fn pages_from_either_end_show_every_record_once(fixture: &Fixture) {
    let log = fixture.open().await;
    for index in 0..4 {
        append(&log, items(index), b"key", numbers(0..10).map(|n| format!("{index}-{n}"))).await;
    }
    for order in [Order::Oldest, Order::Newest] {
        let read_values = pages(&log, order, 7).await;
        assert_eq!(read_values.len(), 40);
        for index in 0..4 {
            let partition_values: Vec<_> =
                read_values.iter().filter(|value| value.starts_with(&format!("{index}-"))).cloned().collect();
            let mut expected: Vec<_> = numbers(0..10).map(|n| format!("{index}-{n}")).collect();
            if order == Order::Newest {
                expected.reverse();
            }
            assert_eq!(partition_values, expected);
        }
    }
    fixture.close(log).await;
}

async fn an_empty_topic_is_one_empty_page(fixture: &Fixture) {
    let log = fixture.open().await;
    assert!(pages(&log, Order::Oldest, 5).await.is_empty());
    assert!(pages(&log, Order::Newest, 5).await.is_empty());
    fixture.close(log).await;
}

async fn oldest_uncommitted_record_is_visible_to_all_processes(fixture: &Fixture) {
    let log = fixture.open().await;
    assert_eq!(log.oldest_uncommitted(GROUP, Topic::Items).await.unwrap(), None, "no record was appended");
    append(&log, items(0), b"key", ["first".to_owned()]).await;
    // The second record gets a later time than the first.
    tokio::time::sleep(Duration::from_millis(20)).await;
    append(&log, items(1), b"key", ["second".to_owned()]).await;
    let query = Query { topic: Topic::Items, order: Order::Oldest, limit: 2, after: None };
    let times: Vec<_> =
        log.read_page(query).await.unwrap().records.iter().map(|record| record.written_at).collect();
    let oldest = async || log.oldest_uncommitted(GROUP, Topic::Items).await.unwrap();
    assert_eq!(oldest().await, Some(times[0]), "no record was committed");

    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 2).await;
    let (first, second): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| value(record) == "first");
    for (completed, expected_oldest) in [(first, Some(times[1])), (second, None)] {
        complete(completed);
        let matches_expected = async || match oldest().await {
            time if time == expected_oldest => Ok(()),
            time => Err(anyhow::anyhow!("{time:?} instead of {expected_oldest:?}")),
        };
        eventually_ok("the oldest uncommitted record", PATIENCE, matches_expected).await.unwrap();
    }
    stop(inbox).await;
    fixture.close(log).await;
}
