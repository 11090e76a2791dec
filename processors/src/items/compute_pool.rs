//! Thread pool for evaluation, separate from the async threads. A task runs many pieces of work and catches panics of each.
//!
//! The next piece is that of the org with the least used computing time; turns by number of pieces would favour orgs
//! with slow rules. An org leaves as many threads free as it uses, so a piece of another org starts at once. Callers
//! hold their part's capacity while they wait, which bounds the memory of waiting pieces.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tidegate_catalog::ProcessingLoad;
use tidegate_rules::Interrupt;
use tidegate_scheduler::WorkerQueue;
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
    state: Arc<Mutex<PoolState>>,
    processing_load: Arc<ProcessingLoad>,
}

/// Waiting and running pieces, and the number of tasks that run them.
struct PoolState {
    pieces: WorkerQueue<Piece>,
    active_tasks: usize,
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
        let state = PoolState { pieces: WorkerQueue::new(threads.current_num_threads()), active_tasks: 0 };
        Ok(Self { threads: Arc::new(threads), state: Arc::new(Mutex::new(state)), processing_load: load })
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
        let mut state = self.state.lock();
        state.pieces.push(org, piece);
        // A piece over its org's share needs no task: the task that ends a piece of the org takes it.
        if state.active_tasks < state.pieces.threads() && state.pieces.has_startable() {
            state.active_tasks += 1;
            drop(state);
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
            let Some((org, piece)) = self.state.lock().pieces.start_next() else { break };
            let started_at = Instant::now();
            piece();
            let ended_at = Instant::now();
            self.processing_load.add_time(&org, ended_at - started_at, ended_at);
            self.state.lock().pieces.finish(&org, ended_at - started_at);
        }
        let mut state = self.state.lock();
        if state.pieces.has_startable() {
            drop(state);
            self.spawn_task();
        } else {
            state.active_tasks -= 1;
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
            while pool.state.lock().active_tasks > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait_until_idle).await.unwrap();
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
