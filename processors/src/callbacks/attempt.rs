//! Makes one attempt at a delivery: the call, and the rows that record it.

use tidegate_egress::{
    Failure,
    callback::{self, CallbackRequest},
};
use tidegate_schemas::ids::{EndpointId, Millis};
use tidegate_store::{
    RowRange,
    tables::callbacks::deliveries::{Attempt, AttemptTrigger, Delivery, DeliveryState},
};
use tidegate_stream::failpoint;
use tokio::time::sleep;
use tracing::Instrument as _;

use super::{
    ROLE, delivery_rows as rows,
    delivery_state::{FinishedAttempt, Progress},
    dispatcher::Dispatcher,
    endpoint_queues::DueAttempt,
    route::{Route, RouteResult},
};
use crate::{
    consumer::{
        backoff::{Backoff, random_fraction},
        error::TaskError,
    },
    metrics,
};

/// Attempt whose result is not stored yet.
struct UnsavedAttempt {
    attempt: FinishedAttempt,
    row: Attempt,
    endpoint: Option<EndpointId>,
    /// Jitter of the next pause. Drawn once, so a retried write computes the same due time.
    random: f64,
    /// True if the attempt's row is stored already.
    is_recovered: bool,
}

impl Dispatcher {
    /// Makes the attempt if the delivery still needs one.
    ///
    /// Waits without limit while the store is unavailable, because an unrecorded call would be made again.
    pub(crate) async fn attempt(&self, due_attempt: &DueAttempt) {
        let mut backoff = Backoff::new(&self.processing);
        let mut outage = None;
        let mut unsaved_attempts = Vec::new();
        loop {
            let Err(error) = self.try_attempt(due_attempt, &mut unsaved_attempts).await else { return };
            if !error.is_outage() {
                metrics::record_callback_failure(error.tag());
                tracing::error!(org = %due_attempt.queue.org, event = %due_attempt.event_id, tag = error.tag(),
                    "a callback attempt cannot be made or stored and is due again later: {error}");
                return;
            }
            outage.get_or_insert_with(|| self.health.report_outage(ROLE, error.tag()));
            sleep(backoff.next()).await;
        }
    }

    async fn try_attempt(
        &self,
        due_attempt: &DueAttempt,
        unsaved_attempts: &mut Vec<UnsavedAttempt>,
    ) -> Result<(), TaskError> {
        // A retry after an outage only repeats the writes: a second call would deliver the event twice.
        if unsaved_attempts.is_empty() {
            *unsaved_attempts = self.recover_or_call(due_attempt).await?;
        }
        for attempt in unsaved_attempts.iter() {
            self.save_attempt(due_attempt, attempt).await?;
        }
        Ok(())
    }

    async fn recover_or_call(&self, due_attempt: &DueAttempt) -> Result<Vec<UnsavedAttempt>, TaskError> {
        let Some(row) = rows::load(&self.store, &due_attempt.queue.org, due_attempt.event_id).await? else {
            return Ok(Vec::new());
        };
        let progress = rows::progress(&row);
        let now = Millis::now();
        let is_due = due_attempt.is_fresh || progress.next_at.is_none_or(|at| at <= now);
        if !progress.needs_attempt() || !is_due {
            return Ok(Vec::new());
        }
        // A fresh delivery has no earlier attempt, so the read is skipped.
        if !due_attempt.is_fresh {
            let recovered_attempts = self.read_unapplied_attempts(&row).await?;
            if !recovered_attempts.is_empty() {
                return Ok(recovered_attempts);
            }
        }
        let route = match self.find_route(&row).await? {
            RouteResult::Found(route) => *route,
            RouteResult::Missing(tag) => {
                self.hold_delivery(due_attempt, tag).await?;
                return Ok(Vec::new());
            }
        };
        let span = tracing::info_span!("callback_attempt", event = %row.event_id, endpoint = %route.endpoint,
            org = %row.org, number = row.attempts + 1);
        let attempt = self.make_call(due_attempt, &row, &progress, route).instrument(span).await?;
        Ok(attempt.into_iter().collect())
    }

    /// Reads attempts that are stored but missing from the delivery's row, as after a crash between the two writes.
    async fn read_unapplied_attempts(&self, row: &Delivery) -> Result<Vec<UnsavedAttempt>, TaskError> {
        let unapplied_numbers = RowRange::range((), row.attempts + 1..);
        let attempt_rows =
            self.store.scan::<Attempt>(&(row.org.clone(), row.event_id), unapplied_numbers).all().await?;
        // The attempt's row does not name its endpoint. It was this one, unless the configuration has changed since.
        let endpoint = self.configured_endpoint(row);
        attempt_rows
            .into_iter()
            .map(|row| {
                Ok(UnsavedAttempt {
                    attempt: rows::parse_attempt(&row)?,
                    row,
                    endpoint: endpoint.clone(),
                    random: random_fraction(),
                    is_recovered: true,
                })
            })
            .collect()
    }

    /// Makes the call. Returns `None` if the request could not be built or sent; the delivery is held then.
    async fn make_call(
        &self,
        due_attempt: &DueAttempt,
        row: &Delivery,
        progress: &Progress,
        route: Route,
    ) -> Result<Option<UnsavedAttempt>, TaskError> {
        let number = row.attempts + 1;
        let Route { endpoint, url, headers, secret } = route;
        let request = CallbackRequest {
            url,
            event_id: row.event_id,
            event_type: row.event_type.to_string(),
            attempt_no: u32::try_from(number).unwrap_or(u32::MAX),
            body: row.body.clone(),
            headers,
            secrets: vec![secret],
        };
        let started_at = Millis::now();
        failpoint!("before_callback");
        let attempt =
            match callback::send(&self.client, &request, started_at.0.div_euclid(1_000).unsigned_abs()).await
            {
                Ok(attempt) => attempt,
                // The request did not leave this process, so no attempt is counted against the schedule.
                Err(error) => {
                    self.hold_delivery(due_attempt, error.tag()).await?;
                    return Ok(None);
                }
            };
        failpoint!("after_callback");
        let outcome = attempt.outcome.tag();
        metrics::record_callback_attempt(outcome, attempt.duration);
        if let Some(failure) = &attempt.error {
            tracing::info!(outcome, failure = failure.tag(), detail = %failure, "a callback attempt failed");
        }
        let trigger = match (progress.tries, progress.round) {
            (0, 0) => AttemptTrigger::First,
            (0, _) => AttemptTrigger::Resend,
            _ => AttemptTrigger::Retry,
        };
        let finished_attempt = FinishedAttempt {
            number,
            round: progress.round,
            ended_at: Millis::now(),
            outcome: attempt.outcome,
            retry_after: attempt.retry_after,
        };
        let row = Attempt {
            org: row.org.clone(),
            event_id: row.event_id,
            number,
            at: finished_attempt.ended_at,
            round: finished_attempt.round,
            took_ms: i64::try_from(attempt.duration.as_millis()).unwrap_or(i64::MAX),
            trigger,
            outcome: outcome.to_owned(),
            http_status: attempt.http_status.map(i64::from),
            // The org reads this row, so the tag must not reveal addresses or errors of our network.
            error: attempt.error.as_ref().map(|failure| failure.org_tag().to_owned()),
            remote_ip: attempt.remote_ip.map(|address| address.to_string()),
            response_head: attempt.response_head,
        };
        Ok(Some(UnsavedAttempt {
            attempt: finished_attempt,
            row,
            endpoint: Some(endpoint),
            random: random_fraction(),
            is_recovered: false,
        }))
    }

    /// Applies the attempt to the delivery's current row. Commands may have changed the row during the call.
    async fn save_attempt(
        &self,
        due_attempt: &DueAttempt,
        unsaved_attempt: &UnsavedAttempt,
    ) -> Result<(), TaskError> {
        let _lock = self.lock_event(due_attempt.event_id).await;
        let Some(row) = rows::load(&self.store, &due_attempt.queue.org, due_attempt.event_id).await? else {
            return Ok(());
        };
        let stored_progress = rows::progress(&row);
        let new_progress =
            stored_progress.after_attempt(&unsaved_attempt.attempt, &self.schedule, unsaved_attempt.random);
        let now = Millis::now();
        let mut updated = rows::with_progress(&row, &new_progress, now);
        // A recovered attempt can be older than the row; the row keeps the status of its latest attempt.
        if unsaved_attempt.attempt.number >= row.attempts {
            updated.last_status = unsaved_attempt.row.http_status;
            updated.last_error = unsaved_attempt.row.error.clone();
            updated.endpoint = unsaved_attempt.endpoint.clone().or(updated.endpoint);
        }
        // An unchanged `next_at` has its due row already.
        let due_at = new_progress
            .next_at
            .filter(|at| new_progress.needs_attempt() && Some(*at) != stored_progress.next_at);
        let attempt_row = (!unsaved_attempt.is_recovered).then_some(&unsaved_attempt.row);
        rows::save(&self.store, &updated, attempt_row, due_at, now).await?;
        report_change(&updated, stored_progress.state, new_progress.state);
        Ok(())
    }

    /// Holds the delivery until the missing endpoint, secret or header variable is configured. The org sees the reason.
    async fn hold_delivery(&self, due_attempt: &DueAttempt, tag: &'static str) -> Result<(), TaskError> {
        let _lock = self.lock_event(due_attempt.event_id).await;
        let Some(row) = rows::load(&self.store, &due_attempt.queue.org, due_attempt.event_id).await? else {
            return Ok(());
        };
        let stored_progress = rows::progress(&row);
        // A command may have cancelled or held the delivery during the look-up.
        if !stored_progress.needs_attempt() {
            return Ok(());
        }
        let now = Millis::now();
        let new_progress = stored_progress.after_missing(tag, self.recheck_at(now));
        let updated = rows::with_progress(&row, &new_progress, now);
        rows::save(&self.store, &updated, None, new_progress.next_at, now).await?;
        report_change(&updated, stored_progress.state, new_progress.state);
        Ok(())
    }

    /// Returns the time of the next check of a held delivery. Jitter spreads the checks of deliveries that were held
    /// together.
    pub(crate) fn recheck_at(&self, now: Millis) -> Millis {
        now.plus(self.settings.recheck_interval().mul_f64(0.75 + 0.5 * random_fraction()))
    }
}

/// Counts and logs a state change of a delivery.
pub(crate) fn report_change(row: &Delivery, old_state: DeliveryState, new_state: DeliveryState) {
    if old_state == new_state {
        return;
    }
    metrics::record_callback_state(new_state);
    let endpoint = row.endpoint.as_ref().map_or("", |endpoint| endpoint.as_str());
    let state = new_state.as_str();
    if matches!(new_state, DeliveryState::Held | DeliveryState::TooLarge | DeliveryState::Exhausted) {
        let detail = row.last_error.as_deref().and_then(Failure::explain);
        tracing::warn!(org = %row.org, event = %row.event_id, endpoint, state,
            reason = row.held_reason, error = row.last_error, detail, "a callback is not delivered");
    } else {
        tracing::debug!(org = %row.org, event = %row.event_id, endpoint, state, "a callback changed its state");
    }
}
