//! Request of the legacy endpoint that submits one piece of content and optionally waits for its evaluation.

use bytes::Bytes;

use super::{Limits, Request, RequestRejection, read::Reader};
use crate::ids::ItemId;
use crate::json::{Kind, Node};
use crate::validation_error::{Pointer, ValidationError};

/// Piece of content, as sent by a platform.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentRequest {
    /// Id or name of an item type.
    pub content_type: String,
    pub content_id: ItemId,
    pub user_id: Option<ItemId>,
    /// True if the sender waits for the evaluation.
    pub sync: bool,
    /// Bytes as sent by the client, a slice of the body.
    pub content: Bytes,
    node: u32,
}

impl ContentRequest {
    /// Returns the scanned `content`. `root` must be the root of its request.
    pub fn content_in<'n>(&self, root: Node<'n>) -> Node<'n> {
        root.node_at(self.node)
    }
}

/// Reads `{contentType, contentId, content, userId?, sync?}`.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<ContentRequest>, RequestRejection> {
    Request::read(body, limits, |reader, root| {
        let at = &Pointer::Root;
        let content_type = reader.read_required_id(root, "contentType", at);
        let content_id = reader.read_required_id(root, "contentId", at);
        let content =
            reader.read_object(root, "content", at).filter(|content| reader.check_content_size(*content));
        let user_id = Reader::optional_member(root, "userId").map(|id| reader.read_id(id, "userId", at));
        let sync = match Reader::optional_member(root, "sync").map(|sync| sync.kind()) {
            // The legacy endpoint waits for the evaluation by default.
            None => true,
            Some(Kind::Bool(sync)) => sync,
            Some(other) => {
                let detail = format!("`sync` must be `true` or `false`, not {}.", other.name());
                reader.report_invalid(&at.key("sync"), detail);
                return None;
            }
        };
        let content = content?;
        Some(ContentRequest {
            content_type: content_type?.into_owned(),
            content_id: ItemId::new(content_id?),
            user_id: match user_id {
                Some(id) => Some(ItemId::new(id?)),
                None => None,
            },
            sync,
            content: reader.body.slice(content.range()),
            node: content.index(),
        })
    })
}

impl Reader<'_> {
    fn check_content_size(&mut self, content: Node<'_>) -> bool {
        let (bytes, max_bytes) = (content.range().len(), self.limits.data_bytes);
        if bytes > max_bytes {
            let detail = format!("`content` has {bytes} bytes; at most {max_bytes} are taken.");
            self.faults.push(ValidationError::too_large(&Pointer::Root.key("content"), detail));
        }
        bytes <= max_bytes
    }
}
