//! The request that submits items, and the item shape that reports and appeals share with it.
//!
//! It does not check `data` against an item type.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    Fault, Faults, Limits, Pointer, Request,
    json::{Kind, Node},
    read::Reader,
};
use crate::{
    ids::{ItemId, ItemKey, TypeId},
    item_types::Mode,
    nearest::{hint, shown},
    records::Variant,
};

/// An item as it was submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmittedItem {
    pub id: ItemId,
    pub type_id: TypeId,
    pub type_version: Option<String>,
    /// `original` if the request does not say.
    pub variant: Variant,
    /// The client's own bytes, a slice of the body.
    pub data: Bytes,
    node: u32,
}

impl SubmittedItem {
    pub fn key(&self) -> ItemKey {
        ItemKey { type_id: self.type_id.clone(), id: self.id.clone() }
    }

    /// How complete the data must be.
    pub fn mode(&self) -> Mode {
        match self.variant {
            Variant::Original => Mode::Strict,
            Variant::Partial => Mode::Partial,
        }
    }
}

/// An item that only gives context: what is wrong with it is noted, and it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextItem {
    /// Empty if the entry has none that can be used.
    pub id: ItemId,
    /// Empty if the entry has none that can be used.
    pub type_id: TypeId,
    pub type_version: Option<String>,
    pub variant: Variant,
    /// The client's own bytes; `{}` if there are none.
    pub data: Bytes,
    /// Why the entry has not the shape of an item.
    pub fault: Option<String>,
    node: Option<u32>,
}

impl<T> Request<T> {
    /// The scanned `data` of an item of this request.
    pub fn data(&self, item: &SubmittedItem) -> Node<'_> {
        self.node(item.node)
    }

    /// The scanned `data` of a context item of this request, if it has any.
    pub fn context_data(&self, item: &ContextItem) -> Option<Node<'_>> {
        item.node.map(|node| self.node(node))
    }
}

/// Reads `{"items": [...]}`.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<Vec<SubmittedItem>>, Vec<Fault>> {
    Request::read(body, limits, |reader, root| {
        let items = reader.required(root, "items", &Pointer::Root)?;
        Some(reader.list(Some(items), "items", limits.items, &Pointer::Root, Reader::item))
    })
}

/// What could be read of an item.
struct Draft<'n> {
    id: Option<Cow<'n, str>>,
    type_id: Option<Cow<'n, str>>,
    type_version: Option<String>,
    variant: Option<Variant>,
    data: Option<Node<'n>>,
}

impl Reader<'_> {
    /// An item that must be whole.
    pub(super) fn item(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<SubmittedItem> {
        let before = self.faults.count();
        let draft = self.draft(node, at);
        let (id, type_id, data) = (draft.id?, draft.type_id?, draft.data?);
        if !self.bounded(data, at) || self.faults.count() > before {
            return None;
        }
        Some(SubmittedItem {
            id: ItemId::new(id),
            type_id: TypeId::new(type_id),
            type_version: draft.type_version,
            variant: draft.variant.unwrap_or(Variant::Original),
            data: self.body.slice(data.range()),
            node: data.index(),
        })
    }

    /// An item that may lack anything, as long as it is an object that is not too large.
    pub(super) fn context_item(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<ContextItem> {
        if node.kind() != Kind::Object {
            self.refuse(at, format!("An object must stand here, not {}.", node.kind().name()));
            return None;
        }
        // Its faults are its own, none of the request's.
        let outer = std::mem::take(&mut self.faults);
        let draft = self.draft(node, at);
        let own = std::mem::replace(&mut self.faults, outer);
        let data = node.get("data");
        if !data.is_none_or(|data| self.bounded(data, at)) {
            return None;
        }
        Some(ContextItem {
            id: ItemId::new(draft.id.unwrap_or_default()),
            type_id: TypeId::new(draft.type_id.unwrap_or_default()),
            type_version: draft.type_version,
            variant: draft.variant.unwrap_or(Variant::Partial),
            data: data.map_or(Bytes::from_static(b"{}"), |data| self.body.slice(data.range())),
            fault: summary(own),
            node: data.map(|data| data.index()),
        })
    }

    fn bounded(&mut self, data: Node<'_>, at: &Pointer<'_>) -> bool {
        let most = self.limits.data_bytes;
        let fits = data.range().len() <= most;
        if !fits {
            let detail = format!("`data` has {} bytes; at most {most} are taken.", data.range().len());
            self.faults.push(Fault::too_large(&at.key("data"), detail));
        }
        fits
    }

    fn draft<'n>(&mut self, node: Node<'n>, at: &Pointer<'_>) -> Draft<'n> {
        let mut draft = Draft { id: None, type_id: None, type_version: None, variant: None, data: None };
        if node.kind() != Kind::Object {
            self.refuse(at, format!("An item must be an object, not {}.", node.kind().name()));
            return draft;
        }
        let (mut flat, mut nested, mut has_id) = (None, None, false);
        for (key, value) in node.entries() {
            match &*key {
                "id" => {
                    has_id = true;
                    draft.id = self.id(value, "id", at);
                }
                "typeId" => {
                    flat = Some("typeId");
                    draft.type_id = self.id(value, "typeId", at);
                }
                "typeVersion" => {
                    flat = flat.or(Some("typeVersion"));
                    draft.type_version = self.version(value, "typeVersion", at);
                }
                "typeSchemaVariant" => {
                    flat = flat.or(Some("typeSchemaVariant"));
                    draft.variant = self.variant(value, "typeSchemaVariant", at);
                }
                "type" => nested = Some(value),
                "data" if value.kind() == Kind::Object => draft.data = Some(value),
                "data" => {
                    let found = value.kind().name();
                    self.refuse(&at.key("data"), format!("`data` must be an object, not {found}."));
                }
                _ => {}
            }
        }
        if !has_id {
            self.refuse(&at.key("id"), "`id` is missing.");
        }
        match (flat, nested) {
            (Some(flat), Some(_)) => {
                let why = format!(
                    "An item names its type by `type` or by `typeId`, never both: this one has `type` and `{flat}`."
                );
                self.refuse(at, why);
            }
            (None, Some(nested)) => self.nested(nested, at, &mut draft),
            (Some("typeId"), None) => {}
            (_, None) => self.refuse(&at.key("typeId"), "`typeId` is missing."),
        }
        if draft.data.is_none() && node.get("data").is_none() {
            self.refuse(&at.key("data"), "`data` is missing.");
        }
        draft
    }

    /// `type: {id, version, schemaVariant}`
    fn nested<'n>(&mut self, node: Node<'n>, at: &Pointer<'_>, draft: &mut Draft<'n>) {
        let at = &at.key("type");
        if node.kind() != Kind::Object {
            self.refuse(at, format!("`type` must be an object, not {}.", node.kind().name()));
            return;
        }
        draft.type_id = self.required_id(node, "id", at);
        draft.type_version = node.get("version").and_then(|value| self.version(value, "version", at));
        draft.variant = node.get("schemaVariant").and_then(|value| self.variant(value, "schemaVariant", at));
    }

    fn version(&mut self, value: Node<'_>, key: &str, at: &Pointer<'_>) -> Option<String> {
        if value.is_null() { None } else { self.id(value, key, at).map(Cow::into_owned) }
    }

    fn variant(&mut self, value: Node<'_>, key: &str, at: &Pointer<'_>) -> Option<Variant> {
        if value.is_null() {
            return None;
        }
        match &*self.text(value, key, at)? {
            "original" => Some(Variant::Original),
            "partial" => Some(Variant::Partial),
            other => {
                let near = hint(other, ["original", "partial"]);
                let other = shown(other);
                self.refuse(
                    &at.key(key),
                    format!("`{key}` is `original` or `partial`, not `{other}`.{near}"),
                );
                None
            }
        }
    }
}

/// The first few of an item's faults in one line.
fn summary(faults: Faults) -> Option<String> {
    let all = faults.into_vec();
    let lines: Vec<String> = all.iter().take(5).map(|fault| fault.detail.clone()).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}
