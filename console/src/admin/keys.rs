//! `/admin/v1/keys`: API keys of the organisation.
//!
//! A key's token is in the answer that makes it, and never again.

use std::time::Duration;

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::{
    Scope, Scopes,
    keys::{Created, KeyError, KeyInfo, NewKey},
};
use tidegate_schemas::{
    ids::{ApiKeyId, Millis},
    names,
};
use tidegate_web::{Path, Problem, Query};

use super::{
    Api, List,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, WholeList, id, invalid},
    faults,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/keys", get(list).post(create))
        .route("/keys/{id}", axum::routing::delete(revoke))
        .route("/keys/{id}/revoke", post(revoke))
        .route("/keys/{id}/rotate", post(rotate))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    id: ApiKeyId,
    name: String,
    prefix: String,
    scopes: Vec<&'static str>,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
}

impl From<KeyInfo> for Key {
    fn from(info: KeyInfo) -> Self {
        Self {
            id: info.id,
            name: info.name,
            prefix: info.prefix,
            scopes: info.scopes.iter().map(Scope::name).collect(),
            created_at: info.created_at.iso(),
            expires_at: info.expires_at.map(Millis::iso),
            revoked_at: info.revoked_at.map(Millis::iso),
            last_used_at: info.last_used_at.map(Millis::iso),
        }
    }
}

#[derive(Serialize)]
struct NewlyMade {
    /// Shown now and never again.
    key: String,
    #[serde(flatten)]
    info: Key,
}

type Made = (StatusCode, Extension<AuditDetail>, Json<NewlyMade>);

fn made(created: Created) -> Made {
    let info = Key::from(created.info);
    let detail =
        json!({"key": info.id, "name": info.name, "scopes": info.scopes, "expiresAt": info.expires_at});
    let answer = NewlyMade { key: created.token.reveal(), info };
    (StatusCode::CREATED, Extension(AuditDetail(detail)), Json(answer))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    name: Option<String>,
    /// The scopes that a platform needs, if left out.
    #[serde(default)]
    scopes: Option<Vec<String>>,
    #[serde(default)]
    expires_in_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rotation {
    /// Seconds for which the old key still works.
    #[serde(default = "a_day")]
    overlap_seconds: u64,
}

/// Time to put the new key in place of the old one everywhere.
const fn a_day() -> u64 {
    86_400
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Key>>, Problem> {
    let keys = api.deps.keys.list(&caller.org).await.map_err(|error| told(error, ""))?;
    Ok(Json(List::whole(keys.into_iter().map(Key::from).collect())))
}

async fn create(State(api): State<Api>, caller: Caller, Body(wanted): Body<Wanted>) -> Result<Made, Problem> {
    let scopes = match wanted.scopes {
        None => Scopes::platform(),
        Some(names) => names
            .join(" ")
            .parse()
            .map_err(|error: tidegate_catalog::keys::UnknownScope| invalid("/scopes", error.to_string()))?,
    };
    if scopes.contains(Scope::ChildSafety) {
        caller.needs_child_safety()?;
    }
    if wanted.expires_in_seconds == Some(0) {
        return Err(invalid("/expiresInSeconds", "The key would have expired already: at least 1 second."));
    }
    let expires_at =
        wanted.expires_in_seconds.map(|seconds| Millis::now().plus(Duration::from_secs(seconds)));
    let name = wanted.name.unwrap_or_else(|| "key".to_owned());
    let new = NewKey { org: caller.org.clone(), name, scopes, expires_at };
    let created = api.deps.keys.create(new).await.map_err(|error| told(error, "/expiresInSeconds"))?;
    Ok(made(created))
}

async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<StatusCode, Problem> {
    let key: ApiKeyId = id(&key)?;
    api.deps.keys.revoke(&caller.org, key).await.map_err(|error| told(error, ""))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn rotate(
    State(api): State<Api>,
    caller: Caller,
    Path(key): Path<String>,
    Body(rotation): Body<Rotation>,
) -> Result<Made, Problem> {
    let key: ApiKeyId = id(&key)?;
    // The new key may do what the old one may, and its token goes to the caller.
    if !caller.may_child_safety() {
        let keys = api.deps.keys.list(&caller.org).await.map_err(|error| told(error, ""))?;
        if keys.iter().any(|known| known.id == key && known.scopes.contains(Scope::ChildSafety)) {
            caller.needs_child_safety()?;
        }
    }
    let overlap = Duration::from_secs(rotation.overlap_seconds);
    let rotated = api.deps.keys.rotate(&caller.org, key, overlap).await;
    let created = rotated.map_err(|error| told(error, "/overlapSeconds"))?;
    Ok(made(created))
}

/// `period` is the member that says when a key ends.
fn told(error: KeyError, period: &str) -> Problem {
    match error {
        KeyError::NoSuchKey => Problem::not_found("There is no such key."),
        KeyError::NoSuchOrg(org) => Problem::not_found(format!("There is no organisation `{org}`.")),
        KeyError::Ended => Problem::conflict("The key was revoked or has expired."),
        KeyError::NoScopes => invalid("/scopes", "A key needs at least one scope."),
        KeyError::BadName => invalid("/name", format!("A key's name {}.", names::RULE)),
        KeyError::TooLate => invalid(period, "No key ends after the year 9999."),
        KeyError::Store(error) => faults::store(error),
        error @ KeyError::NoRandomness => faults::told(false, error.tag(), &error),
    }
}
