//! Hash banks of an org: keeps entries in memory and matches media against them.

mod publisher;
mod search;
mod snapshot;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    documents::Percent,
    hex::{self, hex},
    ids::{BankId, Kind as IdKind, Millis, derive},
};
use uuid::Uuid;

pub use self::{
    publisher::{BankPublisher, BulkLoad, KindSize, LookupCounts},
    search::{BankMatches, HashBanks, LookupScope, MediaHashes, Picture},
};

/// Settings of look-ups in hash banks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Largest number of returned matches of one medium, the nearest first. Default 32.
    pub matches: usize,
    /// Lowest quality, from 0 to 100, of a picture compared by PDQ. Default 50.
    pub least_quality: u8,
    /// True to find rotated and mirrored pictures as well, at eight times the cost. Default true.
    pub turned: bool,
    /// One look-up of this many is verified by comparing every entry, to detect a broken index; 0 means never. Default
    /// 10,000.
    pub check_one_in: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { matches: 32, least_quality: 50, turned: true, check_one_in: 10_000 }
    }
}

/// Configuration of a bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bank {
    pub id: BankId,
    pub kind: HashKind,
    pub enabled: bool,
    /// Largest distance of a match in bits, unless the entry sets its own.
    pub distance: u32,
    /// Share of items to compare with the bank.
    pub sample: Percent,
    /// Banks without matches for media of this bank (an allow list). A bank that suppresses others returns no matches
    /// itself.
    pub suppresses: Vec<BankId>,
    /// True if matches are recorded for `BankPublisher::take_watched_matches`.
    pub watched: bool,
    /// Hashes listed in the bank's document.
    pub inline_hashes: Vec<Hash>,
}

impl Bank {
    /// True if both have the same configuration, apart from `enabled`.
    pub fn is_configured_as(&self, other: &Self) -> bool {
        // Names every field, so that the compiler reports a new one that is not compared.
        let Self { id, kind, enabled: _, distance, sample, suppresses, watched, inline_hashes } = self;
        (id, kind, distance, sample, suppresses, watched, inline_hashes)
            == (
                &other.id,
                &other.kind,
                &other.distance,
                &other.sample,
                &other.suppresses,
                &other.watched,
                &other.inline_hashes,
            )
    }
}

/// Hash of one kind. For a kind that Tidegate cannot compute, the SHA-256 digest of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash {
    kind: HashKind,
    /// Bytes of the hash, padded with zeros.
    bytes: [u8; 32],
}

impl Hash {
    /// Returns `None` if the number of bytes does not fit the kind.
    pub fn new(kind: HashKind, bytes: &[u8]) -> Option<Self> {
        let mut padded_bytes = [0; 32];
        padded_bytes[..kind.byte_length()]
            .copy_from_slice((bytes.len() == kind.byte_length()).then_some(bytes)?);
        Some(Self { kind, bytes: padded_bytes })
    }

    /// Parses hexadecimal digits, or the text format of a kind that Tidegate cannot compute.
    pub fn parse(kind: HashKind, text: &str) -> Option<Self> {
        if !kind.is_computed() {
            return Self::new(kind, &Sha256::digest(kind.canonical(text).ok()?));
        }
        let mut bytes = [0; 32];
        hex::decode_into(text, &mut bytes[..kind.byte_length()])?;
        Some(Self { kind, bytes })
    }

    pub fn kind(&self) -> HashKind {
        self.kind
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.kind.byte_length()]
    }

    pub fn hex(&self) -> String {
        hex(self.bytes())
    }

    /// Returns the id of this hash's entry in a bank.
    pub fn entry_id(&self, bank: &BankId) -> Uuid {
        derive_entry_id(bank, &self.hex())
    }
}

/// Returns the id of an entry, derived from the bank's name and the value: equal on every installation.
pub fn entry_id(bank: &BankId, kind: BankKind, value: &str) -> Uuid {
    // The id of such a value is derived from its digest, because a look-up does not have the text.
    let digest =
        kind.hash_kind().filter(|kind| !kind.is_computed()).and_then(|kind| Hash::parse(kind, value));
    digest.map_or_else(|| derive_entry_id(bank, value), |digest| digest.entry_id(bank))
}

fn derive_entry_id(bank: &BankId, value: &str) -> Uuid {
    derive(IdKind::BankEntry, &[bank.as_str().as_bytes(), value.as_bytes()])
}

/// Properties of a bank entry for look-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Largest distance of a match in bits; defaults to the bank's.
    pub distance: Option<u8>,
    pub labels: Vec<String>,
    /// Time after which the entry no longer matches.
    pub expires_at: Option<Millis>,
}

/// Change of a hash in a bank: its new entry, or `None` to remove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub hash: Hash,
    pub entry: Option<Entry>,
}

/// Match of a medium with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankMatch {
    pub bank: BankId,
    pub entry: Uuid,
    pub kind: HashKind,
    /// Number of differing bits.
    pub distance: u32,
    pub labels: Vec<String>,
    /// Index of the frame, if the medium has several.
    pub frame: Option<u32>,
}

#[cfg(test)]
mod tests;
