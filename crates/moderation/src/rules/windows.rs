//! Counters of windows: stores what items add and counts them.
//!
//! A row is keyed by its submission, so an item that is processed twice is counted once. Rows are ordered as in the log,
//! and an item never counts what came after it. `tidegate-rules` says which items add what.

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
    add_all(store, org, [(item, entries)]).await
}

/// Stores the entries of several items in one batch.
pub async fn add_all<'a>(
    store: &Store,
    org: &OrgId,
    items: impl IntoIterator<Item = (Moment, &'a [WindowEntry])> + Send,
) -> Result<(), Error> {
    let mut batch = Batch::new();
    let items = items.into_iter();
    for (item, entry) in items.flat_map(|(item, entries)| entries.iter().map(move |entry| (item, entry))) {
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
    if !batch.is_empty() {
        store.write(batch).await?;
    }
    Ok(())
}

/// A query about a window.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub org: &'a OrgId,
    pub window: &'a Window,
    pub key: &'a WindowKey,
    /// Counting may stop at this amount.
    pub at_least: Amount,
    /// Position of the asking item; later items do not count.
    pub moment: Moment,
    /// Number of rows that may be read.
    pub most_rows: usize,
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
    let mut tally = question.window.tally(question.moment.append_ms);
    let mut read = 0;
    let buckets: Vec<i64> = question.window.buckets(question.moment.append_ms).rev().collect();
    for buckets in buckets.chunks(AT_ONCE) {
        let pieces = try_join_all(buckets.iter().map(|bucket| piece::<R>(store, question, *bucket))).await?;
        for piece in pieces {
            read += piece.len();
            for row in &piece {
                put_in(&mut tally, row, question.moment);
            }
            if tally.amount() >= question.at_least {
                return Ok(Some(tally.amount()));
            }
            if read > question.most_rows {
                return Ok(None);
            }
        }
    }
    Ok(Some(tally.amount()))
}

/// Returns the rows of a bucket, up to the point where they alone are enough or too many.
async fn piece<R: Entry>(store: &Store, question: &Question<'_>, bucket: i64) -> Result<Vec<Added>, Error> {
    let partition =
        (question.org.clone(), question.window.key.clone(), question.key.as_str().to_owned(), bucket);
    let wanted = usize::try_from(question.at_least.0 / Amount::ONE.0).unwrap_or(PAGE.1);
    let page = wanted.clamp(PAGE.0, PAGE.1);
    let mut pages = store.scan::<R>(&partition, At::all().page_size(page));
    let mut tally = question.window.tally(question.moment.append_ms);
    let mut rows = Vec::new();
    while let Some(page) = pages.next_page().await? {
        for row in page.into_iter().map(Into::into) {
            put_in(&mut tally, &row, question.moment);
            rows.push(row);
        }
        if tally.amount() >= question.at_least || rows.len() > question.most_rows {
            break;
        }
    }
    Ok(rows)
}

fn put_in(tally: &mut RunningCount<'_>, row: &Added, moment: Moment) {
    if Moment::from(row) <= moment {
        tally.add(row.at, Amount(row.amount), &unpacked(&row.members));
    }
}

fn packed(members: &[i64]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(members.len() * 8);
    members.iter().for_each(|member| bytes.extend_from_slice(&member.to_be_bytes()));
    bytes.freeze()
}

fn unpacked(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|member| i64::from_be_bytes(*member)).collect()
}
