//! Parses the caching headers of a response: how long it may be cached, and its validators.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

/// Caching rules of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freshness {
    /// True if the response must not be stored.
    pub no_store: bool,
    /// Time for which the response may be used without revalidation; `None` if the headers give no time.
    pub fresh_for: Option<Duration>,
    pub validators: Validators,
}

/// Validators for revalidating a cached response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    pub etag: Option<HeaderValue>,
    pub last_modified: Option<HeaderValue>,
}

/// Greatest length of a stored validator.
const MAX_VALIDATOR_BYTES: usize = 256;

impl Validators {
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

impl Freshness {
    /// Combines the rules with those of the redirect before: the stricter of both applies.
    pub fn limited_by(self, redirect: &Self) -> Self {
        Self {
            no_store: self.no_store || redirect.no_store,
            fresh_for: self.fresh_for.into_iter().chain(redirect.fresh_for).min(),
            validators: self.validators,
        }
    }

    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let mut freshness = Self {
            no_store: false,
            fresh_for: None,
            validators: Validators {
                etag: read_validator(headers, header::ETAG),
                last_modified: read_validator(headers, header::LAST_MODIFIED),
            },
        };
        let mut must_revalidate = false;
        for line in headers.get_all(header::CACHE_CONTROL) {
            let Ok(line) = line.to_str() else { continue };
            for directive in line.split(',') {
                let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
                match name.trim().to_ascii_lowercase().as_str() {
                    "no-store" => freshness.no_store = true,
                    "no-cache" => must_revalidate = true,
                    "max-age" => {
                        // An unparsable age counts as expired, so that a broken header never extends caching.
                        let seconds = value.trim().trim_matches('"').parse().unwrap_or(0);
                        let max_age = Duration::from_secs(seconds);
                        freshness.fresh_for =
                            // Of contradicting directives, the strictest applies.
                            Some(freshness.fresh_for.map_or(max_age, |current| current.min(max_age)));
                    }
                    _ => {}
                }
            }
        }
        if must_revalidate {
            freshness.fresh_for = Some(Duration::ZERO);
        }
        // The time in caches before this one counts towards the age.
        let age = headers.get(header::AGE).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let age = Duration::from_secs(age.unwrap_or(0));
        freshness.fresh_for = freshness.fresh_for.map(|fresh| fresh.saturating_sub(age));
        freshness
    }
}

fn read_validator(headers: &HeaderMap, name: header::HeaderName) -> Option<HeaderValue> {
    headers.get(name).filter(|value| !value.is_empty() && value.len() <= MAX_VALIDATOR_BYTES).cloned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn of(lines: &[(&'static str, &'static str)]) -> Freshness {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        Freshness::from_headers(&headers)
    }

    #[test]
    fn response_is_fresh_no_longer_than_it_says() {
        let seconds = |lines| of(lines).fresh_for.map(|fresh| fresh.as_secs());
        assert_eq!(seconds(&[]), None);
        assert_eq!(seconds(&[("cache-control", "public, max-age=60")]), Some(60));
        assert_eq!(seconds(&[("cache-control", "MAX-AGE=\"60\"")]), Some(60));
        assert_eq!(seconds(&[("cache-control", "max-age=60"), ("cache-control", "max-age=10")]), Some(10));
        assert_eq!(seconds(&[("cache-control", "max-age=60"), ("age", "50")]), Some(10));
        assert_eq!(seconds(&[("cache-control", "max-age=60"), ("age", "500")]), Some(0));
        assert_eq!(seconds(&[("cache-control", "max-age=60, no-cache")]), Some(0));
        assert_eq!(seconds(&[("cache-control", "max-age=soon")]), Some(0));
        assert!(of(&[("cache-control", "max-age=60,no-store")]).no_store);
    }

    #[test]
    fn response_is_fresh_no_longer_than_its_redirect() {
        let both = |one, other| {
            let both =
                of(&[("cache-control", one), ("etag", "1")]).limited_by(&of(&[("cache-control", other)]));
            assert!(both.validators.etag.is_some());
            (both.no_store, both.fresh_for.map(|fresh| fresh.as_secs()))
        };
        assert_eq!(both("max-age=60", ""), (false, Some(60)));
        assert_eq!(both("", "max-age=60"), (false, Some(60)));
        assert_eq!(both("max-age=60", "no-cache"), (false, Some(0)));
        assert_eq!(both("max-age=6", "max-age=60"), (false, Some(6)));
        assert_eq!(both("", "no-store"), (true, None));
        assert_eq!(both("no-store", ""), (true, None));
    }

    #[test]
    fn only_short_validators_are_stored() {
        let found = of(&[("etag", "\"a\""), ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]).validators;
        assert_eq!(found.etag.unwrap(), "\"a\"");
        assert!(found.last_modified.is_some());
        let mut headers = HeaderMap::new();
        headers.insert("etag", HeaderValue::try_from("x".repeat(257)).unwrap());
        assert!(Freshness::from_headers(&headers).validators.is_empty());
    }
}
