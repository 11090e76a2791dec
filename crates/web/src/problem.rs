//! Error answers: RFC 9457 problem details with an `errors` array, one entry an error.
//!
//! A handler answers with a [`Problem`]; [`handle_request`] writes it out, because only there the request's
//! id and path are known.

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

const MOST_ERRORS: usize = 100;

/// An answer that is not what was asked for.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub title: &'static str,
    pub errors: Vec<ValidationError>,
    /// Headers that the answer carries beside its body.
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

    /// The errors of a request. The highest of their statuses is the answer's: 413 goes over 400.
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

    /// The same words for every kind of missing or wrong key.
    pub fn unauthenticated(challenge: &'static str) -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            tag::AUTHENTICATION,
            "A valid API key is required.",
            "The key is missing, malformed, unknown or expired.",
        )
        .with(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, tag::AUTHORIZATION, "The key may not do this.", detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, tag::NOT_FOUND, "There is nothing here.", detail)
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, tag::CONFLICT, "The state has changed.", detail)
    }

    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, tag::TOO_LARGE, "The request is too large.", detail)
    }

    /// The service is full, or a part of it cannot be reached: worth another try.
    pub fn unavailable(detail: impl Into<String>, again_after: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, tag::INTERNAL, "The service cannot take this now.", detail)
            .retry_after(again_after)
    }

    /// A defect of ours. What it was goes to the log, not to the caller.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            tag::INTERNAL,
            "Something went wrong on our side.",
            "The log has the details under the request id.",
        )
    }

    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets `Retry-After` in whole seconds, at least one.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        self.with(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait).max(1)))
    }
}

/// Rounded up: a client that waits so long is not too early.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
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
struct Details<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'a str,
    status: u16,
    detail: String,
    instance: &'a str,
    errors: Vec<Entry<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(flatten)]
    error: &'a ValidationError,
    request_id: &'a str,
}

/// Wraps every request: gives it its id and its span, answers for a handler that panics, writes out problems, and turns
/// bare error answers of the router (unknown route, wrong method) into the same envelope.
///
/// A router with many requests calls it in its handlers: each layer of axum costs a request several allocations.
pub async fn handle_request<F: Future<Output = Response>>(
    request: Request,
    handle: impl FnOnce(Request, RequestId) -> F,
) -> Response {
    let (id, uri) = (RequestId::of(&request), request.uri().clone());
    let span = span(&request, &id);
    let handled = AssertUnwindSafe(async { handle(request, id.clone()).await });
    let handled = handled.catch_unwind().map(|handled| {
        handled.unwrap_or_else(|_| {
            // The hook of the process has logged where it was.
            tracing::error!("a handler panicked");
            Problem::internal().into_response()
        })
    });
    let mut response = handled.instrument(span).await;
    let problem = response.extensions_mut().remove::<Problem>().or_else(|| bare_problem(&response));
    if let Some(problem) = problem {
        response = write_problem(response, problem, uri.path(), &id);
    }
    if let Some(value) = id.header() {
        response.headers_mut().insert(request_id::HEADER, value);
    }
    response
}

/// Span of a request. The route is its template: paths hold ids of items, queries and bodies whatever a platform sends.
fn span(request: &Request, id: &RequestId) -> Span {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    tracing::info_span!("request", request_id = id.as_str(), method = %request.method(), route, org = Empty)
}

/// Adds the org to the span of the current request, once it is known.
pub fn record_org(org: &OrgId) {
    Span::current().record("org", org.as_str());
}

/// Puts a problem in the place of an answer that has its envelope already.
pub(crate) fn replace(answer: Response, problem: Problem, path: &str) -> Response {
    let id = RequestId::of_headers(answer.headers());
    let (parts, _) = answer.into_parts();
    let mut response = problem.status.into_response();
    *response.extensions_mut() = parts.extensions;
    response = write_problem(response, problem, path, &id);
    if let Some(value) = id.header() {
        response.headers_mut().insert(request_id::HEADER, value);
    }
    response
}

fn write_problem(response: Response, problem: Problem, path: &str, id: &RequestId) -> Response {
    let body = render(&problem, path, id.as_str());
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    parts.headers.extend(problem.headers);
    Response::from_parts(parts, Body::from(body))
}

/// The problem that an answer of the router itself stands for. An answer with a content type has its body already.
fn bare_problem(response: &Response) -> Option<Problem> {
    if response.headers().contains_key(header::CONTENT_TYPE) {
        return None;
    }
    match response.status() {
        StatusCode::NOT_FOUND => Some(Problem::not_found("No such route.")),
        StatusCode::METHOD_NOT_ALLOWED => Some(Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            tag::INVALID_INPUT,
            "The route does not take this method.",
            "The `allow` header lists the methods that it takes.",
        )),
        _ => None,
    }
}

fn render(problem: &Problem, path: &str, request_id: &str) -> Vec<u8> {
    let shown = &problem.errors[..problem.errors.len().min(MOST_ERRORS)];
    let detail = match (shown, problem.errors.get(MOST_ERRORS..)) {
        ([only], _) => only.detail.clone(),
        ([], _) => String::new(),
        // The last one counts those that were not even kept.
        ([first, ..], Some([.., last])) => format!("{first} {}", last.detail),
        ([first, rest @ ..], _) => format!("{first}; and {} more", rest.len()),
    };
    let details = Details {
        kind: "about:blank",
        title: problem.title,
        status: problem.status.as_u16(),
        detail,
        instance: path,
        errors: shown.iter().map(|error| Entry { error, request_id }).collect(),
    };
    serde_json::to_vec(&details).expect("problem details have string keys only")
}
