//! Takes in what banks are and what changes in them, and shows the newest state to whoever compares.
//!
//! It does not ask anybody for entries, and has no clock.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_schemas::{
    banks::HashKind,
    ids::{BankId, Millis},
};
use uuid::Uuid;

use super::{
    Bank, Change, Entry, Hash, HashBanks, Settings,
    find::State,
    shelf::{Numbers, Shelf, Tag},
};
use crate::index::Bits;

/// The hash banks of an organisation. One at a time changes them, any number look at them meanwhile.
pub struct Keeper {
    current: ArcSwap<State>,
    writer: Mutex<Writer>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Writer {
    numbers: BTreeMap<HashKind, Numbers>,
    places: HashMap<BankId, Places>,
    /// The kinds that have rows at places where no bank stands any more.
    left: BTreeSet<HashKind>,
    /// What changed since a shelf is being built anew.
    since: Option<Vec<Logged>>,
}

/// Where the entries of a bank stand: those that came to it, and those of its document.
#[derive(Clone, Debug)]
struct Places {
    kind: HashKind,
    added: u32,
    /// Whether anything ever came there.
    is_filled: bool,
    written: u32,
    hashes: Vec<Hash>,
}

struct Logged {
    kind: HashKind,
    place: u32,
    changes: Vec<(Hash, Option<Arc<Entry>>)>,
}

/// What all states have in common.
#[derive(Default)]
pub(super) struct Shared {
    now: AtomicI64,
    pub(super) looked: AtomicU64,
    pub(super) truncated: AtomicU64,
    pub(super) checked: AtomicU64,
    pub(super) differed: AtomicU64,
    seen: Mutex<Vec<(BankId, Uuid)>>,
}

impl Shared {
    pub(super) fn now(&self) -> Millis {
        Millis(self.now.load(Ordering::Relaxed))
    }

    pub(super) fn see(&self, bank: BankId, entry: Uuid) {
        let mut seen = self.seen.lock();
        // Whoever counts them looks often; what is beyond has jumped anyway.
        if seen.len() < MOST_SEEN {
            seen.push((bank, entry));
        }
    }
}

const MOST_SEEN: usize = 65_536;

/// How often media were compared, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub looked: u64,
    /// More was near than is told.
    pub truncated: u64,
    /// Compared again with every entry.
    pub checked: u64,
    /// Of these, the index found something else: it is broken.
    pub differed: u64,
}

/// How much there is of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub kind: HashKind,
    pub entries: usize,
    /// In memory.
    pub bytes: usize,
}

/// Calls with the shelf of a kind.
macro_rules! on_shelf {
    ($state:expr, $kind:expr, $shelf:ident => $then:expr) => {
        match $kind {
            HashKind::Pdq => {
                let $shelf = &mut $state.pdq;
                $then
            }
            HashKind::Gradient => {
                let $shelf = &mut $state.gradient;
                $then
            }
            HashKind::Md5 => {
                let $shelf = &mut $state.md5;
                $then
            }
            HashKind::Sha1 => {
                let $shelf = &mut $state.sha1;
                $then
            }
            HashKind::Sha256 => {
                let $shelf = &mut $state.sha256;
                $then
            }
            HashKind::Photodna => {
                let $shelf = &mut $state.photodna;
                $then
            }
            HashKind::Netclean => {
                let $shelf = &mut $state.netclean;
                $then
            }
        }
    };
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("sizes", &self.sizes()).finish_non_exhaustive()
    }
}

impl Keeper {
    pub fn new(settings: Settings) -> Self {
        let shared = Arc::new(Shared::default());
        let state = State {
            version: 0,
            settings,
            banks: Arc::default(),
            places: Arc::default(),
            pdq: Shelf::empty(true),
            gradient: Shelf::empty(true),
            md5: Shelf::empty(false),
            sha1: Shelf::empty(false),
            sha256: Shelf::empty(false),
            photodna: Shelf::empty(false),
            netclean: Shelf::empty(false),
            shared: Arc::clone(&shared),
        };
        Self { current: ArcSwap::from_pointee(state), writer: Mutex::default(), shared }
    }

    /// The newest state.
    pub fn current(&self) -> HashBanks {
        HashBanks(self.current.load_full())
    }

    /// What time it is: entries that have expired by then count no more.
    pub fn tick(&self, now: Millis) {
        self.shared.now.store(now.0, Ordering::Relaxed);
    }

    /// Which banks there are. One that is not named, or is of another kind now, is forgotten with its entries.
    pub fn configure(&self, banks: Vec<Bank>) {
        let mut writer = self.writer.lock();
        let mut state = State::clone(&self.current.load());
        let kinds: HashMap<&BankId, HashKind> = banks.iter().map(|bank| (&bank.id, bank.kind)).collect();
        let Writer { places, left, .. } = &mut *writer;
        places.retain(|bank, places| {
            let stays = kinds.get(bank) == Some(&places.kind);
            if !stays && (places.is_filled || !places.hashes.is_empty()) {
                left.insert(places.kind);
            }
            stays
        });
        let mut fresh = state.places.len();
        let mut place = || {
            fresh += 1;
            u32::try_from(fresh - 1).unwrap_or(u32::MAX)
        };
        for bank in &banks {
            let (kind, hashes) = (bank.kind, bank.written.clone());
            let places = match writer.places.get(&bank.id) {
                Some(there) if there.hashes == hashes => continue,
                Some(there) => Places { written: place(), hashes, ..there.clone() },
                None => Places { kind, added: place(), is_filled: false, written: place(), hashes },
            };
            let written = places.written;
            let before = writer.places.insert(bank.id.clone(), places);
            if before.is_some_and(|before| !before.hashes.is_empty()) {
                writer.left.insert(kind);
            }
            let entry = Arc::<Entry>::default();
            let changes = bank.written.iter().map(|hash| (*hash, Some(Arc::clone(&entry)))).collect();
            writer.put(&mut state, Logged { kind, place: written, changes });
        }
        state.banks = Arc::new(banks);
        writer.settle_places(&mut state);
        self.publish(state);
    }

    /// Changes entries of a bank; those of one that is not configured are passed over.
    pub fn apply(&self, bank: &BankId, changes: impl IntoIterator<Item = Change>) {
        let mut writer = self.writer.lock();
        let Some(places) = writer.places.get_mut(bank) else { return };
        places.is_filled = true;
        let (kind, place) = (places.kind, places.added);
        let mut state = State::clone(&self.current.load());
        let of_kind = changes.into_iter().filter(|change| change.hash.kind() == kind);
        let changes = of_kind.map(|change| (change.hash, change.entry.map(Arc::new))).collect();
        writer.put(&mut state, Logged { kind, place, changes });
        self.publish(state);
    }

    /// Replaces all entries that came to a bank at once.
    pub fn load(&self, bank: &BankId, loading: Loading) {
        let writer = &mut *self.writer.lock();
        let mut state = State::clone(&self.current.load());
        let place = u32::try_from(state.places.len()).unwrap_or(u32::MAX);
        let Some(places) = writer.places.get_mut(bank).filter(|it| it.kind == loading.kind) else { return };
        places.added = place;
        if mem::replace(&mut places.is_filled, true) {
            writer.left.insert(loading.kind);
        }
        writer.put(&mut state, Logged { kind: loading.kind, place, changes: loading.entries });
        writer.settle_places(&mut state);
        self.publish(state);
    }

    /// Whether look-ups would be faster, or the memory smaller, after `rebuild`.
    pub fn is_worn(&self) -> bool {
        let left = self.writer.lock().left.clone();
        let mut state = State::clone(&self.current.load());
        HashKind::ALL
            .into_iter()
            .any(|kind| left.contains(&kind) || on_shelf!(state, kind, shelf => shelf.is_worn()))
    }

    /// Builds anew what is worn; look-ups and changes go on meanwhile. It takes seconds for millions of entries.
    pub fn rebuild(&self) {
        let (mut state, left) = {
            let mut writer = self.writer.lock();
            if writer.since.is_some() {
                return;
            }
            writer.since = Some(Vec::new());
            (State::clone(&self.current.load()), mem::take(&mut writer.left))
        };
        let now = self.shared.now();
        let mut renumbered = BTreeMap::new();
        for kind in HashKind::ALL {
            on_shelf!(state, kind, shelf => if left.contains(&kind) || shelf.is_worn() {
                let is_kept = |tag: &Tag| state.places.get(tag.place as usize).is_some_and(Option::is_some) && tag.counts(now);
                let (rebuilt, numbers) = shelf.rebuilt(is_kept);
                *shelf = rebuilt;
                renumbered.insert(kind, numbers);
            });
        }
        let mut writer = self.writer.lock();
        let since = writer.since.take().unwrap_or_default();
        let current = self.current.load();
        // What nothing was done about is newer there.
        let mut next = State::clone(&current);
        for kind in renumbered.keys() {
            match kind {
                HashKind::Pdq => next.pdq = state.pdq.clone(),
                HashKind::Gradient => next.gradient = state.gradient.clone(),
                HashKind::Md5 => next.md5 = state.md5.clone(),
                HashKind::Sha1 => next.sha1 = state.sha1.clone(),
                HashKind::Sha256 => next.sha256 = state.sha256.clone(),
                HashKind::Photodna => next.photodna = state.photodna.clone(),
                HashKind::Netclean => next.netclean = state.netclean.clone(),
            }
        }
        let rebuilt: Vec<HashKind> = renumbered.keys().copied().collect();
        writer.numbers.extend(renumbered);
        for logged in since {
            if rebuilt.contains(&logged.kind) {
                writer.put(&mut next, logged);
            }
        }
        self.publish(next);
    }

    /// The entries of watched banks that media were like since the last call, once for each time.
    pub fn seen(&self) -> Vec<(BankId, Uuid)> {
        mem::take(&mut *self.shared.seen.lock())
    }

    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            looked: of(&self.shared.looked),
            truncated: of(&self.shared.truncated),
            checked: of(&self.shared.checked),
            differed: of(&self.shared.differed),
        }
    }

    pub fn sizes(&self) -> [Size; HashKind::ALL.len()] {
        let mut state = State::clone(&self.current.load());
        HashKind::ALL.map(|kind| {
            let (entries, bytes) = on_shelf!(state, kind, shelf => (shelf.len(), shelf.bytes()));
            Size { kind, entries, bytes }
        })
    }

    /// The caller holds the writer's lock.
    fn publish(&self, mut state: State) {
        state.version += 1;
        self.current.store(Arc::new(state));
    }
}

impl Writer {
    fn put(&mut self, state: &mut State, logged: Logged) {
        fn bits<const W: usize>(
            changes: &[(Hash, Option<Arc<Entry>>)],
        ) -> Vec<(Bits<W>, Option<Arc<Entry>>)> {
            let mut all: Vec<_> =
                changes.iter().map(|(hash, entry)| (Bits::of(hash.bytes()), entry.clone())).collect();
            // The last word about a hash counts.
            all.reverse();
            all.sort_by_key(|(bits, _)| *bits);
            all.dedup_by_key(|(bits, _)| *bits);
            all
        }
        let Logged { kind, place, changes } = &logged;
        let numbers = self.numbers.entry(*kind).or_default();
        on_shelf!(state, kind, shelf => *shelf = shelf.with(*place, bits(changes), numbers));
        if let Some(since) = &mut self.since {
            since.push(logged);
        }
    }

    /// Which bank stands where.
    fn settle_places(&self, state: &mut State) {
        let all = self.places.values().flat_map(|it| [it.added, it.written]);
        let count = all.max().map_or(0, |last| last as usize + 1).max(state.places.len());
        let mut places = vec![None; count];
        for (nth, bank) in state.banks.iter().enumerate() {
            for place in self.places.get(&bank.id).iter().flat_map(|it| [it.added, it.written]) {
                places[place as usize] = Some(nth);
            }
        }
        state.places = Arc::new(places);
    }
}

/// All entries of a bank, on their way into a `Keeper`.
pub struct Loading {
    kind: HashKind,
    entries: Vec<(Hash, Option<Arc<Entry>>)>,
    /// Many entries have the same beside them.
    known: HashSet<Arc<Entry>>,
}

impl Loading {
    pub fn new(kind: HashKind) -> Self {
        Self { kind, entries: Vec::new(), known: HashSet::new() }
    }

    pub fn push(&mut self, hash: Hash, entry: Entry) {
        if hash.kind() != self.kind {
            return;
        }
        let entry = self.known.get(&entry).cloned().unwrap_or_else(|| {
            let new = Arc::new(entry);
            self.known.insert(Arc::clone(&new));
            new
        });
        self.entries.push((hash, Some(entry)));
    }

    /// Takes an entry out again that was pushed before.
    pub fn remove(&mut self, hash: Hash) {
        self.entries.push((hash, None));
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
