//! Compares media with the banks of an organisation, at one state of them.
//!
//! It changes no bank; `Keeper` does.

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

use super::{Bank, BankMatch, Entry, Hash, Settings, keeper::Shared, shelf::Shelf};
use crate::{
    Fingerprint, State as MediaState,
    index::{Bits, Way},
};

/// All hash banks of an organisation as they were at one time. Cloning it is cheap.
#[derive(Clone)]
pub struct HashBanks(pub(super) Arc<State>);

#[derive(Clone)]
pub(super) struct State {
    /// Another one with every change.
    pub(super) version: u64,
    pub(super) settings: Settings,
    pub(super) banks: Arc<Vec<Bank>>,
    /// Which of the banks stands at a place; none where one was that is gone.
    pub(super) places: Arc<Vec<Option<usize>>>,
    pub(super) pdq: Shelf<4>,
    pub(super) gradient: Shelf<1>,
    pub(super) md5: Shelf<2>,
    pub(super) sha1: Shelf<3>,
    pub(super) sha256: Shelf<4>,
    pub(super) photodna: Shelf<4>,
    pub(super) netclean: Shelf<4>,
    pub(super) shared: Arc<Shared>,
}

/// What is compared of a medium: whatever is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    /// The picture, or several of one that moves.
    pub pictures: Vec<Picture>,
    pub gradient: Option<[u8; 8]>,
    pub md5: Option<[u8; 16]>,
    pub sha1: Option<[u8; 20]>,
    pub sha256: Option<[u8; 32]>,
    /// Digests of hashes that are not made here.
    pub photodna: Option<[u8; 32]>,
    pub netclean: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    pub pdq: [u8; 32],
    pub quality: u8,
    /// Which one it is, of a medium that has several.
    pub frame: Option<u32>,
}

/// What a medium is like, the nearest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub matches: Vec<BankMatch>,
    /// More was near than is told.
    pub truncated: bool,
    /// The banks whose matches do not count, because the medium is in one that says so.
    pub suppressed: Vec<BankId>,
}

impl Hashes {
    /// Of single hashes: of PDQ all of them, as pictures with much to see; of the other kinds the last.
    pub fn of(hashes: &[Hash]) -> Self {
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

    /// All that was made of a medium; with `turned`, also what its pictures have turned and mirrored.
    pub fn made(print: &Fingerprint, turned: bool) -> Self {
        let several = print.frames.len() > 1;
        let pictures = print.frames.iter().flat_map(|frame| {
            let others = frame.turned.iter().filter(move |_| turned);
            iter::once(&frame.pdq).chain(others).map(move |pdq| Picture {
                pdq: pdq.0,
                quality: frame.quality,
                frame: several.then_some(frame.at),
            })
        });
        Self {
            pictures: pictures.collect(),
            gradient: print.gradient8.filter(|_| print.state == MediaState::Ok),
            md5: Some(print.digests.md5),
            sha1: Some(print.digests.sha1),
            sha256: Some(print.digests.sha256),
            ..Self::default()
        }
    }
}

impl HashBanks {
    /// A number that no other state of this process has: whoever remembers matches remembers them with it. Entries that
    /// expire change it no more than the time does.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// Whether there is anything to compare with.
    pub fn is_empty(&self) -> bool {
        !self.0.banks.iter().any(|bank| bank.enabled)
    }

    pub fn banks(&self) -> &[Bank] {
        &self.0.banks
    }

    /// What the medium is like, the nearest first. The item's id decides which of the banks that take a sample it is compared with.
    pub fn find(&self, item: &str, print: &Fingerprint) -> Found {
        self.find_hashes(item, &Hashes::made(print, self.0.settings.turned))
    }

    /// The same for hashes that come from anywhere.
    pub fn find_hashes(&self, item: &str, hashes: &Hashes) -> Found {
        let state = &self.0;
        let nth = state.shared.looked.fetch_add(1, Ordering::Relaxed);
        let found = self.compared(&Asked::by(item), hashes, Way::Index);
        let found = match state.settings.check_one_in {
            0 => found,
            every if nth.is_multiple_of(every) => self.checked(item, hashes, &found),
            _ => found,
        };
        state.shared.truncated.fetch_add(u64::from(found.truncated), Ordering::Relaxed);
        self.watch(&found);
        found
    }

    /// The same for many media at once, on all threads of the pool that it is called in.
    pub fn find_many(&self, asked: &[(&str, &Hashes)]) -> Vec<Found> {
        asked.par_iter().map(|(item, hashes)| self.find_hashes(item, hashes)).collect()
    }

    /// As `find_hashes`, but every entry is compared: slow, and what the index must come to.
    pub fn find_plainly(&self, item: &str, hashes: &Hashes) -> Found {
        self.compared(&Asked::by(item), hashes, Way::Scan)
    }

    /// For people who want to know what is in banks: it is not counted, so no entry is put aside for being asked for.
    pub fn ask(&self, asked: &Asked<'_>, hashes: &Hashes) -> Found {
        self.compared(asked, hashes, Way::Index)
    }

    /// As `find`, for a medium of the past: not counted either.
    pub fn recall(&self, item: &str, print: &Fingerprint) -> Found {
        self.ask(&Asked::by(item), &Hashes::made(print, self.0.settings.turned))
    }

    fn checked(&self, item: &str, hashes: &Hashes, found: &Found) -> Found {
        let shared = &self.0.shared;
        shared.checked.fetch_add(1, Ordering::Relaxed);
        let plain = self.compared(&Asked::by(item), hashes, Way::Scan);
        shared.differed.fetch_add(u64::from(plain != *found), Ordering::Relaxed);
        plain
    }

    fn watch(&self, found: &Found) {
        for found in &found.matches {
            if self.0.banks.iter().any(|bank| bank.watched && bank.id == found.bank) {
                self.0.shared.see(found.bank.clone(), found.entry);
            }
        }
    }

    fn compared(&self, asked: &Asked<'_>, hashes: &Hashes, way: Way) -> Found {
        let state = &*self.0;
        let mut search = Search {
            state,
            asked,
            way,
            now: state.shared.now(),
            counts: vec![None; state.banks.len()],
            met: vec![false; state.banks.len()],
            cut: vec![false; state.banks.len()],
            near: Vec::new(),
            prune_at: PRUNE_AT,
        };
        for picture in &hashes.pictures {
            if picture.quality >= state.settings.least_quality {
                search.near(HashKind::Pdq, &state.pdq, &picture.pdq, picture.frame);
            }
        }
        if let Some(hash) = &hashes.gradient {
            search.near(HashKind::Gradient, &state.gradient, hash, None);
        }
        if let Some(hash) = &hashes.md5 {
            search.near(HashKind::Md5, &state.md5, hash, None);
        }
        if let Some(hash) = &hashes.sha1 {
            search.near(HashKind::Sha1, &state.sha1, hash, None);
        }
        if let Some(hash) = &hashes.sha256 {
            search.near(HashKind::Sha256, &state.sha256, hash, None);
        }
        if let Some(hash) = &hashes.photodna {
            search.near(HashKind::Photodna, &state.photodna, hash, None);
        }
        if let Some(hash) = &hashes.netclean {
            search.near(HashKind::Netclean, &state.netclean, hash, None);
        }
        search.found()
    }
}

/// Of entries that are near before the farther ones are left out for the first time.
const PRUNE_AT: usize = 1_024;

/// For whom is looked, and where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Its id decides which of the banks that take a sample count; without it all do.
    pub item: Option<&'a str>,
    /// Only these banks count, and those that take back what they say; all if there are none.
    pub banks: &'a [BankId],
}

impl<'a> Asked<'a> {
    fn by(item: &'a str) -> Self {
        Self { item: Some(item), banks: &[] }
    }

    fn wants(&self, bank: &BankId) -> bool {
        self.banks.is_empty() || self.banks.contains(bank)
    }
}

struct Search<'s> {
    state: &'s State,
    asked: &'s Asked<'s>,
    way: Way,
    now: Millis,
    /// Of each bank: whether it counts, once it was asked.
    counts: Vec<Option<bool>>,
    /// The banks among those that suppress others that the medium is in.
    met: Vec<bool>,
    /// The banks that had more than is told.
    cut: Vec<bool>,
    near: Vec<Near>,
    prune_at: usize,
}

struct Near {
    bank: usize,
    hash: Hash,
    distance: u32,
    frame: Option<u32>,
    entry: Arc<Entry>,
}

impl Search<'_> {
    fn near<const W: usize>(&mut self, kind: HashKind, shelf: &Shelf<W>, hash: &[u8], frame: Option<u32>) {
        let state = self.state;
        let enabled = state.banks.iter().filter(|bank| bank.enabled && bank.kind == kind);
        let Some(reach) = enabled.map(|bank| bank.distance).max() else { return };
        let reach = reach.max(shelf.own_distance()).min(kind.most_distance());
        shelf.near(&Bits::of(hash), reach, self.way, |bits, distance, tag| {
            let Some(bank) = state.places.get(tag.place as usize).copied().flatten() else { return };
            let own = tag.entry.distance.map_or(state.banks[bank].distance, u32::from);
            let is_met = state.banks[bank].enabled && distance <= own && tag.counts(self.now);
            if !is_met || !self.counts(bank) {
                return;
            }
            if !state.banks[bank].suppresses.is_empty() {
                self.met[bank] = true;
                return;
            }
            let bytes = bits.bytes();
            let Some(hash) = Hash::new(kind, &bytes[..kind.bytes()]) else { return };
            self.near.push(Near { bank, hash, distance, frame, entry: Arc::clone(&tag.entry) });
            if self.near.len() >= self.prune_at {
                self.prune();
                self.prune_at = PRUNE_AT.max(2 * self.near.len());
            }
        });
    }

    fn counts(&mut self, bank: usize) -> bool {
        let (asked, Bank { id, sample, suppresses, .. }) = (self.asked, &self.state.banks[bank]);
        *self.counts[bank].get_or_insert_with(|| {
            let is_wanted = asked.wants(id) || suppresses.iter().any(|bank| asked.wants(bank));
            is_wanted && asked.item.is_none_or(|item| is_in_sample(id, *sample, item))
        })
    }

    /// Leaves each entry once, and of each bank no more than can be told.
    fn prune(&mut self) {
        self.near.sort_unstable_by_key(|it| (it.bank, it.hash, it.distance, it.frame));
        self.near.dedup_by(|later, first| {
            let is_same = (later.bank, later.hash) == (first.bank, first.hash);
            // It stands in the bank's document, too, which says nothing but the hash.
            if is_same && first.entry.labels.is_empty() {
                first.entry = Arc::clone(&later.entry);
            }
            is_same
        });
        self.near.sort_unstable_by_key(|it| (it.bank, it.distance, it.hash));
        let (mut bank, mut count) = (None, 0);
        self.near.retain(|it| {
            count = if bank == Some(it.bank) { count + 1 } else { 1 };
            bank = Some(it.bank);
            let is_kept = count <= self.state.settings.matches;
            self.cut[it.bank] |= !is_kept;
            is_kept
        });
    }

    fn found(mut self) -> Found {
        self.prune();
        let banks = &self.state.banks;
        let met = banks.iter().zip(&self.met).filter(|(_, met)| **met);
        let all = met.flat_map(|(bank, _)| &bank.suppresses);
        let mut suppressed: Vec<&BankId> = all.filter(|bank| self.asked.wants(bank)).collect();
        suppressed.sort_unstable();
        suppressed.dedup();
        let counts = |bank: usize| suppressed.binary_search(&&banks[bank].id).is_err();
        let mut near: Vec<Near> = self.near.into_iter().filter(|it| counts(it.bank)).collect();
        near.sort_by(|left, right| {
            let key = |it: &Near| (it.distance, Reverse(it.hash.kind().bytes()), it.hash);
            key(left).cmp(&key(right)).then_with(|| banks[left.bank].id.cmp(&banks[right.bank].id))
        });
        let most = self.state.settings.matches;
        let truncated = near.len() > most || (0..banks.len()).any(|bank| self.cut[bank] && counts(bank));
        let matches = near.into_iter().take(most).map(|it| {
            let bank = banks[it.bank].id.clone();
            BankMatch {
                entry: it.hash.entry(&bank),
                bank,
                kind: it.hash.kind(),
                distance: it.distance,
                labels: it.entry.labels.clone(),
                frame: it.frame,
            }
        });
        let matches = matches.collect();
        Found { matches, truncated, suppressed: suppressed.into_iter().cloned().collect() }
    }
}

/// The same for an item whenever it is asked, so that a replay compares with the same banks.
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
