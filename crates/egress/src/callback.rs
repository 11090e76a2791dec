//! Sends one signed callback and returns its outcome. The caller schedules and records attempts.

use std::net::IpAddr;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use tidegate_schemas::ids::EventId;
use tokio::time::Instant;

use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::headers::{HeaderError, parse_headers};
use crate::outcome::{self, Outcome};
use crate::signature::{self, Secret};
use crate::target::{Target, UrlError};

const SERVICE_EVENT_TYPE: HeaderName = HeaderName::from_static("service-event-type");
const SERVICE_ATTEMPT: HeaderName = HeaderName::from_static("service-attempt");

/// Callback to send. `Debug` shows neither URL, headers, body nor secrets.
pub struct CallbackRequest {
    pub url: String,
    /// Equal on every attempt, so that receivers recognise repetitions.
    pub event_id: EventId,
    pub event_type: String,
    /// Counts from 1.
    pub attempt_no: u32,
    /// Byte-identical on every attempt.
    pub body: Bytes,
    /// Configured headers of the endpoint, valid under [`check_headers`](crate::headers::check_headers).
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

/// Result of an attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub outcome: Outcome,
    pub http_status: Option<u16>,
    /// Failure of the attempt. A delivered callback can have one too, if the end of the response was lost.
    pub error: Option<Failure>,
    pub duration: Duration,
    /// Address of the peer, if it responded.
    pub remote_ip: Option<IpAddr>,
    /// Beginning of the response body, visible to the org's administrators only.
    pub response_head: Bytes,
    /// Pause that the receiver asks for, unbounded.
    pub retry_after: Option<Duration>,
}

/// Reason for not sending a request. Its cause is our configuration: it is no attempt, and does not count
/// against the receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    #[error("the endpoint has no signing secret, and unsigned requests are not sent")]
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

/// Makes one attempt at `now` (unix seconds), within the total time of the settings.
#[boxed]
pub async fn send(client: &Client, request: &CallbackRequest, now: u64) -> Result<Attempt, NotSent> {
    // A receiver could not tell an unsigned callback from a forged one.
    if request.secrets.is_empty() {
        return Err(NotSent::NoSecret);
    }
    let target = Target::parse(&request.url)?;
    let headers = build_headers(request, now)?;
    let settings = client.settings();
    let started_at = Instant::now();
    let result = client
        .send(Request {
            method: Method::POST,
            target,
            headers,
            body: request.body.clone(),
            limits: client.limits(settings.total_timeout(), settings.response_read_bytes),
        })
        .await;
    let response = match result {
        Ok(response) => response,
        Err(failure) => {
            return Ok(Attempt {
                outcome: Outcome::from_failure(&failure),
                http_status: None,
                error: Some(failure),
                duration: started_at.elapsed(),
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
    let (prefix, read_failure) = response.read_prefix().await;
    let error = match outcome {
        // A response beyond the read limit is delivered all the same: its status is known.
        Outcome::Delivered => read_failure.filter(|failure| !matches!(failure, Failure::TooLarge { .. })),
        Outcome::Retry { .. } => Some(Failure::HttpStatus { status }),
    };
    Ok(Attempt {
        outcome,
        http_status: Some(status),
        error,
        duration: started_at.elapsed(),
        remote_ip,
        response_head: Bytes::copy_from_slice(&prefix[..prefix.len().min(settings.response_kept_bytes)]),
        retry_after,
    })
}

fn build_headers(request: &CallbackRequest, now: u64) -> Result<HeaderMap, HeaderError> {
    let mut headers = parse_headers(&request.headers)?;
    let id = request.event_id.to_string();
    let signatures = signature::sign(&request.secrets, &id, now, &request.body);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in [
        (HeaderName::from_static(signature::SERVICE_SIGNATURE), signatures.service),
        (HeaderName::from_static(signature::WEBHOOK_ID), id),
        (HeaderName::from_static(signature::WEBHOOK_TIMESTAMP), now.to_string()),
        (HeaderName::from_static(signature::WEBHOOK_SIGNATURE), signatures.webhook),
        (SERVICE_EVENT_TYPE, request.event_type.clone()),
        (SERVICE_ATTEMPT, request.attempt_no.to_string()),
    ] {
        let value = HeaderValue::try_from(value).map_err(|_| HeaderError::Value(name.to_string()))?;
        headers.insert(name, value);
    }
    Ok(headers)
}
