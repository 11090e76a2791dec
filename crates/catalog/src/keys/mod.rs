//! API keys: making, listing and ending them, and telling who a caller is.
//!
//! It reads no request and says nothing about which scope a request needs.
//!
//! A look-up is remembered for `key_cache_seconds`, so a key that was revoked elsewhere, or whose organisation was
//! disabled, works at most so long. Expiry is not remembered: a key ends at its instant.

mod scopes;
pub mod token;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_schemas::{
    ids::{ApiKeyId, Millis, OrgId},
    names,
};
use tidegate_store::{
    At, Batch, Clock, Replaced, Store, WriteTime, system_clock,
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

/// Caller of a request, as far as the key tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub org: OrgId,
    pub key_id: ApiKeyId,
    /// Name of the key, for logs and authorship.
    pub name: Arc<str>,
    pub scopes: Scopes,
}

impl Caller {
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.grants(scope)
    }
}

/// Why a key opens nothing. All but the last two are answered alike, so that nobody learns which keys exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
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
    /// The store cannot be asked, so nothing is known about the key.
    #[error("API keys cannot be checked now")]
    Unavailable,
}

impl Denied {
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

    /// The HTTP status that says so.
    pub fn status(self) -> u16 {
        match self {
            Self::Missing | Self::Malformed | Self::Unknown | Self::Expired | Self::Revoked => 401,
            Self::OrgDisabled => 403,
            Self::Unavailable => 503,
        }
    }
}

/// Why a key cannot be made or changed.
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

/// A key that was just made. Its token is not kept: it can be shown now and never again.
#[derive(Debug)]
pub struct Created {
    pub token: Token,
    pub info: KeyInfo,
}

/// Key as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: ApiKeyId,
    pub name: String,
    /// The beginning of its token, which tells keys apart and opens nothing.
    pub prefix: String,
    pub scopes: Scopes,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
    /// Time of last use, to the minute.
    pub last_used_at: Option<Millis>,
}

/// Keys in the store. Cloning it is cheap: all clones remember together.
#[derive(Clone)]
pub struct Keys(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Clock,
    env: String,
    known: Cache<ApiKeyId, Arc<Known>>,
    noted_uses: Mutex<HashMap<ApiKeyId, Millis>>,
    capacity: usize,
}

/// A key as it was looked up.
#[derive(Debug)]
struct Known {
    caller: Caller,
    hash: Bytes,
    expires_at: Option<Millis>,
    revoked: bool,
    org_disabled: bool,
}

/// Uses are written down at most so often.
const USES_EVERY: Duration = Duration::from_secs(60);

impl Keys {
    pub fn new(store: Store, settings: &Settings) -> Self {
        Self::with_clock(store, settings, system_clock())
    }

    pub fn with_clock(store: Store, settings: &Settings, clock: Clock) -> Self {
        let known = Cache::new(
            Duration::from_secs(settings.key_cache_seconds),
            Duration::from_secs(settings.unknown_key_cache_seconds),
            settings.cache_entries,
            Arc::clone(&clock),
        );
        let (env, capacity) = (settings.key_env.clone(), settings.cache_entries);
        Self(Arc::new(Inner { store, clock, env, known, noted_uses: Mutex::default(), capacity }))
    }

    /// Returns the caller with this key. The key of a request without one is the empty text.
    pub async fn authenticate(&self, key: &str) -> Result<Caller, Denied> {
        if key.is_empty() {
            return Err(Denied::Missing);
        }
        let token = Token::parse(key).map_err(|_| Denied::Malformed)?;
        let known = self.known(token.id).await?;
        // As much work for a key that does not exist as for a wrong secret.
        let fits = token.has_hash(known.as_ref().map_or(&[0; 32], |known| &known.hash));
        let known = known.filter(|_| fits).ok_or(Denied::Unknown)?;
        self.admit(&known)
    }

    /// Returns the caller with the key of this id, for whoever has shown the key itself before.
    pub async fn holder(&self, id: ApiKeyId) -> Result<Caller, Denied> {
        let known = self.known(id).await?.ok_or(Denied::Unknown)?;
        self.admit(&known)
    }

    async fn known(&self, id: ApiKeyId) -> Result<Option<Arc<Known>>, Denied> {
        let known = self.0.known.get(&id, || Box::pin(self.look_up(id))).await;
        known.map_err(|error| {
            tracing::warn!(tag = error.tag(), "API keys cannot be checked");
            Denied::Unavailable
        })
    }

    /// Returns the caller unless the key or its organisation has ended.
    fn admit(&self, known: &Known) -> Result<Caller, Denied> {
        let now = (self.0.clock)();
        if known.revoked {
            return Err(Denied::Revoked);
        }
        if known.expires_at.is_some_and(|end| end <= now) {
            return Err(Denied::Expired);
        }
        if known.org_disabled {
            return Err(Denied::OrgDisabled);
        }
        self.note_use(&known.caller, now);
        Ok(known.caller.clone())
    }

    /// Makes a key.
    pub async fn create(&self, new: NewKey) -> Result<Created, KeyError> {
        self.create_once(ApiKeyId::random(), new).await
    }

    /// Makes a key under this id. A repetition makes none, and cannot show the first one's token.
    pub async fn create_once(&self, id: ApiKeyId, new: NewKey) -> Result<Created, KeyError> {
        if !names::is_name(&new.name) {
            return Err(KeyError::BadName);
        }
        self.create_with_id(id, new).await?.ok_or(KeyError::Exists)
    }

    /// Makes a key under this id unless there is one.
    pub(crate) async fn create_with_id(
        &self,
        id: ApiKeyId,
        new: NewKey,
    ) -> Result<Option<Created>, KeyError> {
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
        let now = (self.0.clock)();
        let listed = KeyOfOrg { org: org.clone(), created_at: now, key_id: id, name: name.clone() };
        let row = ApiKey {
            key_id: id,
            org,
            name,
            env: self.0.env.clone(),
            hash: Bytes::copy_from_slice(&token.hash()),
            scopes: scopes.to_string(),
            created_at: now,
            expires_at,
            revoked_at: None,
            rotated_at: None,
            rotated_to: None,
            successor_expires_at: None,
            version: 0,
        };
        // A repetition would list the key once more.
        if self.0.store.get::<ApiKey>(&ApiKey::key(id)).await?.is_some() {
            return Ok(None);
        }
        // The list first: a key that works but is not listed could not be found to be revoked.
        self.0.store.put(WriteTime::after(None, now), &[listed]).await?;
        if !self.0.store.insert_new(&row).await?.is_new() {
            return Ok(None);
        }
        self.0.known.forget(&id);
        Ok(Some(Created { token, info: info(row, None) }))
    }

    /// The keys of an organisation, the newest first, the ended ones included.
    pub async fn list(&self, org: &OrgId) -> Result<Vec<KeyInfo>, KeyError> {
        let listed =
            self.0.store.scan::<KeyOfOrg>(&KeyOfOrg::partition(org.clone()), At::all()).all().await?;
        let uses = self.0.store.scan::<KeyUse>(&KeyUse::partition(org.clone()), At::all()).all().await?;
        let uses: HashMap<_, _> = uses.into_iter().map(|row| (row.key_id, row.last_used_at)).collect();
        let keys: Vec<_> = listed.iter().map(|row| ApiKey::key(row.key_id)).collect();
        let rows = self.0.store.get_many::<ApiKey>(&keys).await?;
        // A listed key without a row was never finished; one with another birth is listed again under its own.
        let whole = rows.into_iter().zip(&listed).filter_map(|(row, listed)| {
            row.filter(|row| row.org == *org && row.created_at == listed.created_at)
        });
        Ok(whole
            .map(|row| {
                let used = uses.get(&row.key_id).copied();
                info(row, used)
            })
            .collect())
    }

    /// Ends a key now. Ending it again changes nothing.
    pub async fn revoke(&self, org: &OrgId, id: ApiKeyId) -> Result<(), KeyError> {
        let now = (self.0.clock)();
        self.change(org, id, |row| {
            row.revoked_at.get_or_insert(now);
        })
        .await
        .map(drop)
    }

    /// Makes a key that may do the same, and lets the old one work for `overlap` more.
    pub async fn rotate(&self, org: &OrgId, id: ApiKeyId, overlap: Duration) -> Result<Created, KeyError> {
        self.rotate_once(org, id, ApiKeyId::random(), overlap).await
    }

    /// Rotates a key as [`rotate`](Self::rotate) does, to the key of id `new`. Of concurrent rotations of one key exactly one
    /// returns the new key. A repetition makes the new key if a crash kept the first try from that.
    pub async fn rotate_once(
        &self,
        org: &OrgId,
        id: ApiKeyId,
        new: ApiKeyId,
        overlap: Duration,
    ) -> Result<Created, KeyError> {
        let old = self.claim_rotation(org, id, new, overlap).await?;
        let now = (self.0.clock)();
        let successor = old.rotated_to.unwrap_or(new);
        if old.revoked_at.is_none() && old.rotated_to.is_some() {
            // A key for a limited time stays one. Its name may be older than the rule for names.
            let properties = NewKey {
                org: org.clone(),
                name: old.name,
                scopes: Scopes::of_stored(&old.scopes),
                expires_at: old.successor_expires_at,
            };
            // Whoever inserts the successor has the only copy of its token; everyone else is refused below.
            if let Some(created) = self.create_with_id(successor, properties).await? {
                return Ok(created);
            }
        }
        if old.revoked_at.is_some() || old.expires_at.is_some_and(|end| end <= now) {
            return Err(KeyError::Ended);
        }
        Err(match self.row(org, new).await {
            Ok(_) => KeyError::Exists,
            Err(KeyError::NoSuchKey) => KeyError::Rotated,
            Err(error) => error,
        })
    }

    /// Marks the key as rotated to `new`, in one conditional write with its end, unless it was rotated before. Returns the row with the
    /// rotation that counts.
    async fn claim_rotation(
        &self,
        org: &OrgId,
        id: ApiKeyId,
        new: ApiKeyId,
        overlap: Duration,
    ) -> Result<ApiKey, KeyError> {
        let now = (self.0.clock)();
        let mut row = self.row(org, id).await?;
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
                expires_at: Some(row.expires_at.map_or(end, |old_end| old_end.min(end))),
                rotated_at: Some(now),
                rotated_to: Some(new),
                successor_expires_at: row.expires_at,
                ..row.clone()
            };
            match self.0.store.replace(&rotated_row, row.version).await? {
                Replaced::Yes => {
                    self.0.known.forget(&id);
                    return Ok(rotated_row);
                }
                Replaced::No(newer) => row = newer,
                Replaced::Gone => return Err(KeyError::NoSuchKey),
            }
        }
    }

    async fn look_up(&self, id: ApiKeyId) -> Result<Option<Arc<Known>>, tidegate_store::Error> {
        let Some(row) = self.0.store.get::<ApiKey>(&ApiKey::key(id)).await? else { return Ok(None) };
        let org = self.0.store.get::<Org>(&Org::key(row.org.clone())).await?;
        let caller = Caller {
            org: row.org,
            key_id: id,
            name: row.name.into(),
            scopes: Scopes::of_stored(&row.scopes),
        };
        Ok(Some(Arc::new(Known {
            caller,
            hash: row.hash,
            expires_at: row.expires_at,
            revoked: row.revoked_at.is_some(),
            org_disabled: org.is_none_or(|org| org.disabled_at.is_some()),
        })))
    }

    /// An organisation sees its own keys only.
    async fn row(&self, org: &OrgId, id: ApiKeyId) -> Result<ApiKey, KeyError> {
        let row = self.0.store.get::<ApiKey>(&ApiKey::key(id)).await?;
        row.filter(|row| row.org == *org).ok_or(KeyError::NoSuchKey)
    }

    async fn change(
        &self,
        org: &OrgId,
        id: ApiKeyId,
        change: impl Fn(&mut ApiKey),
    ) -> Result<ApiKey, KeyError> {
        let mut row = self.row(org, id).await?;
        loop {
            let mut changed = row.clone();
            change(&mut changed);
            match self.0.store.replace(&changed, row.version).await? {
                Replaced::Yes => {
                    self.0.known.forget(&id);
                    return Ok(changed);
                }
                Replaced::No(newer) => row = newer,
                Replaced::Gone => return Err(KeyError::NoSuchKey),
            }
        }
    }

    /// Notes a use, without making the caller wait. A note that gets lost is made up for a minute later.
    fn note_use(&self, caller: &Caller, now: Millis) {
        {
            let mut noted = self.0.noted_uses.lock();
            if noted.get(&caller.key_id).is_some_and(|last| now < last.plus(USES_EVERY) && *last <= now) {
                return;
            }
            if noted.len() >= self.0.capacity {
                noted.retain(|_, last| now < last.plus(USES_EVERY));
            }
            noted.insert(caller.key_id, now);
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

fn info(row: ApiKey, last_used_at: Option<Millis>) -> KeyInfo {
    KeyInfo {
        id: row.key_id,
        prefix: token::shown(&row.env, row.key_id),
        name: row.name,
        scopes: Scopes::of_stored(&row.scopes),
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
