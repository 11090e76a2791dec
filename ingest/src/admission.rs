//! Admits a request before its handler: checks key, scope and rate, then reads the body.
//!
//! Admission and handler are one future without middleware layers, because this is the path of every item.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue},
    response::IntoResponse,
    routing::{MethodFilter, MethodRouter, on},
};
use bytes::Bytes;
use tidegate_catalog::Scope;
use tidegate_schemas::{
    duration::parse_duration,
    ids::{Millis, OrgId},
    validation_error::{Pointer, ValidationError},
};
use tidegate_web::{AnswerOrg, Body, Problem, RateDecision, RequestId, Scheme, authorize, handle_request};

use crate::{Api, Shared, metrics};

/// Request of an authorized caller within its rate, before the body is read.
pub(crate) struct AdmittedRequest {
    pub(crate) org: OrgId,
    pub(crate) id: RequestId,
    pub(crate) request: Request,
}

/// Builds a route that admits the request before it calls the handler.
pub(crate) fn authorized_route<A, F>(
    api: &Shared,
    endpoint: &'static str,
    scope: Scope,
    method: MethodFilter,
    handler: impl Fn(Shared, AdmittedRequest) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter
where
    A: IntoResponse,
    F: Future<Output = Result<A, Problem>> + Send,
{
    let (api, response_metrics) =
        (Arc::clone(api), Arc::new(metrics::ResponseMetrics::for_endpoint(endpoint)));
    on(method, move |request: Request| {
        let (api, response_metrics, handler) =
            (Arc::clone(&api), Arc::clone(&response_metrics), handler.clone());
        handle_request(request, move |request, id| async move {
            let started_at = Instant::now();
            let response = match admit(&api, scope, request, id).await {
                Ok((admitted_request, rate)) => {
                    let (org, headers) = (admitted_request.org.clone(), api.rates.headers(rate));
                    let mut response = handler(api, admitted_request).await.into_response();
                    response.headers_mut().extend(headers);
                    // The server counts unsent bytes of responses per organisation.
                    response.extensions_mut().insert(AnswerOrg(org));
                    response
                }
                Err(problem) => problem.into_response(),
            };
            response_metrics.count(response.status(), started_at.elapsed());
            response
        })
    })
}

/// Builds a route of public content. It needs no key.
pub(crate) fn open_route<A: IntoResponse>(
    endpoint: &'static str,
    answer: impl Fn() -> A + Clone + Send + Sync + 'static,
) -> MethodRouter {
    let response_metrics = Arc::new(metrics::ResponseMetrics::for_endpoint(endpoint));
    on(MethodFilter::GET, move |request: Request| {
        let (response_metrics, answer) = (Arc::clone(&response_metrics), answer.clone());
        handle_request(request, move |_, _| async move {
            let started_at = Instant::now();
            let response = answer().into_response();
            response_metrics.count(response.status(), started_at.elapsed());
            response
        })
    })
}

async fn admit(
    api: &Api,
    scope: Scope,
    request: Request,
    id: RequestId,
) -> Result<(AdmittedRequest, RateDecision), Problem> {
    let caller = authorize(&api.deps.keys, request.headers(), Scheme::ApiKey, scope).await?;
    // The rate is counted per org, so the key must be checked first; the body is not read yet.
    let rate = api.rates.admit(&caller.org, Instant::now())?;
    api.http.admit(&request, &caller.org)?;
    Ok((AdmittedRequest { org: caller.org, id, request }, rate))
}

/// Admitted request with its body.
pub(crate) struct ReceivedRequest {
    pub(crate) org: OrgId,
    pub(crate) request_id: RequestId,
    pub(crate) received_at: Millis,
    pub(crate) key: Option<IdempotencyKey>,
    body: Body,
}

impl ReceivedRequest {
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.body.bytes
    }
}

impl Api {
    /// Reads the idempotency key and the body of a request.
    pub(crate) async fn receive_request(
        &self,
        admitted: AdmittedRequest,
    ) -> Result<ReceivedRequest, Problem> {
        let AdmittedRequest { org, id: request_id, request } = admitted;
        let key = IdempotencyKey::from_headers(request.headers())?;
        let body = self.http.read_body(request, &org).await?;
        Ok(ReceivedRequest { org, request_id, received_at: Millis::now(), key, body })
    }

    /// Runs a task whose cost grows with the body. Above `offload_bytes` it runs on a blocking thread, so it does not delay
    /// other requests of this thread.
    pub(crate) async fn offload_if_large<T: Send + 'static>(
        &self,
        bytes: usize,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        if bytes <= self.settings.offload_bytes {
            return Ok(task());
        }
        tokio::task::spawn_blocking(task).await.map_err(|_| {
            tracing::error!("the validation of a request panicked");
            Problem::internal()
        })
    }

    pub(crate) fn unavailable_problem(&self, detail: impl Into<String>) -> Problem {
        Problem::unavailable(detail, self.settings.retry_after())
    }
}

/// Value of `Idempotency-Key`: the client's name of a request. A repeated request has the same key.
#[derive(Debug)]
pub(crate) struct IdempotencyKey(HeaderValue);

const MAX_KEY_BYTES: usize = 255;

impl IdempotencyKey {
    fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let mut values = headers.get_all("idempotency-key").iter();
        let Some(value) = values.next() else { return Ok(None) };
        let text = value.as_bytes();
        let is_usable = (1..=MAX_KEY_BYTES).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        // Two headers are ambiguous, so the request is refused.
        if is_usable && values.next().is_none() {
            return Ok(Some(Self(value.clone())));
        }
        let detail = format!(
            "`Idempotency-Key` must be sent once and have 1 to {MAX_KEY_BYTES} visible ASCII characters."
        );
        Err(vec![ValidationError::invalid(&Pointer::Root, "Invalid header", detail)].into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Parses a duration of a query: `10s`, `500ms` or `1m`.
pub(crate) fn parse_query_duration(text: &str) -> Option<Duration> {
    parse_duration(text, &["ms", "s", "m"]).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn idempotency_key_is_one_short_visible_ascii_text() {
        let parse = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("idempotency-key", HeaderValue::from_str(value).unwrap());
            }
            IdempotencyKey::from_headers(&headers)
        };
        assert!(parse(&[]).unwrap().is_none());
        assert_eq!(parse(&["a-1"]).unwrap().unwrap().as_bytes(), b"a-1");
        let long = "a".repeat(256);
        for bad in [&["", ""][..1], &["a b"], &["a", "a"], &[&long]] {
            assert_eq!(parse(bad).unwrap_err().status, 400, "{bad:?}");
        }
    }

    #[test]
    fn query_duration_needs_a_unit() {
        assert_eq!(parse_query_duration("10s"), Some(Duration::from_secs(10)));
        assert_eq!(parse_query_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_query_duration("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "10", "s", "-1s", "1.5s", "1h", "99999999999999999999s", "18446744073709551615m"] {
            assert_eq!(parse_query_duration(bad), None, "{bad}");
        }
    }
}
