//! Runs long computations, such as compiling a large configuration, on blocking threads: at most one per
//! organisation, and a bounded number in total.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use tidegate_scheduler::{OrgTurn, OrgTurns};
use tidegate_schemas::ids::OrgId;
use tokio::time::timeout;

use crate::{Error, Settings};

/// Greatest cost of work that runs on the caller's thread. It takes about half a millisecond, less than
/// handing it over.
const MAX_INLINE_BYTES: usize = 16 << 10;

/// Number of bytes of JSON that take as long to read or write as one byte of documents takes to compile.
const JSON_BYTES_PER_DOCUMENT_BYTE: usize = 16;

/// Queue of computations in which organisations alternate. Clones share it.
#[derive(Clone)]
pub struct OrgWork {
    turns: OrgTurns,
    max_wait: Duration,
}

/// An organisation's permit to compute.
pub struct ComputePermit {
    _turn: OrgTurn,
}

impl OrgWork {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::with_limits(settings.computations(), settings.computation_wait())
    }

    fn with_limits(max_running: usize, max_wait: Duration) -> Self {
        Self { turns: OrgTurns::new(max_running), max_wait }
    }

    /// Waits for the org's permit. Dropping the future leaves the queue.
    #[boxed]
    pub async fn acquire(&self, org: &OrgId) -> Result<ComputePermit, Error> {
        // The limit covers the wait for the org's own requests too: an org with many requests gets `Busy` instead of
        // an unbounded wait.
        let org_turn = timeout(self.max_wait, self.turns.acquire(org)).await.map_err(|_| Error::Busy)?;
        Ok(ComputePermit { _turn: org_turn })
    }

    /// Reads or writes JSON of this length: inline if it is short, or else in the org's permit.
    pub async fn run_json<T: Send + 'static>(
        &self,
        org: &OrgId,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.run(org, bytes / JSON_BYTES_PER_DOCUMENT_BYTE, work).await
    }

    /// Runs work that takes about as long as compiling this many bytes of documents: inline if it is short,
    /// or else in the org's permit.
    pub async fn run<T: Send + 'static>(
        &self,
        org: &OrgId,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        // Without a permit: short work of a busy org must not wait behind its long work.
        if bytes <= MAX_INLINE_BYTES {
            return Ok(work());
        }
        let (output, _permit) = self.acquire(org).await?.run(bytes, work).await?;
        Ok(output)
    }
}

impl ComputePermit {
    /// Runs work in this permit. Started work holds the permit until it ends, even if the caller is
    /// cancelled: otherwise an org could start more work by closing connections.
    pub async fn run<T: Send + 'static>(
        self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Self), Error> {
        if bytes <= MAX_INLINE_BYTES {
            return Ok((work(), self));
        }
        let task = tokio::task::spawn_blocking(move || (work(), self));
        task.await.map_err(|panic| Error::Panicked(panic.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        thread,
    };

    use futures::{FutureExt as _, future::BoxFuture, poll};

    use super::*;

    const LONG: usize = MAX_INLINE_BYTES + 1;
    const PATIENCE: Duration = Duration::from_secs(600);

    fn org(name: &str) -> OrgId {
        OrgId::new(name)
    }

    /// Work that counts its start, and ends when the sender is dropped or used.
    fn held<'a>(
        work: &'a OrgWork,
        org: &'a OrgId,
        begun: &Arc<AtomicUsize>,
    ) -> (BoxFuture<'a, Result<(), Error>>, mpsc::Sender<()>) {
        let (end, ends) = mpsc::channel();
        let begun = Arc::clone(begun);
        let run = work.run(org, LONG, move || {
            begun.fetch_add(1, Ordering::SeqCst);
            let _ended = ends.recv();
        });
        (run.boxed(), end)
    }

    /// This runtime has one thread: work on it would block the poll of the other org's work.
    #[tokio::test]
    async fn busy_org_leaves_threads_to_other_orgs() {
        let (work, busy, other) = (OrgWork::with_limits(2, PATIENCE), org("busy"), org("other"));
        let begun = Arc::new(AtomicUsize::new(0));
        let (mut runs, ends): (Vec<_>, Vec<_>) = (0..30).map(|_| held(&work, &busy, &begun)).unzip();
        for run in &mut runs {
            assert!(poll!(run).is_pending());
        }
        assert_eq!(work.turns.count_free(), 1, "the busy org has one of the two");
        let own = thread::current().id();
        let elsewhere = work.run(&other, LONG, move || thread::current().id() != own).await.unwrap();
        assert!(elsewhere, "it has a thread of its own");
        drop(ends);
        for run in runs {
            run.await.unwrap();
        }
        assert_eq!(begun.load(Ordering::SeqCst), 30);
    }

    #[tokio::test]
    async fn cancelled_work_does_not_start() {
        let (work, org) = (OrgWork::with_limits(4, PATIENCE), org("o"));
        let begun = Arc::new(AtomicUsize::new(0));
        let running = work.acquire(&org).await.unwrap();
        let (mut left, _end) = held(&work, &org, &begun);
        assert!(poll!(&mut left).is_pending());
        drop(left);
        drop(running);
        work.run(&org, LONG, || ()).await.unwrap();
        assert_eq!(begun.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn running_work_of_a_cancelled_caller_keeps_its_permit() {
        let (work, org) = (OrgWork::with_limits(4, PATIENCE), org("o"));
        let begun = Arc::new(AtomicUsize::new(0));
        let (mut left, end) = held(&work, &org, &begun);
        assert!(poll!(&mut left).is_pending());
        drop(left);
        let mut next = work.acquire(&org).boxed();
        assert!(poll!(&mut next).is_pending());
        end.send(()).unwrap();
        next.await.unwrap();
    }

    #[tokio::test]
    async fn permit_timeout_is_an_outage() {
        let (work, org) = (OrgWork::with_limits(1, Duration::ZERO), org("o"));
        let _running = work.acquire(&org).await.unwrap();
        let refused = work.run(&org, LONG, || ()).await.unwrap_err();
        assert!(matches!(refused, Error::Busy) && refused.is_outage());
        work.run(&org, MAX_INLINE_BYTES, || ()).await.unwrap();
    }
}
