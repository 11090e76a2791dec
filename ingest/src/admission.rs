//! Admission of a request before its handler: key, scope and rate come first, and the body is read after them.
//!
//! It does not look into bodies. All of it is one future of one handler: this is the path of every item.

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
use tidegate_web::{AnswerFor, Body, Problem, Rate, RequestId, Scheme, authorize, handle_request};

use crate::{Api, Shared, metrics};

/// A request whose caller may make it.
pub(crate) struct Admitted {
    pub(crate) org: OrgId,
    pub(crate) id: RequestId,
    pub(crate) request: Request,
}

/// The handler's route, behind the checks of its callers.
pub(crate) fn authorized_route<A, F>(
    api: &Shared,
    endpoint: &'static str,
    scope: Scope,
    method: MethodFilter,
    handler: impl Fn(Shared, Admitted) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter
where
    A: IntoResponse,
    F: Future<Output = Result<A, Problem>> + Send,
{
    let (api, answers) = (Arc::clone(api), Arc::new(metrics::Answers::of(endpoint)));
    on(method, move |request: Request| {
        let (api, answers, handler) = (Arc::clone(&api), Arc::clone(&answers), handler.clone());
        handle_request(request, move |request, id| async move {
            let began = Instant::now();
            let response = match admit(&api, scope, request, id).await {
                Ok((admitted, rate)) => {
                    let (org, headers) = (admitted.org.clone(), api.rates.headers(rate));
                    let mut response = handler(api, admitted).await.into_response();
                    response.headers_mut().extend(headers);
                    response.extensions_mut().insert(AnswerFor(org));
                    response
                }
                Err(problem) => problem.into_response(),
            };
            answers.count(response.status(), began.elapsed());
            response
        })
    })
}

/// A route that reads something public: without a key, and the same for everybody.
pub(crate) fn open_route<A: IntoResponse>(
    endpoint: &'static str,
    answer: impl Fn() -> A + Clone + Send + Sync + 'static,
) -> MethodRouter {
    let answers = Arc::new(metrics::Answers::of(endpoint));
    on(MethodFilter::GET, move |request: Request| {
        let (answers, answer) = (Arc::clone(&answers), answer.clone());
        handle_request(request, move |_, _| async move {
            let began = Instant::now();
            let response = answer().into_response();
            answers.count(response.status(), began.elapsed());
            response
        })
    })
}

async fn admit(
    api: &Api,
    scope: Scope,
    request: Request,
    id: RequestId,
) -> Result<(Admitted, Rate), Problem> {
    let caller = authorize(&api.deps.keys, request.headers(), Scheme::ApiKey, scope).await?;
    let rate = api.rates.admit(&caller.org, Instant::now())?;
    api.http.admit(&request, &caller.org)?;
    Ok((Admitted { org: caller.org, id, request }, rate))
}

/// A request whose caller is known and whose body is here.
pub(crate) struct Received {
    pub(crate) org: OrgId,
    pub(crate) request_id: RequestId,
    pub(crate) received_at: Millis,
    pub(crate) key: Option<IdempotencyKey>,
    body: Body,
}

impl Received {
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.body.bytes
    }
}

impl Api {
    /// Reads the request whole.
    pub(crate) async fn receive(&self, admitted: Admitted) -> Result<Received, Problem> {
        let Admitted { org, id: request_id, request } = admitted;
        let key = IdempotencyKey::of(request.headers())?;
        let body = self.http.read_body(request, &org).await?;
        Ok(Received { org, request_id, received_at: Millis::now(), key, body })
    }

    /// Runs work whose cost grows with the body: beside the other requests of this thread if it is long.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        if bytes <= self.settings.offload_bytes {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work).await.map_err(|_| {
            tracing::error!("parsing a request panicked");
            Problem::internal()
        })
    }

    pub(crate) fn unavailable(&self, detail: impl Into<String>) -> Problem {
        Problem::unavailable(detail, self.settings.retry_after())
    }
}

/// Client's name of an attempt, so that a repeated one is recognised.
#[derive(Debug)]
pub(crate) struct IdempotencyKey(HeaderValue);

const LONGEST_KEY: usize = 255;

impl IdempotencyKey {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let mut values = headers.get_all("idempotency-key").iter();
        let Some(value) = values.next() else { return Ok(None) };
        let text = value.as_bytes();
        let usable = (1..=LONGEST_KEY).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        if usable && values.next().is_none() {
            return Ok(Some(Self(value.clone())));
        }
        let detail =
            format!("`Idempotency-Key` is sent once and has 1 to {LONGEST_KEY} visible ASCII characters.");
        Err(vec![ValidationError::invalid(&Pointer::Root, "Invalid header", detail)].into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Parses a time of a query: `10s`, `500ms` or `1m`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    parse_duration(text, &["ms", "s", "m"]).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_idempotency_key_is_one_short_visible_text() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("idempotency-key", HeaderValue::from_str(value).unwrap());
            }
            IdempotencyKey::of(&headers)
        };
        assert!(of(&[]).unwrap().is_none());
        assert_eq!(of(&["a-1"]).unwrap().unwrap().as_bytes(), b"a-1");
        let long = "a".repeat(256);
        for bad in [&["", ""][..1], &["a b"], &["a", "a"], &[&long]] {
            assert_eq!(of(bad).unwrap_err().status, 400, "{bad:?}");
        }
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("10s"), Some(Duration::from_secs(10)));
        assert_eq!(time("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(time("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "10", "s", "-1s", "1.5s", "1h", "99999999999999999999s", "18446744073709551615m"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
