//! One attempt at a delivery: what it needs, the call, and what is written down of it.
//!
//! When to make one, `dispatcher` and `scan` know; what its outcome means, `state`.

use tidegate_catalog::{self as catalog, ActionKind, Compiled, Endpoint};
use tidegate_egress::{
    Failure, Secret,
    callback::{self, CallbackRequest},
};
use tidegate_schemas::ids::{EndpointId, Millis};
use tidegate_store::{
    At,
    tables::callbacks::deliveries::{Attempt, Delivery},
};
use tidegate_stream::failpoint;
use tokio::time::sleep;

use super::{
    ROLE, body, delivery_rows as rows,
    delivery_state::{Made, Progress, State},
    dispatcher::Dispatcher,
    endpoint_queues::Work,
};
use crate::{
    consumer::{
        backoff::{Backoff, random_fraction},
        error::TaskError,
    },
    metrics,
};

/// An attempt that was made and is to be written down.
struct Sent {
    made: Made,
    row: Attempt,
    endpoint: Option<EndpointId>,
    /// Drawn once: writing it down again gives the same due time.
    draw: f64,
    /// Its row is stored already.
    is_recovered: bool,
}

/// What a call needs, as it is configured now.
pub(crate) struct Route {
    endpoint: EndpointId,
    url: String,
    headers: Vec<(String, String)>,
    secret: Secret,
}

pub(crate) enum Routed {
    Ready(Box<Route>),
    Missing(&'static str),
}

impl Dispatcher {
    /// Makes the attempt, unless it is not owed any more. While the store is away it waits: what was sent is written
    /// down, however long it takes, because a call that is forgotten is made again.
    pub(crate) async fn attempt(&self, work: &Work) {
        let mut backoff = Backoff::new(&self.processing);
        let mut waits = None;
        let mut sent = Vec::new();
        loop {
            let Err(error) = self.try_attempt(work, &mut sent).await else { return };
            if !error.is_outage() {
                metrics::callback_failed(error.tag());
                tracing::error!(org = %work.lane.org, event = %work.event_id, tag = error.tag(),
                    "an attempt waits for a error to be mended: {error}");
                return;
            }
            waits.get_or_insert_with(|| self.health.report_outage(ROLE, error.tag()));
            sleep(backoff.next()).await;
        }
    }

    async fn try_attempt(&self, work: &Work, sent: &mut Vec<Sent>) -> Result<(), TaskError> {
        if sent.is_empty() {
            *sent = self.send(work).await?;
        }
        for sent in sent.iter() {
            self.write_down(work, sent).await?;
        }
        Ok(())
    }

    async fn send(&self, work: &Work) -> Result<Vec<Sent>, TaskError> {
        let Some(row) = rows::get(&self.store, &work.lane.org, work.event_id).await? else {
            return Ok(Vec::new());
        };
        let progress = rows::progress(&row)?;
        let now = Millis::now();
        let is_due = work.is_fresh || progress.next_at.is_none_or(|at| at <= now);
        if !progress.is_owed() || !is_due {
            return Ok(Vec::new());
        }
        if !work.is_fresh {
            let recovered = self.recovered(&row).await?;
            if !recovered.is_empty() {
                return Ok(recovered);
            }
        }
        let route = match self.route(&row).await? {
            Routed::Ready(route) => *route,
            Routed::Missing(reason) => {
                self.hold(work, reason).await?;
                return Ok(Vec::new());
            }
        };
        self.call(work, &row, &progress, route).await
    }

    /// Attempts whose process died before it had written down what they led to.
    async fn recovered(&self, row: &Delivery) -> Result<Vec<Sent>, TaskError> {
        let later = At::range((), row.attempts + 1..);
        let rows = self.store.scan::<Attempt>(&(row.org.clone(), row.event_id), later).all().await;
        // As its process saw it, unless the configuration has changed since.
        let endpoint = self.configured(row);
        rows?
            .into_iter()
            .map(|row| {
                let made = rows::made(&row)?;
                Ok(Sent {
                    made,
                    row,
                    endpoint: endpoint.clone(),
                    draw: random_fraction(),
                    is_recovered: true,
                })
            })
            .collect()
    }

    async fn call(
        &self,
        work: &Work,
        row: &Delivery,
        progress: &Progress,
        route: Route,
    ) -> Result<Vec<Sent>, TaskError> {
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
                // The configuration's error: nothing was sent, and nothing is charged.
                Err(not_sent) => {
                    self.hold(work, not_sent.tag()).await?;
                    return Ok(Vec::new());
                }
            };
        failpoint!("after_callback");
        let tag = attempt.outcome.tag();
        metrics::callback_attempted(tag, attempt.duration);
        if let Some(failure) = &attempt.error {
            tracing::info!(org = %row.org, event = %row.event_id, %endpoint, number, outcome = tag,
                failure = failure.tag(), detail = %failure, "a callback attempt failed");
        }
        let trigger = match (progress.tries, progress.round) {
            (0, 0) => "first",
            (0, _) => "resend",
            _ => "retry",
        };
        let made = Made {
            number,
            round: progress.round,
            at: Millis::now(),
            outcome: attempt.outcome,
            retry_after: attempt.retry_after,
        };
        let row = Attempt {
            org: row.org.clone(),
            event_id: row.event_id,
            number,
            at: made.at,
            round: made.round,
            took_ms: i64::try_from(attempt.duration.as_millis()).unwrap_or(i64::MAX),
            trigger: trigger.to_owned(),
            outcome: tag.to_owned(),
            http_status: attempt.http_status.map(i64::from),
            // As the org may see it.
            error: attempt.error.as_ref().map(|failure| failure.org_tag().to_owned()),
            remote_ip: attempt.remote_ip.map(|address| address.to_string()),
            response_head: attempt.response_head,
        };
        Ok(vec![Sent { made, row, endpoint: Some(endpoint), draw: random_fraction(), is_recovered: false }])
    }

    /// Applies the attempt to the row as it is now, since commands may have come meanwhile.
    async fn write_down(&self, work: &Work, sent: &Sent) -> Result<(), TaskError> {
        let _lock = self.lock(work.event_id).await;
        let Some(row) = rows::get(&self.store, &work.lane.org, work.event_id).await? else { return Ok(()) };
        let was = rows::progress(&row)?;
        let next = was.after_attempt(&sent.made, &self.schedule, sent.draw);
        let now = Millis::now();
        let mut moved = rows::moved(&row, &next, now);
        if sent.made.number >= row.attempts {
            moved.last_status = sent.row.http_status;
            moved.last_error = sent.row.error.clone();
            moved.endpoint = sent.endpoint.clone().or(moved.endpoint);
        }
        let due_at = next.next_at.filter(|at| next.is_owed() && Some(*at) != was.next_at);
        let attempt = (!sent.is_recovered).then_some(&sent.row);
        rows::save(&self.store, &moved, attempt, due_at, now).await?;
        tell_change(&moved, was.state, next.state);
        Ok(())
    }

    /// Keeps it, visibly, until what is missing is there.
    async fn hold(&self, work: &Work, reason: &'static str) -> Result<(), TaskError> {
        let _lock = self.lock(work.event_id).await;
        let Some(row) = rows::get(&self.store, &work.lane.org, work.event_id).await? else { return Ok(()) };
        let was = rows::progress(&row)?;
        if !was.is_owed() {
            return Ok(());
        }
        let now = Millis::now();
        let next = was.after_missing(reason, self.recheck_at(now));
        let moved = rows::moved(&row, &next, now);
        rows::save(&self.store, &moved, None, next.next_at, now).await?;
        tell_change(&moved, was.state, next.state);
        Ok(())
    }

    /// What is held together is not looked at together.
    pub(crate) fn recheck_at(&self, now: Millis) -> Millis {
        now.plus(self.settings.recheck().mul_f64(0.75 + 0.5 * random_fraction()))
    }

    /// Where the next attempt goes, as far as it is known here.
    pub(crate) fn configured(&self, row: &Delivery) -> Option<EndpointId> {
        let config = self.live.org(&row.org)?;
        endpoint(&config, row).map(|endpoint| endpoint.key.clone())
    }

    /// What the call needs. An error: the store is away.
    pub(crate) async fn route(&self, row: &Delivery) -> Result<Routed, TaskError> {
        let config = self.live.org(&row.org);
        if let Some(found) = config.as_deref().and_then(|config| endpoint(config, row)) {
            return self.route_to(row, found).await;
        }
        // The event may come from a configuration that this process is about to load.
        let latest = match self.live.latest(&row.org).await {
            Ok(latest) => latest,
            Err(catalog::Error::Store(error)) => return Err(error.into()),
            Err(error) => return Ok(Routed::Missing(error.tag())),
        };
        match endpoint(&latest, row) {
            Some(found) => self.route_to(row, found).await,
            None => Ok(Routed::Missing("endpoint_missing")),
        }
    }

    async fn route_to(&self, row: &Delivery, endpoint: &Endpoint) -> Result<Routed, TaskError> {
        let open =
            |header: &str, value: &str| self.secrets.open_header(&row.org, &endpoint.key, header, value);
        let headers = match endpoint.resolve_headers(|name| std::env::var(name).ok(), open) {
            Ok(headers) => headers,
            Err(unresolved) => return Ok(Routed::Missing(unresolved.tag())),
        };
        match self.secrets.for_endpoint(&row.org, &endpoint.key).await {
            Ok(Some(secret)) => Ok(Routed::Ready(Box::new(Route {
                endpoint: endpoint.key.clone(),
                url: endpoint.url.clone(),
                headers,
                secret,
            }))),
            Ok(None) => Ok(Routed::Missing("secret_missing")),
            Err(error) if error.is_outage() => {
                Err(tidegate_store::Error::Unreachable(error.to_string()).into())
            }
            Err(error) => Ok(Routed::Missing(error.tag())),
        }
    }
}

/// Where the next attempt goes. Until the first one that is where a new event of the same action would go, since what was
/// wrong with the endpoint that it was planned for may be mended by naming another. After it, whoever was called is called
/// again, for they may have it, as long as they are configured.
fn endpoint<'a>(config: &'a Compiled, row: &Delivery) -> Option<&'a Endpoint> {
    let named = row.endpoint.as_ref().and_then(|named| config.endpoint(named));
    if row.attempts > 0 && named.is_some() {
        return named;
    }
    let action = body::action(&row.body).and_then(|action| config.action(&action));
    let first = || config.endpoints_for(&row.event_type).next();
    match action.map(|action| &action.kind) {
        Some(ActionKind::Callback { endpoint: Some(by_action) }) => {
            config.endpoint(by_action).or(named).or_else(first)
        }
        Some(ActionKind::Callback { endpoint: None }) => first().or(named),
        // One of no action was planned for each endpoint apart.
        _ => named.or_else(|| first().filter(|_| row.endpoint.is_none())),
    }
}

/// Counts and logs a delivery that came to rest or was held.
pub(crate) fn tell_change(row: &Delivery, was: State, is: State) {
    if was == is {
        return;
    }
    metrics::callback_entered(is.name());
    let endpoint = row.endpoint.as_ref().map_or("", |endpoint| endpoint.as_str());
    if matches!(is, State::Held | State::TooLarge | State::Exhausted) {
        let detail = row.last_error.as_deref().and_then(Failure::explain);
        tracing::warn!(org = %row.org, event = %row.event_id, endpoint, state = is.name(),
            reason = row.held_reason, error = row.last_error, detail, "a callback is not delivered");
    } else {
        tracing::debug!(org = %row.org, event = %row.event_id, endpoint, state = is.name(), "a callback moved on");
    }
}
