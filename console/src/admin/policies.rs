//! `/admin/v1/policies`: the policies with what moderators need of them. Platforms read theirs from the API's `/policies/`.

use axum::{Router, extract::State, response::Response, routing::get};
use serde::Serialize;
use tidegate_schemas::{documents::Severity, ids::PolicyId};
use tidegate_web::{Problem, Query};

use super::{Api, List, caller::Caller, extract::WholeList, faults, long_answers};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/policies", get(list))
}

/// Bytes of a policy without its name and texts.
const POLICY_BYTES: usize = 200;

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
) -> Result<Response, Problem> {
    let config = api.deps.moderation.live.latest(&caller.org).await.map_err(faults::catalog)?;
    let lengths = config.policies().iter().map(|policy| {
        let long = [&policy.text, &policy.guidelines].into_iter().flatten().map(String::len).sum::<usize>();
        POLICY_BYTES + policy.name.len() + long
    });
    let bytes = lengths.sum();
    let policies = move || {
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
        List::whole(policies.collect())
    };
    long_answers::write(&api, &caller.org, bytes, policies).await
}
