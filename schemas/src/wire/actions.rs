//! Request that takes actions on items without a review. Ids of actions, policies and item types are looked up in
//! `tidegate-ingest`.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{Limits, Request, RequestRejection, read::Reader};
use crate::ids::{ActionId, ItemId, ItemKey, TypeId};
use crate::json::{Kind, Node};
use crate::validation_error::{Pointer, ValidationError};

/// Action on an item, as sent by a platform.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionRequest {
    pub action_id: ActionId,
    pub item: ItemKey,
    pub policies: Vec<String>,
    pub parameters: Map<String, Value>,
    pub note: Option<String>,
    /// Person or system that takes the action, as named by the platform.
    pub actor_id: Option<String>,
    pub reported_items: Vec<ItemKey>,
    node: u32,
}

impl ActionRequest {
    /// Returns the scanned object of the action. `root` must be the root of its request.
    pub fn node_in<'n>(&self, root: Node<'n>) -> Node<'n> {
        root.node_at(self.node)
    }
}

/// Actions of a request, and the form of its body.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionRequests {
    pub actions: Vec<ActionRequest>,
    /// True for `{"actions": [...]}`, false for a single action.
    pub is_batch: bool,
}

/// Members of a single action, which a body with a list of actions must not have.
const ACTION_MEMBERS: [&str; 8] =
    ["actionId", "itemId", "itemTypeId", "policyIds", "parameters", "note", "actorId", "reportedItems"];

/// Reads a single action or `{"actions": [...]}`. A body in both forms is refused, because one form would be ignored.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<ActionRequests>, RequestRejection> {
    Request::read(body, limits, |reader, root| {
        // `actions` decides the form, even with an invalid value.
        let Some(actions) = root.get("actions") else {
            let action = reader.read_action(root, &Pointer::Root)?;
            return Some(ActionRequests { actions: vec![action], is_batch: false });
        };
        for member in
            ACTION_MEMBERS.into_iter().filter(|member| Reader::optional_member(root, member).is_some())
        {
            reader.report_invalid(
                &Pointer::Root.key(member),
                format!("The body has both `{member}` and `actions`. Send one action without `actions`, or all of them in `actions`."),
            );
        }
        let actions =
            reader.read_list(Some(actions), "actions", limits.items, &Pointer::Root, Reader::read_action);
        Some(ActionRequests { actions, is_batch: true })
    })
}

impl Reader<'_> {
    fn read_action(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<ActionRequest> {
        if node.kind() != Kind::Object {
            self.report_invalid(at, format!("An action must be an object, not {}.", node.kind().name()));
            return None;
        }
        let max_entries = self.limits.context_items;
        let action_id = self.read_required_id(node, "actionId", at);
        let item_id = self.read_required_id(node, "itemId", at);
        let type_id = self.read_required_id(node, "itemTypeId", at);
        let key = "policyIds";
        let policies =
            self.read_list(Self::optional_member(node, key), key, max_entries, at, Self::read_mention);
        let parameters = self.read_parameters(node, at);
        let note = self.read_optional_text(node, "note", at).filter(|note| self.check_note_length(note, at));
        let actor_id =
            Self::optional_member(node, "actorId").and_then(|actor| self.read_id(actor, "actorId", at));
        let key = "reportedItems";
        let reported_items =
            self.read_list(Self::optional_member(node, key), key, max_entries, at, Self::read_item_key);
        Some(ActionRequest {
            action_id: ActionId::new(action_id?),
            item: ItemKey { type_id: TypeId::new(type_id?), id: ItemId::new(item_id?) },
            policies,
            parameters,
            note,
            actor_id: actor_id.map(std::borrow::Cow::into_owned),
            reported_items,
            node: node.index(),
        })
    }

    fn read_parameters(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Map<String, Value> {
        let Some(value) = Self::optional_member(node, "parameters") else { return Map::new() };
        let at = &at.key("parameters");
        let (bytes, max_bytes) = (value.raw().len(), self.limits.data_bytes);
        // Checked before parsing, which needs several times the memory of the text.
        if bytes > max_bytes {
            let detail = format!("`parameters` has {bytes} bytes; at most {max_bytes} are taken.");
            self.faults.push(ValidationError::too_large(at, detail));
            return Map::new();
        }
        serde_json::from_slice(value.raw()).unwrap_or_else(|_| {
            self.report_invalid(at, format!("`parameters` must be an object, not {}.", value.kind().name()));
            Map::new()
        })
    }

    fn check_note_length(&mut self, note: &str, at: &Pointer<'_>) -> bool {
        let (length, max_chars) = (note.chars().count(), self.limits.note_chars);
        if length > max_chars {
            let detail = format!("`note` has {length} characters; at most {max_chars} are taken.");
            self.report_invalid(&at.key("note"), detail);
        }
        length <= max_chars
    }
}
