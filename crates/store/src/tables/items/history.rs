//! Index of stored items of an organisation by hour. Rows point to the rows of the items.

use tidegate_schemas::ids::{ItemId, Millis, OrgId, SubmissionId, TypeId};

use crate::table;

table! {
    /// Pointer to a submission in `items`. `draw` is a number contained in its id, so the rows below a
    /// bound are a fair sample of the hour that can be read alone. `shard` is the upper part of the draw.
    Fact ItemOfHour in "items_by_hour" ttl Some(100 days), window 4 days;
    partition { org: OrgId, hour: i64, shard: i64 }
    cluster { draw: i64 [Asc], submission_id: SubmissionId [Asc] }
    values { type_id: TypeId, item_id: ItemId, append_ms: Millis, offset: i64, position: i64 }
}

/// Number of random bits at the end of a submission's id.
pub const RANDOM_BITS: u32 = 62;

/// Number of partitions of an hour, so that a busy hour is spread.
pub const SHARDS: i64 = 32;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();

/// Returns the `draw` of a submission.
pub fn random_bits_of(submission: SubmissionId) -> i64 {
    let low = submission.0.as_u128() & ((1 << RANDOM_BITS) - 1);
    i64::try_from(low).unwrap_or(i64::MAX)
}

/// Returns the partition of a draw within its hour.
pub const fn shard_of(draw: i64) -> i64 {
    draw >> (RANDOM_BITS - SHARD_BITS)
}
