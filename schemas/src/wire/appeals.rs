//! Request that appeals against a decision. Repeated appeals, actions and policies are checked in `tidegate-ingest` and
//! `tidegate-moderation`.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    Limits, Request, RequestRejection,
    items::{ContextItem, SubmittedItem},
    read::Reader,
};
use crate::ids::{AppealId, ItemKey, Millis};
use crate::json::{Kind, Node};
use crate::validation_error::Pointer;

/// Appeal, as sent by a platform.
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
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<AppealRequest>, RequestRejection> {
    Request::read(body, limits, |reader, root| {
        let at = &Pointer::Root;
        let max_entries = limits.context_items;
        let appeal_id = reader.read_required_id(root, "appealId", at);
        // All members are read before the first return, so that all errors are reported.
        let appealed_by = reader.required_member(root, "appealedBy", at);
        let appealed_by = appealed_by.and_then(|node| reader.read_item_key(node, &at.key("appealedBy")));
        let appealed_at = reader.read_instant(root, "appealedAt", at);
        let item = reader.required_member(root, "actionedItem", at);
        let item = item.and_then(|node| reader.read_item(node, &at.key("actionedItem")));
        let actions = reader.required_member(root, "actionsTaken", at);
        let actions_taken = reader.read_list(actions, "actionsTaken", max_entries, at, Reader::read_mention);
        let reason = reader.read_optional_text(root, "appealReason", at);
        let key = "violatingPolicies";
        let violating_policies =
            reader.read_list(Reader::optional_member(root, key), key, max_entries, at, Reader::read_policy);
        let key = "additionalItems";
        let additional = reader.read_list(
            Reader::optional_member(root, key),
            key,
            max_entries,
            at,
            Reader::read_context_item,
        );
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
    /// Reads an array member that is an id.
    pub(super) fn read_mention(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<String> {
        let max_bytes = self.limits.id_bytes;
        match node.str() {
            Some(text) if !text.is_empty() && text.len() <= max_bytes => Some(text.into_owned()),
            Some(_) => {
                self.report_invalid(at, format!("An id has 1 to {max_bytes} bytes."));
                None
            }
            None => {
                self.report_invalid(at, format!("An id must be a string, not {}.", node.kind().name()));
                None
            }
        }
    }

    /// Reads the id of a policy object; other members, which the platform copies from the callback, are ignored. An
    /// empty id counts as absent.
    fn read_policy(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<String> {
        if node.kind() == Kind::Object {
            // A platform that has no policy for the decision may send an empty id.
            if node.get("id").and_then(|id| id.str()).is_some_and(|id| id.is_empty()) {
                return None;
            }
            return self.read_required_id(node, "id", at).map(Cow::into_owned);
        }
        self.report_invalid(at, format!("A policy must be an object with `id`, not {}.", node.kind().name()));
        None
    }
}
