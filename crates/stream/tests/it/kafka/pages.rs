//! Reading pages without a group.

use tidegate_stream::{
    Topic,
    page_reader::{Order, Query},
    topics::Partition,
};
use tidegate_test_support::servers;

use super::fixture::{Installation, append, close, numbers};

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_no_gap_or_overlap_in_either_order() {
    let Some(brokers) = servers::kafka("kafka: tail") else { return };
    let installation = Installation::on(&brokers).await;
    let log = installation.open().await;
    for number in 0..23 {
        let partition = Partition::new(Topic::DeadLetters, u32::try_from(number % 2).unwrap());
        append(&log, partition, numbers(number..number + 1)).await;
    }
    for order in [Order::Oldest, Order::Newest] {
        let (mut read_values, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page =
                log.read_page(Query { topic: Topic::DeadLetters, order, limit: 5, after }).await.unwrap();
            assert!(page.records.len() <= 5);
            read_values
                .extend(page.records.iter().map(|record| String::from_utf8(record.value.to_vec()).unwrap()));
            pages += 1;
            match page.next {
                Some(next) => after = Some(next.to_string().parse().unwrap()),
                None => break,
            }
        }
        let mut sorted = read_values.clone();
        sorted.sort();
        assert_eq!(sorted, numbers(0..23).collect::<Vec<_>>(), "{order:?}");
        assert_eq!(pages, 5, "{order:?}");
        // Each append waited for the previous one, so times do not decrease; equal ones may swap partitions.
        assert_eq!(read_values.first().unwrap() < read_values.last().unwrap(), order == Order::Oldest);
    }
    close(&log).await;
}
