//! Trials of candidate configurations: compiles them, keeps recent ones, and gives orgs turns to evaluate stored items.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_recursion::async_recursion as boxed;
use sha2::{Digest as _, Sha256};
use tidegate_catalog::{
    ApplyError, Changes, Compiled, OrgPermits,
    change::{Difference, File},
};
use tidegate_schemas::{
    documents::DocumentKind,
    ids::{ConfigVersion, OrgId, WindowId},
};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::backtest::ConfigComparison;

/// Compiled candidates kept between requests: for one org, and for all orgs together.
const MAX_TRIALS_PER_ORG: usize = 2;
const MAX_TRIALS: usize = 8;

/// Reason why a request gets no trial or no turn.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error("stored items are evaluated for one request at a time, and {other_requests} more wait")]
    Busy {
        /// Number of other requests that wait.
        other_requests: usize,
    },
    #[error("the configuration changed after it was loaded")]
    ConfigChanged,
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Recently compiled candidates, and the queue of requests that evaluate stored items.
#[derive(Default)]
pub struct Trials {
    cached: Mutex<Vec<Arc<Trial>>>,
    queue: TurnQueue,
}

/// Lets one request evaluate stored items at a time and gives orgs turns: one request of each org is in the queue,
/// its other requests wait behind it.
struct TurnQueue {
    org_permits: OrgPermits,
    evaluation_permit: Arc<Semaphore>,
    waiting_requests: AtomicUsize,
}

/// Permit of an org to compile candidates and to enter the queue for evaluation. Released on drop.
pub struct OrgTurn {
    _org: OwnedSemaphorePermit,
}

/// Permit to evaluate stored items. Released on drop.
pub struct EvaluationTurn {
    _all: OwnedSemaphorePermit,
    _org: OrgTurn,
}

/// Compiled candidate with the request that it belongs to.
pub struct Trial {
    pub comparison: Arc<ConfigComparison>,
    /// Live version that the candidate is compared with.
    pub version: ConfigVersion,
    pub changes: Vec<Difference>,
    pub warnings: Vec<String>,
    org: OrgId,
    digest: [u8; 32],
}

impl Default for TurnQueue {
    fn default() -> Self {
        Self {
            org_permits: OrgPermits::new(1),
            evaluation_permit: Arc::new(Semaphore::new(1)),
            waiting_requests: AtomicUsize::new(0),
        }
    }
}

impl TurnQueue {
    async fn acquire_org_turn(&self, org: &OrgId, max_wait: Duration) -> Result<OrgTurn, TrialError> {
        let permit = async { OrgTurn { _org: self.org_permits.acquire(org).await } };
        self.await_permit(permit, max_wait).await
    }

    async fn acquire_turn(
        &self,
        org_turn: OrgTurn,
        max_wait: Duration,
    ) -> Result<EvaluationTurn, TrialError> {
        let permit = async {
            let all = Arc::clone(&self.evaluation_permit)
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            EvaluationTurn { _all: all, _org: org_turn }
        };
        self.await_permit(permit, max_wait).await
    }

    /// Waits for a permit. If the client disconnects, its request is dropped and leaves the queue.
    async fn await_permit<T>(
        &self,
        permit: impl Future<Output = T>,
        max_wait: Duration,
    ) -> Result<T, TrialError> {
        let waiting_request = WaitingRequest::new(&self.waiting_requests);
        let result = timeout(max_wait, permit).await;
        result.map_err(|_| TrialError::Busy { other_requests: waiting_request.count_others() })
    }
}

/// Counts a request as waiting until it is dropped.
struct WaitingRequest<'a>(&'a AtomicUsize);

impl<'a> WaitingRequest<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }

    fn count_others(&self) -> usize {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Trial {
    pub fn candidate(&self) -> Arc<Compiled> {
        Arc::clone(&self.comparison.candidate)
    }

    pub fn uncounted(&self) -> BTreeSet<WindowId> {
        self.comparison.uncounted.clone()
    }
}

impl Trials {
    /// Waits for the org's other requests that compile candidates or evaluate stored items.
    #[boxed]
    pub async fn acquire_org_turn(&self, org: &OrgId, max_wait: Duration) -> Result<OrgTurn, TrialError> {
        self.queue.acquire_org_turn(org, max_wait).await
    }

    /// Waits for the evaluations of other orgs. One evaluation at a time leaves the remaining processors to new
    /// items.
    #[boxed]
    pub async fn acquire_turn(
        &self,
        org_turn: OrgTurn,
        max_wait: Duration,
    ) -> Result<EvaluationTurn, TrialError> {
        self.queue.acquire_turn(org_turn, max_wait).await
    }

    /// Returns the cached trial of these documents, or compiles one. A trial is valid for one live configuration and
    /// one revision of its banks.
    #[boxed]
    pub async fn find_or_compile(
        &self,
        changes: &Changes,
        org: &OrgId,
        live: Arc<Compiled>,
        files: Vec<File>,
        prune: bool,
    ) -> Result<Arc<Trial>, TrialError> {
        let digest = hash_documents(&files, prune);
        {
            let mut cached = self.cached.lock().await;
            // Trials against an earlier configuration of the org cannot be used again.
            cached.retain(|trial| trial.org != *org || Arc::ptr_eq(&trial.comparison.live, &live));
            if let Some(trial) = cached.iter().find(|trial| trial.org == *org && trial.digest == digest) {
                return Ok(Arc::clone(trial));
            }
        }
        // Compiled without the lock. The org's turn prevents a second compilation of the same candidate.
        let candidate = changes.build_candidate(org, files, prune).await?;
        // The configuration changed after it was loaded. Both sides must start from the same version, or the run
        // would report the effects of that change as well.
        if candidate.base_version != live.version() {
            return Err(TrialError::ConfigChanged);
        }
        let windows =
            candidate.differences.iter().filter(|difference| difference.kind == DocumentKind::Window);
        let uncounted = windows.map(|window| WindowId::new(&window.key)).collect();
        let compiled = Arc::new(candidate.compiled.with_hash_banks_of(&live));
        let trial = Arc::new(Trial {
            comparison: Arc::new(ConfigComparison::new(live, compiled, uncounted)),
            version: candidate.base_version,
            changes: candidate.differences,
            warnings: candidate.warnings.iter().map(ToString::to_string).collect(),
            org: org.clone(),
            digest,
        });
        let mut cached = self.cached.lock().await;
        let count_of_org = || cached.iter().filter(|trial| trial.org == *org).count();
        if count_of_org() >= MAX_TRIALS_PER_ORG
            && let Some(oldest) = cached.iter().position(|trial| trial.org == *org)
        {
            cached.remove(oldest);
        } else if cached.len() >= MAX_TRIALS {
            // The oldest trial of any org makes room; its next request compiles it again.
            cached.remove(0);
        }
        cached.push(Arc::clone(&trial));
        Ok(trial)
    }
}

fn hash_documents(files: &[File], prune: bool) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update([u8::from(prune)]);
    for (name, document) in files {
        // Each text is preceded by its length: otherwise moving text from one file to the next would keep the hash.
        for text in [name, document] {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};

    use super::*;

    async fn acquire_turn(
        queue: &TurnQueue,
        org: &OrgId,
        max_wait: Duration,
    ) -> Result<EvaluationTurn, TrialError> {
        let org_turn = queue.acquire_org_turn(org, max_wait).await?;
        queue.acquire_turn(org_turn, max_wait).await
    }

    #[tokio::test]
    async fn compiling_org_does_not_delay_evaluations_of_others() {
        let (queue, patience) = (TurnQueue::default(), Duration::from_secs(600));
        let (busy, other) = (OrgId::new("busy"), OrgId::new("other"));
        let compiling = queue.acquire_org_turn(&busy, patience).await.ok().unwrap();
        assert!(acquire_turn(&queue, &busy, patience).boxed().now_or_never().is_none());
        assert!(acquire_turn(&queue, &other, patience).now_or_never().unwrap().is_ok());
        assert!(queue.acquire_turn(compiling, patience).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn orgs_take_turns_regardless_of_request_counts() {
        let (queue, patience) = (TurnQueue::default(), Duration::from_secs(600));
        let (busy, other) = (OrgId::new("busy"), OrgId::new("other"));
        let running = acquire_turn(&queue, &busy, patience).await.ok().unwrap();
        let mut waiting: Vec<_> = (0..30).map(|_| acquire_turn(&queue, &busy, patience).boxed()).collect();
        for request in &mut waiting {
            assert!(poll!(request).is_pending());
        }
        let mut others = acquire_turn(&queue, &other, patience).boxed();
        assert!(poll!(&mut others).is_pending());
        drop(running);
        assert!(poll!(&mut waiting[0]).is_pending(), "the other org comes first");
        let turn = others.now_or_never().unwrap().ok().unwrap();
        drop(turn);
        assert!(waiting.remove(0).now_or_never().is_some());
    }

    #[tokio::test]
    async fn request_that_waits_too_long_is_refused() {
        let (queue, org) = (TurnQueue::default(), OrgId::new("o"));
        let _running = acquire_turn(&queue, &org, Duration::from_secs(600)).await.ok().unwrap();
        let refused = acquire_turn(&queue, &org, Duration::ZERO).await.err().unwrap();
        assert!(matches!(refused, TrialError::Busy { other_requests: 0 }));
        assert_eq!(queue.waiting_requests.load(Ordering::Relaxed), 0);
    }
}
