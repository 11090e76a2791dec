//! Immutable table of sorted hashes, each once, with the rows that have it.

use pulp::Arch;

use super::{
    bands::{Bands, Hit, Scratch},
    bits::Bits,
};

/// A hash and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<const W: usize> {
    pub(crate) bits: Bits<W>,
    pub(crate) tag: u32,
}

pub(crate) struct Table<const W: usize> {
    hashes: Vec<Bits<W>>,
    /// Index of each hash's first row, and one more for the end of the last.
    begins: Vec<u32>,
    tags: Vec<u32>,
    bands: Option<Bands>,
}

/// Way to find near hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchMode {
    Index,
    /// Compares all hashes. The index must give the same result.
    Scan,
}

impl<const W: usize> Table<W> {
    pub(crate) fn empty() -> Self {
        Self { hashes: Vec::new(), begins: vec![0], tags: Vec::new(), bands: None }
    }

    /// Builds a table of rows that are sorted by their hashes. Without `similar`, only equal hashes are found fast.
    pub(crate) fn build(rows: Vec<Row<W>>, similar: bool) -> Self {
        let mut table = Self {
            hashes: Vec::with_capacity(rows.len()),
            begins: Vec::with_capacity(rows.len() + 1),
            tags: Vec::with_capacity(rows.len()),
            bands: None,
        };
        for (nth, row) in (0..).zip(rows) {
            if table.hashes.last() != Some(&row.bits) {
                table.hashes.push(row.bits);
                table.begins.push(nth);
            }
            table.tags.push(row.tag);
        }
        table.begins.push(u32::try_from(table.tags.len()).unwrap_or(u32::MAX));
        table.hashes.shrink_to_fit();
        table.begins.shrink_to_fit();
        table.bands = similar.then(|| Bands::build(&table.hashes));
        table
    }

    pub(crate) fn len(&self) -> usize {
        self.tags.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        let lists = 4 * (self.begins.len() + self.tags.len());
        lists + size_of_val(self.hashes.as_slice()) + self.bands.as_ref().map_or(0, Bands::bytes)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (usize, Row<W>)> {
        self.hashes.iter().enumerate().flat_map(|(place, bits)| {
            self.range(place).map(|row| (row, Row { bits: *bits, tag: self.tags[row] }))
        })
    }

    fn range(&self, place: usize) -> std::ops::Range<usize> {
        self.begins[place] as usize..self.begins[place + 1] as usize
    }

    /// Returns the rows of a hash, with their tags.
    pub(crate) fn equal(&self, bits: &Bits<W>) -> impl Iterator<Item = (usize, u32)> {
        let found = self.hashes.binary_search(bits).ok().map(|place| self.range(place));
        found.into_iter().flatten().map(|row| (row, self.tags[row]))
    }

    /// Calls `found` with row, hash, distance and tag.
    pub(crate) fn find_near(
        &self,
        query: &Bits<W>,
        radius: u32,
        mode: SearchMode,
        found: &mut impl FnMut(usize, Bits<W>, u32, u32),
    ) {
        if radius == 0 && mode == SearchMode::Index {
            self.equal(query).for_each(|(row, tag)| found(row, *query, 0, tag));
            return;
        }
        for (place, distance) in self.hits(query, radius, mode) {
            let place = place as usize;
            self.range(place).for_each(|row| found(row, self.hashes[place], distance, self.tags[row]));
        }
    }

    fn hits(&self, query: &Bits<W>, radius: u32, mode: SearchMode) -> Vec<Hit> {
        thread_local! {
            static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
        }
        let bands = self.bands.as_ref().filter(|_| mode == SearchMode::Index);
        SCRATCH.with_borrow_mut(|scratch| {
            let hits = Vec::new();
            // Only inlined code is compiled for the instructions that `pulp` finds, and only a closure that moves what it
            // captures is inlined as a whole.
            Arch::new().dispatch(
                #[inline(always)]
                move || {
                    let mut hits = hits;
                    let is_found = match bands {
                        Some(bands) => bands.search(&self.hashes, query, radius, scratch, &mut hits),
                        None => false,
                    };
                    if !is_found {
                        scan(&self.hashes, query, radius, &mut hits);
                    }
                    hits
                },
            )
        })
    }
}

/// Calls `found` for near rows that are in no table, but sorted, too.
pub(crate) fn find_near_rows<const W: usize>(
    rows: &[Row<W>],
    query: &Bits<W>,
    radius: u32,
    found: &mut impl FnMut(Bits<W>, u32, u32),
) {
    if radius == 0 {
        let begin = rows.partition_point(|row| row.bits < *query);
        rows[begin..].iter().take_while(|row| row.bits == *query).for_each(|row| found(*query, 0, row.tag));
        return;
    }
    let hits = Vec::new();
    let hits = Arch::new().dispatch(
        #[inline(always)]
        move || {
            let mut hits = hits;
            for row in rows {
                if let Some(distance) = query.within(&row.bits, radius) {
                    hits.push((*row, distance));
                }
            }
            hits
        },
    );
    hits.into_iter().for_each(|(row, distance)| found(row.bits, distance, row.tag));
}

#[inline(always)]
fn scan<const W: usize>(hashes: &[Bits<W>], query: &Bits<W>, radius: u32, hits: &mut Vec<Hit>) {
    for (place, hash) in (0..).zip(hashes) {
        if let Some(distance) = query.within(hash, radius) {
            hits.push((place, distance));
        }
    }
}
