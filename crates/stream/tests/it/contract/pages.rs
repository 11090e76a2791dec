//! Reading without a group, in pages.

use tidegate_stream::{
    Log, Topic,
    page_reader::{Cursor, Order, Query},
};

use crate::{
    contract::fixture::{Fixture, contract},
    support::{append, items, numbers},
};

contract! {
    pages_from_either_end_show_every_record_once
    an_empty_topic_is_one_empty_page
}

async fn pages(log: &Log, order: Order, limit: usize) -> Vec<String> {
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = log.read_page(Query { topic: Topic::Items, order, limit, after }).await.unwrap();
        assert!(page.records.len() <= limit);
        seen.extend(page.records.iter().map(|one| String::from_utf8(one.value.to_vec()).unwrap()));
        // As an address line carries it.
        let Some(next) = page.next else { return seen };
        after = Some(next.to_string().parse::<Cursor>().unwrap());
    }
}

async fn pages_from_either_end_show_every_record_once(fixture: &Fixture) {
    let log = fixture.open().await;
    for index in 0..4 {
        append(&log, items(index), b"key", numbers(0..10).map(|n| format!("{index}-{n}"))).await;
    }
    for order in [Order::Oldest, Order::Newest] {
        let seen = pages(&log, order, 7).await;
        assert_eq!(seen.len(), 40);
        for index in 0..4 {
            let own: Vec<_> =
                seen.iter().filter(|value| value.starts_with(&format!("{index}-"))).cloned().collect();
            let mut expected: Vec<_> = numbers(0..10).map(|n| format!("{index}-{n}")).collect();
            if order == Order::Newest {
                expected.reverse();
            }
            assert_eq!(own, expected);
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
