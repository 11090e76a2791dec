//! Answers the requests of a connection: limits their heads, waits for room for their answers, and discards unread bodies.
//!
//! Many clients read the answer only after writing the whole body, so the remainder of a refused body is read, within limits of
//! bytes and time, and dropped.

use std::{
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
use futures::future::{BoxFuture, FutureExt as _, ready};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tidegate_schemas::validation_error::tag;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::{
    HttpServer, Problem,
    answers::{AnswerBudgetExceeded, AnswerDestination},
    connection::Connection,
    handle_request,
    networks::Network,
    streams::current_stream_end,
};

/// Service of a server's connections.
#[derive(Clone)]
pub(crate) struct RequestService {
    router: Router,
    server: HttpServer,
    requests_in_work: Arc<AtomicUsize>,
    connection: Connection,
    network: Option<Network>,
    stop: CancellationToken,
}

impl RequestService {
    pub(crate) fn new(router: Router, server: HttpServer, stop: CancellationToken) -> Self {
        let connection = Connection::default();
        Self { router, server, requests_in_work: Arc::default(), connection, network: None, stop }
    }

    /// Returns the service of one connection.
    pub(crate) fn for_connection(&self, connection: Connection, network: Network) -> Self {
        Self { connection, network: Some(network), ..self.clone() }
    }

    /// Number of requests in work.
    pub(crate) fn requests_in_work(&self) -> usize {
        self.requests_in_work.load(Ordering::Acquire)
    }
}

impl hyper::service::Service<hyper::Request<Incoming>> for RequestService {
    type Response = Response;
    type Error = AnswerBudgetExceeded;
    type Future = BoxFuture<'static, Result<Response, AnswerBudgetExceeded>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        self.server.count_request();
        let guard = RequestGuard::new(&self.requests_in_work, &self.connection);
        request.extensions_mut().insert(self.connection.clone());
        if let Some(network) = self.network {
            request.extensions_mut().insert(network);
        }
        let target = (request.method().clone(), request.uri().clone());
        let Self { router, server, connection, stop, requests_in_work, .. } = self.clone();
        async move {
            let mut guard = guard;
            let settings = server.settings();
            if !connection.has_answer_room(settings.connection_unsent_bytes) {
                // The client does not read its answers. A new answer would only wait behind them, so the request waits instead. It does
                // not count as in work meanwhile, so it does not delay a stop.
                drop(guard);
                connection.wait_for_room(settings.connection_unsent_bytes).await;
                guard = RequestGuard::new(&requests_in_work, &connection);
            }
            let _guard = guard;
            let (method, uri) = target;
            let destination = AnswerDestination { connection, stream: current_stream_end(), method, uri };
            if request.body().is_end_stream() {
                let answer = route_request(router, request.map(Body::new), settings.header_bytes).await;
                return server.lease_answer(answer, &destination);
            }
            let expects_continue = expects_continue(request.headers());
            let (parts, body) = request.into_parts();
            let body = RequestBody(Arc::new(Mutex::new((body, false))));
            let request = Request::from_parts(parts, Body::new(body.clone()));
            let answer = route_request(router, request, settings.header_bytes).await;
            // After a 408 the client is too slow for the remainder as well. A client that waits for 100 Continue sends none.
            if !expects_continue && answer.status() != StatusCode::REQUEST_TIMEOUT && !body.is_end_stream() {
                let discarded = timeout(
                    settings.body_read(),
                    body.discard(settings.discard_bytes, settings.discard_pause()),
                );
                // In the background: the answer must not wait for the remainder of the body.
                drop(tokio::spawn(async move { stop.run_until_cancelled(discarded).await }));
            }
            server.lease_answer(answer, &destination)
        }
        .boxed()
    }
}

/// Returns the router's answer, or a 431 if the head of the request is too long.
async fn route_request(mut router: Router, request: Request, max_head_bytes: usize) -> Response {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if headers.sum::<usize>() + target <= max_head_bytes {
        // A router is always ready, so `poll_ready` is not called.
        return router.call(request).await.unwrap_or_else(|never| match never {});
    }
    let too_long = Problem::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        tag::TOO_LARGE,
        "The head of the request is too long.",
        format!("Its target and headers may have {max_head_bytes} bytes in all."),
    );
    handle_request(request, |_, _| ready(too_long.into_response())).await
}

/// Counts a request as in work until dropped.
struct RequestGuard(Arc<AtomicUsize>, Connection);

impl RequestGuard {
    fn new(requests_in_work: &Arc<AtomicUsize>, connection: &Connection) -> Self {
        requests_in_work.fetch_add(1, Ordering::AcqRel);
        connection.begin_request();
        Self(Arc::clone(requests_in_work), connection.clone())
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.1.end_request();
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// True if the client waits for `100 Continue`. It does not send a refused body.
fn expects_continue(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// Body shared by its handler and the discarding of unread bytes. The flag is true after the last frame.
#[derive(Clone)]
struct RequestBody(Arc<Mutex<(Incoming, bool)>>);

impl RequestBody {
    async fn discard(mut self, max_bytes: usize, pause: Duration) {
        let mut remaining_bytes = max_bytes;
        // A pause ends the reading: the client may wait for the connection to close.
        while !self.is_end_stream()
            && let Ok(Some(Ok(frame))) = timeout(pause, self.frame()).await
        {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match remaining_bytes.checked_sub(bytes) {
                Some(bytes_after_frame) => remaining_bytes = bytes_after_frame,
                None => return,
            }
        }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let (body, is_finished) = &mut *self.0.lock();
        let frame = is_ready!(Pin::new(body).poll_frame(cx));
        *is_finished = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let (body, is_finished) = &*self.0.lock();
        *is_finished || body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().0.size_hint()
    }
}
