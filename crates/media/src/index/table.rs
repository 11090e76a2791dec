//! Immutable table of distinct, sorted hashes, each with its rows.

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

/// Method of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchMode {
    Index,
    /// Compares all hashes. Verifies the index, which must give the same result.
    Scan,
}

impl<const W: usize> Table<W> {
    pub(crate) fn empty() -> Self {
        Self { hashes: Vec::new(), begins: vec![0], tags: Vec::new(), bands: None }
    }

    /// Builds a table from rows sorted by hash. Without `finds_similar`, only a search for equal hashes is fast.
    pub(crate) fn build(rows: Vec<Row<W>>, finds_similar: bool) -> Self {
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
        // Duplicate hashes leave spare capacity, and a table lives until the next rebuild.
        table.hashes.shrink_to_fit();
        table.begins.shrink_to_fit();
        table.bands = finds_similar.then(|| Bands::build(&table.hashes));
        table
    }

    pub(crate) fn len(&self) -> usize {
        self.tags.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        let list_bytes = 4 * (self.begins.len() + self.tags.len());
        list_bytes + size_of_val(self.hashes.as_slice()) + self.bands.as_ref().map_or(0, Bands::bytes)
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
    pub(crate) fn find_equal(&self, bits: &Bits<W>) -> impl Iterator<Item = (usize, u32)> {
        let row_range = self.hashes.binary_search(bits).ok().map(|place| self.range(place));
        row_range.into_iter().flatten().map(|row| (row, self.tags[row]))
    }

    /// Calls `on_match` with row, hash, distance and tag of every row within the radius.
    pub(crate) fn find_near(
        &self,
        query: &Bits<W>,
        radius: u32,
        mode: SearchMode,
        on_match: &mut impl FnMut(usize, Bits<W>, u32, u32),
    ) {
        if radius == 0 && mode == SearchMode::Index {
            self.find_equal(query).for_each(|(row, tag)| on_match(row, *query, 0, tag));
            return;
        }
        for (place, distance) in self.find_hits(query, radius, mode) {
            let place = place as usize;
            self.range(place).for_each(|row| on_match(row, self.hashes[place], distance, self.tags[row]));
        }
    }

    fn find_hits(&self, query: &Bits<W>, radius: u32, mode: SearchMode) -> Vec<Hit> {
        // One buffer for each thread: look-ups are too frequent to allocate.
        thread_local! {
            static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
        }
        let bands = self.bands.as_ref().filter(|_| mode == SearchMode::Index);
        SCRATCH.with_borrow_mut(|scratch| {
            let hits = Vec::new();
            // Only inlined code is compiled for the instruction set that `pulp` detects, and only a closure that moves its
            // captures is inlined completely.
            Arch::new().dispatch(
                #[inline(always)]
                move || {
                    let mut hits = hits;
                    let is_indexed = match bands {
                        Some(bands) => bands.search(&self.hashes, query, radius, scratch, &mut hits),
                        None => false,
                    };
                    if !is_indexed {
                        scan(&self.hashes, query, radius, &mut hits);
                    }
                    hits
                },
            )
        })
    }
}

/// Scans sorted rows outside of a table, and calls `on_match` for each row within the radius.
pub(crate) fn find_near_rows<const W: usize>(
    rows: &[Row<W>],
    query: &Bits<W>,
    radius: u32,
    on_match: &mut impl FnMut(Bits<W>, u32, u32),
) {
    if radius == 0 {
        let begin = rows.partition_point(|row| row.bits < *query);
        rows[begin..]
            .iter()
            .take_while(|row| row.bits == *query)
            .for_each(|row| on_match(*query, 0, row.tag));
        return;
    }
    let hits = Vec::new();
    let hits = Arch::new().dispatch(
        #[inline(always)]
        move || {
            let mut hits = hits;
            for row in rows {
                if let Some(distance) = query.distance_within(&row.bits, radius) {
                    hits.push((*row, distance));
                }
            }
            hits
        },
    );
    hits.into_iter().for_each(|(row, distance)| on_match(row.bits, distance, row.tag));
}

#[inline(always)]
fn scan<const W: usize>(hashes: &[Bits<W>], query: &Bits<W>, radius: u32, hits: &mut Vec<Hit>) {
    for (place, hash) in (0..).zip(hashes) {
        if let Some(distance) = query.distance_within(hash, radius) {
            hits.push((place, distance));
        }
    }
}
