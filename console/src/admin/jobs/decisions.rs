//! `/admin/v1/jobs/{id}/decisions`: stores decisions. Their effects are applied later, by the role `process`.

use axum::{Extension, Json, Router, extract::State, http::StatusCode, routing::post};
use serde_json::{Value, json};
use tidegate_moderation::{
    jobs::{
        stored_decision::{StoredDecision, StoredRelated},
        summary::DecisionResponse,
    },
    review::decisions::{self, DecisionRefusal},
};
use tidegate_schemas::{
    ids::{JobId, Millis},
    records::Verdict,
};
use tidegate_web::{Path, Problem};

use super::{
    authorization::load_authorized_job,
    decision_body::DecideRequest,
    refusals::{already_decided, no_such_job},
};
use crate::{
    admin::{
        access::{audit::AuditDetail, child_safety},
        request::{Body, Caller, faults, invalid, parse_id},
    },
    api::Api,
};

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/jobs/{id}/decisions", post(decide))
}

/// Stores a decision. 202: its effects begin when the time to undo it has passed.
async fn decide(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(body): Body<DecideRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<DecisionResponse>), Problem> {
    let job: JobId = parse_id(&job)?;
    let verdict = body
        .verdict
        .to_lowercase()
        .parse::<Verdict>()
        .ok()
        .ok_or_else(|| invalid("/verdict", "A verdict is ignore, act, accept or reject."))?;
    // Every callback of the decision contains the reason, so its length is bounded.
    let max_bytes = api.settings.reason_bytes;
    if body.reason.as_ref().is_some_and(|reason| reason.len() > max_bytes) {
        return Err(invalid(
            "/reason",
            format!("A reason has at most {max_bytes} bytes (review.reason_bytes)."),
        ));
    }
    let job = load_authorized_job(&api, &caller, job).await?;
    // An action on a withheld item would strike its author and name that user in the answer.
    if !child_safety::find_withheld_items(&api, &caller, &body.related_items()).await?.is_empty() {
        return Err(Caller::missing_child_safety_scope());
    }
    let reviewer = caller.reviewer(body.reviewer.clone());
    let request = body.into_request(verdict, reviewer);
    let undo = api.settings.undo();
    let result = decisions::decide(&api.deps.moderation, &job, &request, undo, Millis::now()).await;
    match result.map_err(faults::moderation_problem)? {
        Ok(decision) => {
            let detail = AuditDetail::of_job(job.class(), decision_detail(&decision));
            Ok((StatusCode::ACCEPTED, Extension(detail), Json(decision.into())))
        }
        Err(DecisionRefusal::NotFound) => Err(no_such_job()),
        Err(DecisionRefusal::AlreadyDecided) => Err(already_decided()),
        Err(DecisionRefusal::NotYours { claimed_by: Some(by) }) => Err(Problem::conflict(format!(
            "The job is claimed by {by}, or under another epoch: claim it first, and decide as the same `reviewer`."
        ))),
        Err(DecisionRefusal::NotYours { claimed_by: None }) => {
            Err(Problem::conflict("The job is not claimed: claim it first."))
        }
        Err(DecisionRefusal::Invalid { pointer, detail }) => Err(invalid(&pointer, detail)),
    }
}

/// Details of a decision for the audit, without its reason: the audit stores no content.
fn decision_detail(decision: &StoredDecision) -> Value {
    let StoredDecision { decided_by, verdict, actions, policies, related, .. } = decision;
    let mut detail =
        json!({ "reviewer": decided_by, "verdict": verdict, "actions": actions, "policies": policies });
    if !related.is_empty() {
        let of_item = |related_item: &StoredRelated| json!({ "item": related_item.item, "actions": related_item.actions });
        detail["related"] = related.iter().map(of_item).collect();
    }
    detail
}
