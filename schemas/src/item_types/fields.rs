//! Parts of an item type: kinds, scalar types, containers, fields.
//!
//! It does not check data; see `check`.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::roles::Role;
use crate::{documents, ids::TypeId};

/// Role of an item on the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    Content,
    User,
    Thread,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "CONTENT",
            Self::User => "USER",
            Self::Thread => "THREAD",
        }
    }
}

/// The type of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Scalar {
    Id,
    UserId,
    String,
    Boolean,
    Number,
    Audio,
    Image,
    Video,
    /// An image, audio or video: which of them is seen when it is fetched.
    Media,
    Datetime,
    Geohash,
    Url,
    RelatedItem,
    PolicyId,
    IpAddress,
    EmailAddress,
}

impl Scalar {
    pub const ALL: [Self; 16] = [
        Self::Id,
        Self::UserId,
        Self::String,
        Self::Boolean,
        Self::Number,
        Self::Audio,
        Self::Image,
        Self::Video,
        Self::Media,
        Self::Datetime,
        Self::Geohash,
        Self::Url,
        Self::RelatedItem,
        Self::PolicyId,
        Self::IpAddress,
        Self::EmailAddress,
    ];

    /// Returns the name used in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "ID",
            Self::UserId => "USER_ID",
            Self::String => "STRING",
            Self::Boolean => "BOOLEAN",
            Self::Number => "NUMBER",
            Self::Audio => "AUDIO",
            Self::Image => "IMAGE",
            Self::Video => "VIDEO",
            Self::Media => "MEDIA",
            Self::Datetime => "DATETIME",
            Self::Geohash => "GEOHASH",
            Self::Url => "URL",
            Self::RelatedItem => "RELATED_ITEM",
            Self::PolicyId => "POLICY_ID",
            Self::IpAddress => "IP_ADDRESS",
            Self::EmailAddress => "EMAIL_ADDRESS",
        }
    }

    /// True if the value is the URL of media that the service fetches.
    pub fn is_media(self) -> bool {
        matches!(self, Self::Audio | Self::Image | Self::Video | Self::Media)
    }
}

/// Container of a field with more than one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Container {
    Array,
    /// An object with any keys and values of the field's type.
    Map,
}

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
pub(super) const IMAGES: &str = "images";

/// The fields of one item type, shared with every [`super::Values`] that was checked against it.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) fields: Vec<Field>,
    by_name: HashMap<Arc<str>, usize>,
    pub(super) by_role: [Option<usize>; Role::ALL.len()],
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
    earlier_versions: Vec<String>,
    /// The number of the version, if the service numbers them.
    number: Option<u64>,
    pub(super) shape: Arc<Shape>,
    /// The organisation's item types: a related item must be of one of them.
    pub(super) types: Arc<[TypeId]>,
}

impl ItemType {
    /// Compiles a valid document. `version` stands in when the document names none.
    pub fn compile(document: &documents::ItemType, version: &str, types: &Arc<[TypeId]>) -> Self {
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
            number: if document.version.is_none() { version.parse().ok() } else { None },
            shape: Arc::new(Shape { fields, by_name, by_role }),
            types: types.clone(),
        }
    }

    /// True if items may name this version: the current one, or an earlier one. A platform that still sends the earlier
    /// fields goes on working when the type gets new ones.
    pub fn takes_version(&self, named: &str) -> bool {
        let is_earlier = |number: u64| named.parse().is_ok_and(|named: u64| (1..number).contains(&named));
        named == self.version
            || self.earlier_versions.iter().any(|earlier| earlier == named)
            || self.number.is_some_and(is_earlier)
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
