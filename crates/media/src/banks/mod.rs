//! The banks of hashes of an organisation, and what media are like in them.
//!
//! It fetches no entries and keeps none on disk; `Keeper` is told what they are.

mod find;
mod keeper;
mod shelf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    documents::Percent,
    hex,
    ids::{BankId, Kind as IdKind, Millis, derive},
};
use uuid::Uuid;

pub use self::{
    find::{Asked, Found, HashBanks, Hashes, Picture},
    keeper::{Counts, Keeper, Loading, Size},
};

/// How media are compared with banks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How many matches of one medium are told, the nearest first. Default 32.
    pub matches: usize,
    /// Pictures that are plainer are not compared by PDQ, from 0 to 100: their hashes say little. Default 50.
    pub least_quality: u8,
    /// Whether pictures are found turned and mirrored, too: eight times the work. Default true.
    pub turned: bool,
    /// Of so many comparisons one is made again with every entry, to see that the index misses none; 0 means never.
    /// Default 10,000.
    pub check_one_in: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { matches: 32, least_quality: 50, turned: true, check_one_in: 10_000 }
    }
}

/// What is configured of a bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bank {
    pub id: BankId,
    pub kind: HashKind,
    pub enabled: bool,
    /// How many bits may differ, where an entry does not say.
    pub distance: u32,
    /// The share of items whose media are compared with the bank.
    pub sample: Percent,
    /// The banks whose matches do not count for a medium that is in this one, which has no matches itself.
    pub suppresses: Vec<BankId>,
    /// Whether its matches are handed to whoever counts them.
    pub watched: bool,
    /// Entries that it always has.
    pub written: Vec<Hash>,
}

impl Bank {
    /// Whether they differ in nothing but that one may be switched off.
    pub fn is_configured_as(&self, other: &Self) -> bool {
        let Self { id, kind, enabled: _, distance, sample, suppresses, watched, written } = self;
        (id, kind, distance, sample, suppresses, watched, written)
            == (
                &other.id,
                &other.kind,
                &other.distance,
                &other.sample,
                &other.suppresses,
                &other.watched,
                &other.written,
            )
    }
}

/// A hash of one of the kinds; of a kind that is not made here, the digest of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash {
    kind: HashKind,
    /// As many as the kind has, then zeros.
    bytes: [u8; 32],
}

impl Hash {
    /// `None`: they are not as many bytes as the kind has.
    pub fn new(kind: HashKind, bytes: &[u8]) -> Option<Self> {
        let mut all = [0; 32];
        all[..kind.bytes()].copy_from_slice((bytes.len() == kind.bytes()).then_some(bytes)?);
        Some(Self { kind, bytes: all })
    }

    /// Reads hexadecimal digits, or whatever form a kind has that is not made here.
    pub fn parse(kind: HashKind, text: &str) -> Option<Self> {
        if !kind.is_made() {
            return Self::new(kind, &Sha256::digest(kind.canonical(text).ok()?));
        }
        let digits = text.as_bytes();
        if digits.len() != 2 * kind.bytes() {
            return None;
        }
        let mut all = [0; 32];
        for (byte, pair) in all.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self { kind, bytes: all })
    }

    pub fn kind(&self) -> HashKind {
        self.kind
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.kind.bytes()]
    }

    pub fn hex(&self) -> String {
        hex(self.bytes())
    }

    /// Of the entry that the hash is in a bank.
    pub fn entry(&self, bank: &BankId) -> Uuid {
        derived(bank, &self.hex())
    }
}

/// The id of an entry: the same for the same value in a bank of the same name, wherever it is.
pub fn entry_id(bank: &BankId, kind: BankKind, value: &str) -> Uuid {
    // Whoever compares has the digest alone.
    let digest = kind.hash().filter(|kind| !kind.is_made()).and_then(|kind| Hash::parse(kind, value));
    digest.map_or_else(|| derived(bank, value), |digest| digest.entry(bank))
}

fn derived(bank: &BankId, value: &str) -> Uuid {
    derive(IdKind::BankEntry, &[bank.as_str().as_bytes(), value.as_bytes()])
}

/// What stands beside the hash of an entry, as far as comparing goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// How many bits may differ; as the bank says if left out.
    pub distance: Option<u8>,
    pub labels: Vec<String>,
    /// From then on it counts no more.
    pub expires_at: Option<Millis>,
}

/// What becomes of a hash in a bank: an entry, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub hash: Hash,
    pub entry: Option<Entry>,
}

/// A medium is like an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankMatch {
    pub bank: BankId,
    pub entry: Uuid,
    pub kind: HashKind,
    /// How many bits differ.
    pub distance: u32,
    pub labels: Vec<String>,
    /// Which of several pictures of a medium.
    pub frame: Option<u32>,
}

#[cfg(test)]
mod tests;
