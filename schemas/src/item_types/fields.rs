//! Compiled item types and their fields. Data is validated in `check`.

use std::{collections::HashMap, sync::Arc};

use super::{
    kinds::{Container, Kind, Scalar},
    roles::Role,
};
use crate::ids::TypeId;

/// Field of `data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: Arc<str>,
    pub scalar: Scalar,
    pub required: bool,
    pub container: Option<Container>,
    pub role: Option<Role>,
}

/// Field with an array of image URLs, which all item types have implicitly.
pub(crate) const IMAGES: &str = "images";

/// Fields of an item type, shared with the [`super::Values`] of all items that were checked against it.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) fields: Vec<Field>,
    pub(crate) by_name: HashMap<Arc<str>, usize>,
    pub(crate) by_role: [Option<usize>; Role::ALL.len()],
}

/// Maximum number of fields for a linear search, which is faster than hashing for so few.
const FEW_FIELDS: usize = 8;

impl Shape {
    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        // Looked up for each member of each item.
        if self.fields.len() <= FEW_FIELDS {
            self.fields.iter().position(|field| *field.name == *name)
        } else {
            self.by_name.get(name).copied()
        }
    }
}

/// Compiled item type.
#[derive(Clone, Debug)]
pub struct ItemType {
    pub key: TypeId,
    pub name: String,
    pub kind: Kind,
    /// True if values must have the exact forms of the API, without coercion.
    pub strict: bool,
    /// Version that a platform may name as `typeVersion`.
    pub version: String,
    pub(crate) earlier_versions: Vec<String>,
    /// Number of the version, if the service numbers the versions.
    pub(crate) number: Option<u64>,
    pub(crate) shape: Arc<Shape>,
    /// Item types of the organisation, one of which a related item must have.
    pub(crate) types: Arc<[TypeId]>,
}

impl ItemType {
    /// True if items may name this version. Earlier versions stay accepted, so that a platform can change its fields
    /// after the type has changed.
    pub fn accepts_version(&self, version: &str) -> bool {
        let is_earlier =
            |number: u64| version.parse().is_ok_and(|version: u64| (1..number).contains(&version));
        version == self.version
            || self.earlier_versions.iter().any(|earlier| earlier == version)
            || self.number.is_some_and(is_earlier)
    }

    /// True if the service numbers the versions of the type.
    pub fn is_numbered(&self) -> bool {
        self.number.is_some()
    }

    /// Returns all fields, including the implicit `images`.
    pub fn fields(&self) -> &[Field] {
        &self.shape.fields
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.shape.slot(name).map(|slot| &self.shape.fields[slot])
    }

    /// Returns the field with a role.
    pub fn role(&self, role: Role) -> Option<&Field> {
        self.shape.by_role[role as usize].map(|slot| &self.shape.fields[slot])
    }
}
