//! Takes what a client still sends of a body that nobody read, beside the answer: many clients read nothing before they
//! have written everything, and would meet a closed connection instead of the answer.
//!
//! It keeps none of it, and takes no more than is allowed, for no longer. Why a request was refused is not its to know.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, StatusCode, header},
    response::Response,
    routing::future::RouteFuture,
};
use bytes::Bytes;
use futures::future::{BoxFuture, Either, FutureExt as _};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::Service as _;

use crate::Settings;

/// What is shorter is in the system's buffers when the answer is there.
const SHORT: u64 = 16 << 10;

/// A router that lingers.
#[derive(Clone)]
pub(crate) struct Lingering {
    router: Router,
    bounds: Bounds,
}

#[derive(Clone, Copy)]
struct Bounds {
    bytes: usize,
    pause: Duration,
    all: Duration,
}

impl Lingering {
    pub(crate) fn new(router: Router, settings: &Settings) -> Self {
        let bounds = Bounds {
            bytes: settings.discard_bytes,
            pause: settings.discard_pause(),
            all: settings.body_read(),
        };
        Self { router, bounds }
    }
}

impl hyper::service::Service<hyper::Request<Incoming>> for Lingering {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<RouteFuture<Infallible>, BoxFuture<'static, Result<Response, Infallible>>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        // A router is always ready.
        let (mut router, bounds) = (self.router.clone(), self.bounds);
        if request.body().size_hint().exact().is_some_and(|length| length <= SHORT) {
            return Either::Left(router.call(request));
        }
        let waits = asks_first(request.headers());
        let (parts, body) = request.into_parts();
        let rest = Rest(Arc::new(Mutex::new((body, false))));
        let answer = router.call(Request::from_parts(parts, Body::new(rest.clone())));
        let lingering = async move {
            let answer = answer.await?;
            if !waits && answer.status() != StatusCode::REQUEST_TIMEOUT && !rest.is_end_stream() {
                drop(tokio::spawn(timeout(bounds.all, rest.discard(bounds))));
            }
            Ok(answer)
        };
        Either::Right(lingering.boxed())
    }
}

/// Who asks before sending sends nothing that is refused.
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
        let frame = ready!(Pin::new(body).poll_frame(cx));
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
