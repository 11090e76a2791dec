//! Document of a callback endpoint. Its address is checked in `tidegate-egress`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::is_false;
use crate::ids::EndpointId;

/// Endpoint document, such as `endpoint: platform`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    #[serde(rename = "endpoint")]
    pub key: EndpointId,
    pub url: String,
    /// Headers of every callback. A value can be a reference such as `${CALLBACK_TOKEN}`; a literal value is stored and
    /// returned encrypted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Events that are sent to the endpoint; all by default. An action that names an endpoint is sent to that one only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Content of `custom` in callbacks that answer appeals.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub custom: Map<String, Value>,
    /// True if callbacks about child-safety items are sent to the endpoint. Only callers with the scope `child_safety`
    /// may change such an endpoint.
    #[serde(default, skip_serializing_if = "is_false")]
    pub child_safety: bool,
}

document_enum! {
    /// Kind of a callback.
    pub enum Event {
        AutomaticAction = "action.automatic",
        ModeratorDecision = "decision.moderator",
        UserThreshold = "user.threshold",
        AppealDecision = "appeal.decision",
    }
}

impl Endpoint {
    pub fn accepts_event(&self, event: Event) -> bool {
        self.events.is_empty() || self.events.contains(&event)
    }
}

// Header values are secrets, and an address can contain one in its query, so both are left out.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("key", &self.key)
            .field("headers", &self.headers.keys())
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}
