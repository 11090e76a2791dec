//! First start on an empty store: an organisation, and a key to begin with.
//!
//! It prints nothing; the binary shows the key, once.

use tidegate_schemas::ids::{ApiKeyId, Kind, OrgId, derive};
use tidegate_store::{Clock, Store};

use crate::{
    keys::{KeyError, Keys, NewKey, Scopes, Token},
    orgs::{self, OrgError},
};

/// The organisation of an installation that has only one.
pub const DEFAULT_ORG: &str = "default";

/// Organisation and key that were created. The key is not stored: it can be shown now and never again.
#[derive(Debug)]
pub struct FirstStart {
    pub org: OrgId,
    pub key: Token,
}

#[derive(Debug, thiserror::Error)]
pub enum FirstStartError {
    #[error(transparent)]
    Org(#[from] OrgError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl FirstStartError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Org(error) => error.tag(),
            Self::Key(error) => error.tag(),
        }
    }

    /// The store is away. Trying again goes on where this ended.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Org(OrgError::Catalog(error)) => error.is_outage(),
            Self::Key(KeyError::Store(error)) => error.is_outage(),
            Self::Org(OrgError::BadId) | Self::Key(_) => false,
        }
    }
}

/// Makes the organisation `default` and its first key in a store without organisations. Of several processes that
/// start at once, one gets the key.
pub async fn first_start(
    store: &Store,
    keys: &Keys,
    clock: &Clock,
) -> Result<Option<FirstStart>, FirstStartError> {
    let org = OrgId::new(DEFAULT_ORG);
    let found = orgs::list(store).await.map_err(OrgError::from)?;
    let fresh = match found.as_slice() {
        [] => true,
        // Made by a start that died before it made the key.
        [only] if only.org == org => keys.list(&org).await?.is_empty(),
        _ => false,
    };
    if !fresh {
        return Ok(None);
    }
    orgs::create(store, &org, "Default", clock()).await?;
    let id: ApiKeyId = derive(Kind::FirstKey, &[org.as_str().as_bytes()]);
    let new = NewKey {
        org: org.clone(),
        name: "first key".to_owned(),
        scopes: Scopes::platform(),
        expires_at: None,
    };
    let created = keys.create_with_id(id, new).await?;
    Ok(created.map(|created| FirstStart { org, key: created.token }))
}
