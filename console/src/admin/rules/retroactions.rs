//! `/admin/v1/rules/retroactions`: runs of live rules over items that came in before.

use axum::{Extension, Json, extract::State, http::StatusCode};
use serde::Deserialize;
use tidegate_moderation::{
    child_safety::Clearance,
    reevaluation::retroact::{self, Refusal, Run},
};
use tidegate_schemas::ids::{Millis, RuleId};
use tidegate_web::{Path, Problem, Query};
use uuid::Uuid;

use super::{Budget, span};
use crate::admin::{
    Api, List,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, WholeList, id, invalid},
    faults,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wanted {
    rules: Vec<RuleId>,
    since: String,
    #[serde(default)]
    until: Option<String>,
    /// True if the run only reports what it would do.
    #[serde(default)]
    dry_run: bool,
    /// True if the run covers items of child safety, which needs the scope `child_safety`.
    #[serde(default)]
    child_safety: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// The step ends once it has sent so many items.
    #[serde(default = "many")]
    most: u64,
}

fn many() -> u64 {
    1_000
}

pub(super) async fn begin(
    State(api): State<Api>,
    caller: Caller,
    Body(wanted): Body<Wanted>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<Run>), Problem> {
    if wanted.child_safety {
        caller.needs_child_safety()?;
    }
    let now = Millis::now();
    let until = wanted.until.unwrap_or_else(|| now.iso());
    let span = span(&wanted.since, &until, None)?;
    let wanted = retroact::Wanted {
        rules: wanted.rules,
        since: span.time.start,
        until: span.time.end,
        dry_run: wanted.dry_run,
        clearance: Clearance::from_flag(wanted.child_safety),
        by: caller.name.to_string(),
    };
    let begun = retroact::begin(&api.deps.moderation, &caller.org, wanted, now).await;
    let run = begun.map_err(faults::moderation)?.map_err(refused)?;
    let detail = serde_json::json!({"run": run.id, "dryRun": run.dry_run});
    Ok((StatusCode::CREATED, Extension(AuditDetail(detail)), Json(run)))
}

pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Run>>, Problem> {
    let runs = retroact::list(&api.deps.moderation.store, &caller.org, caller.clearance()).await;
    Ok(Json(List::whole(runs.map_err(faults::moderation)?)))
}

pub(super) async fn step(
    State(api): State<Api>,
    caller: Caller,
    Path(run): Path<String>,
    Body(step): Body<Step>,
) -> Result<Json<Run>, Problem> {
    let run: Uuid = id(&run)?;
    if step.most == 0 {
        return Err(invalid("/most", "It is at least 1."));
    }
    let org_turn = api.trials.org_turn(&caller.org, api.settings.turn_wait()).await?;
    let _turn = api.trials.turn(org_turn, api.settings.turn_wait()).await?;
    let budget = Budget::begin();
    let (deps, rows) = (&api.deps.moderation, api.deps.window_rows);
    let (org, clearance) = (&caller.org, caller.clearance());
    let stepped = retroact::step(deps, org, run, clearance, rows, step.most, || budget.is_spent()).await;
    Ok(Json(stepped.map_err(faults::moderation)?.map_err(refused)?))
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NoSuchRun => Problem::not_found("There is no such run."),
        Refusal::NoRules => invalid("/rules", "Name the rules that are to act."),
        Refusal::NoSuchRule(rule) => invalid("/rules", format!("There is no rule `{rule}`.")),
        Refusal::NotLive(rule) => {
            invalid("/rules", format!("The rule `{rule}` is not live: it would not act."))
        }
        Refusal::Changed(rule) => Problem::conflict(format!(
            "The rule `{rule}` is not what it was when the run began, or not live: begin another run."
        )),
        Refusal::ChildSafety => Caller::lacks_child_safety(),
        Refusal::Overtaken => Problem::conflict("Somebody else is at this run: look where it is."),
    }
}
