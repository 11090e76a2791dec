//! One attempt at a delivery: the call, and the rows that record it.

use tidegate_egress::{
    Failure,
    callback::{self, CallbackRequest},
};
use tidegate_schemas::ids::{EndpointId, Millis};
use tidegate_store::{
    At,
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

/// Attempt that was made and must be written down.
struct UnsavedAttempt {
    attempt: FinishedAttempt,
    row: Attempt,
    endpoint: Option<EndpointId>,
    /// Drawn once, so that writing the attempt down again gives the same due time.
    random: f64,
    /// True if the attempt's row is stored already.
    is_recovered: bool,
}

impl Dispatcher {
    /// Makes the attempt, unless the delivery does not need one any more.
    ///
    /// While the store is unavailable, waits without limit: a call that is not written down would be made again.
    pub(crate) async fn attempt(&self, work: &DueAttempt) {
        let mut backoff = Backoff::new(&self.processing);
        let mut outage = None;
        let mut unsaved = Vec::new();
        loop {
            let Err(error) = self.try_attempt(work, &mut unsaved).await else { return };
            if !error.is_outage() {
                metrics::callback_failed(error.tag());
                tracing::error!(org = %work.queue.org, event = %work.event_id, tag = error.tag(),
                    "a callback cannot be attempted and is due again later: {error}");
                return;
            }
            outage.get_or_insert_with(|| self.health.report_outage(ROLE, error.tag()));
            sleep(backoff.next()).await;
        }
    }

    async fn try_attempt(
        &self,
        work: &DueAttempt,
        unsaved: &mut Vec<UnsavedAttempt>,
    ) -> Result<(), TaskError> {
        if unsaved.is_empty() {
            *unsaved = self.recover_or_call(work).await?;
        }
        for attempt in unsaved.iter() {
            self.save_attempt(work, attempt).await?;
        }
        Ok(())
    }

    async fn recover_or_call(&self, work: &DueAttempt) -> Result<Vec<UnsavedAttempt>, TaskError> {
        let Some(row) = rows::get(&self.store, &work.queue.org, work.event_id).await? else {
            return Ok(Vec::new());
        };
        let progress = rows::progress(&row);
        let now = Millis::now();
        let is_due = work.is_fresh || progress.next_at.is_none_or(|at| at <= now);
        if !progress.needs_attempt() || !is_due {
            return Ok(Vec::new());
        }
        if !work.is_fresh {
            let recovered = self.recover(&row).await?;
            if !recovered.is_empty() {
                return Ok(recovered);
            }
        }
        let route = match self.route(&row).await? {
            RouteResult::Found(route) => *route,
            RouteResult::Missing(tag) => {
                self.hold(work, tag).await?;
                return Ok(Vec::new());
            }
        };
        let span = tracing::info_span!("callback_attempt", event = %row.event_id, endpoint = %route.endpoint,
            org = %row.org, number = row.attempts + 1);
        let attempt = self.call(work, &row, &progress, route).instrument(span).await?;
        Ok(attempt.into_iter().collect())
    }

    /// Reads the attempts whose process died after it had stored their rows and before it updated the delivery.
    async fn recover(&self, row: &Delivery) -> Result<Vec<UnsavedAttempt>, TaskError> {
        let later = At::range((), row.attempts + 1..);
        let rows = self.store.scan::<Attempt>(&(row.org.clone(), row.event_id), later).all().await?;
        // The attempt's row does not name its endpoint. It was this one, unless the configuration has changed since.
        let endpoint = self.configured_endpoint(row);
        rows.into_iter()
            .map(|row| {
                Ok(UnsavedAttempt {
                    attempt: rows::finished_attempt(&row)?,
                    row,
                    endpoint: endpoint.clone(),
                    random: random_fraction(),
                    is_recovered: true,
                })
            })
            .collect()
    }

    /// Makes the call. Returns `None` if nothing was sent because the configuration is at fault.
    async fn call(
        &self,
        work: &DueAttempt,
        row: &Delivery,
        progress: &Progress,
        route: Route,
    ) -> Result<Option<UnsavedAttempt>, TaskError> {
        let number = row.attempts + 1;
        let Route { endpoint, url, headers, secret } = route;
        let request = CallbackRequest {
            url,
            event_id: row.event_id,
            event_type: row.event_type.clone(),
            attempt_no: u32::try_from(number).unwrap_or(u32::MAX),
            body: row.body.clone(),
            headers,
            secrets: vec![secret],
        };
        let began = Millis::now();
        failpoint!("before_callback");
        let attempt =
            match callback::send(&self.client, &request, began.0.div_euclid(1_000).unsigned_abs()).await {
                Ok(attempt) => attempt,
                // Nothing was sent, so no attempt is counted against the schedule.
                Err(not_sent) => {
                    self.hold(work, not_sent.tag()).await?;
                    return Ok(None);
                }
            };
        failpoint!("after_callback");
        let outcome = attempt.outcome.tag();
        metrics::callback_attempted(outcome, attempt.duration);
        if let Some(failure) = &attempt.error {
            tracing::info!(outcome, failure = failure.tag(), detail = %failure, "a callback attempt failed");
        }
        let trigger = match (progress.tries, progress.round) {
            (0, 0) => AttemptTrigger::First,
            (0, _) => AttemptTrigger::Resend,
            _ => AttemptTrigger::Retry,
        };
        let finished = FinishedAttempt {
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
            at: finished.ended_at,
            round: finished.round,
            took_ms: i64::try_from(attempt.duration.as_millis()).unwrap_or(i64::MAX),
            trigger,
            outcome: outcome.to_owned(),
            http_status: attempt.http_status.map(i64::from),
            // The tag that the org may see, which tells nothing about our network.
            error: attempt.error.as_ref().map(|failure| failure.org_tag().to_owned()),
            remote_ip: attempt.remote_ip.map(|address| address.to_string()),
            response_head: attempt.response_head,
        };
        Ok(Some(UnsavedAttempt {
            attempt: finished,
            row,
            endpoint: Some(endpoint),
            random: random_fraction(),
            is_recovered: false,
        }))
    }

    /// Applies the attempt to the delivery's current row, since commands may have changed it during the call.
    async fn save_attempt(&self, work: &DueAttempt, unsaved: &UnsavedAttempt) -> Result<(), TaskError> {
        let _lock = self.lock(work.event_id).await;
        let Some(row) = rows::get(&self.store, &work.queue.org, work.event_id).await? else { return Ok(()) };
        let before = rows::progress(&row);
        let after = before.after_attempt(&unsaved.attempt, &self.schedule, unsaved.random);
        let now = Millis::now();
        let mut updated = rows::with_progress(&row, &after, now);
        if unsaved.attempt.number >= row.attempts {
            updated.last_status = unsaved.row.http_status;
            updated.last_error = unsaved.row.error.clone();
            updated.endpoint = unsaved.endpoint.clone().or(updated.endpoint);
        }
        let due_at = after.next_at.filter(|at| after.needs_attempt() && Some(*at) != before.next_at);
        let attempt_row = (!unsaved.is_recovered).then_some(&unsaved.row);
        rows::save(&self.store, &updated, attempt_row, due_at, now).await?;
        report_change(&updated, before.state, after.state);
        Ok(())
    }

    /// Holds the delivery, visibly, until what is missing is there.
    async fn hold(&self, work: &DueAttempt, tag: &'static str) -> Result<(), TaskError> {
        let _lock = self.lock(work.event_id).await;
        let Some(row) = rows::get(&self.store, &work.queue.org, work.event_id).await? else { return Ok(()) };
        let before = rows::progress(&row);
        if !before.needs_attempt() {
            return Ok(());
        }
        let now = Millis::now();
        let after = before.after_missing(tag, self.recheck_at(now));
        let updated = rows::with_progress(&row, &after, now);
        rows::save(&self.store, &updated, None, after.next_at, now).await?;
        report_change(&updated, before.state, after.state);
        Ok(())
    }

    /// Returns when a held delivery is checked again, with jitter so that deliveries which were held together are not
    /// checked together.
    pub(crate) fn recheck_at(&self, now: Millis) -> Millis {
        now.plus(self.settings.recheck().mul_f64(0.75 + 0.5 * random_fraction()))
    }
}

/// Counts and logs a delivery that has changed its state.
pub(crate) fn report_change(row: &Delivery, before: DeliveryState, after: DeliveryState) {
    if before == after {
        return;
    }
    metrics::callback_entered(after);
    let endpoint = row.endpoint.as_ref().map_or("", |endpoint| endpoint.as_str());
    let state = after.as_str();
    if matches!(after, DeliveryState::Held | DeliveryState::TooLarge | DeliveryState::Exhausted) {
        let detail = row.last_error.as_deref().and_then(Failure::explain);
        tracing::warn!(org = %row.org, event = %row.event_id, endpoint, state,
            reason = row.held_reason, error = row.last_error, detail, "a callback is not delivered");
    } else {
        tracing::debug!(org = %row.org, event = %row.event_id, endpoint, state, "a callback changed its state");
    }
}
