//! Item type of a live configuration: the type of `schemas`, with access to the creator and the creation time
//! of items.

use std::ops::Deref;

use tidegate_schemas::{
    ids::{ItemKey, Millis},
    item_types::{self, Kind, Mode, Role, datetime},
    json,
    validation_error::Pointer,
};

/// Compiled item type; dereferences to the type of `schemas`.
#[derive(Clone, Debug)]
pub struct ItemType(item_types::ItemType);

impl ItemType {
    pub(crate) fn new(inner: item_types::ItemType) -> Self {
        Self(inner)
    }

    pub fn is_user(&self) -> bool {
        self.0.kind == Kind::User
    }

    /// Returns the user to receive the strikes of an item: the item itself if it is a user, or else the user
    /// in the field with the role `creator`.
    ///
    /// Stored data may be invalid under the current type. Then only that field is read.
    pub fn creator(&self, item: &ItemKey, data: &[u8]) -> Option<ItemKey> {
        if self.is_user() {
            return Some(item.clone());
        }
        let field = self.0.role(Role::Creator)?;
        if let Ok(values) = self.0.check(data, Mode::Partial, &Pointer::Root) {
            return values.creator();
        }
        let tape = json::scan(data).ok()?;
        let node = tape.root(data).get(&field.name)?;
        let text = |name: &str| node.get(name).and_then(|node| node.str()).filter(|text| !text.is_empty());
        Some(ItemKey::new(&*text("typeId")?, &*text("id")?))
    }

    /// Returns the creation time of the item, from the field with the role `createdAt`.
    pub fn created_at(&self, data: &[u8]) -> Option<Millis> {
        let field = self.0.role(Role::CreatedAt)?;
        let tape = json::scan(data).ok()?;
        let text = tape.root(data).get(&field.name)?.str()?;
        datetime::parse(&text)
    }
}

impl Deref for ItemType {
    type Target = item_types::ItemType;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
