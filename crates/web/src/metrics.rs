//! Metrics of both HTTP servers.

use metrics::{counter, describe_counter};

const DENIED: &str = "tidegate_http_denied_total";

/// Registers the help of every metric of this crate.
pub fn describe() {
    describe_counter!(DENIED, "Requests whose key was refused, by reason.");
}

pub(crate) fn request_denied(reason: &'static str) {
    counter!(DENIED, "reason" => reason).increment(1);
}
