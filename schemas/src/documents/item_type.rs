//! The document of an item type.
//!
//! It does not check items; `item_types` compiles it for that.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::{
    ids::TypeId,
    item_types::{Container, Kind, Role, Scalar},
};

/// `item_type: post`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemType {
    /// Key that items name as `typeId`.
    #[serde(rename = "item_type")]
    pub key: TypeId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDocument>,
    /// Take only the exact forms of the interface, and coerce nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
    /// Version that items may name as `typeVersion`; numbered by the service by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Further versions that items may name: their data is held to the fields of today. Versions that the service has
    /// numbered need not be listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_versions: Vec<String>,
}

/// One field of the data of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldDocument {
    pub name: String,
    #[serde(rename = "type")]
    pub scalar: Scalar,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

impl ItemType {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        let mut names = HashSet::new();
        let mut roles = HashSet::new();
        for (index, field) in self.fields.iter().enumerate() {
            let mut fault = |at: &str, why: String| faults.push((format!("fields[{index}].{at}"), why));
            if field.name.is_empty() || field.name.len() > 128 || field.name.chars().any(char::is_control) {
                fault("name", "A field's name has 1 to 128 bytes and no control characters.".into());
            }
            if !names.insert(&field.name) {
                fault("name", format!("There is another field `{}`.", field.name));
            }
            if field.name == "images"
                && !(field.container == Some(Container::Array) && field.scalar == Scalar::Image)
            {
                let why =
                    "`images` is an array of image URLs in every item type: IMAGE with the container ARRAY.";
                fault("type", why.into());
            }
            let Some(role) = field.role else { continue };
            if !roles.insert(role) {
                fault("role", format!("Another field has the role `{}` already.", role.name()));
            }
            if !role.suits(self.kind) {
                fault("role", format!("Items of kind {} have no role `{}`.", self.kind.name(), role.name()));
            }
            if field.scalar != role.scalar() || field.container.is_some() {
                let scalar = role.scalar().name();
                fault("role", format!("The role `{}` needs a single {scalar}.", role.name()));
            }
        }
    }
}
