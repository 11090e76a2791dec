//! Contributions of items to windows: one row an item, found by the window's key and time.
//! `tidegate-moderation` counts them.
//!
//! Rows of a table expire after the same time, so each range of window lengths has a table. Every expiry is longer than
//! the longest window of its table, so that late records still count.

use bytes::Bytes;
use tidegate_schemas::ids::{DAY_MS, Millis, OrgId, SubmissionId, WindowId};

use crate::{Fact, table};

table! {
    /// Entries of windows up to some hours.
    Fact HoursEntry in "window_hours" ttl Some(3 days), window 1 hours;
    partition { org: OrgId, window: WindowId, key: String, bucket: i64 }
    cluster { submission_id: SubmissionId [Asc] }
    values { at: Millis, amount: i64, members: Bytes, offset: Option<i64>, position: Option<i64> }
}

table! {
    /// Entries of windows up to a month.
    Fact DaysEntry in "window_days" ttl Some(45 days), window 1 days;
    partition { org: OrgId, window: WindowId, key: String, bucket: i64 }
    cluster { submission_id: SubmissionId [Asc] }
    values { at: Millis, amount: i64, members: Bytes, offset: Option<i64>, position: Option<i64> }
}

table! {
    /// Entries of windows up to a year.
    Fact MonthsEntry in "window_months" ttl Some(450 days), window 15 days;
    partition { org: OrgId, window: WindowId, key: String, bucket: i64 }
    cluster { submission_id: SubmissionId [Asc] }
    values { at: Millis, amount: i64, members: Bytes, offset: Option<i64>, position: Option<i64> }
}

table! {
    /// Entries of longer windows.
    Fact YearsEntry in "window_years" ttl Some(4500 days), window 150 days;
    partition { org: OrgId, window: WindowId, key: String, bucket: i64 }
    cluster { submission_id: SubmissionId [Asc] }
    values { at: Millis, amount: i64, members: Bytes, offset: Option<i64>, position: Option<i64> }
}

/// Row of any window table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWindowEntry {
    pub org: OrgId,
    pub window: WindowId,
    pub key: String,
    pub bucket: i64,
    pub submission_id: SubmissionId,
    pub at: Millis,
    /// Amount in millionths.
    pub amount: i64,
    /// Eight bytes a member.
    pub members: Bytes,
    /// Offset of the item's record in its partition; absent in rows of earlier versions.
    pub offset: Option<i64>,
    /// Position of the item in its record.
    pub position: Option<i64>,
}

/// Row type of one window table.
pub trait WindowRow:
    Fact<Partition = (OrgId, WindowId, String, i64)> + From<StoredWindowEntry> + Into<StoredWindowEntry>
{
}

macro_rules! entries {
    ($($row:ident),*) => {$(
        impl From<StoredWindowEntry> for $row {
            fn from(entry: StoredWindowEntry) -> Self {
                let StoredWindowEntry { org, window, key, bucket, submission_id, at, amount, members, offset, position } = entry;
                Self { org, window, key, bucket, submission_id, at, amount, members, offset, position }
            }
        }

        impl From<$row> for StoredWindowEntry {
            fn from(entry: $row) -> Self {
                let $row { org, window, key, bucket, submission_id, at, amount, members, offset, position } = entry;
                Self { org, window, key, bucket, submission_id, at, amount, members, offset, position }
            }
        }

        impl WindowRow for $row {}
    )*};
}

entries! { HoursEntry, DaysEntry, MonthsEntry, YearsEntry }

/// Table for the rows of a window, chosen by the window's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowTable {
    Hours,
    Days,
    Months,
    Years,
}

impl WindowTable {
    /// Returns the table for rows that count for this many milliseconds.
    pub const fn for_millis(lives: i64) -> Self {
        if lives <= DAY_MS {
            Self::Hours
        } else if lives <= 35 * DAY_MS {
            Self::Days
        } else if lives <= 400 * DAY_MS {
            Self::Months
        } else {
            Self::Years
        }
    }
}
