//! Tasks of HTTP/2 streams, each of which can be ended without its connection.

use std::future::Future;

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static STREAM_END: CancellationToken;
}

/// Ends the stream that the current task serves; none outside HTTP/2.
pub(crate) fn stream_end() -> Option<CancellationToken> {
    STREAM_END.try_with(CancellationToken::clone).ok()
}

/// Runs each stream in a task of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExecutor;

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let end = CancellationToken::new();
        let ended = end.clone();
        // A stream that is dropped is reset.
        tokio::spawn(STREAM_END.scope(end, async move { ended.run_until_cancelled(stream).await }));
    }
}
