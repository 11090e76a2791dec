//! Decision on a job in the form of its row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_schemas::{
    ids::{ActionId, ConfigVersion, DecisionId, ItemKey, Millis, PolicyId},
    records::Verdict,
};

/// Parameter values by action and parameter name.
pub type Parameters = BTreeMap<ActionId, Map<String, Value>>;

/// Decision in the job's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredDecision {
    pub decision_id: DecisionId,
    pub config_version: ConfigVersion,
    pub verdict: Verdict,
    pub actions: Vec<ActionId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
    /// Actions on related items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<StoredRelated>,
    pub reason: Option<String>,
    pub decided_by: String,
    pub decided_at: Millis,
    pub release_at: Millis,
}

/// Actions on a related item, in the form of the job's row and of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRelated {
    pub item: ItemKey,
    /// Receives the strikes: the item's author, or the item itself if it is a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ItemKey>,
    pub actions: Vec<ActionId>,
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
}
