//! Metrics of the API: requests, items, durations and waiting look-ups. Labels never contain organisations or items, so the
//! number of series is bounded.

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

/// Describes every metric of the crate to the process's recorder.
pub fn describe() {
    describe_counter!(REQUESTS, "Answered requests, by endpoint and status.");
    describe_counter!(ITEMS, "Submitted items, by outcome.");
    describe_histogram!(DURATION, Unit::Seconds, "Time to answer a request, by endpoint.");
    describe_counter!(UNKNOWN_ACTIONS, "Unknown actions named by accepted appeals.");
    describe_gauge!(LAG, Unit::Seconds, "Age of the oldest accepted item that is not processed.");
    describe_gauge!(
        LAG_REFUSED,
        "Organisations with refused items because they delay processing; -1: all, because no item is processed."
    );
    describe_gauge!(WAITING, "Look-ups that wait for their item to be evaluated.");
}

/// Statuses with their own label. Others share the label `other`.
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
pub(crate) struct ItemCounters {
    pub(crate) accepted_items: Counter,
    pub(crate) refused_items: Counter,
}

impl ItemCounters {
    pub(crate) fn new() -> Self {
        let zero_counter = |outcome: &'static str| {
            let counter = counter!(ITEMS, "outcome" => outcome);
            counter.absolute(0);
            counter
        };
        Self { accepted_items: zero_counter("accepted"), refused_items: zero_counter("refused") }
    }
}

/// Metrics of the responses of one endpoint. The series are looked up once, not for every request.
pub(crate) struct ResponseMetrics {
    endpoint: &'static str,
    duration: Histogram,
    requests: [OnceLock<Counter>; STATUSES.len() + 1],
}

impl ResponseMetrics {
    pub(crate) fn for_endpoint(endpoint: &'static str) -> Self {
        Self {
            endpoint,
            duration: histogram!(DURATION, "endpoint" => endpoint),
            requests: Default::default(),
        }
    }

    pub(crate) fn count(&self, status: StatusCode, elapsed: Duration) {
        // The last series counts all statuses without their own label.
        let index = STATUSES.iter().position(|(code, _)| *code == status).unwrap_or(STATUSES.len());
        let label = STATUSES.get(index).map_or("other", |(_, label)| *label);
        let series = self.requests[index]
            .get_or_init(|| counter!(REQUESTS, "endpoint" => self.endpoint, "status" => label));
        series.increment(1);
        self.duration.record(elapsed.as_secs_f64());
    }
}

/// Returns the gauge of waiting look-ups, reset to zero.
pub(crate) fn waiting_gauge() -> Gauge {
    let gauge = gauge!(WAITING);
    gauge.set(0);
    gauge
}

pub(crate) fn count_unknown_appealed_actions(count: usize) {
    counter!(UNKNOWN_ACTIONS).increment(count as u64);
}

/// Sets the gauges of the lag. `refused_orgs`: `None` if all are refused.
pub(crate) fn set_lag(lag: Duration, refused_orgs: Option<usize>) {
    gauge!(LAG).set(lag.as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "there are not so many organisations")]
    gauge!(LAG_REFUSED).set(refused_orgs.map_or(-1.0, |orgs| orgs as f64));
}
