//! `/admin/v1/rules/retroactions`: applies live rules to stored items, step by step.

use axum::{Extension, Json, extract::State, http::StatusCode};
use serde::Deserialize;
use tidegate_moderation::{
    child_safety::Clearance,
    reevaluation::retroact::{self, RetroactionResponse, RunRefusal},
};
use tidegate_schemas::ids::{Millis, RuleId};
use tidegate_web::{Path, Problem, Query};
use uuid::Uuid;

use super::{TimeBudget, backtest::trial_problem, parse_span};
use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, UnpagedQuery, faults, invalid, parse_id},
    },
    api::{Api, ListResponse},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RetroactionRequest {
    rules: Vec<RuleId>,
    since: String,
    #[serde(default)]
    until: Option<String>,
    /// True if the run only reports its actions.
    #[serde(default)]
    dry_run: bool,
    /// True if the run covers items of child safety, which needs the scope `child_safety`.
    #[serde(default)]
    child_safety: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepRequest {
    /// The step ends after sending this number of items.
    #[serde(default = "default_step_items")]
    most: u64,
}

fn default_step_items() -> u64 {
    1_000
}

pub(super) async fn begin_run(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<RetroactionRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<RetroactionResponse>), Problem> {
    // Without the scope, such a run would let the caller act on items that they may not see.
    if request.child_safety {
        caller.require_child_safety()?;
    }
    let begun_at = Millis::now();
    // Items that arrive after the start are evaluated by the live rules anyway.
    let end = request.until.unwrap_or_else(|| begun_at.iso());
    let span = parse_span(&request.since, &end, None)?;
    let run_request = retroact::RunRequest {
        rules: request.rules,
        since: span.time.start,
        until: span.time.end,
        dry_run: request.dry_run,
        clearance: Clearance::from_flag(request.child_safety),
        by: caller.name.to_string(),
    };
    let result = retroact::begin(&api.deps.moderation, &caller.org, run_request, begun_at).await;
    let run = result.map_err(faults::moderation_problem)?.map_err(refusal_problem)?;
    let detail = serde_json::json!({"run": run.id, "dryRun": run.dry_run});
    Ok((StatusCode::CREATED, Extension(AuditDetail(detail)), Json(run)))
}

pub(super) async fn list_runs(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<ListResponse<RetroactionResponse>>, Problem> {
    let runs = retroact::list_runs(&api.deps.moderation.store, &caller.org, caller.clearance()).await;
    Ok(Json(ListResponse::unpaged(runs.map_err(faults::moderation_problem)?)))
}

pub(super) async fn run_step(
    State(api): State<Api>,
    caller: Caller,
    Path(run): Path<String>,
    Body(request): Body<StepRequest>,
) -> Result<Json<RetroactionResponse>, Problem> {
    let run: Uuid = parse_id(&run)?;
    if request.most == 0 {
        return Err(invalid("/most", "It is at least 1."));
    }
    // Shares the turns of backtests: both evaluate stored items and would slow down new ones.
    let org_turn = api.trials.acquire_org_turn(&caller.org, api.settings.turn_wait()).await;
    let org_turn = org_turn.map_err(trial_problem)?;
    let evaluation_turn = api.trials.acquire_turn(org_turn, api.settings.turn_wait()).await;
    let _evaluation_turn = evaluation_turn.map_err(trial_problem)?;
    let budget = TimeBudget::start();
    let (deps, rows) = (&api.deps.moderation, api.deps.window_rows);
    let (org, clearance) = (&caller.org, caller.clearance());
    let result = retroact::step(deps, org, run, clearance, rows, request.most, || budget.is_spent()).await;
    Ok(Json(result.map_err(faults::moderation_problem)?.map_err(refusal_problem)?))
}

fn refusal_problem(refusal: RunRefusal) -> Problem {
    match refusal {
        RunRefusal::NoSuchRun => Problem::not_found("There is no such run."),
        RunRefusal::NoRules => invalid("/rules", "The list is empty: name the rules to apply."),
        RunRefusal::NoSuchRule(rule) => invalid("/rules", format!("There is no rule `{rule}`.")),
        RunRefusal::NotLive(rule) => {
            invalid("/rules", format!("The rule `{rule}` is not live: it would not act."))
        }
        RunRefusal::Changed(rule) => Problem::conflict(format!(
            "The rule `{rule}` was changed or is no longer live since the run began: begin another run."
        )),
        RunRefusal::ChildSafety => Caller::missing_child_safety_scope(),
        RunRefusal::Overtaken => {
            Problem::conflict("Another request continued this run: load its state and continue from there.")
        }
    }
}
