//! Content of a snapshot: documents, creation order of policies, versions of item types, and removed queues.
//! `snapshots` stores its text.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_schemas::{
    documents::{Document, DocumentFault, DocumentSet, ItemType, QueueClass, parse},
    ids::{ConfigVersion, QueueId, TypeId},
};

/// Version of the text format below. A newer version is refused with an error that names it.
const FORMAT: u32 = 1;

#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) set: DocumentSet,
    /// Policy keys in order of creation. A removed policy keeps its place, in case it is
    /// created again.
    pub(crate) policy_order: Vec<String>,
    /// Number of changes of each item type. A removed type keeps its number and continues from it if it is
    /// created again.
    pub(crate) type_versions: BTreeMap<TypeId, u64>,
    /// Superseded versions of item types, the oldest first. Items that name an earlier version are checked
    /// against them.
    pub(crate) earlier_types: BTreeMap<TypeId, Vec<EarlierType>>,
    /// Removed queues, with the class of their jobs. Jobs may still wait in them, and the store cannot
    /// list its queues.
    pub(crate) removed_queues: BTreeMap<QueueId, QueueClass>,
}

/// Item type before a change of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EarlierType {
    /// Number of the last version with these fields.
    pub(crate) number: u64,
    pub(crate) document: ItemType,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotText<'a> {
    format: u32,
    policy_order: &'a [String],
    type_versions: &'a BTreeMap<TypeId, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    earlier_types: &'a BTreeMap<TypeId, Vec<EarlierType>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    removed_queues: &'a BTreeMap<QueueId, QueueClass>,
    documents: &'a [Document],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ParsedSnapshot<'a> {
    format: u32,
    policy_order: Vec<String>,
    type_versions: BTreeMap<TypeId, u64>,
    #[serde(default)]
    earlier_types: BTreeMap<TypeId, Vec<EarlierType>>,
    #[serde(default)]
    removed_queues: BTreeMap<QueueId, QueueClass>,
    #[serde(borrow)]
    documents: &'a RawValue,
}

impl Content {
    /// Encodes the canonical text: equal contents have equal texts.
    pub(crate) fn encode(&self) -> String {
        let snapshot_text = SnapshotText {
            format: FORMAT,
            policy_order: &self.policy_order,
            type_versions: &self.type_versions,
            earlier_types: &self.earlier_types,
            removed_queues: &self.removed_queues,
            documents: &self.documents(),
        };
        serde_json::to_string(&snapshot_text).expect("documents have string keys and finite numbers only")
    }

    pub(crate) fn decode(text: &str, version: ConfigVersion) -> Result<Self, String> {
        let parsed: ParsedSnapshot<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if parsed.format > FORMAT {
            return Err(format!("it is of format {}, this version knows up to {FORMAT}", parsed.format));
        }
        let mut documents =
            parse(&[("snapshot.json", parsed.documents.get())]).map_err(|all| join_faults(&all))?;
        for (origin, _) in &mut documents {
            origin.file = format!("configuration version {}", version.0);
            // A line of the snapshot's JSON would not help the reader of a fault.
            origin.line = 0;
        }
        let set = DocumentSet::collect(documents).map_err(|all| join_faults(&all))?;
        let ParsedSnapshot { policy_order, type_versions, earlier_types, removed_queues, .. } = parsed;
        Ok(Self { set, policy_order, type_versions, earlier_types, removed_queues })
    }

    pub(crate) fn documents(&self) -> Vec<Document> {
        self.set.documents().into_iter().map(|(_, document)| document).collect()
    }

    /// Returns this content with other documents, and carries creation order and counts over. `created` are
    /// the policy keys in the order of the new documents; `max_versions` bounds the superseded versions of
    /// each item type.
    pub(crate) fn with_successor(&self, set: DocumentSet, created: &[String], max_versions: usize) -> Self {
        let mut policy_order = self.policy_order.clone();
        let listed_keys: BTreeSet<&String> = self.policy_order.iter().collect();
        policy_order.extend(created.iter().filter(|key| !listed_keys.contains(key)).cloned());
        let mut type_versions = self.type_versions.clone();
        for (key, (_, item_type)) in &set.item_types {
            let previous_type = self.set.item_types.get(key).map(|(_, document)| document);
            if previous_type != Some(item_type) {
                *type_versions.entry(key.clone()).or_default() += 1;
            }
        }
        let earlier_types = self.earlier_types_after(&set, max_versions);
        let removed_queues = self.removed_queues_after(&set);
        Self { set, policy_order, type_versions, earlier_types, removed_queues }
    }

    /// Returns the queues without a document once `set` is current.
    fn removed_queues_after(&self, set: &DocumentSet) -> BTreeMap<QueueId, QueueClass> {
        let previous_queues = self.set.queues.iter().map(|(key, (_, queue))| (key.clone(), queue.class()));
        let mut removed_queues: BTreeMap<_, _> =
            self.removed_queues.clone().into_iter().chain(previous_queues).collect();
        removed_queues.retain(|key, _| !set.queues.contains_key(key));
        removed_queues
    }

    /// Returns the superseded item types once `set` is current. A removed type keeps its versions, as it may
    /// be created again.
    fn earlier_types_after(
        &self,
        set: &DocumentSet,
        max_versions: usize,
    ) -> BTreeMap<TypeId, Vec<EarlierType>> {
        let mut earlier_types = self.earlier_types.clone();
        for (key, (_, old_type)) in &self.set.item_types {
            let new_type = set.item_types.get(key).map(|(_, document)| document);
            if new_type.is_some_and(|new_type| has_same_validation(old_type, new_type)) {
                continue;
            }
            let number = self.type_versions.get(key).copied().unwrap_or(1);
            let versions = earlier_types.entry(key.clone()).or_default();
            versions.push(EarlierType { number, document: old_type.clone() });
            versions.drain(..versions.len().saturating_sub(max_versions));
        }
        earlier_types.retain(|_, forms| !forms.is_empty());
        earlier_types
    }
}

/// True if both versions validate items alike. The display name does not matter.
fn has_same_validation(old_type: &ItemType, new_type: &ItemType) -> bool {
    let properties = |it: &ItemType| (it.kind, it.strict, it.version.clone());
    properties(old_type) == properties(new_type) && old_type.fields == new_type.fields
}

/// Joins faults for a log line, up to a number: a broken snapshot may have thousands.
pub(crate) fn join_faults(faults: &[DocumentFault]) -> String {
    const MAX_LISTED_FAULTS: usize = 5;
    let mut lines: Vec<String> = faults.iter().take(MAX_LISTED_FAULTS).map(ToString::to_string).collect();
    if faults.len() > MAX_LISTED_FAULTS {
        lines.push(format!("and {} more", faults.len() - MAX_LISTED_FAULTS));
    }
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn set(yaml: &str) -> DocumentSet {
        DocumentSet::collect(parse(&[("type.yaml", yaml)]).unwrap()).unwrap()
    }

    fn note(fields: &str) -> String {
        format!("item_type: note\nkind: CONTENT\nfields: {fields}\n")
    }

    /// The numbers of the kept forms of `note`, after these configurations in turn and a way through the store.
    fn numbers(configurations: &[String], kept: usize) -> Vec<u64> {
        let mut content = Content::default();
        for configuration in configurations {
            content = content.with_successor(set(configuration), &[], kept);
            content = Content::decode(&content.encode(), ConfigVersion(1)).unwrap();
        }
        content.earlier_types.get("note").into_iter().flatten().map(|earlier| earlier.number).collect()
    }

    #[test]
    fn superseded_item_types_are_kept_within_the_limit() {
        let forms: Vec<_> = ["STRING", "NUMBER", "BOOLEAN", "URL"]
            .map(|it| note(&format!("[{{name: a, type: {it}}}]")))
            .into();
        assert_eq!(numbers(&forms, 100), [1, 2, 3]);
        assert_eq!(numbers(&forms, 2), [2, 3]);
        assert_eq!(numbers(&forms, 0), [0; 0]);
        let renamed = note("[]").replace("kind", "name: Note\nkind");
        assert_eq!(numbers(&[note("[]"), renamed.clone()], 100), [0; 0], "a name judges nothing");
        assert_eq!(numbers(&[note("[]"), renamed, forms[0].clone()], 100), [2]);
        let without = "item_type: other\nkind: CONTENT\n".to_owned();
        assert_eq!(numbers(&[forms[0].clone(), without, forms[1].clone()], 100), [1], "it may come back");
    }
}
