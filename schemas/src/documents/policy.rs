//! The document of a policy.
//!
//! It does not hold the id that platforms see: the service makes that one.

use serde::{Deserialize, Serialize};

/// `policy: scam`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    #[serde(rename = "policy")]
    pub key: String,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key of the policy above this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Text of the policy, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Guidance for moderators who apply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guidelines: Option<String>,
    /// Harm of a violation; that of the parent by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Strikes of a violation, for actions whose strikes are those of the policies; those of the parent by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strikes: Option<u32>,
}

/// Harm of a violation, from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    #[default]
    None,
    Low,
    Medium,
    High,
    Severe,
}

impl Policy {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.key)
    }
}
