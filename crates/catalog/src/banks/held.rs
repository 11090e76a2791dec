//! Entries of a list bank as a process holds them: what rules need of each, shared with the rules' plan.
//!
//! A bank may have millions of entries, so the rest of an entry, such as its source and author, stays in the store.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_rules::BankEntry;
use tidegate_schemas::ids::Millis;
use uuid::Uuid;

use super::{Entry, operation::Operation};

/// The entries of a bank at a revision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) revision: i64,
    pub(crate) enabled: bool,
    /// Enabled entries that never expire, by id.
    lasting: Arc<[BankEntry]>,
    /// Entries that are switched off or expire.
    others: BTreeMap<Uuid, Other>,
}

#[derive(Clone, Debug, PartialEq)]
struct Other {
    entry: BankEntry,
    enabled: bool,
    expires_at: Option<Millis>,
}

/// Rows of a bank on their way to what is held of it, in the order of their ids.
#[derive(Default)]
pub(super) struct HeldRows {
    lasting: Vec<BankEntry>,
    others: BTreeMap<Uuid, Other>,
}

impl HeldRows {
    pub(super) fn add(&mut self, entry: Entry) {
        match reduced(entry) {
            Reduced::Lasting(entry) => self.lasting.push(entry),
            Reduced::Other(other) => drop(self.others.insert(other.entry.id, other)),
        }
    }

    pub(super) fn held(self, revision: i64, enabled: bool) -> Held {
        Held { revision, enabled, lasting: self.lasting.into(), others: self.others }
    }
}

enum Reduced {
    Lasting(BankEntry),
    Other(Other),
}

fn reduced(entry: Entry) -> Reduced {
    let Entry { id, value, labels, enabled, expires_at, .. } = entry;
    // The empty list is one for all entries.
    let labels = if labels.is_empty() { Arc::default() } else { labels.into() };
    let entry = BankEntry { id, value: value.into(), labels };
    if enabled && expires_at.is_none() {
        Reduced::Lasting(entry)
    } else {
        Reduced::Other(Other { entry, enabled, expires_at })
    }
}

impl Held {
    /// Carries out operations in their order, with one copy of the list for all of them.
    pub(crate) fn apply(&mut self, operations: Vec<Operation>) {
        let mut changed: BTreeMap<Uuid, Option<Entry>> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Put(entry) | Operation::PutHash(entry) => {
                    changed.insert(entry.id, Some(entry));
                }
                Operation::Remove(id) | Operation::RemoveHash { id, .. } => {
                    changed.insert(id, None);
                }
            }
        }
        let mut added = Vec::new();
        for (id, entry) in &mut changed {
            self.others.remove(id);
            match entry.take().map(reduced) {
                Some(Reduced::Lasting(entry)) => added.push(entry),
                Some(Reduced::Other(other)) => drop(self.others.insert(*id, other)),
                None => {}
            }
        }
        let kept = self.lasting.iter().filter(|entry| !changed.contains_key(&entry.id)).cloned();
        self.lasting = merged(kept, added);
    }

    /// Returns the entries that count now, by id, and the time when the first of them expires.
    pub(crate) fn counting(&self, now: Millis) -> (Arc<[BankEntry]>, Option<Millis>) {
        let counts = |other: &&Other| other.enabled && other.expires_at.is_none_or(|end| end > now);
        let others: Vec<_> = self.others.values().filter(counts).collect();
        let expires_at = others.iter().filter_map(|other| other.expires_at).min();
        if others.is_empty() {
            return (Arc::clone(&self.lasting), expires_at);
        }
        let others = others.into_iter().map(|other| other.entry.clone()).collect();
        (merged(self.lasting.iter().cloned(), others), expires_at)
    }
}

/// Merges entries in the order of their ids with others that are in it too.
fn merged(entries: impl Iterator<Item = BankEntry>, others: Vec<BankEntry>) -> Arc<[BankEntry]> {
    if others.is_empty() {
        return entries.collect();
    }
    let mut all: Vec<_> = entries.chain(others).collect();
    // Two ascending runs, which this sort merges in one pass.
    all.sort_by_key(|entry| entry.id);
    all.into()
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

    fn values(held: &Held, now: i64) -> Vec<String> {
        held.counting(Millis(now)).0.iter().map(|entry| entry.value.to_string()).collect()
    }

    #[test]
    fn operations_are_carried_out_in_their_order() {
        let mut held = HeldRows::default().held(1, true);
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
        assert_eq!(held.counting(Millis(0)).1, Some(Millis(10)));
        assert_eq!(values(&held, 10), ["one again", "three", "five"]);
        assert_eq!(held.counting(Millis(10)).1, Some(Millis(20)));
        held.apply(vec![Operation::Put(entry(2, "two")), Operation::Remove(Uuid::from_u128(5))]);
        assert_eq!(values(&held, 10), ["one again", "two", "three"]);
        assert_eq!(held.counting(Millis(10)).1, None);
    }

    #[test]
    fn entries_that_all_count_are_not_copied() {
        let mut rows = HeldRows::default();
        rows.add(entry(1, "one"));
        rows.add(Entry { enabled: false, ..entry(2, "two") });
        let held = rows.held(1, true);
        assert!(Arc::ptr_eq(&held.counting(Millis(0)).0, &held.lasting));
    }
}
