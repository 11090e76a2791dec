//! Looks up hashes of media in a snapshot of an org's banks.

use std::{
    cmp::Reverse,
    iter,
    sync::{Arc, atomic::Ordering},
};

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use tidegate_schemas::{
    banks::HashKind,
    documents::Percent,
    ids::{BankId, Millis},
};

use super::{
    Bank, BankMatch, Entry, Hash,
    snapshot::{KindSnapshot, Snapshot},
};
use crate::{
    Fingerprint, State as MediaState,
    index::{Bits, SearchMode},
};

/// Snapshot of all hash banks of an org. Cheap to clone.
#[derive(Clone)]
pub struct HashBanks(pub(super) Arc<Snapshot>);

/// Hashes of a medium, for a look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaHashes {
    /// The picture, or the chosen frames of an animation, in each orientation.
    pub pictures: Vec<Picture>,
    pub gradient: Option<[u8; 8]>,
    pub md5: Option<[u8; 16]>,
    pub sha1: Option<[u8; 20]>,
    pub sha256: Option<[u8; 32]>,
    /// Digest of a hash that the platform supplied. Tidegate cannot compute this kind.
    pub photodna: Option<[u8; 32]>,
    pub netclean: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    pub pdq: [u8; 32],
    pub quality: u8,
    /// Index of the frame, if the medium has several.
    pub frame: Option<u32>,
}

/// Matches of a medium, the nearest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BankMatches {
    pub matches: Vec<BankMatch>,
    /// True if matches beyond the limit were dropped.
    pub truncated: bool,
    /// Banks without matches because another bank contains the medium and suppresses them.
    pub suppressed: Vec<BankId>,
}

impl MediaHashes {
    /// Collects single hashes: every PDQ hash as a picture of full quality, and the last hash of each other kind.
    pub fn from_hashes(hashes: &[Hash]) -> Self {
        let mut media_hashes = Self::default();
        for hash in hashes {
            let bytes = hash.bytes();
            match hash.kind() {
                HashKind::Pdq => {
                    let picture = |pdq| Picture { pdq, quality: u8::MAX, frame: None };
                    media_hashes.pictures.extend(bytes.try_into().map(picture));
                }
                HashKind::Gradient => media_hashes.gradient = bytes.try_into().ok(),
                HashKind::Md5 => media_hashes.md5 = bytes.try_into().ok(),
                HashKind::Sha1 => media_hashes.sha1 = bytes.try_into().ok(),
                HashKind::Sha256 => media_hashes.sha256 = bytes.try_into().ok(),
                HashKind::Photodna => media_hashes.photodna = bytes.try_into().ok(),
                HashKind::Netclean => media_hashes.netclean = bytes.try_into().ok(),
            }
        }
        media_hashes
    }

    /// Collects the hashes of a fingerprint; with `with_orientations`, also those of its rotated and mirrored pictures.
    pub fn from_fingerprint(fingerprint: &Fingerprint, with_orientations: bool) -> Self {
        let has_several = fingerprint.frames.len() > 1;
        let pictures = fingerprint.frames.iter().flat_map(|frame| {
            let reoriented_hashes = frame.turned.iter().filter(move |_| with_orientations);
            iter::once(&frame.pdq).chain(reoriented_hashes).map(move |pdq| Picture {
                pdq: pdq.0,
                quality: frame.quality,
                frame: has_several.then_some(frame.at),
            })
        });
        Self {
            pictures: pictures.collect(),
            // Gradient hashes have no quality of their own: without detail, they match each other by chance.
            gradient: fingerprint.gradient8.filter(|_| fingerprint.state == MediaState::Ok),
            md5: Some(fingerprint.digests.md5),
            sha1: Some(fingerprint.digests.sha1),
            sha256: Some(fingerprint.digests.sha256),
            ..Self::default()
        }
    }
}

impl HashBanks {
    /// Version of the snapshot, for caches of matches. Expiring entries do not change it.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// True if no bank is enabled.
    pub fn is_empty(&self) -> bool {
        !self.0.banks.iter().any(|bank| bank.enabled)
    }

    pub fn banks(&self) -> &[Bank] {
        &self.0.banks
    }

    /// Finds the matches of a fingerprint. The item's id selects the sampled banks.
    pub fn find(&self, item: &str, fingerprint: &Fingerprint) -> BankMatches {
        self.find_hashes(item, &MediaHashes::from_fingerprint(fingerprint, self.0.settings.turned))
    }

    /// Finds the matches of hashes, counts the look-up, and verifies one of `check_one_in` look-ups.
    pub fn find_hashes(&self, item: &str, hashes: &MediaHashes) -> BankMatches {
        let Snapshot { settings, shared, .. } = &*self.0;
        let number = shared.lookups.fetch_add(1, Ordering::Relaxed);
        let index_matches = self.search(&LookupScope::of_item(item), hashes, SearchMode::Index);
        let bank_matches = match settings.check_one_in {
            // 0 switches the verification off.
            0 => index_matches,
            interval if number.is_multiple_of(interval) => self.verify_by_scan(item, hashes, &index_matches),
            _ => index_matches,
        };
        shared.truncated.fetch_add(u64::from(bank_matches.truncated), Ordering::Relaxed);
        self.record_watched_matches(&bank_matches);
        bank_matches
    }

    /// Finds the matches of many media on all threads of the current pool.
    pub fn find_many(&self, media: &[(&str, &MediaHashes)]) -> Vec<BankMatches> {
        media.par_iter().map(|(item, hashes)| self.find_hashes(item, hashes)).collect()
    }

    /// Finds the same matches as `find_hashes` by comparing every entry. Slow.
    pub fn find_by_scan(&self, item: &str, hashes: &MediaHashes) -> BankMatches {
        self.search(&LookupScope::of_item(item), hashes, SearchMode::Scan)
    }

    /// Finds matches without counting them, for people inspecting banks: a look-up by hand must not quarantine an entry.
    pub fn inspect(&self, scope: &LookupScope<'_>, hashes: &MediaHashes) -> BankMatches {
        self.search(scope, hashes, SearchMode::Index)
    }

    /// Finds the matches of a stored fingerprint without counting them.
    pub fn find_past(&self, item: &str, fingerprint: &Fingerprint) -> BankMatches {
        let hashes = MediaHashes::from_fingerprint(fingerprint, self.0.settings.turned);
        self.inspect(&LookupScope::of_item(item), &hashes)
    }

    /// Repeats a look-up by scan, counts a mismatch, and returns the result of the scan.
    fn verify_by_scan(&self, item: &str, hashes: &MediaHashes, index_matches: &BankMatches) -> BankMatches {
        let shared = &self.0.shared;
        shared.verified.fetch_add(1, Ordering::Relaxed);
        let scan_matches = self.find_by_scan(item, hashes);
        shared.mismatches.fetch_add(u64::from(scan_matches != *index_matches), Ordering::Relaxed);
        scan_matches
    }

    fn record_watched_matches(&self, bank_matches: &BankMatches) {
        for bank_match in &bank_matches.matches {
            if self.0.banks.iter().any(|bank| bank.watched && bank.id == bank_match.bank) {
                self.0.shared.record_watched_match(bank_match.bank.clone(), bank_match.entry);
            }
        }
    }

    fn search(&self, scope: &LookupScope<'_>, hashes: &MediaHashes, mode: SearchMode) -> BankMatches {
        let snapshot = &*self.0;
        let mut search = Search {
            snapshot,
            scope,
            mode,
            now: snapshot.shared.current_time(),
            scope_by_bank: vec![None; snapshot.banks.len()],
            is_suppressor_hit: vec![false; snapshot.banks.len()],
            is_truncated: vec![false; snapshot.banks.len()],
            candidates: Vec::new(),
            prune_at: PRUNE_AT,
        };
        for picture in &hashes.pictures {
            // Pictures with little detail match unrelated ones by chance.
            if picture.quality >= snapshot.settings.least_quality {
                search.find_near(HashKind::Pdq, &snapshot.pdq, &picture.pdq, picture.frame);
            }
        }
        if let Some(hash) = &hashes.gradient {
            search.find_near(HashKind::Gradient, &snapshot.gradient, hash, None);
        }
        if let Some(hash) = &hashes.md5 {
            search.find_near(HashKind::Md5, &snapshot.md5, hash, None);
        }
        if let Some(hash) = &hashes.sha1 {
            search.find_near(HashKind::Sha1, &snapshot.sha1, hash, None);
        }
        if let Some(hash) = &hashes.sha256 {
            search.find_near(HashKind::Sha256, &snapshot.sha256, hash, None);
        }
        if let Some(hash) = &hashes.photodna {
            search.find_near(HashKind::Photodna, &snapshot.photodna, hash, None);
        }
        if let Some(hash) = &hashes.netclean {
            search.find_near(HashKind::Netclean, &snapshot.netclean, hash, None);
        }
        search.into_matches()
    }
}

/// Number of candidates at which pruning starts. Bounds the memory of a look-up that matches very many entries.
const PRUNE_AT: usize = 1_024;

/// Restriction of a look-up to an item's sample and to some banks.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupScope<'a> {
    /// Id of the item, which selects the sampled banks. `None` selects all banks.
    pub item: Option<&'a str>,
    /// Banks to search, in addition to the banks that suppress them. An empty list means all.
    pub banks: &'a [BankId],
}

impl<'a> LookupScope<'a> {
    fn of_item(item: &'a str) -> Self {
        Self { item: Some(item), banks: &[] }
    }

    fn includes(&self, bank: &BankId) -> bool {
        self.banks.is_empty() || self.banks.contains(bank)
    }
}

/// State of one look-up.
struct Search<'s> {
    snapshot: &'s Snapshot,
    scope: &'s LookupScope<'s>,
    mode: SearchMode,
    now: Millis,
    /// For each bank: true if in scope; `None` until the first candidate needs it.
    scope_by_bank: Vec<Option<bool>>,
    /// For each bank: true if it suppresses others and contains the medium.
    is_suppressor_hit: Vec<bool>,
    /// For each bank: true if `prune` dropped candidates.
    is_truncated: Vec<bool>,
    candidates: Vec<Candidate>,
    prune_at: usize,
}

struct Candidate {
    bank: usize,
    hash: Hash,
    distance: u32,
    frame: Option<u32>,
    entry: Arc<Entry>,
}

impl Search<'_> {
    fn find_near<const W: usize>(
        &mut self,
        kind: HashKind,
        entries: &KindSnapshot<W>,
        hash: &[u8],
        frame: Option<u32>,
    ) {
        let snapshot = self.snapshot;
        let enabled = snapshot.banks.iter().filter(|bank| bank.enabled && bank.kind == kind);
        let Some(radius) = enabled.map(|bank| bank.distance).max() else { return };
        // An entry may allow more than its bank. The search uses the largest distance; the callback checks each match. The
        // maximum of a file digest is 0, so digests match only if they are equal.
        let radius = radius.max(entries.max_entry_distance()).min(kind.max_distance());
        entries.find_near(&Bits::of(hash), radius, self.mode, |bits, distance, tag| {
            let slot = tag.slot as usize;
            let Some(bank) = snapshot.banks_by_slot.get(slot).copied().flatten() else { return };
            let max_distance = tag.entry.distance.map_or(snapshot.banks[bank].distance, u32::from);
            // Disabled banks and expired entries stay in the index until a rebuild, so they are filtered here.
            let is_match = snapshot.banks[bank].enabled && distance <= max_distance && tag.is_valid(self.now);
            if !is_match || !self.is_in_scope(bank) {
                return;
            }
            // A suppressing bank only removes matches of other banks and reports none itself.
            if !snapshot.banks[bank].suppresses.is_empty() {
                self.is_suppressor_hit[bank] = true;
                return;
            }
            let bytes = bits.bytes();
            let Some(hash) = Hash::new(kind, &bytes[..kind.byte_length()]) else { return };
            let entry = Arc::clone(&tag.entry);
            self.candidates.push(Candidate { bank, hash, distance, frame, entry });
            if self.candidates.len() >= self.prune_at {
                self.prune();
                // Grows with the remaining candidates, so that pruning is not repeated for every new one.
                self.prune_at = PRUNE_AT.max(2 * self.candidates.len());
            }
        });
    }

    fn is_in_scope(&mut self, bank: usize) -> bool {
        let (scope, Bank { id, sample, suppresses, .. }) = (self.scope, &self.snapshot.banks[bank]);
        *self.scope_by_bank[bank].get_or_insert_with(|| {
            // A bank outside the scope is searched if it suppresses one inside: its hit removes matches of that one.
            let is_included = scope.includes(id) || suppresses.iter().any(|bank| scope.includes(bank));
            is_included && scope.item.is_none_or(|item| is_in_sample(id, *sample, item))
        })
    }

    /// Removes duplicate entries, and the farthest candidates of a bank beyond the limit.
    fn prune(&mut self) {
        self.candidates.sort_unstable_by_key(|candidate| {
            (candidate.bank, candidate.hash, candidate.distance, candidate.frame)
        });
        self.candidates.dedup_by(|later, first| {
            let is_same = (later.bank, later.hash) == (first.bank, first.hash);
            // The hash is both in the bank's document, which has no labels, and among the added entries: keep the labels.
            if is_same && first.entry.labels.is_empty() {
                first.entry = Arc::clone(&later.entry);
            }
            is_same
        });
        self.candidates
            .sort_unstable_by_key(|candidate| (candidate.bank, candidate.distance, candidate.hash));
        let (mut bank, mut count) = (None, 0);
        self.candidates.retain(|candidate| {
            count = if bank == Some(candidate.bank) { count + 1 } else { 1 };
            bank = Some(candidate.bank);
            let is_returned = count <= self.snapshot.settings.matches;
            self.is_truncated[candidate.bank] |= !is_returned;
            is_returned
        });
    }

    fn into_matches(mut self) -> BankMatches {
        self.prune();
        let banks = &self.snapshot.banks;
        let suppressors = banks.iter().zip(&self.is_suppressor_hit).filter(|(_, is_hit)| **is_hit);
        let suppressed_ids = suppressors.flat_map(|(bank, _)| &bank.suppresses);
        let mut suppressed: Vec<&BankId> = suppressed_ids.filter(|bank| self.scope.includes(bank)).collect();
        suppressed.sort_unstable();
        suppressed.dedup();
        let is_allowed = |bank: usize| suppressed.binary_search(&&banks[bank].id).is_err();
        let mut visible_candidates: Vec<Candidate> =
            self.candidates.into_iter().filter(|candidate| is_allowed(candidate.bank)).collect();
        // Ties are broken by longer hashes, then by value and bank, so that the order is the same in every process.
        visible_candidates.sort_by(|left, right| {
            let key = |candidate: &Candidate| {
                (candidate.distance, Reverse(candidate.hash.kind().byte_length()), candidate.hash)
            };
            key(left).cmp(&key(right)).then_with(|| banks[left.bank].id.cmp(&banks[right.bank].id))
        });
        let max_matches = self.snapshot.settings.matches;
        let truncated = visible_candidates.len() > max_matches
            || (0..banks.len()).any(|bank| self.is_truncated[bank] && is_allowed(bank));
        let matches = visible_candidates.into_iter().take(max_matches).map(|candidate| {
            let bank = banks[candidate.bank].id.clone();
            BankMatch {
                entry: candidate.hash.entry_id(&bank),
                bank,
                kind: candidate.hash.kind(),
                distance: candidate.distance,
                labels: candidate.entry.labels.clone(),
                frame: candidate.frame,
            }
        });
        let matches = matches.collect();
        BankMatches { matches, truncated, suppressed: suppressed.into_iter().cloned().collect() }
    }
}

/// True if an item is in a bank's sample. Derived from their ids only, so that a replay selects the same banks.
fn is_in_sample(bank: &BankId, share: Percent, item: &str) -> bool {
    const ALL_HUNDREDTHS: u64 = 10_000;
    if u64::from(share.hundredths()) == ALL_HUNDREDTHS {
        return true;
    }
    // The separator keeps the pairs ("ab", "c") and ("a", "bc") apart.
    let mut digest = Sha256::new();
    digest.update(bank.as_str().as_bytes());
    digest.update([0]);
    digest.update(item.as_bytes());
    let digest = digest.finalize();
    let draw = digest.iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    draw % ALL_HUNDREDTHS < share.hundredths().into()
}
