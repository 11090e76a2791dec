//! `/admin/v1/orgs` and `/admin/v1/members`: orgs and processes of the installation, for the operator's local token only. A key
//! belongs to one org.

use axum::{Extension, Json, Router, extract::State, http::StatusCode, routing::get};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::{
    members::{self, Member},
    orgs::{self, OrgError},
};
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_web::{Problem, Query};

use super::audit::AuditDetail;
use crate::{
    admin::request::{Body, Caller, UnpagedQuery, faults, invalid},
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/orgs", get(list_orgs).post(create_org)).route("/members", get(list_members))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OrgResponse {
    id: OrgId,
    name: String,
    created_at: String,
    disabled_at: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateOrgRequest {
    id: String,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Serialize)]
struct CreateOrgResponse {
    id: OrgId,
    name: String,
}

#[derive(Serialize)]
#[serde(transparent)]
struct MemberResponse(Member);

fn require_operator(caller: &Caller) -> Result<(), Problem> {
    if caller.is_operator {
        return Ok(());
    }
    Err(Problem::forbidden(
        "Only the operator of the installation may do this, with the token in server.json.",
    ))
}

async fn list_orgs(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<ListResponse<OrgResponse>>, Problem> {
    require_operator(&caller)?;
    let rows = orgs::list(&api.deps.moderation.store).await.map_err(faults::catalog_problem)?;
    let orgs = rows.into_iter().map(|row| OrgResponse {
        id: row.org,
        name: row.name,
        created_at: row.created_at.iso(),
        disabled_at: row.disabled_at.map(Millis::iso),
    });
    Ok(Json(ListResponse::unpaged(orgs.collect())))
}

async fn create_org(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<CreateOrgRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<CreateOrgResponse>), Problem> {
    require_operator(&caller)?;
    let org = OrgId::from(request.id);
    // Lists show a name for each org, so the id stands in for a missing one.
    let name = request.name.unwrap_or_else(|| org.to_string());
    let result = orgs::create(&api.deps.moderation.store, &org, &name, Millis::now()).await;
    let is_new = result.map_err(|error| match error {
        OrgError::BadId => invalid("/id", error.to_string()),
        OrgError::Catalog(error) => faults::catalog_problem(error),
    })?;
    if !is_new {
        return Err(Problem::conflict(format!("There is an organisation `{org}` already.")));
    }
    let detail = AuditDetail(json!({ "id": org, "name": name }));
    Ok((StatusCode::CREATED, Extension(detail), Json(CreateOrgResponse { id: org, name })))
}

async fn list_members(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<ListResponse<MemberResponse>>, Problem> {
    require_operator(&caller)?;
    let members = members::list(&api.deps.moderation.store).await.map_err(faults::catalog_problem)?;
    Ok(Json(ListResponse::unpaged(members.into_iter().map(MemberResponse).collect())))
}
