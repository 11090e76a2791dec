//! Due rows of deliveries: queues an attempt when a delivery is due.
//!
//! A due row that its former owner released (attempt 0) is acted on without waiting, since that owner had begun no call.
//! A start on embedded data treats leases in the same way: the process that wrote them has ended.
//!
//! A due row is settled as soon as it was acted on, because the next one is written before. So a delivery comes due again
//! whatever becomes of this process. Due rows outlive deliveries, so none has to be rebuilt after an outage.

use std::{sync::Arc, time::Duration};

use tidegate_schemas::ids::{EventId, Millis, OrgId};
use tidegate_store::{
    Store,
    tables::callbacks::{
        deliveries::{Delivery, DeliveryState},
        due::{Due, DueCursor},
    },
};

use super::{delivery_rows as rows, dispatcher::Dispatcher, endpoint_queues::Offered, route::RouteResult};
use crate::{
    consumer::error::TaskError,
    scheduler::{
        due_index::{FollowUp, minute_of},
        due_scanner::DueTable as _,
        stored_due::{StoredDueTable, stored_due_row},
    },
};

/// Time that it may take from a due row, which is written first, to its delivery.
const UNWRITTEN: Duration = Duration::from_secs(300);
const UNWRITTEN_RECHECK: Duration = Duration::from_secs(15);

pub(crate) struct DueDeliveries(pub(crate) Arc<Dispatcher>);

stored_due_row!(Due with DueCursor, by event_id: EventId);

impl StoredDueTable for DueDeliveries {
    type Row = Due;

    fn store(&self) -> &Store {
        &self.0.store
    }

    fn take_over(&self, shard: u32) {
        self.0.took_over(shard, Millis::now());
    }

    /// Returns a released row for each lease and deferral of the former process. The stored rows stay, so another kill loses
    /// nothing.
    async fn abandoned_rows(&self, shard: u32, now: Millis) -> Result<Vec<Due>, TaskError> {
        let dispatcher = &*self.0;
        // The former owner may be alive, and its calls running.
        if dispatcher.has_other_owners() {
            return Ok(Vec::new());
        }
        let mut abandoned = Vec::new();
        for minute in minute_of(now)..=minute_of(now.plus(dispatcher.longest_postponement())) {
            let ahead =
                self.read_minute(shard, minute, None).await?.into_iter().filter(|due| due.due_at > now);
            abandoned.extend(ahead.map(|due| rows::released(&due.org, due.event_id, due.shard, now)));
        }
        Ok(abandoned)
    }

    async fn act(&self, due: &Due, _: Millis) -> Result<FollowUp, TaskError> {
        let dispatcher = &*self.0;
        let now = Millis::now();
        let shard = u32::try_from(due.shard).unwrap_or(u32::MAX);
        let is_released = rows::is_released(due);
        let leased_until = dispatcher.leased_until(shard, due.due_at).filter(|until| *until > now);
        if let Some(until) = leased_until.filter(|_| !is_released) {
            return Ok(FollowUp::DueAgain(until));
        }
        let Some(row) = rows::get(&dispatcher.store, &due.org, due.event_id).await? else {
            let is_new = due.due_at.plus(UNWRITTEN) > now;
            return Ok(if is_new {
                FollowUp::DueAgain(now.plus(UNWRITTEN_RECHECK))
            } else {
                FollowUp::Settled
            });
        };
        let progress = rows::progress(&row);
        // A delivery that is due later has another due row for then.
        let comes_later = progress.next_at.is_some_and(|at| at > now);
        if !progress.needs_attempt() || comes_later {
            return Ok(FollowUp::Settled);
        }
        if progress.state == DeliveryState::Held && self.is_still_missing(&row).await? {
            // The delivery is not rewritten, so a check costs one due row.
            rows::put_due(&dispatcher.store, &row, dispatcher.recheck_at(now), now).await?;
            return Ok(FollowUp::Settled);
        }
        if is_released && dispatcher.has_other_owners() {
            rows::mark_begun(&dispatcher.store, due, row.attempts + 1, now).await?;
        }
        let due_again_at = match dispatcher.offer(&row, false, now) {
            Offered::Closed => {
                let due = rows::released(&row.org, row.event_id, row.shard, now);
                rows::put_released(&dispatcher.store, &[due], now).await?;
                return Ok(FollowUp::Settled);
            }
            Offered::Taken | Offered::IsUnderWay => now.plus(dispatcher.lease()),
            Offered::Waits => now.plus(Duration::from_millis(dispatcher.settings.longest_deferral_ms)),
            Offered::Full(at) => at,
        };
        rows::put_due(&dispatcher.store, &row, due_again_at, now).await?;
        Ok(FollowUp::Settled)
    }
}

impl DueDeliveries {
    async fn is_still_missing(&self, row: &Delivery) -> Result<bool, TaskError> {
        let result = self.0.route(row).await?;
        Ok(matches!(result, RouteResult::Missing(tag) if row.held_reason.as_deref() == Some(tag)))
    }
}
