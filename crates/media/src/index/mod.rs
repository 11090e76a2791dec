//! Index of hashes of one kind, as an immutable state: a change makes a new one, so look-ups see one state and miss nothing.
//!
//! Rows carry tags that only the caller interprets. Most rows are in a table that never changes. Removed rows are marked in
//! it, and recent ones are held beside it, few enough to be compared one by one. The table is rebuilt now and then.

mod bands;
mod bits;
mod table;

use std::sync::Arc;

use rayon::prelude::*;

use self::table::{Table, find_near_rows};
pub(crate) use self::{
    bits::Bits,
    table::{Row, SearchMode},
};

/// Number of rows up to which they are compared one by one rather than looked up.
const FEW: usize = 20_000;

#[derive(Clone)]
pub(crate) struct Index<const W: usize> {
    table: Arc<Table<W>>,
    /// Rows of the table that were removed.
    removed: Arc<RowSet>,
    /// Rows that are not in the table, sorted by their hashes.
    recent: Arc<Vec<Row<W>>>,
}

#[derive(Clone, Default)]
struct RowSet {
    words: Vec<u64>,
    count: usize,
}

impl RowSet {
    fn contains(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    fn insert(&mut self, row: usize) {
        let word = row / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.count += usize::from(!self.contains(row));
        self.words[word] |= 1 << (row % 64);
    }
}

impl<const W: usize> Index<W> {
    pub(crate) fn empty() -> Self {
        Self { table: Arc::new(Table::empty()), removed: Arc::default(), recent: Arc::default() }
    }

    /// Builds an index. With `similar`, hashes that differ in some bits are found fast, not only equal ones.
    pub(crate) fn build(mut rows: Vec<Row<W>>, similar: bool) -> Self {
        if !rows.is_sorted_by_key(|row| row.bits) {
            rows.par_sort_unstable_by_key(|row| row.bits);
        }
        if rows.len() <= FEW {
            return Self { recent: Arc::new(rows), ..Self::empty() };
        }
        Self { table: Arc::new(Table::build(rows, similar)), ..Self::empty() }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.removed.count + self.recent.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + 8 * self.removed.words.len() + size_of_val(self.recent.as_slice())
    }

    /// True if so many rows are recent or removed that look-ups are slow.
    pub(crate) fn needs_rebuild(&self) -> bool {
        let few = FEW.max(self.table.len() / 100);
        self.recent.len() > few || self.removed.count > few.max(self.table.len() / 4)
    }

    /// Returns the index with changed rows: replaces the rows of a hash whose tag `is_own` accepts, or removes them. Each hash
    /// comes at most once.
    pub(crate) fn with(
        &self,
        mut changes: Vec<(Bits<W>, Option<u32>)>,
        is_own: impl Fn(u32) -> bool,
    ) -> Self {
        changes.sort_unstable_by_key(|(bits, _)| *bits);
        let mut removed = Arc::clone(&self.removed);
        for (bits, _) in &changes {
            let rows =
                self.table.equal(bits).filter(|(row, tag)| is_own(*tag) && !self.removed.contains(*row));
            rows.for_each(|(row, _)| Arc::make_mut(&mut removed).insert(row));
        }
        let mut recent = Vec::with_capacity(self.recent.len() + changes.len());
        let mut old = self.recent.iter().peekable();
        for (bits, tag) in changes {
            while let Some(row) = old.next_if(|row| row.bits <= bits) {
                if row.bits != bits || !is_own(row.tag) {
                    recent.push(*row);
                }
            }
            recent.extend(tag.map(|tag| Row { bits, tag }));
        }
        recent.extend(old);
        Self { table: Arc::clone(&self.table), removed, recent: Arc::new(recent) }
    }

    /// Returns all rows, sorted by hash.
    pub(crate) fn rows(&self) -> Vec<Row<W>> {
        let mut rows = Vec::with_capacity(self.len());
        let mut recent = self.recent.iter().peekable();
        for (row, kept) in self.table.rows() {
            while let Some(new) = recent.next_if(|new| new.bits < kept.bits) {
                rows.push(*new);
            }
            if !self.removed.contains(row) {
                rows.push(kept);
            }
        }
        rows.extend(recent);
        rows
    }

    /// Calls `found` with hash, distance and tag of every row within the radius, each once.
    pub(crate) fn find_near(
        &self,
        query: &Bits<W>,
        radius: u32,
        mode: SearchMode,
        mut found: impl FnMut(Bits<W>, u32, u32),
    ) {
        self.table.find_near(query, radius, mode, &mut |row, bits, distance, tag| {
            if !self.removed.contains(row) {
                found(bits, distance, tag);
            }
        });
        find_near_rows(&self.recent, query, radius, &mut found);
    }
}

#[cfg(test)]
pub(crate) mod tests;
