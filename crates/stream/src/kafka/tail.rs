//! Reads a page of a Kafka topic without a group: of every partition as much as the page can need, merged by time.
//!
//! It joins no group and commits nothing; whoever pages on does so by the cursor.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset as KafkaOffset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    message::Message,
};
use tidegate_schemas::ids::Millis;

use super::{arena::Arena, context::Names};
use crate::{
    codec::Codec,
    error::TailError,
    record::Fetched,
    settings::Settings,
    tail::{self, Cursor, Order, Page, Query},
    topics::Partition,
};

/// The order of a page. Times are made never to fall within a partition, so a page takes a prefix of each.
type Place = (Millis, u32, i64);

/// What to read of one partition.
struct Range {
    start: i64,
    end: i64,
}

/// The best records for a page, and whether any other is left.
struct Best {
    records: BTreeMap<Place, Fetched>,
    more: bool,
}

pub(super) fn read(
    settings: &Settings,
    names: &Names,
    codec: &Codec,
    query: &Query,
) -> Result<Page, TailError> {
    let partitions = settings.partition_count();
    let after = query.after.as_ref().map(|Cursor(offsets)| offsets);
    if after.is_some_and(|offsets| offsets.keys().any(|partition| *partition >= partitions)) {
        return Err(TailError::Cursor { topic: query.topic });
    }
    let unavailable = |detail: String| TailError::Unavailable { detail };
    let config = settings.kafka.reader(&format!("{}.tail", settings.prefix)).map_err(unavailable)?;
    let reader: BaseConsumer = config.create().map_err(|why| unavailable(super::creation(&why)))?;
    let pages = Pages {
        reader,
        topic: names.kafkas(query.topic),
        query,
        patience: Duration::from_millis(settings.kafka.socket_timeout_ms),
    };
    let read =
        pages.ranges(partitions, after).and_then(|(ranges, more)| Ok((pages.best(&ranges, more)?, ranges)));
    let (best, ranges) = read.map_err(|why| unavailable(why.to_string()))?;
    page(codec, query, best, &ranges)
}

struct Pages<'a> {
    reader: BaseConsumer,
    topic: &'a str,
    query: &'a Query,
    patience: Duration,
}

impl Pages<'_> {
    /// As much of each partition as would fill the page alone. True: there is more of some.
    fn ranges(
        &self,
        partitions: u32,
        after: Option<&BTreeMap<u32, i64>>,
    ) -> KafkaResult<(BTreeMap<u32, Range>, bool)> {
        let limit = i64::try_from(self.query.limit).unwrap_or(i64::MAX);
        let (mut ranges, mut more) = (BTreeMap::new(), false);
        for partition in 0..partitions {
            let (low, high) = self.reader.fetch_watermarks(self.topic, index(partition), self.patience)?;
            let cursor = after.and_then(|offsets| offsets.get(&partition)).copied();
            let range = match self.query.order {
                Order::Oldest => {
                    let start = cursor.unwrap_or(low).max(low);
                    Range { start, end: high.min(start.saturating_add(limit)) }
                }
                Order::Newest => {
                    let end = cursor.unwrap_or(high).min(high);
                    Range { start: low.max(end.saturating_sub(limit)), end }
                }
            };
            more |= match self.query.order {
                Order::Oldest => range.end < high,
                Order::Newest => range.start > low,
            };
            ranges.insert(partition, range);
        }
        Ok((ranges, more))
    }

    fn best(&self, ranges: &BTreeMap<u32, Range>, more: bool) -> KafkaResult<Best> {
        let mut best = Best { records: BTreeMap::new(), more };
        let mut open: BTreeMap<u32, Millis> = BTreeMap::new();
        let mut assignment = TopicPartitionList::new();
        for (partition, range) in ranges.iter().filter(|(_, range)| range.start < range.end) {
            assignment.add_partition_offset(
                self.topic,
                index(*partition),
                KafkaOffset::Offset(range.start),
            )?;
            open.insert(*partition, Millis(i64::MIN));
        }
        self.reader.assign(&assignment)?;
        let deadline = Instant::now() + self.patience;
        while !open.is_empty() {
            match self.reader.poll(deadline.saturating_duration_since(Instant::now())) {
                Some(Ok(message)) => {
                    let Ok(partition) = u32::try_from(message.partition()) else { continue };
                    let (Some(latest), Some(range)) = (open.get_mut(&partition), ranges.get(&partition))
                    else {
                        continue;
                    };
                    if message.offset() < range.end {
                        *latest = (*latest).max(Millis(message.timestamp().to_millis().unwrap_or(0)));
                        let mut arena = Arena::default();
                        arena.push(Partition::new(self.query.topic, partition), &message);
                        let place = (*latest, partition, message.offset());
                        best.records.extend(arena.into_records().pop().map(|record| (place, record)));
                    }
                    if message.offset() + 1 >= range.end {
                        open.remove(&partition);
                    }
                }
                // The last offsets of a partition need not be records.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    open.remove(&u32::try_from(partition).unwrap_or(u32::MAX));
                }
                Some(Err(why)) => return Err(why),
                None if Instant::now() < deadline => {}
                None => return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut)),
            }
            if best.records.len() > self.query.limit {
                best.more = true;
                match self.query.order {
                    Order::Oldest => best.records.pop_last(),
                    Order::Newest => best.records.pop_first(),
                };
            }
        }
        Ok(best)
    }
}

/// A page takes a prefix of each range (newest first: a suffix), so the cursor is where that ends.
fn page(codec: &Codec, query: &Query, best: Best, ranges: &BTreeMap<u32, Range>) -> Result<Page, TailError> {
    let mut cursor: BTreeMap<u32, i64> = ranges
        .iter()
        .map(|(partition, range)| match query.order {
            Order::Oldest => (*partition, range.start),
            Order::Newest => (*partition, range.end),
        })
        .collect();
    let mut records = Vec::with_capacity(best.records.len());
    for ((_, partition, offset), record) in best.records {
        let end = cursor.entry(partition).or_insert(offset);
        *end = match query.order {
            Order::Oldest => (*end).max(offset + 1),
            Order::Newest => (*end).min(offset),
        };
        records.push(tail::opened(codec, query.topic, record)?);
    }
    if query.order == Order::Newest {
        records.reverse();
    }
    Ok(Page { records, next: best.more.then_some(Cursor(cursor)) })
}

fn index(partition: u32) -> i32 {
    i32::try_from(partition).unwrap_or(i32::MAX)
}
