//! Secrets of endpoints: signing secrets and header values, stored sealed and opened for their users.
//! `egress` signs with them.

mod headers;
mod master_key;
mod seal;

use std::{fmt, sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use tidegate_egress::Secret;
use tidegate_schemas::ids::{EndpointId, OrgId};
use tidegate_store::{
    Clock, InsertOutcome, ReplaceOutcome, Split, Store, system_clock,
    tables::catalog::secrets::{CURRENT, EndpointSecret, MasterKeyName},
};

pub use self::headers::HeaderOwner;
pub(crate) use self::headers::is_sealed;
pub use self::master_key::{MasterKey, MasterKeyError, Security};
use crate::{Settings, cache::Cache};

/// Error of reading a secret. Its text shows no part of the secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SecretError {
    #[error("{0}")]
    Store(Arc<tidegate_store::Error>),
    #[error(
        "the secret of {owner} is sealed under master key {sealed_under}, and the one at hand is {at_hand}"
    )]
    OtherMasterKey { owner: String, sealed_under: String, at_hand: String },
    #[error(
        "the secrets are sealed under the master key with the fingerprint {sealed_under}, and the one at hand is \
         {at_hand}: give the former as security.master_key or security.master_key_file, or, if nobody has it any \
         more, name it as security.lost_master_key"
    )]
    OtherKey { sealed_under: String, at_hand: String },
    #[error("the sealed secret of {owner} was changed or belongs to another place")]
    Tampered { owner: String },
    #[error("the system gives no random bytes")]
    NoRandomness,
}

impl SecretError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Store(error) => error.tag(),
            Self::OtherMasterKey { .. } => "secret_other_master_key",
            Self::OtherKey { .. } => "other_master_key",
            Self::Tampered { .. } => "secret_tampered",
            Self::NoRandomness => "no_randomness",
        }
    }

    /// True if the error is an outage, so that a retry may help.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_outage())
    }
}

impl From<tidegate_store::Error> for SecretError {
    fn from(error: tidegate_store::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// Service that creates and opens secrets. Clones share one cache.
#[derive(Clone)]
pub struct Secrets(Arc<Inner>);

struct Inner {
    store: Store,
    key: MasterKey,
    cache: Cache<(OrgId, EndpointId), Secret>,
    clock: Clock,
}

/// Time for which a missing secret is cached. Short, because deliveries to its endpoint wait for it.
const MISSING_SECRET_TTL: Duration = Duration::from_secs(5);

/// Key under which the secret of the partial-items endpoint is stored. `@` is invalid in the key of a document.
const PARTIAL_ITEMS_ENDPOINT: &str = "@partial-items";

impl Secrets {
    pub fn new(store: Store, key: MasterKey, settings: &Settings) -> Self {
        Self::with_clock(store, key, settings, system_clock())
    }

    pub fn with_clock(store: Store, key: MasterKey, settings: &Settings, clock: Clock) -> Self {
        let ttl = Duration::from_secs(settings.secret_cache_seconds);
        let cache = Cache::new(ttl, MISSING_SECRET_TTL.min(ttl), settings.cache_entries, Arc::clone(&clock));
        Self(Arc::new(Inner { store, key, cache, clock }))
    }

    /// Checks this master key against the one that the stored secrets are sealed under. In a new store, the
    /// first key becomes that one. `lost` is the fingerprint of a lost key to be replaced; secrets sealed
    /// under it remain unreadable.
    #[boxed]
    pub async fn claim_store(&self, lost: Option<&str>) -> Result<(), SecretError> {
        let (store, at_hand) = (&self.0.store, self.0.key.id());
        let row = |version| MasterKeyName {
            name: CURRENT.to_owned(),
            master_key: at_hand.to_owned(),
            named_at: (self.0.clock)(),
            version,
        };
        let mut stored_row = store.get::<MasterKeyName>(&MasterKeyName::key(CURRENT)).await?;
        if stored_row.is_none() {
            // Data of an older release has no such row, but each secret names its key.
            let secrets = store.scan_all::<EndpointSecret>(&Split::whole_table()).all().await?;
            let sealed_under = secrets.into_iter().map(|row| row.master_key).find(|key| key != at_hand);
            if let Some(sealed_under) = sealed_under.filter(|sealed_under| lost != Some(sealed_under)) {
                return Err(SecretError::OtherKey { sealed_under, at_hand: at_hand.to_owned() });
            }
            stored_row = match store.insert_new(&row(0)).await? {
                InsertOutcome::New => return Ok(()),
                InsertOutcome::Existing(existing_row) => Some(existing_row),
            };
        }
        let Some(stored_row) = stored_row.filter(|row| row.master_key != at_hand) else { return Ok(()) };
        if lost == Some(&stored_row.master_key)
            && matches!(
                store.replace(&row(stored_row.version), stored_row.version).await?,
                ReplaceOutcome::Done
            )
        {
            tracing::warn!(lost, at_hand, "another master key takes the place of one that is lost");
            return Ok(());
        }
        Err(SecretError::OtherKey { sealed_under: stored_row.master_key, at_hand: at_hand.to_owned() })
    }

    /// Returns the signing secret of an endpoint, at most `secret_cache_seconds` old.
    #[boxed]
    pub async fn for_endpoint(
        &self,
        org: &OrgId,
        endpoint: &EndpointId,
    ) -> Result<Option<Secret>, SecretError> {
        let key = (org.clone(), endpoint.clone());
        self.0.cache.get(&key, || self.load_secret(org, endpoint)).await
    }

    /// Returns the text of the secret, to configure the receiver. Not cached.
    #[boxed]
    pub async fn reveal(&self, org: &OrgId, endpoint: &EndpointId) -> Result<Option<String>, SecretError> {
        Ok(self.load_secret(org, endpoint).await?.map(|secret| secret.expose().to_owned()))
    }

    /// Creates a secret for an endpoint that has none; returns true if it did. The secret of a removed
    /// endpoint is kept, so that its receiver can still verify calls if the endpoint is added again.
    #[boxed]
    pub async fn ensure_secret(&self, org: &OrgId, endpoint: &EndpointId) -> Result<bool, SecretError> {
        let key = EndpointSecret::key(org.clone(), endpoint.clone());
        if self.0.store.get::<EndpointSecret>(&key).await?.is_some() {
            return Ok(false);
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|_| SecretError::NoRandomness)?;
        let sealed =
            seal::seal(&self.0.key, &sealing_context(org, endpoint), Secret::generate(random).expose())?;
        let row = EndpointSecret {
            org: org.clone(),
            endpoint: endpoint.clone(),
            sealed: Bytes::from(sealed),
            master_key: self.0.key.id().to_owned(),
            created_at: (self.0.clock)(),
            version: 0,
        };
        // Of concurrent calls, exactly one inserts its secret.
        let was_created = matches!(self.0.store.insert_new(&row).await?, InsertOutcome::New);
        self.0.cache.forget(&(org.clone(), endpoint.clone()));
        Ok(was_created)
    }

    /// Returns the secret that signs requests for items, and creates it on first use.
    #[boxed]
    pub async fn for_partial_items(&self, org: &OrgId) -> Result<Secret, SecretError> {
        let endpoint = EndpointId::new(PARTIAL_ITEMS_ENDPOINT);
        if let Some(secret) = self.for_endpoint(org, &endpoint).await? {
            return Ok(secret);
        }
        self.ensure_secret(org, &endpoint).await?;
        // Not from the cache, which may still remember the secret as missing.
        let secret = self.load_secret(org, &endpoint).await?;
        secret.ok_or_else(|| SecretError::Tampered { owner: HeaderOwner::from(&endpoint).to_string() })
    }

    async fn load_secret(&self, org: &OrgId, endpoint: &EndpointId) -> Result<Option<Secret>, SecretError> {
        let key = EndpointSecret::key(org.clone(), endpoint.clone());
        let Some(row) = self.0.store.get::<EndpointSecret>(&key).await? else { return Ok(None) };
        if row.master_key != self.0.key.id() {
            return Err(SecretError::OtherMasterKey {
                owner: HeaderOwner::from(endpoint).to_string(),
                sealed_under: row.master_key,
                at_hand: self.0.key.id().to_owned(),
            });
        }
        let text = seal::open(&self.0.key, &sealing_context(org, endpoint), &row.sealed);
        let secret = text.and_then(|text| Secret::parse(&text).ok());
        secret
            .ok_or_else(|| SecretError::Tampered { owner: HeaderOwner::from(endpoint).to_string() })
            .map(Some)
    }
}

fn sealing_context(org: &OrgId, endpoint: &EndpointId) -> Vec<u8> {
    seal::encode_context("tidegate endpoint secret", &[org.as_str(), endpoint.as_str()])
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets(under {})", self.0.key.id())
    }
}
