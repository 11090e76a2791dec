//! The entries of all banks of one kind of hash, as one state that never changes.
//!
//! It does not know banks; entries say at which place theirs stands.

use std::{collections::HashMap, sync::Arc};

use tidegate_schemas::ids::Millis;

use super::Entry;
use crate::index::{Bits, Index, Way};

/// What rows are tagged with. Entries that are handed in together mostly share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag {
    /// Of the bank.
    pub(super) place: u32,
    pub(super) entry: Arc<Entry>,
}

impl Tag {
    pub(super) fn counts(&self, now: Millis) -> bool {
        self.entry.expires_at.is_none_or(|end| end > now)
    }
}

/// The number of each tag of a shelf: whoever changes the shelf keeps them.
pub(super) type Numbers = HashMap<Tag, u32>;

#[derive(Clone)]
pub(super) struct Shelf<const W: usize> {
    index: Index<W>,
    /// Those of the last building, and those that came since.
    tags: Arc<Vec<Tag>>,
    more: Arc<Vec<Tag>>,
    /// The largest distance that an entry has of its own, ever since the last building.
    own_distance: u32,
    near: bool,
}

impl<const W: usize> Shelf<W> {
    /// With `near`, similar hashes are looked for, too.
    pub(super) fn empty(near: bool) -> Self {
        Self { index: Index::empty(), tags: Arc::default(), more: Arc::default(), own_distance: 0, near }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.bytes() + size_of::<Tag>() * (self.tags.len() + self.more.len())
    }

    pub(super) fn is_worn(&self) -> bool {
        self.index.is_worn()
    }

    /// How far off an entry may lie by itself.
    pub(super) fn own_distance(&self) -> u32 {
        self.own_distance
    }

    fn tag(&self, number: u32) -> &Tag {
        let number = number as usize;
        self.tags.get(number).unwrap_or_else(|| &self.more[number - self.tags.len()])
    }

    /// With the entries at a place changed; each hash once.
    pub(super) fn with(
        &self,
        place: u32,
        changes: Vec<(Bits<W>, Option<Arc<Entry>>)>,
        numbers: &mut Numbers,
    ) -> Self {
        let mut more = Arc::clone(&self.more);
        let mut own_distance = self.own_distance;
        let changes = changes.into_iter().map(|(bits, entry)| {
            let number = entry.map(|entry| {
                own_distance = own_distance.max(entry.distance.unwrap_or_default().into());
                let next = self.tags.len() + more.len();
                *numbers.entry(Tag { place, entry }).or_insert_with_key(|tag| {
                    Arc::make_mut(&mut more).push(tag.clone());
                    u32::try_from(next).unwrap_or(u32::MAX)
                })
            });
            (bits, number)
        });
        let changes: Vec<_> = changes.collect();
        let own = |number: u32| match self.tags.get(number as usize) {
            Some(tag) => tag.place == place,
            None => more[number as usize - self.tags.len()].place == place,
        };
        let index = self.index.with(changes, own);
        Self { index, tags: Arc::clone(&self.tags), more, own_distance, near: self.near }
    }

    /// Built anew, without the entries that `keep` takes for gone.
    pub(super) fn rebuilt(&self, keep: impl Fn(&Tag) -> bool) -> (Self, Numbers) {
        let (mut tags, mut numbers, mut own_distance) = (Vec::new(), Numbers::new(), 0);
        let mut renumbered: Vec<Option<u32>> = vec![None; self.tags.len() + self.more.len()];
        let mut rows = self.index.rows();
        rows.retain_mut(|row| {
            let tag = self.tag(row.tag);
            if !keep(tag) {
                return false;
            }
            row.tag = *renumbered[row.tag as usize].get_or_insert_with(|| {
                let number = u32::try_from(tags.len()).unwrap_or(u32::MAX);
                own_distance = own_distance.max(tag.entry.distance.unwrap_or_default().into());
                tags.push(tag.clone());
                numbers.insert(tag.clone(), number);
                number
            });
            true
        });
        let index = Index::build(rows, self.near);
        (Self { index, tags: Arc::new(tags), more: Arc::default(), own_distance, near: self.near }, numbers)
    }

    /// Calls with hash, distance and tag of what is near.
    pub(super) fn near(
        &self,
        query: &Bits<W>,
        radius: u32,
        way: Way,
        mut found: impl FnMut(Bits<W>, u32, &Tag),
    ) {
        self.index.near(query, radius, way, |bits, distance, number| found(bits, distance, self.tag(number)));
    }
}
