//! Request that asks a platform for items, and the platform's response.

use bytes::Bytes;

use super::{Limits, Request, RequestRejection, items::SubmittedItem, read::Reader};
use crate::{ids::ItemKey, records::Variant, validation_error::Pointer};

/// Renders `{"items": [{"typeId", "id"}, ...]}`.
pub fn request(items: &[ItemKey]) -> Bytes {
    let body = serde_json::json!({ "items": items });
    Bytes::from(body.to_string())
}

/// Reads `{"items": [...]}`, each entry in the flat or the nested form. Other top-level members are ignored. An entry
/// without a stated completeness counts as partial.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<Vec<SubmittedItem>>, RequestRejection> {
    Request::read(body, limits, |reader, root| {
        let items = reader.required_member(root, "items", &Pointer::Root)?;
        // A platform returns the fields that it still has, so the response is not required to be complete.
        let read = |reader: &mut Reader<'_>, node: crate::json::Node<'_>, at: &Pointer<'_>| {
            reader.read_item_or(node, at, Variant::Partial)
        };
        Some(reader.read_list(Some(items), "items", limits.items, &Pointer::Root, read))
    })
}
