//! Entries of a list bank in memory, reduced to the fields that rules need and shared with the rules' plan.
//!
//! A bank may have millions of entries, so other fields such as source and author stay in the store.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_rules::BankEntry;
use tidegate_schemas::ids::Millis;
use uuid::Uuid;

use super::{Entry, operation::Operation};

/// Entries of a bank at one revision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadedBank {
    pub(crate) revision: i64,
    pub(crate) enabled: bool,
    /// Enabled entries that never expire, by id.
    permanent: Arc<[BankEntry]>,
    /// Entries that are switched off or expire.
    conditional: BTreeMap<Uuid, ConditionalEntry>,
}

#[derive(Clone, Debug, PartialEq)]
struct ConditionalEntry {
    entry: BankEntry,
    enabled: bool,
    expires_at: Option<Millis>,
}

/// Builder of a bank from its rows, added in the order of their ids.
#[derive(Default)]
pub(super) struct LoadedBankBuilder {
    permanent: Vec<BankEntry>,
    conditional: BTreeMap<Uuid, ConditionalEntry>,
}

impl LoadedBankBuilder {
    pub(super) fn add(&mut self, entry: Entry) {
        match classify_entry(entry) {
            LoadedEntry::Permanent(entry) => self.permanent.push(entry),
            LoadedEntry::Conditional(other) => drop(self.conditional.insert(other.entry.id, other)),
        }
    }

    pub(super) fn build(self, revision: i64, enabled: bool) -> LoadedBank {
        LoadedBank { revision, enabled, permanent: self.permanent.into(), conditional: self.conditional }
    }
}

enum LoadedEntry {
    Permanent(BankEntry),
    Conditional(ConditionalEntry),
}

fn classify_entry(entry: Entry) -> LoadedEntry {
    let Entry { id, value, labels, enabled, expires_at, .. } = entry;
    // All entries without labels share one empty list.
    let labels = if labels.is_empty() { Arc::default() } else { labels.into() };
    let entry = BankEntry { id, value: value.into(), labels };
    if enabled && expires_at.is_none() {
        LoadedEntry::Permanent(entry)
    } else {
        LoadedEntry::Conditional(ConditionalEntry { entry, enabled, expires_at })
    }
}

impl LoadedBank {
    /// Applies operations in order. The list is copied once for all of them, because it may be long.
    pub(crate) fn apply(&mut self, operations: Vec<Operation>) {
        let mut latest_states: BTreeMap<Uuid, Option<Entry>> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Put(entry) | Operation::PutHash(entry) => {
                    latest_states.insert(entry.id, Some(entry));
                }
                Operation::Remove(id) | Operation::RemoveHash { id, .. } => {
                    latest_states.insert(id, None);
                }
            }
        }
        let mut added_entries = Vec::new();
        for (id, entry) in &mut latest_states {
            // Also removes an old version of the entry: an update may make a conditional entry permanent.
            self.conditional.remove(id);
            match entry.take().map(classify_entry) {
                Some(LoadedEntry::Permanent(entry)) => added_entries.push(entry),
                Some(LoadedEntry::Conditional(other)) => drop(self.conditional.insert(*id, other)),
                None => {}
            }
        }
        let unchanged_entries =
            self.permanent.iter().filter(|entry| !latest_states.contains_key(&entry.id)).cloned();
        self.permanent = merge_entries(unchanged_entries, added_entries);
    }

    /// Returns the entries that are active now, by id, and the time at which the first of them expires.
    pub(crate) fn active_entries(&self, now: Millis) -> (Arc<[BankEntry]>, Option<Millis>) {
        let is_active =
            |other: &&ConditionalEntry| other.enabled && other.expires_at.is_none_or(|end| end > now);
        let active_conditional: Vec<_> = self.conditional.values().filter(is_active).collect();
        let expires_at = active_conditional.iter().filter_map(|other| other.expires_at).min();
        // The common case of a large bank: the plan shares the list.
        if active_conditional.is_empty() {
            return (Arc::clone(&self.permanent), expires_at);
        }
        let active_conditional = active_conditional.into_iter().map(|other| other.entry.clone()).collect();
        (merge_entries(self.permanent.iter().cloned(), active_conditional), expires_at)
    }
}

/// Merges two lists of entries, both ordered by id.
fn merge_entries(entries: impl Iterator<Item = BankEntry>, others: Vec<BankEntry>) -> Arc<[BankEntry]> {
    if others.is_empty() {
        return entries.collect();
    }
    let mut all_entries: Vec<_> = entries.chain(others).collect();
    // Two ascending runs, which the stable sort merges in one pass.
    all_entries.sort_by_key(|entry| entry.id);
    all_entries.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn entry(id: u128, value: &str) -> Entry {
        serde_json::from_value(serde_json::json!({
            "id": Uuid::from_u128(id), "value": value, "enabled": true, "addedAt": 1, "author": "a"
        }))
        .unwrap()
    }

    fn values(held: &LoadedBank, now: i64) -> Vec<String> {
        held.active_entries(Millis(now)).0.iter().map(|entry| entry.value.to_string()).collect()
    }

    #[test]
    fn operations_are_carried_out_in_their_order() {
        let mut held = LoadedBankBuilder::default().build(1, true);
        held.apply(vec![
            Operation::Put(entry(3, "three")),
            Operation::Put(entry(1, "one")),
            Operation::Put(entry(2, "two")),
            Operation::Remove(Uuid::from_u128(1)),
        ]);
        assert_eq!(values(&held, 0), ["two", "three"]);
        held.apply(vec![
            Operation::Put(entry(1, "one again")),
            Operation::Put(Entry { enabled: false, ..entry(2, "two") }),
            Operation::Put(Entry { expires_at: Some(Millis(10)), ..entry(4, "four") }),
            Operation::Put(Entry { expires_at: Some(Millis(20)), ..entry(5, "five") }),
        ]);
        assert_eq!(values(&held, 0), ["one again", "three", "four", "five"]);
        assert_eq!(held.active_entries(Millis(0)).1, Some(Millis(10)));
        assert_eq!(values(&held, 10), ["one again", "three", "five"]);
        assert_eq!(held.active_entries(Millis(10)).1, Some(Millis(20)));
        held.apply(vec![Operation::Put(entry(2, "two")), Operation::Remove(Uuid::from_u128(5))]);
        assert_eq!(values(&held, 10), ["one again", "two", "three"]);
        assert_eq!(held.active_entries(Millis(10)).1, None);
    }

    #[test]
    fn bank_without_active_conditional_entries_shares_its_list() {
        let mut rows = LoadedBankBuilder::default();
        rows.add(entry(1, "one"));
        rows.add(Entry { enabled: false, ..entry(2, "two") });
        let held = rows.build(1, true);
        assert!(Arc::ptr_eq(&held.active_entries(Millis(0)).0, &held.permanent));
    }
}
