//! Limits failed sign-in attempts per address and in total. Kept in memory, so each process counts separately.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName},
};
use tidegate_web::{Network, RateDecision, RateLimiter};

/// Failed attempts of one address: burst, and rate per second after it.
const ADDRESS_BURST: u32 = 10;
const ADDRESS_PER_SECOND: u32 = 1;
/// The same for all addresses together: guesses from many addresses stay bounded.
const TOTAL_BURST: u32 = 100;
const TOTAL_PER_SECOND: u32 = 10;

pub(crate) struct SignInAttempts {
    of_address: RateLimiter<Option<Network>>,
    of_all: RateLimiter<()>,
}

impl Default for SignInAttempts {
    fn default() -> Self {
        Self {
            of_address: RateLimiter::new(ADDRESS_PER_SECOND, ADDRESS_BURST),
            of_all: RateLimiter::new(TOTAL_PER_SECOND, TOTAL_BURST),
        }
    }
}

/// Attempt admitted for its address.
pub(crate) struct SignInAttempt<'a> {
    attempts: &'a SignInAttempts,
    address: Option<Network>,
}

impl SignInAttempts {
    /// Begins an attempt, or returns the time until the address may begin the next one.
    pub(crate) fn begin_attempt(
        &self,
        address: Option<Network>,
        now: Instant,
    ) -> Result<SignInAttempt<'_>, Duration> {
        if let RateDecision::Exceeded(wait) = self.of_address.take(&address, now) {
            return Err(wait);
        }
        Ok(SignInAttempt { attempts: self, address })
    }
}

impl SignInAttempt<'_> {
    /// Takes the attempt out of the count of its address.
    pub(crate) fn mark_succeeded(self) {
        self.attempts.of_address.give_back(&self.address);
    }

    /// Counts the attempt as failed, or returns the time until the next failure is admitted. The total is checked only here, after
    /// the key, so guesses from many addresses cannot block a sign-in with a valid key.
    pub(crate) fn mark_failed(self, now: Instant) -> Result<(), Duration> {
        match self.attempts.of_all.take(&(), now) {
            RateDecision::Exceeded(wait) => Err(wait),
            RateDecision::Unlimited | RateDecision::Remaining(_) => Ok(()),
        }
    }
}

/// Returns the address of the client. `X-Forwarded-For` counts only if the connection has an internal address, such as a proxy
/// of the operator; a client elsewhere could claim any address.
pub(crate) fn client_address(request: &Request) -> Option<Network> {
    let connection = request.extensions().get::<Network>().copied();
    let forwarded = || last_forwarded(request.headers()).map(Network::from_address);
    connection.filter(|network| network.is_internal()).and_then(|_| forwarded()).or(connection)
}

/// Returns the last address of the header: the nearest proxy appended it, the others come from the client.
fn last_forwarded(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all(HeaderName::from_static("x-forwarded-for")).iter().next_back()?;
    // One header may list several addresses; the nearest proxy appends the last one.
    last.to_str().ok()?.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::body::Body;

    use super::*;

    fn network(last_octet: u8) -> Option<Network> {
        Some(Network::from_address([192, 0, 2, last_octet].into()))
    }

    #[test]
    fn failed_attempts_are_bounded_by_address_and_in_all() {
        let (attempts, now) = (SignInAttempts::default(), Instant::now());
        for _ in 0..ADDRESS_BURST {
            assert!(attempts.begin_attempt(network(1), now).is_ok());
        }
        let wait = attempts.begin_attempt(network(1), now).err().unwrap();
        let fails =
            |last: &u8| attempts.begin_attempt(network(*last), now).ok().unwrap().mark_failed(now).is_ok();
        let failures = (2..=u8::MAX).take_while(fails).count();
        assert_eq!(failures, usize::try_from(TOTAL_BURST).unwrap());
        attempts.begin_attempt(network(u8::MAX), now).ok().unwrap().mark_succeeded();
        assert!(attempts.begin_attempt(network(1), now + wait).is_ok());
    }

    #[test]
    fn right_keys_do_not_count() {
        let (attempts, now) = (SignInAttempts::default(), Instant::now());
        for _ in 0..10 * TOTAL_BURST {
            attempts.begin_attempt(network(1), now).ok().unwrap().mark_succeeded();
        }
    }

    #[test]
    fn only_an_internal_proxy_sets_the_client_address() {
        let request = |peer: [u8; 4], forwarded: &str| {
            let mut request = Request::builder();
            if !forwarded.is_empty() {
                request = request.header("x-forwarded-for", forwarded);
            }
            let mut request = request.body(Body::empty()).unwrap();
            request.extensions_mut().insert(Network::from_address(peer.into()));
            client_address(&request)
        };
        assert_eq!(request([10, 0, 0, 1], "192.0.2.9, 192.0.2.7"), network(7));
        assert_eq!(request([10, 0, 0, 1], ""), Some(Network::from_address([10, 0, 0, 1].into())));
        assert_eq!(request([10, 0, 0, 1], "unknown"), Some(Network::from_address([10, 0, 0, 1].into())));
        assert_eq!(request([192, 0, 2, 1], "192.0.2.7"), network(1), "anybody can say so");
    }
}
