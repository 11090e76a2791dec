//! The document of a callback endpoint.
//!
//! It does not judge the address; the guarded client does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::is_false;
use crate::ids::EndpointId;

/// `endpoint: platform`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    #[serde(rename = "endpoint")]
    pub key: EndpointId,
    pub url: String,
    /// Sent with every callback. A value may be a reference such as `${CALLBACK_TOKEN}`; one that is written out is kept
    /// and given back sealed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Events that are sent here: every decision and every answer to an appeal, and actions that name no endpoint. All by
    /// default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Values that answers to appeals carry in their `custom`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub custom: Map<String, Value>,
    /// True if callbacks about items of child safety are sent here. Only callers with the scope `child_safety` may change
    /// such an endpoint.
    #[serde(default, skip_serializing_if = "is_false")]
    pub child_safety: bool,
}

/// A kind of callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    #[serde(rename = "action.automatic")]
    AutomaticAction,
    #[serde(rename = "decision.moderator")]
    ModeratorDecision,
    #[serde(rename = "user.threshold")]
    UserThreshold,
    #[serde(rename = "appeal.decision")]
    AppealDecision,
}

impl Event {
    pub const ALL: [Self; 4] =
        [Self::AutomaticAction, Self::ModeratorDecision, Self::UserThreshold, Self::AppealDecision];

    pub fn name(self) -> &'static str {
        match self {
            Self::AutomaticAction => "action.automatic",
            Self::ModeratorDecision => "decision.moderator",
            Self::UserThreshold => "user.threshold",
            Self::AppealDecision => "appeal.decision",
        }
    }
}

impl Endpoint {
    pub fn takes(&self, event: Event) -> bool {
        self.events.is_empty() || self.events.contains(&event)
    }
}

// Header values are secrets, and an address may carry one in its query.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("key", &self.key)
            .field("headers", &self.headers.keys())
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}
