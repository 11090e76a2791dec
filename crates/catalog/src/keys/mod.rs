//! API keys: created, listed, rotated and revoked, and the authentication of callers. The servers decide
//! which scope a request needs.
//!
//! A lookup is cached for `key_cache_seconds`. A key that another process revoked, or that belongs to a
//! disabled organisation, works at most that long. Expiry is checked at each use and takes effect at once.

mod scopes;
use async_recursion::async_recursion as boxed;
pub mod token;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_schemas::{
    ids::{ApiKeyId, Millis, OrgId},
    names,
};
use tidegate_store::{
    Batch, Clock, ReplaceOutcome, RowRange, Store, WriteTime, system_clock,
    tables::catalog::{
        keys::{ApiKey, KeyOfOrg, KeyUse},
        orgs::Org,
    },
};

pub use self::{
    scopes::{Scope, Scopes, UnknownScope},
    token::{NotAToken, Token},
};
use crate::{Settings, cache::Cache};

/// Authenticated caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub org: OrgId,
    pub key_id: ApiKeyId,
    /// Name of the key, for logs and authorship.
    pub name: Arc<str>,
    pub scopes: Scopes,
}

impl Caller {
    pub fn has_scope(&self, scope: Scope) -> bool {
        self.scopes.grants(scope)
    }
}

/// Reason for rejecting a key. Servers give one response for all but the last two, so that a client cannot
/// find out which keys exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRejection {
    #[error("no API key was given")]
    Missing,
    #[error("this is no API key")]
    Malformed,
    #[error("the API key is unknown")]
    Unknown,
    #[error("the API key has expired")]
    Expired,
    #[error("the API key was revoked")]
    Revoked,
    #[error("the organisation is disabled")]
    OrgDisabled,
    /// The store is unavailable, so the key could not be checked.
    #[error("API keys cannot be checked now")]
    Unavailable,
}

impl KeyRejection {
    pub fn tag(self) -> &'static str {
        match self {
            Self::Missing => "key_missing",
            Self::Malformed => "key_malformed",
            Self::Unknown => "key_unknown",
            Self::Expired => "key_expired",
            Self::Revoked => "key_revoked",
            Self::OrgDisabled => "org_disabled",
            Self::Unavailable => "keys_unavailable",
        }
    }

    /// Returns the HTTP status of the response.
    pub fn status(self) -> u16 {
        match self {
            Self::Missing | Self::Malformed | Self::Unknown | Self::Expired | Self::Revoked => 401,
            Self::OrgDisabled => 403,
            Self::Unavailable => 503,
        }
    }
}

/// Error of creating or changing a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
    #[error("there is no organisation {0}")]
    NoSuchOrg(OrgId),
    #[error("there is no such key")]
    NoSuchKey,
    #[error("the key was revoked or has expired")]
    Ended,
    #[error("a key needs at least one scope")]
    NoScopes,
    #[error("a key's name {}", names::RULE)]
    BadName,
    #[error("no key ends after the year 9999")]
    TooLate,
    #[error("there is a key with this id already")]
    Exists,
    #[error("the key was rotated already")]
    Rotated,
    #[error("the system gives no random bytes")]
    NoRandomness,
}

impl KeyError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Store(error) => error.tag(),
            Self::NoSuchOrg(_) => "key_no_such_org",
            Self::NoSuchKey => "key_no_such_key",
            Self::Ended => "key_ended",
            Self::NoScopes => "key_no_scopes",
            Self::BadName => "key_bad_name",
            Self::TooLate => "key_too_late",
            Self::Exists => "key_exists",
            Self::Rotated => "key_rotated",
            Self::NoRandomness => "no_randomness",
        }
    }
}

/// Properties of a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub org: OrgId,
    pub name: String,
    pub scopes: Scopes,
    pub expires_at: Option<Millis>,
}

/// New key. Its token is not stored and cannot be shown again.
#[derive(Debug)]
pub struct CreatedKey {
    pub token: Token,
    pub info: KeyInfo,
}

/// Key in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: ApiKeyId,
    pub name: String,
    /// Public beginning of the token, which identifies the key and grants no access.
    pub prefix: String,
    pub scopes: Scopes,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
    /// Time of last use, to the minute.
    pub last_used_at: Option<Millis>,
}

/// API keys in the store. Clones share one cache.
#[derive(Clone)]
pub struct Keys(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Clock,
    env: String,
    cache: Cache<ApiKeyId, Arc<CachedKey>>,
    noted_uses: Mutex<HashMap<ApiKeyId, Millis>>,
    capacity: usize,
}

/// Cached key.
#[derive(Debug)]
struct CachedKey {
    caller: Caller,
    hash: Bytes,
    expires_at: Option<Millis>,
    revoked: bool,
    org_disabled: bool,
}

/// Least time between two stored uses of a key, to bound the writes.
const USE_WRITE_INTERVAL: Duration = Duration::from_secs(60);

impl Keys {
    pub fn new(store: Store, settings: &Settings) -> Self {
        Self::with_clock(store, settings, system_clock())
    }

    pub fn with_clock(store: Store, settings: &Settings, clock: Clock) -> Self {
        let cache = Cache::new(
            Duration::from_secs(settings.key_cache_seconds),
            Duration::from_secs(settings.unknown_key_cache_seconds),
            settings.cache_entries,
            Arc::clone(&clock),
        );
        let (env, capacity) = (settings.key_env.clone(), settings.cache_entries);
        Self(Arc::new(Inner { store, clock, env, cache, noted_uses: Mutex::default(), capacity }))
    }

    /// Returns the caller with this key. The key is empty if the request has none.
    #[boxed]
    pub async fn authenticate(&self, key: &str) -> Result<Caller, KeyRejection> {
        if key.is_empty() {
            return Err(KeyRejection::Missing);
        }
        let token = Token::parse(key).map_err(|_| KeyRejection::Malformed)?;
        let cached_key = self.load_key(token.id).await?;
        // The comparison also runs for a key that does not exist, so that response times do not reveal which
        // keys exist.
        let hash_matches = token.has_hash(cached_key.as_ref().map_or(&[0; 32], |key| &key.hash));
        let cached_key = cached_key.filter(|_| hash_matches).ok_or(KeyRejection::Unknown)?;
        self.admit(&cached_key)
    }

    /// Returns the caller with the key of this id, for a session that presented the key before.
    #[boxed]
    pub async fn caller_of_key(&self, id: ApiKeyId) -> Result<Caller, KeyRejection> {
        let cached_key = self.load_key(id).await?.ok_or(KeyRejection::Unknown)?;
        self.admit(&cached_key)
    }

    async fn load_key(&self, id: ApiKeyId) -> Result<Option<Arc<CachedKey>>, KeyRejection> {
        let result = self.0.cache.get(&id, || Box::pin(self.read_key(id))).await;
        result.map_err(|error| {
            tracing::warn!(tag = error.tag(), "API keys cannot be checked");
            KeyRejection::Unavailable
        })
    }

    /// Returns the caller unless the key is revoked or expired, or its organisation is disabled.
    fn admit(&self, key: &CachedKey) -> Result<Caller, KeyRejection> {
        let now = (self.0.clock)();
        if key.revoked {
            return Err(KeyRejection::Revoked);
        }
        // Checked here rather than in the cached lookup, so that a key expires on time.
        if key.expires_at.is_some_and(|end| end <= now) {
            return Err(KeyRejection::Expired);
        }
        if key.org_disabled {
            return Err(KeyRejection::OrgDisabled);
        }
        self.note_use(&key.caller, now);
        Ok(key.caller.clone())
    }

    /// Creates a key.
    #[boxed]
    pub async fn create(&self, new: NewKey) -> Result<CreatedKey, KeyError> {
        self.create_once(ApiKeyId::random(), new).await
    }

    /// Creates a key with this id. A repetition fails, as the token of the first call cannot be shown again.
    #[boxed]
    pub async fn create_once(&self, id: ApiKeyId, new: NewKey) -> Result<CreatedKey, KeyError> {
        if !names::is_name(&new.name) {
            return Err(KeyError::BadName);
        }
        self.create_with_id(id, new).await?.ok_or(KeyError::Exists)
    }

    /// Creates a key with this id; `None` if it exists.
    pub(crate) async fn create_with_id(
        &self,
        id: ApiKeyId,
        new: NewKey,
    ) -> Result<Option<CreatedKey>, KeyError> {
        let NewKey { org, name, scopes, expires_at } = new;
        if scopes.is_empty() {
            return Err(KeyError::NoScopes);
        }
        if expires_at.is_some_and(|end| end > Millis::LAST) {
            return Err(KeyError::TooLate);
        }
        if self.0.store.get::<Org>(&Org::key(org.clone())).await?.is_none() {
            return Err(KeyError::NoSuchOrg(org));
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|_| KeyError::NoRandomness)?;
        let token = Token::new(&self.0.env, id, secret);
        let created_at = (self.0.clock)();
        let list_row = KeyOfOrg { org: org.clone(), created_at, key_id: id, name: name.clone() };
        let row = ApiKey {
            key_id: id,
            org,
            name,
            env: self.0.env.clone(),
            hash: Bytes::copy_from_slice(&token.hash()),
            scopes: scopes.to_string(),
            created_at,
            expires_at,
            revoked_at: None,
            rotated_at: None,
            rotated_to: None,
            successor_expires_at: None,
            version: 0,
        };
        // A repetition would add the key to the list a second time.
        if self.0.store.get::<ApiKey>(&ApiKey::key(id)).await?.is_some() {
            return Ok(None);
        }
        // The list is written first: a working key that is not listed could not be found to be revoked.
        self.0.store.put_rows(WriteTime::after(None, created_at), &[list_row]).await?;
        if !self.0.store.insert_new(&row).await?.is_new() {
            return Ok(None);
        }
        // The id may be cached as unknown, from a lookup before it existed.
        self.0.cache.forget(&id);
        Ok(Some(CreatedKey { token, info: to_key_info(row, None) }))
    }

    /// Lists the keys of an organisation, the newest first, including expired and revoked ones.
    #[boxed]
    pub async fn list(&self, org: &OrgId) -> Result<Vec<KeyInfo>, KeyError> {
        let list_rows =
            self.0.store.scan::<KeyOfOrg>(&KeyOfOrg::partition(org.clone()), RowRange::all()).all().await?;
        let uses =
            self.0.store.scan::<KeyUse>(&KeyUse::partition(org.clone()), RowRange::all()).all().await?;
        let uses: HashMap<_, _> = uses.into_iter().map(|row| (row.key_id, row.last_used_at)).collect();
        let keys: Vec<_> = list_rows.iter().map(|row| ApiKey::key(row.key_id)).collect();
        let rows = self.0.store.get_many::<ApiKey>(&keys).await?;
        // A listed key without a row was never completed. One with another creation time has a second list
        // entry of its own.
        let complete_rows = rows.into_iter().zip(&list_rows).filter_map(|(row, list_row)| {
            row.filter(|row| row.org == *org && row.created_at == list_row.created_at)
        });
        Ok(complete_rows
            .map(|row| {
                let last_used_at = uses.get(&row.key_id).copied();
                to_key_info(row, last_used_at)
            })
            .collect())
    }

    /// Revokes a key at once. A repetition has no effect.
    #[boxed]
    pub async fn revoke(&self, org: &OrgId, id: ApiKeyId) -> Result<(), KeyError> {
        let revoked_at = (self.0.clock)();
        self.update_row(org, id, |row| {
            row.revoked_at.get_or_insert(revoked_at);
        })
        .await
        .map(drop)
    }

    /// Creates a key with the same scopes, and lets the old one expire after `overlap`.
    pub async fn rotate(&self, org: &OrgId, id: ApiKeyId, overlap: Duration) -> Result<CreatedKey, KeyError> {
        self.rotate_once(org, id, ApiKeyId::random(), overlap).await
    }

    /// Rotates a key to the key with the id `new`. Of concurrent rotations exactly one returns the new key. A
    /// repetition creates the new key if the first call crashed before it did.
    #[boxed]
    pub async fn rotate_once(
        &self,
        org: &OrgId,
        id: ApiKeyId,
        new: ApiKeyId,
        overlap: Duration,
    ) -> Result<CreatedKey, KeyError> {
        let old = self.claim_rotation(org, id, new, overlap).await?;
        let now = (self.0.clock)();
        let successor = old.rotated_to.unwrap_or(new);
        if old.revoked_at.is_none() && old.rotated_to.is_some() {
            // The successor keeps the original expiry. Its name is copied unchecked, as it may predate the
            // rule for names.
            let properties = NewKey {
                org: org.clone(),
                name: old.name,
                scopes: Scopes::from_stored(&old.scopes),
                expires_at: old.successor_expires_at,
            };
            // The caller that inserts the successor has the only copy of its token. All other callers are
            // refused below.
            if let Some(created) = self.create_with_id(successor, properties).await? {
                return Ok(created);
            }
        }
        if old.revoked_at.is_some() || old.expires_at.is_some_and(|end| end <= now) {
            return Err(KeyError::Ended);
        }
        Err(match self.load_row(org, new).await {
            Ok(_) => KeyError::Exists,
            Err(KeyError::NoSuchKey) => KeyError::Rotated,
            Err(error) => error,
        })
    }

    /// Marks the key as rotated to `new` and sets its expiry in one conditional write, unless it was rotated
    /// before. Returns the row with the effective rotation.
    async fn claim_rotation(
        &self,
        org: &OrgId,
        id: ApiKeyId,
        new: ApiKeyId,
        overlap: Duration,
    ) -> Result<ApiKey, KeyError> {
        let now = (self.0.clock)();
        let mut row = self.load_row(org, id).await?;
        loop {
            if row.rotated_at.is_some() {
                return Ok(row);
            }
            if row.revoked_at.is_some() || row.expires_at.is_some_and(|end| end <= now) {
                return Err(KeyError::Ended);
            }
            let end = now.plus(overlap);
            if end > Millis::LAST {
                return Err(KeyError::TooLate);
            }
            let rotated_row = ApiKey {
                // The overlap shortens the life of the old key, and never extends it.
                expires_at: Some(row.expires_at.map_or(end, |old_end| old_end.min(end))),
                rotated_at: Some(now),
                rotated_to: Some(new),
                successor_expires_at: row.expires_at,
                ..row.clone()
            };
            match self.0.store.replace(&rotated_row, row.version).await? {
                ReplaceOutcome::Done => {
                    self.0.cache.forget(&id);
                    return Ok(rotated_row);
                }
                ReplaceOutcome::Conflict(newer) => row = newer,
                ReplaceOutcome::Missing => return Err(KeyError::NoSuchKey),
            }
        }
    }

    async fn read_key(&self, id: ApiKeyId) -> Result<Option<Arc<CachedKey>>, tidegate_store::Error> {
        let Some(row) = self.0.store.get::<ApiKey>(&ApiKey::key(id)).await? else { return Ok(None) };
        let org = self.0.store.get::<Org>(&Org::key(row.org.clone())).await?;
        let caller = Caller {
            org: row.org,
            key_id: id,
            name: row.name.into(),
            scopes: Scopes::from_stored(&row.scopes),
        };
        Ok(Some(Arc::new(CachedKey {
            caller,
            hash: row.hash,
            expires_at: row.expires_at,
            revoked: row.revoked_at.is_some(),
            // A key without its organisation grants no access.
            org_disabled: org.is_none_or(|org| org.disabled_at.is_some()),
        })))
    }

    /// Loads a key of the organisation. A key of another organisation counts as missing.
    async fn load_row(&self, org: &OrgId, id: ApiKeyId) -> Result<ApiKey, KeyError> {
        let row = self.0.store.get::<ApiKey>(&ApiKey::key(id)).await?;
        row.filter(|row| row.org == *org).ok_or(KeyError::NoSuchKey)
    }

    async fn update_row(
        &self,
        org: &OrgId,
        id: ApiKeyId,
        update: impl Fn(&mut ApiKey),
    ) -> Result<ApiKey, KeyError> {
        let mut row = self.load_row(org, id).await?;
        loop {
            let mut updated_row = row.clone();
            update(&mut updated_row);
            match self.0.store.replace(&updated_row, row.version).await? {
                ReplaceOutcome::Done => {
                    self.0.cache.forget(&id);
                    return Ok(updated_row);
                }
                ReplaceOutcome::Conflict(newer) => row = newer,
                ReplaceOutcome::Missing => return Err(KeyError::NoSuchKey),
            }
        }
    }

    /// Stores the time of a use in the background. A lost write is made up for by a use after the interval.
    fn note_use(&self, caller: &Caller, now: Millis) {
        {
            let mut use_times = self.0.noted_uses.lock();
            if use_times
                .get(&caller.key_id)
                // A time in the future is left from before the clock was set back.
                .is_some_and(|last| now < last.plus(USE_WRITE_INTERVAL) && *last <= now)
            {
                return;
            }
            if use_times.len() >= self.0.capacity {
                // Bounds the map to keys used within the interval.
                use_times.retain(|_, last| now < last.plus(USE_WRITE_INTERVAL));
            }
            use_times.insert(caller.key_id, now);
        }
        let row = KeyUse { org: caller.org.clone(), key_id: caller.key_id, last_used_at: now };
        let store = self.0.store.clone();
        tokio::spawn(async move {
            let mut batch = Batch::new();
            batch.put_owned(WriteTime::after(None, now), row);
            if let Err(error) = store.write(batch).await {
                tracing::debug!(tag = error.tag(), "the use of a key was not noted");
            }
        });
    }
}

fn to_key_info(row: ApiKey, last_used_at: Option<Millis>) -> KeyInfo {
    KeyInfo {
        id: row.key_id,
        prefix: token::public_prefix(&row.env, row.key_id),
        name: row.name,
        scopes: Scopes::from_stored(&row.scopes),
        created_at: row.created_at,
        expires_at: row.expires_at,
        revoked_at: row.revoked_at,
        last_used_at,
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}
