//! Tells a caller its rate: the `RateLimit` and `RateLimit-Policy` headers, and 429 once it is spent.
//!
//! It counts nothing (`limits` does).

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tidegate_schemas::{ids::OrgId, wire::fault::tag};

use crate::{Problem, Rate, Rates, problem::whole_seconds};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

impl Rates {
    /// Takes one request of the organisation's rate, or refuses it.
    pub fn admit(&self, org: &OrgId, now: Instant) -> Result<Rate, Problem> {
        let rate = self.take(org, now);
        let Rate::Over(wait) = rate else { return Ok(rate) };
        let mut problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            tag::RATE_LIMITED,
            "Too many requests.",
            "The organisation is over its rate; `Retry-After` says when the next request is taken.",
        )
        .retry_after(wait);
        self.tell(rate, &mut problem.headers);
        Err(problem)
    }

    /// Adds the headers that say what is left.
    pub fn tell(&self, rate: Rate, headers: &mut HeaderMap) {
        let (left, wait) = match rate {
            Rate::Unlimited => return,
            Rate::Left(left) => (left, Duration::ZERO),
            Rate::Over(wait) => (0, wait),
        };
        let policy = format!(r#""org";q={};w={}"#, self.burst(), whole_seconds(self.window()).max(1));
        let limit = format!(r#""org";r={left};t={}"#, whole_seconds(wait));
        for (name, text) in [(POLICY, policy), (LIMIT, limit)] {
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_caller_is_told_what_is_left_and_when_to_come_again() {
        let rates = Rates::new(1, 2);
        let (org, now) = (OrgId::new("o"), Instant::now());
        let mut headers = HeaderMap::new();
        rates.tell(rates.admit(&org, now).unwrap(), &mut headers);
        assert_eq!(headers[POLICY], r#""org";q=2;w=2"#);
        assert_eq!(headers[LIMIT], r#""org";r=1;t=0"#);
        rates.admit(&org, now).unwrap();
        let refused = rates.admit(&org, now).unwrap_err();
        assert_eq!(refused.status, 429);
        assert_eq!(refused.headers[LIMIT], r#""org";r=0;t=1"#);
        assert_eq!(refused.headers["retry-after"], "1");
    }

    #[test]
    fn without_a_rate_there_are_no_headers() {
        let mut headers = HeaderMap::new();
        Rates::new(0, 0).tell(Rate::Unlimited, &mut headers);
        assert!(headers.is_empty());
    }
}
