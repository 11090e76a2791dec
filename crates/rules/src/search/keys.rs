//! Keys of words: the parts by which words are found, in classes by length, and the probes for them.

use super::maps::{Coarse, Fine, Marks};

/// Ways to find words: by a part of `width` bytes, probed at every place or at every second one. A word that is probed at
/// every second place needs two parts, one byte apart, because one of them begins at an even place. Its key covers both
/// parts, and is looked up where one of them was found.
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

    /// Bytes of the key, which is also the minimum length of a word.
    pub(super) const fn key(self) -> usize {
        self.width + self.stride - 1
    }
}

/// One pass for the words of one or several classes: each place is looked up in a map of the beginnings of their parts.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) mask: u64,
    pub(super) stride: usize,
    /// Keys of each class.
    pub(super) keys: Vec<Keys>,
    pub(super) marks: Marks,
    pub(super) map: Coarse,
}

/// Keys of a class, with their length as a mask. Rare classes have a small map, so that checking it at all places costs
/// little.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) mask: u64,
    pub(super) fine: Fine,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// First bytes of the word. Most words are no longer, and other words already differ here.
    pub(super) first: u128,
    /// Position of all bytes of the word.
    pub(super) from: u32,
    pub(super) word: u32,
    pub(super) length: u16,
    /// Offset of the key inside of the word.
    pub(super) offset: u16,
}

/// Word with the key by which it is found.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedWord {
    pub(super) key: u64,
    /// Index in `CLASSES`.
    pub(super) class: usize,
    pub(super) entry: Entry,
}

impl KeyedWord {
    /// Parts of the key, of which one begins at an even place wherever the word occurs; or the only part.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, u64)> {
        let Class { width, stride } = CLASSES[self.class];
        (0..stride).map(move |offset| (offset, self.key >> (8 * offset) & mask(width)))
    }
}

pub(super) fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - 8 * width)
}

/// Bytes at a place as one number.
pub(super) fn at(word: &[u8], offset: usize, width: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(&word[offset..offset + width]);
    u64::from_le_bytes(bytes)
}
