//! Asks a model for the scores of an input with one request, and returns the body of the answer. The caller
//! parses it.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderValue};
use tidegate_schemas::json::skip_byte_order_mark;

use crate::callback::NotSent;
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::headers::parse_headers;
use crate::outcome;
use crate::target::Target;

/// Request to a model. `Debug` shows neither URL, headers nor body.
pub struct ScoreRequest {
    pub url: String,
    /// Configured headers of the signal, valid under `check_headers`.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// Time for the whole call, including the body of the answer.
    pub timeout: Duration,
}

impl std::fmt::Debug for ScoreRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScoreRequest").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Call without a complete 2xx answer.
#[derive(Debug)]
pub struct ScoreFailure {
    pub failure: Failure,
    /// Pause that the model asks for.
    pub retry_after: Option<Duration>,
}

impl From<Failure> for ScoreFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, retry_after: None }
    }
}

/// Makes one call. Returns the body of a complete 2xx answer; any other result is a failure. `now` is in unix
/// seconds.
#[boxed]
pub async fn request_scores(
    client: &Client,
    request: ScoreRequest,
    now: u64,
) -> Result<Result<Bytes, ScoreFailure>, NotSent> {
    let target = Target::parse(&request.url)?;
    let mut headers = parse_headers(&request.headers)?;
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A configured `Accept` has precedence.
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
    let limits = client.limits(request.timeout, client.settings().score_response_bytes);
    let result =
        client.send(Request { method: Method::POST, target, headers, body: request.body, limits }).await;
    let response = match result {
        Ok(response) => response,
        Err(failure) => return Ok(Err(failure.into())),
    };
    let status = response.status();
    if !status.is_success() {
        let header_value = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = header_value.and_then(|value| outcome::retry_after(value, now));
        return Ok(Err(ScoreFailure {
            failure: Failure::HttpStatus { status: status.as_u16() },
            retry_after,
        }));
    }
    let (mut body, read_failure) = response.read_prefix().await;
    skip_byte_order_mark(&mut body);
    Ok(read_failure.map_or(Ok(body), |failure| Err(failure.into())))
}
