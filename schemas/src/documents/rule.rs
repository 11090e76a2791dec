//! Document of a rule. Its condition is compiled in `tidegate-rules`.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeStruct};
use serde_json::Value;

use super::rule_life::{OnError, Percent, Rollout, RuleLimits};
use crate::{
    ids::{ActionId, Millis, RuleId, TypeId},
    item_types::datetime,
};

/// Rule document, such as `rule: demo-scam`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(rename = "rule")]
    pub key: RuleId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Status::is_draft")]
    pub status: Status,
    /// Origins of evaluated submissions; submitted items by default.
    #[serde(default = "items", skip_serializing_if = "is_items")]
    pub on: Vec<SubmissionOrigin>,
    /// Item types of the rule; all by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub item_types: Vec<TypeId>,
    /// Condition.
    pub when: Value,
    /// Keys of the policies that a match violates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<RuleAction>,
    /// Time from which the rule counts as archived.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "instant")]
    pub expires_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    #[serde(default, skip_serializing_if = "RuleLimits::is_none")]
    pub limits: RuleLimits,
    /// Share of the items with effects of the rule that is also sent to review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_sample: Option<Percent>,
    #[serde(default, skip_serializing_if = "OnError::is_not_matched")]
    pub on_error: OnError,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<Test>,
}

/// Status of a rule, which decides whether its matches have effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In development: evaluated, without effects.
    #[default]
    Draft,
    /// Evaluated and counted, without effects.
    Background,
    Live,
    /// Not evaluated.
    Archived,
}

impl Status {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    fn is_draft(&self) -> bool {
        *self == Self::Draft
    }
}

/// Origin of an evaluated submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmissionOrigin {
    /// Submitted by the platform.
    Item,
    /// Reported by a user.
    Report,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn items() -> Vec<SubmissionOrigin> {
    vec![SubmissionOrigin::Item]
}

fn is_items(on: &[SubmissionOrigin]) -> bool {
    on == [SubmissionOrigin::Item]
}

/// Action of a match: `limit_reach`, or `{id: limit_reach, params: {hours: 24}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleAction {
    pub id: ActionId,
    pub params: BTreeMap<String, Value>,
}

impl Serialize for RuleAction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The short form, as in documents written by hand.
        if self.params.is_empty() {
            return self.id.serialize(serializer);
        }
        let mut fields = serializer.serialize_struct("RuleAction", 2)?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("params", &self.params)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for RuleAction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RuleActionFields {
            id: ActionId,
            params: Option<BTreeMap<String, Value>>,
        }

        struct RuleActionVisitor;

        impl<'de> de::Visitor<'de> for RuleActionVisitor {
            type Value = RuleAction;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the key of an action, or `id` and `params`")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<RuleAction, E> {
                Ok(RuleAction { id: id.into(), params: BTreeMap::new() })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RuleAction, A::Error> {
                let fields = RuleActionFields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RuleAction { id: fields.id, params: fields.params.unwrap_or_default() })
            }
        }

        // A visitor instead of an untagged enum, because the latter loses the path and the message of an error.
        deserializer.deserialize_any(RuleActionVisitor)
    }
}

/// Test of a rule: an example item with the expected result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Item type of the example; by default the only item type of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_type: Option<TypeId>,
    /// `data` of the item.
    pub item: Value,
    /// Strike points of its user.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub strikes: i64,
    /// Counts of windows, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, Value>,
    /// Scores of models for the item.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, Value>,
    /// Texts of models for the item.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, Value>,
    /// Media of the item, with their hashes and states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Value>,
    pub expect: Expectation,
}

/// Expected result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    Match,
    NoMatch,
}

impl Rule {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }
}

/// Serde format of an instant: ISO 8601 text.
mod instant {
    use super::{Deserialize, Deserializer, Millis, Serializer, datetime, de};

    #[allow(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(at: &Option<Millis>, serializer: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => serializer.serialize_str(&at.iso()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Millis>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        match datetime::parse(&text) {
            Some(at) => Ok(Some(at)),
            None => Err(de::Error::custom(
                "expected an ISO 8601 date with a time, such as `2026-12-31T00:00:00Z`",
            )),
        }
    }
}
