//! Runs computation off the async threads: on threads of its own, many pieces a task, each caught if it panics.
//!
//! It bounds nothing: callers hold a place of their worker while they wait.

use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::consumer::error::Panicked;

/// Number of pieces of work that one task does before it yields the thread.
const PIECES: usize = 64;

type Piece = Box<dyn FnOnce() + Send>;

#[derive(Clone, Debug)]
pub(crate) struct ComputePool {
    threads: Arc<rayon::ThreadPool>,
    queue: Arc<Mutex<Queue>>,
    most_tasks: usize,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    tasks: usize,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("pieces", &self.pieces.len()).field("tasks", &self.tasks).finish()
    }
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
        piece: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let (done, result) = oneshot::channel();
        self.enqueue(Box::new(move || {
            // Nobody waits any more, as after a revocation: the work would be for nothing.
            if !done.is_closed() {
                let result: Result<T, Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(piece));
                drop(done.send(result.map_err(|_| Panicked)));
            }
        }));
        result.await.unwrap_or(Err(Panicked))
    }

    fn enqueue(&self, piece: Piece) {
        let mut queue = self.queue.lock();
        queue.pieces.push_back(piece);
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
            let Some(piece) = self.queue.lock().pieces.pop_front() else { break };
            piece();
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

    use super::*;

    #[tokio::test]
    async fn every_piece_is_answered_and_a_panic_hurts_only_its_own() {
        let pool = ComputePool::new(2).unwrap();
        let all = (0..1_000_u32).map(|nth| {
            let pool = pool.clone();
            tokio::spawn(async move {
                pool.run(move || {
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
        tokio::time::timeout(std::time::Duration::from_secs(60), idle).await.unwrap();
    }
}
