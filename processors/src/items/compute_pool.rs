//! Runs computation off the async threads: on threads of its own, many pieces a task, each caught if it panics.
//!
//! Threads go to the org that has used the least computing time, so that an org with slow rules delays the others by no
//! more than a piece a thread. Turns by number of pieces would give it most of the time. Memory is bounded by the callers,
//! who hold a place of their worker while they wait.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::sync::oneshot;

use crate::consumer::error::Panicked;

/// Number of pieces of work that one task does before it yields the thread.
const PIECES: usize = 64;

/// Number of orgs without work that are remembered beside as many with work.
const IDLE_ORGS: usize = 64;

type Piece = Box<dyn FnOnce() + Send>;

#[derive(Clone, Debug)]
pub(crate) struct ComputePool {
    threads: Arc<rayon::ThreadPool>,
    queue: Arc<Mutex<FairQueue>>,
    most_tasks: usize,
}

/// Queues of the orgs, ordered by the time that each has used.
#[derive(Default)]
struct FairQueue {
    orgs: HashMap<OrgId, OrgQueue>,
    /// Orgs with pieces that wait, the one that has used the least first.
    waiting: BTreeSet<(Duration, OrgId)>,
    /// Time used by the org that was served last. An org that comes back starts here: idle time is not saved up.
    now: Duration,
    tasks: usize,
}

#[derive(Default)]
struct OrgQueue {
    pieces: VecDeque<Piece>,
    used: Duration,
}

impl FairQueue {
    fn push(&mut self, org: &OrgId, piece: Piece) {
        if self.orgs.len() > 2 * self.waiting.len() + IDLE_ORGS {
            let now = self.now;
            self.orgs.retain(|_, queue| !queue.pieces.is_empty() || queue.used > now);
        }
        let queue = self.orgs.entry(org.clone()).or_default();
        if queue.pieces.is_empty() {
            queue.used = queue.used.max(self.now);
            self.waiting.insert((queue.used, org.clone()));
        }
        queue.pieces.push_back(piece);
    }

    fn pop(&mut self) -> Option<(OrgId, Piece)> {
        let (used, org) = self.waiting.pop_first()?;
        self.now = self.now.max(used);
        let queue = self.orgs.get_mut(&org)?;
        let piece = queue.pieces.pop_front()?;
        if !queue.pieces.is_empty() {
            self.waiting.insert((used, org.clone()));
        }
        Some((org, piece))
    }

    /// Adds time that a piece of the org took.
    fn charge(&mut self, org: &OrgId, took: Duration) {
        let Some(queue) = self.orgs.get_mut(org) else { return };
        let waits = self.waiting.remove(&(queue.used, org.clone()));
        queue.used += took;
        if waits {
            self.waiting.insert((queue.used, org.clone()));
        } else if self.waiting.is_empty() {
            // Nobody else wanted the time, so it is held against nobody.
            self.now = self.now.max(queue.used);
        }
    }
}

impl std::fmt::Debug for FairQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairQueue")
            .field("waiting", &self.waiting.len())
            .field("tasks", &self.tasks)
            .finish_non_exhaustive()
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
        queue.push(org, piece);
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
            let Some((org, piece)) = self.queue.lock().pop() else { break };
            let began = Instant::now();
            piece();
            self.queue.lock().charge(&org, began.elapsed());
        }
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() {
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

    use proptest::prelude::*;

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

    #[test]
    fn slow_pieces_of_one_org_leave_the_others_their_time() {
        let mut queue = FairQueue::default();
        let (slow, quick) = (org(0), org(1));
        (0..100).for_each(|_| queue.push(&slow, Box::new(|| {})));
        (0..100).for_each(|_| queue.push(&quick, Box::new(|| {})));
        let mut slow_before_quick_ended = 0;
        for _ in 0..200 {
            let (org, piece) = queue.pop().unwrap();
            piece();
            let is_slow = org == slow;
            queue.charge(&org, Duration::from_millis(if is_slow { 50 } else { 1 }));
            let quick_left = queue.orgs.get(&quick).is_some_and(|queue| !queue.pieces.is_empty());
            slow_before_quick_ended += usize::from(is_slow && quick_left);
        }
        assert_eq!(slow_before_quick_ended, 2, "100 ms of quick pieces stand beside 100 ms of slow ones");
        assert!(queue.pop().is_none());
    }

    #[test]
    fn orgs_without_work_are_forgotten() {
        let mut queue = FairQueue::default();
        for nth in 0..10_000 {
            queue.push(&org(nth), Box::new(|| {}));
            let (org, _) = queue.pop().unwrap();
            queue.charge(&org, Duration::from_nanos(nth as u64 % 3));
        }
        assert!(queue.orgs.len() <= 2 * IDLE_ORGS, "{} are remembered", queue.orgs.len());
    }

    proptest! {
        /// Orgs that always have work get the same time, but for the pieces that run.
        #[test]
        fn busy_orgs_get_equal_time(costs in prop::collection::vec(1..100_u64, 2..6), threads in 1..4_usize) {
            let mut queue = FairQueue::default();
            let mut used = vec![0; costs.len()];
            for nth in 0..costs.len() {
                (0..2_000).for_each(|_| queue.push(&org(nth), Box::new(|| {})));
            }
            let (mut clock, mut running) = (0, BTreeSet::new());
            for piece in 0..1_000_usize {
                if running.len() == threads {
                    let (ends, _, nth): (u64, usize, usize) = running.pop_first().unwrap();
                    clock = ends;
                    queue.charge(&org(nth), Duration::from_millis(costs[nth]));
                    used[nth] += costs[nth];
                }
                let (next, _) = queue.pop().unwrap();
                let nth = (0..costs.len()).find(|nth| org(*nth) == next).unwrap();
                running.insert((clock + costs[nth], piece, nth));
            }
            let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
            let piece = costs.iter().max().unwrap();
            prop_assert!(most - least <= piece * (threads as u64 + 1), "{used:?} of pieces of {costs:?}");
        }
    }
}
