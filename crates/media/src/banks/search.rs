//! Looks hashes of media up in a snapshot of an org's banks.

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

/// All hash banks of an org at one time. Cheap to clone.
#[derive(Clone)]
pub struct HashBanks(pub(super) Arc<Snapshot>);

/// Hashes of a medium to look up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaHashes {
    /// The picture, or the chosen frames of an animation, in each orientation to look up.
    pub pictures: Vec<Picture>,
    pub gradient: Option<[u8; 8]>,
    pub md5: Option<[u8; 16]>,
    pub sha1: Option<[u8; 20]>,
    pub sha256: Option<[u8; 32]>,
    /// Digests of hashes that are not computed here.
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
    /// True if there were more matches than are returned.
    pub truncated: bool,
    /// Banks whose matches are dropped, because the medium is in a bank that suppresses them.
    pub suppressed: Vec<BankId>,
}

impl MediaHashes {
    /// Collects single hashes: all of PDQ, as pictures of full quality, and the last one of each other kind.
    pub fn from_hashes(hashes: &[Hash]) -> Self {
        let mut all = Self::default();
        for hash in hashes {
            let bytes = hash.bytes();
            match hash.kind() {
                HashKind::Pdq => {
                    let picture = |pdq| Picture { pdq, quality: u8::MAX, frame: None };
                    all.pictures.extend(bytes.try_into().map(picture));
                }
                HashKind::Gradient => all.gradient = bytes.try_into().ok(),
                HashKind::Md5 => all.md5 = bytes.try_into().ok(),
                HashKind::Sha1 => all.sha1 = bytes.try_into().ok(),
                HashKind::Sha256 => all.sha256 = bytes.try_into().ok(),
                HashKind::Photodna => all.photodna = bytes.try_into().ok(),
                HashKind::Netclean => all.netclean = bytes.try_into().ok(),
            }
        }
        all
    }

    /// Collects the hashes of a fingerprint. With `turned`, its pictures are looked up rotated and mirrored, too.
    pub fn from_fingerprint(fingerprint: &Fingerprint, turned: bool) -> Self {
        let has_several = fingerprint.frames.len() > 1;
        let pictures = fingerprint.frames.iter().flat_map(|frame| {
            let others = frame.turned.iter().filter(move |_| turned);
            iter::once(&frame.pdq).chain(others).map(move |pdq| Picture {
                pdq: pdq.0,
                quality: frame.quality,
                frame: has_several.then_some(frame.at),
            })
        });
        Self {
            pictures: pictures.collect(),
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

    /// Finds the matches of a fingerprint. The item's id decides which of the sampled banks it is compared with.
    pub fn find(&self, item: &str, fingerprint: &Fingerprint) -> BankMatches {
        self.find_hashes(item, &MediaHashes::from_fingerprint(fingerprint, self.0.settings.turned))
    }

    /// Finds the matches of hashes.
    pub fn find_hashes(&self, item: &str, hashes: &MediaHashes) -> BankMatches {
        let Snapshot { settings, shared, .. } = &*self.0;
        let number = shared.lookups.fetch_add(1, Ordering::Relaxed);
        let found = self.search(&LookupScope::of_item(item), hashes, SearchMode::Index);
        let found = match settings.check_one_in {
            0 => found,
            every if number.is_multiple_of(every) => self.verified(item, hashes, &found),
            _ => found,
        };
        shared.truncated.fetch_add(u64::from(found.truncated), Ordering::Relaxed);
        self.record_watched(&found);
        found
    }

    /// Finds the matches of many media, on all threads of the pool that it is called in.
    pub fn find_many(&self, media: &[(&str, &MediaHashes)]) -> Vec<BankMatches> {
        media.par_iter().map(|(item, hashes)| self.find_hashes(item, hashes)).collect()
    }

    /// Finds the same as `find_hashes` by comparing every entry, which is slow.
    pub fn find_by_scan(&self, item: &str, hashes: &MediaHashes) -> BankMatches {
        self.search(&LookupScope::of_item(item), hashes, SearchMode::Scan)
    }

    /// Finds matches without counting them, for people who inspect banks: no entry is quarantined for being looked up.
    pub fn inspect(&self, scope: &LookupScope<'_>, hashes: &MediaHashes) -> BankMatches {
        self.search(scope, hashes, SearchMode::Index)
    }

    /// Finds the matches of a fingerprint of the past, without counting them.
    pub fn find_past(&self, item: &str, fingerprint: &Fingerprint) -> BankMatches {
        let hashes = MediaHashes::from_fingerprint(fingerprint, self.0.settings.turned);
        self.inspect(&LookupScope::of_item(item), &hashes)
    }

    /// Repeats a look-up by scan, counts a difference, and returns the scan's result.
    fn verified(&self, item: &str, hashes: &MediaHashes, found: &BankMatches) -> BankMatches {
        let shared = &self.0.shared;
        shared.verified.fetch_add(1, Ordering::Relaxed);
        let scanned = self.find_by_scan(item, hashes);
        shared.mismatches.fetch_add(u64::from(scanned != *found), Ordering::Relaxed);
        scanned
    }

    fn record_watched(&self, found: &BankMatches) {
        for found in &found.matches {
            if self.0.banks.iter().any(|bank| bank.watched && bank.id == found.bank) {
                self.0.shared.record_watched_match(found.bank.clone(), found.entry);
            }
        }
    }

    fn search(&self, scope: &LookupScope<'_>, hashes: &MediaHashes, mode: SearchMode) -> BankMatches {
        let snapshot = &*self.0;
        let mut search = Search {
            snapshot,
            scope,
            mode,
            now: snapshot.shared.now(),
            is_in_scope: vec![None; snapshot.banks.len()],
            is_suppressor_hit: vec![false; snapshot.banks.len()],
            is_cut: vec![false; snapshot.banks.len()],
            candidates: Vec::new(),
            prune_at: PRUNE_AT,
        };
        for picture in &hashes.pictures {
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

/// Number of candidates at which the farther ones are dropped for the first time.
const PRUNE_AT: usize = 1_024;

/// Restricts a look-up to some banks.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupScope<'a> {
    /// Id of the item, which decides the sampled banks that it is compared with; without it, all are.
    pub item: Option<&'a str>,
    /// Banks to look up, together with those that suppress them; all if the list is empty.
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

struct Search<'s> {
    snapshot: &'s Snapshot,
    scope: &'s LookupScope<'s>,
    mode: SearchMode,
    now: Millis,
    /// Flag for each bank that is in scope; `None` until it is needed.
    is_in_scope: Vec<Option<bool>>,
    /// Flag for each bank that suppresses others and contains the medium.
    is_suppressor_hit: Vec<bool>,
    /// Flag for each bank that had more matches than are returned.
    is_cut: Vec<bool>,
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
        let radius = radius.max(entries.max_entry_distance()).min(kind.max_distance());
        entries.find_near(&Bits::of(hash), radius, self.mode, |bits, distance, tag| {
            let slot = tag.slot as usize;
            let Some(bank) = snapshot.banks_by_slot.get(slot).copied().flatten() else { return };
            let max = tag.entry.distance.map_or(snapshot.banks[bank].distance, u32::from);
            let is_match = snapshot.banks[bank].enabled && distance <= max && tag.is_valid(self.now);
            if !is_match || !self.is_in_scope(bank) {
                return;
            }
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
                self.prune_at = PRUNE_AT.max(2 * self.candidates.len());
            }
        });
    }

    fn is_in_scope(&mut self, bank: usize) -> bool {
        let (scope, Bank { id, sample, suppresses, .. }) = (self.scope, &self.snapshot.banks[bank]);
        *self.is_in_scope[bank].get_or_insert_with(|| {
            let is_included = scope.includes(id) || suppresses.iter().any(|bank| scope.includes(bank));
            is_included && scope.item.is_none_or(|item| is_in_sample(id, *sample, item))
        })
    }

    /// Keeps each entry once, and of each bank no more than can be returned.
    fn prune(&mut self) {
        self.candidates.sort_unstable_by_key(|it| (it.bank, it.hash, it.distance, it.frame));
        self.candidates.dedup_by(|later, first| {
            let is_same = (later.bank, later.hash) == (first.bank, first.hash);
            // The entry is in the bank's document, too, which lists only its hash.
            if is_same && first.entry.labels.is_empty() {
                first.entry = Arc::clone(&later.entry);
            }
            is_same
        });
        self.candidates.sort_unstable_by_key(|it| (it.bank, it.distance, it.hash));
        let (mut bank, mut count) = (None, 0);
        self.candidates.retain(|it| {
            count = if bank == Some(it.bank) { count + 1 } else { 1 };
            bank = Some(it.bank);
            let is_returned = count <= self.snapshot.settings.matches;
            self.is_cut[it.bank] |= !is_returned;
            is_returned
        });
    }

    fn into_matches(mut self) -> BankMatches {
        self.prune();
        let banks = &self.snapshot.banks;
        let suppressors = banks.iter().zip(&self.is_suppressor_hit).filter(|(_, is_hit)| **is_hit);
        let all = suppressors.flat_map(|(bank, _)| &bank.suppresses);
        let mut suppressed: Vec<&BankId> = all.filter(|bank| self.scope.includes(bank)).collect();
        suppressed.sort_unstable();
        suppressed.dedup();
        let is_allowed = |bank: usize| suppressed.binary_search(&&banks[bank].id).is_err();
        let mut near: Vec<Candidate> = self.candidates.into_iter().filter(|it| is_allowed(it.bank)).collect();
        near.sort_by(|left, right| {
            let key = |it: &Candidate| (it.distance, Reverse(it.hash.kind().byte_length()), it.hash);
            key(left).cmp(&key(right)).then_with(|| banks[left.bank].id.cmp(&banks[right.bank].id))
        });
        let max = self.snapshot.settings.matches;
        let truncated =
            near.len() > max || (0..banks.len()).any(|bank| self.is_cut[bank] && is_allowed(bank));
        let matches = near.into_iter().take(max).map(|it| {
            let bank = banks[it.bank].id.clone();
            BankMatch {
                entry: it.hash.entry_id(&bank),
                bank,
                kind: it.hash.kind(),
                distance: it.distance,
                labels: it.entry.labels.clone(),
                frame: it.frame,
            }
        });
        let matches = matches.collect();
        BankMatches { matches, truncated, suppressed: suppressed.into_iter().cloned().collect() }
    }
}

/// True if an item is in a bank's sample. The answer never changes, so a replay compares with the same banks.
fn is_in_sample(bank: &BankId, share: Percent, item: &str) -> bool {
    const WHOLE: u64 = 10_000;
    if u64::from(share.hundredths()) == WHOLE {
        return true;
    }
    let mut digest = Sha256::new();
    digest.update(bank.as_str().as_bytes());
    digest.update([0]);
    digest.update(item.as_bytes());
    let digest = digest.finalize();
    let drawn = digest.iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    drawn % WHOLE < share.hundredths().into()
}
