//! Reads pages of a Kafka topic without joining a group: as much of every partition as a page can need, merged by time.
//!
//! It commits no offsets; the next page begins at the cursor.

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

use super::{arena::Arena, client_stats, topic_names::TopicNames};
use crate::{
    codec::Codec,
    error::PageError,
    page_reader::{self, Cursor, Order, Page, Query},
    record::FetchedRecord,
    settings::Settings,
    topics::Partition,
};

/// Sort key of a record in a page. Times are adjusted to never decrease within a partition, so a page takes a prefix of
/// each.
type SortKey = (Millis, u32, i64);

/// Range of offsets to read from one partition.
struct OffsetRange {
    start: i64,
    end: i64,
}

/// Records of a page, and whether the topic has more.
struct Selection {
    records: BTreeMap<SortKey, FetchedRecord>,
    has_more: bool,
}

pub(super) fn read(
    settings: &Settings,
    names: &TopicNames,
    codec: &Codec,
    query: &Query,
) -> Result<Page, PageError> {
    let partitions = settings.partition_count();
    let after = query.after.as_ref().map(|Cursor(offsets)| offsets);
    // The cursor is text from a client and may name other partitions.
    if after.is_some_and(|offsets| offsets.keys().any(|partition| *partition >= partitions)) {
        return Err(PageError::Cursor { topic: query.topic });
    }
    let unavailable = |detail: String| PageError::Unavailable { detail };
    let config = settings.kafka.reader(&format!("{}.tail", settings.prefix)).map_err(unavailable)?;
    let consumer: BaseConsumer =
        config.create().map_err(|why| unavailable(client_stats::creation_error(&why)))?;
    let reader = PageReader {
        consumer,
        topic: names.name(query.topic),
        query,
        timeout: Duration::from_millis(settings.kafka.socket_timeout_ms),
    };
    let result = reader
        .compute_ranges(partitions, after)
        .and_then(|(ranges, more)| Ok((reader.select_records(&ranges, more)?, ranges)));
    let (selection, ranges) = result.map_err(|why| unavailable(why.to_string()))?;
    page(codec, query, selection, &ranges)
}

/// Returns the committed offsets of a group without joining it.
pub(super) fn committed(settings: &Settings, topic: &str, group_id: &str) -> Result<Cursor, PageError> {
    let unavailable = |detail: String| PageError::Unavailable { detail };
    let config = settings.kafka.reader(group_id).map_err(unavailable)?;
    let consumer: BaseConsumer =
        config.create().map_err(|why| unavailable(client_stats::creation_error(&why)))?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..settings.partition_count() {
        partitions.add_partition(topic, index(partition));
    }
    let timeout = Duration::from_millis(settings.kafka.socket_timeout_ms);
    let deadline = Instant::now() + timeout;
    let committed = loop {
        match consumer.committed_offsets(partitions.clone(), timeout) {
            Ok(committed) => break committed,
            Err(why) if is_coordinator_moving(&why) && Instant::now() < deadline => {
                #[expect(clippy::disallowed_methods, reason = "it runs on a thread that may block")]
                std::thread::sleep(COORDINATOR_PAUSE);
            }
            Err(why) => return Err(unavailable(why.to_string())),
        }
    };
    let offsets = committed.elements().into_iter().filter_map(|element| match element.offset() {
        KafkaOffset::Offset(next) => Some((u32::try_from(element.partition()).ok()?, next)),
        _ => None,
    });
    Ok(Cursor(offsets.collect()))
}

/// Pause before a query is repeated while the coordinator of the group is being found.
const COORDINATOR_PAUSE: Duration = Duration::from_millis(100);

/// True if the group's coordinator is being found or loaded, as at its first use.
fn is_coordinator_moving(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator};
    let code = error.rdkafka_error_code();
    code.is_some_and(|code| {
        [CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator].contains(&code)
    })
}

struct PageReader<'a> {
    consumer: BaseConsumer,
    topic: &'a str,
    query: &'a Query,
    timeout: Duration,
}

impl PageReader<'_> {
    /// Returns for each partition a range that would fill the page alone, and true if some partition has more.
    fn compute_ranges(
        &self,
        partitions: u32,
        after: Option<&BTreeMap<u32, i64>>,
    ) -> KafkaResult<(BTreeMap<u32, OffsetRange>, bool)> {
        let limit = i64::try_from(self.query.limit).unwrap_or(i64::MAX);
        let (mut ranges, mut has_more) = (BTreeMap::new(), false);
        for partition in 0..partitions {
            let (low, high) = self.consumer.fetch_watermarks(self.topic, index(partition), self.timeout)?;
            let cursor = after.and_then(|offsets| offsets.get(&partition)).copied();
            let range = match self.query.order {
                Order::Oldest => {
                    let start = cursor.unwrap_or(low).max(low);
                    OffsetRange { start, end: high.min(start.saturating_add(limit)) }
                }
                Order::Newest => {
                    let end = cursor.unwrap_or(high).min(high);
                    OffsetRange { start: low.max(end.saturating_sub(limit)), end }
                }
            };
            has_more |= match self.query.order {
                Order::Oldest => range.end < high,
                Order::Newest => range.start > low,
            };
            ranges.insert(partition, range);
        }
        Ok((ranges, has_more))
    }

    fn select_records(&self, ranges: &BTreeMap<u32, OffsetRange>, has_more: bool) -> KafkaResult<Selection> {
        let mut selection = Selection { records: BTreeMap::new(), has_more };
        let mut unread_partitions: BTreeMap<u32, Millis> = BTreeMap::new();
        let mut assignment = TopicPartitionList::new();
        for (partition, range) in ranges.iter().filter(|(_, range)| range.start < range.end) {
            assignment.add_partition_offset(
                self.topic,
                index(*partition),
                KafkaOffset::Offset(range.start),
            )?;
            unread_partitions.insert(*partition, Millis(i64::MIN));
        }
        self.consumer.assign(&assignment)?;
        let deadline = Instant::now() + self.timeout;
        while !unread_partitions.is_empty() {
            match self.consumer.poll(deadline.saturating_duration_since(Instant::now())) {
                Some(Ok(message)) => {
                    let Ok(partition) = u32::try_from(message.partition()) else { continue };
                    let (Some(last_time), Some(range)) =
                        (unread_partitions.get_mut(&partition), ranges.get(&partition))
                    else {
                        continue;
                    };
                    if message.offset() < range.end {
                        *last_time = (*last_time).max(Millis(message.timestamp().to_millis().unwrap_or(0)));
                        let mut arena = Arena::default();
                        arena.push(Partition::new(self.query.topic, partition), &message);
                        let sort_key = (*last_time, partition, message.offset());
                        selection.records.extend(arena.into_records().pop().map(|record| (sort_key, record)));
                    }
                    if message.offset() + 1 >= range.end {
                        unread_partitions.remove(&partition);
                    }
                }
                // The last offsets of a partition may hold no records, so the end is reported as an event.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    unread_partitions.remove(&u32::try_from(partition).unwrap_or(u32::MAX));
                }
                Some(Err(why)) => return Err(why),
                None if Instant::now() < deadline => {}
                None => return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut)),
            }
            // Drops the record furthest from the start of the page, which bounds memory.
            if selection.records.len() > self.query.limit {
                selection.has_more = true;
                match self.query.order {
                    Order::Oldest => selection.records.pop_last(),
                    Order::Newest => selection.records.pop_first(),
                };
            }
        }
        Ok(selection)
    }
}

/// Builds the page. It takes a prefix of each range (newest first: a suffix), and the cursor is the end of that.
fn page(
    codec: &Codec,
    query: &Query,
    selection: Selection,
    ranges: &BTreeMap<u32, OffsetRange>,
) -> Result<Page, PageError> {
    let mut cursor: BTreeMap<u32, i64> = ranges
        .iter()
        .map(|(partition, range)| match query.order {
            Order::Oldest => (*partition, range.start),
            Order::Newest => (*partition, range.end),
        })
        .collect();
    let mut records = Vec::with_capacity(selection.records.len());
    for ((_, partition, offset), record) in selection.records {
        let end = cursor.entry(partition).or_insert(offset);
        *end = match query.order {
            Order::Oldest => (*end).max(offset + 1),
            Order::Newest => (*end).min(offset),
        };
        records.push(page_reader::unframe(codec, query.topic, record)?);
    }
    if query.order == Order::Newest {
        records.reverse();
    }
    Ok(Page { records, next: selection.has_more.then_some(Cursor(cursor)) })
}

fn index(partition: u32) -> i32 {
    i32::try_from(partition).unwrap_or(i32::MAX)
}
