//! Gathers inputs by destination, so that one call to a model can contain several.
//!
//! The caller takes the batches one after the other and sends them.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};

/// Limits of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    pub(super) inputs: usize,
    pub(super) bytes: usize,
    /// Longest wait of an input for further ones.
    pub(super) wait: Duration,
}

/// Input with its waiting caller. Cancelled when the caller drops its receiver.
#[derive(Debug)]
pub(super) struct WaitingInput<I, O> {
    pub(super) input: I,
    pub(super) reply: oneshot::Sender<O>,
    bytes: usize,
    queued_at: Instant,
}

struct Queue<I, O> {
    waiting: VecDeque<WaitingInput<I, O>>,
    full: Arc<Notify>,
}

enum State {
    Gone,
    Ready,
    /// Waits for more inputs until this instant, or until the batch is full.
    Gathering {
        until: Instant,
        full: Arc<Notify>,
    },
}

/// Queues of inputs by destination. A queue exists as long as a caller takes batches from it.
pub(super) struct Batches<K, I, O>(Mutex<HashMap<K, Queue<I, O>>>);

impl<K, I, O> Default for Batches<K, I, O> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, I, O> Batches<K, I, O> {
    /// Adds an input to the queue of its destination. The flag is true for a new queue: the caller must then take
    /// batches from it until [`Self::ready`] returns false.
    pub(super) fn push(
        &self,
        destination: &K,
        input: I,
        bytes: usize,
        limits: &BatchLimits,
        now: Instant,
    ) -> (oneshot::Receiver<O>, bool) {
        let (reply, answer) = oneshot::channel();
        let waiting_input = WaitingInput { input, reply, bytes, queued_at: now };
        let mut queues = self.0.lock();
        let is_new = !queues.contains_key(destination);
        let queue = queues
            .entry(destination.clone())
            .or_insert_with(|| Queue { waiting: VecDeque::new(), full: Arc::default() });
        queue.waiting.push_back(waiting_input);
        if queue.is_full(limits) {
            // Wakes the sender before the wait of the first input ends.
            queue.full.notify_one();
        }
        (answer, is_new)
    }

    /// Waits until a batch is ready. Returns false if no caller waits, and removes the queue.
    pub(super) async fn ready(&self, destination: &K, limits: &BatchLimits) -> bool {
        loop {
            match self.state(destination, limits, Instant::now()) {
                State::Gone => return false,
                State::Ready => return true,
                State::Gathering { until, full } => tokio::select! {
                    () = full.notified() => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    fn state(&self, destination: &K, limits: &BatchLimits, now: Instant) -> State {
        let mut queues = self.0.lock();
        let Some(queue) = queues.get_mut(destination) else { return State::Gone };
        queue.drop_cancelled();
        let Some(first) = queue.waiting.front() else {
            // Removed under the lock: an input pushed later finds no queue and starts a new sender.
            queues.remove(destination);
            return State::Gone;
        };
        let batch_due_at = first.queued_at + limits.wait;
        if queue.is_full(limits) || batch_due_at <= now {
            return State::Ready;
        }
        State::Gathering { until: batch_due_at, full: Arc::clone(&queue.full) }
    }

    /// Takes the next batch in order of arrival. Empty if no caller waits any more.
    pub(super) fn take(&self, destination: &K, limits: &BatchLimits) -> Vec<WaitingInput<I, O>> {
        let mut queues = self.0.lock();
        let Some(queue) = queues.get_mut(destination) else { return Vec::new() };
        queue.drop_cancelled();
        let count = queue.next_batch_len(limits);
        queue.waiting.drain(..count).collect()
    }
}

impl<I, O> Queue<I, O> {
    fn drop_cancelled(&mut self) {
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
    }

    fn is_full(&self, limits: &BatchLimits) -> bool {
        let batch_len = self.next_batch_len(limits);
        batch_len >= limits.inputs || batch_len < self.waiting.len()
    }

    /// Returns the number of inputs in the next batch. An oversized input is sent alone.
    fn next_batch_len(&self, limits: &BatchLimits) -> usize {
        let mut bytes = 0_usize;
        let fitting = self.waiting.iter().take(limits.inputs).take_while(|waiting| {
            bytes = bytes.saturating_add(waiting.bytes);
            bytes <= limits.bytes
        });
        // At least one, so that an oversized input is sent alone.
        fitting.count().max(1).min(self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt as _;

    use super::*;

    const LIMITS: BatchLimits = BatchLimits { inputs: 3, bytes: 100, wait: Duration::from_millis(5) };

    /// Batches of numbers, and the clock of a test.
    struct Gathered {
        batches: Batches<&'static str, u32, ()>,
        now: Instant,
    }

    impl Gathered {
        fn new() -> Self {
            Self { batches: Batches::default(), now: Instant::now() }
        }

        fn push(&self, to: &'static str, number: u32, bytes: usize) -> (oneshot::Receiver<()>, bool) {
            self.batches.push(&to, number, bytes, &LIMITS, self.now)
        }

        /// Returns the next batch if it may go; `None` if it waits.
        fn next(&self, to: &'static str) -> Option<Vec<u32>> {
            match self.batches.state(&to, &LIMITS, self.now) {
                State::Gone => Some(Vec::new()),
                State::Gathering { .. } => None,
                State::Ready => Some(self.take(to)),
            }
        }

        fn take(&self, to: &'static str) -> Vec<u32> {
            self.batches.take(&to, &LIMITS).iter().map(|waiting| waiting.input).collect()
        }
    }

    #[test]
    fn lone_input_waits_no_longer_than_the_limit() {
        let mut gathered = Gathered::new();
        let (_answer, is_new) = gathered.push("a", 1, 10);
        assert!(is_new);
        assert_eq!(gathered.next("a"), None);
        gathered.now += LIMITS.wait;
        assert!(matches!(gathered.batches.state(&"a", &LIMITS, gathered.now), State::Ready));
        // An input that arrives while the batch waits for a permit joins it.
        let (_later, is_new) = gathered.push("a", 2, 10);
        assert!(!is_new);
        assert_eq!(gathered.next("a"), Some(vec![1, 2]));
        assert_eq!(gathered.next("a"), Some(vec![]));
        assert!(gathered.batches.0.lock().is_empty());
    }

    #[test]
    fn full_batch_is_ready_at_once() {
        let gathered = Gathered::new();
        let _answers: Vec<_> = (1..=7).map(|number| gathered.push("a", number, 10)).collect();
        assert_eq!(gathered.next("a"), Some(vec![1, 2, 3]));
        assert_eq!(gathered.next("a"), Some(vec![4, 5, 6]));
        assert_eq!(gathered.next("a"), None);
    }

    #[tokio::test]
    async fn input_that_fills_a_batch_wakes_it() {
        let limits = BatchLimits { wait: Duration::from_secs(3_600), ..LIMITS };
        let batches = Batches::<&str, u32, ()>::default();
        let mut answers = vec![batches.push(&"a", 1, 10, &limits, Instant::now())];
        let mut ready = std::pin::pin!(batches.ready(&"a", &limits));
        assert!(ready.as_mut().now_or_never().is_none());
        answers.extend((2..=3).map(|number| batches.push(&"a", number, 10, &limits, Instant::now())));
        assert!(ready.await);
    }

    #[test]
    fn bytes_bound_a_batch_and_large_input_is_alone() {
        let mut gathered = Gathered::new();
        let sizes = [(1, 60), (2, 41), (3, 500), (4, 1)];
        let _answers = sizes.map(|(number, bytes)| gathered.push("a", number, bytes));
        for expected in [1, 2, 3] {
            assert_eq!(gathered.next("a"), Some(vec![expected]));
        }
        assert_eq!(gathered.next("a"), None);
        gathered.now += LIMITS.wait;
        assert_eq!(gathered.next("a"), Some(vec![4]));
    }

    #[test]
    fn cancelled_inputs_are_left_out_and_destinations_kept_apart() {
        let mut gathered = Gathered::new();
        let (gone, _) = gathered.push("a", 1, 10);
        let (_stays, _) = gathered.push("a", 2, 10);
        let (_other, is_new) = gathered.push("b", 3, 10);
        assert!(is_new);
        drop(gone);
        gathered.now += LIMITS.wait;
        assert_eq!((gathered.next("a"), gathered.next("b")), (Some(vec![2]), Some(vec![3])));
        let (gone, _) = gathered.push("a", 4, 10);
        drop(gone);
        assert_eq!(gathered.take("a"), [0; 0]);
        assert_eq!(gathered.next("a"), Some(vec![]));
    }
}
