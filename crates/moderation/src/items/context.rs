//! Stored forms of the lists in reports and appeals: readable JSON. `data` is kept as sent.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_schemas::{
    ids::{EventId, ItemId, ItemKey, TypeId},
    records::{ContextItem, Mention},
};

use crate::Error;

/// Context item, as stored and as shown.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredItem {
    pub id: ItemId,
    pub type_id: TypeId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub type_version: Option<String>,
    pub type_schema_variant: String,
    pub data: Box<RawValue>,
    /// Reason why the item does not fit its type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
    /// Unreadable members, as received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub as_sent: Option<Box<RawValue>>,
}

/// Id named by the platform, and whether the configuration knew it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredMention {
    pub id: String,
    pub known: bool,
    /// Nearest configured id, for an unknown one.
    #[serde(rename = "didYouMean", skip_serializing_if = "Option::is_none", default)]
    pub suggestion: Option<String>,
    /// Events of an appealed action that were stored before the appeal, but have a later time because the clock was
    /// set back.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ahead: Vec<EventId>,
}

pub(crate) fn items_to_json(items: &[ContextItem]) -> Result<String, Error> {
    // Data is stored byte for byte, so that reviewers see it as the platform sent it.
    let stored_items = items.iter().map(|item| {
        Ok(StoredItem {
            id: item.id.clone(),
            type_id: item.type_id.clone(),
            type_version: item.type_version.clone(),
            type_schema_variant: item.variant.as_str().to_owned(),
            data: raw(&item.data)?,
            fault: item.fault.clone(),
            as_sent: item.as_sent.as_deref().map(raw).transpose()?,
        })
    });
    to_json(&stored_items.collect::<Result<Vec<_>, Error>>()?)
}

pub(crate) fn keys_to_json(keys: &[ItemKey]) -> Result<String, Error> {
    to_json(keys)
}

pub(crate) fn mention_to_json(mention: Option<&Mention>) -> Result<Option<String>, Error> {
    mention.map(|mention| to_json(&stored_mention(mention))).transpose()
}

pub(crate) fn mentions_to_json(mentions: &[Mention]) -> Result<String, Error> {
    to_json(&stored_mentions(mentions))
}

pub(crate) fn stored_mentions(mentions: &[Mention]) -> Vec<StoredMention> {
    mentions.iter().map(stored_mention).collect()
}

/// Wraps JSON bytes that ingest has checked, so that they serialise unchanged.
pub fn raw(data: &[u8]) -> Result<Box<RawValue>, Error> {
    serde_json::from_slice(data)
        .map_err(|error| Error::Content { tag: "malformed_data", detail: error.to_string() })
}

fn stored_mention(mention: &Mention) -> StoredMention {
    StoredMention { id: mention.id.clone(), known: mention.known, suggestion: None, ahead: Vec::new() }
}

pub(crate) fn to_json(value: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    serde_json::to_string(value).map_err(Error::corrupt("list"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::records::Variant;

    use super::*;

    #[test]
    fn unreadable_members_are_shown_as_sent() {
        let item = ContextItem {
            type_id: "post".into(),
            id: "".into(),
            type_version: None,
            variant: Variant::Partial,
            data: "{}".into(),
            fault: Some("`id` must be a string, not a number.".to_owned()),
            as_sent: Some("{\"id\": 77.0}".into()),
        };
        let stored = items_to_json(&[item.clone(), ContextItem { as_sent: None, ..item }]).unwrap();
        assert_eq!(stored.matches(r#""asSent":{"id": 77.0}"#).count(), 1, "{stored}");
        let read: Vec<StoredItem> = serde_json::from_str(&stored).unwrap();
        assert!(read[0].as_sent.is_some() && read[1].as_sent.is_none());
    }
}
