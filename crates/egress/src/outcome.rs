//! Classifies the outcome of a callback attempt. The caller schedules retries.

use std::{str::FromStr, time::Duration};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use tidegate_schemas::string_enum;
use tidegate_schemas::string_enum::UnknownVariant;

use crate::failure::Failure;

/// Outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A 2xx status arrived in time, even if the response body was lost afterwards.
    Delivered,
    /// The receiver has not accepted the callback yet.
    Retry { class: RetryClass },
}

string_enum! {
    /// Reason for a retry. Some classes have fewer retries or other consequences.
    pub enum RetryClass {
        /// No response: DNS, connection, TLS or timeout.
        Unreachable = "unreachable",
        /// The address is blocked. DNS records get corrected, so a few retries are made.
        BlockedAddress = "blocked_address",
        /// 3xx, which is never followed.
        Redirect = "redirect",
        /// 408, 425, 429 or 503: the receiver asks for a later attempt.
        Busy = "busy",
        /// 410: the receiver no longer accepts callbacks. Twice in a row holds the endpoint.
        Gone = "gone",
        /// Any other 4xx. Deployments can break a receiver's authentication for a while, so it is retried.
        ClientError = "client_error",
        /// Any other 5xx, or a status that HTTP does not define.
        ServerError = "server_error",
    }
}

/// Stored string of a delivered callback.
const DELIVERED: &str = "delivered";

impl FromStr for Outcome {
    type Err = UnknownVariant;

    fn from_str(text: &str) -> Result<Self, UnknownVariant> {
        if text == DELIVERED { Ok(Self::Delivered) } else { text.parse().map(|class| Self::Retry { class }) }
    }
}

impl Outcome {
    pub fn tag(self) -> &'static str {
        match self {
            Self::Delivered => DELIVERED,
            Self::Retry { class } => class.as_str(),
        }
    }

    /// Classifies a status.
    pub fn from_status(status: u16) -> Self {
        let class = match status {
            200..=299 => return Self::Delivered,
            300..=399 => RetryClass::Redirect,
            408 | 425 | 429 | 503 => RetryClass::Busy,
            410 => RetryClass::Gone,
            400..=499 => RetryClass::ClientError,
            _ => RetryClass::ServerError,
        };
        Self::Retry { class }
    }

    /// Classifies a failure.
    pub fn from_failure(failure: &Failure) -> Self {
        let class = match failure {
            Failure::BlockedAddress(_) => RetryClass::BlockedAddress,
            Failure::HttpStatus { status } => return Self::from_status(*status),
            _ => RetryClass::Unreachable,
        };
        Self::Retry { class }
    }
}

/// Parses the pause of a `Retry-After`: seconds, or an HTTP date relative to `now` (unix seconds). `None` for
/// any other value. The receiver chooses the pause freely, so callers have to bound it.
pub fn retry_after(value: &str, now: u64) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number that overflows still means a very long pause.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = parse_http_date(value)?;
    // A date in the past means no pause.
    Some(Duration::from_secs(u64::try_from(date.as_second()).unwrap_or(0).saturating_sub(now)))
}

/// Parses an HTTP date in the current format or the two obsolete ones that have to be accepted (RFC 9110,
/// 5.6.7).
fn parse_http_date(value: &str) -> Option<Timestamp> {
    const OBSOLETE_FORMATS: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let parse_current = || jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok();
    let parse_obsolete = |form| DateTime::strptime(form, value).ok()?.to_zoned_datetime(TimeZone::UTC).ok();
    // The parser accepts other zones, which HTTP does not allow.
    let current_date = value.ends_with("GMT").then(parse_current).flatten();
    current_date
        .or_else(|| OBSOLETE_FORMATS.into_iter().find_map(parse_obsolete).map(|date| date.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::BlockedAddress;
    use crate::target::UrlError;

    #[test]
    fn every_status_has_its_class() {
        for (statuses, tag) in [
            (&[200, 201, 202, 204, 206, 299][..], "delivered"),
            (&[300, 301, 302, 303, 304, 307, 308, 399], "redirect"),
            (&[408, 425, 429, 503], "busy"),
            (&[410], "gone"),
            (&[400, 401, 403, 404, 409, 413, 422, 451, 499], "client_error"),
            (&[500, 501, 502, 504, 599, 600, 999, 101, 0], "server_error"),
        ] {
            for &status in statuses {
                let outcome = Outcome::from_status(status);
                assert_eq!((outcome.tag(), tag.parse()), (tag, Ok(outcome)), "{status}");
                if tag != "delivered" {
                    assert_eq!(Outcome::from_failure(&Failure::HttpStatus { status }).tag(), tag, "{status}");
                }
            }
        }
    }

    #[test]
    fn every_failure_is_retried() {
        for failure in [
            Failure::Url(UrlError::Syntax),
            Failure::Dns,
            Failure::ConnectRefused,
            Failure::ConnectTimeout,
            Failure::Timeout,
            Failure::BodyTimeout,
            Failure::Tls { reason: String::new() },
            Failure::Reset,
            Failure::Malformed,
            Failure::Network,
            Failure::TooLarge { limit: 1 },
        ] {
            assert_eq!(
                Outcome::from_failure(&failure),
                Outcome::Retry { class: RetryClass::Unreachable },
                "{failure:?}"
            );
        }
        assert_eq!(
            Outcome::from_failure(&BlockedAddress.into()),
            Outcome::Retry { class: RetryClass::BlockedAddress }
        );
    }

    #[test]
    fn retry_after_is_seconds_or_an_http_date() {
        let now = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 120 ", Some(120)),
            ("1000000000", Some(1_000_000_000)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Monday, 06-Nov-23 08:50:37 GMT", Some(915_148_860)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Wed Nov 16 08:49:37 1994", Some(864_000)),
            ("Sunday, 06-Nov-94 08:50:37", None),
            ("Sun Nov  6 08:50:37 1994 GMT", None),
            ("Thu, 01 Jan 1960 00:00:00 GMT", None),
            ("", None),
            ("soon", None),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("1e3", None),
            ("Sun, 06 Nov 1994 08:50:37 +0000", None),
            ("1994-11-06T08:50:37Z", None),
        ] {
            assert_eq!(retry_after(value, now).map(|pause| pause.as_secs()), seconds, "{value:?}");
        }
    }
}
