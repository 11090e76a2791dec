//! The request that appeals against a decision.
//!
//! It does not know whether the appeal was sent before, nor whether actions and policies exist.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    Limits, Refused, Request,
    items::{ContextItem, SubmittedItem},
    read::Reader,
};
use crate::ids::{AppealId, ItemKey, Millis};
use crate::json::{Kind, Node};
use crate::validation_error::Pointer;

/// An appeal as a platform sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct AppealRequest {
    pub appeal_id: AppealId,
    pub appealed_by: ItemKey,
    pub appealed_at: Millis,
    pub item: SubmittedItem,
    pub actions_taken: Vec<String>,
    pub reason: Option<String>,
    pub violating_policies: Vec<String>,
    pub additional: Vec<ContextItem>,
}

/// Reads an appeal.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<AppealRequest>, Refused> {
    Request::read(body, limits, |reader, root| {
        let at = &Pointer::Root;
        let most = limits.context_items;
        let appeal_id = reader.required_id(root, "appealId", at);
        let appealed_by = reader.required(root, "appealedBy", at);
        let appealed_by = appealed_by.and_then(|node| reader.item_key(node, &at.key("appealedBy")));
        let appealed_at = reader.instant(root, "appealedAt", at);
        let item = reader.required(root, "actionedItem", at);
        let item = item.and_then(|node| reader.item(node, &at.key("actionedItem")));
        let actions = reader.required(root, "actionsTaken", at);
        let actions_taken = reader.list(actions, "actionsTaken", most, at, Reader::mention);
        let reason = reader.optional_text(root, "appealReason", at);
        let key = "violatingPolicies";
        let violating_policies = reader.list(Reader::optional(root, key), key, most, at, Reader::policy);
        let key = "additionalItems";
        let additional = reader.list(Reader::optional(root, key), key, most, at, Reader::context_item);
        Some(AppealRequest {
            appeal_id: AppealId::new(appeal_id?),
            appealed_by: appealed_by?,
            appealed_at: appealed_at?,
            item: item?,
            actions_taken,
            reason,
            violating_policies,
            additional,
        })
    })
}

impl Reader<'_> {
    /// An id that stands by itself.
    pub(super) fn mention(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<String> {
        let most = self.limits.id_bytes;
        match node.str() {
            Some(text) if !text.is_empty() && text.len() <= most => Some(text.into_owned()),
            Some(_) => {
                self.refuse(at, format!("An id has 1 to {most} bytes."));
                None
            }
            None => {
                self.refuse(at, format!("An id must be a string, not {}.", node.kind().name()));
                None
            }
        }
    }

    /// `{id}`, with whatever else the callback carried. An empty id counts as absent.
    fn policy(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<String> {
        if node.kind() == Kind::Object {
            // A platform that knows no policy may send an empty id for it.
            if node.get("id").and_then(|id| id.str()).is_some_and(|id| id.is_empty()) {
                return None;
            }
            return self.required_id(node, "id", at).map(Cow::into_owned);
        }
        self.refuse(at, format!("A policy must be an object with `id`, not {}.", node.kind().name()));
        None
    }
}
