//! The request of the legacy endpoint that submits one piece of content and may wait for its evaluation.
//!
//! It knows no item types: `contentType` may be the id or the name of one.

use bytes::Bytes;

use super::{Limits, Refused, Request, read::Reader};
use crate::ids::ItemId;
use crate::json::{Kind, Node};
use crate::validation_error::{Pointer, ValidationError};

/// A piece of content as a platform sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentRequest {
    /// Id or name of an item type.
    pub content_type: String,
    pub content_id: ItemId,
    pub user_id: Option<ItemId>,
    /// True if the sender waits for the evaluation.
    pub sync: bool,
    /// The client's own bytes, a slice of the body.
    pub content: Bytes,
    node: u32,
}

impl ContentRequest {
    /// Its scanned `content`, in the request with this root.
    pub fn content_in<'n>(&self, root: Node<'n>) -> Node<'n> {
        root.other(self.node)
    }
}

/// Reads `{contentType, contentId, content, userId?, sync?}`.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<ContentRequest>, Refused> {
    Request::read(body, limits, |reader, root| {
        let at = &Pointer::Root;
        let content_type = reader.required_id(root, "contentType", at);
        let content_id = reader.required_id(root, "contentId", at);
        let content = reader.object(root, "content", at).filter(|content| reader.fits(*content));
        let user_id = Reader::optional(root, "userId").map(|id| reader.id(id, "userId", at));
        let sync = match Reader::optional(root, "sync").map(|sync| sync.kind()) {
            None => true,
            Some(Kind::Bool(sync)) => sync,
            Some(other) => {
                let detail = format!("`sync` must be `true` or `false`, not {}.", other.name());
                reader.refuse(&at.key("sync"), detail);
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
    fn fits(&mut self, content: Node<'_>) -> bool {
        let (bytes, most) = (content.range().len(), self.limits.data_bytes);
        if bytes > most {
            let detail = format!("`content` has {bytes} bytes; at most {most} are taken.");
            self.faults.push(ValidationError::too_large(&Pointer::Root.key("content"), detail));
        }
        bytes <= most
    }
}
