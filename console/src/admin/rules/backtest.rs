//! `POST /admin/v1/rules/backtest`: compares documents with the live configuration on stored items.
//!
//! A run consists of many requests with the same documents. Each answers with findings to add up and with the next cursor.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidegate_catalog::{Compiled, OrgPermits, change::Difference};
use tidegate_moderation::{
    items::history,
    reevaluation::backtest::{BacktestFindings, ComparedRule, ConfigComparison},
};
use tidegate_schemas::{
    documents::DocumentKind,
    ids::{ConfigVersion, OrgId, RuleId, WindowId},
};
use tidegate_web::Problem;
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{MAX_BATCH_ITEMS, TimeBudget, parse_cursor, parse_span};
use crate::{
    admin::{
        config::documents::{DocumentChange, NamedFile, apply_problem},
        request::{Body, Caller, faults},
    },
    api::Api,
};

/// Compiled candidates kept between requests: for one org, and for all orgs together.
const MAX_TRIALS_PER_ORG: usize = 2;
const MAX_TRIALS: usize = 8;

/// `Retry-After` of a request that waited too long for its turn.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BacktestRequest {
    files: Vec<NamedFile>,
    /// True if documents missing from the files are removed.
    #[serde(default)]
    prune: bool,
    since: String,
    until: String,
    #[serde(default)]
    sample_percent: Option<f64>,
    #[serde(default)]
    cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BacktestResponse {
    /// Live version that the documents are compared with.
    version: ConfigVersion,
    changes: Vec<DocumentChange>,
    warnings: Vec<String>,
    uncounted_windows: Vec<WindowId>,
    rules: BTreeMap<RuleId, ComparedRule>,
    findings: BacktestFindings,
    /// Cursor of the next request; null at the end.
    next: Option<String>,
    /// Time up to which all items were evaluated.
    through: String,
}

/// Recently compiled candidates, and the queue of requests that evaluate stored items.
#[derive(Default)]
pub(crate) struct Trials {
    cached: Mutex<Vec<Arc<CachedTrial>>>,
    queue: TurnQueue,
}

/// Lets one request evaluate stored items at a time and gives orgs turns: one request of each org is in the queue, its other
/// requests wait behind it.
struct TurnQueue {
    org_permits: OrgPermits,
    evaluation_permit: Arc<Semaphore>,
    waiting_requests: AtomicUsize,
}

/// Permit of an org to compile candidates and to enter the queue for evaluation. Released on drop.
pub(super) struct OrgTurn {
    _org: OwnedSemaphorePermit,
}

/// Permit to evaluate stored items. Released on drop.
pub(super) struct EvaluationTurn {
    _all: OwnedSemaphorePermit,
    _org: OrgTurn,
}

/// Compiled candidate with the request that it belongs to.
pub(super) struct CachedTrial {
    org: OrgId,
    digest: [u8; 32],
    trial: Arc<ConfigComparison>,
    version: ConfigVersion,
    changes: Vec<Difference>,
    warnings: Vec<String>,
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
    async fn acquire_org_turn(&self, org: &OrgId, patience: Duration) -> Result<OrgTurn, Problem> {
        let permit = async { Ok(OrgTurn { _org: self.org_permits.acquire(org).await }) };
        self.await_permit(permit, patience).await
    }

    async fn acquire_turn(&self, org_turn: OrgTurn, patience: Duration) -> Result<EvaluationTurn, Problem> {
        let permit = async {
            let all =
                Arc::clone(&self.evaluation_permit).acquire_owned().await.map_err(|_| Problem::internal())?;
            Ok(EvaluationTurn { _all: all, _org: org_turn })
        };
        self.await_permit(permit, patience).await
    }

    /// Waits for a permit up to `patience`. If the client disconnects, its request is dropped and leaves the queue.
    async fn await_permit<T>(
        &self,
        permit: impl Future<Output = Result<T, Problem>>,
        patience: Duration,
    ) -> Result<T, Problem> {
        let waiting_request = WaitingRequest::new(&self.waiting_requests);
        timeout(patience, permit).await.unwrap_or_else(|_| {
            let other_requests = waiting_request.count_others();
            let detail = format!(
                "Stored items are evaluated for one request at a time, and {other_requests} more wait: try again. A run continues at \
                 its `cursor`."
            );
            Err(Problem::unavailable(detail, RETRY_AFTER))
        })
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

impl CachedTrial {
    pub(super) fn candidate(&self) -> Arc<Compiled> {
        Arc::clone(&self.trial.candidate)
    }

    pub(super) fn uncounted(&self) -> BTreeSet<WindowId> {
        self.trial.uncounted.clone()
    }
}

impl Trials {
    /// Waits for the org's other requests that compile candidates or evaluate stored items.
    pub(super) async fn acquire_org_turn(&self, org: &OrgId, patience: Duration) -> Result<OrgTurn, Problem> {
        self.queue.acquire_org_turn(org, patience).await
    }

    /// Waits for the evaluations of other orgs. One evaluation at a time leaves the remaining processors to new items.
    pub(super) async fn acquire_turn(
        &self,
        org_turn: OrgTurn,
        patience: Duration,
    ) -> Result<EvaluationTurn, Problem> {
        self.queue.acquire_turn(org_turn, patience).await
    }

    /// Returns the cached trial of these documents, or compiles one. A trial is valid for one live configuration and one revision
    /// of its banks.
    pub(super) async fn find_or_compile(
        &self,
        api: &Api,
        org: &OrgId,
        live: Arc<Compiled>,
        files: Vec<NamedFile>,
        prune: bool,
    ) -> Result<Arc<CachedTrial>, Problem> {
        let digest = hash_documents(&files, prune);
        {
            let mut cached = self.cached.lock().await;
            // Trials against an earlier configuration of the org cannot be used again.
            cached.retain(|entry| entry.org != *org || Arc::ptr_eq(&entry.trial.live, &live));
            if let Some(cached_trial) =
                cached.iter().find(|candidate| candidate.org == *org && candidate.digest == digest)
            {
                return Ok(Arc::clone(cached_trial));
            }
        }
        // Compiled without the lock. The org's turn prevents a second compilation of the same candidate.
        let files = files.into_iter().map(NamedFile::into_file).collect();
        let candidate = api.deps.changes.build_candidate(org, files, prune).await.map_err(apply_problem)?;
        // The configuration changed after it was loaded. Both sides must start from the same version, or the run would report
        // the effects of that change as well.
        if candidate.base_version != live.version() {
            return Err(Problem::conflict("The configuration has just changed: try again."));
        }
        let windows =
            candidate.differences.iter().filter(|difference| difference.kind == DocumentKind::Window);
        let uncounted = windows.map(|window| WindowId::new(&window.key)).collect();
        let compiled = Arc::new(candidate.compiled.with_hash_banks_of(&live));
        let cached_trial = Arc::new(CachedTrial {
            org: org.clone(),
            digest,
            trial: Arc::new(ConfigComparison::new(live, compiled, uncounted)),
            version: candidate.base_version,
            changes: candidate.differences,
            warnings: candidate.warnings.iter().map(ToString::to_string).collect(),
        });
        let mut cached = self.cached.lock().await;
        let count_of_org = || cached.iter().filter(|entry| entry.org == *org).count();
        if count_of_org() >= MAX_TRIALS_PER_ORG
            && let Some(oldest) = cached.iter().position(|entry| entry.org == *org)
        {
            cached.remove(oldest);
        } else if cached.len() >= MAX_TRIALS {
            // The oldest trial of any org makes room; its next request compiles it again.
            cached.remove(0);
        }
        cached.push(Arc::clone(&cached_trial));
        Ok(cached_trial)
    }
}

fn hash_documents(files: &[NamedFile], prune: bool) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update([u8::from(prune)]);
    for file in files {
        // Each text is preceded by its length: otherwise moving text from one file to the next would keep the hash.
        for text in [&file.name, &file.text] {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
    }
    hash.finalize().into()
}

pub(crate) async fn run_step(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<BacktestRequest>,
) -> Result<Json<BacktestResponse>, Problem> {
    let span = parse_span(&request.since, &request.until, request.sample_percent)?;
    let mut cursor = parse_cursor(request.cursor.as_deref())?;
    let org = &caller.org;
    let deps = &api.deps.moderation;
    let org_turn = api.trials.acquire_org_turn(org, api.settings.turn_wait()).await?;
    let live = deps.live.load_latest(org).await.map_err(faults::catalog_problem)?;
    let cached_trial = api.trials.find_or_compile(&api, org, live, request.files, request.prune).await?;
    // Taken after compiling: the candidate may wait behind the org's own changes, and must not hold up other orgs.
    let _turn = api.trials.acquire_turn(org_turn, api.settings.turn_wait()).await?;
    let trial = &cached_trial.trial;

    let (budget, mut findings) = (TimeBudget::start(), BacktestFindings::default());
    // Slow rules take seconds per item: the time is checked after the first item, then after growing batches.
    let mut items = 1;
    loop {
        let page = history::load_page(&deps.store, org, &span, cursor.take(), items).await;
        let page = page.map_err(faults::moderation_problem)?;
        items = (2 * items).min(MAX_BATCH_ITEMS);
        // Filtered before the comparison, so that the findings do not depend on withheld items.
        let visible = caller.clearance().visible_items(&deps.store, org, page.items).await;
        let visible = visible.map_err(faults::moderation_problem)?;
        let comparison = trial.compare(&deps.store, org, visible, api.deps.window_rows).await;
        findings.join(comparison.map_err(faults::moderation_problem)?);
        cursor = page.next;
        if cursor.is_none() || budget.is_spent() {
            break;
        }
    }
    // The time of a cursor is the start of its hour, which can lie before the span.
    let through = cursor.as_ref().map_or(span.time.end, |place| place.partition.at().max(span.time.start));
    Ok(Json(BacktestResponse {
        version: cached_trial.version,
        changes: cached_trial.changes.iter().cloned().map(DocumentChange::from).collect(),
        warnings: cached_trial.warnings.clone(),
        uncounted_windows: trial.uncounted.iter().cloned().collect(),
        rules: trial.heads(findings.rules.keys()),
        findings,
        next: cursor.map(|place| place.to_string()),
        through: through.iso(),
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};

    use super::*;

    async fn acquire_turn(
        queue: &TurnQueue,
        org: &OrgId,
        patience: Duration,
    ) -> Result<EvaluationTurn, Problem> {
        let org_turn = queue.acquire_org_turn(org, patience).await?;
        queue.acquire_turn(org_turn, patience).await
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
    async fn request_that_waits_too_long_is_answered_with_503() {
        let (queue, org) = (TurnQueue::default(), OrgId::new("o"));
        let _running = acquire_turn(&queue, &org, Duration::from_secs(600)).await.ok().unwrap();
        let refused = acquire_turn(&queue, &org, Duration::ZERO).await.err().unwrap();
        assert_eq!(refused.status, 503);
        assert_eq!(queue.waiting_requests.load(Ordering::Relaxed), 0);
    }
}
