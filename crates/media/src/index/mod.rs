//! Hashes of one kind that come and go while others look them up: every look-up sees one state, and misses nothing.
//!
//! It does not know banks; rows carry tags that the caller understands.
//!
//! Most rows are in a table that never changes; rows that went are marked in it, and new ones are kept beside it, few
//! enough to be compared one by one. A state is replaced as a whole, and the table is built anew now and then.

mod bands;
mod bits;
mod table;

use std::sync::Arc;

use rayon::prelude::*;

use self::table::{Table, near_rows};
pub(crate) use self::{
    bits::Bits,
    table::{Row, Way},
};

/// Up to so many rows are compared one by one rather than looked up.
const FEW: usize = 20_000;

#[derive(Clone)]
pub(crate) struct Index<const W: usize> {
    table: Arc<Table<W>>,
    /// Rows of the table that are gone.
    gone: Arc<Marks>,
    /// Sorted by their hashes.
    beside: Arc<Vec<Row<W>>>,
}

#[derive(Clone, Default)]
struct Marks {
    words: Vec<u64>,
    count: usize,
}

impl Marks {
    fn has(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    fn set(&mut self, row: usize) {
        let word = row / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.count += usize::from(!self.has(row));
        self.words[word] |= 1 << (row % 64);
    }
}

impl<const W: usize> Index<W> {
    pub(crate) fn empty() -> Self {
        Self { table: Arc::new(Table::empty()), gone: Arc::default(), beside: Arc::default() }
    }

    /// With `near`, hashes that differ in some bits are found fast, not only equal ones.
    pub(crate) fn build(mut rows: Vec<Row<W>>, near: bool) -> Self {
        if !rows.is_sorted_by_key(|row| row.bits) {
            rows.par_sort_unstable_by_key(|row| row.bits);
        }
        if rows.len() <= FEW {
            return Self { beside: Arc::new(rows), ..Self::empty() };
        }
        Self { table: Arc::new(Table::build(rows, near)), ..Self::empty() }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.gone.count + self.beside.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + 8 * self.gone.words.len() + size_of_val(self.beside.as_slice())
    }

    /// So much stands beside the table, or is gone from it, that look-ups suffer.
    pub(crate) fn is_worn(&self) -> bool {
        let few = FEW.max(self.table.len() / 100);
        self.beside.len() > few || self.gone.count > few.max(self.table.len() / 4)
    }

    /// Sets the tag of a hash among those that `own` takes as its own, or takes them out. Each hash at most once.
    pub(crate) fn with(&self, mut changes: Vec<(Bits<W>, Option<u32>)>, own: impl Fn(u32) -> bool) -> Self {
        changes.sort_unstable_by_key(|(bits, _)| *bits);
        let mut gone = Arc::clone(&self.gone);
        for (bits, _) in &changes {
            let rows = self.table.equal(bits).filter(|(row, tag)| own(*tag) && !self.gone.has(*row));
            rows.for_each(|(row, _)| Arc::make_mut(&mut gone).set(row));
        }
        let mut beside = Vec::with_capacity(self.beside.len() + changes.len());
        let mut old = self.beside.iter().peekable();
        for (bits, tag) in changes {
            while let Some(row) = old.next_if(|row| row.bits <= bits) {
                if row.bits != bits || !own(row.tag) {
                    beside.push(*row);
                }
            }
            beside.extend(tag.map(|tag| Row { bits, tag }));
        }
        beside.extend(old);
        Self { table: Arc::clone(&self.table), gone, beside: Arc::new(beside) }
    }

    /// All that is there, sorted.
    pub(crate) fn rows(&self) -> Vec<Row<W>> {
        let mut rows = Vec::with_capacity(self.len());
        let mut beside = self.beside.iter().peekable();
        for (row, kept) in self.table.rows() {
            while let Some(new) = beside.next_if(|new| new.bits < kept.bits) {
                rows.push(*new);
            }
            if !self.gone.has(row) {
                rows.push(kept);
            }
        }
        rows.extend(beside);
        rows
    }

    /// Calls with hash, distance and tag of every row within the radius, each once.
    pub(crate) fn near(
        &self,
        query: &Bits<W>,
        radius: u32,
        way: Way,
        mut found: impl FnMut(Bits<W>, u32, u32),
    ) {
        self.table.near(query, radius, way, &mut |row, bits, distance, tag| {
            if !self.gone.has(row) {
                found(bits, distance, tag);
            }
        });
        near_rows(&self.beside, query, radius, &mut found);
    }
}

#[cfg(test)]
pub(crate) mod tests;
