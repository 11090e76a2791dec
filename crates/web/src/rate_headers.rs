//! Reports rates to callers: the headers `RateLimit` and `RateLimit-Policy`, and 429 above the rate. `rates` counts.

use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue, StatusCode};
use tidegate_schemas::{ids::OrgId, validation_error::tag};

use crate::{Problem, RateDecision, RateLimiter, problem::round_up_seconds};

const POLICY_HEADER: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT_HEADER: HeaderName = HeaderName::from_static("ratelimit");

impl RateLimiter {
    /// Takes one request from the organisation's rate, or refuses it.
    pub fn admit(&self, org: &OrgId, now: Instant) -> Result<RateDecision, Problem> {
        let rate = self.take(org, now);
        let RateDecision::Exceeded(wait) = rate else { return Ok(rate) };
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            tag::RATE_LIMITED,
            "Too many requests.",
            "The organisation is over its rate. Send the next request after the time in `Retry-After`.",
        )
        .retry_after(wait);
        Err(self
            .headers(rate)
            .into_iter()
            .fold(problem, |problem, (name, value)| problem.with_header(name, value)))
    }

    /// Builds the headers with the remaining rate.
    pub fn headers(&self, rate: RateDecision) -> Vec<(HeaderName, HeaderValue)> {
        let (remaining, wait) = match rate {
            RateDecision::Unlimited => return Vec::new(),
            RateDecision::Remaining(remaining) => (remaining, Duration::ZERO),
            RateDecision::Exceeded(wait) => (0, wait),
        };
        let window = round_up_seconds(self.window()).max(1);
        let policy = format!(r#""org";q={};w={window}"#, self.burst());
        let limit = format!(r#""org";r={remaining};t={}"#, round_up_seconds(wait));
        [(POLICY_HEADER, policy), (LIMIT_HEADER, limit)]
            .into_iter()
            .filter_map(|(name, text)| Some((name, HeaderValue::try_from(text).ok()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn text(headers: &[(HeaderName, HeaderValue)], name: &str) -> String {
        let value = headers
            .iter()
            .find(|(header_name, _)| header_name == name)
            .map(|(_, value)| value.to_str().unwrap());
        value.unwrap_or_default().to_owned()
    }

    #[test]
    fn headers_report_remaining_rate_and_wait() {
        let rates = RateLimiter::new(1, 2);
        let (org, now) = (OrgId::new("o"), Instant::now());
        let headers = rates.headers(rates.admit(&org, now).unwrap());
        assert_eq!(text(&headers, "ratelimit-policy"), r#""org";q=2;w=2"#);
        assert_eq!(text(&headers, "ratelimit"), r#""org";r=1;t=0"#);
        rates.admit(&org, now).unwrap();
        let refused = rates.admit(&org, now).unwrap_err();
        assert_eq!(refused.status, 429);
        assert_eq!(text(&refused.headers, "ratelimit"), r#""org";r=0;t=1"#);
        assert_eq!(text(&refused.headers, "retry-after"), "1");
    }

    #[test]
    fn no_rate_means_no_headers() {
        assert!(RateLimiter::new(0, 0).headers(RateDecision::Unlimited).is_empty());
    }
}
