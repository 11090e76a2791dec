//! Queues an attempt when the due row of a delivery is due.
//!
//! A row released by the former owner (attempt 0) needs no wait, since that owner had started no call. On embedded data the
//! same holds for all leases at the start, because the process that wrote them has ended.
//!
//! A due row is settled after the next due row of its delivery is written, so a crash at any point leaves a due row.
//! Due rows outlive deliveries, so none has to be rebuilt after an outage.

use std::{sync::Arc, time::Duration};

use tidegate_schemas::ids::{EventId, Millis, OrgId};
use tidegate_store::{
    Store,
    tables::callbacks::{
        deliveries::{Delivery, DeliveryState},
        due::{Due, DueCursor},
    },
};

use super::{
    delivery_rows as rows, dispatcher::Dispatcher, endpoint_queues::OfferResult, route::RouteResult,
};
use crate::{
    consumer::error::TaskError,
    due::{
        index::{FollowUp, minute_of},
        scanner::DueTable as _,
        stored_rows::{StoredDueTable, stored_due_row},
    },
};

/// Longest time between the write of a due row and the write of its delivery. An older due row without delivery is settled.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(300);
const WRITE_RECHECK: Duration = Duration::from_secs(15);

pub(crate) struct DueDeliveries(pub(crate) Arc<Dispatcher>);

stored_due_row!(Due with DueCursor, by event_id: EventId);

impl StoredDueTable for DueDeliveries {
    type Row = Due;

    fn store(&self) -> &Store {
        &self.0.store
    }

    fn take_over(&self, shard: u32) {
        self.0.record_takeover(shard, Millis::now());
    }

    /// Returns a released row for each lease and deferral of the former process. The stored rows stay, so a second kill
    /// loses no delivery.
    async fn abandoned_rows(&self, shard: u32, now: Millis) -> Result<Vec<Due>, TaskError> {
        let dispatcher = &*self.0;
        // With other owners the former one may be alive and still making its calls.
        if dispatcher.has_other_owners() {
            return Ok(Vec::new());
        }
        // No lease or deferral of the former process ends later than the longest postponement.
        let mut released_rows = Vec::new();
        for minute in minute_of(now)..=minute_of(now.plus(dispatcher.longest_postponement())) {
            let postponed_rows =
                self.read_minute(shard, minute, None).await?.into_iter().filter(|row| row.due_at > now);
            released_rows.extend(
                postponed_rows.map(|row| rows::released_due_row(&row.org, row.event_id, row.shard, now)),
            );
        }
        Ok(released_rows)
    }

    async fn act(&self, due_row: &Due, _: Millis) -> Result<FollowUp, TaskError> {
        let dispatcher = &*self.0;
        let now = Millis::now();
        let shard = u32::try_from(due_row.shard).unwrap_or(u32::MAX);
        let is_released = rows::is_released(due_row);
        // The former owner may still be making this call until its lease ends.
        let leased_until = dispatcher.leased_until(shard, due_row.due_at).filter(|until| *until > now);
        if let Some(until) = leased_until.filter(|_| !is_released) {
            return Ok(FollowUp::DueAgain(until));
        }
        let Some(row) = rows::load(&dispatcher.store, &due_row.org, due_row.event_id).await? else {
            // The delivery is written after its due row, so it may still follow.
            let is_new = due_row.due_at.plus(MAX_WRITE_DELAY) > now;
            return Ok(if is_new { FollowUp::DueAgain(now.plus(WRITE_RECHECK)) } else { FollowUp::Settled });
        };
        let progress = rows::progress(&row);
        // A delivery with a later `next_at` has another due row for that time.
        let is_due_later = progress.next_at.is_some_and(|at| at > now);
        if !progress.needs_attempt() || is_due_later {
            return Ok(FollowUp::Settled);
        }
        if progress.state == DeliveryState::Held && self.is_still_missing(&row).await? {
            // The delivery is not rewritten, so a check costs one due row.
            rows::put_due(&dispatcher.store, &row, dispatcher.recheck_at(now), now).await?;
            return Ok(FollowUp::Settled);
        }
        // Before the call: a later owner that still saw the row as released would repeat the call without waiting.
        if is_released && dispatcher.has_other_owners() {
            rows::mark_started(&dispatcher.store, due_row, row.attempts + 1, now).await?;
        }
        let due_again_at = match dispatcher.offer(&row, false, now) {
            OfferResult::Closed => {
                let released_row = rows::released_due_row(&row.org, row.event_id, row.shard, now);
                rows::put_released(&dispatcher.store, &[released_row], now).await?;
                return Ok(FollowUp::Settled);
            }
            OfferResult::Queued | OfferResult::AlreadyUnderWay => now.plus(dispatcher.call_lease()),
            OfferResult::AlreadyQueued => {
                now.plus(Duration::from_millis(dispatcher.settings.longest_deferral_ms))
            }
            OfferResult::Full(at) => at,
        };
        // Before this row is settled: after a crash the delivery is due again at the end of the lease or deferral.
        rows::put_due(&dispatcher.store, &row, due_again_at, now).await?;
        Ok(FollowUp::Settled)
    }
}

impl DueDeliveries {
    async fn is_still_missing(&self, row: &Delivery) -> Result<bool, TaskError> {
        let result = self.0.find_route(row).await?;
        Ok(matches!(result, RouteResult::Missing(tag) if row.held_reason.as_deref() == Some(tag)))
    }
}
