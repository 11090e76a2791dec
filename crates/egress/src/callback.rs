//! Sends one signed callback and returns its outcome. The caller schedules and records attempts.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use tidegate_schemas::ids::EventId;
use tokio::time::Instant;

use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::outcome::{self, Outcome};
use crate::signature::{self, Secret};
use crate::target::{Target, UrlError};

const SERVICE_EVENT_TYPE: HeaderName = HeaderName::from_static("service-event-type");
const SERVICE_ATTEMPT: HeaderName = HeaderName::from_static("service-attempt");

/// One callback to send. `Debug` shows neither URL, headers, body nor secrets.
pub struct CallbackRequest {
    pub url: String,
    /// The same on every attempt, so that receivers recognise repeats.
    pub event_id: EventId,
    pub event_type: String,
    /// Counts from 1.
    pub attempt_no: u32,
    /// Byte-identical on every attempt.
    pub body: Bytes,
    /// Headers configured on the endpoint, as [`check_headers`] accepts them.
    pub headers: Vec<(String, String)>,
    /// Valid secrets, the newest first.
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

/// Result of an attempt that was made.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub outcome: Outcome,
    pub http_status: Option<u16>,
    /// The failure. A delivered callback may have one too, if only the rest of the response was lost.
    pub error: Option<Failure>,
    pub duration: Duration,
    /// Address that responded, if any did.
    pub remote_ip: Option<IpAddr>,
    /// Beginning of the response's body, for the org's administrators only.
    pub response_head: Bytes,
    /// Pause that the receiver asks for, not clamped.
    pub retry_after: Option<Duration>,
}

/// Why nothing was sent. The cause is in our configuration: it is no attempt, and does not count against the receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    #[error("the endpoint has no signing secret, and nothing is sent unsigned")]
    NoSecret,
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl NotSent {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::NoSecret => "no_secret",
            Self::Url(error) => error.tag(),
            Self::Header(error) => error.tag(),
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
                outcome: Outcome::from_failure(&failure),
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
    let outcome = Outcome::from_status(status);
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| outcome::retry_after(value, now));
    let remote_ip = response.remote_ip();
    let (prefix, lost) = response.read_prefix().await;
    let error = match outcome {
        // A response that is longer than we read is not an error.
        Outcome::Delivered => lost.filter(|failure| !matches!(failure, Failure::TooLarge { .. })),
        Outcome::Retry { .. } => Some(Failure::HttpStatus { status }),
    };
    Ok(Attempt {
        outcome,
        http_status: Some(status),
        error,
        duration: began.elapsed(),
        remote_ip,
        response_head: Bytes::copy_from_slice(&prefix[..prefix.len().min(settings.response_kept_bytes)]),
        retry_after,
    })
}

fn all_headers(request: &CallbackRequest, now: u64) -> Result<HeaderMap, HeaderError> {
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
        let value = HeaderValue::try_from(value).map_err(|_| HeaderError::Value(name.to_string()))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Why an endpoint may not have a header. Messages never contain values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("`{0}` is no header name")]
    Name(String),
    #[error("the header `{0}` is set by the service or the connection and cannot be configured")]
    Forbidden(String),
    #[error("the header `{0}` is given twice")]
    Twice(String),
    #[error("the value of the header `{0}` has characters that a header cannot carry")]
    Value(String),
}

impl HeaderError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Name(_) => "header_name",
            Self::Forbidden(_) => "header_forbidden",
            Self::Twice(_) => "header_twice",
            Self::Value(_) => "header_value",
        }
    }
}

/// Checks that these headers may be configured on an endpoint.
pub fn check_headers(headers: &[(String, String)]) -> Result<(), HeaderError> {
    own_headers(headers).map(drop)
}

fn own_headers(headers: &[(String, String)]) -> Result<HeaderMap, HeaderError> {
    let mut map = HeaderMap::with_capacity(headers.len() + 8);
    for (text, value) in headers {
        let name = HeaderName::try_from(text).map_err(|_| HeaderError::Name(text.clone()))?;
        if is_forbidden(name.as_str()) {
            return Err(HeaderError::Forbidden(text.clone()));
        }
        let mut value = HeaderValue::try_from(value).map_err(|_| HeaderError::Value(text.clone()))?;
        value.set_sensitive(true);
        if map.insert(name, value).is_some() {
            return Err(HeaderError::Twice(text.clone()));
        }
    }
    Ok(map)
}

/// True for headers that we set ourselves, of the connection, of browsers, and by which proxies name the sender.
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

    fn check(name: &str, value: &str) -> Result<(), HeaderError> {
        check_headers(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn endpoint_may_have_own_headers() {
        for name in ["Authorization", "X-Api-Key", "x-tenant", "traceparent"] {
            assert_eq!(check(name, "some value"), Ok(()), "{name}");
        }
    }

    #[test]
    fn service_and_connection_headers_are_refused() {
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
            assert_eq!(check(name, "x"), Err(HeaderError::Forbidden(name.to_owned())), "{name}");
        }
    }

    #[test]
    fn unsendable_header_is_refused_without_its_value() {
        for name in ["", "a b", "a:b", "a\r\nb", "\u{e4}"] {
            assert_eq!(check(name, "x"), Err(HeaderError::Name(name.to_owned())), "{name:?}");
        }
        for value in ["a\r\nhost: b", "a\nb", "\0"] {
            let error = check("x-key", value).expect_err("the value cannot be sent");
            assert_eq!(error, HeaderError::Value("x-key".to_owned()));
            assert!(!error.to_string().contains(value));
        }
        let twice = [("X-Key".to_owned(), "1".to_owned()), ("x-key".to_owned(), "2".to_owned())];
        assert_eq!(check_headers(&twice), Err(HeaderError::Twice("x-key".to_owned())));
    }
}
