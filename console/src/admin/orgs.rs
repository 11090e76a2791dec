//! `/admin/v1/orgs` and `/admin/v1/members`: the operator's view of the installation.
//!
//! Only the local token opens them: a key belongs to one organisation.

use axum::{Extension, Json, Router, extract::State, http::StatusCode, routing::get};
use serde::{Deserialize, Serialize};
use tidegate_catalog::{
    members::{self, Member},
    orgs::{self, OrgError},
};
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_web::{Problem, Query};

use super::{
    Api, List,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, WholeList, invalid},
    faults,
};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/orgs", get(list).post(create)).route("/members", get(list_members))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Org {
    id: OrgId,
    name: String,
    created_at: String,
    disabled_at: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    id: String,
    #[serde(default)]
    name: Option<String>,
}

fn only_operator(caller: &Caller) -> Result<(), Problem> {
    if caller.is_operator {
        return Ok(());
    }
    Err(Problem::forbidden("Only the installation's operator may, with the token of server.json."))
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Org>>, Problem> {
    only_operator(&caller)?;
    let rows = orgs::list(&api.deps.moderation.store).await.map_err(faults::catalog)?;
    let orgs = rows.into_iter().map(|row| Org {
        id: row.org,
        name: row.name,
        created_at: row.created_at.iso(),
        disabled_at: row.disabled_at.map(Millis::iso),
    });
    Ok(Json(List::whole(orgs.collect())))
}

async fn create(
    State(api): State<Api>,
    caller: Caller,
    Body(wanted): Body<Wanted>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<serde_json::Value>), Problem> {
    only_operator(&caller)?;
    let org = OrgId::from(wanted.id);
    let name = wanted.name.unwrap_or_else(|| org.to_string());
    let made = orgs::create(&api.deps.moderation.store, &org, &name, Millis::now()).await;
    let is_new = made.map_err(|error| match error {
        OrgError::BadId => invalid("/id", error.to_string()),
        OrgError::Catalog(error) => faults::catalog(error),
    })?;
    if !is_new {
        return Err(Problem::conflict(format!("There is an organisation `{org}` already.")));
    }
    let made = serde_json::json!({ "id": org, "name": name });
    Ok((StatusCode::CREATED, Extension(AuditDetail(made.clone())), Json(made)))
}

async fn list_members(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Member>>, Problem> {
    only_operator(&caller)?;
    let members = members::list(&api.deps.moderation.store).await.map_err(faults::catalog)?;
    Ok(Json(List::whole(members)))
}
