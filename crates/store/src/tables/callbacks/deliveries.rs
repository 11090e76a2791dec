//! Callback deliveries and their attempts. `due` holds the index of due times.

use std::time::Duration;

use bytes::Bytes;
use tidegate_schemas::{
    documents::Event,
    ids::{EndpointId, EventId, ItemKey, Millis, OrgId},
    string_enum,
};

use crate::{OpenEnum, string_column, table};

string_enum! {
    /// State of a callback delivery.
    ///
    /// A running attempt is not a state: every delivery that needs an attempt has a due row at or after its `next_at`, so
    /// the attempt is repeated if its process dies.
    pub enum DeliveryState {
        /// The next attempt is the first of its round.
        Pending = "pending",
        RetryWait = "retry_wait",
        Delivered = "delivered",
        /// No attempt is made: the endpoint or its secret is missing, the endpoint refuses callbacks, or an operator held it.
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

string_column!(Event, DeliveryState, AttemptTrigger);

table! {
    /// One callback event on its way to the platform. The owner of `shard`, a partition of the callbacks topic, is
    /// its only writer. `body` holds the exact bytes of every attempt.
    Fact Delivery in "deliveries" ttl Some(30 days);
    partition { org: OrgId, event_id: EventId }
    cluster {}
    values {
        event_type: OpenEnum<Event>,
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
        /// Number of attempts of this round, and of those to a forbidden address.
        tries: i64,
        blocked: i64,
        /// Number of successive answers by which the receiver refuses further callbacks.
        gone: i64,
        /// Offset of the last record of the topic that was applied to this row.
        applied: i64,
        /// Time under which lists show the delivery, if not its creation.
        listed_at: Option<Millis>,
        /// Write time of this row, in microseconds: the next write uses a later one.
        written: i64,
    }
}

table! {
    /// One attempt at a delivery, with the answer of the endpoint. `at` is in the key because a former owner of the shard
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
    /// Deliveries of a day, for lists. The delivery's row is authoritative and holds the time under which it is listed.
    Fact DeliveryByDay in "deliveries_by_day" ttl Some(35 days);
    partition { org: OrgId, day: i64 }
    cluster { at: Millis [Desc], event_id: EventId [Asc] }
    values { subject: ItemKey }
}

/// Age of a list row after which a change of the delivery writes a new one. Shorter than the difference of the two expiry
/// times, so that no delivery outlives its list row.
pub const RELIST_AFTER: Duration = Duration::from_secs(4 * 86_400);

impl Delivery {
    /// Returns the time under which lists show the delivery.
    pub fn list_time(&self) -> Millis {
        self.listed_at.unwrap_or(self.created_at)
    }
}
