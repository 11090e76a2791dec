//! Leaves out rows about child-safety material.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use tidegate_schemas::ids::{ItemKey, OrgId};
use tidegate_store::{
    RowRange, Store,
    tables::history::child_safety_items::{ChildSafetyItem, SHARDS},
};

use crate::{Error, RestrictionLookup};

/// Partitions that are read at the same time.
const CONCURRENT_READS: usize = 16;

/// Items of an organisation that have or had a child-safety job.
pub(crate) struct RestrictedItems {
    store: Store,
    org: OrgId,
    lookup: RestrictionLookup,
    hasher: RandomState,
    /// Hashes of the candidates: eight bytes each, so that a million of them fits into memory. A collision costs a look-up.
    candidates: HashSet<u64>,
    /// Results of earlier look-ups.
    known: HashMap<ItemKey, bool>,
}

impl RestrictedItems {
    pub(crate) async fn load(store: &Store, org: &OrgId, lookup: RestrictionLookup) -> Result<Self, Error> {
        let hasher = RandomState::new();
        let hash = |row: ChildSafetyItem| hasher.hash_one(ItemKey { type_id: row.type_id, id: row.item_id });
        let candidates: Vec<Vec<u64>> = stream::iter(0..SHARDS)
            .map(|shard| {
                let rows = store.scan::<ChildSafetyItem>(&(org.clone(), shard), RowRange::all()).stream();
                rows.map_ok(hash).try_collect()
            })
            .buffer_unordered(CONCURRENT_READS)
            .try_collect()
            .await?;
        let candidates = candidates.into_iter().flatten().collect();
        let (store, org) = (store.clone(), org.clone());
        Ok(Self { store, org, lookup, hasher, candidates, known: HashMap::new() })
    }

    /// True if the organisation never had a child-safety job.
    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// True if the item may be restricted, so that [`Self::is_restricted`] has to look it up.
    pub(crate) fn is_candidate(&self, item: &ItemKey) -> bool {
        self.candidates.contains(&self.hasher.hash_one(item))
    }

    /// True if the item is restricted now.
    pub(crate) async fn is_restricted(&mut self, item: &ItemKey) -> Result<bool, Error> {
        if let Some(is_restricted) = self.known.get(item) {
            return Ok(*is_restricted);
        }
        // The item may be a false hit of the hash, or its child-safety job may have moved to review.
        let restricted = (self.lookup)(&self.store, &self.org, std::slice::from_ref(item)).await?;
        let is_restricted = restricted.contains(item);
        self.known.insert(item.clone(), is_restricted);
        Ok(is_restricted)
    }
}
