//! Sends one callback, signed, and tells what became of it.
//! Not responsible for when it is sent, how often, or where the attempt is recorded.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use tidegate_schemas::ids::EventId;
use tokio::time::Instant;

use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::outcomes::{self, Outcome};
use crate::signature::{self, Secret};
use crate::target::{Target, UrlFault};

const SERVICE_EVENT_TYPE: HeaderName = HeaderName::from_static("service-event-type");
const SERVICE_ATTEMPT: HeaderName = HeaderName::from_static("service-attempt");

/// One callback on its way. `Debug` shows neither URL, headers, body nor secrets.
pub struct CallbackRequest {
    pub url: String,
    /// The same on every attempt; it is what receivers tell repetitions by.
    pub event_id: EventId,
    pub event_type: String,
    /// Counts from 1.
    pub attempt_no: u32,
    /// Byte-identical on every attempt.
    pub body: Bytes,
    /// The endpoint's own headers, as [`check_headers`] accepts them.
    pub headers: Vec<(String, String)>,
    /// The valid secrets, the newest first.
    pub secrets: Vec<Secret>,
}

impl std::fmt::Debug for CallbackRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallbackRequest")
            .field("event_id", &self.event_id)
            .field("event_type", &self.event_type)
            .field("attempt_no", &self.attempt_no)
            .finish_non_exhaustive()
    }
}

/// What became of an attempt that was made.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub outcome: Outcome,
    pub http_status: Option<u16>,
    /// What went wrong. A delivered callback may carry one too, if only the rest of the answer was lost.
    pub error: Option<Failure>,
    pub duration: Duration,
    /// Who answered; unknown if nobody did.
    pub remote_ip: Option<IpAddr>,
    /// The beginning of the answer's body. For the organisation's administrators only.
    pub response_head: Bytes,
    /// The receiver's wish, unclamped.
    pub retry_after: Option<Duration>,
}

/// Why nothing was sent. The fault is ours or the configuration's: it is no attempt, and not charged to the receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    #[error("the endpoint has no signing secret, and nothing is sent unsigned")]
    NoSecret,
    #[error(transparent)]
    Url(#[from] UrlFault),
    #[error(transparent)]
    Header(#[from] HeaderFault),
}

impl NotSent {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::NoSecret => "no_secret",
            Self::Url(fault) => fault.tag(),
            Self::Header(fault) => fault.tag(),
        }
    }
}

/// Makes one attempt at `now` (unix seconds), within the settings' total time.
pub async fn send(client: &Client, request: &CallbackRequest, now: u64) -> Result<Attempt, NotSent> {
    if request.secrets.is_empty() {
        return Err(NotSent::NoSecret);
    }
    let target = Target::parse(&request.url)?;
    let headers = all_headers(request, now)?;
    let settings = client.settings();
    let began = Instant::now();
    let sent = client
        .send(Request {
            method: Method::POST,
            target,
            headers,
            body: request.body.clone(),
            limits: client.limits(settings.total_timeout(), settings.response_read_bytes),
        })
        .await;
    let response = match sent {
        Ok(response) => response,
        Err(failure) => {
            return Ok(Attempt {
                outcome: Outcome::of_failure(&failure),
                http_status: None,
                error: Some(failure),
                duration: began.elapsed(),
                remote_ip: None,
                response_head: Bytes::new(),
                retry_after: None,
            });
        }
    };
    let status = response.status().as_u16();
    let outcome = Outcome::of_status(status);
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| outcomes::retry_after(value, now));
    let remote_ip = response.remote_ip();
    let (head, lost) = response.head().await;
    let error = match outcome {
        // An answer longer than anyone reads is no fault of the receiver's.
        Outcome::Delivered => lost.filter(|failure| !matches!(failure, Failure::TooLarge { .. })),
        Outcome::Retry { .. } => Some(Failure::HttpStatus { status }),
    };
    Ok(Attempt {
        outcome,
        http_status: Some(status),
        error,
        duration: began.elapsed(),
        remote_ip,
        response_head: Bytes::copy_from_slice(&head[..head.len().min(settings.response_kept_bytes)]),
        retry_after,
    })
}

fn all_headers(request: &CallbackRequest, now: u64) -> Result<HeaderMap, HeaderFault> {
    let mut headers = own_headers(&request.headers)?;
    let id = request.event_id.to_string();
    let signed = signature::sign(&request.secrets, &id, now, &request.body);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in [
        (HeaderName::from_static(signature::SERVICE_SIGNATURE), signed.service),
        (HeaderName::from_static(signature::WEBHOOK_ID), id),
        (HeaderName::from_static(signature::WEBHOOK_TIMESTAMP), now.to_string()),
        (HeaderName::from_static(signature::WEBHOOK_SIGNATURE), signed.webhook),
        (SERVICE_EVENT_TYPE, request.event_type.clone()),
        (SERVICE_ATTEMPT, request.attempt_no.to_string()),
    ] {
        let value = HeaderValue::try_from(value).map_err(|_| HeaderFault::Value(name.to_string()))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Why an endpoint may not have a header. Values are never told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    #[error("`{0}` is no header name")]
    Name(String),
    #[error("the header `{0}` is set by the service or the connection and cannot be configured")]
    Forbidden(String),
    #[error("the header `{0}` is given twice")]
    Twice(String),
    #[error("the value of the header `{0}` has characters that a header cannot carry")]
    Value(String),
}

impl HeaderFault {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Name(_) => "header_name",
            Self::Forbidden(_) => "header_forbidden",
            Self::Twice(_) => "header_twice",
            Self::Value(_) => "header_value",
        }
    }
}

/// Whether these headers may be configured on an endpoint.
pub fn check_headers(headers: &[(String, String)]) -> Result<(), HeaderFault> {
    own_headers(headers).map(drop)
}

fn own_headers(headers: &[(String, String)]) -> Result<HeaderMap, HeaderFault> {
    let mut map = HeaderMap::with_capacity(headers.len() + 8);
    for (text, value) in headers {
        let name = HeaderName::try_from(text).map_err(|_| HeaderFault::Name(text.clone()))?;
        if is_forbidden(name.as_str()) {
            return Err(HeaderFault::Forbidden(text.clone()));
        }
        let mut value = HeaderValue::try_from(value).map_err(|_| HeaderFault::Value(text.clone()))?;
        value.set_sensitive(true);
        if map.insert(name, value).is_some() {
            return Err(HeaderFault::Twice(text.clone()));
        }
    }
    Ok(map)
}

/// Ours, the connection's, the browser's, and those by which proxies tell whom a request comes from.
fn is_forbidden(name: &str) -> bool {
    const NAMES: [&str; 24] = [
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "cookie2",
        "date",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "origin",
        "referer",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-http-method-override",
        "x-real-ip",
    ];
    const PREFIXES: [&str; 5] = ["proxy-", "sec-", "service-", "webhook-", "x-forwarded-"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str) -> Result<(), HeaderFault> {
        check_headers(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn an_endpoint_may_have_headers_of_its_own() {
        for name in ["Authorization", "X-Api-Key", "x-tenant", "traceparent"] {
            assert_eq!(check(name, "some value"), Ok(()), "{name}");
        }
    }

    #[test]
    fn headers_of_the_service_and_of_the_connection_cannot_be_configured() {
        for name in [
            "Content-Type",
            "content-length",
            "HOST",
            "Connection",
            "User-Agent",
            "Transfer-Encoding",
            "Cookie",
            "TE",
            "Trailer",
            "Upgrade",
            "Keep-Alive",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Service-Signature",
            "service-anything",
            "Webhook-Id",
            "webhook-signature",
            "Expect",
            "Accept-Encoding",
            "X-Forwarded-For",
        ] {
            assert_eq!(check(name, "x"), Err(HeaderFault::Forbidden(name.to_owned())), "{name}");
        }
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_refused_without_telling_its_value() {
        for name in ["", "a b", "a:b", "a\r\nb", "\u{e4}"] {
            assert_eq!(check(name, "x"), Err(HeaderFault::Name(name.to_owned())), "{name:?}");
        }
        for value in ["a\r\nhost: b", "a\nb", "\0"] {
            let fault = check("x-key", value).expect_err("the value cannot be sent");
            assert_eq!(fault, HeaderFault::Value("x-key".to_owned()));
            assert!(!fault.to_string().contains(value));
        }
        let twice = [("X-Key".to_owned(), "1".to_owned()), ("x-key".to_owned(), "2".to_owned())];
        assert_eq!(check_headers(&twice), Err(HeaderFault::Twice("x-key".to_owned())));
    }
}
