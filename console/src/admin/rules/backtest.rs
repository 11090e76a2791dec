//! `POST /admin/v1/rules/backtest`: compares documents with the live configuration on a piece of the stored items.
//!
//! A run is many requests with the same documents. Each answers with findings that add up, and with where to go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidegate_catalog::{Compiled, change::Difference};
use tidegate_moderation::{
    items::history,
    reevaluation::backtest::{Findings, Head, Trial},
};
use tidegate_schemas::{
    documents::DocumentKind,
    ids::{ConfigVersion, OrgId, RuleId, WindowId},
};
use tidegate_web::Problem;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use super::{Budget, ITEMS, place, span};
use crate::admin::{
    Api,
    caller::Caller,
    config::{Changed, Named, refused},
    extract::Body,
    faults,
};

/// Candidates that stay compiled between requests, and how many of them are judged at once.
const TRIALS: usize = 4;
const AT_ONCE: usize = 1;

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

/// Candidates that were compiled lately.
pub(crate) struct Trials {
    kept: Mutex<Vec<Arc<Tried>>>,
    at_once: Semaphore,
}

pub(super) struct Tried {
    org: OrgId,
    digest: [u8; 32],
    trial: Arc<Trial>,
    version: ConfigVersion,
    changes: Vec<Difference>,
    warnings: Vec<String>,
}

impl Default for Trials {
    fn default() -> Self {
        Self { kept: Mutex::default(), at_once: Semaphore::new(AT_ONCE) }
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
    /// Items that come in meanwhile have the processors to themselves, but for whose turn it is.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.at_once.acquire().await.map_err(|_| Problem::internal())
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
        let mut kept = self.kept.lock().await;
        kept.retain(|tried| tried.org != *org || Arc::ptr_eq(&tried.trial.live, &live));
        if let Some(tried) = kept.iter().find(|tried| tried.org == *org && tried.digest == digest) {
            return Ok(Arc::clone(tried));
        }
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
        if kept.len() >= TRIALS {
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
    let _turn = api.trials.turn().await?;
    let live = deps.live.latest(org).await.map_err(faults::catalog)?;
    let tried = api.trials.find(&api, org, live, wanted.files, wanted.prune).await?;
    let trial = &tried.trial;

    let (budget, mut findings) = (Budget::begin(), Findings::default());
    loop {
        let page = history::page(&deps.store, org, &span, from.take(), ITEMS).await;
        let page = page.map_err(faults::moderation)?;
        let judged = trial.compare(&deps.store, org, page.items, api.deps.window_rows).await;
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
