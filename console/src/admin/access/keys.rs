//! `/admin/v1/keys`: creates, lists, rotates and revokes API keys. The console's pages call the same functions.

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
    keys::{CreatedKey, KeyError, KeyInfo, NewKey},
};
use tidegate_schemas::{
    ids::{ApiKeyId, Millis},
    names,
};
use tidegate_web::{Path, Problem, Query};

use super::audit::AuditDetail;
use crate::{
    admin::request::{Body, Caller, UnpagedQuery, faults, invalid, parse_id},
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/keys", get(list_keys).post(create_key))
        .route("/keys/{id}", axum::routing::delete(revoke_by_id))
        .route("/keys/{id}/revoke", post(revoke_by_id))
        .route("/keys/{id}/rotate", post(rotate_key))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyResponse {
    pub(crate) id: ApiKeyId,
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) scopes: Vec<&'static str>,
    pub(crate) created_at: String,
    pub(crate) expires_at: Option<String>,
    pub(crate) revoked_at: Option<String>,
    pub(crate) last_used_at: Option<String>,
}

impl From<KeyInfo> for KeyResponse {
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
pub(crate) struct NewKeyResponse {
    /// Token of the key. Contained only in this answer; the store keeps a hash.
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) info: KeyResponse,
}

impl From<CreatedKey> for NewKeyResponse {
    fn from(created: CreatedKey) -> Self {
        Self { key: created.token.reveal(), info: KeyResponse::from(created.info) }
    }
}

impl NewKeyResponse {
    pub(crate) fn audit_detail(&self) -> AuditDetail {
        let KeyResponse { id, name, scopes, expires_at, .. } = &self.info;
        AuditDetail(json!({"key": id, "name": name, "scopes": scopes, "expiresAt": expires_at}))
    }
}

type CreatedKeyResponse = (StatusCode, Extension<AuditDetail>, Json<NewKeyResponse>);

fn respond_created(key: NewKeyResponse) -> CreatedKeyResponse {
    (StatusCode::CREATED, Extension(key.audit_detail()), Json(key))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateKeyRequest {
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Left out: the scopes that a platform needs.
    #[serde(default)]
    pub(crate) scopes: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) expires_in_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RotateKeyRequest {
    /// Seconds for which the old key stays valid.
    #[serde(default = "default_overlap_seconds")]
    overlap_seconds: u64,
}

/// Time to replace the old key in all clients.
pub(crate) const fn default_overlap_seconds() -> u64 {
    86_400
}

async fn list_keys(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<ListResponse<KeyResponse>>, Problem> {
    Ok(Json(ListResponse::unpaged(load_keys(&api, &caller).await?)))
}

/// Loads all keys of the org, newest first, expired and revoked ones included.
pub(crate) async fn load_keys(api: &Api, caller: &Caller) -> Result<Vec<KeyResponse>, Problem> {
    let keys = api.deps.keys.list(&caller.org).await.map_err(|error| key_problem(error, ""))?;
    Ok(keys.into_iter().map(KeyResponse::from).collect())
}

async fn create_key(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<CreateKeyRequest>,
) -> Result<CreatedKeyResponse, Problem> {
    create_once(&api, &caller, request, ApiKeyId::random()).await.map(respond_created)
}

/// Creates a key under the given id. Fails if the id exists, so that a repeated request cannot create a second key.
pub(crate) async fn create_once(
    api: &Api,
    caller: &Caller,
    request: CreateKeyRequest,
    id: ApiKeyId,
) -> Result<NewKeyResponse, Problem> {
    let scopes = match request.scopes {
        None => Scopes::platform(),
        Some(names) => names
            .join(" ")
            .parse()
            .map_err(|error: tidegate_catalog::keys::UnknownScope| invalid("/scopes", error.to_string()))?,
    };
    caller.require_grantable(scopes)?;
    // An expired key would be created without an error and refused at its first use.
    if request.expires_in_seconds == Some(0) {
        return Err(invalid("/expiresInSeconds", "The key would expire at once: enter at least 1 second."));
    }
    let expires_at =
        request.expires_in_seconds.map(|seconds| Millis::now().plus(Duration::from_secs(seconds)));
    // A name is required in the store; commands may leave it out.
    let name = request.name.unwrap_or_else(|| "key".to_owned());
    let new_key = NewKey { org: caller.org.clone(), name, scopes, expires_at };
    let created = api.deps.keys.create_once(id, new_key).await;
    created.map(NewKeyResponse::from).map_err(|error| key_problem(error, "/expiresInSeconds"))
}

async fn revoke_by_id(
    State(api): State<Api>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<StatusCode, Problem> {
    revoke_key(&api, &caller, parse_id(&key)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn revoke_key(api: &Api, caller: &Caller, key: ApiKeyId) -> Result<(), Problem> {
    require_key_clearance(api, caller, key).await?;
    api.deps.keys.revoke(&caller.org, key).await.map_err(|error| key_problem(error, ""))
}

/// Refuses callers without the scope `child_safety` if the key has it, because revoking the key would lock its holders out.
async fn require_key_clearance(api: &Api, caller: &Caller, key: ApiKeyId) -> Result<(), Problem> {
    if caller.may_see_child_safety() {
        return Ok(());
    }
    match load_scopes(api, caller, key).await?.contains(Scope::ChildSafety) {
        true => caller.require_child_safety(),
        false => Ok(()),
    }
}

/// Loads the scopes of a key. An unknown key has none: the change itself answers 404.
async fn load_scopes(api: &Api, caller: &Caller, key: ApiKeyId) -> Result<Scopes, Problem> {
    let keys = api.deps.keys.list(&caller.org).await.map_err(|error| key_problem(error, ""))?;
    Ok(keys.iter().find(|listed| listed.id == key).map_or_else(Scopes::default, |listed| listed.scopes))
}

async fn rotate_key(
    State(api): State<Api>,
    caller: Caller,
    Path(key): Path<String>,
    Body(request): Body<RotateKeyRequest>,
) -> Result<CreatedKeyResponse, Problem> {
    let overlap = Duration::from_secs(request.overlap_seconds);
    rotate_once(&api, &caller, parse_id(&key)?, ApiKeyId::random(), overlap).await.map(respond_created)
}

/// Replaces a key by one with the id `new_id`. Fails if the id exists.
pub(crate) async fn rotate_once(
    api: &Api,
    caller: &Caller,
    key: ApiKeyId,
    new_id: ApiKeyId,
    overlap: Duration,
) -> Result<NewKeyResponse, Problem> {
    // The new key would hand the scopes of the old one over to the caller.
    caller.require_grantable(load_scopes(api, caller, key).await?)?;
    let rotated = api.deps.keys.rotate_once(&caller.org, key, new_id, overlap).await;
    rotated.map(NewKeyResponse::from).map_err(|error| key_problem(error, "/overlapSeconds"))
}

/// `period` is the JSON member that sets the end of a key.
fn key_problem(error: KeyError, period: &str) -> Problem {
    match error {
        KeyError::NoSuchKey => Problem::not_found("There is no such key."),
        KeyError::NoSuchOrg(org) => Problem::not_found(format!("There is no organisation `{org}`.")),
        KeyError::Ended => Problem::conflict("The key was revoked or has expired."),
        KeyError::NoScopes => invalid("/scopes", "A key needs at least one scope."),
        KeyError::BadName => invalid("/name", format!("A key's name {}.", names::RULE)),
        KeyError::Exists => Problem::conflict(
            "The key of this request exists already and was shown at its creation: rotate it if it was lost.",
        ),
        KeyError::Rotated => {
            Problem::conflict("The key was rotated already: rotate its replacement, or create a new key.")
        }
        KeyError::TooLate => invalid(period, "No key ends after the year 9999."),
        KeyError::Store(error) => faults::store_problem(error),
        error @ KeyError::NoRandomness => faults::log_failure(false, error.tag(), &error),
    }
}
