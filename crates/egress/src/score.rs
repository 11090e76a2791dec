//! Asks a model for the scores of an input: one request, and the body of its answer. The caller reads the answer.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderValue};
use tidegate_schemas::json::skip_byte_order_mark;

use crate::callback::NotSent;
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::headers::own_headers;
use crate::outcome;
use crate::target::Target;

/// One request to a model. `Debug` shows neither URL, headers nor body.
pub struct ScoreRequest {
    pub url: String,
    /// Headers configured on the signal, as `check_headers` accepts them.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// Time for the whole call, the answer's body included.
    pub timeout: Duration,
}

impl std::fmt::Debug for ScoreRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScoreRequest").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A call without a whole answer of status 2xx.
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

/// Asks once. The answer is whole and has a 2xx status; anything else is a failure. `now` is in seconds since 1970.
pub async fn ask(
    client: &Client,
    request: ScoreRequest,
    now: u64,
) -> Result<Result<Bytes, ScoreFailure>, NotSent> {
    let target = Target::parse(&request.url)?;
    let mut headers = own_headers(&request.headers)?;
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
    let limits = client.limits(request.timeout, client.settings().score_response_bytes);
    let sent =
        client.send(Request { method: Method::POST, target, headers, body: request.body, limits }).await;
    let response = match sent {
        Ok(response) => response,
        Err(failure) => return Ok(Err(failure.into())),
    };
    let status = response.status();
    if !status.is_success() {
        let asked = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = asked.and_then(|value| outcome::retry_after(value, now));
        return Ok(Err(ScoreFailure {
            failure: Failure::HttpStatus { status: status.as_u16() },
            retry_after,
        }));
    }
    let (mut body, lost) = response.read_prefix().await;
    skip_byte_order_mark(&mut body);
    Ok(lost.map_or(Ok(body), |failure| Err(failure.into())))
}
