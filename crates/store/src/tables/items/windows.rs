//! Contributions of items to windows: one row an item, found by the window's key and time.
//!
//! It does not count; `tidegate-moderation` does.
//!
//! Rows of a table expire together, so there is a table for each length of windows. Each lets records be processed some
//! time after they were sent.

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

/// A row of any of these tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
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
    /// Offset of the item's record in its partition; rows from before this was kept have none.
    pub offset: Option<i64>,
    /// Position of the item in its record.
    pub position: Option<i64>,
}

/// A table of these.
pub trait Entry: Fact<Partition = (OrgId, WindowId, String, i64)> + From<Added> + Into<Added> {}

macro_rules! entries {
    ($($row:ident),*) => {$(
        impl From<Added> for $row {
            fn from(it: Added) -> Self {
                let Added { org, window, key, bucket, submission_id, at, amount, members, offset, position } = it;
                Self { org, window, key, bucket, submission_id, at, amount, members, offset, position }
            }
        }

        impl From<$row> for Added {
            fn from(it: $row) -> Self {
                let $row { org, window, key, bucket, submission_id, at, amount, members, offset, position } = it;
                Self { org, window, key, bucket, submission_id, at, amount, members, offset, position }
            }
        }

        impl Entry for $row {}
    )*};
}

entries! { HoursEntry, DaysEntry, MonthsEntry, YearsEntry }

/// The table that a window's rows are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Hours,
    Days,
    Months,
    Years,
}

impl Kept {
    /// Returns the table for rows that matter for so long.
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
