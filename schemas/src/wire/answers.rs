//! Response bodies for submitted items, reports and item look-ups.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    ids::{ActionId, EventId, ItemId, ReportId, RuleId, SubmissionId, TypeId},
    records::Variant,
};

/// Response 202: the items are stored in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submissions {
    pub submissions: Vec<Submission>,
}

/// Accepted item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Submission {
    pub id: ItemId,
    pub type_id: TypeId,
    pub submission_id: SubmissionId,
}

/// Response 201: the report is stored in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportCreated {
    pub report_id: ReportId,
}

/// Item with its processing state, as returned by the API.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    pub id: ItemId,
    pub type_id: TypeId,
    pub submission_id: SubmissionId,
    pub state: ItemState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    pub type_schema_variant: TypeSchemaVariant,
    /// Bytes as sent by the client.
    pub data: Box<RawValue>,
    pub matched_rules: Vec<MatchedRule>,
    pub actions: Vec<TakenAction>,
    pub media: Vec<Media>,
    pub deliveries: Vec<Delivery>,
}

/// Progress of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// Stored; the results of its media are pending.
    Accepted,
    /// All rules are evaluated.
    Evaluated,
}

/// Completeness of an item, written as `original` or `partial` in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TypeSchemaVariant {
    Original,
    Partial,
}

impl From<Variant> for TypeSchemaVariant {
    fn from(variant: Variant) -> Self {
        match variant {
            Variant::Original => Self::Original,
            Variant::Partial => Self::Partial,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedRule {
    pub id: RuleId,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenAction {
    pub id: ActionId,
}

/// Media address with the result of its fetch and its matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Media {
    pub url: String,
    /// `pending`, `ok`, `low_quality`, `too_small`, `undecodable`, `too_large`, `blocked_address` or `fetch_failed`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdq: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    #[serde(default)]
    pub matches: Vec<MediaMatch>,
}

/// Match of media with a bank entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MediaMatch {
    pub bank: String,
    pub entry: String,
    pub kind: String,
    pub distance: u32,
    #[serde(default)]
    pub labels: Vec<String>,
}

/// Delivery of a callback about the item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    pub event_id: EventId,
    pub state: String,
}
