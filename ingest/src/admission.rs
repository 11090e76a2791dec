//! What happens to a request before its handler: key, scope and rate come first, and the body is read after them.
//!
//! It does not look into bodies.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::MethodRouter,
};
use bytes::Bytes;
use tidegate_catalog::{Caller, Scope};
use tidegate_schemas::{
    ids::{Millis, OrgId},
    wire::{Fault, Pointer},
};
use tidegate_web::{Body, Problem, RequestId, Scheme, authorize};

use crate::{Api, Shared, metrics};

/// The route behind the checks of its callers.
pub(crate) fn guarded(
    route: MethodRouter<Shared>,
    api: Shared,
    endpoint: &'static str,
    scope: Scope,
) -> MethodRouter<Shared> {
    let answers = Arc::new(metrics::Answers::of(endpoint));
    route.route_layer(from_fn(move |request: Request, next: Next| {
        let (api, answers) = (Arc::clone(&api), Arc::clone(&answers));
        async move {
            let began = Instant::now();
            let response = admit(&api, scope, request, next).await;
            answers.count(response.status(), began.elapsed());
            response
        }
    }))
}

async fn admit(api: &Api, scope: Scope, mut request: Request, next: Next) -> Response {
    let caller = match authorize(&api.deps.keys, request.headers(), Scheme::ApiKey, scope).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let rate = match api.rates.admit(&caller.org, Instant::now()) {
        Ok(rate) => rate,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller);
    let mut response = next.run(request).await;
    response.headers_mut().extend(api.rates.told(rate));
    response
}

/// A request whose caller is known and whose body is here.
pub(crate) struct Received {
    pub(crate) org: OrgId,
    pub(crate) request_id: String,
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
    pub(crate) async fn receive(&self, request: Request) -> Result<Received, Problem> {
        let org = caller(&request)?.org.clone();
        let request_id = request_id(&request);
        let key = IdempotencyKey::of(request.headers())?;
        let body = tidegate_web::read(request, &self.http, &self.in_flight).await?;
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

    pub(crate) fn unavailable(&self, detail: &'static str) -> Problem {
        Problem::unavailable(detail, self.settings.retry_after())
    }
}

/// Whom the admission let in.
pub(crate) fn caller(request: &Request) -> Result<&Caller, Problem> {
    request.extensions().get().ok_or_else(|| {
        tracing::error!("a route has no admission");
        Problem::internal()
    })
}

fn request_id(request: &Request) -> String {
    request.extensions().get::<RequestId>().map(|id| id.as_str().to_owned()).unwrap_or_default()
}

/// What a client calls its attempt, so that a second one is known as the same.
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
        Err(vec![Fault::invalid(&Pointer::Root, "Invalid header", detail)].into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A time as queries write it: `10s`, `500ms` or `1m`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
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
