//! `/admin/v1/policies`: lists policies with the texts and guidelines for moderators. Platforms read theirs at `/policies/`.

use axum::{Router, extract::State, response::Response, routing::get};
use serde::Serialize;
use tidegate_schemas::{documents::Severity, ids::PolicyId};
use tidegate_web::{Problem, Query};

use crate::{
    admin::request::{Caller, UnpagedQuery, faults, long_answers},
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/policies", get(list_policies))
}

/// Size of a policy in the answer without its name and texts, in bytes. Used to estimate the answer's size.
const POLICY_OVERHEAD_BYTES: usize = 200;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyResponse {
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

async fn list_policies(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Response, Problem> {
    let config = api.deps.moderation.live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    // Estimated without serializing, to decide whether the answer is written in the org's turn.
    let lengths = config.policies().iter().map(|policy| {
        let text_bytes =
            [&policy.text, &policy.guidelines].into_iter().flatten().map(String::len).sum::<usize>();
        POLICY_OVERHEAD_BYTES + policy.name.len() + text_bytes
    });
    let bytes = lengths.sum();
    let policies = move || {
        let policies = config.policies().iter().map(|policy| PolicyResponse {
            id: policy.id.clone(),
            key: policy.key.clone(),
            name: policy.name.clone(),
            parent_id: policy.parent_id.clone(),
            text: policy.text.clone(),
            guidelines: policy.guidelines.clone(),
            severity: policy.severity,
            strikes: policy.strikes,
        });
        ListResponse::unpaged(policies.collect())
    };
    long_answers::write_json(&api, &caller.org, bytes, policies).await
}
