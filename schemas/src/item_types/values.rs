//! Typed values of a validated item, for rules and processors. Undeclared fields are only in the client's bytes.

use std::{borrow::Cow, sync::Arc};

use super::{
    fields::{ItemType, Shape},
    kinds::Scalar,
    roles::Role,
};
use crate::ids::{ItemKey, Millis};

/// Number as the client wrote it. Whole numbers of up to 128 bits are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i128),
    /// Always finite.
    Float(f64),
}

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "a float is the nearest value by definition")]
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// Parses a number in JSON notation. `None` if it is not finite.
    pub fn parse(text: &str) -> Option<Self> {
        // Whole numbers are parsed first, because a float rounds ids of more than 53 bits.
        if let Ok(value) = text.parse() {
            return Some(Self::Int(value));
        }
        text.parse().ok().filter(|value: &f64| value.is_finite()).map(Self::Float)
    }
}

/// Coerced value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// STRING, ID, USER_ID, POLICY_ID, EMAIL_ADDRESS, IP_ADDRESS.
    Text(String),
    Number(Number),
    Bool(bool),
    DateTime(Millis),
    Geohash(String),
    Url(String),
    /// Address of an image, audio or video.
    Media(String),
    Related(ItemKey),
    List(Vec<Value>),
    /// Map in the client's order.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// Returns the text of a text-like value.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Geohash(text) | Self::Url(text) | Self::Media(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a member of a container or a related item.
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
        // A map key can contain dots, so the whole remaining path is tried as a key before its first part.
        if let Some(value) = self.step(path) {
            return Some(value);
        }
        let (first, rest) = path.split_once('.')?;
        match self.step(first)? {
            Cow::Borrowed(value) => value.path(rest),
            // The members of a related item are texts without members.
            Cow::Owned(_) => None,
        }
    }
}

/// Media address of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    /// Path such as `images.0`.
    pub path: String,
    pub url: &'a str,
    /// IMAGE, AUDIO, VIDEO or MEDIA.
    pub scalar: Scalar,
}

/// Values of an item, by field.
#[derive(Clone, Debug)]
pub struct Values {
    pub(super) shape: Arc<Shape>,
    pub(super) slots: Vec<Option<Value>>,
}

impl Values {
    /// Returns the value at a path relative to `data`: a field, then a map key, an array index, or `id` or `typeId` of
    /// a related item.
    pub fn get(&self, path: &str) -> Option<Cow<'_, Value>> {
        if let Some(value) = self.field(path) {
            return Some(Cow::Borrowed(value));
        }
        let (field, rest) = path.split_once('.')?;
        self.field(field)?.path(rest)
    }

    /// Removes values of fields that have another type in `current_type`: rules are compiled for the field types of
    /// that version.
    #[must_use]
    pub fn without_changed_fields(mut self, current_type: &ItemType) -> Self {
        for (field, slot) in self.shape.fields.iter().zip(&mut self.slots) {
            let current_field = current_type.field(&field.name);
            if current_field
                .is_some_and(|current| (current.scalar, current.container) != (field.scalar, field.container))
            {
                *slot = None;
            }
        }
        self
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.slots[self.shape.slot(name)?].as_ref()
    }

    /// Iterates over the fields with a value, in the order of the type.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.shape
            .fields
            .iter()
            .zip(&self.slots)
            .filter_map(|(field, value)| value.as_ref().map(|value| (&*field.name, value)))
    }

    /// Returns the value of the field with a role.
    pub fn role(&self, role: Role) -> Option<&Value> {
        self.slots[self.shape.by_role[role as usize]?].as_ref()
    }

    /// Returns the related item in the field with a role.
    pub fn related(&self, role: Role) -> Option<&ItemKey> {
        match self.role(role)? {
            Value::Related(item) => Some(item),
            _ => None,
        }
    }

    /// Returns the creator of the item. Callers treat an item of kind USER as its own creator.
    pub fn creator(&self) -> Option<ItemKey> {
        self.related(Role::Creator).cloned()
    }

    /// Returns all media addresses, in the order of the type's fields.
    pub fn media(&self) -> Vec<Media<'_>> {
        fn collect<'a>(value: &'a Value, path: String, scalar: Scalar, media: &mut Vec<Media<'a>>) {
            match value {
                Value::Media(url) => media.push(Media { path, url, scalar }),
                Value::List(values) => {
                    for (index, value) in values.iter().enumerate() {
                        collect(value, format!("{path}.{index}"), scalar, media);
                    }
                }
                Value::Map(entries) => {
                    for (key, value) in entries {
                        collect(value, format!("{path}.{key}"), scalar, media);
                    }
                }
                _ => {}
            }
        }
        let mut media = Vec::new();
        for (field, value) in self.shape.fields.iter().zip(&self.slots) {
            // The field type decides: the address in a URL field is not fetched.
            if let (true, Some(value)) = (field.scalar.is_media(), value) {
                collect(value, field.name.to_string(), field.scalar, &mut media);
            }
        }
        media
    }
}
