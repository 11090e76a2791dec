//! Creates the first organisation and its key in an empty store. The binary prints the key.

use async_recursion::async_recursion as boxed;
use tidegate_schemas::ids::{ApiKeyId, Kind, OrgId, derive};
use tidegate_store::{Clock, Store};

use crate::{
    keys::{KeyError, Keys, NewKey, Scopes, Token},
    orgs::{self, OrgError},
};

/// Organisation of an installation with a single one.
pub const DEFAULT_ORG: &str = "default";

/// Created organisation and key. The key is not stored in clear and cannot be shown again.
#[derive(Debug)]
pub struct FirstStartResult {
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

    /// True if the error is an outage of the store. A repetition continues from the failed step.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Org(OrgError::Catalog(error)) => error.is_outage(),
            Self::Key(KeyError::Store(error)) => error.is_outage(),
            Self::Org(OrgError::BadId) | Self::Key(_) => false,
        }
    }
}

/// Creates the organisation `default` and its first key in a store without organisations. Of several
/// processes that start concurrently, one gets the key.
#[boxed]
pub async fn first_start(
    store: &Store,
    keys: &Keys,
    clock: &Clock,
) -> Result<Option<FirstStartResult>, FirstStartError> {
    let org = OrgId::new(DEFAULT_ORG);
    let existing_orgs = orgs::list(store).await.map_err(OrgError::from)?;
    let is_first_start = match existing_orgs.as_slice() {
        [] => true,
        // An earlier start crashed between creating the organisation and its key.
        [org_row] if org_row.org == org => keys.list(&org).await?.is_empty(),
        _ => false,
    };
    if !is_first_start {
        return Ok(None);
    }
    orgs::create(store, &org, "Default", clock()).await?;
    // The derived id is the same in all processes, so the conditional insert lets exactly one of them create
    // the key.
    let id: ApiKeyId = derive(Kind::FirstKey, &[org.as_str().as_bytes()]);
    let properties = NewKey {
        org: org.clone(),
        name: "first key".to_owned(),
        scopes: Scopes::platform(),
        expires_at: None,
    };
    let created = keys.create_with_id(id, properties).await?;
    Ok(created.map(|created| FirstStartResult { org, key: created.token }))
}
