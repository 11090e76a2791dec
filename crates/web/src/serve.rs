//! Serves a router on a listener until it is told to stop, then drains within a deadline.
//!
//! It knows no route. Slow or silent connections end by themselves, and the number of connections is bounded.

use std::{io, sync::Arc, time::Duration};

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
    metrics::{connections, streams},
    networks::{Network, Networks},
    request_service::RequestService,
    server::Limit,
    streams::StreamExecutor,
    watched_stream::WatchedStream,
};

/// Result of draining a server's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    Clean,
    /// Time ran out with requests in work.
    Forced,
}

/// A failed accept is tried again after this time: it mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time that a connection without a request has when the server stops: for the rest of a request's head, and for a client
/// of HTTP/2 to hear that no more is taken.
const GOODBYE: Duration = Duration::from_secs(1);

/// Pause between two checks whether a connection that outlives that time still owes an answer.
const OWES_PAUSE: Duration = Duration::from_millis(50);

impl HttpServer {
    /// Serves until `stop`, and returns when no connection is left.
    pub async fn serve(&self, listener: TcpListener, router: Router, stop: CancellationToken) -> Drained {
        serve(self, listener, router, stop).await
    }
}

async fn serve(http: &HttpServer, listener: TcpListener, router: Router, stop: CancellationToken) -> Drained {
    let settings = http.settings();
    bound_send_buffers(&listener);
    let slots = Connections::new(settings.connections, GRACE, connections(http.name()));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let server = Server::new(http, router, stop.clone());
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            // What is left of one that has ended.
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
        let Some(slot) = stop.run_until_cancelled(slots.acquire(Network::of(peer.ip()))).await else { break };
        let Some(slot) = slot else {
            http.count_limited(Limit::ConnectionShare);
            continue;
        };
        let (server, watcher) = (server.clone(), graceful.watcher());
        connections.spawn(async move {
            let close = slot.close.clone();
            if close.run_until_cancelled(server.connection(stream, &slot, watcher)).await.is_none() {
                server.http.count_limited(Limit::Connections);
            }
        });
    }
    drop(listener);
    let drained = timeout(settings.drain(), graceful.shutdown()).await;
    let in_work = server.service.unanswered();
    if drained.is_err() {
        tracing::warn!(
            server = http.name(),
            in_work,
            "time to drain is over: connections are closed whose requests are in work or whose clients do not take answers"
        );
    }
    connections.shutdown().await;
    // An answer that its client does not take is no work: nothing of it is done again.
    if drained.is_err() && in_work > 0 { Drained::Forced } else { Drained::Clean }
}

/// Bytes that the system holds of answers for one connection. Its default grows to 4 MiB, out of sight of any budget.
const SEND_BUFFER: usize = 128 << 10;

fn bound_send_buffers(listener: &TcpListener) {
    // Connections inherit it.
    if let Err(error) = SockRef::from(listener).set_send_buffer_size(SEND_BUFFER) {
        tracing::warn!(%error, "the send buffers of connections cannot be bounded");
    }
}

#[derive(Clone)]
struct Server {
    http: HttpServer,
    http1: http1::Builder,
    streams: Networks,
    service: RequestService,
    stop: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// First bytes of a client that speaks HTTP/2 with prior knowledge.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Pause between two looks at a client that has sent only a part of its first bytes.
const PEEK_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a body that an HTTP/2 client may send before they are read.
const STREAM_WINDOW: u32 = 256 << 10;

/// Bytes of one answer that HTTP/2 holds beside those that its client asked for.
const STREAM_BUFFER: usize = 64 << 10;

impl Server {
    fn new(http: &HttpServer, router: Router, stop: CancellationToken) -> Self {
        let settings = http.settings();
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(settings.header_read())
            // A head that is a little too long is read, and told so in our own words.
            .max_buf_size(settings.header_bytes.saturating_add(8_192));
        let streams = Networks::new(settings.open_streams, settings.open_streams / 2, streams(http.name()));
        let service = RequestService::new(router, http.clone(), stop.clone());
        Self { http: http.clone(), http1, streams, service, stop }
    }

    fn http2(&self, network: Network) -> http2::Builder<StreamExecutor> {
        let (settings, http) = (self.http.settings(), self.http.clone());
        let mut http2 = http2::Builder::new(StreamExecutor {
            open: self.streams.clone(),
            network,
            refused: Arc::new(move || http.count_limited(Limit::Streams)),
        });
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(settings.header_bytes.try_into().unwrap_or(u32::MAX))
            .keep_alive_interval(Some(settings.header_read()))
            .initial_stream_window_size(STREAM_WINDOW)
            .max_send_buf_size(STREAM_BUFFER)
            .max_concurrent_streams(settings.streams);
        http2
    }

    async fn connection(&self, stream: TcpStream, slot: &ConnectionSlot, watcher: Watcher) {
        let connection = &slot.connection;
        // Small answers must not wait for an acknowledgement of the packet before.
        let _unsupported = stream.set_nodelay(true);
        // A client that says nothing has no request under way: it neither keeps its slot nor holds up a drain.
        let settings = self.http.settings();
        let first = timeout(settings.header_read(), protocol(&stream));
        let Some(Ok(Ok(Some(protocol)))) = self.stop.run_until_cancelled(first).await else { return };
        let io = TokioIo::new(WatchedStream::new(stream, connection.clone()));
        let serves = match protocol {
            Protocol::Http1 => {
                let service = self.service.on(connection.clone(), slot.network);
                Either::Left(finish(watcher, self.http1.serve_connection(io, service)))
            }
            Protocol::Http2 => {
                let service = self.service.on(connection.clone(), slot.network);
                Either::Right(finish(watcher, self.http2(slot.network).serve_connection(io, service)))
            }
        };
        let count = || self.http.count_limited(Limit::AnswerStall);
        tokio::select! {
            () = serves => {}
            () = connection.end_stalled(settings.unsent_stall(), count) => {}
            () = self.stopped_and_owes_nothing(connection) => {}
        }
    }

    /// Waits for the stop, and then until nothing would be lost with the connection.
    async fn stopped_and_owes_nothing(&self, connection: &Connection) {
        self.stop.cancelled().await;
        sleep(GOODBYE).await;
        connection.owes_nothing(OWES_PAUSE).await;
    }
}

/// Clients go away in all manners; none of them is worth a log line.
async fn finish<C: GracefulConnection>(watcher: Watcher, connection: C) {
    let _gone = watcher.watch(connection).await;
}

/// Detects the protocol by the first bytes, which stay in the stream; nothing if the client went away.
async fn protocol(stream: &TcpStream) -> io::Result<Option<Protocol>> {
    let mut first = [0; PREFACE.len()];
    loop {
        let length = stream.peek(&mut first).await?;
        match PREFACE[..].strip_prefix(&first[..length]) {
            _ if length == 0 => return Ok(None),
            None => return Ok(Some(Protocol::Http1)),
            Some([]) => return Ok(Some(Protocol::Http2)),
            Some(_) => sleep(PEEK_PAUSE).await,
        }
    }
}
