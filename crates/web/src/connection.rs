//! State of one connection: leased bytes of bodies and answers, open requests, and the client's progress in reading.

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

/// Connection state. Clones refer to the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    has_valid_key: AtomicBool,
    /// Number of unanswered requests.
    requests: AtomicUsize,
    body_bytes: Arc<AtomicUsize>,
    unsent_bytes: Arc<AtomicUsize>,
    /// Notified when an answer is sent.
    answer_sent: Notify,
    answers: Mutex<UnsentAnswers>,
    /// True if the protocol's own buffer can contain a part of an answer.
    is_answer_buffered: AtomicBool,
    write_progress: Progress,
    /// True if the socket accepted no byte of the last write.
    is_blocked: AtomicBool,
}

#[derive(Debug, Default)]
struct UnsentAnswers {
    next_number: u64,
    unsent: HashMap<u64, Arc<Progress>>,
}

/// Progress of an answer, or of all writes of a connection.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    taken_bytes: AtomicUsize,
    bytes_at_last_check: AtomicUsize,
    /// Number of checks in a row with the same byte count. They span one check interval less.
    unchanged_checks: AtomicUsize,
    /// True if the client has taken all bytes of an answer and its handler has not produced the next ones.
    is_awaiting_bytes: AtomicBool,
    /// Ends the answer's stream. `None` for HTTP/1.1.
    stream: Option<CancellationToken>,
}

impl Progress {
    pub(crate) fn advance(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records whether the protocol waits for the next bytes of the answer.
    pub(crate) fn set_awaiting_bytes(&self, is_awaiting: bool) {
        self.is_awaiting_bytes.store(is_awaiting, Ordering::Relaxed);
    }

    fn is_stalled(&self) -> bool {
        // The delay is the handler's. A client that has stopped reading blocks the connection's writes, which are counted apart.
        if self.is_awaiting_bytes.load(Ordering::Relaxed) {
            self.unchanged_checks.store(0, Ordering::Relaxed);
            return false;
        }
        let taken_bytes = self.taken_bytes.load(Ordering::Relaxed);
        if self.bytes_at_last_check.swap(taken_bytes, Ordering::Relaxed) != taken_bytes {
            self.unchanged_checks.store(1, Ordering::Relaxed);
            return false;
        }
        self.unchanged_checks.fetch_add(1, Ordering::Relaxed) >= STALL_CHECKS
    }
}

/// Checks within the time in which a client must read something.
const STALL_CHECKS: usize = 2;

/// Entry of an answer in its connection's list until it is sent.
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
        // Set before the removal: in between, the connection must not look settled while the protocol buffers the answer.
        self.connection.0.is_answer_buffered.store(true, Ordering::Release);
        self.connection.0.answers.lock().unsent.remove(&self.number);
        self.connection.0.answer_sent.notify_waiters();
    }
}

impl Connection {
    /// Records that a request of the connection had a valid key.
    pub(crate) fn mark_authenticated(&self) {
        self.0.has_valid_key.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.0.has_valid_key.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_request(&self) {
        self.0.requests.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_request(&self) {
        // Set before the count: in between, the connection must not look settled.
        self.0.is_answer_buffered.store(true, Ordering::Release);
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }

    /// True if the connection has no open requests and no unsent answers.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_requests() && self.0.answers.lock().unsent.is_empty()
    }

    fn has_requests(&self) -> bool {
        self.0.requests.load(Ordering::Acquire) > 0
    }

    /// True if the client waits for an answer or its remaining bytes. Control frames of HTTP/2 do not count.
    fn has_pending_answer(&self) -> bool {
        // Answers without a valid key are refusals or public documents. If a stop waited for their delivery, any client could
        // delay it by not reading.
        self.has_requests() || (self.is_authenticated() && !(self.is_idle() && self.is_flushed()))
    }

    fn is_flushed(&self) -> bool {
        !self.0.is_answer_buffered.load(Ordering::Acquire)
    }

    /// Waits until the connection has no pending answer at two checks in a row. A single check could fall between the end of a
    /// handler and the moment at which the protocol receives the answer.
    pub(crate) async fn wait_until_settled(&self, pause: Duration) {
        let mut checks = 0;
        while checks < 2 {
            sleep(pause).await;
            checks = if self.has_pending_answer() { 0 } else { checks + 1 };
        }
    }

    /// Records that the socket accepted bytes.
    pub(crate) fn record_write(&self, bytes: usize) {
        self.0.write_progress.advance(bytes);
        self.0.is_blocked.store(false, Ordering::Relaxed);
    }

    /// Records that the socket accepts no bytes at present.
    pub(crate) fn set_blocked(&self) {
        self.0.is_blocked.store(true, Ordering::Relaxed);
    }

    /// Records that the protocol has passed its whole buffer to the socket.
    pub(crate) fn record_flush(&self) {
        self.0.is_answer_buffered.store(false, Ordering::Release);
    }

    /// True if bytes wait to be written and the client reads none.
    pub(crate) fn is_blocked(&self) -> bool {
        self.0.is_blocked.load(Ordering::Relaxed)
    }

    fn is_write_stalled(&self) -> bool {
        if self.is_blocked() {
            return self.0.write_progress.is_stalled();
        }
        // No write is blocked, so a later stall counts from zero.
        self.0.write_progress.unchanged_checks.store(0, Ordering::Relaxed);
        false
    }

    pub(crate) fn body_bytes(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0.body_bytes)
    }

    pub(crate) fn unsent_bytes(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0.unsent_bytes)
    }

    /// Adds an unsent answer; `stream` ends its stream.
    pub(crate) fn add_answer(&self, stream: Option<CancellationToken>) -> UnsentAnswer {
        let progress = Arc::new(Progress { stream, ..Progress::default() });
        let mut answers = self.0.answers.lock();
        let number = answers.next_number;
        answers.next_number += 1;
        answers.unsent.insert(number, Arc::clone(&progress));
        UnsentAnswer { connection: self.clone(), number, progress }
    }

    /// True if fewer bytes than `limit` are unsent.
    pub(crate) fn has_answer_room(&self, limit: usize) -> bool {
        self.0.unsent_bytes.load(Ordering::Relaxed) < limit
    }

    /// Waits until fewer bytes than `limit` are unsent.
    pub(crate) async fn wait_for_room(&self, limit: usize) {
        loop {
            // Registered before the check: an answer sent in between must not be missed.
            let next_sent = self.0.answer_sent.notified();
            if self.has_answer_room(limit) {
                return;
            }
            next_sent.await;
        }
    }

    /// Ends the streams of answers that their clients have not read for `stall`, and counts each. Returns when the connection
    /// itself must end: an ended stream did not help, or the client reads no bytes, not even control frames.
    pub(crate) async fn end_stalled(&self, stall: Duration, count: impl Fn()) {
        let pause = stall / u32::try_from(STALL_CHECKS).unwrap_or(1);
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
                    // Ended only once: if the answer stays unsent, its last bytes lie in the protocol's buffers, and only the end of the
                    // connection frees them.
                    Some(stream) if !stream.is_cancelled() => {
                        stream.cancel();
                        progress.unchanged_checks.store(0, Ordering::Relaxed);
                        count();
                    }
                    _ => return count(),
                }
            }
        }
    }
}
