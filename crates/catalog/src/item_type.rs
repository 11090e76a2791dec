//! An item type as the service runs it: the checks of `schemas`, and who made an item and when.
//!
//! It does not check data itself.

use std::ops::Deref;

use tidegate_schemas::{
    ids::{ItemKey, Millis},
    item_types::{self, Kind, Mode, Role, datetime},
    json,
    validation_error::Pointer,
};

/// A compiled item type; it is used as the one of `schemas`.
#[derive(Clone, Debug)]
pub struct ItemType(item_types::ItemType);

impl ItemType {
    pub(crate) fn new(inner: item_types::ItemType) -> Self {
        Self(inner)
    }

    pub fn is_user(&self) -> bool {
        self.0.kind == Kind::User
    }

    /// Returns the user who is struck for an item: the user that it is, or the one in its field with the role creator.
    ///
    /// Stored data may not fit the type any more: then that field alone is read.
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

    /// Returns when the item was created, by its field with the role `createdAt`.
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
