//! Answers the requests of a connection: bounds their heads, waits for room for their answers, and takes the rest of a
//! body that nobody read, because many clients read nothing before they have written everything.
//!
//! It keeps nothing of such a rest, and reads no more and no longer than the settings allow.

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
    answers::{Destination, NoRoom},
    connection::Connection,
    handle_request,
    networks::Network,
    streams::stream_end,
};

/// Service of the connections of a server.
#[derive(Clone)]
pub(crate) struct RequestService {
    router: Router,
    server: HttpServer,
    unanswered: Arc<AtomicUsize>,
    connection: Connection,
    network: Option<Network>,
    stop: CancellationToken,
}

impl RequestService {
    pub(crate) fn new(router: Router, server: HttpServer, stop: CancellationToken) -> Self {
        let connection = Connection::default();
        Self { router, server, unanswered: Arc::default(), connection, network: None, stop }
    }

    /// The service of one connection.
    pub(crate) fn on(&self, connection: Connection, network: Network) -> Self {
        Self { connection, network: Some(network), ..self.clone() }
    }

    /// Number of requests that are in work.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::Acquire)
    }
}

impl hyper::service::Service<hyper::Request<Incoming>> for RequestService {
    type Response = Response;
    type Error = NoRoom;
    type Future = BoxFuture<'static, Result<Response, NoRoom>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        self.server.count_request();
        let unanswered = Unanswered::new(&self.unanswered, &self.connection);
        request.extensions_mut().insert(self.connection.clone());
        if let Some(network) = self.network {
            request.extensions_mut().insert(network);
        }
        let to = (request.method().clone(), request.uri().clone());
        let Self { router, server, connection, stop, unanswered: all, .. } = self.clone();
        async move {
            let mut unanswered = unanswered;
            let settings = server.settings();
            if !connection.has_room(settings.connection_unsent_bytes) {
                // Other answers of this connection are not taken: nothing is made that would wait behind them, and a server
                // that stops has nothing in work.
                drop(unanswered);
                connection.wait_for_room(settings.connection_unsent_bytes).await;
                unanswered = Unanswered::new(&all, &connection);
            }
            let _unanswered = unanswered;
            let (method, uri) = to;
            let to = Destination { connection, stream: stream_end(), method, uri };
            if request.body().is_end_stream() {
                let answer = answer(router, request.map(Body::new), settings.header_bytes).await;
                return server.hold_answer(answer, &to);
            }
            let waits = asks_first(request.headers());
            let (parts, body) = request.into_parts();
            let body = RequestBody(Arc::new(Mutex::new((body, false))));
            let request = Request::from_parts(parts, Body::new(body.clone()));
            let answer = answer(router, request, settings.header_bytes).await;
            if !waits && answer.status() != StatusCode::REQUEST_TIMEOUT && !body.is_end_stream() {
                let discarded = timeout(
                    settings.body_read(),
                    body.discard(settings.discard_bytes, settings.discard_pause()),
                );
                drop(tokio::spawn(async move { stop.run_until_cancelled(discarded).await }));
            }
            server.hold_answer(answer, &to)
        }
        .boxed()
    }
}

/// Returns the router's answer, unless the request's head is too long.
async fn answer(mut router: Router, request: Request, head: usize) -> Response {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if headers.sum::<usize>() + target <= head {
        // A router is always ready.
        return router.call(request).await.unwrap_or_else(|never| match never {});
    }
    let too_long = Problem::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        tag::TOO_LARGE,
        "The request's head is too long.",
        format!("Its target and headers may have {head} bytes in all."),
    );
    handle_request(request, |_, _| ready(too_long.into_response())).await
}

/// Counts a request as in work until it is dropped.
struct Unanswered(Arc<AtomicUsize>, Connection);

impl Unanswered {
    fn new(all: &Arc<AtomicUsize>, connection: &Connection) -> Self {
        all.fetch_add(1, Ordering::AcqRel);
        connection.begin_request();
        Self(Arc::clone(all), connection.clone())
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.1.end_request();
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// True if the client waits for `100 Continue`: it sends no body that is refused.
fn asks_first(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// A body that its handler reads, and this module if bytes are left then; true beside it once it is at its end.
#[derive(Clone)]
struct RequestBody(Arc<Mutex<(Incoming, bool)>>);

impl RequestBody {
    async fn discard(mut self, most: usize, pause: Duration) {
        let mut left = most;
        while !self.is_end_stream()
            && let Ok(Some(Ok(frame))) = timeout(pause, self.frame()).await
        {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(bytes) {
                Some(fewer) => left = fewer,
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
