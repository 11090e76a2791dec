//! The request that submits items, and the item shape that reports and appeals share with it.
//!
//! It does not check `data` against an item type.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Limits, Part, Refused, Request, read::Reader};
use crate::json::{Kind, Node};
use crate::validation_error::{Pointer, ValidationError, ValidationErrors};
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

    /// Its scanned `data`, in the request with this root.
    pub fn data_in<'n>(&self, root: Node<'n>) -> Node<'n> {
        root.other(self.node)
    }

    /// Returns how complete the data must be.
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
    /// The members for which it has not, as they came: a JSON object. Of `data`, `data` itself holds them.
    pub as_sent: Option<Bytes>,
    node: Option<u32>,
}

impl ContextItem {
    /// Its scanned `data`, if it has any, in the request with this root.
    pub fn data_in<'n>(&self, root: Node<'n>) -> Option<Node<'n>> {
        self.node.map(|node| root.other(node))
    }
}

/// Reads `{"items": [...]}`.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<Vec<SubmittedItem>>, Refused> {
    Request::read(body, limits, |reader, root| {
        let items = reader.required(root, "items", &Pointer::Root)?;
        Some(reader.list(Some(items), "items", limits.items, &Pointer::Root, Reader::item))
    })
}

/// Parts of an item that could be read.
struct Draft<'n> {
    id: Option<Cow<'n, str>>,
    type_id: Option<Cow<'n, str>>,
    type_version: Option<String>,
    variant: Option<Variant>,
    data: Option<Node<'n>>,
    /// Its type stands in both forms.
    ambiguous: bool,
    /// Members beside `data` that cannot be read.
    unfit: Vec<(&'static str, Node<'n>)>,
}

impl Reader<'_> {
    /// An item that must be whole.
    pub(super) fn item(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<SubmittedItem> {
        self.item_or(node, at, Variant::Original)
    }

    /// An item that is as complete as `unsaid` unless it says so itself.
    pub(super) fn item_or(
        &mut self,
        node: Node<'_>,
        at: &Pointer<'_>,
        unsaid: Variant,
    ) -> Option<SubmittedItem> {
        let before = self.faults.count();
        let draft = self.draft(node, at);
        if self.parts.is_some() {
            self.part(node, &draft, at);
        }
        let fits = draft.data.is_none_or(|data| self.bounded(data, at));
        let (id, type_id, data) = (draft.id?, draft.type_id?, draft.data?);
        if !fits || self.faults.count() > before {
            return None;
        }
        Some(SubmittedItem {
            id: ItemId::new(id),
            type_id: TypeId::new(type_id),
            type_version: draft.type_version,
            variant: draft.variant.unwrap_or(unsaid),
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
        let as_sent = as_sent(&draft.unfit);
        if !data.is_none_or(|data| self.bounded(data, at)) {
            return None;
        }
        if let Some(bytes) = as_sent.as_ref().map(Bytes::len).filter(|bytes| *bytes > self.limits.data_bytes)
        {
            let most = self.limits.data_bytes;
            let detail =
                format!("What does not fit beside `data` has {bytes} bytes; at most {most} are kept.");
            self.faults.push(ValidationError::too_large(at, detail));
            return None;
        }
        Some(ContextItem {
            id: ItemId::new(draft.id.unwrap_or_default()),
            type_id: TypeId::new(draft.type_id.unwrap_or_default()),
            type_version: draft.type_version,
            variant: draft.variant.unwrap_or(Variant::Partial),
            data: data.map_or(Bytes::from_static(b"{}"), |data| self.body.slice(data.range())),
            fault: summary(own),
            as_sent,
            node: data.map(|data| data.index()),
        })
    }

    /// Notes an item whose type can be read.
    fn part(&mut self, node: Node<'_>, draft: &Draft<'_>, at: &Pointer<'_>) {
        let Some(type_id) = draft.type_id.as_ref().filter(|_| !draft.ambiguous) else { return };
        let nested = || node.get("typeId").is_none().then(|| node.get("type")).flatten();
        let variant = Self::optional(node, "typeSchemaVariant").or_else(|| nested()?.get("schemaVariant"));
        let is_whole = match draft.variant {
            Some(variant) => variant == Variant::Original,
            None => variant.is_none_or(|said| said.is_null()),
        };
        let most = self.limits.data_bytes;
        let part = Part {
            at: at.render().unwrap_or_default(),
            type_id: TypeId::new(type_id),
            type_version: draft.type_version.clone(),
            mode: if is_whole { Mode::Strict } else { Mode::Partial },
            node: node.index(),
            data: draft.data.filter(|data| data.range().len() <= most).map(|data| data.index()),
        };
        self.parts.get_or_insert_default().push(part);
    }

    fn bounded(&mut self, data: Node<'_>, at: &Pointer<'_>) -> bool {
        let most = self.limits.data_bytes;
        let fits = data.range().len() <= most;
        if !fits {
            let detail = format!("`data` has {} bytes; at most {most} are taken.", data.range().len());
            self.faults.push(ValidationError::too_large(&at.key("data"), detail));
        }
        fits
    }

    fn draft<'n>(&mut self, node: Node<'n>, at: &Pointer<'_>) -> Draft<'n> {
        let mut draft = Draft {
            id: None,
            type_id: None,
            type_version: None,
            variant: None,
            data: None,
            ambiguous: false,
            unfit: Vec::new(),
        };
        if node.kind() != Kind::Object {
            self.refuse(at, format!("An item must be an object, not {}.", node.kind().name()));
            return draft;
        }
        let (mut flat, mut nested, mut has_id) = (None, None, false);
        for (key, value) in node.entries() {
            let before = self.faults.count();
            let name = match &*key {
                "id" => {
                    has_id = true;
                    draft.id = self.id(value, "id", at);
                    "id"
                }
                "typeId" => {
                    flat = Some("typeId");
                    draft.type_id = self.id(value, "typeId", at);
                    "typeId"
                }
                "typeVersion" => {
                    // Clients that fill all members send null for an absent one, also beside `type`.
                    flat = flat.or((!value.is_null()).then_some("typeVersion"));
                    draft.type_version = self.version(value, "typeVersion", at);
                    "typeVersion"
                }
                "typeSchemaVariant" => {
                    flat = flat.or((!value.is_null()).then_some("typeSchemaVariant"));
                    draft.variant = self.variant(value, "typeSchemaVariant", at);
                    "typeSchemaVariant"
                }
                "type" => {
                    nested = Some(value);
                    continue;
                }
                "data" if value.kind() == Kind::Object => {
                    draft.data = Some(value);
                    continue;
                }
                "data" => {
                    let found = value.kind().name();
                    self.refuse(&at.key("data"), format!("`data` must be an object, not {found}."));
                    continue;
                }
                _ => continue,
            };
            if self.faults.count() > before {
                draft.unfit.push((name, value));
            }
        }
        if !has_id {
            self.refuse(&at.key("id"), "`id` is missing.");
        }
        match (flat, nested) {
            // Platforms send a `type` of their own, such as `"post"`, beside `typeId`: it says nothing to us.
            (Some("typeId"), _) => {}
            (Some(flat), Some(nested)) => {
                draft.ambiguous = true;
                draft.unfit.push(("type", nested));
                let why = format!(
                    "An item that has `type` names version and variant in it: this one has `type` and `{flat}`. Send \
                     `typeId` instead of `type`, or `{flat}` inside it."
                );
                self.refuse(at, why);
            }
            (None, Some(nested)) => {
                let before = self.faults.count();
                self.nested(nested, at, &mut draft);
                if self.faults.count() > before {
                    draft.unfit.push(("type", nested));
                }
            }
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

/// The members as an object, each with the bytes that came.
fn as_sent(members: &[(&'static str, Node<'_>)]) -> Option<Bytes> {
    let mut text = Vec::new();
    for (key, value) in members {
        text.push(if text.is_empty() { b'{' } else { b',' });
        text.extend_from_slice(format!("\"{key}\":").as_bytes());
        text.extend_from_slice(value.raw());
    }
    (!text.is_empty()).then(|| [text, b"}".to_vec()].concat().into())
}

/// The first few of an item's faults in one line.
fn summary(faults: ValidationErrors) -> Option<String> {
    let all = faults.into_vec();
    let lines: Vec<String> = all.iter().take(5).map(|fault| fault.detail.clone()).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}
