//! Metrics of the HTTP servers. The label `server` is `api`, `admin` or the name of another port.

use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};

const DENIED: &str = "tidegate_http_denied_total";
const BODIES: &str = "tidegate_http_body_bytes";
const UNSENT: &str = "tidegate_http_unsent_bytes";
const CONNECTIONS: &str = "tidegate_http_connections";
const STREAMS: &str = "tidegate_http_streams";
const LIMITED: &str = "tidegate_http_limited_total";

/// Registers the descriptions of this crate's metrics.
pub fn describe() {
    describe_counter!(DENIED, "Requests refused because of their key, by reason.");
    describe_gauge!(BODIES, Unit::Bytes, "Received bytes of request bodies under way.");
    describe_gauge!(UNSENT, Unit::Bytes, "Bytes of answers that their clients have not taken yet.");
    describe_gauge!(CONNECTIONS, "Open connections of clients.");
    describe_gauge!(STREAMS, "HTTP/2 requests with answers that their clients have not taken.");
    describe_counter!(LIMITED, "Requests, streams and connections that a limit refused or ended, by limit.");
}

/// Counts a request that was refused because of its key.
pub fn count_denied_request(reason: &'static str) {
    counter!(DENIED, "reason" => reason).increment(1);
}

pub(crate) fn body_bytes_gauge(server: &'static str) -> Gauge {
    gauge_from_zero(gauge!(BODIES, "server" => server))
}

pub(crate) fn unsent_bytes_gauge(server: &'static str) -> Gauge {
    gauge_from_zero(gauge!(UNSENT, "server" => server))
}

pub(crate) fn connections_gauge(server: &'static str) -> Gauge {
    gauge_from_zero(gauge!(CONNECTIONS, "server" => server))
}

pub(crate) fn streams_gauge(server: &'static str) -> Gauge {
    gauge_from_zero(gauge!(STREAMS, "server" => server))
}

fn gauge_from_zero(gauge: Gauge) -> Gauge {
    gauge.set(0);
    gauge
}

pub(crate) fn limit_counter(server: &'static str, limit: &'static str) -> Counter {
    counter!(LIMITED, "server" => server, "limit" => limit)
}
