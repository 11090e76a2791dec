//! Callback deliveries and their attempts.
//!
//! `due` holds the index of due times.

use std::time::Duration;

use bytes::Bytes;
use tidegate_schemas::{
    ids::{EndpointId, EventId, ItemKey, Millis, OrgId},
    string_enum,
};

use crate::{string_column, table};

string_enum! {
    /// State of a callback delivery.
    ///
    /// A running attempt is not a state: whatever needs an attempt has a due row at or after its `next_at`, so a delivery
    /// whose process died during the attempt comes due again.
    pub enum DeliveryState {
        /// The next attempt is the first of its round.
        Pending = "pending",
        RetryWait = "retry_wait",
        Delivered = "delivered",
        /// No attempt is made: something is missing, the endpoint wants no more, or an operator said so.
        Held = "held",
        /// The body is above the limit: no attempt is made until a resend under a higher limit.
        TooLarge = "too_large",
        /// Every attempt of the round failed.
        Exhausted = "exhausted",
        Canceled = "canceled",
    }
}

string_enum! {
    /// Reason why an attempt was made.
    pub enum AttemptTrigger {
        First = "first",
        Retry = "retry",
        /// First attempt after an operator's resend.
        Resend = "resend",
    }
}

string_column!(DeliveryState, AttemptTrigger);

table! {
    /// One callback event on its way to the platform. The owner of `shard`, a partition of the callbacks topic, is
    /// its only writer. `body` holds the exact bytes of every attempt.
    Fact Delivery in "deliveries" ttl Some(30 days);
    partition { org: OrgId, event_id: EventId }
    cluster {}
    values {
        event_type: String,
        endpoint: Option<EndpointId>,
        subject: ItemKey,
        state: DeliveryState,
        attempts: i64,
        next_at: Option<Millis>,
        body: Bytes,
        sequence: i64,
        occurred_at: Millis,
        created_at: Millis,
        delivered_at: Option<Millis>,
        held_reason: Option<String>,
        last_status: Option<i64>,
        last_error: Option<String>,
        shard: i64,
        /// Counts the resends.
        round: i64,
        /// Attempts of this round, and how many of them met an address that may not be called.
        tries: i64,
        blocked: i64,
        /// Answers in a row by which the receiver wants no more.
        gone: i64,
        /// Offset of the last record of the topic that was applied to it.
        applied: i64,
        /// Time at which lists show it, if not at its creation.
        listed_at: Option<Millis>,
        /// Write time of this row, in microseconds: the next write comes after it.
        written: i64,
    }
}

table! {
    /// One attempt at a delivery, and what the endpoint said. `at` is in the key because a former owner of the shard
    /// may still end an attempt of the same number.
    Fact Attempt in "attempts" ttl Some(30 days);
    partition { org: OrgId, event_id: EventId }
    cluster { number: i64 [Asc], at: Millis [Asc] }
    values {
        round: i64,
        took_ms: i64,
        trigger: AttemptTrigger,
        outcome: String,
        http_status: Option<i64>,
        error: Option<String>,
        remote_ip: Option<String>,
        response_head: Bytes,
    }
}

table! {
    /// The deliveries of a day, for lists; the delivery's row is the truth, and says at which place it is listed.
    Fact DeliveryByDay in "deliveries_by_day" ttl Some(35 days);
    partition { org: OrgId, day: i64 }
    cluster { at: Millis [Desc], event_id: EventId [Asc] }
    values { subject: ItemKey }
}

/// A delivery that changes so long after it was listed is listed anew, so that no row outlives its place in the lists.
pub const RELIST_AFTER: Duration = Duration::from_secs(4 * 86_400);

impl Delivery {
    /// Returns the time at which lists show it.
    pub fn listed(&self) -> Millis {
        self.listed_at.unwrap_or(self.created_at)
    }
}
