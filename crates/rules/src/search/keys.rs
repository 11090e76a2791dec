//! Keys of words: the parts by which they are found, in classes by length, and the probes for them.

use super::maps::{Coarse, Fine, Marks};

/// A way to find words: by a part of so many bytes, looked for at every place or at every second one. A word that is
/// looked for at every second place needs two parts, one byte apart: one of them begins at an even place. Both lie in
/// its key, which is what is looked up where one of them was seen.
pub(super) const CLASSES: [Class; 8] = [
    Class::new(7, 2),
    Class::new(6, 2),
    Class::new(5, 2),
    Class::new(4, 2),
    Class::new(3, 2),
    Class::new(4, 1),
    Class::new(3, 1),
    Class::new(2, 1),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) width: usize,
    pub(super) stride: usize,
}

impl Class {
    const fn new(width: usize, stride: usize) -> Self {
        Self { width, stride }
    }

    /// Bytes of the key, and of the shortest word that it finds.
    pub(super) const fn key(self) -> usize {
        self.width + self.stride - 1
    }
}

/// One pass for the words of one or several classes: each place is held against a map of what their parts begin with.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) mask: u64,
    pub(super) stride: usize,
    /// Probes of each class.
    pub(super) keys: Vec<Keys>,
    pub(super) marks: Marks,
    pub(super) map: Coarse,
}

/// The keys of a class: of how many bytes they are, and which there are. Those of rare classes have a small map, so
/// that asking for them everywhere costs little.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) mask: u64,
    pub(super) fine: Fine,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The word's first bytes: others are told apart here, and of most words these are all.
    pub(super) first: u128,
    /// Position of all of its bytes.
    pub(super) from: u32,
    pub(super) word: u32,
    pub(super) length: u16,
    /// Offset of the key inside of the word.
    pub(super) offset: u16,
}

/// A word, and what it is found by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed {
    pub(super) key: u64,
    /// Index in `CLASSES`.
    pub(super) class: usize,
    pub(super) entry: Entry,
}

impl Keyed {
    /// Keys of which one stands at an even place wherever the word does, or the only one.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, u64)> {
        let Class { width, stride } = CLASSES[self.class];
        (0..stride).map(move |offset| (offset, self.key >> (8 * offset) & mask(width)))
    }
}

pub(super) fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - 8 * width)
}

/// The bytes at a place as one number.
pub(super) fn at(word: &[u8], offset: usize, width: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(&word[offset..offset + width]);
    u64::from_le_bytes(bytes)
}
