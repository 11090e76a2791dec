//! A client's connection that knows whether answers are still on their way out, and counts itself as long as they are.
//!
//! HTTP/2 keeps what its client has not asked for yet: nobody sees it written, so that such a connection counts as long
//! as it is there, once it has asked for something.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Connections that have something to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsent(Arc<AtomicUsize>);

impl Unsent {
    pub(crate) fn of(&self, stream: TcpStream) -> CountedStream {
        CountedStream { stream, is_unsent: false, all: self.clone() }
    }

    pub(crate) fn exchange(&self) -> Exchange {
        Exchange(Arc::new(Counted { has_asked: AtomicBool::default(), all: self.clone() }))
    }

    pub(crate) fn connections(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// A connection of HTTP/2, as long as anybody holds it.
#[derive(Clone, Debug)]
pub(crate) struct Exchange(Arc<Counted>);

impl Exchange {
    pub(crate) fn asks(&self) {
        if !self.0.has_asked.swap(true, Ordering::AcqRel) {
            self.0.all.0.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[derive(Debug)]
struct Counted {
    has_asked: AtomicBool,
    all: Unsent,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if *self.has_asked.get_mut() {
            self.all.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Whoever writes flushes once all was written.
#[derive(Debug)]
pub(crate) struct CountedStream {
    stream: TcpStream,
    is_unsent: bool,
    all: Unsent,
}

impl CountedStream {
    fn writes(&mut self) -> Pin<&mut TcpStream> {
        if !self.is_unsent {
            self.is_unsent = true;
            self.all.0.fetch_add(1, Ordering::AcqRel);
        }
        Pin::new(&mut self.stream)
    }

    fn is_sent(&mut self) {
        if self.is_unsent {
            self.is_unsent = false;
            self.all.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.is_sent();
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes().poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.is_sent();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
