//! Counters of windows: stores what items add and counts them.
//!
//! A row is keyed by its submission, so an item that is processed twice is counted once. An item that comes in counts every
//! row that is there; one that is evaluated again counts the rows up to its own place in the log. `tidegate-rules` says which
//! items add what.

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
    At, Batch, Store, WriteTime,
    tables::items::{
        items::Item,
        windows::{Added, DaysEntry, Entry, HoursEntry, Kept, MonthsEntry, YearsEntry},
    },
};

use crate::Error;

/// Pieces of a window that are read at once, the newest first.
const AT_ONCE: usize = 8;

/// Rows that are read at once, at the least and at the most.
const PAGE: (usize, usize) = (16, 500);

/// Largest number of rows in one write. The embedded store lets no other org write during it, and an item has up to four writes
/// to wait for.
const BATCH_ROWS: usize = 250;

/// The place of a submission among all others, and the same however often and wherever it is processed: when the log
/// took it, then where it stands in its partition. Of two partitions at the same millisecond neither came first; any order
/// serves that everybody agrees on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    append_ms: Millis,
    /// Rows from before this was kept have none, and come first.
    place: Option<(i64, i64)>,
    submission: SubmissionId,
}

impl Moment {
    pub fn new(at: Coordinates, submission: SubmissionId) -> Self {
        Self { append_ms: at.append_ms, place: Some((at.offset, i64::from(at.position))), submission }
    }

    pub fn append_ms(self) -> Millis {
        self.append_ms
    }
}

impl From<&Item> for Moment {
    fn from(row: &Item) -> Self {
        Self {
            append_ms: row.append_ms,
            place: Some((row.offset, row.position)),
            submission: row.submission_id,
        }
    }
}

impl From<&Added> for Moment {
    fn from(row: &Added) -> Self {
        Self { append_ms: row.at, place: row.offset.zip(row.position), submission: row.submission_id }
    }
}

/// Stores the entries that an item adds to windows.
pub async fn add(store: &Store, org: &OrgId, item: Moment, entries: &[WindowEntry]) -> Result<(), Error> {
    add_all(store, org, [(item, entries)], false).await
}

/// Stores the entries of several items. `are_new` promises that none of them was ever stored before, which halves the cost.
/// After an error, some of the entries may be stored.
pub async fn add_all<'a>(
    store: &Store,
    org: &OrgId,
    items: impl IntoIterator<Item = (Moment, &'a [WindowEntry])> + Send,
    are_new: bool,
) -> Result<(), Error> {
    for batch in batches_of_entries(org, items, are_new) {
        store.write(batch).await?;
    }
    Ok(())
}

fn batches_of_entries<'a>(
    org: &OrgId,
    items: impl IntoIterator<Item = (Moment, &'a [WindowEntry])>,
    are_new: bool,
) -> Vec<Batch<'static>> {
    let items = items.into_iter();
    let entries: Vec<_> =
        items.flat_map(|(item, entries)| entries.iter().map(move |entry| (item, entry))).collect();
    let batch_of = |entries: &[(Moment, &WindowEntry)]| {
        let mut batch = Batch::new();
        if are_new {
            batch.of_new_rows();
        }
        for (item, entry) in entries {
            put_entry(&mut batch, org, *item, entry);
        }
        batch
    };
    entries.chunks(BATCH_ROWS).map(batch_of).collect()
}

fn put_entry(batch: &mut Batch, org: &OrgId, item: Moment, entry: &WindowEntry) {
    let row = Added {
        org: org.clone(),
        window: entry.window.clone(),
        key: entry.key.as_str().to_owned(),
        bucket: entry.bucket,
        submission_id: item.submission,
        at: entry.at,
        amount: entry.amount.0,
        members: packed(&entry.members),
        offset: item.place.map(|(offset, _)| offset),
        position: item.place.map(|(_, position)| position),
    };
    let at = WriteTime::of(entry.at, 0);
    match Kept::for_millis(entry.lives) {
        Kept::Hours => batch.put_owned(at, HoursEntry::from(row)),
        Kept::Days => batch.put_owned(at, DaysEntry::from(row)),
        Kept::Months => batch.put_owned(at, MonthsEntry::from(row)),
        Kept::Years => batch.put_owned(at, YearsEntry::from(row)),
    };
}

/// Number of rows that may still be read for an item, in all its windows.
#[derive(Debug)]
pub struct RowBudget(AtomicUsize);

impl RowBudget {
    pub const fn new(rows: usize) -> Self {
        Self(AtomicUsize::new(rows))
    }

    fn take(&self, rows: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(rows)).is_ok()
    }
}

/// A query about a window.
pub struct Question<'a> {
    pub org: &'a OrgId,
    pub window: &'a Window,
    pub key: &'a WindowKey,
    /// Counting may stop at this amount.
    pub at_least: Amount,
    /// Times of the rows that count.
    pub times: RangeInclusive<Millis>,
    /// Drops the rows that do not count for the asking item.
    pub select: &'a (dyn Fn(&mut Vec<Added>) + Send + Sync),
    pub budget: &'a RowBudget,
}

/// Returns the amount in the window, or at least `at_least`. `None` if that would read too many rows.
pub async fn counted(store: &Store, question: &Question<'_>) -> Result<Option<Amount>, Error> {
    match Kept::for_millis(question.window.lives()) {
        Kept::Hours => count::<HoursEntry>(store, question).await,
        Kept::Days => count::<DaysEntry>(store, question).await,
        Kept::Months => count::<MonthsEntry>(store, question).await,
        Kept::Years => count::<YearsEntry>(store, question).await,
    }
}

async fn count<R: Entry>(store: &Store, question: &Question<'_>) -> Result<Option<Amount>, Error> {
    let mut tally = question.window.tally(question.times.clone());
    let buckets: Vec<i64> = question.window.buckets(&question.times).rev().collect();
    for buckets in buckets.chunks(AT_ONCE) {
        let pieces = try_join_all(buckets.iter().map(|bucket| piece::<R>(store, question, *bucket))).await?;
        let mut is_whole = true;
        for (piece, ended) in pieces {
            tally.merge(piece);
            is_whole &= ended;
        }
        if tally.amount() >= question.at_least {
            return Ok(Some(tally.amount()));
        }
        if !is_whole {
            return Ok(None);
        }
    }
    Ok(Some(tally.amount()))
}

/// Counts the rows of a bucket up to the point where they alone are enough. False if the rows' budget ended before.
async fn piece<'a, R: Entry>(
    store: &Store,
    question: &'a Question<'_>,
    bucket: i64,
) -> Result<(RunningCount<'a>, bool), Error> {
    let partition =
        (question.org.clone(), question.window.key.clone(), question.key.as_str().to_owned(), bucket);
    let wanted = usize::try_from(question.at_least.0 / Amount::ONE.0).unwrap_or(PAGE.1);
    let page = wanted.clamp(PAGE.0, PAGE.1);
    let mut pages = store.scan::<R>(&partition, At::all().page_size(page));
    let mut tally = question.window.tally(question.times.clone());
    while let Some(page) = pages.next_page().await? {
        if !question.budget.take(page.len()) {
            return Ok((tally, false));
        }
        let mut rows: Vec<Added> = page.into_iter().map(Into::into).collect();
        (question.select)(&mut rows);
        for row in rows {
            tally.add(row.at, Amount(row.amount), &unpacked(&row.members));
        }
        if tally.amount() >= question.at_least {
            break;
        }
    }
    Ok((tally, true))
}

/// Drops the rows of items that come later in the log.
pub fn up_to(moment: Moment, rows: &mut Vec<Added>) {
    rows.retain(|row| Moment::from(row) <= moment);
}

fn packed(members: &[i64]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(members.len() * 8);
    members.iter().for_each(|member| bytes.extend_from_slice(&member.to_be_bytes()));
    bytes.freeze()
}

fn unpacked(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|member| i64::from_be_bytes(*member)).collect()
}
