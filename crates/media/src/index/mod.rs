//! Immutable index of hashes of one kind. A change returns a new index, so that a look-up sees one consistent state.
//!
//! Rows carry tags that only the caller interprets. Most rows are in an immutable table. Removed rows are marked in a set,
//! and recent rows are kept in a list short enough to be scanned. The caller rebuilds the table when `needs_rebuild` says
//! so.

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

/// Number of rows up to which a scan is preferred to a table.
const MAX_SCANNED_ROWS: usize = 20_000;

#[derive(Clone)]
pub(crate) struct Index<const W: usize> {
    table: Arc<Table<W>>,
    /// Table rows that no longer count.
    removed: Arc<RowSet>,
    /// Rows that are not in the table, sorted by their hashes.
    recent: Arc<Vec<Row<W>>>,
}

/// Bit set of row numbers, with its size.
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
        // Counts a row only once, because `Index::len` subtracts this size.
        self.count += usize::from(!self.contains(row));
        self.words[word] |= 1 << (row % 64);
    }
}

impl<const W: usize> Index<W> {
    pub(crate) fn empty() -> Self {
        Self { table: Arc::new(Table::empty()), removed: Arc::default(), recent: Arc::default() }
    }

    /// Builds an index. `finds_similar` enables the fast search for hashes that differ in some bits.
    pub(crate) fn build(mut rows: Vec<Row<W>>, finds_similar: bool) -> Self {
        // Rows of a rebuild are already sorted.
        if !rows.is_sorted_by_key(|row| row.bits) {
            rows.par_sort_unstable_by_key(|row| row.bits);
        }
        if rows.len() <= MAX_SCANNED_ROWS {
            return Self { recent: Arc::new(rows), ..Self::empty() };
        }
        Self { table: Arc::new(Table::build(rows, finds_similar)), ..Self::empty() }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.removed.count + self.recent.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + 8 * self.removed.words.len() + size_of_val(self.recent.as_slice())
    }

    /// True if the number of recent or removed rows slows look-ups down.
    pub(crate) fn needs_rebuild(&self) -> bool {
        let max_recent = MAX_SCANNED_ROWS.max(self.table.len() / 100);
        // Removed rows cost a look-up only if they match, so many more of them are tolerated.
        self.recent.len() > max_recent || self.removed.count > max_recent.max(self.table.len() / 4)
    }

    /// Returns the index with changed rows. A change replaces or removes the rows with its hash and a tag accepted by
    /// `is_own`. Each hash appears at most once in `changes`.
    pub(crate) fn with_changes(
        &self,
        mut changes: Vec<(Bits<W>, Option<u32>)>,
        is_own: impl Fn(u32) -> bool,
    ) -> Self {
        changes.sort_unstable_by_key(|(bits, _)| *bits);
        let mut removed = Arc::clone(&self.removed);
        for (bits, _) in &changes {
            let rows =
                self.table.find_equal(bits).filter(|(row, tag)| is_own(*tag) && !self.removed.contains(*row));
            rows.for_each(|(row, _)| Arc::make_mut(&mut removed).insert(row));
        }
        // Merges two sorted lists, so that the result stays sorted for the search.
        let mut recent = Vec::with_capacity(self.recent.len() + changes.len());
        let mut old_rows = self.recent.iter().peekable();
        for (bits, tag) in changes {
            while let Some(row) = old_rows.next_if(|row| row.bits <= bits) {
                if row.bits != bits || !is_own(row.tag) {
                    recent.push(*row);
                }
            }
            recent.extend(tag.map(|tag| Row { bits, tag }));
        }
        recent.extend(old_rows);
        Self { table: Arc::clone(&self.table), removed, recent: Arc::new(recent) }
    }

    /// Returns all rows, sorted by hash.
    pub(crate) fn rows(&self) -> Vec<Row<W>> {
        let mut rows = Vec::with_capacity(self.len());
        let mut recent = self.recent.iter().peekable();
        for (row, table_row) in self.table.rows() {
            while let Some(recent_row) = recent.next_if(|recent_row| recent_row.bits < table_row.bits) {
                rows.push(*recent_row);
            }
            if !self.removed.contains(row) {
                rows.push(table_row);
            }
        }
        rows.extend(recent);
        rows
    }

    /// Calls `on_match` once with hash, distance and tag of every row within the radius.
    pub(crate) fn find_near(
        &self,
        query: &Bits<W>,
        radius: u32,
        mode: SearchMode,
        mut on_match: impl FnMut(Bits<W>, u32, u32),
    ) {
        self.table.find_near(query, radius, mode, &mut |row, bits, distance, tag| {
            if !self.removed.contains(row) {
                on_match(bits, distance, tag);
            }
        });
        find_near_rows(&self.recent, query, radius, &mut on_match);
    }
}

#[cfg(test)]
pub(crate) mod tests;
