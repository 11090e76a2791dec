//! `/admin/v1/policies`: the policies with what moderators need of them. Platforms read theirs from the API's `/policies/`.

use axum::{Json, Router, extract::State, routing::get};
use serde::Serialize;
use tidegate_schemas::{documents::Severity, ids::PolicyId};
use tidegate_web::{Problem, Query};

use super::{Api, List, caller::Caller, extract::WholeList, faults};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/policies", get(list))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    id: PolicyId,
    key: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<PolicyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guidelines: Option<String>,
    severity: Severity,
    strikes: i64,
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Policy>>, Problem> {
    let config = api.deps.moderation.live.latest(&caller.org).await.map_err(faults::catalog)?;
    let policies = config.policies().iter().map(|policy| Policy {
        id: policy.id.clone(),
        key: policy.key.clone(),
        name: policy.name.clone(),
        parent_id: policy.parent_id.clone(),
        text: policy.text.clone(),
        guidelines: policy.guidelines.clone(),
        severity: policy.severity,
        strikes: policy.strikes,
    });
    Ok(Json(List::whole(policies.collect())))
}
