//! Hash table of the texts by which predicates are indexed. A small bit map in front of it rejects most values.

use std::hash::{BuildHasher as _, Hasher as _};

use super::witness::Witness;
use crate::search::hashing::BuildFastHasher;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Bits by hash, at least 16 for each text; empty without texts. Small, because most look-ups end here.
    filter: Box<[u64]>,
    /// The length is a power of two, and at most half of the cells are in use.
    cells: Box<[Cell]>,
    bytes: Box<[u8]>,
    witnesses: Box<[Witness]>,
}

/// Cell of a text. It holds both positions, so that the reads of its bytes and of its witnesses overlap.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Upper half of the text's hash.
    tag: u32,
    /// Position of the text's bytes.
    from: u32,
    length: u32,
    /// Position of its witnesses; an empty range marks an empty cell.
    first: u32,
    end: u32,
}

impl Texts {
    /// Builds the table. Each text occurs once, with its witnesses.
    pub(crate) fn new(texts: impl IntoIterator<Item = (Box<str>, Vec<Witness>)>) -> Self {
        let mut entries = Vec::new();
        let (mut bytes, mut witnesses) = (Vec::new(), Vec::new());
        let place = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        for (text, text_witnesses) in texts {
            let (from, first) = (place(bytes.len()), place(witnesses.len()));
            bytes.extend_from_slice(text.as_bytes());
            witnesses.extend(text_witnesses);
            let (hash, length, end) = (hash(&text), place(text.len()), place(witnesses.len()));
            entries.push((hash, Cell { tag: tag(hash), from, length, first, end }));
        }
        let capacity = if entries.is_empty() { 0 } else { (entries.len() * 2).next_power_of_two() };
        let mut cells = vec![Cell::default(); capacity];
        let mut filter = vec![0; capacity.div_ceil(8)];
        for (hash, cell) in entries {
            let (word, bit) = bit(hash, filter.len());
            filter[word] |= bit;
            let mut at = start(hash, capacity);
            while !cells[at].is_empty() {
                at = (at + 1) & (capacity - 1);
            }
            cells[at] = cell;
        }
        Self { filter: filter.into(), cells: cells.into(), bytes: bytes.into(), witnesses: witnesses.into() }
    }

    /// Witnesses of a text.
    pub(crate) fn get(&self, text: &str) -> &[Witness] {
        if self.filter.is_empty() {
            return &[];
        }
        let hash = hash(text);
        let (word, bit) = bit(hash, self.filter.len());
        // Most values of items occur in no rule and end here.
        if self.filter[word] & bit == 0 {
            return &[];
        }
        // Linear probing. It ends, because at least half of the cells are empty.
        let mut at = start(hash, self.cells.len());
        loop {
            let cell = &self.cells[at];
            if cell.is_empty() {
                return &[];
            }
            if cell.tag == tag(hash) {
                let (from, length) = (cell.from as usize, cell.length as usize);
                if self.bytes[from..from + length] == *text.as_bytes() {
                    return &self.witnesses[cell.first as usize..cell.end as usize];
                }
            }
            at = (at + 1) & (self.cells.len() - 1);
        }
    }
}

impl Cell {
    fn is_empty(&self) -> bool {
        self.first == self.end
    }
}

fn tag(hash: u64) -> u32 {
    u32::try_from(hash >> 32).unwrap_or_default()
}

fn hash(text: &str) -> u64 {
    let mut hasher = BuildFastHasher.build_hasher();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Word and bit of a hash in the bit map; `words` is a power of two.
fn bit(hash: u64, words: usize) -> (usize, u64) {
    (usize::try_from(hash >> 40 & (words as u64 - 1)).unwrap_or_default(), 1 << (hash >> 34 & 63))
}

/// First cell of a search; `cells` is a power of two.
fn start(hash: u64, cells: usize) -> usize {
    usize::try_from(hash & (cells as u64 - 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_returns_only_the_witnesses_of_the_text() {
        for count in [0, 1, 2, 3, 500] {
            let witness = |of: u32| Witness { predicate: of, is_proved: true, from: 0, to: 1 };
            let list = |nth: u32| (0..=nth % 3).map(|more| witness(nth * 10 + more)).collect::<Vec<_>>();
            // The hash does not distinguish trailing zeros, so the comparison of bytes must.
            let name = |nth: u32| format!("{nth}{}", "\0".repeat(nth as usize % 4)).into_boxed_str();
            let texts = Texts::new((0..count).map(|nth| (name(nth), list(nth))));
            for nth in 0..count {
                assert_eq!(texts.get(&name(nth)), list(nth));
                assert_eq!(texts.get(&format!("{}\0", name(nth))), []);
            }
            assert_eq!(texts.get(""), []);
            assert_eq!(texts.get("x"), []);
        }
    }
}
