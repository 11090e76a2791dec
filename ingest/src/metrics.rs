//! Metrics of the API: requests, items, durations, waiting look-ups.
//!
//! Labels are bounded: no organisation, no item.

use std::{sync::OnceLock, time::Duration};

use axum::http::StatusCode;
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

const REQUESTS: &str = "tidegate_ingest_requests_total";
const ITEMS: &str = "tidegate_ingest_items_total";
const DURATION: &str = "tidegate_ingest_request_duration_seconds";
const WAITING: &str = "tidegate_ingest_waiting_requests";

const UNKNOWN_ACTIONS: &str = "tidegate_ingest_unknown_appealed_actions_total";

const LAG: &str = "tidegate_lag_seconds";
const LAG_REFUSED: &str = "tidegate_lag_refused_organisations";

/// Registers unit and help of every metric of this crate.
pub fn describe() {
    describe_counter!(REQUESTS, "Answered requests, by endpoint and status.");
    describe_counter!(ITEMS, "Submitted items, by outcome.");
    describe_histogram!(DURATION, Unit::Seconds, "Time to answer a request, by endpoint.");
    describe_counter!(
        UNKNOWN_ACTIONS,
        "Actions that accepted appeals named and the configuration does not have."
    );
    describe_gauge!(LAG, Unit::Seconds, "Age of the oldest accepted item that is not processed.");
    describe_gauge!(
        LAG_REFUSED,
        "Organisations whose items are refused because they keep processing behind; -1: all, because nothing is processed."
    );
    describe_gauge!(WAITING, "Look-ups that wait for their item to be evaluated.");
}

/// Statuses with a label of their own.
const STATUSES: [(StatusCode, &str); 16] = [
    (StatusCode::OK, "200"),
    (StatusCode::CREATED, "201"),
    (StatusCode::ACCEPTED, "202"),
    (StatusCode::NO_CONTENT, "204"),
    (StatusCode::NOT_MODIFIED, "304"),
    (StatusCode::BAD_REQUEST, "400"),
    (StatusCode::UNAUTHORIZED, "401"),
    (StatusCode::FORBIDDEN, "403"),
    (StatusCode::NOT_FOUND, "404"),
    (StatusCode::REQUEST_TIMEOUT, "408"),
    (StatusCode::CONFLICT, "409"),
    (StatusCode::PAYLOAD_TOO_LARGE, "413"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "415"),
    (StatusCode::TOO_MANY_REQUESTS, "429"),
    (StatusCode::INTERNAL_SERVER_ERROR, "500"),
    (StatusCode::SERVICE_UNAVAILABLE, "503"),
];

/// Counters of items by outcome. They start at zero, because rates need a first value.
pub(crate) struct Items {
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
}

impl Items {
    pub(crate) fn new() -> Self {
        let from_zero = |outcome: &'static str| {
            let counter = counter!(ITEMS, "outcome" => outcome);
            counter.absolute(0);
            counter
        };
        Self { accepted: from_zero("accepted"), refused: from_zero("refused") }
    }
}

/// Answers of one endpoint. Its series are looked up once, not with every request.
pub(crate) struct Answers {
    endpoint: &'static str,
    duration: Histogram,
    requests: [OnceLock<Counter>; STATUSES.len() + 1],
}

impl Answers {
    pub(crate) fn of(endpoint: &'static str) -> Self {
        Self {
            endpoint,
            duration: histogram!(DURATION, "endpoint" => endpoint),
            requests: Default::default(),
        }
    }

    pub(crate) fn count(&self, status: StatusCode, took: Duration) {
        let at = STATUSES.iter().position(|(code, _)| *code == status).unwrap_or(STATUSES.len());
        let label = STATUSES.get(at).map_or("other", |(_, label)| *label);
        let series = self.requests[at]
            .get_or_init(|| counter!(REQUESTS, "endpoint" => self.endpoint, "status" => label));
        series.increment(1);
        self.duration.record(took.as_secs_f64());
    }
}

/// Returns the gauge that waiting look-ups move.
pub(crate) fn waiting() -> Gauge {
    let gauge = gauge!(WAITING);
    gauge.set(0);
    gauge
}

pub(crate) fn unknown_appealed_actions(count: usize) {
    counter!(UNKNOWN_ACTIONS).increment(count as u64);
}

/// `refused_orgs`: none if all are refused.
pub(crate) fn lag(lag: Duration, refused_orgs: Option<usize>) {
    gauge!(LAG).set(lag.as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "there are not so many organisations")]
    gauge!(LAG_REFUSED).set(refused_orgs.map_or(-1.0, |orgs| orgs as f64));
}
