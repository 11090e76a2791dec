//! Requests for rows of a dataset.

use std::{collections::HashSet, fmt, str::FromStr};

use futures::future::BoxFuture;
use tidegate_schemas::ids::{ItemKey, Kind, Millis, OrgId, derive};
use tidegate_store::Store;
use uuid::Uuid;

use crate::Dataset;

/// Request for the rows of a dataset in a period.
#[derive(Clone, Debug)]
pub struct RowRequest {
    pub org: OrgId,
    pub dataset: Dataset,
    pub since: Millis,
    /// End of the period, exclusive.
    pub until: Millis,
    pub part: Part,
    /// Position after which the rows start.
    pub after: Option<RowPosition>,
    pub visibility: Visibility,
}

/// Part of an export that several processes write together. A row belongs to exactly one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// From 1 to `count`.
    number: u32,
    count: u32,
}

/// Maximum number of parts: names of files have four digits.
const MAX_PARTS: u32 = 9_999;

impl Part {
    pub const WHOLE: Self = Self { number: 1, count: 1 };

    /// Returns `None` unless the number is between 1 and `count`, and `count` at most 9,999.
    pub fn new(number: u32, count: u32) -> Option<Self> {
        ((1..=count).contains(&number) && count <= MAX_PARTS).then_some(Self { number, count })
    }

    pub const fn number(self) -> u32 {
        self.number
    }

    pub const fn count(self) -> u32 {
        self.count
    }

    /// True if the part holds this partition. Partitions of successive days start at another part, so that datasets with one
    /// partition a day are spread too.
    pub(crate) fn includes(self, day: i64, shard: i64) -> bool {
        (day + shard).rem_euclid(i64::from(self.count)) == i64::from(self.number) - 1
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl FromStr for Part {
    type Err = InvalidPart;

    fn from_str(text: &str) -> Result<Self, InvalidPart> {
        let parse = || {
            let (number, count) = text.split_once('/')?;
            Self::new(number.parse().ok()?, count.parse().ok()?)
        };
        parse().ok_or(InvalidPart)
    }
}

/// Text that is not a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part is a number and a count, such as 1/4 for the first of four parts, with at most 9,999 parts")]
pub struct InvalidPart;

/// Position of a row in its dataset: its time and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition {
    pub at: Millis,
    pub id: Uuid,
}

/// Text that is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is the time of a row in milliseconds, `~`, and the id of the row")]
pub struct InvalidPosition;

impl RowPosition {
    /// Parses `<milliseconds>~<id>`, with the values of the row's first two columns.
    pub fn parse(dataset: Dataset, text: &str) -> Result<Self, InvalidPosition> {
        let (at, id) = text.split_once('~').ok_or(InvalidPosition)?;
        let at = Millis(at.parse().map_err(|_| InvalidPosition)?);
        let id = match dataset {
            // Platforms choose the ids of appeals. Rows are ordered by the derived id of the job's cause.
            Dataset::Appeals => derive(Kind::JobCause, &[b"appeal", id.as_bytes()]),
            _ => id.parse().map_err(|_| InvalidPosition)?,
        };
        Ok(Self { at, id })
    }
}

/// Looks up which of these items are restricted to readers with the scope `child_safety`.
pub type RestrictionLookup = for<'a> fn(
    &'a Store,
    &'a OrgId,
    &'a [ItemKey],
) -> BoxFuture<'a, Result<HashSet<ItemKey>, tidegate_store::Error>>;

/// Rows that a reader may see.
#[derive(Clone, Copy, Debug)]
pub enum Visibility {
    All,
    /// Without child-safety material: rows marked as such, and rows about items that are restricted now.
    WithoutChildSafety(RestrictionLookup),
}
