//! Reads typed members off scanned JSON and collects what is wrong with each.
//!
//! It does not know any request; `items`, `reports` and `appeals` do.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Limits, Misshapen, Part, Refused};
use crate::json::{self, Kind, Node, Tape};
use crate::validation_error::{Pointer, ValidationError, ValidationErrors};
use crate::{
    ids::{ItemId, ItemKey, Millis, TypeId},
    item_types::datetime,
};

const TITLE: &str = "Request body failed schema validation.";

/// A parsed request together with the scan of its body.
#[derive(Clone, Debug)]
pub struct Request<T> {
    pub content: T,
    pub(super) body: Bytes,
    pub(super) tape: Tape,
}

impl<T> Request<T> {
    /// The whole body. It is looked through for this: ask once.
    pub fn root(&self) -> Node<'_> {
        self.tape.root(&self.body)
    }

    /// Scans a body and reads its content.
    pub(super) fn read(
        body: &Bytes,
        limits: &Limits,
        content: impl Fn(&mut Reader<'_>, Node<'_>) -> Option<T>,
    ) -> Result<Self, Refused> {
        let tape = json::scan(body).map_err(Refused::Text)?;
        let root = tape.root(body);
        let read = |parts| {
            let mut reader = Reader { body, limits, faults: ValidationErrors::default(), parts };
            let content = if root.kind() == Kind::Object {
                content(&mut reader, root)
            } else {
                let found = root.kind().name();
                reader.refuse(&Pointer::Root, format!("The body must be an object, not {found}."));
                None
            };
            (content, reader)
        };
        match read(None) {
            (Some(content), reader) if reader.faults.is_empty() => {
                Ok(Self { content, body: body.clone(), tape })
            }
            // Only now: most requests have the right shape.
            _ => {
                let (_, Reader { faults, parts, .. }) = read(Some(Vec::new()));
                let parts = Request { content: parts.unwrap_or_default(), body: body.clone(), tape };
                Err(Refused::Shape(Box::new(Misshapen { faults, parts })))
            }
        }
    }
}

/// The state of reading one request.
pub(super) struct Reader<'a> {
    pub(super) body: &'a Bytes,
    pub(super) limits: &'a Limits,
    pub(super) faults: ValidationErrors,
    /// The parts whose types can be read, if they are asked for.
    pub(super) parts: Option<Vec<Part>>,
}

impl Reader<'_> {
    pub(super) fn refuse(&mut self, at: &Pointer<'_>, detail: impl Into<String>) {
        self.faults.push(ValidationError::invalid(at, TITLE, detail));
    }

    fn missing(&mut self, key: &str, at: &Pointer<'_>) {
        self.refuse(&at.key(key), format!("`{key}` is missing."));
    }

    fn wrong(&mut self, key: &str, expected: &str, found: Node<'_>, at: &Pointer<'_>) {
        self.refuse(&at.key(key), format!("`{key}` must be {expected}, not {}.", found.kind().name()));
    }

    /// A value that may be left out; null counts as left out.
    pub(super) fn optional<'n>(node: Node<'n>, key: &str) -> Option<Node<'n>> {
        node.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn required<'n>(&mut self, node: Node<'n>, key: &str, at: &Pointer<'_>) -> Option<Node<'n>> {
        let value = node.get(key);
        if value.is_none() {
            self.missing(key, at);
        }
        value
    }

    /// The text of an already found member.
    pub(super) fn text<'n>(&mut self, value: Node<'n>, key: &str, at: &Pointer<'_>) -> Option<Cow<'n, str>> {
        let text = value.str();
        if text.is_none() {
            self.wrong(key, "a string", value, at);
        }
        text
    }

    pub(super) fn optional_text(&mut self, node: Node<'_>, key: &str, at: &Pointer<'_>) -> Option<String> {
        Self::optional(node, key).and_then(|value| self.text(value, key, at)).map(Cow::into_owned)
    }

    /// A text that can be a part of a key: not empty, not too long.
    pub(super) fn id<'n>(&mut self, value: Node<'n>, key: &str, at: &Pointer<'_>) -> Option<Cow<'n, str>> {
        let text = self.text(value, key, at)?;
        if text.is_empty() {
            self.refuse(&at.key(key), format!("`{key}` may not be empty."));
            return None;
        }
        if text.len() > self.limits.id_bytes {
            let most = self.limits.id_bytes;
            self.refuse(&at.key(key), format!("`{key}` has {} bytes; at most {most} are taken.", text.len()));
            return None;
        }
        Some(text)
    }

    pub(super) fn required_id<'n>(
        &mut self,
        node: Node<'n>,
        key: &str,
        at: &Pointer<'_>,
    ) -> Option<Cow<'n, str>> {
        let value = self.required(node, key, at)?;
        self.id(value, key, at)
    }

    pub(super) fn instant(&mut self, node: Node<'_>, key: &str, at: &Pointer<'_>) -> Option<Millis> {
        let value = self.required(node, key, at)?;
        let text = self.text(value, key, at)?;
        let instant = datetime::parse(&text).or_else(|| datetime::midnight(&text));
        if instant.is_none() {
            self.refuse(&at.key(key), format!("`{key}` must be an ISO 8601 date, with or without a time."));
        }
        instant
    }

    /// An object that must be there.
    pub(super) fn object<'n>(&mut self, node: Node<'n>, key: &str, at: &Pointer<'_>) -> Option<Node<'n>> {
        let value = self.required(node, key, at)?;
        if value.kind() == Kind::Object {
            return Some(value);
        }
        self.wrong(key, "an object", value, at);
        None
    }

    /// `{id, typeId}`
    pub(super) fn item_key(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<ItemKey> {
        if node.kind() != Kind::Object {
            self.refuse(
                at,
                format!("An object with `id` and `typeId` must stand here, not {}.", node.kind().name()),
            );
            return None;
        }
        let id = self.required_id(node, "id", at);
        let type_id = self.required_id(node, "typeId", at);
        Some(ItemKey { id: ItemId::new(id?), type_id: TypeId::new(type_id?) })
    }

    /// The members of an array, each through `read`; an array that is left out is empty.
    pub(super) fn list<T>(
        &mut self,
        value: Option<Node<'_>>,
        key: &str,
        most: usize,
        at: &Pointer<'_>,
        mut read: impl FnMut(&mut Self, Node<'_>, &Pointer<'_>) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = value else { return Vec::new() };
        if value.kind() != Kind::Array {
            self.wrong(key, "an array", value, at);
            return Vec::new();
        }
        let at = at.key(key);
        let count = value.elements().count();
        if count > most {
            self.refuse(&at, format!("`{key}` has {count} entries; at most {most} are taken."));
            return Vec::new();
        }
        let mut members = Vec::with_capacity(count);
        for (index, element) in value.elements().enumerate() {
            members.extend(read(self, element, &at.index(index)));
        }
        members
    }
}
