//! Reads typed members of scanned JSON and collects their errors, for all requests of the platform API.

use std::borrow::Cow;

use bytes::Bytes;

use super::{InvalidRequest, Limits, Part, RequestRejection};
use crate::json::{self, Kind, Node, Tape};
use crate::validation_error::{Pointer, ValidationError, ValidationErrors};
use crate::{
    ids::{ItemId, ItemKey, Millis, TypeId},
    item_types::datetime,
};

const TITLE: &str = "Request body failed schema validation.";

/// Parsed request with the scan of its body.
#[derive(Clone, Debug)]
pub struct Request<T> {
    pub content: T,
    pub(super) body: Bytes,
    pub(super) tape: Tape,
}

impl<T> Request<T> {
    /// Returns the root of the body. Each call checks the whole body as UTF-8, so callers store the result.
    pub fn root(&self) -> Node<'_> {
        self.tape.root(&self.body)
    }

    /// Scans a body and reads its content.
    pub(super) fn read(
        body: &Bytes,
        limits: &Limits,
        content: impl Fn(&mut Reader<'_>, Node<'_>) -> Option<T>,
    ) -> Result<Self, RequestRejection> {
        let tape = json::scan(body).map_err(RequestRejection::Text)?;
        let root = tape.root(body);
        let read = |parts| {
            let mut reader = Reader { body, limits, faults: ValidationErrors::default(), parts };
            let content = if root.kind() == Kind::Object {
                content(&mut reader, root)
            } else {
                let kind_name = root.kind().name();
                reader
                    .report_invalid(&Pointer::Root, format!("The body must be an object, not {kind_name}."));
                None
            };
            (content, reader)
        };
        match read(None) {
            // Content with errors is refused: an invalid optional member must not be dropped silently.
            (Some(content), reader) if reader.faults.is_empty() => {
                Ok(Self { content, body: body.clone(), tape })
            }
            // The parts are collected in a second pass, because most requests are valid and do not need them.
            _ => {
                let (_, Reader { faults, parts, .. }) = read(Some(Vec::new()));
                let parts = Request { content: parts.unwrap_or_default(), body: body.clone(), tape };
                Err(RequestRejection::Shape(Box::new(InvalidRequest { faults, parts })))
            }
        }
    }
}

/// State of reading one request.
pub(super) struct Reader<'a> {
    pub(super) body: &'a Bytes,
    pub(super) limits: &'a Limits,
    pub(super) faults: ValidationErrors,
    /// Items with a readable type. `None` in the first pass.
    pub(super) parts: Option<Vec<Part>>,
}

impl Reader<'_> {
    pub(super) fn report_invalid(&mut self, at: &Pointer<'_>, detail: impl Into<String>) {
        self.faults.push(ValidationError::invalid(at, TITLE, detail));
    }

    fn report_missing(&mut self, key: &str, at: &Pointer<'_>) {
        self.report_invalid(&at.key(key), format!("`{key}` is missing."));
    }

    fn report_wrong_kind(&mut self, key: &str, expected: &str, value: Node<'_>, at: &Pointer<'_>) {
        self.report_invalid(
            &at.key(key),
            format!("`{key}` must be {expected}, not {}.", value.kind().name()),
        );
    }

    /// Returns an optional member. A null counts as absent.
    pub(super) fn optional_member<'n>(node: Node<'n>, key: &str) -> Option<Node<'n>> {
        node.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn required_member<'n>(
        &mut self,
        node: Node<'n>,
        key: &str,
        at: &Pointer<'_>,
    ) -> Option<Node<'n>> {
        let value = node.get(key);
        if value.is_none() {
            self.report_missing(key, at);
        }
        value
    }

    /// Reads the text of a member.
    pub(super) fn read_text<'n>(
        &mut self,
        value: Node<'n>,
        key: &str,
        at: &Pointer<'_>,
    ) -> Option<Cow<'n, str>> {
        let text = value.str();
        if text.is_none() {
            self.report_wrong_kind(key, "a string", value, at);
        }
        text
    }

    pub(super) fn read_optional_text(
        &mut self,
        node: Node<'_>,
        key: &str,
        at: &Pointer<'_>,
    ) -> Option<String> {
        Self::optional_member(node, key).and_then(|value| self.read_text(value, key, at)).map(Cow::into_owned)
    }

    /// Reads an id: a text that is not empty and within the length limit, so that it can be part of a key.
    pub(super) fn read_id<'n>(
        &mut self,
        value: Node<'n>,
        key: &str,
        at: &Pointer<'_>,
    ) -> Option<Cow<'n, str>> {
        let text = self.read_text(value, key, at)?;
        if text.is_empty() {
            self.report_invalid(&at.key(key), format!("`{key}` may not be empty."));
            return None;
        }
        if text.len() > self.limits.id_bytes {
            let max_bytes = self.limits.id_bytes;
            self.report_invalid(
                &at.key(key),
                format!("`{key}` has {} bytes; at most {max_bytes} are taken.", text.len()),
            );
            return None;
        }
        Some(text)
    }

    pub(super) fn read_required_id<'n>(
        &mut self,
        node: Node<'n>,
        key: &str,
        at: &Pointer<'_>,
    ) -> Option<Cow<'n, str>> {
        let value = self.required_member(node, key, at)?;
        self.read_id(value, key, at)
    }

    pub(super) fn read_instant(&mut self, node: Node<'_>, key: &str, at: &Pointer<'_>) -> Option<Millis> {
        let value = self.required_member(node, key, at)?;
        let text = self.read_text(value, key, at)?;
        let instant = datetime::parse(&text).or_else(|| datetime::midnight(&text));
        if instant.is_none() {
            self.report_invalid(
                &at.key(key),
                format!("`{key}` must be an ISO 8601 date, with or without a time."),
            );
        }
        instant
    }

    /// Reads a required object.
    pub(super) fn read_object<'n>(
        &mut self,
        node: Node<'n>,
        key: &str,
        at: &Pointer<'_>,
    ) -> Option<Node<'n>> {
        let value = self.required_member(node, key, at)?;
        if value.kind() == Kind::Object {
            return Some(value);
        }
        self.report_wrong_kind(key, "an object", value, at);
        None
    }

    /// Reads `{id, typeId}`.
    pub(super) fn read_item_key(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<ItemKey> {
        if node.kind() != Kind::Object {
            self.report_invalid(
                at,
                format!("This must be an object with `id` and `typeId`, not {}.", node.kind().name()),
            );
            return None;
        }
        let id = self.read_required_id(node, "id", at);
        let type_id = self.read_required_id(node, "typeId", at);
        Some(ItemKey { id: ItemId::new(id?), type_id: TypeId::new(type_id?) })
    }

    /// Reads the members of an array with `read`. An absent array is empty.
    pub(super) fn read_list<T>(
        &mut self,
        value: Option<Node<'_>>,
        key: &str,
        max_entries: usize,
        at: &Pointer<'_>,
        mut read: impl FnMut(&mut Self, Node<'_>, &Pointer<'_>) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = value else { return Vec::new() };
        if value.kind() != Kind::Array {
            self.report_wrong_kind(key, "an array", value, at);
            return Vec::new();
        }
        let at = at.key(key);
        let count = value.elements().count();
        // Checked before the members are read, so that an oversized array costs no more than its scan.
        if count > max_entries {
            self.report_invalid(
                &at,
                format!("`{key}` has {count} entries; at most {max_entries} are taken."),
            );
            return Vec::new();
        }
        let mut members = Vec::with_capacity(count);
        for (index, element) in value.elements().enumerate() {
            members.extend(read(self, element, &at.index(index)));
        }
        members
    }
}
