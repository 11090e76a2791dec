//! Parts of an item type: kinds, scalar types, containers, fields.
//!
//! It does not check data; see `check`.

use std::{collections::HashMap, sync::Arc};

use super::{
    kinds::{Container, Kind, Scalar},
    roles::Role,
};
use crate::ids::TypeId;

/// One field of `data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: Arc<str>,
    pub scalar: Scalar,
    pub required: bool,
    pub container: Option<Container>,
    pub role: Option<Role>,
}

/// The field whose array of URLs is media in every item type, declared or not.
pub(crate) const IMAGES: &str = "images";

/// The fields of one item type, shared with every [`super::Values`] that was checked against it.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) fields: Vec<Field>,
    pub(crate) by_name: HashMap<Arc<str>, usize>,
    pub(crate) by_role: [Option<usize>; Role::ALL.len()],
}

/// Up to this many fields a name is found faster by looking at each than by hashing.
const FEW_FIELDS: usize = 8;

impl Shape {
    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        if self.fields.len() <= FEW_FIELDS {
            self.fields.iter().position(|field| *field.name == *name)
        } else {
            self.by_name.get(name).copied()
        }
    }
}

/// A compiled item type.
#[derive(Clone, Debug)]
pub struct ItemType {
    pub key: TypeId,
    pub name: String,
    pub kind: Kind,
    /// True if only the exact forms of the interface are taken, without coercion.
    pub strict: bool,
    /// Version that a platform may name as `typeVersion`.
    pub version: String,
    pub(crate) earlier_versions: Vec<String>,
    /// The number of the version, if the service numbers them.
    pub(crate) number: Option<u64>,
    pub(crate) shape: Arc<Shape>,
    /// The organisation's item types: a related item must be of one of them.
    pub(crate) types: Arc<[TypeId]>,
}

impl ItemType {
    /// True if items may name this version: the current one, or an earlier one. A platform that still sends the earlier
    /// fields goes on working when the type gets new ones.
    pub fn takes_version(&self, named: &str) -> bool {
        let is_earlier = |number: u64| named.parse().is_ok_and(|named: u64| (1..number).contains(&named));
        named == self.version
            || self.earlier_versions.iter().any(|earlier| earlier == named)
            || self.number.is_some_and(is_earlier)
    }

    /// True if the service numbers the versions of the type.
    pub fn is_numbered(&self) -> bool {
        self.number.is_some()
    }

    /// All fields, the implied `images` included.
    pub fn fields(&self) -> &[Field] {
        &self.shape.fields
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.shape.slot(name).map(|slot| &self.shape.fields[slot])
    }

    /// The field that has a role.
    pub fn role(&self, role: Role) -> Option<&Field> {
        self.shape.by_role[role as usize].map(|slot| &self.shape.fields[slot])
    }
}
