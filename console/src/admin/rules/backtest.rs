//! `POST /admin/v1/rules/backtest`: compares documents with the live configuration on stored items.
//!
//! A run consists of many requests with the same documents. Each answers with findings to add up and with the next cursor.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use tidegate_catalog::Compiled;
use tidegate_moderation::reevaluation::{
    backtest::{BacktestFindings, BacktestStep, ComparedRule},
    trials::{Trial, TrialError},
};
use tidegate_schemas::ids::{ConfigVersion, OrgId, RuleId, WindowId};
use tidegate_web::Problem;

use super::{TimeBudget, parse_cursor, parse_span};
use crate::{
    admin::{
        config::documents::{DocumentChange, NamedFile, apply_problem},
        request::{Body, Caller, faults},
    },
    api::Api,
};

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

pub(crate) async fn run_step(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<BacktestRequest>,
) -> Result<Json<BacktestResponse>, Problem> {
    let period = parse_span(&request.since, &request.until, request.sample_percent)?;
    let from = parse_cursor(request.cursor.as_deref())?;
    let org = &caller.org;
    let (deps, max_wait) = (&api.deps.moderation, api.settings.turn_wait());
    let org_turn = api.trials.acquire_org_turn(org, max_wait).await.map_err(trial_problem)?;
    let live = deps.live.load_latest(org).await.map_err(faults::catalog_problem)?;
    let files = request.files.into_iter().map(NamedFile::into_file).collect();
    let trial = api.trials.find_or_compile(&api.deps.changes, org, live, files, request.prune).await;
    let trial = trial.map_err(trial_problem)?;
    // Acquired after compiling: the candidate may wait behind the org's own changes, and must not hold up other orgs.
    let _turn = api.trials.acquire_turn(org_turn, max_wait).await.map_err(trial_problem)?;

    let budget = TimeBudget::start();
    let step = BacktestStep {
        store: &deps.store,
        org,
        period: &period,
        from,
        clearance: caller.clearance(),
        window_rows: api.deps.window_rows,
    };
    let progress = trial.comparison.run_step(step, || budget.is_spent()).await;
    let progress = progress.map_err(faults::moderation_problem)?;
    Ok(Json(BacktestResponse {
        version: trial.version,
        changes: trial.changes.iter().cloned().map(DocumentChange::from).collect(),
        warnings: trial.warnings.clone(),
        uncounted_windows: trial.comparison.uncounted.iter().cloned().collect(),
        rules: trial.comparison.heads(progress.findings.rules.keys()),
        findings: progress.findings,
        next: progress.next.map(|cursor| cursor.to_string()),
        through: progress.through.iso(),
    }))
}

/// Compiles the live configuration with other documents, for a single explanation.
pub(super) async fn compile_candidate(
    api: &Api,
    org: &OrgId,
    live: Arc<Compiled>,
    files: Vec<NamedFile>,
) -> Result<Arc<Trial>, Problem> {
    // The turn bounds compilations: only one candidate of an org is compiled at a time.
    let org_turn = api.trials.acquire_org_turn(org, api.settings.turn_wait()).await;
    let _org_turn = org_turn.map_err(trial_problem)?;
    let files = files.into_iter().map(NamedFile::into_file).collect();
    // Not pruned: the files replace single documents, the others stay live.
    let trial = api.trials.find_or_compile(&api.deps.changes, org, live, files, false).await;
    trial.map_err(trial_problem)
}

pub(super) fn trial_problem(error: TrialError) -> Problem {
    match error {
        TrialError::Busy { other_requests } => {
            let detail = format!(
                "Stored items are evaluated for one request at a time, and {other_requests} more wait: try again. A run continues at \
                 its `cursor`."
            );
            Problem::unavailable(detail, RETRY_AFTER)
        }
        TrialError::ConfigChanged => Problem::conflict("The configuration has just changed: try again."),
        TrialError::Apply(error) => apply_problem(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_waits_too_long_is_answered_with_503() {
        assert_eq!(trial_problem(TrialError::Busy { other_requests: 0 }).status, 503);
    }
}
