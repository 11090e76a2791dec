//! The request that takes actions on items without a review.
//!
//! It does not know which actions, policies and item types exist.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{Limits, Refused, Request, read::Reader};
use crate::ids::{ActionId, ItemId, ItemKey, TypeId};
use crate::json::{Kind, Node};
use crate::validation_error::{Pointer, ValidationError};

/// An action on an item as a platform sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionRequest {
    pub action_id: ActionId,
    pub item: ItemKey,
    pub policies: Vec<String>,
    pub parameters: Map<String, Value>,
    pub note: Option<String>,
    /// Person or system that takes the action, in the platform's own words.
    pub actor_id: Option<String>,
    pub reported_items: Vec<ItemKey>,
    node: u32,
}

impl ActionRequest {
    /// Its scanned object, in the request with this root.
    pub fn node_in<'n>(&self, root: Node<'n>) -> Node<'n> {
        root.other(self.node)
    }
}

/// The actions of a request, and the form that it has.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionRequests {
    pub actions: Vec<ActionRequest>,
    /// True for `{"actions": [...]}`, false for one action by itself.
    pub is_batch: bool,
}

/// Members of a single action, which do not stand beside a list of actions.
const ACTION_MEMBERS: [&str; 8] =
    ["actionId", "itemId", "itemTypeId", "policyIds", "parameters", "note", "actorId", "reportedItems"];

/// Reads one action, or `{"actions": [...]}`. A body in both forms is refused: one of them would be ignored.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<ActionRequests>, Refused> {
    Request::read(body, limits, |reader, root| {
        let Some(actions) = root.get("actions") else {
            let action = reader.action(root, &Pointer::Root)?;
            return Some(ActionRequests { actions: vec![action], is_batch: false });
        };
        for member in ACTION_MEMBERS.into_iter().filter(|member| Reader::optional(root, member).is_some()) {
            reader.refuse(
                &Pointer::Root.key(member),
                format!("`{member}` stands beside `actions`. Send one action without `actions`, or all of them in `actions`."),
            );
        }
        let actions = reader.list(Some(actions), "actions", limits.items, &Pointer::Root, Reader::action);
        Some(ActionRequests { actions, is_batch: true })
    })
}

impl Reader<'_> {
    fn action(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Option<ActionRequest> {
        if node.kind() != Kind::Object {
            self.refuse(at, format!("An action must be an object, not {}.", node.kind().name()));
            return None;
        }
        let most = self.limits.context_items;
        let action_id = self.required_id(node, "actionId", at);
        let item_id = self.required_id(node, "itemId", at);
        let type_id = self.required_id(node, "itemTypeId", at);
        let key = "policyIds";
        let policies = self.list(Self::optional(node, key), key, most, at, Self::mention);
        let parameters = self.parameters(node, at);
        let note = self.optional_text(node, "note", at).filter(|note| self.is_short(note, at));
        let actor_id = Self::optional(node, "actorId").and_then(|actor| self.id(actor, "actorId", at));
        let key = "reportedItems";
        let reported_items = self.list(Self::optional(node, key), key, most, at, Self::item_key);
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

    fn parameters(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Map<String, Value> {
        let Some(value) = Self::optional(node, "parameters") else { return Map::new() };
        let at = &at.key("parameters");
        let (bytes, most) = (value.raw().len(), self.limits.data_bytes);
        if bytes > most {
            let detail = format!("`parameters` has {bytes} bytes; at most {most} are taken.");
            self.faults.push(ValidationError::too_large(at, detail));
            return Map::new();
        }
        serde_json::from_slice(value.raw()).unwrap_or_else(|_| {
            self.refuse(at, format!("`parameters` must be an object, not {}.", value.kind().name()));
            Map::new()
        })
    }

    fn is_short(&mut self, note: &str, at: &Pointer<'_>) -> bool {
        let (length, most) = (note.chars().count(), self.limits.note_chars);
        if length > most {
            let detail = format!("`note` has {length} characters; at most {most} are taken.");
            self.refuse(&at.key("note"), detail);
        }
        length <= most
    }
}
