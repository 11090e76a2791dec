//! `/admin/v1/keys`: API keys of the organisation.
//!
//! A key's token is in the answer that makes it, and never again. The pages of the console call the same functions.

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
pub(crate) struct Key {
    pub(crate) id: ApiKeyId,
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) scopes: Vec<&'static str>,
    pub(crate) created_at: String,
    pub(crate) expires_at: Option<String>,
    pub(crate) revoked_at: Option<String>,
    pub(crate) last_used_at: Option<String>,
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
pub(crate) struct NewlyMade {
    /// Shown now and never again.
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) info: Key,
}

impl From<Created> for NewlyMade {
    fn from(created: Created) -> Self {
        Self { key: created.token.reveal(), info: Key::from(created.info) }
    }
}

impl NewlyMade {
    pub(crate) fn audit_detail(&self) -> AuditDetail {
        let Key { id, name, scopes, expires_at, .. } = &self.info;
        AuditDetail(json!({"key": id, "name": name, "scopes": scopes, "expiresAt": expires_at}))
    }
}

type Made = (StatusCode, Extension<AuditDetail>, Json<NewlyMade>);

fn made(made: NewlyMade) -> Made {
    (StatusCode::CREATED, Extension(made.audit_detail()), Json(made))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The scopes that a platform needs, if left out.
    #[serde(default)]
    pub(crate) scopes: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) expires_in_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rotation {
    /// Seconds for which the old key still works.
    #[serde(default = "a_day")]
    overlap_seconds: u64,
}

/// Time to put the new key in place of the old one everywhere.
pub(crate) const fn a_day() -> u64 {
    86_400
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Key>>, Problem> {
    Ok(Json(List::whole(all(&api, &caller).await?)))
}

/// All keys of the organisation, the newest first, the ended ones included.
pub(crate) async fn all(api: &Api, caller: &Caller) -> Result<Vec<Key>, Problem> {
    let keys = api.deps.keys.list(&caller.org).await.map_err(|error| key_problem(error, ""))?;
    Ok(keys.into_iter().map(Key::from).collect())
}

async fn create(State(api): State<Api>, caller: Caller, Body(wanted): Body<Wanted>) -> Result<Made, Problem> {
    create_once(&api, &caller, wanted, ApiKeyId::random()).await.map(made)
}

/// Makes a key under this id, unless there is one.
pub(crate) async fn create_once(
    api: &Api,
    caller: &Caller,
    wanted: Wanted,
    id: ApiKeyId,
) -> Result<NewlyMade, Problem> {
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
    let created = api.deps.keys.create_once(id, new).await;
    created.map(NewlyMade::from).map_err(|error| key_problem(error, "/expiresInSeconds"))
}

async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<StatusCode, Problem> {
    revoke_key(&api, &caller, id(&key)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn revoke_key(api: &Api, caller: &Caller, key: ApiKeyId) -> Result<(), Problem> {
    check_key_scope(api, caller, key).await?;
    api.deps.keys.revoke(&caller.org, key).await.map_err(|error| key_problem(error, ""))
}

/// Refuses callers without the scope `child_safety` if the key has it: they could take its place, or shut its holders out.
async fn check_key_scope(api: &Api, caller: &Caller, key: ApiKeyId) -> Result<(), Problem> {
    if caller.may_child_safety() {
        return Ok(());
    }
    let keys = api.deps.keys.list(&caller.org).await.map_err(|error| key_problem(error, ""))?;
    let key = keys.iter().find(|listed| listed.id == key);
    match key.is_some_and(|key| key.scopes.contains(Scope::ChildSafety)) {
        true => caller.needs_child_safety(),
        false => Ok(()),
    }
}

async fn rotate(
    State(api): State<Api>,
    caller: Caller,
    Path(key): Path<String>,
    Body(rotation): Body<Rotation>,
) -> Result<Made, Problem> {
    let overlap = Duration::from_secs(rotation.overlap_seconds);
    rotate_once(&api, &caller, id(&key)?, ApiKeyId::random(), overlap).await.map(made)
}

/// Replaces a key by one of the id `new`, unless there is one.
pub(crate) async fn rotate_once(
    api: &Api,
    caller: &Caller,
    key: ApiKeyId,
    new: ApiKeyId,
    overlap: Duration,
) -> Result<NewlyMade, Problem> {
    check_key_scope(api, caller, key).await?;
    let rotated = api.deps.keys.rotate_once(&caller.org, key, new, overlap).await;
    rotated.map(NewlyMade::from).map_err(|error| key_problem(error, "/overlapSeconds"))
}

/// `period` is the member that says when a key ends.
fn key_problem(error: KeyError, period: &str) -> Problem {
    match error {
        KeyError::NoSuchKey => Problem::not_found("There is no such key."),
        KeyError::NoSuchOrg(org) => Problem::not_found(format!("There is no organisation `{org}`.")),
        KeyError::Ended => Problem::conflict("The key was revoked or has expired."),
        KeyError::NoScopes => invalid("/scopes", "A key needs at least one scope."),
        KeyError::BadName => invalid("/name", format!("A key's name {}.", names::RULE)),
        KeyError::Exists => Problem::conflict(
            "The key of this request exists already, and was shown when it was made: rotate it if it was not kept.",
        ),
        KeyError::Rotated => Problem::conflict(
            "The key was rotated already: rotate the key that was made then, or create one.",
        ),
        KeyError::TooLate => invalid(period, "No key ends after the year 9999."),
        KeyError::Store(error) => faults::store(error),
        error @ KeyError::NoRandomness => faults::failed(false, error.tag(), &error),
    }
}
