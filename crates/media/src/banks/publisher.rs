//! Applies changes of banks and publishes the newest snapshot of them. Callers provide entries and the time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
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
    Bank, Change, Entry, Hash, Settings,
    search::HashBanks,
    snapshot::{KindSnapshot, Shared, Snapshot, Tag, TagNumbers},
};
use crate::index::Bits;

/// The hash banks of an org. One thread at a time changes them, while any number look hashes up.
pub struct BankPublisher {
    current: ArcSwap<Snapshot>,
    writer: Mutex<Writer>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Writer {
    numbers: BTreeMap<HashKind, TagNumbers>,
    slots: HashMap<BankId, BankSlots>,
    /// Kinds that have rows in slots that no bank owns any more.
    orphaned: BTreeSet<HashKind>,
    /// Changes since a rebuild began, if one is under way.
    rebuild_log: Option<Vec<LoggedChange>>,
}

/// Slots of a bank's entries: those that were added to it, and those that its document lists.
#[derive(Clone, Debug)]
struct BankSlots {
    kind: HashKind,
    added: u32,
    /// True once an entry was added.
    has_added: bool,
    inline: u32,
    inline_hashes: Vec<Hash>,
}

struct LoggedChange {
    kind: HashKind,
    slot: u32,
    changes: Vec<(Hash, Option<Arc<Entry>>)>,
}

/// Numbers of look-ups since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupCounts {
    pub lookups: u64,
    /// Look-ups with more matches than are returned.
    pub truncated: u64,
    /// Look-ups that were repeated by comparing every entry.
    pub verified: u64,
    /// Verified look-ups for which the index gave another result: the index is broken.
    pub mismatches: u64,
}

/// Number and memory of entries of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSize {
    pub kind: HashKind,
    pub entries: usize,
    /// Bytes in memory.
    pub bytes: usize,
}

/// Evaluates an expression with the snapshot of a kind.
macro_rules! with_kind {
    ($snapshot:expr, $kind:expr, $kind_snapshot:ident => $then:expr) => {
        match $kind {
            HashKind::Pdq => {
                let $kind_snapshot = &mut $snapshot.pdq;
                $then
            }
            HashKind::Gradient => {
                let $kind_snapshot = &mut $snapshot.gradient;
                $then
            }
            HashKind::Md5 => {
                let $kind_snapshot = &mut $snapshot.md5;
                $then
            }
            HashKind::Sha1 => {
                let $kind_snapshot = &mut $snapshot.sha1;
                $then
            }
            HashKind::Sha256 => {
                let $kind_snapshot = &mut $snapshot.sha256;
                $then
            }
            HashKind::Photodna => {
                let $kind_snapshot = &mut $snapshot.photodna;
                $then
            }
            HashKind::Netclean => {
                let $kind_snapshot = &mut $snapshot.netclean;
                $then
            }
        }
    };
}

impl fmt::Debug for BankPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BankPublisher").field("sizes", &self.sizes()).finish_non_exhaustive()
    }
}

impl BankPublisher {
    pub fn new(settings: Settings) -> Self {
        let shared = Arc::new(Shared::default());
        let snapshot = Snapshot {
            version: 0,
            settings,
            banks: Arc::default(),
            banks_by_slot: Arc::default(),
            pdq: KindSnapshot::empty(true),
            gradient: KindSnapshot::empty(true),
            md5: KindSnapshot::empty(false),
            sha1: KindSnapshot::empty(false),
            sha256: KindSnapshot::empty(false),
            photodna: KindSnapshot::empty(false),
            netclean: KindSnapshot::empty(false),
            shared: Arc::clone(&shared),
        };
        Self { current: ArcSwap::from_pointee(snapshot), writer: Mutex::default(), shared }
    }

    /// Returns the newest snapshot.
    pub fn current(&self) -> HashBanks {
        HashBanks(self.current.load_full())
    }

    /// Sets the time. Entries that have expired by then do not match any more.
    pub fn set_time(&self, now: Millis) {
        self.shared.now.store(now.0, Ordering::Relaxed);
    }

    /// Replaces the configuration of all banks. A bank that is missing, or has another kind now, is removed with its entries.
    pub fn configure(&self, banks: Vec<Bank>) {
        let mut writer = self.writer.lock();
        let mut snapshot = Snapshot::clone(&self.current.load());
        let kinds: HashMap<&BankId, HashKind> = banks.iter().map(|bank| (&bank.id, bank.kind)).collect();
        let Writer { slots, orphaned, .. } = &mut *writer;
        slots.retain(|bank, slots| {
            let stays = kinds.get(bank) == Some(&slots.kind);
            if !stays && (slots.has_added || !slots.inline_hashes.is_empty()) {
                orphaned.insert(slots.kind);
            }
            stays
        });
        let mut count = snapshot.banks_by_slot.len();
        let mut new_slot = || {
            count += 1;
            u32::try_from(count - 1).unwrap_or(u32::MAX)
        };
        for bank in &banks {
            let (kind, inline_hashes) = (bank.kind, bank.inline_hashes.clone());
            let slots = match writer.slots.get(&bank.id) {
                Some(known) if known.inline_hashes == inline_hashes => continue,
                Some(known) => BankSlots { inline: new_slot(), inline_hashes, ..known.clone() },
                None => {
                    let (added, inline) = (new_slot(), new_slot());
                    BankSlots { kind, added, has_added: false, inline, inline_hashes }
                }
            };
            let slot = slots.inline;
            let before = writer.slots.insert(bank.id.clone(), slots);
            if before.is_some_and(|before| !before.inline_hashes.is_empty()) {
                writer.orphaned.insert(kind);
            }
            let entry = Arc::<Entry>::default();
            let changes = bank.inline_hashes.iter().map(|hash| (*hash, Some(Arc::clone(&entry)))).collect();
            writer.put(&mut snapshot, LoggedChange { kind, slot, changes });
        }
        snapshot.banks = Arc::new(banks);
        writer.assign_slots(&mut snapshot);
        self.publish(snapshot);
    }

    /// Changes entries of a bank. A bank that is not configured is ignored.
    pub fn apply(&self, bank: &BankId, changes: impl IntoIterator<Item = Change>) {
        let mut writer = self.writer.lock();
        let Some(slots) = writer.slots.get_mut(bank) else { return };
        slots.has_added = true;
        let (kind, slot) = (slots.kind, slots.added);
        let mut snapshot = Snapshot::clone(&self.current.load());
        let of_kind = changes.into_iter().filter(|change| change.hash.kind() == kind);
        let changes = of_kind.map(|change| (change.hash, change.entry.map(Arc::new))).collect();
        writer.put(&mut snapshot, LoggedChange { kind, slot, changes });
        self.publish(snapshot);
    }

    /// Replaces all entries that were added to a bank.
    pub fn load(&self, bank: &BankId, load: BulkLoad) {
        let writer = &mut *self.writer.lock();
        let mut snapshot = Snapshot::clone(&self.current.load());
        let slot = u32::try_from(snapshot.banks_by_slot.len()).unwrap_or(u32::MAX);
        let Some(slots) = writer.slots.get_mut(bank).filter(|slots| slots.kind == load.kind) else { return };
        slots.added = slot;
        if mem::replace(&mut slots.has_added, true) {
            writer.orphaned.insert(load.kind);
        }
        writer.put(&mut snapshot, LoggedChange { kind: load.kind, slot, changes: load.entries });
        writer.assign_slots(&mut snapshot);
        self.publish(snapshot);
    }

    /// True if `rebuild` would make look-ups faster or the memory smaller.
    pub fn needs_rebuild(&self) -> bool {
        let orphaned = self.writer.lock().orphaned.clone();
        let mut snapshot = Snapshot::clone(&self.current.load());
        HashKind::ALL.into_iter().any(|kind| {
            orphaned.contains(&kind) || with_kind!(snapshot, kind, entries => entries.needs_rebuild())
        })
    }

    /// Rebuilds the kinds that need it, while look-ups and changes go on. Takes seconds for millions of entries.
    pub fn rebuild(&self) {
        let (mut snapshot, orphaned) = {
            let mut writer = self.writer.lock();
            if writer.rebuild_log.is_some() {
                return;
            }
            writer.rebuild_log = Some(Vec::new());
            (Snapshot::clone(&self.current.load()), mem::take(&mut writer.orphaned))
        };
        let now = self.shared.now();
        let mut renumbered = BTreeMap::new();
        for kind in HashKind::ALL {
            let banks_by_slot = Arc::clone(&snapshot.banks_by_slot);
            let is_owned = |slot: u32| banks_by_slot.get(slot as usize).is_some_and(Option::is_some);
            with_kind!(snapshot, kind, entries => if orphaned.contains(&kind) || entries.needs_rebuild() {
                let (rebuilt, numbers) = entries.rebuilt(|tag: &Tag| is_owned(tag.slot) && tag.is_valid(now));
                *entries = rebuilt;
                renumbered.insert(kind, numbers);
            });
        }
        let mut writer = self.writer.lock();
        let log = writer.rebuild_log.take().unwrap_or_default();
        let current = self.current.load();
        // Kinds that were not rebuilt are newer in the current snapshot.
        let mut next = Snapshot::clone(&current);
        for kind in renumbered.keys() {
            match kind {
                HashKind::Pdq => next.pdq = snapshot.pdq.clone(),
                HashKind::Gradient => next.gradient = snapshot.gradient.clone(),
                HashKind::Md5 => next.md5 = snapshot.md5.clone(),
                HashKind::Sha1 => next.sha1 = snapshot.sha1.clone(),
                HashKind::Sha256 => next.sha256 = snapshot.sha256.clone(),
                HashKind::Photodna => next.photodna = snapshot.photodna.clone(),
                HashKind::Netclean => next.netclean = snapshot.netclean.clone(),
            }
        }
        let rebuilt: Vec<HashKind> = renumbered.keys().copied().collect();
        writer.numbers.extend(renumbered);
        for change in log {
            if rebuilt.contains(&change.kind) {
                writer.put(&mut next, change);
            }
        }
        self.publish(next);
    }

    /// Takes the entries of watched banks that matched since the last call, one for each match.
    pub fn take_watched_matches(&self) -> Vec<(BankId, Uuid)> {
        mem::take(&mut *self.shared.watched_matches.lock())
    }

    pub fn counts(&self) -> LookupCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LookupCounts {
            lookups: value(&self.shared.lookups),
            truncated: value(&self.shared.truncated),
            verified: value(&self.shared.verified),
            mismatches: value(&self.shared.mismatches),
        }
    }

    pub fn sizes(&self) -> [KindSize; HashKind::ALL.len()] {
        let mut snapshot = Snapshot::clone(&self.current.load());
        HashKind::ALL.map(|kind| {
            let (entries, bytes) = with_kind!(snapshot, kind, entries => (entries.len(), entries.bytes()));
            KindSize { kind, entries, bytes }
        })
    }

    /// Publishes a snapshot. The caller holds the writer's lock.
    fn publish(&self, mut snapshot: Snapshot) {
        snapshot.version += 1;
        self.current.store(Arc::new(snapshot));
    }
}

impl Writer {
    fn put(&mut self, snapshot: &mut Snapshot, logged: LoggedChange) {
        fn bits<const W: usize>(
            changes: &[(Hash, Option<Arc<Entry>>)],
        ) -> Vec<(Bits<W>, Option<Arc<Entry>>)> {
            let mut all: Vec<_> =
                changes.iter().map(|(hash, entry)| (Bits::of(hash.bytes()), entry.clone())).collect();
            // The last change of a hash counts.
            all.reverse();
            all.sort_by_key(|(bits, _)| *bits);
            all.dedup_by_key(|(bits, _)| *bits);
            all
        }
        let LoggedChange { kind, slot, changes } = &logged;
        let numbers = self.numbers.entry(*kind).or_default();
        with_kind!(snapshot, kind, entries => *entries = entries.with(*slot, bits(changes), numbers));
        if let Some(log) = &mut self.rebuild_log {
            log.push(logged);
        }
    }

    /// Records in a snapshot which bank owns each slot.
    fn assign_slots(&self, snapshot: &mut Snapshot) {
        let all = self.slots.values().flat_map(|slots| [slots.added, slots.inline]);
        let count = all.max().map_or(0, |last| last as usize + 1).max(snapshot.banks_by_slot.len());
        let mut banks_by_slot = vec![None; count];
        for (index, bank) in snapshot.banks.iter().enumerate() {
            for slot in self.slots.get(&bank.id).iter().flat_map(|slots| [slots.added, slots.inline]) {
                banks_by_slot[slot as usize] = Some(index);
            }
        }
        snapshot.banks_by_slot = Arc::new(banks_by_slot);
    }
}

/// All entries of a bank, to be loaded at once.
pub struct BulkLoad {
    kind: HashKind,
    entries: Vec<(Hash, Option<Arc<Entry>>)>,
    /// Entries by content, because many hashes share one.
    known: HashSet<Arc<Entry>>,
}

impl BulkLoad {
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

    /// Removes an entry that was pushed before.
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
