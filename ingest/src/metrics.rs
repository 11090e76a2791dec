//! The metrics of the API: requests, items, durations, bytes under way.
//!
//! Labels are bounded: no organisation, no item.

use std::time::Duration;

use axum::http::StatusCode;
use metrics::{Gauge, counter, gauge, histogram};

const REQUESTS: &str = "tidegate_ingest_requests_total";
const ITEMS: &str = "tidegate_ingest_items_total";
const DURATION: &str = "tidegate_ingest_request_duration_seconds";
const IN_FLIGHT: &str = "tidegate_ingest_in_flight_bytes";

const ACCEPTED: &str = "accepted";
const REFUSED: &str = "refused";

/// Rates need a zero to begin with.
pub(crate) fn begin() {
    for outcome in [ACCEPTED, REFUSED] {
        counter!(ITEMS, "outcome" => outcome).absolute(0);
    }
}

pub(crate) fn answered(endpoint: &'static str, status: StatusCode, took: Duration) {
    counter!(REQUESTS, "endpoint" => endpoint, "status" => label(status)).increment(1);
    histogram!(DURATION, "endpoint" => endpoint).record(took.as_secs_f64());
}

pub(crate) fn accepted(items: usize) {
    counter!(ITEMS, "outcome" => ACCEPTED).increment(items as u64);
}

pub(crate) fn refused(items: usize) {
    counter!(ITEMS, "outcome" => REFUSED).increment(items as u64);
}

/// For the budget, which moves it.
pub(crate) fn in_flight() -> Gauge {
    let gauge = gauge!(IN_FLIGHT);
    gauge.set(0);
    gauge
}

/// Without an allocation per request.
fn label(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200 => "200",
        201 => "201",
        202 => "202",
        204 => "204",
        304 => "304",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        408 => "408",
        413 => "413",
        415 => "415",
        429 => "429",
        500 => "500",
        503 => "503",
        _ => "other",
    }
}
