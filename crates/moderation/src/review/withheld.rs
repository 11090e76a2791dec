//! Withholds content of items in the causes of a job that the reader may not see.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tidegate_schemas::ids::ItemKey;

use super::job_view::{CauseResponse, ItemMedia, SentItem};
use crate::Error;

/// Entry of an item list without its content.
#[derive(Serialize, Deserialize)]
struct ListEntry {
    #[serde(flatten)]
    key: ItemKey,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reported: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    withheld: bool,
}

/// Lists the items with content in the causes.
pub fn collect_items(causes: &[CauseResponse]) -> Result<HashSet<ItemKey>, Error> {
    let mut items = HashSet::new();
    for cause in causes {
        items.extend(cause.media.iter().map(key_of));
        if let Some(report) = &cause.report {
            items.insert(report.reported_item.key.clone());
            items.extend(item_keys(&report.reported_item_thread)?);
            items.extend(item_keys(&report.additional_items)?);
        }
        if let Some(appeal) = &cause.appeal {
            items.insert(appeal.actioned_item.key.clone());
            items.extend(item_keys(&appeal.additional_items)?);
        }
    }
    Ok(items)
}

/// Removes the content of these items from the causes, together with the words of their reporters or appellants, and
/// marks the items as `withheld`. `subject` is the job's item: its matched rules reveal its content, so they are
/// removed too.
pub fn withhold(
    causes: &mut [CauseResponse],
    subject: &ItemKey,
    items: &HashSet<ItemKey>,
) -> Result<(), Error> {
    for cause in causes {
        if items.contains(subject) {
            cause.rules = to_raw_value(&[(); 0]).map_err(Error::corrupt("rules of a cause"))?;
        }
        cause.media.retain(|media| !items.contains(&key_of(media)));
        if let Some(report) = &mut cause.report {
            if withhold_sent(&mut report.reported_item, items) {
                report.reason = None;
            }
            withhold_in_list(&mut report.reported_item_thread, items)?;
            withhold_in_list(&mut report.additional_items, items)?;
        }
        if let Some(appeal) = &mut cause.appeal {
            if withhold_sent(&mut appeal.actioned_item, items) {
                appeal.reason = None;
            }
            withhold_in_list(&mut appeal.additional_items, items)?;
        }
    }
    Ok(())
}

fn key_of(media: &ItemMedia) -> ItemKey {
    ItemKey { type_id: media.type_id.clone(), id: media.id.clone() }
}

fn item_keys(list: &RawValue) -> Result<Vec<ItemKey>, Error> {
    let entries: Vec<ItemKey> = serde_json::from_str(list.get()).map_err(Error::corrupt("context list"))?;
    // An entry with an unreadable id has an empty one.
    Ok(entries.into_iter().filter(|key| !key.id.as_str().is_empty()).collect())
}

/// Returns true if the item was withheld.
fn withhold_sent(item: &mut SentItem, items: &HashSet<ItemKey>) -> bool {
    let is_withheld = items.contains(&item.key);
    if is_withheld {
        item.data = RawValue::NULL.to_owned();
        item.withheld = true;
    }
    is_withheld
}

fn withhold_in_list(list: &mut Box<RawValue>, items: &HashSet<ItemKey>) -> Result<(), Error> {
    let mut entries: Vec<Box<RawValue>> =
        serde_json::from_str(list.get()).map_err(Error::corrupt("context list"))?;
    for entry in &mut entries {
        let list_entry: ListEntry =
            serde_json::from_str(entry.get()).map_err(Error::corrupt("context list"))?;
        if items.contains(&list_entry.key) {
            let withheld_entry = ListEntry { withheld: true, ..list_entry };
            *entry = to_raw_value(&withheld_entry).map_err(Error::corrupt("context list"))?;
        }
    }
    *list = to_raw_value(&entries).map_err(Error::corrupt("context list"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn withheld_list_entry_keeps_its_key_only() {
        let text = r#"[{"id":"a","typeId":"post","typeSchemaVariant":"original","data":{"text":"x"},"reported":true},{"id":"b","typeId":"post","data":{"text":"y"}}]"#;
        let mut list = RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(item_keys(&list).unwrap(), [ItemKey::new("post", "a"), ItemKey::new("post", "b")]);
        withhold_in_list(&mut list, &HashSet::from([ItemKey::new("post", "a")])).unwrap();
        assert_eq!(
            list.get(),
            r#"[{"typeId":"post","id":"a","reported":true,"withheld":true},{"id":"b","typeId":"post","data":{"text":"y"}}]"#
        );
    }
}
