//! Content of a snapshot: the documents, the order in which policies were created, the versions of item types, and the
//! queues that were removed.
//!
//! It knows no rows; `snapshots` does.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_schemas::{
    documents::{Document, DocumentFault, ItemType, QueueClass, Set, parse},
    ids::{ConfigVersion, QueueId, TypeId},
};

/// Version of the text format below. A newer one is refused by name.
const FORMAT: u32 = 1;

#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) set: Set,
    /// Keys in the order of their creation. A removed one keeps its place: its id is the same when it comes back.
    pub(crate) policy_order: Vec<String>,
    /// Counts the changes of each item type. A removed one goes on where it stopped.
    pub(crate) type_versions: BTreeMap<TypeId, u64>,
    /// Superseded item types, the oldest first: items of an earlier version are checked against them.
    pub(crate) earlier_types: BTreeMap<TypeId, Vec<EarlierType>>,
    /// Queues without a document that had one, with the class of their jobs. Jobs may still wait in them, and the store
    /// does not list its queues.
    pub(crate) removed_queues: BTreeMap<QueueId, QueueClass>,
}

/// An item type as it was until a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EarlierType {
    /// Number of its last version with these fields.
    pub(crate) number: u64,
    pub(crate) document: ItemType,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
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
struct Read<'a> {
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
    /// The canonical text: equal contents are equal text.
    pub(crate) fn encode(&self) -> String {
        let written = Written {
            format: FORMAT,
            policy_order: &self.policy_order,
            type_versions: &self.type_versions,
            earlier_types: &self.earlier_types,
            removed_queues: &self.removed_queues,
            documents: &self.documents(),
        };
        serde_json::to_string(&written).expect("documents have string keys and finite numbers only")
    }

    pub(crate) fn decode(text: &str, version: ConfigVersion) -> Result<Self, String> {
        let read: Read<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if read.format > FORMAT {
            return Err(format!("it is of format {}, this version knows up to {FORMAT}", read.format));
        }
        let mut documents = parse(&[("snapshot.json", read.documents.get())]).map_err(|all| joined(&all))?;
        for (origin, _) in &mut documents {
            origin.file = format!("configuration version {}", version.0);
            origin.line = 0;
        }
        let set = Set::collect(documents).map_err(|all| joined(&all))?;
        let Read { policy_order, type_versions, earlier_types, removed_queues, .. } = read;
        Ok(Self { set, policy_order, type_versions, earlier_types, removed_queues })
    }

    pub(crate) fn documents(&self) -> Vec<Document> {
        self.set.documents().into_iter().map(|(_, document)| document).collect()
    }

    /// This content with other documents: what was created and counted so far goes on. `created` are the keys of the
    /// policies in the order of the new documents; `kept` is the number of superseded forms of an item type that stay.
    pub(crate) fn succeeded_by(&self, set: Set, created: &[String], kept: usize) -> Self {
        let mut policy_order = self.policy_order.clone();
        let known: BTreeSet<&String> = self.policy_order.iter().collect();
        policy_order.extend(created.iter().filter(|key| !known.contains(key)).cloned());
        let mut type_versions = self.type_versions.clone();
        for (key, (_, item_type)) in &set.item_types {
            let before = self.set.item_types.get(key).map(|(_, before)| before);
            if before != Some(item_type) {
                *type_versions.entry(key.clone()).or_default() += 1;
            }
        }
        let earlier_types = self.earlier_types(&set, kept);
        let removed_queues = self.removed_queues(&set);
        Self { set, policy_order, type_versions, earlier_types, removed_queues }
    }

    /// The queues without a document once `set` is current.
    fn removed_queues(&self, set: &Set) -> BTreeMap<QueueId, QueueClass> {
        let before = self.set.queues.iter().map(|(key, (_, queue))| (key.clone(), queue.class()));
        let mut removed: BTreeMap<_, _> = self.removed_queues.clone().into_iter().chain(before).collect();
        removed.retain(|key, _| !set.queues.contains_key(key));
        removed
    }

    /// The superseded item types once `set` is current. A removed type keeps its forms: it may come back.
    fn earlier_types(&self, set: &Set, kept: usize) -> BTreeMap<TypeId, Vec<EarlierType>> {
        let mut earlier = self.earlier_types.clone();
        for (key, (_, before)) in &self.set.item_types {
            let after = set.item_types.get(key).map(|(_, after)| after);
            if after.is_some_and(|after| judges_alike(before, after)) {
                continue;
            }
            let number = self.type_versions.get(key).copied().unwrap_or(1);
            let forms = earlier.entry(key.clone()).or_default();
            forms.push(EarlierType { number, document: before.clone() });
            forms.drain(..forms.len().saturating_sub(kept));
        }
        earlier.retain(|_, forms| !forms.is_empty());
        earlier
    }
}

/// True if items that name either version are judged in the same way, whatever its name for people.
fn judges_alike(before: &ItemType, after: &ItemType) -> bool {
    let judged = |it: &ItemType| (it.kind, it.strict, it.version.clone());
    judged(before) == judged(after) && before.fields == after.fields
}

/// Joins errors for a log line: a broken snapshot may have thousands.
pub(crate) fn joined(faults: &[DocumentFault]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<String> = faults.iter().take(SHOWN).map(ToString::to_string).collect();
    if faults.len() > SHOWN {
        text.push(format!("and {} more", faults.len() - SHOWN));
    }
    text.join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn set(yaml: &str) -> Set {
        Set::collect(parse(&[("type.yaml", yaml)]).unwrap()).unwrap()
    }

    fn note(fields: &str) -> String {
        format!("item_type: note\nkind: CONTENT\nfields: {fields}\n")
    }

    /// The numbers of the kept forms of `note`, after these configurations in turn and a way through the store.
    fn numbers(configurations: &[String], kept: usize) -> Vec<u64> {
        let mut content = Content::default();
        for configuration in configurations {
            content = content.succeeded_by(set(configuration), &[], kept);
            content = Content::decode(&content.encode(), ConfigVersion(1)).unwrap();
        }
        content.earlier_types.get("note").into_iter().flatten().map(|earlier| earlier.number).collect()
    }

    #[test]
    fn superseded_forms_are_kept_within_the_limit() {
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
