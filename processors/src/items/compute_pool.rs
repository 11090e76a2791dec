//! Runs computation off the async threads: on threads of its own, many pieces a task, each caught if it panics.
//!
//! Threads go to the org that has used the least computing time, so that an org with slow rules delays the others by no
//! more than a piece a thread. Turns by number of pieces would give it most of the time. Memory is bounded by the callers,
//! who hold a place of their worker while they wait.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;
use tidegate_scheduler::UsageQueue;
use tidegate_schemas::ids::OrgId;
use tokio::sync::oneshot;

use crate::consumer::error::Panicked;

/// Number of pieces of work that one task does before it yields the thread.
const PIECES: usize = 64;

type Piece = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct ComputePool {
    threads: Arc<rayon::ThreadPool>,
    queue: Arc<Mutex<PieceQueue>>,
    most_tasks: usize,
}

/// Pieces that wait, by the nanoseconds that their orgs have used.
#[derive(Default)]
struct PieceQueue {
    pieces: UsageQueue<OrgId, Piece>,
    tasks: usize,
}

impl ComputePool {
    /// `threads` 0: one for each processor.
    pub(crate) fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|nth| format!("compute-{nth}"))
            .build()?;
        let most_tasks = threads.current_num_threads();
        Ok(Self { threads: Arc::new(threads), queue: Arc::default(), most_tasks })
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
        if queue.tasks < self.most_tasks {
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
            let Some((org, piece)) = self.queue.lock().pieces.pop() else { break };
            let began = Instant::now();
            piece();
            let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.queue.lock().pieces.charge(&org, nanos);
        }
        let mut queue = self.queue.lock();
        if queue.pieces.is_empty() {
            queue.tasks -= 1;
        } else {
            drop(queue);
            self.spawn();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    fn org(nth: usize) -> OrgId {
        OrgId::new(format!("org-{nth}"))
    }

    #[tokio::test]
    async fn every_piece_is_answered_and_a_panic_hurts_only_its_own() {
        let pool = ComputePool::new(2).unwrap();
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
}
