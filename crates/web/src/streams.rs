//! Tasks of HTTP/2 streams: bounded in number, and each can be ended without its connection.

use std::{future::Future, sync::Arc};

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use crate::networks::{Network, Networks};

tokio::task_local! {
    static STREAM_END: CancellationToken;
}

/// Ends the stream that the current task serves; none outside HTTP/2.
pub(crate) fn stream_end() -> Option<CancellationToken> {
    STREAM_END.try_with(CancellationToken::clone).ok()
}

/// Runs each stream of a connection in a task of its own.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    pub(crate) open: Networks,
    pub(crate) network: Network,
    /// Called for each stream that is refused.
    pub(crate) refused: Arc<dyn Fn() + Send + Sync>,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        // A stream that is dropped is reset.
        let Some(permit) = self.open.take(self.network) else { return (self.refused)() };
        let end = CancellationToken::new();
        let ended = end.clone();
        tokio::spawn(STREAM_END.scope(end, async move {
            ended.run_until_cancelled(stream).await;
            drop(permit);
        }));
    }
}
