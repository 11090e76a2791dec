//! Loads the configuration of a request, and resolves its types, policies and actions.

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
    /// Returns the loaded configuration, or the latest one if the loaded one lacks a name of the request. The
    /// configuration may have been changed a moment before the request.
    pub(crate) async fn load_config(
        &self,
        org: &OrgId,
        is_sufficient: impl Fn(&Compiled) -> bool,
    ) -> Result<Arc<Compiled>, Problem> {
        match self.deps.live.org(org) {
            Some(config) if is_sufficient(&config) => Ok(config),
            // Boxed: this rare future is much larger than the others of a request.
            _ => {
                Box::pin(self.deps.live.load_latest(org)).await.map_err(|error| self.catalog_problem(&error))
            }
        }
    }
}

/// True if the configuration has the type in the given version.
pub(crate) fn has_item_type(config: &Compiled, type_id: &TypeId, version: Option<&str>) -> bool {
    config.item_type_at(type_id, version).is_some()
}

/// Returns the unknown type or version, if one is unknown.
pub(crate) fn find_unknown_reference(
    config: &Compiled,
    type_id: &TypeId,
    version: Option<&str>,
) -> Option<UnknownReference> {
    let Some(item_type) = config.item_type(type_id) else {
        let type_ids = config.item_types().map(|item_type| item_type.key.as_str());
        let suggestion = hint(type_id.as_str(), type_ids);
        return Some(UnknownReference::Type(format!("There is no item type `{type_id}`.{suggestion}")));
    };
    let unknown_version = version.filter(|version| !item_type.accepts_version(version))?;
    let current = &item_type.version;
    Some(UnknownReference::Version(format!(
        "`{type_id}` has no version `{unknown_version}`; its current version is `{current}`."
    )))
}

pub(crate) enum UnknownReference {
    Type(String),
    Version(String),
}

impl UnknownReference {
    pub(crate) fn detail(self) -> String {
        match self {
            Self::Type(detail) | Self::Version(detail) => detail,
        }
    }

    /// Points at the member with the type or version, in the form in which the item was sent: flat or nested.
    fn into_error(self, item: Option<Node<'_>>, pointer: &Pointer<'_>) -> ValidationError {
        // Nested: `type: {id, version}`; flat: `typeId` and `typeVersion`. The fault must name a member that the client
        // sent.
        let is_nested = item.is_some_and(|item| item.get("type").is_some() && item.get("typeId").is_none());
        let type_pointer = pointer.key("type");
        match (self, is_nested) {
            (Self::Type(detail), false) => ValidationError::data(&pointer.key("typeId"), detail),
            (Self::Type(detail), true) => ValidationError::data(&type_pointer.key("id"), detail),
            (Self::Version(detail), false) => ValidationError::data(&pointer.key("typeVersion"), detail),
            (Self::Version(detail), true) => ValidationError::data(&type_pointer.key("version"), detail),
        }
    }
}

/// Returns the item's type, or adds a fault. `node` is the item in the request.
pub(crate) fn check_item_type<'c>(
    config: &'c Compiled,
    (type_id, version): (&TypeId, Option<&str>),
    node: Option<Node<'_>>,
    pointer: &Pointer<'_>,
    faults: &mut ValidationErrors,
) -> Option<&'c ItemType> {
    match find_unknown_reference(config, type_id, version) {
        None => config.item_type_at(type_id, version),
        Some(reference) => {
            faults.push(reference.into_error(node, pointer));
            None
        }
    }
}

/// Resolves a policy given by id or key to its id. An unknown one is kept and marked.
pub(crate) fn mention_policy(config: &Compiled, reference: &str) -> Mention {
    match config.policy(&PolicyId::new(reference)) {
        Some(policy) => Mention { id: policy.id.to_string(), known: true },
        None => Mention { id: reference.to_owned(), known: false },
    }
}

/// Resolves an action. An unknown one is kept and marked.
pub(crate) fn mention_action(config: &Compiled, id: &str) -> Mention {
    Mention { id: id.to_owned(), known: config.action(&ActionId::new(id)).is_some() }
}
