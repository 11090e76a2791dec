//! Window counters: stores the entries of items and counts them.
//!
//! A row is keyed by its submission, so a replayed item counts once. An item of the stream counts every stored row; a
//! repeated evaluation counts the rows up to its own position in the log. `tidegate-rules` decides the entries of
//! each item.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;
use tidegate_rules::{Amount, RunningCount, Window, WindowEntry, WindowKey};
use tidegate_schemas::{
    ids::{Millis, OrgId, SubmissionId},
    records::Coordinates,
};
use tidegate_store::{
    Batch, RowRange, Store, WriteTime,
    tables::items::{
        items::Item,
        windows::{
            DaysEntry, HoursEntry, MonthsEntry, StoredWindowEntry, WindowRow, WindowTable, YearsEntry,
        },
    },
};

use crate::Error;

/// Number of buckets read concurrently, newest first.
const CONCURRENT_BUCKETS: usize = 8;

/// Minimum and maximum number of rows per read.
const PAGE: (usize, usize) = (16, 500);

/// Maximum number of rows per write. The embedded store serves no other org during a write, and an item can wait for
/// up to four writes.
const BATCH_ROWS: usize = 250;

/// Position of a submission in the order of all submissions, equal in every process and replay: append time, then
/// offset and position in its partition. Partitions have no common order within a millisecond, so any fixed order is
/// valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubmissionPosition {
    append_ms: Millis,
    /// `None` in rows of earlier versions; these are ordered first.
    log_position: Option<(i64, i64)>,
    submission: SubmissionId,
}

impl SubmissionPosition {
    pub fn new(at: Coordinates, submission: SubmissionId) -> Self {
        Self { append_ms: at.append_ms, log_position: Some((at.offset, i64::from(at.position))), submission }
    }

    pub fn append_ms(self) -> Millis {
        self.append_ms
    }
}

impl From<&Item> for SubmissionPosition {
    fn from(row: &Item) -> Self {
        Self {
            append_ms: row.append_ms,
            log_position: Some((row.offset, row.position)),
            submission: row.submission_id,
        }
    }
}

impl From<&StoredWindowEntry> for SubmissionPosition {
    fn from(row: &StoredWindowEntry) -> Self {
        Self { append_ms: row.at, log_position: row.offset.zip(row.position), submission: row.submission_id }
    }
}

/// Stores the window entries of an item.
pub async fn put_entries(
    store: &Store,
    org: &OrgId,
    item: SubmissionPosition,
    entries: &[WindowEntry],
) -> Result<(), Error> {
    put_entries_of_items(store, org, [(item, entries)], false).await
}

/// Stores the window entries of several items. `are_new` promises that none of them was stored before, which halves
/// the cost. After an error, some of the entries may be stored.
pub async fn put_entries_of_items<'a>(
    store: &Store,
    org: &OrgId,
    items: impl IntoIterator<Item = (SubmissionPosition, &'a [WindowEntry])> + Send,
    are_new: bool,
) -> Result<(), Error> {
    for batch in batches_of_entries(org, items, are_new) {
        store.write(batch).await?;
    }
    Ok(())
}

fn batches_of_entries<'a>(
    org: &OrgId,
    items: impl IntoIterator<Item = (SubmissionPosition, &'a [WindowEntry])>,
    are_new: bool,
) -> Vec<Batch<'static>> {
    let items = items.into_iter();
    let entries: Vec<_> =
        items.flat_map(|(item, entries)| entries.iter().map(move |entry| (item, entry))).collect();
    let batch_of = |entries: &[(SubmissionPosition, &WindowEntry)]| {
        let mut batch = Batch::new();
        if are_new {
            batch.assume_new_rows();
        }
        for (item, entry) in entries {
            put_entry(&mut batch, org, *item, entry);
        }
        batch
    };
    entries.chunks(BATCH_ROWS).map(batch_of).collect()
}

fn put_entry(batch: &mut Batch, org: &OrgId, item: SubmissionPosition, entry: &WindowEntry) {
    let row = StoredWindowEntry {
        org: org.clone(),
        window: entry.window.clone(),
        key: entry.key.as_str().to_owned(),
        bucket: entry.bucket,
        submission_id: item.submission,
        at: entry.at,
        amount: entry.amount.0,
        members: pack_members(&entry.members),
        offset: item.log_position.map(|(offset, _)| offset),
        position: item.log_position.map(|(_, position)| position),
    };
    // The item's own time, so that a replay writes the same row.
    let at = WriteTime::from_append(entry.at, 0);
    match WindowTable::for_millis(entry.retention_millis) {
        WindowTable::Hours => batch.put_owned(at, HoursEntry::from(row)),
        WindowTable::Days => batch.put_owned(at, DaysEntry::from(row)),
        WindowTable::Months => batch.put_owned(at, MonthsEntry::from(row)),
        WindowTable::Years => batch.put_owned(at, YearsEntry::from(row)),
    };
}

/// Remaining number of rows that may be read for all windows of an item.
#[derive(Debug)]
pub struct RowBudget(AtomicUsize);

impl RowBudget {
    pub const fn new(rows: usize) -> Self {
        Self(AtomicUsize::new(rows))
    }

    fn take(&self, rows: usize) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| remaining.checked_sub(rows))
            .is_ok()
    }
}

/// Question about a window.
pub struct WindowQuery<'a> {
    pub org: &'a OrgId,
    pub window: &'a Window,
    pub key: &'a WindowKey,
    /// Amount at which counting may stop.
    pub at_least: Amount,
    /// Time range of the rows that count.
    pub times: RangeInclusive<Millis>,
    /// Removes the rows that do not count for the asking item.
    pub select: &'a (dyn Fn(&mut Vec<StoredWindowEntry>) + Send + Sync),
    pub budget: &'a RowBudget,
}

/// Returns the amount in the window, or an amount of at least `at_least`. `None` if too many rows would be read.
pub async fn count_window(store: &Store, question: &WindowQuery<'_>) -> Result<Option<Amount>, Error> {
    match WindowTable::for_millis(question.window.retention_millis()) {
        WindowTable::Hours => count_rows::<HoursEntry>(store, question).await,
        WindowTable::Days => count_rows::<DaysEntry>(store, question).await,
        WindowTable::Months => count_rows::<MonthsEntry>(store, question).await,
        WindowTable::Years => count_rows::<YearsEntry>(store, question).await,
    }
}

async fn count_rows<R: WindowRow>(
    store: &Store,
    question: &WindowQuery<'_>,
) -> Result<Option<Amount>, Error> {
    let mut tally = question.window.tally(question.times.clone());
    // Newest first: recent rows usually suffice, so older buckets are not read.
    let buckets: Vec<i64> = question.window.buckets(&question.times).rev().collect();
    for buckets in buckets.chunks(CONCURRENT_BUCKETS) {
        let pieces =
            try_join_all(buckets.iter().map(|bucket| count_bucket::<R>(store, question, *bucket))).await?;
        let mut is_complete = true;
        for (piece, has_ended) in pieces {
            tally.merge(piece);
            is_complete &= has_ended;
        }
        if tally.amount() >= question.at_least {
            return Ok(Some(tally.amount()));
        }
        // Checked after the amount: a sufficient amount is valid even if the budget ended.
        if !is_complete {
            return Ok(None);
        }
    }
    Ok(Some(tally.amount()))
}

/// Counts the rows of a bucket until they alone are sufficient. The flag is false if the row budget ended before.
async fn count_bucket<'a, R: WindowRow>(
    store: &Store,
    question: &'a WindowQuery<'_>,
    bucket: i64,
) -> Result<(RunningCount<'a>, bool), Error> {
    let partition =
        (question.org.clone(), question.window.key.clone(), question.key.as_str().to_owned(), bucket);
    let sufficient_rows = usize::try_from(question.at_least.0 / Amount::ONE.0).unwrap_or(PAGE.1);
    let page = sufficient_rows.clamp(PAGE.0, PAGE.1);
    let mut pages = store.scan::<R>(&partition, RowRange::all().page_size(page));
    let mut tally = question.window.tally(question.times.clone());
    while let Some(page) = pages.next_page().await? {
        if !question.budget.take(page.len()) {
            return Ok((tally, false));
        }
        let mut rows: Vec<StoredWindowEntry> = page.into_iter().map(Into::into).collect();
        // After the budget check, because skipped rows were read as well.
        (question.select)(&mut rows);
        for row in rows {
            tally.add(row.at, Amount(row.amount), &unpack_members(&row.members));
        }
        if tally.amount() >= question.at_least {
            break;
        }
    }
    Ok((tally, true))
}

/// Removes the rows of later submissions.
pub fn retain_up_to(moment: SubmissionPosition, rows: &mut Vec<StoredWindowEntry>) {
    rows.retain(|row| SubmissionPosition::from(row) <= moment);
}

fn pack_members(members: &[i64]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(members.len() * 8);
    members.iter().for_each(|member| bytes.extend_from_slice(&member.to_be_bytes()));
    bytes.freeze()
}

fn unpack_members(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|member| i64::from_be_bytes(*member)).collect()
}
