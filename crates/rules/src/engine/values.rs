//! Texts by which predicates are indexed: one look at a small map of bits says that a value is none of them.
//!
//! It compares whole values, and finds no parts of them.

use std::hash::{BuildHasher as _, Hasher as _};

use super::witness::Witness;
use crate::search::hashing::BuildFastHasher;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Bits by hash, at least 16 for each text; empty if there is no text. Small, because most values end here.
    known: Box<[u64]>,
    /// A power of two, at most half of them in use.
    cells: Box<[Cell]>,
    bytes: Box<[u8]>,
    witnesses: Box<[Witness]>,
}

/// All that is known of a text, so that its bytes and its witnesses are looked at without waiting for each other.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The upper half of the text's hash.
    tag: u32,
    /// Position of the text's bytes.
    from: u32,
    length: u32,
    /// Position of its witnesses; the cell is empty if there are none.
    first: u32,
    end: u32,
}

impl Texts {
    /// Each text once, with its witnesses.
    pub(crate) fn new(texts: impl IntoIterator<Item = (Box<str>, Vec<Witness>)>) -> Self {
        let mut entries = Vec::new();
        let (mut bytes, mut witnesses) = (Vec::new(), Vec::new());
        let place = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        for (text, of_text) in texts {
            let (from, first) = (place(bytes.len()), place(witnesses.len()));
            bytes.extend_from_slice(text.as_bytes());
            witnesses.extend(of_text);
            let (hash, length, end) = (hash(&text), place(text.len()), place(witnesses.len()));
            entries.push((hash, Cell { tag: tag(hash), from, length, first, end }));
        }
        let room = if entries.is_empty() { 0 } else { (entries.len() * 2).next_power_of_two() };
        let mut cells = vec![Cell::default(); room];
        let mut known = vec![0; room.div_ceil(8)];
        for (hash, cell) in entries {
            let (word, bit) = bit(hash, known.len());
            known[word] |= bit;
            let mut at = start(hash, room);
            while !cells[at].is_empty() {
                at = (at + 1) & (room - 1);
            }
            cells[at] = cell;
        }
        Self { known: known.into(), cells: cells.into(), bytes: bytes.into(), witnesses: witnesses.into() }
    }

    /// Witnesses of a text.
    pub(crate) fn get(&self, text: &str) -> &[Witness] {
        if self.known.is_empty() {
            return &[];
        }
        let hash = hash(text);
        let (word, bit) = bit(hash, self.known.len());
        if self.known[word] & bit == 0 {
            return &[];
        }
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

/// Position of a hash in the map; `words` is a power of two.
fn bit(hash: u64, words: usize) -> (usize, u64) {
    (usize::try_from(hash >> 40 & (words as u64 - 1)).unwrap_or_default(), 1 << (hash >> 34 & 63))
}

/// The cell where a search begins; `cells` is a power of two.
fn start(hash: u64, cells: usize) -> usize {
    usize::try_from(hash & (cells as u64 - 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_leads_to_its_own_witnesses_and_no_others() {
        for count in [0, 1, 2, 3, 500] {
            let witness = |of: u32| Witness { predicate: of, proved: true, from: 0, to: 1 };
            let list = |nth: u32| (0..=nth % 3).map(|more| witness(nth * 10 + more)).collect::<Vec<_>>();
            // Ends in zeros are what the hash does not tell apart.
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
