//! Error answers: RFC 9457 problem details with an `errors` array.
//!
//! A handler returns a [`Problem`]. [`handle_request`] serializes it, because only there the id and path of the request are
//! known.

use std::{panic::AssertUnwindSafe, time::Duration};

use axum::{
    body::Body,
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use serde::Serialize;
use tidegate_schemas::{
    ids::OrgId,
    validation_error::{ValidationError, tag},
};
use tracing::{Instrument as _, Span, field::Empty};

use crate::request_id::{self, RequestId};

const MAX_LISTED_ERRORS: usize = 100;

/// Error answer of a request.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub title: &'static str,
    pub errors: Vec<ValidationError>,
    /// Additional headers of the answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub fn new(
        status: StatusCode,
        tag: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        let error = ValidationError {
            status: status.as_u16(),
            pointer: None,
            tags: vec![tag],
            title,
            detail: detail.into(),
        };
        Self { status, title, errors: vec![error], headers: Vec::new() }
    }

    /// Problem of several errors. Its status is the highest of theirs, so 413 precedes 400.
    pub fn of_errors(errors: Vec<ValidationError>) -> Self {
        let status = errors.iter().map(|error| error.status).max().unwrap_or(400);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let title = if status == StatusCode::PAYLOAD_TOO_LARGE {
            "The request is too large."
        } else {
            "The request is not valid."
        };
        Self { status, title, errors, headers: Vec::new() }
    }

    /// Same wording for all missing or invalid keys, so that it does not reveal which keys exist.
    pub fn unauthenticated(challenge: &'static str) -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            tag::AUTHENTICATION,
            "A valid API key is required.",
            "The key is missing, malformed, unknown or expired.",
        )
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, tag::AUTHORIZATION, "The key may not do this.", detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, tag::NOT_FOUND, "The resource was not found.", detail)
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, tag::CONFLICT, "The state has changed.", detail)
    }

    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, tag::TOO_LARGE, "The request is too large.", detail)
    }

    /// The service is full, or a part of it cannot be reached. Clients should retry.
    pub fn unavailable(detail: impl Into<String>, retry_after: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, tag::INTERNAL, "The service cannot take this now.", detail)
            .retry_after(retry_after)
    }

    /// Defect of the service. Details are only logged.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            tag::INTERNAL,
            "The service failed to handle the request.",
            "The log has the details under the request id.",
        )
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets `Retry-After` in whole seconds, at least one.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        self.with_header(header::RETRY_AFTER, HeaderValue::from(round_up_seconds(wait).max(1)))
    }
}

/// Rounds up, so that a client that waits this time is not too early.
pub(crate) fn round_up_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

impl From<Vec<ValidationError>> for Problem {
    fn from(errors: Vec<ValidationError>) -> Self {
        Self::of_errors(errors)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(Serialize)]
struct ProblemDetails<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'a str,
    status: u16,
    detail: String,
    instance: &'a str,
    errors: Vec<ErrorEntry<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorEntry<'a> {
    #[serde(flatten)]
    error: &'a ValidationError,
    request_id: &'a str,
}

/// Wraps every request: assigns its id and span, answers if its handler panics, serializes problems, and replaces bare error
/// answers of the router (unknown route, unsupported method) by the same envelope.
///
/// A router with many requests calls this in its handlers, because each axum layer costs several allocations per request.
pub async fn handle_request<F: Future<Output = Response>>(
    request: Request,
    handle: impl FnOnce(Request, RequestId) -> F,
) -> Response {
    let (id, uri) = (RequestId::from_request(&request), request.uri().clone());
    let span = request_span(&request, &id);
    // A panic must not close the connection: other requests of HTTP/2 share it.
    let handled = AssertUnwindSafe(async { handle(request, id.clone()).await });
    let handled = handled.catch_unwind().map(|handled| {
        handled.unwrap_or_else(|_| {
            // The panic hook of the process has logged the location.
            tracing::error!("a handler panicked");
            Problem::internal().into_response()
        })
    });
    let mut response = handled.instrument(span).await;
    let problem = response.extensions_mut().remove::<Problem>().or_else(|| bare_problem(&response));
    if let Some(problem) = problem {
        response = write_problem(response, problem, uri.path(), &id);
    }
    if let Some(value) = id.to_header_value() {
        response.headers_mut().insert(request_id::REQUEST_ID_HEADER, value);
    }
    response
}

/// Span of a request. It contains the route template instead of the path, because paths contain item ids, and queries and
/// bodies contain platform data.
fn request_span(request: &Request, id: &RequestId) -> Span {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    tracing::info_span!("request", request_id = id.as_str(), method = %request.method(), route, org = Empty)
}

/// Adds the authenticated org to the span of the current request.
pub fn record_org(org: &OrgId) {
    Span::current().record("org", org.as_str());
}

/// Replaces an answer that already has its envelope by a problem.
pub(crate) fn replace_with_problem(answer: Response, problem: Problem, path: &str) -> Response {
    let id = RequestId::from_headers(answer.headers());
    let (parts, _) = answer.into_parts();
    let mut response = problem.status.into_response();
    // The extensions name the org of the answer, which its bytes count for.
    *response.extensions_mut() = parts.extensions;
    response = write_problem(response, problem, path, &id);
    if let Some(value) = id.to_header_value() {
        response.headers_mut().insert(request_id::REQUEST_ID_HEADER, value);
    }
    response
}

fn write_problem(response: Response, problem: Problem, path: &str, id: &RequestId) -> Response {
    let body = serialize_problem(&problem, path, id.as_str());
    let (mut parts, _) = response.into_parts();
    // The length belongs to the replaced body.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    parts.headers.extend(problem.headers);
    Response::from_parts(parts, Body::from(body))
}

/// Returns the problem for a bare answer of the router itself. An answer with a content type has its own body.
fn bare_problem(response: &Response) -> Option<Problem> {
    if response.headers().contains_key(header::CONTENT_TYPE) {
        return None;
    }
    match response.status() {
        StatusCode::NOT_FOUND => Some(Problem::not_found("No such route.")),
        StatusCode::METHOD_NOT_ALLOWED => Some(Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            tag::INVALID_INPUT,
            "The route does not support this method.",
            "The `allow` header lists the supported methods.",
        )),
        _ => None,
    }
}

fn serialize_problem(problem: &Problem, path: &str, request_id: &str) -> Vec<u8> {
    let listed_errors = &problem.errors[..problem.errors.len().min(MAX_LISTED_ERRORS)];
    let detail = match (listed_errors, problem.errors.get(MAX_LISTED_ERRORS..)) {
        ([error], _) => error.detail.clone(),
        ([], _) => String::new(),
        // Beyond the limit, the last error is a summary that counts the omitted ones.
        ([first, ..], Some([.., summary])) => format!("{first} {}", summary.detail),
        ([first, others @ ..], _) => format!("{first}; and {} more", others.len()),
    };
    let details = ProblemDetails {
        kind: "about:blank",
        title: problem.title,
        status: problem.status.as_u16(),
        detail,
        instance: path,
        errors: listed_errors.iter().map(|error| ErrorEntry { error, request_id }).collect(),
    };
    serde_json::to_vec(&details).expect("problem details have string keys only")
}
