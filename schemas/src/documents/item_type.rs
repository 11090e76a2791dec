//! Document of an item type, and its compilation to `item_types::ItemType`, which validates items.

use std::{collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::{
    ids::TypeId,
    item_types::{self, Container, Field, IMAGES, Kind, Role, Scalar, Shape},
};

/// Item type document, such as `item_type: post`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemType {
    /// Key, which items state as `typeId`.
    #[serde(rename = "item_type")]
    pub key: TypeId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDocument>,
    /// True if values must have the exact forms of the API, without coercion.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
    /// Version that items may state as `typeVersion`; by default the service numbers the versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Earlier versions that items may state. Data is validated against the fields of that version, or against the
    /// current fields if the version was never applied here. Versions that the service numbered are accepted without
    /// being listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_versions: Vec<String>,
}

/// Field of an item's data.
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

impl item_types::ItemType {
    /// Compiles a valid document. `version` is used if the document states none.
    pub fn compile(document: &ItemType, version: &str, types: &Arc<[TypeId]>) -> Self {
        let mut fields: Vec<Field> = document
            .fields
            .iter()
            .map(|field| Field {
                name: field.name.as_str().into(),
                scalar: field.scalar,
                required: field.required,
                container: field.container,
                role: field.role,
            })
            .collect();
        // Every item type has the field `images`, with or without a declaration.
        if !fields.iter().any(|field| *field.name == *IMAGES) {
            fields.push(Field {
                name: IMAGES.into(),
                scalar: Scalar::Image,
                required: false,
                container: Some(Container::Array),
                role: None,
            });
        }
        let by_name = fields.iter().enumerate().map(|(slot, field)| (field.name.clone(), slot)).collect();
        let by_role = Role::ALL.map(|role| fields.iter().position(|field| field.role == Some(role)));
        Self {
            key: document.key.clone(),
            name: document.display_name().to_owned(),
            kind: document.kind,
            strict: document.strict,
            version: document.version.clone().unwrap_or_else(|| version.to_owned()),
            earlier_versions: document.earlier_versions.clone(),
            // Only numbered versions have predecessors that are accepted without being listed.
            number: if document.version.is_none() { version.parse().ok() } else { None },
            shape: Arc::new(Shape { fields, by_name, by_role }),
            types: types.clone(),
        }
    }
}

impl ItemType {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        let mut names = HashSet::new();
        let mut roles = HashSet::new();
        for (index, field) in self.fields.iter().enumerate() {
            let mut fault =
                |at: &str, message: String| faults.push((format!("fields[{index}].{at}"), message));
            if field.name.is_empty() || field.name.len() > 128 || field.name.chars().any(char::is_control) {
                fault("name", "A field's name has 1 to 128 bytes and no control characters.".into());
            }
            // Values are stored by name, so a repeated field would hide the first one.
            if !names.insert(&field.name) {
                fault("name", format!("There is another field `{}`.", field.name));
            }
            if field.name == "images"
                && !(field.container == Some(Container::Array) && field.scalar == Scalar::Image)
            {
                let message =
                    "`images` is an array of image URLs in every item type: IMAGE with the container ARRAY.";
                fault("type", message.into());
            }
            let Some(role) = field.role else { continue };
            if !roles.insert(role) {
                fault("role", format!("Another field has the role `{}` already.", role.name()));
            }
            if !role.suits(self.kind) {
                fault("role", format!("Items of kind {} have no role `{}`.", self.kind.name(), role.name()));
            }
            // Rules and effects read a role as one value of its type.
            if field.scalar != role.scalar() || field.container.is_some() {
                let scalar = role.scalar().name();
                fault("role", format!("The role `{}` needs a single {scalar}.", role.name()));
            }
        }
    }
}
