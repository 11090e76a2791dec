//! What became of a fetch, and whether trying again may help.
//! Not responsible for when.

use std::borrow::Cow;
use std::time::Duration;

use super::Freshness;
use crate::failure::Failure;
use crate::target::Target;

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The sink has the whole body.
    Ok(Arrived),
    /// What is at hand is still what the address shows.
    Unchanged(Freshness),
    /// The body is said to be there. Asking there is the attempt's next request.
    Redirected {
        to: Box<Target>,
        freshness: Freshness,
    },
    /// The body is, or says that it is, longer than the settings allow.
    TooLarge,
    /// The address, or one that it redirects to, may not be called.
    BlockedAddress,
    FetchFailed {
        reason: Reason,
        retry_after: Option<Duration>,
    },
}

/// A body that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    pub bytes: u64,
    /// As the peer says, which proves nothing.
    pub content_type: Option<String>,
    pub freshness: Freshness,
}

/// Why there is no body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error(transparent)]
    Failure(Failure),
    #[error("the response has status {0}")]
    Status(u16),
    #[error("the address redirects too often")]
    TooManyRedirects,
    #[error("the address redirects without saying where to")]
    NoLocation,
    #[error("the address redirects from https to http")]
    Downgrade,
    #[error("the body is compressed although that was not asked for")]
    Encoded,
    #[error("there is no room for the body at the moment")]
    NoRoom,
}

impl Reason {
    /// The class, for metrics: few, whatever peers answer.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Failure(Failure::Url(fault)) => fault.tag(),
            Self::Failure(failure) => failure.org_tag(),
            Self::Status(_) => "http_status",
            Self::TooManyRedirects => "too_many_redirects",
            Self::NoLocation => "redirect_without_location",
            Self::Downgrade => "redirect_downgrade",
            Self::Encoded => "content_encoding",
            Self::NoRoom => "no_room",
        }
    }

    /// The class as an item shows it, with the status.
    pub fn shown(&self) -> Cow<'static, str> {
        match self {
            Self::Status(status) => format!("http_{status}").into(),
            other => other.tag().into(),
        }
    }

    /// Whether another attempt may bring the body: the peer was not reached, is busy or broken, or we were short.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Status(status) => matches!(status, 408 | 429 | 500..=599),
            Self::Failure(failure) => {
                matches!(failure, Failure::Dns | Failure::ConnectRefused | Failure::ConnectTimeout)
            }
            Self::NoRoom => true,
            Self::TooManyRedirects | Self::NoLocation | Self::Downgrade | Self::Encoded => false,
        }
    }

    /// Whether it speaks against the host rather than against this one address.
    pub fn is_of_host(&self) -> bool {
        match self {
            Self::Status(status) => matches!(status, 429 | 500..=599),
            Self::Failure(failure) => matches!(
                failure,
                Failure::Dns
                    | Failure::ConnectRefused
                    | Failure::ConnectTimeout
                    | Failure::Timeout
                    | Failure::BodyTimeout
                    | Failure::Tls { .. }
                    | Failure::Reset
                    | Failure::Malformed
                    | Failure::Network
            ),
            _ => false,
        }
    }
}

impl Outcome {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Ok(_) => "ok",
            Self::Unchanged(_) => "unchanged",
            Self::Redirected { .. } => "redirected",
            Self::TooLarge => "too_large",
            Self::BlockedAddress => "blocked_address",
            Self::FetchFailed { .. } => "fetch_failed",
        }
    }

    pub(super) fn failed(reason: Reason) -> Self {
        Self::FetchFailed { reason, retry_after: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::UrlFault;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for status in [408, 429, 500, 502, 503, 599] {
            assert!(Reason::Status(status).may_pass(), "{status}");
        }
        for status in [204, 206, 301, 304, 400, 401, 403, 404, 410, 418, 451] {
            assert!(!Reason::Status(status).may_pass(), "{status}");
        }
        for failure in [Failure::Dns, Failure::ConnectRefused, Failure::ConnectTimeout] {
            assert!(Reason::Failure(failure).may_pass());
        }
        // A peer that took the request and dawdles would do it again, at the cost of everybody who waits.
        for failure in [Failure::Timeout, Failure::BodyTimeout, Failure::Url(UrlFault::Scheme)] {
            assert!(!Reason::Failure(failure).may_pass());
        }
        assert!(!Reason::Downgrade.may_pass() && !Reason::Encoded.may_pass() && Reason::NoRoom.may_pass());
    }

    #[test]
    fn a_missing_picture_says_nothing_against_its_host() {
        assert!(!Reason::Status(404).is_of_host() && !Reason::Encoded.is_of_host());
        assert!(Reason::Status(503).is_of_host() && Reason::Failure(Failure::Timeout).is_of_host());
    }

    #[test]
    fn a_closed_port_looks_like_a_filtered_one() {
        let shown = |failure| Reason::Failure(failure).shown();
        assert_eq!(shown(Failure::ConnectRefused), shown(Failure::ConnectTimeout));
        assert_eq!(Reason::Status(404).shown(), "http_404");
    }
}
