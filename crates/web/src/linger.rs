//! Takes what a client still sends of a body that nobody read, beside the answer: many clients read nothing before they
//! have written everything, and would meet a closed connection instead of the answer.
//!
//! It keeps none of it, and takes no more than is allowed, for no longer. Why a request was refused is not its to know,
//! unless its head is too long.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready as is_ready},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::future::{BoxFuture, Either, FutureExt as _, ready};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tidegate_schemas::validation_error::tag;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::{Problem, Settings, handle_request, unsent::Exchange};

/// A router that lingers, until the server stops.
#[derive(Clone)]
pub(crate) struct Lingering {
    router: Router,
    bounds: Bounds,
    under_way: Arc<AtomicUsize>,
    within: Option<Exchange>,
    stop: CancellationToken,
}

#[derive(Clone, Copy)]
struct Bounds {
    head: usize,
    bytes: usize,
    pause: Duration,
    all: Duration,
}

impl Lingering {
    pub(crate) fn new(router: Router, settings: &Settings, stop: CancellationToken) -> Self {
        let bounds = Bounds {
            head: settings.header_bytes,
            bytes: settings.discard_bytes,
            pause: settings.discard_pause(),
            all: settings.body_read(),
        };
        Self { router, bounds, under_way: Arc::default(), within: None, stop }
    }

    pub(crate) fn within(self, exchange: Exchange) -> Self {
        Self { within: Some(exchange), ..self }
    }

    /// Requests that are not answered yet.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }
}

impl hyper::service::Service<hyper::Request<Incoming>> for Lingering {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        if let Some(exchange) = &self.within {
            exchange.asks();
        }
        let under_way = UnderWay::new(&self.under_way);
        // A router is always ready.
        let (mut router, bounds) = (self.router.clone(), self.bounds);
        if request.body().is_end_stream() {
            let answer = answer(&mut router, request.map(Body::new), bounds.head);
            return async move {
                let _under_way = under_way;
                answer.await
            }
            .boxed();
        }
        let (waits, stop) = (asks_first(request.headers()), self.stop.clone());
        let (parts, body) = request.into_parts();
        let rest = Rest(Arc::new(Mutex::new((body, false))));
        let request = Request::from_parts(parts, Body::new(rest.clone()));
        let answer = answer(&mut router, request, bounds.head);
        async move {
            let _under_way = under_way;
            let answer = answer.await?;
            if !waits && answer.status() != StatusCode::REQUEST_TIMEOUT && !rest.is_end_stream() {
                let discarded = timeout(bounds.all, rest.discard(bounds));
                drop(tokio::spawn(async move { stop.run_until_cancelled(discarded).await }));
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// Returns the router's answer, unless the request's head is too long.
fn answer(
    router: &mut Router,
    request: Request,
    head: usize,
) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if headers.sum::<usize>() + target <= head {
        return Either::Right(router.call(request));
    }
    let too_long = Problem::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        tag::TOO_LARGE,
        "The request's head is too long.",
        format!("Its target and headers may have {head} bytes in all."),
    );
    Either::Left(handle_request(request, |_, _| ready(too_long.into_response())).map(Ok))
}

/// Counts as long as it is there.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(all))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// True if the client waits for `100 Continue`: it sends no body that is refused.
fn asks_first(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// A body that is read by whoever answers and then, if that was not to its end, here; with whether it is at its end.
#[derive(Clone)]
struct Rest(Arc<Mutex<(Incoming, bool)>>);

impl Rest {
    async fn discard(mut self, bounds: Bounds) {
        let mut left = bounds.bytes;
        while !self.is_end_stream()
            && let Ok(Some(Ok(frame))) = timeout(bounds.pause, self.frame()).await
        {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }
}

impl HttpBody for Rest {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let (body, is_over) = &mut *self.0.lock();
        let frame = is_ready!(Pin::new(body).poll_frame(cx));
        *is_over = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let (body, is_over) = &*self.0.lock();
        *is_over || body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().0.size_hint()
    }
}
