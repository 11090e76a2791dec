//! Outcome of a fetch, and whether a retry may succeed.

use std::borrow::Cow;
use std::time::Duration;

use super::Freshness;
use crate::failure::Failure;
use crate::target::Target;

/// Outcome of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The sink received the whole body.
    Ok(FetchedBody),
    /// The cached copy is still current.
    Unchanged(Freshness),
    /// The response redirects. The next request of the attempt uses the new target.
    Redirected {
        to: Box<Target>,
        freshness: Freshness,
    },
    /// The actual or declared length of the body exceeds the limit.
    TooLarge,
    /// The address, or that of a redirect, is blocked.
    BlockedAddress,
    FetchFailed {
        reason: FetchError,
        retry_after: Option<Duration>,
    },
}

/// Fetched body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedBody {
    pub bytes: u64,
    /// Content type declared by the peer, which may be wrong.
    pub content_type: Option<String>,
    pub freshness: Freshness,
}

/// Reason for a missing body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
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

impl FetchError {
    /// Returns the class for metrics. Its values are bounded, independent of the peers' responses.
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

    /// Returns the class for display at an item, with the status.
    pub fn detail(&self) -> Cow<'static, str> {
        match self {
            Self::Status(status) => format!("http_{status}").into(),
            other => other.tag().into(),
        }
    }

    /// True if another attempt may succeed: the peer is unreachable, busy or failing, or memory was short here.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Status(status) => matches!(status, 408 | 429 | 500..=599),
            Self::Failure(failure) => {
                // A peer that accepted the request and was slow would be slow again, at the cost of the whole
                // wait.
                matches!(failure, Failure::Dns | Failure::ConnectRefused | Failure::ConnectTimeout)
            }
            Self::NoRoom => true,
            Self::TooManyRedirects | Self::NoLocation | Self::Downgrade | Self::Encoded => false,
        }
    }

    /// True if the failure concerns the host rather than this URL.
    pub fn is_host_failure(&self) -> bool {
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

impl FetchOutcome {
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

    pub(super) fn failed(reason: FetchError) -> Self {
        Self::FetchFailed { reason, retry_after: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::UrlError;

    #[test]
    fn only_transient_errors_are_retried() {
        for status in [408, 429, 500, 502, 503, 599] {
            assert!(FetchError::Status(status).is_retryable(), "{status}");
        }
        for status in [204, 206, 301, 304, 400, 401, 403, 404, 410, 418, 451] {
            assert!(!FetchError::Status(status).is_retryable(), "{status}");
        }
        for failure in [Failure::Dns, Failure::ConnectRefused, Failure::ConnectTimeout] {
            assert!(FetchError::Failure(failure).is_retryable());
        }
        // A peer that accepted the request and is slow would be slow again, at the cost of all that wait.
        for failure in [Failure::Timeout, Failure::BodyTimeout, Failure::Url(UrlError::Scheme)] {
            assert!(!FetchError::Failure(failure).is_retryable());
        }
        assert!(
            !FetchError::Downgrade.is_retryable()
                && !FetchError::Encoded.is_retryable()
                && FetchError::NoRoom.is_retryable()
        );
    }

    #[test]
    fn not_found_is_no_failure_of_the_host() {
        assert!(!FetchError::Status(404).is_host_failure() && !FetchError::Encoded.is_host_failure());
        assert!(
            FetchError::Status(503).is_host_failure()
                && FetchError::Failure(Failure::Timeout).is_host_failure()
        );
    }

    #[test]
    fn closed_and_filtered_ports_have_one_class() {
        let detail = |failure| FetchError::Failure(failure).detail();
        assert_eq!(detail(Failure::ConnectRefused), detail(Failure::ConnectTimeout));
        assert_eq!(FetchError::Status(404).detail(), "http_404");
    }
}
