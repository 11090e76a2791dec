//! State of one connection: bytes of bodies and answers that it holds, and whether its client takes what it is sent.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

/// A connection. A clone is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    has_valid_key: AtomicBool,
    /// Number of requests that are not answered.
    requests: AtomicUsize,
    body_bytes: Arc<AtomicUsize>,
    unsent_bytes: Arc<AtomicUsize>,
    /// Told when an answer is sent.
    sent: Notify,
    answers: Mutex<Answers>,
    /// True if a part of an answer may lie in the protocol's own buffer.
    is_answer_buffered: AtomicBool,
    written: Progress,
    /// True if the socket took nothing of the last write.
    is_blocked: AtomicBool,
}

#[derive(Debug, Default)]
struct Answers {
    next: u64,
    unsent: HashMap<u64, Arc<Progress>>,
}

/// Progress of an answer, or of all bytes of a connection, on the way to the client.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    taken: AtomicUsize,
    at_last_check: AtomicUsize,
    /// Number of checks that found it where it is now: the time between them is one less.
    stalled: AtomicUsize,
    /// Ends its stream, where it has one.
    stream: Option<CancellationToken>,
}

impl Progress {
    pub(crate) fn advance(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_stalled(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.at_last_check.swap(taken, Ordering::Relaxed) != taken {
            self.stalled.store(1, Ordering::Relaxed);
            return false;
        }
        self.stalled.fetch_add(1, Ordering::Relaxed) >= CHECKS
    }
}

/// Number of checks within the time in which a client may take nothing.
const CHECKS: usize = 2;

/// An answer that is not sent yet, in its connection's list.
#[derive(Debug)]
pub(crate) struct UnsentAnswer {
    connection: Connection,
    number: u64,
    progress: Arc<Progress>,
}

impl UnsentAnswer {
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for UnsentAnswer {
    fn drop(&mut self) {
        // First: between the two, the connection must not look as if it owed nothing.
        self.connection.0.is_answer_buffered.store(true, Ordering::Release);
        self.connection.0.answers.lock().unsent.remove(&self.number);
        self.connection.0.sent.notify_waiters();
    }
}

impl Connection {
    /// Notes that a request on it had a valid key.
    pub(crate) fn has_valid_key(&self) {
        self.0.has_valid_key.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_known(&self) -> bool {
        self.0.has_valid_key.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_request(&self) {
        self.0.requests.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_request(&self) {
        self.0.is_answer_buffered.store(true, Ordering::Release);
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }

    /// True if nothing is under way on it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_requests() && self.0.answers.lock().unsent.is_empty()
    }

    fn has_requests(&self) -> bool {
        self.0.requests.load(Ordering::Acquire) > 0
    }

    /// True if its client waits for an answer, or for the rest of one. Control frames of HTTP/2 do not count.
    fn owes_an_answer(&self) -> bool {
        // Without a valid key, a made answer is a refusal or a public document. If a stop waited until it is taken, anybody
        // could hold it up by not reading.
        self.has_requests() || (self.is_known() && !(self.is_idle() && self.is_flushed()))
    }

    fn is_flushed(&self) -> bool {
        !self.0.is_answer_buffered.load(Ordering::Acquire)
    }

    /// Waits until the connection owes no answer at two checks in a row: a single one may fall between the end of a handler
    /// and the moment at which the protocol has its answer.
    pub(crate) async fn owes_nothing(&self, pause: Duration) {
        let mut checks = 0;
        while checks < 2 {
            sleep(pause).await;
            checks = if self.owes_an_answer() { 0 } else { checks + 1 };
        }
    }

    /// Notes that the socket took bytes.
    pub(crate) fn wrote(&self, bytes: usize) {
        self.0.written.advance(bytes);
        self.0.is_blocked.store(false, Ordering::Relaxed);
    }

    /// Notes that the socket takes nothing now.
    pub(crate) fn set_blocked(&self) {
        self.0.is_blocked.store(true, Ordering::Relaxed);
    }

    /// Notes that the protocol has handed all that it buffered to the socket.
    pub(crate) fn flushed(&self) {
        self.0.is_answer_buffered.store(false, Ordering::Release);
    }

    /// True if there are bytes to be written and the client takes none.
    pub(crate) fn is_blocked(&self) -> bool {
        self.0.is_blocked.load(Ordering::Relaxed)
    }

    fn is_write_stalled(&self) -> bool {
        if self.is_blocked() {
            return self.0.written.is_stalled();
        }
        self.0.written.stalled.store(0, Ordering::Relaxed);
        false
    }

    pub(crate) fn body_bytes(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0.body_bytes)
    }

    pub(crate) fn unsent_bytes(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0.unsent_bytes)
    }

    /// Adds an answer; `stream` ends its stream.
    pub(crate) fn answer(&self, stream: Option<CancellationToken>) -> UnsentAnswer {
        let progress = Arc::new(Progress { stream, ..Progress::default() });
        let mut answers = self.0.answers.lock();
        let number = answers.next;
        answers.next += 1;
        answers.unsent.insert(number, Arc::clone(&progress));
        UnsentAnswer { connection: self.clone(), number, progress }
    }

    /// True if fewer bytes than `most` are unsent.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        self.0.unsent_bytes.load(Ordering::Relaxed) < most
    }

    /// Waits until fewer bytes than `most` are unsent.
    pub(crate) async fn wait_for_room(&self, most: usize) {
        loop {
            let sent = self.0.sent.notified();
            if self.has_room(most) {
                return;
            }
            sent.await;
        }
    }

    /// Ends streams whose clients take nothing of their answers for `stall`, counting each. Done when that does not
    /// help, or when the client takes nothing at all, control frames included: the connection is to be ended then.
    pub(crate) async fn end_stalled(&self, stall: Duration, count: impl Fn()) {
        let pause = stall / u32::try_from(CHECKS).unwrap_or(1);
        loop {
            sleep(pause).await;
            if self.is_write_stalled() {
                return count();
            }
            let stalled: Vec<_> = {
                let answers = self.0.answers.lock();
                answers.unsent.values().filter(|progress| progress.is_stalled()).cloned().collect()
            };
            for progress in stalled {
                match &progress.stream {
                    // Its last bytes may lie in the protocol's own buffers after its stream has ended here.
                    Some(stream) if !stream.is_cancelled() => {
                        stream.cancel();
                        progress.stalled.store(0, Ordering::Relaxed);
                        count();
                    }
                    _ => return count(),
                }
            }
        }
    }
}
