//! Thread pool for evaluation, separate from the async threads. A task runs many pieces of work and catches panics of each.
//!
//! The next piece is that of the org with the least used computing time; turns by number of pieces would favour orgs
//! with slow rules. An org leaves as many threads free as it uses, so a piece of another org starts at once. Callers
//! hold their part's capacity while they wait, which bounds the memory of waiting pieces.

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

use crate::consumer::error::{ComputationPanic, TaskError};

/// Number of pieces in one task. After it the task yields the thread to other tasks of the pool.
const PIECES_PER_TASK: usize = 64;

/// Time for a running piece after its partition was revoked or the process is stopping. Short pieces finish and need not be
/// repeated; long ones are interrupted before they use up the drain time.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

type Piece = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct ComputePool {
    threads: Arc<rayon::ThreadPool>,
    queue: Arc<Mutex<PieceQueue>>,
    processing_load: Arc<ProcessingLoad>,
}

/// Waiting pieces, ordered by the computing time that their orgs have used.
struct PieceQueue {
    threads: usize,
    pieces: UsageQueue<OrgId, Piece>,
    /// Number of running pieces, of all orgs and of each org.
    running_pieces: usize,
    running_by_org: HashMap<OrgId, usize>,
    active_tasks: usize,
}

impl PieceQueue {
    fn new(threads: usize) -> Self {
        let pieces = UsageQueue::default();
        Self { threads, pieces, running_pieces: 0, running_by_org: HashMap::new(), active_tasks: 0 }
    }

    /// True if the org may start another piece: as many threads as it already uses must stay free.
    fn may_start(&self, org: &OrgId) -> bool {
        let used_threads = self.running_by_org.get(org).copied().unwrap_or_default();
        self.threads
            .checked_sub(self.running_pieces + 1)
            .is_some_and(|free_threads| used_threads <= free_threads)
    }

    fn has_startable_piece(&self) -> bool {
        self.pieces.next_owner(|org| self.may_start(org)).is_some()
    }

    fn pop(&mut self) -> Option<(OrgId, Piece)> {
        let org = self.pieces.next_owner(|org| self.may_start(org))?.clone();
        let piece = self.pieces.pop_of(&org)?;
        self.running_pieces += 1;
        *self.running_by_org.entry(org.clone()).or_default() += 1;
        Some((org, piece))
    }

    /// Ends a piece and charges its time to the org.
    fn finish(&mut self, org: &OrgId, elapsed: Duration) {
        self.running_pieces -= 1;
        if let Some(running) = self.running_by_org.get_mut(org) {
            *running -= 1;
            if *running == 0 {
                self.running_by_org.remove(org);
            }
        }
        self.pieces.charge(org, u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Interrupts a piece when its caller stops waiting.
struct InterruptOnDrop(Interrupt);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        self.0.request();
    }
}

impl ComputePool {
    /// `threads`: number of threads that one org can use; 0: one per processor. The pool has twice as many.
    pub(crate) fn new(
        threads: usize,
        load: Arc<ProcessingLoad>,
    ) -> Result<Self, rayon::ThreadPoolBuildError> {
        // Twice as many threads: an org at its limit leaves as many free.
        let threads_per_org = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(2 * threads_per_org)
            .thread_name(|index| format!("compute-{index}"))
            .build()?;
        let queue = PieceQueue::new(threads.current_num_threads());
        Ok(Self { threads: Arc::new(threads), queue: Arc::new(Mutex::new(queue)), processing_load: load })
    }

    /// Runs a piece for a record. After a cancelled ticket the piece is interrupted at the end of [`DRAIN_GRACE`] or not
    /// started; the next owner of the partition does the work.
    pub(crate) async fn run_for<T: Send + 'static>(
        &self,
        org: &OrgId,
        ticket: &Ticket,
        piece: impl FnOnce(&Interrupt) -> T + Send + 'static,
    ) -> Result<T, TaskError> {
        let interrupt = Interrupt::default();
        let _guard = InterruptOnDrop(interrupt.clone());
        let grace_period = async {
            ticket.cancelled().await;
            sleep(DRAIN_GRACE).await;
        };
        tokio::select! {
            biased;
            result = self.run(org, move || piece(&interrupt)) => Ok(result?),
            () = grace_period => Err(TaskError::AssignmentLost),
        }
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        org: &OrgId,
        piece: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputationPanic> {
        let (sender, receiver) = oneshot::channel();
        let piece = Box::new(move || {
            // The caller is gone, for example after a revocation, so the result would be discarded.
            if !sender.is_closed() {
                let result: Result<T, Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(piece));
                drop(sender.send(result.map_err(|_| ComputationPanic)));
            }
        });
        self.enqueue(org, piece);
        receiver.await.unwrap_or(Err(ComputationPanic))
    }

    fn enqueue(&self, org: &OrgId, piece: Piece) {
        let mut queue = self.queue.lock();
        queue.pieces.push(org, piece);
        // A piece over its org's share needs no task: the task that ends a piece of the org takes it.
        if queue.active_tasks < queue.threads && queue.has_startable_piece() {
            queue.active_tasks += 1;
            drop(queue);
            self.spawn_task();
        }
    }

    fn spawn_task(&self) {
        let pool = self.clone();
        self.threads.spawn(move || pool.run_pieces());
    }

    /// Runs startable pieces, up to `PIECES_PER_TASK`, and schedules another task for the remaining ones.
    fn run_pieces(self) {
        for _ in 0..PIECES_PER_TASK {
            let Some((org, piece)) = self.queue.lock().pop() else { break };
            let started_at = Instant::now();
            piece();
            let ended_at = Instant::now();
            self.processing_load.add_time(&org, ended_at - started_at, ended_at);
            self.queue.lock().finish(&org, ended_at - started_at);
        }
        let mut queue = self.queue.lock();
        if queue.has_startable_piece() {
            drop(queue);
            self.spawn_task();
        } else {
            queue.active_tasks -= 1;
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
    async fn panicking_piece_fails_alone() {
        let pool = ComputePool::new(2, Arc::default()).unwrap();
        let tasks = (0..1_000_u32).map(|nth| {
            let pool = pool.clone();
            tokio::spawn(async move {
                pool.run(&org(nth as usize % 7), move || {
                    assert!(nth % 100 != 7, "a piece of the test panics");
                    nth
                })
                .await
            })
        });
        for (nth, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
            let nth = u32::try_from(nth).unwrap();
            let expected = if nth % 100 == 7 { Err(ComputationPanic) } else { Ok(nth) };
            assert_eq!(task.await.unwrap(), expected);
        }
        let wait_until_idle = async {
            while pool.queue.lock().active_tasks > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait_until_idle).await.unwrap();
    }

    #[test]
    fn org_leaves_as_many_threads_free_as_it_uses() {
        let mut queue = PieceQueue::new(4);
        for nth in [0, 0, 0, 0, 1, 1, 2] {
            queue.pieces.push(&org(nth), Box::new(|| {}));
        }
        let mut start_all = |finished_org: Option<usize>| {
            finished_org.iter().for_each(|nth| queue.finish(&org(*nth), Duration::from_millis(10)));
            let started: Vec<_> =
                std::iter::from_fn(|| queue.pop()).map(|(org, _)| org.to_string()).collect();
            started
        };
        // Two pieces of the first org leave two threads free; a third would leave only one.
        assert_eq!(start_all(None), ["org-0", "org-0", "org-1", "org-2"]);
        assert_eq!(start_all(Some(2)), Vec::<String>::new(), "one thread is free for a fourth org");
        assert_eq!(start_all(Some(0)), ["org-1"]);
    }

    #[tokio::test]
    async fn quick_piece_does_not_wait_for_another_orgs_slow_pieces() {
        let pool = ComputePool::new(1, Arc::default()).unwrap();
        let (release, is_released) = std::sync::mpsc::channel::<()>();
        let is_released = Arc::new(Mutex::new(is_released));
        let slow_tasks: Vec<_> = (0..3)
            .map(|_| {
                let (pool, is_released) = (pool.clone(), Arc::clone(&is_released));
                tokio::spawn(
                    async move { pool.run(&org(0), move || is_released.lock().recv().unwrap()).await },
                )
            })
            .collect();
        let quick_result = tokio::time::timeout(Duration::from_secs(60), pool.run(&org(1), || 7)).await;
        assert_eq!(quick_result.unwrap(), Ok(7));
        (0..3).for_each(|_| release.send(()).unwrap());
        for task in slow_tasks {
            assert_eq!(task.await.unwrap(), Ok(()));
        }
    }
}
