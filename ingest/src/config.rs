//! Configuration that a request is checked against, and whether it has an item's type.
//!
//! It compiles nothing; the catalog does.

use std::sync::Arc;

use tidegate_catalog::{Compiled, ItemType};
use tidegate_schemas::{
    hint,
    ids::{ActionId, OrgId, PolicyId, TypeId},
    json::Node,
    records::Mention,
    validation_error::{Pointer, ValidationError, ValidationErrors},
};
use tidegate_web::Problem;

use crate::Api;

impl Api {
    /// The configuration that is live here, or the newest one if that does not know all that the request names: it
    /// may have been changed a moment ago.
    pub(crate) async fn config(
        &self,
        org: &OrgId,
        knows: impl Fn(&Compiled) -> bool,
    ) -> Result<Arc<Compiled>, Problem> {
        match self.deps.live.org(org) {
            Some(config) if knows(&config) => Ok(config),
            // Rare, and many times as large as all else that a request carries.
            _ => Box::pin(self.deps.live.latest(org)).await.map_err(|error| self.catalog_problem(&error)),
        }
    }
}

/// True if the configuration has the type, in the version that the item names.
pub(crate) fn knows(config: &Compiled, type_id: &TypeId, version: Option<&str>) -> bool {
    config.item_type_at(type_id, version).is_some()
}

/// Why the type or its version is refused.
pub(crate) fn unknown(config: &Compiled, type_id: &TypeId, version: Option<&str>) -> Option<Unknown> {
    let Some(item_type) = config.item_type(type_id) else {
        let known = config.item_types().map(|known| known.key.as_str());
        let near = hint(type_id.as_str(), known);
        return Some(Unknown::Type(format!("There is no item type `{type_id}`.{near}")));
    };
    let named = version.filter(|named| !item_type.takes_version(named))?;
    let current = &item_type.version;
    Some(Unknown::Version(format!(
        "`{type_id}` has no version `{named}`; its current version is `{current}`."
    )))
}

pub(crate) enum Unknown {
    Type(String),
    Version(String),
}

impl Unknown {
    pub(crate) fn detail(self) -> String {
        match self {
            Self::Type(detail) | Self::Version(detail) => detail,
        }
    }

    /// Points at the member that names it, in whichever form the item was sent.
    fn fault(self, item: Option<Node<'_>>, at: &Pointer<'_>) -> ValidationError {
        let nested = item.is_some_and(|item| item.get("type").is_some() && item.get("typeId").is_none());
        let inner = at.key("type");
        match (self, nested) {
            (Self::Type(detail), false) => ValidationError::data(&at.key("typeId"), detail),
            (Self::Type(detail), true) => ValidationError::data(&inner.key("id"), detail),
            (Self::Version(detail), false) => ValidationError::data(&at.key("typeVersion"), detail),
            (Self::Version(detail), true) => ValidationError::data(&inner.key("version"), detail),
        }
    }
}

/// The type of an item that must have one. `node` is the item as it stands in the request.
pub(crate) fn item_type<'c>(
    config: &'c Compiled,
    (type_id, version): (&TypeId, Option<&str>),
    node: Option<Node<'_>>,
    at: &Pointer<'_>,
    faults: &mut ValidationErrors,
) -> Option<&'c ItemType> {
    match unknown(config, type_id, version) {
        None => config.item_type_at(type_id, version),
        Some(unknown) => {
            faults.push(unknown.fault(node, at));
            None
        }
    }
}

/// A policy that a platform named by id or key, under its id. An unknown one is kept and marked.
pub(crate) fn policy(config: &Compiled, named: &str) -> Mention {
    match config.policy(&PolicyId::new(named)) {
        Some(policy) => Mention { id: policy.id.to_string(), known: true },
        None => Mention { id: named.to_owned(), known: false },
    }
}

/// An action that a platform named. An unknown one is kept and marked.
pub(crate) fn action(config: &Compiled, id: &str) -> Mention {
    Mention { id: id.to_owned(), known: config.action(&ActionId::new(id)).is_some() }
}
