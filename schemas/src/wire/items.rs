//! Request that submits items, and the item object that reports and appeals share with it. `data` is validated in
//! `item_types`.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Limits, Part, Request, RequestRejection, read::Reader};
use crate::json::{Kind, Node};
use crate::validation_error::{Pointer, ValidationError, ValidationErrors};
use crate::{
    ids::{ItemId, ItemKey, TypeId},
    item_types::Mode,
    nearest::{hint, truncate_name},
    records::Variant,
};

/// Submitted item.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmittedItem {
    pub id: ItemId,
    pub type_id: TypeId,
    pub type_version: Option<String>,
    /// Completeness as stated in the request, or the default of the endpoint.
    pub variant: Variant,
    /// Bytes as sent by the client, a slice of the body.
    pub data: Bytes,
    /// Index of the scanned `data` in its request.
    node: u32,
}

impl SubmittedItem {
    pub fn key(&self) -> ItemKey {
        ItemKey { type_id: self.type_id.clone(), id: self.id.clone() }
    }

    /// Returns the scanned `data`. `root` must be the root of its request.
    pub fn data_in<'n>(&self, root: Node<'n>) -> Node<'n> {
        root.node_at(self.node)
    }

    /// Returns the required completeness of the data.
    pub fn mode(&self) -> Mode {
        match self.variant {
            Variant::Original => Mode::Strict,
            Variant::Partial => Mode::Partial,
        }
    }
}

/// Item that gives context to a report or an appeal. It is kept even if it is invalid, with its errors in `fault`.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextItem {
    /// Empty if the entry has no valid id.
    pub id: ItemId,
    /// Empty if the entry has no valid type id.
    pub type_id: TypeId,
    pub type_version: Option<String>,
    pub variant: Variant,
    /// Bytes as sent by the client; `{}` if `data` is absent.
    pub data: Bytes,
    /// Errors of the entry as an item, in one line.
    pub fault: Option<String>,
    /// JSON object of the invalid members, as sent. An invalid `data` is in `data` itself.
    pub as_sent: Option<Bytes>,
    /// Index of the scanned `data` in its request.
    node: Option<u32>,
}

impl ContextItem {
    /// Returns the scanned `data`, if present. `root` must be the root of its request.
    pub fn data_in<'n>(&self, root: Node<'n>) -> Option<Node<'n>> {
        self.node.map(|node| root.node_at(node))
    }
}

/// Reads `{"items": [...]}`.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<Vec<SubmittedItem>>, RequestRejection> {
    Request::read(body, limits, |reader, root| {
        let items = reader.required_member(root, "items", &Pointer::Root)?;
        Some(reader.read_list(Some(items), "items", limits.items, &Pointer::Root, Reader::read_item))
    })
}

/// Valid members of an item that is being read.
struct ItemDraft<'n> {
    id: Option<Cow<'n, str>>,
    type_id: Option<Cow<'n, str>>,
    type_version: Option<String>,
    variant: Option<Variant>,
    data: Option<Node<'n>>,
    /// True if the type is given in both forms, flat and nested.
    has_ambiguous_type: bool,
    /// Invalid members other than `data`.
    invalid_members: Vec<(&'static str, Node<'n>)>,
}

impl Reader<'_> {
    /// Reads an item, which counts as complete unless it says otherwise.
    pub(super) fn read_item(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<SubmittedItem> {
        self.read_item_or(node, at, Variant::Original)
    }

    /// Reads an item. `default_variant` is its completeness unless it states its own.
    pub(super) fn read_item_or(
        &mut self,
        node: Node<'_>,
        at: &Pointer<'_>,
        default_variant: Variant,
    ) -> Option<SubmittedItem> {
        let earlier_faults = self.faults.count();
        let draft = self.read_draft(node, at);
        // Only the second pass over a refused request collects parts.
        if self.parts.is_some() {
            self.record_part(node, &draft, at);
        }
        let is_within_limit = draft.data.is_none_or(|data| self.check_data_size(data, at));
        let (id, type_id, data) = (draft.id?, draft.type_id?, draft.data?);
        if !is_within_limit || self.faults.count() > earlier_faults {
            return None;
        }
        Some(SubmittedItem {
            id: ItemId::new(id),
            type_id: TypeId::new(type_id),
            type_version: draft.type_version,
            variant: draft.variant.unwrap_or(default_variant),
            data: self.body.slice(data.range()),
            node: data.index(),
        })
    }

    /// Reads a context item. Only a value that is no object or too large is an error of the request.
    pub(super) fn read_context_item(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<ContextItem> {
        if node.kind() != Kind::Object {
            self.report_invalid(at, format!("This must be an object, not {}.", node.kind().name()));
            return None;
        }
        // Errors of a context item are stored with it and must not refuse the request.
        let request_faults = std::mem::take(&mut self.faults);
        let draft = self.read_draft(node, at);
        let item_faults = std::mem::replace(&mut self.faults, request_faults);
        // Read from the node: the draft has no `data` that is not an object, but a context item keeps it.
        let data = node.get("data");
        let as_sent = render_members(&draft.invalid_members);
        if !data.is_none_or(|data| self.check_data_size(data, at)) {
            return None;
        }
        if let Some(bytes) = as_sent.as_ref().map(Bytes::len).filter(|bytes| *bytes > self.limits.data_bytes)
        {
            let max_bytes = self.limits.data_bytes;
            let detail = format!(
                "The invalid members other than `data` have {bytes} bytes; at most {max_bytes} are kept."
            );
            self.faults.push(ValidationError::too_large(at, detail));
            return None;
        }
        Some(ContextItem {
            id: ItemId::new(draft.id.unwrap_or_default()),
            type_id: TypeId::new(draft.type_id.unwrap_or_default()),
            type_version: draft.type_version,
            variant: draft.variant.unwrap_or(Variant::Partial),
            data: data.map_or(Bytes::from_static(b"{}"), |data| self.body.slice(data.range())),
            fault: summarize_errors(item_faults),
            as_sent,
            node: data.map(|data| data.index()),
        })
    }

    /// Records an item with a readable type in the list of parts, so that its data is validated although the request is
    /// refused.
    fn record_part(&mut self, node: Node<'_>, draft: &ItemDraft<'_>, at: &Pointer<'_>) {
        // Of two stated types neither is known to be right.
        let Some(type_id) = draft.type_id.as_ref().filter(|_| !draft.has_ambiguous_type) else { return };
        let nested_type = || node.get("typeId").is_none().then(|| node.get("type")).flatten();
        let variant_member =
            Self::optional_member(node, "typeSchemaVariant").or_else(|| nested_type()?.get("schemaVariant"));
        let is_complete = match draft.variant {
            Some(variant) => variant == Variant::Original,
            // An unreadable variant may have meant a partial item, in which missing fields are no errors.
            None => variant_member.is_none_or(|value| value.is_null()),
        };
        let max_bytes = self.limits.data_bytes;
        let part = Part {
            at: at.render().unwrap_or_default(),
            type_id: TypeId::new(type_id),
            type_version: draft.type_version.clone(),
            mode: if is_complete { Mode::Strict } else { Mode::Partial },
            node: node.index(),
            data: draft.data.filter(|data| data.range().len() <= max_bytes).map(|data| data.index()),
        };
        self.parts.get_or_insert_default().push(part);
    }

    fn check_data_size(&mut self, data: Node<'_>, at: &Pointer<'_>) -> bool {
        let max_bytes = self.limits.data_bytes;
        let is_within_limit = data.range().len() <= max_bytes;
        if !is_within_limit {
            let detail = format!("`data` has {} bytes; at most {max_bytes} are taken.", data.range().len());
            self.faults.push(ValidationError::too_large(&at.key("data"), detail));
        }
        is_within_limit
    }

    fn read_draft<'n>(&mut self, node: Node<'n>, at: &Pointer<'_>) -> ItemDraft<'n> {
        let mut draft = ItemDraft {
            id: None,
            type_id: None,
            type_version: None,
            variant: None,
            data: None,
            has_ambiguous_type: false,
            invalid_members: Vec::new(),
        };
        if node.kind() != Kind::Object {
            self.report_invalid(at, format!("An item must be an object, not {}.", node.kind().name()));
            return draft;
        }
        // The first member of the flat form, and the value of the nested form.
        let (mut flat_member, mut nested_type, mut has_id) = (None, None, false);
        for (key, value) in node.entries() {
            let before = self.faults.count();
            let name = match &*key {
                "id" => {
                    has_id = true;
                    draft.id = self.read_id(value, "id", at);
                    "id"
                }
                "typeId" => {
                    flat_member = Some("typeId");
                    draft.type_id = self.read_id(value, "typeId", at);
                    "typeId"
                }
                "typeVersion" => {
                    // Some clients send all members and null for absent ones; such a null next to `type` is no second
                    // form.
                    flat_member = flat_member.or((!value.is_null()).then_some("typeVersion"));
                    draft.type_version = self.read_version(value, "typeVersion", at);
                    "typeVersion"
                }
                "typeSchemaVariant" => {
                    flat_member = flat_member.or((!value.is_null()).then_some("typeSchemaVariant"));
                    draft.variant = self.read_variant(value, "typeSchemaVariant", at);
                    "typeSchemaVariant"
                }
                // Read after the loop: its meaning depends on the flat members, which may follow it.
                "type" => {
                    nested_type = Some(value);
                    continue;
                }
                "data" if value.kind() == Kind::Object => {
                    draft.data = Some(value);
                    continue;
                }
                "data" => {
                    let kind_name = value.kind().name();
                    self.report_invalid(
                        &at.key("data"),
                        format!("`data` must be an object, not {kind_name}."),
                    );
                    continue;
                }
                _ => continue,
            };
            if self.faults.count() > before {
                draft.invalid_members.push((name, value));
            }
        }
        if !has_id {
            self.report_invalid(&at.key("id"), "`id` is missing.");
        }
        match (flat_member, nested_type) {
            // A `type` next to `typeId` is a field of the platform itself, such as `"post"`.
            // The flat form takes precedence.
            (Some("typeId"), _) => {}
            (Some(flat), Some(nested)) => {
                draft.has_ambiguous_type = true;
                draft.invalid_members.push(("type", nested));
                let message = format!(
                    "An item that has `type` names version and variant in it: this one has `type` and `{flat}`. Send \
                     `typeId` instead of `type`, or `{flat}` inside it."
                );
                self.report_invalid(at, message);
            }
            (None, Some(nested)) => {
                let before = self.faults.count();
                self.read_nested_type(nested, at, &mut draft);
                if self.faults.count() > before {
                    draft.invalid_members.push(("type", nested));
                }
            }
            (_, None) => self.report_invalid(&at.key("typeId"), "`typeId` is missing."),
        }
        if draft.data.is_none() && node.get("data").is_none() {
            self.report_invalid(&at.key("data"), "`data` is missing.");
        }
        draft
    }

    /// Reads the nested form of the type: `type: {id, version, schemaVariant}`.
    fn read_nested_type<'n>(&mut self, node: Node<'n>, at: &Pointer<'_>, draft: &mut ItemDraft<'n>) {
        let at = &at.key("type");
        if node.kind() != Kind::Object {
            self.report_invalid(at, format!("`type` must be an object, not {}.", node.kind().name()));
            return;
        }
        draft.type_id = self.read_required_id(node, "id", at);
        draft.type_version = node.get("version").and_then(|value| self.read_version(value, "version", at));
        draft.variant =
            node.get("schemaVariant").and_then(|value| self.read_variant(value, "schemaVariant", at));
    }

    fn read_version(&mut self, value: Node<'_>, key: &str, at: &Pointer<'_>) -> Option<String> {
        if value.is_null() { None } else { self.read_id(value, key, at).map(Cow::into_owned) }
    }

    fn read_variant(&mut self, value: Node<'_>, key: &str, at: &Pointer<'_>) -> Option<Variant> {
        if value.is_null() {
            return None;
        }
        match &*self.read_text(value, key, at)? {
            "original" => Some(Variant::Original),
            "partial" => Some(Variant::Partial),
            name => {
                let suggestion = hint(name, ["original", "partial"]);
                let truncated = truncate_name(name);
                self.report_invalid(
                    &at.key(key),
                    format!("`{key}` is `original` or `partial`, not `{truncated}`.{suggestion}"),
                );
                None
            }
        }
    }
}

/// Renders members as a JSON object, each value with its original bytes.
fn render_members(members: &[(&'static str, Node<'_>)]) -> Option<Bytes> {
    let mut text = Vec::new();
    for (key, value) in members {
        text.push(if text.is_empty() { b'{' } else { b',' });
        text.extend_from_slice(format!("\"{key}\":").as_bytes());
        text.extend_from_slice(value.raw());
    }
    (!text.is_empty()).then(|| [text, b"}".to_vec()].concat().into())
}

/// Joins the first five errors of an item in one line.
fn summarize_errors(faults: ValidationErrors) -> Option<String> {
    let errors = faults.into_vec();
    let details: Vec<String> = errors.iter().take(5).map(|fault| fault.detail.clone()).collect();
    (!details.is_empty()).then(|| details.join(" "))
}
