//! Runs computation off the async threads: on threads of its own, many pieces a task, each caught if it panics.
//!
//! Threads go to the org that has used the least computing time. Turns by number of pieces would give most of it to an org
//! with slow rules. An org leaves as many threads to the others as it runs pieces, so another org's piece waits for none of
//! them to end. Memory is bounded by the callers, who hold a place of their worker while they wait.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tidegate_catalog::ProcessingLoad;
use tidegate_rules::Interrupt;
use tidegate_scheduler::UsageQueue;
use tidegate_schemas::ids::OrgId;
use tidegate_stream::consumer::ticket::Ticket;
use tokio::{sync::oneshot, time::sleep};

use crate::consumer::error::{Panicked, TaskError};

/// Number of pieces of work that one task does before it yields the thread.
const PIECES: usize = 64;

/// Time for which a piece may go on after its partition was revoked or the process was told to stop. What is cheap ends
/// before and is not done twice; the rest must not use up the time to drain.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

type Piece = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct ComputePool {
    threads: Arc<rayon::ThreadPool>,
    queue: Arc<Mutex<PieceQueue>>,
    load: Arc<ProcessingLoad>,
}

/// Pieces that wait, by the nanoseconds that their orgs have used.
struct PieceQueue {
    threads: usize,
    pieces: UsageQueue<OrgId, Piece>,
    /// Number of pieces that run, in all and of each org that has some.
    running: usize,
    running_of: HashMap<OrgId, usize>,
    tasks: usize,
}

impl PieceQueue {
    fn new(threads: usize) -> Self {
        let pieces = UsageQueue::default();
        Self { threads, pieces, running: 0, running_of: HashMap::new(), tasks: 0 }
    }

    /// True if the org may run one more piece: at least as many threads stay free as it uses before.
    fn may_start(&self, org: &OrgId) -> bool {
        let used_threads = self.running_of.get(org).copied().unwrap_or_default();
        self.threads.checked_sub(self.running + 1).is_some_and(|free_threads| used_threads <= free_threads)
    }

    fn has_startable(&self) -> bool {
        self.pieces.next_owner(|org| self.may_start(org)).is_some()
    }

    fn pop(&mut self) -> Option<(OrgId, Piece)> {
        let org = self.pieces.next_owner(|org| self.may_start(org))?.clone();
        let piece = self.pieces.pop_of(&org)?;
        self.running += 1;
        *self.running_of.entry(org.clone()).or_default() += 1;
        Some((org, piece))
    }

    /// Ends a piece of the org, and charges the time that it took.
    fn end(&mut self, org: &OrgId, took: Duration) {
        self.running -= 1;
        if let Some(running) = self.running_of.get_mut(org) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(org);
            }
        }
        self.pieces.charge(org, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Interrupts a piece when its caller has its result, or gives up waiting for it.
struct InterruptOnDrop(Interrupt);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        self.0.request();
    }
}

impl ComputePool {
    /// `threads` is the number that one org can use; 0: one for each processor. There are as many again for the others.
    pub(crate) fn new(
        threads: usize,
        load: Arc<ProcessingLoad>,
    ) -> Result<Self, rayon::ThreadPoolBuildError> {
        let per_org = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(2 * per_org)
            .thread_name(|nth| format!("compute-{nth}"))
            .build()?;
        let queue = PieceQueue::new(threads.current_num_threads());
        Ok(Self { threads: Arc::new(threads), queue: Arc::new(Mutex::new(queue)), load })
    }

    /// Runs a piece for a record. If the ticket is cancelled, the piece is interrupted after [`DRAIN_GRACE`], or does not
    /// start, and the next owner of the partition does the work.
    pub(crate) async fn run_for<T: Send + 'static>(
        &self,
        org: &OrgId,
        ticket: &Ticket,
        piece: impl FnOnce(&Interrupt) -> T + Send + 'static,
    ) -> Result<T, TaskError> {
        let interrupt = Interrupt::default();
        let _guard = InterruptOnDrop(interrupt.clone());
        let grace_is_over = async {
            ticket.cancelled().await;
            sleep(DRAIN_GRACE).await;
        };
        tokio::select! {
            biased;
            result = self.run(org, move || piece(&interrupt)) => Ok(result?),
            () = grace_is_over => Err(TaskError::AssignmentLost),
        }
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        org: &OrgId,
        piece: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let (done, result) = oneshot::channel();
        let piece = Box::new(move || {
            // Nobody waits any more, as after a revocation: the work would be for nothing.
            if !done.is_closed() {
                let result: Result<T, Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(piece));
                drop(done.send(result.map_err(|_| Panicked)));
            }
        });
        self.enqueue(org, piece);
        result.await.unwrap_or(Err(Panicked))
    }

    fn enqueue(&self, org: &OrgId, piece: Piece) {
        let mut queue = self.queue.lock();
        queue.pieces.push(org, piece);
        // A task for a piece that may not start yet would find nothing: the task that ends before it takes it.
        if queue.tasks < queue.threads && queue.has_startable() {
            queue.tasks += 1;
            drop(queue);
            self.spawn();
        }
    }

    fn spawn(&self) {
        let own = self.clone();
        self.threads.spawn(move || own.work());
    }

    /// Takes what is ready, many pieces at a time, until nothing is.
    fn work(self) {
        for _ in 0..PIECES {
            let Some((org, piece)) = self.queue.lock().pop() else { break };
            let began = Instant::now();
            piece();
            let ended = Instant::now();
            self.load.add_time(&org, ended - began, ended);
            self.queue.lock().end(&org, ended - began);
        }
        let mut queue = self.queue.lock();
        if queue.has_startable() {
            drop(queue);
            self.spawn();
        } else {
            queue.tasks -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn org(nth: usize) -> OrgId {
        OrgId::new(format!("org-{nth}"))
    }

    #[tokio::test]
    async fn every_piece_is_answered_and_a_panic_hurts_only_its_own() {
        let pool = ComputePool::new(2, Arc::default()).unwrap();
        let all = (0..1_000_u32).map(|nth| {
            let pool = pool.clone();
            tokio::spawn(async move {
                pool.run(&org(nth as usize % 7), move || {
                    assert!(nth % 100 != 7, "a piece of the test panics");
                    nth
                })
                .await
            })
        });
        for (nth, task) in all.collect::<Vec<_>>().into_iter().enumerate() {
            let nth = u32::try_from(nth).unwrap();
            let expected = if nth % 100 == 7 { Err(Panicked) } else { Ok(nth) };
            assert_eq!(task.await.unwrap(), expected);
        }
        let idle = async {
            while pool.queue.lock().tasks > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), idle).await.unwrap();
    }

    #[test]
    fn an_org_leaves_as_many_threads_as_it_uses() {
        let mut queue = PieceQueue::new(4);
        for nth in [0, 0, 0, 0, 1, 1, 2] {
            queue.pieces.push(&org(nth), Box::new(|| {}));
        }
        let mut start_all = |ended: Option<usize>| {
            ended.iter().for_each(|nth| queue.end(&org(*nth), Duration::from_millis(10)));
            let started: Vec<_> =
                std::iter::from_fn(|| queue.pop()).map(|(org, _)| org.to_string()).collect();
            started
        };
        // The first org is alone until its second piece runs: no third of its pieces may start beside two of them.
        assert_eq!(start_all(None), ["org-0", "org-0", "org-1", "org-2"]);
        assert_eq!(start_all(Some(2)), Vec::<String>::new(), "one thread is free for a fourth org");
        assert_eq!(start_all(Some(0)), ["org-1"]);
    }

    #[tokio::test]
    async fn a_quick_piece_does_not_wait_for_slow_ones_of_another_org() {
        let pool = ComputePool::new(1, Arc::default()).unwrap();
        let (release, is_released) = std::sync::mpsc::channel::<()>();
        let is_released = Arc::new(Mutex::new(is_released));
        let slow: Vec<_> = (0..3)
            .map(|_| {
                let (pool, is_released) = (pool.clone(), Arc::clone(&is_released));
                tokio::spawn(
                    async move { pool.run(&org(0), move || is_released.lock().recv().unwrap()).await },
                )
            })
            .collect();
        let quick = tokio::time::timeout(Duration::from_secs(60), pool.run(&org(1), || 7)).await;
        assert_eq!(quick.unwrap(), Ok(7));
        (0..3).for_each(|_| release.send(()).unwrap());
        for task in slow {
            assert_eq!(task.await.unwrap(), Ok(()));
        }
    }
}
