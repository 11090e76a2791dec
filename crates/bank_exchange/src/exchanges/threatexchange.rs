//! Reads ThreatExchange pages of indicators or updates.

use serde_json::{Map, Value};
use tidegate_schemas::banks::BankKind;

use super::{add, flag, name, required_text, text, withdraw};
use crate::entry::{Change, hash_kind};

/// Returns the change that a record requests.
pub(crate) fn change(record: &Map<String, Value>, kind: BankKind) -> Result<Change, String> {
    // Descriptors hold the indicator as an object, updates as a text.
    let nested = record.get("indicator").and_then(Value::as_object);
    let (value, type_name) = match nested {
        Some(inner) => (required_text(inner, "indicator")?, text(inner, "type")),
        None => (required_text(record, "indicator")?, None),
    };
    let type_name = type_name.map_or_else(|| required_text(record, "type"), Ok)?;
    if hash_kind(type_name) != kind.hash_kind() {
        return Ok(Change::OtherKind);
    }
    let reference = name(record, "id")?;
    if flag(record, "should_delete")? {
        return withdraw(value, "threatexchange", reference.as_deref(), kind);
    }
    let mut labels = tags(record);
    if let Some(descriptors) =
        record.get("descriptors").and_then(|descriptors| descriptors.get("data")).and_then(Value::as_array)
    {
        labels.extend(descriptors.iter().filter_map(Value::as_object).flat_map(tags));
    }
    // Several descriptors may have the same tag.
    labels.sort_unstable();
    labels.dedup();
    Ok(add(value, "threatexchange", reference, &labels))
}

/// Returns the tags of a record: a list of texts or of objects with a `text`, with or without `data` around it.
fn tags(record: &Map<String, Value>) -> Vec<String> {
    let tags = record.get("tags").map(|tags| tags.get("data").unwrap_or(tags));
    let list = tags.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|tag| tag.as_str().or_else(|| tag.get("text")?.as_str())).map(str::to_owned).collect()
}
