//! Texts that announce predicates: one look at a table of hashes says that a value is none of them.
//!
//! It compares whole values, and finds no parts of them.

use std::hash::{BuildHasher as _, Hasher as _};

use super::hashing::Quickly;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// A power of two, at most half of them in use; empty if there is no text. Small, because most values end here.
    cells: Box<[Cell]>,
    entries: Box<[Entry]>,
    bytes: Box<[u8]>,
    witnesses: Box<[u32]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The upper half of the text's hash.
    tag: u32,
    /// The place of its entry, counted from one.
    entry: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the text's bytes are.
    from: u32,
    length: u32,
    /// Where its witnesses are.
    first: u32,
    end: u32,
}

impl Texts {
    /// Each text once, with what it announces.
    pub(crate) fn new(texts: impl IntoIterator<Item = (Box<str>, Vec<u32>)>) -> Self {
        let (mut entries, mut hashes) = (Vec::new(), Vec::new());
        let (mut bytes, mut witnesses) = (Vec::new(), Vec::new());
        let place = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        for (text, announced) in texts {
            let (from, first) = (place(bytes.len()), place(witnesses.len()));
            bytes.extend_from_slice(text.as_bytes());
            witnesses.extend(announced);
            entries.push(Entry { from, length: place(text.len()), first, end: place(witnesses.len()) });
            hashes.push(hash(&text));
        }
        let room = if entries.is_empty() { 0 } else { (entries.len() * 2).next_power_of_two() };
        let mut cells = vec![Cell::default(); room];
        for (nth, hash) in (1..).zip(hashes) {
            let mut at = start(hash, room);
            while cells[at].entry > 0 {
                at = (at + 1) & (room - 1);
            }
            cells[at] = Cell { tag: tag(hash), entry: nth };
        }
        Self {
            cells: cells.into(),
            entries: entries.into(),
            bytes: bytes.into(),
            witnesses: witnesses.into(),
        }
    }

    /// What a text announces.
    pub(crate) fn get(&self, text: &str) -> &[u32] {
        if self.cells.is_empty() {
            return &[];
        }
        let hash = hash(text);
        let mut at = start(hash, self.cells.len());
        loop {
            let cell = self.cells[at];
            let Some(nth) = cell.entry.checked_sub(1) else { return &[] };
            if cell.tag == tag(hash) {
                let Entry { from, length, first, end } = self.entries[nth as usize];
                let (from, length) = (from as usize, length as usize);
                if self.bytes[from..from + length] == *text.as_bytes() {
                    return &self.witnesses[first as usize..end as usize];
                }
            }
            at = (at + 1) & (self.cells.len() - 1);
        }
    }
}

fn tag(hash: u64) -> u32 {
    u32::try_from(hash >> 32).unwrap_or_default()
}

fn hash(text: &str) -> u64 {
    let mut hasher = Quickly.build_hasher();
    hasher.write(text.as_bytes());
    hasher.finish()
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
            let list = |nth: u32| (0..=nth % 3).map(|more| nth * 10 + more).collect::<Vec<_>>();
            // Ends in zeros are what the hash does not tell apart.
            let name = |nth: u32| format!("{nth}{}", "\0".repeat(nth as usize % 4)).into_boxed_str();
            let texts = Texts::new((0..count).map(|nth| (name(nth), list(nth))));
            for nth in 0..count {
                assert_eq!(texts.get(&name(nth)), list(nth));
                assert_eq!(texts.get(&format!("{}\0", name(nth))), [0_u32; 0]);
            }
            assert_eq!(texts.get(""), [0_u32; 0]);
            assert_eq!(texts.get("x"), [0_u32; 0]);
        }
    }
}
