//! Hash banks of an org: holds their entries in memory and finds the entries that media match.

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

/// Settings of comparing media with banks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of matches of one medium that are returned, the nearest first. Default 32.
    pub matches: usize,
    /// Least quality, from 0 to 100, of a picture that is compared by PDQ. Default 50.
    pub least_quality: u8,
    /// True to find pictures rotated and mirrored, too, which is eight times the work. Default true.
    pub turned: bool,
    /// One of so many look-ups is repeated by comparing every entry, to verify that the index misses none; 0 means never.
    /// Default 10,000.
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
    /// Number of bits that may differ, unless an entry sets its own.
    pub distance: u32,
    /// Share of items whose media are compared with the bank.
    pub sample: Percent,
    /// Banks whose matches are dropped for a medium that is in this one. Such a bank returns no matches itself.
    pub suppresses: Vec<BankId>,
    /// True if its matches are recorded for `BankPublisher::take_watched_matches`.
    pub watched: bool,
    /// Hashes that the bank's document lists.
    pub inline_hashes: Vec<Hash>,
}

impl Bank {
    /// True if both have the same configuration, except that one may be disabled.
    pub fn is_configured_as(&self, other: &Self) -> bool {
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

/// A hash of one kind; of a kind that is not computed here, the digest of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash {
    kind: HashKind,
    /// The bytes of the kind, padded with zeros.
    bytes: [u8; 32],
}

impl Hash {
    /// Returns `None` unless there are as many bytes as the kind has.
    pub fn new(kind: HashKind, bytes: &[u8]) -> Option<Self> {
        let mut all = [0; 32];
        all[..kind.byte_length()]
            .copy_from_slice((bytes.len() == kind.byte_length()).then_some(bytes)?);
        Some(Self { kind, bytes: all })
    }

    /// Reads hexadecimal digits, or the form of a kind that is not computed here.
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
        derived(bank, &self.hex())
    }
}

/// Returns the id of an entry: the same on every installation for the same value in a bank of the same name.
pub fn entry_id(bank: &BankId, kind: BankKind, value: &str) -> Uuid {
    // A look-up has only the digest of such a value.
    let digest =
        kind.hash_kind().filter(|kind| !kind.is_computed()).and_then(|kind| Hash::parse(kind, value));
    digest.map_or_else(|| derived(bank, value), |digest| digest.entry_id(bank))
}

fn derived(bank: &BankId, value: &str) -> Uuid {
    derive(IdKind::BankEntry, &[bank.as_str().as_bytes(), value.as_bytes()])
}

/// Properties of a bank's entry that matter for look-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Number of bits that may differ; the bank's if not set.
    pub distance: Option<u8>,
    pub labels: Vec<String>,
    /// Time from which the entry does not match any more.
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
