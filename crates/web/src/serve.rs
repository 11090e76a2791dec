//! Serves a router on a listener until it is told to stop, then drains within a deadline.
//!
//! It knows no route. Slow or silent connections end by themselves, and the number of connections is bounded.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::Settings;

/// How a server let go of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    Clean,
    /// Time ran out with requests under way.
    Forced,
}

/// A failed accept is tried again after this time: it mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: &Settings,
    stop: CancellationToken,
) -> Drained {
    let slots = Arc::new(Semaphore::new(settings.connections));
    let graceful = GracefulShutdown::new();
    let server = Arc::new(server(settings));
    loop {
        let slot = tokio::select! {
            () = stop.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.expect("the semaphore is never closed"),
        };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Small answers must not wait for an acknowledgement of the packet before.
        let _unsupported = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let server = Arc::clone(&server);
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
            // Clients go away in all manners; none of them is worth a log line.
            let _gone = watcher.watch(connection).await;
            drop(slot);
        });
    }
    drop(listener);
    match tokio::time::timeout(settings.drain(), graceful.shutdown()).await {
        Ok(()) => Drained::Clean,
        Err(_) => Drained::Forced,
    }
}

fn server(settings: &Settings) -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_read())
        .max_buf_size(settings.header_bytes.max(8_192));
    server
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(settings.header_bytes.try_into().unwrap_or(u32::MAX))
        .keep_alive_interval(Some(settings.header_read()))
        .max_concurrent_streams(settings.streams);
    server
}
