//! Runs HTTP/2 streams in tasks: limits their number, and can end each without its connection.

use std::{future::Future, sync::Arc};

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use crate::networks::{Network, NetworkLimiter};

tokio::task_local! {
    static STREAM_END: CancellationToken;
}

/// Returns the signal that ends the current task's stream. `None` outside HTTP/2.
pub(crate) fn current_stream_end() -> Option<CancellationToken> {
    STREAM_END.try_with(CancellationToken::clone).ok()
}

/// Runs each stream of a connection in a separate task.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    pub(crate) open_streams: NetworkLimiter,
    pub(crate) network: Network,
    /// Called for each refused stream.
    pub(crate) on_refused: Arc<dyn Fn() + Send + Sync>,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        // Dropping the future resets the stream, so the client learns of the refusal.
        let Some(permit) = self.open_streams.acquire(self.network) else { return (self.on_refused)() };
        let end_signal = CancellationToken::new();
        let task_end_signal = end_signal.clone();
        tokio::spawn(STREAM_END.scope(end_signal, async move {
            task_end_signal.run_until_cancelled(stream).await;
            drop(permit);
        }));
    }
}
