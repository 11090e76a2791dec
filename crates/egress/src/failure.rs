//! Classifies failed requests.

use std::error::Error;
use std::io;

use crate::addresses::BlockedAddress;
use crate::target::UrlError;

/// Reason for a request without a usable response. No variant contains a URL, a header or a part of a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    BlockedAddress(#[from] BlockedAddress),
    #[error("the host name could not be resolved")]
    Dns,
    #[error("the connection was refused")]
    ConnectRefused,
    #[error("no connection within the time to connect")]
    ConnectTimeout,
    #[error("no response within the time allowed")]
    Timeout,
    #[error("the response did not end within the time allowed, or was too slow")]
    BodyTimeout,
    #[error("no secure connection: {reason}")]
    Tls { reason: String },
    #[error("the connection was closed before the response ended")]
    Reset,
    #[error("the response is no HTTP, or breaks its rules")]
    Malformed,
    #[error("the network was faulty")]
    Network,
    #[error("the response is longer than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("the response has status {status}")]
    HttpStatus { status: u16 },
}

impl Failure {
    /// Returns the class for logs, metrics and operators.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Url(_) => "invalid_url",
            Self::BlockedAddress(blocked) => blocked.tag(),
            Self::Dns => "dns_error",
            Self::ConnectRefused => "connect_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::Timeout => "timeout",
            Self::BodyTimeout => "body_timeout",
            Self::Tls { .. } => "tls_error",
            Self::Reset => "reset",
            Self::Malformed => "malformed_response",
            Self::Network => "network_error",
            Self::TooLarge { .. } => "too_large",
            Self::HttpStatus { .. } => "http_status",
        }
    }

    /// Returns the class that an org may see. A closed port has the same class as a filtered one, so that an
    /// org cannot scan ranges that the operator has allowed.
    pub fn org_tag(&self) -> &'static str {
        match self {
            Self::ConnectRefused | Self::ConnectTimeout | Self::Network => "connect_failed",
            other => other.tag(),
        }
    }

    /// Explains a class if its name alone suggests no remedy. For readers without access to the error.
    pub fn explain(tag: &str) -> Option<String> {
        (tag == BlockedAddress.tag()).then(|| BlockedAddress.to_string())
    }

    /// Classifies an error of the HTTP library before the head of the response.
    pub(crate) fn from_request(error: &reqwest::Error) -> Self {
        Self::from_chain(error).unwrap_or_else(|| match (error.is_connect(), error.is_timeout()) {
            // The library reports a connect timeout as both.
            (true, true) => Self::ConnectTimeout,
            (false, true) => Self::Timeout,
            _ => Self::Network,
        })
    }

    /// Classifies an error of the HTTP library in the body of the response.
    pub(crate) fn from_body(error: &reqwest::Error) -> Self {
        Self::from_chain(error).unwrap_or_else(|| match error.is_timeout() {
            true => Self::BodyTimeout,
            false if has_bad_chunks(error) => Self::Malformed,
            false => Self::Network,
        })
    }

    fn from_chain(error: &reqwest::Error) -> Option<Self> {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(failure) = Self::from_one(error) {
                return Some(failure);
            }
            // `io::Error::source` skips the wrapped error itself, which can be a TLS error.
            next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(wrapped) => Some(wrapped),
                None => error.source(),
            };
        }
        None
    }

    fn from_one(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(failure) = error.downcast_ref::<Self>() {
            return Some(failure.clone());
        }
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(Self::Tls { reason: tls.to_string() });
        }
        if let Some(http) = error.downcast_ref::<hyper::Error>() {
            let is_closed = http.is_incomplete_message() || http.is_canceled() || http.is_closed();
            return if http.is_parse() { Some(Self::Malformed) } else { is_closed.then_some(Self::Reset) };
        }
        match error.downcast_ref::<io::Error>()?.kind() {
            io::ErrorKind::ConnectionRefused => Some(Self::ConnectRefused),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Some(Self::Reset),
            _ => None,
        }
    }
}

/// True if hyper rejected the chunked encoding.
fn has_bad_chunks(error: &reqwest::Error) -> bool {
    let sources = std::iter::successors(error.source(), |error| (*error).source());
    let mut kinds = sources.filter_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
    kinds.any(|kind| matches!(kind, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData))
}
