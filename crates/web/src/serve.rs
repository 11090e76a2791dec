//! Serves a router on a listener until it is stopped, then drains within a deadline. Ends slow and silent connections, and
//! limits the number of connections.

use std::{io, sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use axum::Router;
use futures::future::Either;
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulConnection, GracefulShutdown, Watcher},
};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    HttpServer,
    connection::Connection,
    connections::{ConnectionSlot, Connections, GRACE},
    metrics::{connections_gauge, streams_gauge},
    networks::{Network, NetworkLimiter},
    request_service::RequestService,
    server::Limit,
    streams::StreamExecutor,
    watched_stream::WatchedStream,
};

/// Result of draining the connections of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    Clean,
    /// The drain time ended with requests in work.
    Forced,
}

/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time of a connection without a request when the server stops: for the remainder of a request's head, and for HTTP/2 clients
/// to receive the announcement of the end.
const IDLE_STOP_TIME: Duration = Duration::from_secs(1);

/// Interval of the checks whether a connection that outlives this time still has a pending answer.
const SETTLE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl HttpServer {
    /// Serves until `stop`, and returns when all connections have ended.
    #[boxed]
    pub async fn serve(
        &self,
        listener: TcpListener,
        router: Router,
        stop: CancellationToken,
    ) -> DrainOutcome {
        serve(self, listener, router, stop).await
    }
}

async fn serve(
    http: &HttpServer,
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> DrainOutcome {
    let settings = http.settings();
    bound_send_buffers(&listener);
    let slots = Connections::new(settings.connections, GRACE, connections_gauge(http.name()));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let server = Server::new(http, router, stop.clone());
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            // Removes the results of ended connections, which would otherwise accumulate.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let Some(slot) = stop.run_until_cancelled(slots.acquire(Network::from_address(peer.ip()))).await
        else {
            break;
        };
        let Some(slot) = slot else {
            // The stream is dropped, which closes the connection.
            http.count_limited(Limit::ConnectionShare);
            continue;
        };
        let (server, watcher) = (server.clone(), graceful.watcher());
        connections.spawn(async move {
            let close = slot.close.clone();
            // `None` if the connection was closed to make room for another.
            if close.run_until_cancelled(server.serve_connection(stream, &slot, watcher)).await.is_none() {
                server.http.count_limited(Limit::Connections);
            }
        });
    }
    // New connections are refused from here on, so that a load balancer turns to other processes.
    drop(listener);
    let drained = timeout(settings.drain(), graceful.shutdown()).await;
    let in_work = server.service.requests_in_work();
    if drained.is_err() {
        tracing::warn!(
            server = http.name(),
            in_work,
            "drain time is over: closing connections with requests in work or unread answers"
        );
    }
    // Aborts the remaining tasks after the deadline.
    connections.shutdown().await;
    // Unread answers do not count as forced: their requests are complete, so no work is repeated.
    if drained.is_err() && in_work > 0 { DrainOutcome::Forced } else { DrainOutcome::Clean }
}

/// Send buffer of one connection in the system. The default grows to 4 MiB, which no budget would count.
const SEND_BUFFER_BYTES: usize = 128 << 10;

fn bound_send_buffers(listener: &TcpListener) {
    // Set on the listener: accepted connections inherit the size.
    if let Err(error) = SockRef::from(listener).set_send_buffer_size(SEND_BUFFER_BYTES) {
        tracing::warn!(%error, "cannot limit the send buffers of connections");
    }
}

#[derive(Clone)]
struct Server {
    http: HttpServer,
    http1: http1::Builder,
    streams: NetworkLimiter,
    service: RequestService,
    stop: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// First bytes of a client that uses HTTP/2 with prior knowledge.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Pause between two checks of a client that has sent only a part of the preface.
const PEEK_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a body that an HTTP/2 client may send before the handler reads.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// Bytes of one answer that the HTTP/2 implementation buffers beyond the client's window.
const STREAM_BUFFER_BYTES: usize = 64 << 10;

impl Server {
    fn new(http: &HttpServer, router: Router, stop: CancellationToken) -> Self {
        let settings = http.settings();
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(settings.header_read())
            // Slightly longer heads are read as well, so that they get a 431 in the envelope.
            .max_buf_size(settings.header_bytes.saturating_add(8_192));
        // A network may hold half of all open streams, as it may of the connections.
        let streams =
            NetworkLimiter::new(settings.open_streams, settings.open_streams / 2, streams_gauge(http.name()));
        let service = RequestService::new(router, http.clone(), stop.clone());
        Self { http: http.clone(), http1, streams, service, stop }
    }

    fn http2_builder(&self, network: Network) -> http2::Builder<StreamExecutor> {
        let (settings, http) = (self.http.settings(), self.http.clone());
        let mut http2 = http2::Builder::new(StreamExecutor {
            open_streams: self.streams.clone(),
            network,
            on_refused: Arc::new(move || http.count_limited(Limit::Streams)),
        });
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(settings.header_bytes.try_into().unwrap_or(u32::MAX))
            .keep_alive_interval(Some(settings.header_read()))
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .max_send_buf_size(STREAM_BUFFER_BYTES)
            .max_concurrent_streams(settings.streams);
        http2
    }

    async fn serve_connection(&self, stream: TcpStream, slot: &ConnectionSlot, watcher: Watcher) {
        let connection = &slot.connection;
        // Otherwise small answers would wait for the acknowledgement of the previous packet (Nagle).
        let _unsupported = stream.set_nodelay(true);
        // A silent client has no open request: it must neither keep its slot nor delay a drain.
        let settings = self.http.settings();
        let detection = timeout(settings.header_read(), detect_protocol(&stream));
        let Some(Ok(Ok(Some(protocol)))) = self.stop.run_until_cancelled(detection).await else { return };
        let io = TokioIo::new(WatchedStream::new(stream, connection.clone()));
        let serving = match protocol {
            Protocol::Http1 => {
                let service = self.service.for_connection(connection.clone(), slot.network);
                Either::Left(serve_to_end(watcher, self.http1.serve_connection(io, service)))
            }
            Protocol::Http2 => {
                let service = self.service.for_connection(connection.clone(), slot.network);
                Either::Right(serve_to_end(
                    watcher,
                    self.http2_builder(slot.network).serve_connection(io, service),
                ))
            }
        };
        let count_stall = || self.http.count_limited(Limit::AnswerStall);
        tokio::select! {
            () = serving => {}
            // Each of these ends the connection by dropping `serving`.
            () = connection.end_stalled(settings.unsent_stall(), count_stall) => {}
            () = self.wait_until_stopped_and_settled(connection) => {}
        }
    }

    /// Waits for the stop, and then until closing the connection loses no answer.
    async fn wait_until_stopped_and_settled(&self, connection: &Connection) {
        self.stop.cancelled().await;
        sleep(IDLE_STOP_TIME).await;
        connection.wait_until_settled(SETTLE_CHECK_INTERVAL).await;
    }
}

/// Serves a connection to its end. Clients disconnect in many ways, none of which is worth a log line.
async fn serve_to_end<C: GracefulConnection>(watcher: Watcher, connection: C) {
    let _disconnect = watcher.watch(connection).await;
}

/// Detects the protocol by peeking at the first bytes. `None` if the client disconnected.
async fn detect_protocol(stream: &TcpStream) -> io::Result<Option<Protocol>> {
    let mut first_bytes = [0; HTTP2_PREFACE.len()];
    loop {
        let length = stream.peek(&mut first_bytes).await?;
        match HTTP2_PREFACE[..].strip_prefix(&first_bytes[..length]) {
            _ if length == 0 => return Ok(None),
            None => return Ok(Some(Protocol::Http1)),
            Some([]) => return Ok(Some(Protocol::Http2)),
            Some(_) => sleep(PEEK_PAUSE).await,
        }
    }
}
