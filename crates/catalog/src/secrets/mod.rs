//! The secrets of endpoints, which are what signs and what stands in headers: made, kept sealed, opened for who calls.
//!
//! It signs nothing (`egress`), and decides nothing about endpoints.

mod headers;
mod master_key;
mod seal;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tidegate_egress::Secret;
use tidegate_schemas::ids::{EndpointId, OrgId};
use tidegate_store::{
    Clock, Inserted, Replaced, Split, Store, system_clock,
    tables::catalog::secrets::{CURRENT, EndpointSecret, MasterKeyName},
};

pub use self::headers::HeaderOwner;
pub(crate) use self::headers::is_sealed;
pub use self::master_key::{MasterKey, MasterKeyError, Security};
use crate::{Settings, cache::Cache};

/// Why a secret cannot be had. It shows nothing of it.
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

/// Opens and makes secrets. Cloning it is cheap: all clones remember together.
#[derive(Clone)]
pub struct Secrets(Arc<Inner>);

struct Inner {
    store: Store,
    key: MasterKey,
    opened: Cache<(OrgId, EndpointId), Secret>,
    clock: Clock,
}

/// A missing secret is looked for again after this time: an endpoint waits for it.
const MISSING_FOR: Duration = Duration::from_secs(5);

/// Stands for the partial items endpoint where secrets name their endpoint. No document can have this key.
const PARTIAL_ITEMS: &str = "@partial-items";

impl Secrets {
    pub fn new(store: Store, key: MasterKey, settings: &Settings) -> Self {
        Self::with_clock(store, key, settings, system_clock())
    }

    pub fn with_clock(store: Store, key: MasterKey, settings: &Settings, clock: Clock) -> Self {
        let kept = Duration::from_secs(settings.secret_cache_seconds);
        let opened = Cache::new(kept, MISSING_FOR.min(kept), settings.cache_entries, Arc::clone(&clock));
        Self(Arc::new(Inner { store, key, opened, clock }))
    }

    /// Holds the key at hand against the one that the store's secrets are sealed under. The first key that asks is
    /// that one; `lost` names one that nobody has any more, and what is sealed under it stays shut.
    pub async fn claim(&self, lost: Option<&str>) -> Result<(), SecretError> {
        let (store, at_hand) = (&self.0.store, self.0.key.id());
        let row = |version| MasterKeyName {
            name: CURRENT.to_owned(),
            master_key: at_hand.to_owned(),
            named_at: (self.0.clock)(),
            version,
        };
        let mut named = store.get::<MasterKeyName>(&MasterKeyName::key(CURRENT)).await?;
        if named.is_none() {
            // Data of a version that kept no name still has it beside each secret.
            let secrets = store.scan_all::<EndpointSecret>(&Split::whole()).all().await?;
            let sealed_under = secrets.into_iter().map(|row| row.master_key).find(|key| key != at_hand);
            if let Some(sealed_under) = sealed_under.filter(|sealed_under| lost != Some(sealed_under)) {
                return Err(SecretError::OtherKey { sealed_under, at_hand: at_hand.to_owned() });
            }
            named = match store.insert_new(&row(0)).await? {
                Inserted::New => return Ok(()),
                Inserted::Existing(named) => Some(named),
            };
        }
        let Some(named) = named.filter(|named| named.master_key != at_hand) else { return Ok(()) };
        if lost == Some(&named.master_key)
            && matches!(store.replace(&row(named.version), named.version).await?, Replaced::Yes)
        {
            tracing::warn!(lost, at_hand, "another master key takes the place of one that is lost");
            return Ok(());
        }
        Err(SecretError::OtherKey { sealed_under: named.master_key, at_hand: at_hand.to_owned() })
    }

    /// Returns the secret to sign with. It may be as old as `secret_cache_seconds`.
    pub async fn for_endpoint(
        &self,
        org: &OrgId,
        endpoint: &EndpointId,
    ) -> Result<Option<Secret>, SecretError> {
        let key = (org.clone(), endpoint.clone());
        self.0.opened.get(&key, || self.read(org, endpoint)).await
    }

    /// The secret's text, for who configures the receiver. Always read anew.
    pub async fn reveal(&self, org: &OrgId, endpoint: &EndpointId) -> Result<Option<String>, SecretError> {
        Ok(self.read(org, endpoint).await?.map(|secret| secret.expose().to_owned()))
    }

    /// Makes a secret for an endpoint that has none; whether it did. The secret of an endpoint that was removed
    /// stays, so that one that comes back still verifies at its receiver.
    pub async fn ensure(&self, org: &OrgId, endpoint: &EndpointId) -> Result<bool, SecretError> {
        let key = EndpointSecret::key(org.clone(), endpoint.clone());
        if self.0.store.get::<EndpointSecret>(&key).await?.is_some() {
            return Ok(false);
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|_| SecretError::NoRandomness)?;
        let sealed = seal::seal(&self.0.key, &place(org, endpoint), Secret::generate(random).expose())?;
        let row = EndpointSecret {
            org: org.clone(),
            endpoint: endpoint.clone(),
            sealed: Bytes::from(sealed),
            master_key: self.0.key.id().to_owned(),
            created_at: (self.0.clock)(),
            version: 0,
        };
        let made = matches!(self.0.store.insert_new(&row).await?, Inserted::New);
        self.0.opened.forget(&(org.clone(), endpoint.clone()));
        Ok(made)
    }

    /// Returns the secret that requests for items are signed with. It is made when it is first asked for.
    pub async fn for_partial_items(&self, org: &OrgId) -> Result<Secret, SecretError> {
        let endpoint = EndpointId::new(PARTIAL_ITEMS);
        if let Some(secret) = self.for_endpoint(org, &endpoint).await? {
            return Ok(secret);
        }
        self.ensure(org, &endpoint).await?;
        // Read anew: it may be remembered that there is none, if another request or process has made it since.
        let secret = self.read(org, &endpoint).await?;
        secret.ok_or_else(|| SecretError::Tampered { owner: HeaderOwner::from(&endpoint).to_string() })
    }

    async fn read(&self, org: &OrgId, endpoint: &EndpointId) -> Result<Option<Secret>, SecretError> {
        let key = EndpointSecret::key(org.clone(), endpoint.clone());
        let Some(row) = self.0.store.get::<EndpointSecret>(&key).await? else { return Ok(None) };
        if row.master_key != self.0.key.id() {
            return Err(SecretError::OtherMasterKey {
                owner: HeaderOwner::from(endpoint).to_string(),
                sealed_under: row.master_key,
                at_hand: self.0.key.id().to_owned(),
            });
        }
        let text = seal::open(&self.0.key, &place(org, endpoint), &row.sealed);
        let secret = text.and_then(|text| Secret::parse(&text).ok());
        secret
            .ok_or_else(|| SecretError::Tampered { owner: HeaderOwner::from(endpoint).to_string() })
            .map(Some)
    }
}

fn place(org: &OrgId, endpoint: &EndpointId) -> Vec<u8> {
    seal::place("tidegate endpoint secret", &[org.as_str(), endpoint.as_str()])
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets(under {})", self.0.key.id())
    }
}
