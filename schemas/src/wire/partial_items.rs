//! The request that asks a platform for items, and the platform's answer.

use bytes::Bytes;

use super::{Limits, Refused, Request, items::SubmittedItem, read::Reader};
use crate::{ids::ItemKey, records::Variant, validation_error::Pointer};

/// Renders `{"items": [{"typeId", "id"}, ...]}`.
pub fn request(items: &[ItemKey]) -> Bytes {
    let body = serde_json::json!({ "items": items });
    Bytes::from(body.to_string())
}

/// Reads `{"items": [...]}`, each entry in the flat or the nested form. Other top-level members are ignored, and an entry
/// that does not say how complete it is counts as partial.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<Vec<SubmittedItem>>, Refused> {
    Request::read(body, limits, |reader, root| {
        let items = reader.required(root, "items", &Pointer::Root)?;
        let read = |reader: &mut Reader<'_>, node: crate::json::Node<'_>, at: &Pointer<'_>| {
            reader.item_or(node, at, Variant::Partial)
        };
        Some(reader.list(Some(items), "items", limits.items, &Pointer::Root, read))
    })
}
