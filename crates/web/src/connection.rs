//! State of one connection: bytes of bodies and answers that it holds, and whether its client takes its answers.

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
}

#[derive(Debug, Default)]
struct Answers {
    next: u64,
    unsent: HashMap<u64, Arc<Progress>>,
}

/// Progress of an answer on its way to the client.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    taken: AtomicUsize,
    at_last_check: AtomicUsize,
    /// Number of checks that found it where it was.
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
            self.stalled.store(0, Ordering::Relaxed);
            return false;
        }
        self.stalled.fetch_add(1, Ordering::Relaxed) + 1 >= CHECKS
    }
}

/// Number of checks within the time that an answer may stand still.
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
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }

    /// True if nothing is under way on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.requests.load(Ordering::Acquire) == 0 && self.0.answers.lock().unsent.is_empty()
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

    /// Waits until fewer bytes than `most` are unsent.
    pub(crate) async fn wait_for_room(&self, most: usize) {
        loop {
            let sent = self.0.sent.notified();
            if self.0.unsent_bytes.load(Ordering::Relaxed) < most {
                return;
            }
            sent.await;
        }
    }

    /// Ends streams whose clients take nothing of their answers for `stall`, counting each. Done when that does not
    /// help: the connection is to be ended then.
    pub(crate) async fn end_stalled(&self, stall: Duration, count: impl Fn()) {
        let pause = stall / u32::try_from(CHECKS).unwrap_or(1);
        loop {
            sleep(pause).await;
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
