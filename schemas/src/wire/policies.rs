//! Response that lists an organisation's policies.

use serde::{Deserialize, Serialize};

use crate::ids::PolicyId;

/// `{"policies": [...]}`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    pub policies: Vec<Policy>,
}

/// Policy in the response. The parent is null at the top of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    pub id: PolicyId,
    pub name: String,
    pub parent_id: Option<PolicyId>,
}
