//! Applies changes to banks and publishes the newest snapshot. Callers provide entries and the time.

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

/// Hash banks of an org. One thread at a time changes them; any number of threads look hashes up meanwhile.
pub struct BankPublisher {
    current: ArcSwap<Snapshot>,
    writer: Mutex<Writer>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Writer {
    numbers: BTreeMap<HashKind, TagNumbers>,
    slots: HashMap<BankId, BankSlots>,
    /// Kinds with rows in slots without a bank. A rebuild removes these rows.
    orphaned_kinds: BTreeSet<HashKind>,
    /// Changes since the start of the running rebuild, to be repeated on its result. `None` if no rebuild runs.
    rebuild_log: Option<Vec<LoggedChange>>,
}

/// Slots of a bank: one for the entries added to it, one for the entries of its document. A new slot number replaces all
/// entries of a slot at once.
#[derive(Clone, Debug)]
struct BankSlots {
    kind: HashKind,
    added_slot: u32,
    /// True after the first change of added entries.
    has_added: bool,
    inline_slot: u32,
    inline_hashes: Vec<Hash>,
}

/// Change of the rows of one slot, in the form in which a rebuild repeats it.
struct LoggedChange {
    kind: HashKind,
    slot: u32,
    /// Entry of each changed hash; `None` removes the hash.
    changes: Vec<(Hash, Option<Arc<Entry>>)>,
}

/// Numbers of look-ups since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupCounts {
    pub lookups: u64,
    /// Look-ups with more matches than the limit.
    pub truncated: u64,
    /// Look-ups verified by comparing every entry.
    pub verified: u64,
    /// Verified look-ups with another result from the index. Any such look-up means a broken index.
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

/// Evaluates an expression with the snapshot of a kind. A macro, because the kinds differ in their number of words.
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

    /// Sets the clock. Entries expired by then no longer match.
    pub fn set_time(&self, now: Millis) {
        self.shared.now.store(now.0, Ordering::Relaxed);
    }

    /// Replaces the configuration of all banks. Removes the entries of every bank that is missing or has changed its kind.
    pub fn configure(&self, banks: Vec<Bank>) {
        let mut writer = self.writer.lock();
        let mut snapshot = Snapshot::clone(&self.current.load());
        let kinds: HashMap<&BankId, HashKind> = banks.iter().map(|bank| (&bank.id, bank.kind)).collect();
        let Writer { slots, orphaned_kinds: orphaned, .. } = &mut *writer;
        slots.retain(|bank, slots| {
            let is_kept = kinds.get(bank) == Some(&slots.kind);
            // A bank without rows leaves none behind, so it needs no rebuild.
            if !is_kept && (slots.has_added || !slots.inline_hashes.is_empty()) {
                orphaned.insert(slots.kind);
            }
            is_kept
        });
        let mut slot_count = snapshot.banks_by_slot.len();
        let mut new_slot = || {
            slot_count += 1;
            u32::try_from(slot_count - 1).unwrap_or(u32::MAX)
        };
        for bank in &banks {
            let (kind, inline_hashes) = (bank.kind, bank.inline_hashes.clone());
            let slots = match writer.slots.get(&bank.id) {
                // The document is unchanged, so its rows stay.
                Some(existing_slots) if existing_slots.inline_hashes == inline_hashes => continue,
                Some(existing_slots) => {
                    BankSlots { inline_slot: new_slot(), inline_hashes, ..existing_slots.clone() }
                }
                None => {
                    let (added, inline) = (new_slot(), new_slot());
                    BankSlots {
                        kind,
                        added_slot: added,
                        has_added: false,
                        inline_slot: inline,
                        inline_hashes,
                    }
                }
            };
            let slot = slots.inline_slot;
            let old_slots = writer.slots.insert(bank.id.clone(), slots);
            // The rows of the old document stay in the index, without a bank, until a rebuild.
            if old_slots.is_some_and(|old_slots| !old_slots.inline_hashes.is_empty()) {
                writer.orphaned_kinds.insert(kind);
            }
            let entry = Arc::<Entry>::default();
            let changes = bank.inline_hashes.iter().map(|hash| (*hash, Some(Arc::clone(&entry)))).collect();
            writer.apply_change(&mut snapshot, LoggedChange { kind, slot, changes });
        }
        snapshot.banks = Arc::new(banks);
        writer.assign_slots(&mut snapshot);
        self.publish(snapshot);
    }

    /// Changes entries of a bank. Ignores an unknown bank.
    pub fn apply(&self, bank: &BankId, changes: impl IntoIterator<Item = Change>) {
        let mut writer = self.writer.lock();
        let Some(slots) = writer.slots.get_mut(bank) else { return };
        slots.has_added = true;
        let (kind, slot) = (slots.kind, slots.added_slot);
        let mut snapshot = Snapshot::clone(&self.current.load());
        // The index of a kind has hashes of one length only.
        let changes_of_kind = changes.into_iter().filter(|change| change.hash.kind() == kind);
        let changes = changes_of_kind.map(|change| (change.hash, change.entry.map(Arc::new))).collect();
        writer.apply_change(&mut snapshot, LoggedChange { kind, slot, changes });
        self.publish(snapshot);
    }

    /// Replaces all added entries of a bank. Ignores an unknown bank or another kind.
    pub fn load(&self, bank: &BankId, load: BulkLoad) {
        let writer = &mut *self.writer.lock();
        let mut snapshot = Snapshot::clone(&self.current.load());
        let slot = u32::try_from(snapshot.banks_by_slot.len()).unwrap_or(u32::MAX);
        let Some(slots) = writer.slots.get_mut(bank).filter(|slots| slots.kind == load.kind) else { return };
        // A new slot hides all previous entries at once; a rebuild frees their memory later.
        slots.added_slot = slot;
        // Only a bank that had added entries leaves rows in its old slot.
        if mem::replace(&mut slots.has_added, true) {
            writer.orphaned_kinds.insert(load.kind);
        }
        writer.apply_change(&mut snapshot, LoggedChange { kind: load.kind, slot, changes: load.entries });
        writer.assign_slots(&mut snapshot);
        self.publish(snapshot);
    }

    /// True if `rebuild` would speed up look-ups or free memory.
    pub fn needs_rebuild(&self) -> bool {
        let orphaned = self.writer.lock().orphaned_kinds.clone();
        let mut snapshot = Snapshot::clone(&self.current.load());
        HashKind::ALL.into_iter().any(|kind| {
            orphaned.contains(&kind) || with_kind!(snapshot, kind, entries => entries.needs_rebuild())
        })
    }

    /// Rebuilds the kinds that need it. Look-ups and changes continue meanwhile. Takes seconds for millions of entries.
    pub fn rebuild(&self) {
        let (mut snapshot, orphaned) = {
            let mut writer = self.writer.lock();
            // Another thread is rebuilding; two would each miss the changes in the log of the other.
            if writer.rebuild_log.is_some() {
                return;
            }
            writer.rebuild_log = Some(Vec::new());
            (Snapshot::clone(&self.current.load()), mem::take(&mut writer.orphaned_kinds))
        };
        let rebuild_time = self.shared.current_time();
        let mut tag_numbers = BTreeMap::new();
        for kind in HashKind::ALL {
            let banks_by_slot = Arc::clone(&snapshot.banks_by_slot);
            let is_owned = |slot: u32| banks_by_slot.get(slot as usize).is_some_and(Option::is_some);
            with_kind!(snapshot, kind, entries => if orphaned.contains(&kind) || entries.needs_rebuild() {
                let (rebuilt_entries, numbers) = entries.rebuild(|tag: &Tag| is_owned(tag.slot) && tag.is_valid(rebuild_time));
                *entries = rebuilt_entries;
                tag_numbers.insert(kind, numbers);
            });
        }
        let mut writer = self.writer.lock();
        // Taken before the changes are repeated, which would otherwise be logged again.
        let log = writer.rebuild_log.take().unwrap_or_default();
        let current = self.current.load();
        // Only rebuilt kinds are copied: the current snapshot is newer for all others.
        let mut next_snapshot = Snapshot::clone(&current);
        for kind in tag_numbers.keys() {
            match kind {
                HashKind::Pdq => next_snapshot.pdq = snapshot.pdq.clone(),
                HashKind::Gradient => next_snapshot.gradient = snapshot.gradient.clone(),
                HashKind::Md5 => next_snapshot.md5 = snapshot.md5.clone(),
                HashKind::Sha1 => next_snapshot.sha1 = snapshot.sha1.clone(),
                HashKind::Sha256 => next_snapshot.sha256 = snapshot.sha256.clone(),
                HashKind::Photodna => next_snapshot.photodna = snapshot.photodna.clone(),
                HashKind::Netclean => next_snapshot.netclean = snapshot.netclean.clone(),
            }
        }
        // Changes made during the rebuild are applied again, because the rebuilt entries started from the old snapshot.
        let rebuilt_kinds: Vec<HashKind> = tag_numbers.keys().copied().collect();
        writer.numbers.extend(tag_numbers);
        for change in log {
            // Other kinds received these changes when they were made.
            if rebuilt_kinds.contains(&change.kind) {
                writer.apply_change(&mut next_snapshot, change);
            }
        }
        self.publish(next_snapshot);
    }

    /// Takes the matches of watched banks since the last call, as pairs of bank and entry.
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
    fn apply_change(&mut self, snapshot: &mut Snapshot, logged: LoggedChange) {
        fn distinct_changes<const W: usize>(
            changes: &[(Hash, Option<Arc<Entry>>)],
        ) -> Vec<(Bits<W>, Option<Arc<Entry>>)> {
            let mut distinct: Vec<_> =
                changes.iter().map(|(hash, entry)| (Bits::of(hash.bytes()), entry.clone())).collect();
            // The last change of a hash wins: the sort is stable and `dedup` keeps the first.
            distinct.reverse();
            distinct.sort_by_key(|(bits, _)| *bits);
            distinct.dedup_by_key(|(bits, _)| *bits);
            distinct
        }
        let LoggedChange { kind, slot, changes } = &logged;
        let numbers = self.numbers.entry(*kind).or_default();
        with_kind!(snapshot, kind, entries => *entries = entries.with_changes(*slot, distinct_changes(changes), numbers));
        if let Some(log) = &mut self.rebuild_log {
            log.push(logged);
        }
    }

    /// Records in a snapshot which bank owns each slot.
    fn assign_slots(&self, snapshot: &mut Snapshot) {
        let owned_slots = self.slots.values().flat_map(|slots| [slots.added_slot, slots.inline_slot]);
        let count = owned_slots.max().map_or(0, |last| last as usize + 1).max(snapshot.banks_by_slot.len());
        let mut banks_by_slot = vec![None; count];
        for (index, bank) in snapshot.banks.iter().enumerate() {
            for slot in
                self.slots.get(&bank.id).iter().flat_map(|slots| [slots.added_slot, slots.inline_slot])
            {
                banks_by_slot[slot as usize] = Some(index);
            }
        }
        snapshot.banks_by_slot = Arc::new(banks_by_slot);
    }
}

/// All entries of a bank, for `BankPublisher::load`.
pub struct BulkLoad {
    kind: HashKind,
    entries: Vec<(Hash, Option<Arc<Entry>>)>,
    /// Distinct entries. Many hashes have equal entries and share one allocation.
    shared_entries: HashSet<Arc<Entry>>,
}

impl BulkLoad {
    pub fn new(kind: HashKind) -> Self {
        Self { kind, entries: Vec::new(), shared_entries: HashSet::new() }
    }

    pub fn push(&mut self, hash: Hash, entry: Entry) {
        // The index of this kind has hashes of one length only.
        if hash.kind() != self.kind {
            return;
        }
        let entry = self.shared_entries.get(&entry).cloned().unwrap_or_else(|| {
            let shared_entry = Arc::new(entry);
            self.shared_entries.insert(Arc::clone(&shared_entry));
            shared_entry
        });
        self.entries.push((hash, Some(entry)));
    }

    /// Removes an entry pushed earlier: of several changes of a hash, the last one wins.
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
