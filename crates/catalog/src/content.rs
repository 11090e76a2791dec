//! Content of a snapshot: the documents, the order in which policies were created, and the versions of item types.
//!
//! It knows no rows; `snapshots` does.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_schemas::{
    documents::{Document, DocumentFault, Set, parse},
    ids::{ConfigVersion, OrgId, TypeId},
};
use tidegate_store::{Store, tables::catalog::configs::ConfigHead};

use crate::{Error, snapshots};

/// Version of the text format below. A newer one is refused by name.
const FORMAT: u32 = 1;

#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) set: Set,
    /// Keys in the order of their creation. A removed one keeps its place: its id is the same when it comes back.
    pub(crate) policy_order: Vec<String>,
    /// Counts the changes of each item type. A removed one goes on where it stopped.
    pub(crate) type_versions: BTreeMap<TypeId, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    format: u32,
    policy_order: &'a [String],
    type_versions: &'a BTreeMap<TypeId, u64>,
    documents: &'a [Document],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read<'a> {
    format: u32,
    policy_order: Vec<String>,
    type_versions: BTreeMap<TypeId, u64>,
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
        Ok(Self { set, policy_order: read.policy_order, type_versions: read.type_versions })
    }

    pub(crate) fn documents(&self) -> Vec<Document> {
        self.set.documents().into_iter().map(|(_, document)| document).collect()
    }

    /// This content with other documents: what was created and counted so far goes on. `created` are the keys of the
    /// policies in the order of the new documents.
    pub(crate) fn succeeded_by(&self, set: Set, created: &[String]) -> Self {
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
        Self { set, policy_order, type_versions }
    }
}

/// Reads the current content from the store.
pub(crate) async fn current(store: &Store, org: &OrgId) -> Result<(ConfigHead, Content), Error> {
    let head = snapshots::head(store, org).await?.ok_or_else(|| Error::NoSuchOrg(org.clone()))?;
    let text = snapshots::read(store, &head).await?;
    let version = head.config_version;
    let content = Content::decode(&text, version);
    let content = content.map_err(|reason| Error::Unreadable { org: org.clone(), version, reason })?;
    Ok((head, content))
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
