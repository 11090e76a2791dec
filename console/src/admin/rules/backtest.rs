//! `POST /admin/v1/rules/backtest`: compares documents with the live configuration on a piece of the stored items.
//!
//! A run is many requests with the same documents. Each answers with findings that add up, and with where to go on.

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
    reevaluation::backtest::{Findings, Head, Trial},
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

use super::{Budget, ITEMS, place, span};
use crate::admin::{
    Api,
    caller::Caller,
    config::{Changed, Named, refused},
    extract::Body,
    faults,
};

/// Candidates that stay compiled between requests, of one org and in all.
const TRIALS_PER_ORG: usize = 2;
const TRIALS: usize = 8;

/// Time after which a client that was refused may ask again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wanted {
    files: Vec<Named>,
    /// True if documents that are not in the files are removed.
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
pub(super) struct Answer {
    /// The version that the documents are compared with.
    version: ConfigVersion,
    changes: Vec<Changed>,
    warnings: Vec<String>,
    uncounted_windows: Vec<WindowId>,
    rules: BTreeMap<RuleId, Head>,
    findings: Findings,
    /// Cursor of the next request; null at the end.
    next: Option<String>,
    /// Everything before it was read.
    through: String,
}

/// Candidates that were compiled lately, and the queue of those who evaluate stored items.
#[derive(Default)]
pub(crate) struct Trials {
    kept: Mutex<Vec<Arc<Tried>>>,
    queue: TurnQueue,
}

/// Lets one request evaluate stored items at a time, and the orgs in turn: of each org one request stands in the queue, the
/// others wait behind it.
struct TurnQueue {
    orgs: OrgPermits,
    all: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Right of an org to compile candidates, and to be next when it evaluates stored items. Until it is dropped.
pub(super) struct OrgTurn {
    _org: OwnedSemaphorePermit,
}

/// Right to evaluate stored items, until it is dropped.
pub(super) struct Turn {
    _all: OwnedSemaphorePermit,
    _org: OrgTurn,
}

pub(super) struct Tried {
    org: OrgId,
    digest: [u8; 32],
    trial: Arc<Trial>,
    version: ConfigVersion,
    changes: Vec<Difference>,
    warnings: Vec<String>,
}

impl Default for TurnQueue {
    fn default() -> Self {
        Self { orgs: OrgPermits::new(1), all: Arc::new(Semaphore::new(1)), waiting: AtomicUsize::new(0) }
    }
}

impl TurnQueue {
    async fn org_turn(&self, org: &OrgId, patience: Duration) -> Result<OrgTurn, Problem> {
        let turn = async { Ok(OrgTurn { _org: self.orgs.acquire(org).await }) };
        self.wait(turn, patience).await
    }

    async fn turn(&self, org_turn: OrgTurn, patience: Duration) -> Result<Turn, Problem> {
        let turn = async {
            let all = Arc::clone(&self.all).acquire_owned().await.map_err(|_| Problem::internal())?;
            Ok(Turn { _all: all, _org: org_turn })
        };
        self.wait(turn, patience).await
    }

    /// Waits for a turn. A request whose client has gone leaves the queue.
    async fn wait<T>(
        &self,
        turn: impl Future<Output = Result<T, Problem>>,
        patience: Duration,
    ) -> Result<T, Problem> {
        let waits = Waits::new(&self.waiting);
        timeout(patience, turn).await.unwrap_or_else(|_| {
            let others = waits.others();
            let detail = format!(
                "Stored items are evaluated for one request at a time, and {others} more wait: ask again. A run goes on at \
                 its `cursor`."
            );
            Err(Problem::unavailable(detail, ASK_AGAIN))
        })
    }
}

/// Counts a request that waits.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }

    fn others(&self) -> usize {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tried {
    pub(super) fn candidate(&self) -> Arc<Compiled> {
        Arc::clone(&self.trial.candidate)
    }

    pub(super) fn uncounted(&self) -> BTreeSet<WindowId> {
        self.trial.uncounted.clone()
    }
}

impl Trials {
    /// Waits for the org's other requests that compile candidates or evaluate stored items.
    pub(super) async fn org_turn(&self, org: &OrgId, patience: Duration) -> Result<OrgTurn, Problem> {
        self.queue.org_turn(org, patience).await
    }

    /// Waits for the evaluations of other orgs. Items that come in meanwhile have the processors to themselves, but for whose
    /// turn it is.
    pub(super) async fn turn(&self, org_turn: OrgTurn, patience: Duration) -> Result<Turn, Problem> {
        self.queue.turn(org_turn, patience).await
    }

    /// Another live configuration, or other entries of its banks, make another trial.
    pub(super) async fn find(
        &self,
        api: &Api,
        org: &OrgId,
        live: Arc<Compiled>,
        files: Vec<Named>,
        prune: bool,
    ) -> Result<Arc<Tried>, Problem> {
        let digest = digest(&files, prune);
        {
            let mut kept = self.kept.lock().await;
            kept.retain(|tried| tried.org != *org || Arc::ptr_eq(&tried.trial.live, &live));
            if let Some(tried) = kept.iter().find(|tried| tried.org == *org && tried.digest == digest) {
                return Ok(Arc::clone(tried));
            }
        }
        // Compiled without the lock: the org's turn keeps a second one from being made.
        let files = files.into_iter().map(Named::into_file).collect();
        let candidate = api.deps.changes.candidate(org, files, prune).await.map_err(refused)?;
        if candidate.from != live.version() {
            return Err(Problem::conflict("The configuration has just changed: ask again."));
        }
        let windows = candidate.differences.iter().filter(|it| it.kind == DocumentKind::Window);
        let uncounted = windows.map(|it| WindowId::new(&it.key)).collect();
        let compiled = Arc::new(candidate.compiled.beside(&live));
        let tried = Arc::new(Tried {
            org: org.clone(),
            digest,
            trial: Arc::new(Trial::new(live, compiled, uncounted)),
            version: candidate.from,
            changes: candidate.differences,
            warnings: candidate.warnings.iter().map(ToString::to_string).collect(),
        });
        let mut kept = self.kept.lock().await;
        let own = || kept.iter().filter(|tried| tried.org == *org).count();
        if own() >= TRIALS_PER_ORG
            && let Some(oldest) = kept.iter().position(|tried| tried.org == *org)
        {
            kept.remove(oldest);
        } else if kept.len() >= TRIALS {
            kept.remove(0);
        }
        kept.push(Arc::clone(&tried));
        Ok(tried)
    }
}

fn digest(files: &[Named], prune: bool) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update([u8::from(prune)]);
    for file in files {
        for text in [&file.name, &file.text] {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
    }
    hash.finalize().into()
}

pub(crate) async fn step(
    State(api): State<Api>,
    caller: Caller,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Answer>, Problem> {
    let span = span(&wanted.since, &wanted.until, wanted.sample_percent)?;
    let mut from = place(wanted.cursor.as_deref())?;
    let org = &caller.org;
    let deps = &api.deps.moderation;
    let org_turn = api.trials.org_turn(org, api.settings.turn_wait()).await?;
    let live = deps.live.latest(org).await.map_err(faults::catalog)?;
    let tried = api.trials.find(&api, org, live, wanted.files, wanted.prune).await?;
    // After the candidate, for which the org may wait behind its own changes.
    let _turn = api.trials.turn(org_turn, api.settings.turn_wait()).await?;
    let trial = &tried.trial;

    let (budget, mut findings) = (Budget::begin(), Findings::default());
    // Slow rules take seconds an item: the time is looked at after the first one, and less and less often.
    let mut items = 1;
    loop {
        let page = history::page(&deps.store, org, &span, from.take(), items).await;
        let page = page.map_err(faults::moderation)?;
        items = (2 * items).min(ITEMS);
        let visible = caller.clearance().visible_items(&deps.store, org, page.items).await;
        let visible = visible.map_err(faults::moderation)?;
        let judged = trial.compare(&deps.store, org, visible, api.deps.window_rows).await;
        findings.join(judged.map_err(faults::moderation)?);
        from = page.next;
        if from.is_none() || budget.is_spent() {
            break;
        }
    }
    let through = from.as_ref().map_or(span.time.end, |place| place.at().max(span.time.start));
    Ok(Json(Answer {
        version: tried.version,
        changes: tried.changes.iter().cloned().map(Changed::from).collect(),
        warnings: tried.warnings.clone(),
        uncounted_windows: trial.uncounted.iter().cloned().collect(),
        rules: trial.heads(findings.rules.keys()),
        findings,
        next: from.map(|place| place.to_string()),
        through: through.iso(),
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};

    use super::*;

    async fn turn(queue: &TurnQueue, org: &OrgId, patience: Duration) -> Result<Turn, Problem> {
        let org_turn = queue.org_turn(org, patience).await?;
        queue.turn(org_turn, patience).await
    }

    #[tokio::test]
    async fn org_that_compiles_candidates_delays_no_evaluation_of_others() {
        let (queue, patience) = (TurnQueue::default(), Duration::from_secs(600));
        let (busy, other) = (OrgId::new("busy"), OrgId::new("other"));
        let compiling = queue.org_turn(&busy, patience).await.ok().unwrap();
        assert!(turn(&queue, &busy, patience).boxed().now_or_never().is_none());
        assert!(turn(&queue, &other, patience).now_or_never().unwrap().is_ok());
        assert!(queue.turn(compiling, patience).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn orgs_take_turns_however_many_requests_one_has() {
        let (queue, patience) = (TurnQueue::default(), Duration::from_secs(600));
        let (busy, other) = (OrgId::new("busy"), OrgId::new("other"));
        let running = turn(&queue, &busy, patience).await.ok().unwrap();
        let mut waiting: Vec<_> = (0..30).map(|_| turn(&queue, &busy, patience).boxed()).collect();
        for request in &mut waiting {
            assert!(poll!(request).is_pending());
        }
        let mut others = turn(&queue, &other, patience).boxed();
        assert!(poll!(&mut others).is_pending());
        drop(running);
        assert!(poll!(&mut waiting[0]).is_pending(), "the other org comes first");
        let turn = others.now_or_never().unwrap().ok().unwrap();
        drop(turn);
        assert!(waiting.remove(0).now_or_never().is_some());
    }

    #[tokio::test]
    async fn request_that_waited_too_long_is_told_to_ask_again() {
        let (queue, org) = (TurnQueue::default(), OrgId::new("o"));
        let _running = turn(&queue, &org, Duration::from_secs(600)).await.ok().unwrap();
        let refused = turn(&queue, &org, Duration::ZERO).await.err().unwrap();
        assert_eq!(refused.status, 503);
        assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
    }
}
