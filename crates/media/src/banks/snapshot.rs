//! Immutable snapshot of an org's hash banks.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tidegate_schemas::ids::{BankId, Millis};
use uuid::Uuid;

use super::{Bank, Entry, Settings};
use crate::index::{Bits, Index, SearchMode};

/// State of all hash banks of an org.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// Incremented by every change.
    pub(super) version: u64,
    pub(super) settings: Settings,
    pub(super) banks: Arc<Vec<Bank>>,
    /// Index of the bank of each slot; `None` if the bank was removed.
    pub(super) banks_by_slot: Arc<Vec<Option<usize>>>,
    pub(super) pdq: KindSnapshot<4>,
    pub(super) gradient: KindSnapshot<1>,
    pub(super) md5: KindSnapshot<2>,
    pub(super) sha1: KindSnapshot<3>,
    pub(super) sha256: KindSnapshot<4>,
    pub(super) photodna: KindSnapshot<4>,
    pub(super) netclean: KindSnapshot<4>,
    pub(super) shared: Arc<Shared>,
}

/// Clock and counters shared by all snapshots of an org.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) now: AtomicI64,
    pub(super) lookups: AtomicU64,
    pub(super) truncated: AtomicU64,
    pub(super) verified: AtomicU64,
    pub(super) mismatches: AtomicU64,
    pub(super) watched_matches: Mutex<Vec<(BankId, Uuid)>>,
}

impl Shared {
    pub(super) fn current_time(&self) -> Millis {
        Millis(self.now.load(Ordering::Relaxed))
    }

    pub(super) fn record_watched_match(&self, bank: BankId, entry: Uuid) {
        let mut matches = self.watched_matches.lock();
        // The list is drained often. This many matches already count as an anomaly, so further ones can be dropped.
        if matches.len() < MAX_WATCHED_MATCHES {
            matches.push((bank, entry));
        }
    }
}

const MAX_WATCHED_MATCHES: usize = 65_536;

/// Slot and entry of a row. Entries added together mostly share one tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag {
    /// Slot of the bank.
    pub(super) slot: u32,
    pub(super) entry: Arc<Entry>,
}

impl Tag {
    pub(super) fn is_valid(&self, now: Millis) -> bool {
        self.entry.expires_at.is_none_or(|end| end > now)
    }
}

/// Number of each tag, owned by the publisher.
pub(super) type TagNumbers = HashMap<Tag, u32>;

/// Entries of one kind of hash, of all banks.
#[derive(Clone)]
pub(super) struct KindSnapshot<const W: usize> {
    index: Index<W>,
    /// Tags of the last rebuild. `recent_tags` continues their numbers, so that a change copies only the short list.
    tags: Arc<Vec<Tag>>,
    recent_tags: Arc<Vec<Tag>>,
    /// Largest distance set by an entry since the last rebuild.
    max_entry_distance: u32,
    is_similarity: bool,
}

impl<const W: usize> KindSnapshot<W> {
    /// Returns an empty snapshot. `is_similarity` enables the search for near hashes.
    pub(super) fn empty(is_similarity: bool) -> Self {
        Self {
            index: Index::empty(),
            tags: Arc::default(),
            recent_tags: Arc::default(),
            max_entry_distance: 0,
            is_similarity,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.bytes() + size_of::<Tag>() * (self.tags.len() + self.recent_tags.len())
    }

    pub(super) fn needs_rebuild(&self) -> bool {
        self.index.needs_rebuild()
    }

    pub(super) fn max_entry_distance(&self) -> u32 {
        self.max_entry_distance
    }

    fn tag(&self, number: u32) -> &Tag {
        let number = number as usize;
        self.tags.get(number).unwrap_or_else(|| &self.recent_tags[number - self.tags.len()])
    }

    /// Returns the snapshot with changed entries of a slot. Each hash appears at most once in `changes`.
    pub(super) fn with_changes(
        &self,
        slot: u32,
        changes: Vec<(Bits<W>, Option<Arc<Entry>>)>,
        numbers: &mut TagNumbers,
    ) -> Self {
        let mut recent_tags = Arc::clone(&self.recent_tags);
        let mut max_entry_distance = self.max_entry_distance;
        let changes = changes.into_iter().map(|(bits, entry)| {
            let number = entry.map(|entry| {
                max_entry_distance = max_entry_distance.max(entry.distance.unwrap_or_default().into());
                // Numbers continue after the tags of the last rebuild.
                let next_number = self.tags.len() + recent_tags.len();
                *numbers.entry(Tag { slot, entry }).or_insert_with_key(|tag| {
                    Arc::make_mut(&mut recent_tags).push(tag.clone());
                    u32::try_from(next_number).unwrap_or(u32::MAX)
                })
            });
            (bits, number)
        });
        let changes: Vec<_> = changes.collect();
        // Several banks may contain a hash; the change replaces or removes the row of this slot alone.
        let is_of_slot = |number: u32| match self.tags.get(number as usize) {
            Some(tag) => tag.slot == slot,
            None => recent_tags[number as usize - self.tags.len()].slot == slot,
        };
        let index = self.index.with_changes(changes, is_of_slot);
        Self { index, tags: Arc::clone(&self.tags), recent_tags, max_entry_distance, ..self.clone() }
    }

    /// Rebuilds the snapshot from the entries that `keep` accepts, and numbers their tags anew.
    pub(super) fn rebuild(&self, keep: impl Fn(&Tag) -> bool) -> (Self, TagNumbers) {
        let (mut tags, mut numbers, mut max_entry_distance) = (Vec::new(), TagNumbers::new(), 0);
        let mut new_numbers: Vec<Option<u32>> = vec![None; self.tags.len() + self.recent_tags.len()];
        let mut rows = self.index.rows();
        rows.retain_mut(|row| {
            let tag = self.tag(row.tag);
            if !keep(tag) {
                return false;
            }
            row.tag = *new_numbers[row.tag as usize].get_or_insert_with(|| {
                let number = u32::try_from(tags.len()).unwrap_or(u32::MAX);
                max_entry_distance = max_entry_distance.max(tag.entry.distance.unwrap_or_default().into());
                tags.push(tag.clone());
                numbers.insert(tag.clone(), number);
                number
            });
            true
        });
        let rebuilt_snapshot = Self {
            index: Index::build(rows, self.is_similarity),
            tags: Arc::new(tags),
            recent_tags: Arc::default(),
            max_entry_distance,
            is_similarity: self.is_similarity,
        };
        (rebuilt_snapshot, numbers)
    }

    /// Calls `on_match` with hash, distance and tag of every row within the radius.
    pub(super) fn find_near(
        &self,
        query: &Bits<W>,
        radius: u32,
        mode: SearchMode,
        mut on_match: impl FnMut(Bits<W>, u32, &Tag),
    ) {
        let on_numbered_match = |bits, distance, number| on_match(bits, distance, self.tag(number));
        self.index.find_near(query, radius, mode, on_numbered_match);
    }
}
