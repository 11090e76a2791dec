//! The values of a checked item, as rules and processors see them: typed and coerced.
//!
//! It does not hold fields that the type does not declare; those live on in the client's bytes.

use std::{borrow::Cow, sync::Arc};

use super::{
    fields::{ItemType, Shape},
    kinds::Scalar,
    roles::Role,
};
use crate::ids::{ItemKey, Millis};

/// A number as the client wrote it: whole ones of up to 128 bits are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i128),
    /// Always finite.
    Float(f64),
}

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "whoever asks for a float wants the nearest one")]
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// The number written as JSON writes it, if it is finite.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(value) = text.parse() {
            return Some(Self::Int(value));
        }
        text.parse().ok().filter(|value: &f64| value.is_finite()).map(Self::Float)
    }
}

/// One coerced value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// STRING, ID, USER_ID, POLICY_ID, EMAIL_ADDRESS, IP_ADDRESS.
    Text(String),
    Number(Number),
    Bool(bool),
    DateTime(Millis),
    Geohash(String),
    Url(String),
    /// The address of an image, audio or video.
    Media(String),
    Related(ItemKey),
    List(Vec<Value>),
    /// Map in the client's order.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// The text of a text-like value.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Geohash(text) | Self::Url(text) | Self::Media(text) => Some(text),
            _ => None,
        }
    }

    /// One step into a container or a related item.
    fn step(&self, name: &str) -> Option<Cow<'_, Value>> {
        match self {
            Self::List(values) => values.get(name.parse::<usize>().ok()?).map(Cow::Borrowed),
            Self::Map(entries) => {
                entries.iter().find(|(key, _)| key == name).map(|(_, value)| Cow::Borrowed(value))
            }
            Self::Related(item) => match name {
                "id" => Some(Cow::Owned(Self::Text(item.id.as_str().to_owned()))),
                "typeId" => Some(Cow::Owned(Self::Text(item.type_id.as_str().to_owned()))),
                _ => None,
            },
            _ => None,
        }
    }

    fn path(&self, path: &str) -> Option<Cow<'_, Value>> {
        // Keys of a map may hold dots themselves: the whole rest is tried before its first part.
        if let Some(value) = self.step(path) {
            return Some(value);
        }
        let (first, rest) = path.split_once('.')?;
        match self.step(first)? {
            Cow::Borrowed(value) => value.path(rest),
            Cow::Owned(_) => None,
        }
    }
}

/// A media address of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    /// Path such as `images.0`.
    pub path: String,
    pub url: &'a str,
    /// IMAGE, AUDIO, VIDEO or MEDIA.
    pub scalar: Scalar,
}

/// The values of one item by field.
#[derive(Clone, Debug)]
pub struct Values {
    pub(super) shape: Arc<Shape>,
    pub(super) slots: Vec<Option<Value>>,
}

impl Values {
    /// The value at a path relative to `data`: a field, then a key, a position, or `id` and `typeId` of a related item.
    pub fn get(&self, path: &str) -> Option<Cow<'_, Value>> {
        if let Some(value) = self.field(path) {
            return Some(Cow::Borrowed(value));
        }
        let (field, rest) = path.split_once('.')?;
        self.field(field)?.path(rest)
    }

    /// Leaves out values of fields that another form of the type holds under the same name in another form: whoever reads
    /// fields of that form expects its kinds.
    #[must_use]
    pub fn as_read_by(mut self, today: &ItemType) -> Self {
        for (field, slot) in self.shape.fields.iter().zip(&mut self.slots) {
            let other = today.field(&field.name);
            if other.is_some_and(|it| (it.scalar, it.container) != (field.scalar, field.container)) {
                *slot = None;
            }
        }
        self
    }

    /// The value of one field.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.slots[self.shape.slot(name)?].as_ref()
    }

    /// The fields that have a value, in the order of the type.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.shape
            .fields
            .iter()
            .zip(&self.slots)
            .filter_map(|(field, value)| value.as_ref().map(|value| (&*field.name, value)))
    }

    /// The value of the field that has a role.
    pub fn role(&self, role: Role) -> Option<&Value> {
        self.slots[self.shape.by_role[role as usize]?].as_ref()
    }

    /// The item that the field with this role points to.
    pub fn related(&self, role: Role) -> Option<&ItemKey> {
        match self.role(role)? {
            Value::Related(item) => Some(item),
            _ => None,
        }
    }

    /// Returns the creator of the item. An item of kind USER is its own creator, which the caller knows.
    pub fn creator(&self) -> Option<ItemKey> {
        self.related(Role::Creator).cloned()
    }

    /// Every media address, in the order of the type's fields.
    pub fn media(&self) -> Vec<Media<'_>> {
        fn collect<'a>(value: &'a Value, path: String, scalar: Scalar, found: &mut Vec<Media<'a>>) {
            match value {
                Value::Media(url) => found.push(Media { path, url, scalar }),
                Value::List(values) => {
                    for (index, value) in values.iter().enumerate() {
                        collect(value, format!("{path}.{index}"), scalar, found);
                    }
                }
                Value::Map(entries) => {
                    for (key, value) in entries {
                        collect(value, format!("{path}.{key}"), scalar, found);
                    }
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        for (field, value) in self.shape.fields.iter().zip(&self.slots) {
            if let (true, Some(value)) = (field.scalar.is_media(), value) {
                collect(value, field.name.to_string(), field.scalar, &mut found);
            }
        }
        found
    }
}
