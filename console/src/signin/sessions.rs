//! Sessions in the store, so that any process of the console knows them and a sign-out ends one everywhere.

use tidegate_catalog::{Caller as KeyHolder, Denied, Scope};
use tidegate_schemas::ids::Millis;
use tidegate_store::{Replaced, tables::catalog::sessions::Session};
use tidegate_web::Problem;

use super::cookies::Token;
use crate::admin::{Api, faults};

/// Begins a session with a new token.
pub(super) async fn begin(api: &Api, key: &KeyHolder) -> Result<Token, Problem> {
    let token = Token::random()?;
    let now = Millis::now();
    let row = Session {
        token_hash: token.hash(),
        org: key.org.clone(),
        key_id: key.key_id,
        created_at: now,
        expires_at: now.plus(api.settings.session()),
        ended_at: None,
        version: 0,
    };
    api.deps.moderation.store.insert_new(&row).await.map_err(faults::store)?;
    Ok(token)
}

/// Returns the holder of the key that a token's session was begun with, if the session has neither ended nor expired and the
/// key still opens the console. A key that was revoked by another process counts for as long as look-ups of keys are remembered
/// (`catalog.key_cache_seconds`).
pub(super) async fn find(api: &Api, token: &Token) -> Result<Option<KeyHolder>, Problem> {
    let store = &api.deps.moderation.store;
    let row = store.get::<Session>(&Session::key(token.hash())).await.map_err(faults::store)?;
    let Some(row) = row.filter(|row| row.ended_at.is_none() && Millis::now() < row.expires_at) else {
        return Ok(None);
    };
    match api.deps.keys.holder(row.key_id).await {
        Ok(key) if key.org == row.org && key.may(Scope::Review) => Ok(Some(key)),
        Err(Denied::Unavailable) => Err(faults::unreachable()),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Ends the session of a token. Ending it again changes nothing.
pub(super) async fn end(api: &Api, token: &Token) -> Result<(), Problem> {
    let store = &api.deps.moderation.store;
    let row = store.get::<Session>(&Session::key(token.hash())).await.map_err(faults::store)?;
    let Some(mut row) = row else { return Ok(()) };
    while row.ended_at.is_none() {
        let ended = Session { ended_at: Some(Millis::now()), ..row.clone() };
        match store.replace(&ended, row.version).await.map_err(faults::store)? {
            Replaced::Yes | Replaced::Gone => break,
            Replaced::No(newer) => row = newer,
        }
    }
    Ok(())
}
