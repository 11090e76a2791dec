//! Stores sessions, so that every process of the console knows them and a sign-out takes effect everywhere.

use tidegate_catalog::{Caller as KeyHolder, KeyRejection, Scope};
use tidegate_schemas::ids::Millis;
use tidegate_store::{ReplaceOutcome, tables::catalog::sessions::Session};
use tidegate_web::Problem;

use super::cookies::SessionToken;
use crate::{admin::request::faults, api::Api};

/// Starts a session with a new token.
pub(super) async fn insert_session(api: &Api, key: &KeyHolder) -> Result<SessionToken, Problem> {
    let token = SessionToken::random()?;
    let created_at = Millis::now();
    let row = Session {
        token_hash: token.hash(),
        org: key.org.clone(),
        key_id: key.key_id,
        created_at,
        expires_at: created_at.plus(api.settings.session()),
        ended_at: None,
        version: 0,
    };
    api.deps.moderation.store.insert_new(&row).await.map_err(faults::store_problem)?;
    Ok(token)
}

/// Returns the holder of the session's key, if the session is active and the key may still use the console. A key revoked by
/// another process stays valid here for the lifetime of cached look-ups (`catalog.key_cache_seconds`).
pub(super) async fn find_holder(api: &Api, token: &SessionToken) -> Result<Option<KeyHolder>, Problem> {
    let store = &api.deps.moderation.store;
    let row = store.get::<Session>(&Session::key(token.hash())).await.map_err(faults::store_problem)?;
    // Rows expire later than their sessions, so the end is checked here.
    let Some(row) = row.filter(|row| row.ended_at.is_none() && Millis::now() < row.expires_at) else {
        return Ok(None);
    };
    // The key is checked on every request, so a revocation ends its sessions.
    match api.deps.keys.caller_of_key(row.key_id).await {
        Ok(key) if key.org == row.org && key.has_scope(Scope::Review) => Ok(Some(key)),
        Err(KeyRejection::Unavailable) => Err(faults::outage_problem()),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Ends the session of a token. Ending it again has no effect.
pub(super) async fn end_session(api: &Api, token: &SessionToken) -> Result<(), Problem> {
    let store = &api.deps.moderation.store;
    let row = store.get::<Session>(&Session::key(token.hash())).await.map_err(faults::store_problem)?;
    let Some(mut row) = row else { return Ok(()) };
    while row.ended_at.is_none() {
        let ended = Session { ended_at: Some(Millis::now()), ..row.clone() };
        match store.replace(&ended, row.version).await.map_err(faults::store_problem)? {
            // A replaced row is read again: the sign-out must not be lost to a concurrent change.
            ReplaceOutcome::Done | ReplaceOutcome::Missing => break,
            ReplaceOutcome::Conflict(newer) => row = newer,
        }
    }
    Ok(())
}
