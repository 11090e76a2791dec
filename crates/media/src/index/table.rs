//! Many hashes, sorted, each once, with the rows that have it. It never changes.
//!
//! What a row's tag means is up to the caller.

use pulp::Arch;

use super::{
    bands::{Bands, Hit, Scratch},
    bits::Bits,
};

/// A hash and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<const W: usize> {
    pub(crate) bits: Bits<W>,
    pub(crate) tag: u32,
}

pub(crate) struct Table<const W: usize> {
    hashes: Vec<Bits<W>>,
    /// Where the rows of a hash begin, and one more for the end of the last.
    begins: Vec<u32>,
    tags: Vec<u32>,
    bands: Option<Bands>,
}

/// How near hashes are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Index,
    /// All hashes are compared: what the index must come to.
    Scan,
}

impl<const W: usize> Table<W> {
    pub(crate) fn empty() -> Self {
        Self { hashes: Vec::new(), begins: vec![0], tags: Vec::new(), bands: None }
    }

    /// Of rows that are sorted by their hashes. Without `near` only equal hashes are found fast.
    pub(crate) fn build(rows: Vec<Row<W>>, near: bool) -> Self {
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
        table.bands = near.then(|| Bands::build(&table.hashes));
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

    /// The rows of a hash, with their tags.
    pub(crate) fn equal(&self, bits: &Bits<W>) -> impl Iterator<Item = (usize, u32)> {
        let found = self.hashes.binary_search(bits).ok().map(|place| self.range(place));
        found.into_iter().flatten().map(|row| (row, self.tags[row]))
    }

    /// Calls with row, hash, distance and tag.
    pub(crate) fn near(
        &self,
        query: &Bits<W>,
        radius: u32,
        way: Way,
        found: &mut impl FnMut(usize, Bits<W>, u32, u32),
    ) {
        if radius == 0 && way == Way::Index {
            self.equal(query).for_each(|(row, tag)| found(row, *query, 0, tag));
            return;
        }
        for (place, distance) in self.hits(query, radius, way) {
            let place = place as usize;
            self.range(place).for_each(|row| found(row, self.hashes[place], distance, self.tags[row]));
        }
    }

    fn hits(&self, query: &Bits<W>, radius: u32, way: Way) -> Vec<Hit> {
        thread_local! {
            static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
        }
        let bands = self.bands.as_ref().filter(|_| way == Way::Index);
        SCRATCH.with_borrow_mut(|scratch| {
            let hits = Vec::new();
            // Only what is inlined is made for the instructions that are found, and only a closure that gives away what it
            // holds is inlined as a whole.
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

/// Rows that are not in a table, sorted too.
pub(crate) fn near_rows<const W: usize>(
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
