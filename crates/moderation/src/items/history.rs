//! Finds stored items by arrival time: all of them, or a uniform sample.
//!
//! Every submission of the platform has a row in the index of its hour. The rows are ordered by the id's random bits,
//! so a sample reads only its own rows.

use std::{fmt, ops::Range, str::FromStr, time::Duration};

use futures::{StreamExt as _, stream};
use tidegate_schemas::{
    ids::{HOUR_MS, Millis, OrgId},
    records::Source,
};
use tidegate_store::{
    CursorPartition, PartitionCursor, Row as _, RowRange, Store,
    tables::items::{
        history::{ItemOfHour, RANDOM_BITS, SHARDS, random_bits_of, shard_of},
        items::Item,
    },
};

use super::stored::Submission;
use crate::Error;

/// Number of shards read concurrently, and per page.
const CONCURRENT_READS: usize = 32;
const MAX_SHARDS_PER_PAGE: usize = 4_096;

/// Maximum age of indexed items.
pub fn retention() -> Duration {
    ItemOfHour::TABLE.ttl.unwrap_or(Duration::MAX)
}

/// Builds the index row of a submission. Repeated submissions have none: their original is indexed. Fetched items
/// have none: rules do not act on them.
pub(crate) fn index_row(submission: &Submission<'_>) -> Option<ItemOfHour> {
    let Submission { header, entry, at, .. } = submission;
    if matches!(header.source, Source::Retroact | Source::PartialItems) {
        return None;
    }
    let draw = random_bits_of(entry.submission_id);
    Some(ItemOfHour {
        org: header.org.clone(),
        hour: at.append_ms.hour(),
        shard: shard_of(draw),
        draw,
        submission_id: entry.submission_id,
        type_id: entry.type_id.clone(),
        item_id: entry.id.clone(),
        append_ms: at.append_ms,
        offset: at.offset,
        position: i64::from(at.position),
    })
}

/// Sample of submissions by id. A larger sample contains the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Exclusive upper bound of the random bits.
    bound: i64,
}

impl Sample {
    pub const ALL: Self = Self { bound: 1 << RANDOM_BITS };

    /// Returns `None` unless the percentage is above 0 and at most 100.
    pub fn of_percent(percent: f64) -> Option<Self> {
        if !(percent > 0.0 && percent <= 100.0) {
            return None;
        }
        // In millionths of a percent: rounded to an integer, so that floating-point errors do not change the bound.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 100 million")]
        let millionths = (percent * 1e6).round() as u128;
        let bound = (millionths << RANDOM_BITS) / 100_000_000;
        Some(Self { bound: i64::try_from(bound).unwrap_or(i64::MAX).max(1) })
    }

    fn shards(self) -> i64 {
        shard_of(self.bound - 1) + 1
    }
}

/// Period with a sample of its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledPeriod {
    pub time: Range<Millis>,
    pub sample: Sample,
}

impl SampledPeriod {
    fn hours(&self) -> Range<i64> {
        let last = Millis(self.time.end.0.saturating_sub(1));
        self.time.start.hour()..last.hour() + 1
    }
}

/// Cursor of a page. Clients receive its text form.
pub type HistoryCursor = PartitionCursor<HourShard>;

/// Partition of the index: a part of the items of an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HourShard {
    hour: i64,
    shard: i64,
}

impl HourShard {
    /// Returns the time before which all items are read.
    pub fn at(self) -> Millis {
        Millis(self.hour.saturating_mul(HOUR_MS))
    }
}

impl CursorPartition for HourShard {}

impl fmt::Display for HourShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.hour, self.shard)
    }
}

impl FromStr for HourShard {
    type Err = tidegate_store::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (hour, shard) = text.split_once('~')?;
            let shard = shard.parse().ok().filter(|shard| (0..SHARDS).contains(shard))?;
            Some(Self { hour: hour.parse().ok()?, shard })
        };
        parse().ok_or(tidegate_store::Error::BadCursor)
    }
}

/// Page of stored items, hour by hour. A short or empty page is the last one only if `next` is `None`.
#[derive(Debug)]
pub struct HistoryPage {
    pub items: Vec<Item>,
    pub next: Option<HistoryCursor>,
}

/// Returns up to `limit` items of the span.
pub async fn load_page(
    store: &Store,
    org: &OrgId,
    span: &SampledPeriod,
    from: Option<HistoryCursor>,
    limit: usize,
) -> Result<HistoryPage, Error> {
    let (hours, shards) = (span.hours(), span.sample.shards());
    let start = HourShard { hour: hours.start, shard: 0 };
    let from = from.unwrap_or(HistoryCursor::start_of(start));
    let first = if from.partition.hour < hours.start { start } else { from.partition };
    let parts =
        (first.hour..hours.end).flat_map(|hour| (0..shards).map(move |shard| HourShard { hour, shard }));
    let mut parts = parts.skip_while(|part| *part < first).peekable();
    let page_shards: Vec<_> = parts.by_ref().take(MAX_SHARDS_PER_PAGE).collect();
    let next_shard = parts.next();

    let mut after = from.after;
    let mut reads = stream::iter(page_shards)
        .map(|partition| {
            let after = after.take().filter(|_| partition == from.partition);
            let range = RowRange::range((), ..span.sample.bound).limit(limit).page_size(limit).after(after);
            let HourShard { hour, shard } = partition;
            let mut rows = store.scan::<ItemOfHour>(&(org.clone(), hour, shard), range);
            async move {
                let rows_read = rows.all().await;
                rows_read.map(|page_rows| (HistoryCursor { partition, after: rows.cursor() }, page_rows))
            }
        })
        .buffered(CONCURRENT_READS);
    let mut index_rows = Vec::new();
    let mut next = None;
    while let Some(shard_rows) = reads.next().await {
        let (cursor, rows) = shard_rows?;
        if !index_rows.is_empty() && index_rows.len() + rows.len() > limit {
            // The shard's rows exceed the page. They are few, so the next page reads them again.
            next = Some(HistoryCursor::start_of(cursor.partition));
            break;
        }
        let is_full = rows.len() >= limit;
        index_rows.extend(rows.into_iter().filter(|row| span.time.contains(&row.append_ms)));
        if is_full {
            next = Some(cursor);
            break;
        }
    }
    drop(reads);
    if next.is_none() {
        // All shards of the page are read, so the next page starts after them.
        next = next_shard.map(HistoryCursor::start_of);
    }
    Ok(HistoryPage { items: load_items(store, index_rows).await?, next })
}

/// Loads the items of index rows, except those not stored yet.
async fn load_items(store: &Store, places: Vec<ItemOfHour>) -> Result<Vec<Item>, Error> {
    let keys: Vec<_> = places
        .into_iter()
        .map(|row| (row.org, row.type_id, row.item_id, row.append_ms, row.offset, row.position))
        .collect();
    Ok(store.get_many::<Item>(&keys).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::ids::SubmissionId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn sample_reads_only_its_own_shards() {
        for id in [0, u128::MAX, 0x1234_5678_9abc_def0_1122_3344_5566_7788] {
            let draw = random_bits_of(Uuid::from_u128(id).into());
            assert!((0..Sample::ALL.bound).contains(&draw));
            assert!((0..SHARDS).contains(&shard_of(draw)));
        }
        assert_eq!(Sample::ALL.shards(), SHARDS);
        assert_eq!(Sample::of_percent(100.0), Some(Sample::ALL));
        assert_eq!(Sample::of_percent(50.0).unwrap().shards(), SHARDS / 2);
        assert_eq!(Sample::of_percent(0.000_001).unwrap().shards(), 1);
        for percent in [0.0, -1.0, 100.1, f64::NAN] {
            assert_eq!(Sample::of_percent(percent), None, "{percent}");
        }
    }

    #[test]
    fn sample_size_matches_its_percentage() {
        let tenth = Sample::of_percent(10.0).unwrap();
        let count = (0..10_000_u128)
            .filter(|nth| {
                let id: SubmissionId = tidegate_schemas::ids::derive(
                    tidegate_schemas::ids::Kind::Submission,
                    &[&nth.to_be_bytes()],
                );
                random_bits_of(id) < tenth.bound
            })
            .count();
        // The ids are derived, so the count is always the same.
        assert!((900..1_100).contains(&count), "{count}");
    }

    #[test]
    fn cursor_round_trips_through_text() {
        for after in [None, Some("00ff".parse().unwrap())] {
            let place = HistoryCursor { partition: HourShard { hour: 480_000, shard: 31 }, after };
            assert_eq!(place.to_string().parse::<HistoryCursor>().unwrap(), place);
        }
        for text in ["", "1", "1~2", "1~32~", "1~-1~", "x~1~", "1~1~xyz"] {
            assert!(text.parse::<HistoryCursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn span_covers_each_touched_hour() {
        let span =
            |start, end| SampledPeriod { time: Millis(start)..Millis(end), sample: Sample::ALL }.hours();
        assert_eq!(span(0, HOUR_MS), 0..1);
        assert_eq!(span(1, HOUR_MS + 1), 0..2);
    }
}
