//! Hash banks of this process: loaded from their rows, updated by the feed, compared outside of the rule plan.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use tidegate_media::banks::{
    Bank, BankPublisher, BulkLoad, Change, Entry as HashEntry, Hash, LookupCounts, Settings,
};
use tidegate_schemas::{
    banks::HashKind,
    documents::{self, Percent, Quarantine},
    ids::{BankId, Millis, OrgId},
};
use tidegate_store::{
    RowRange, Store,
    tables::catalog::banks::{BankHash, BankHead},
};
use uuid::Uuid;

use super::{
    Banks, Entry, EntryUpdate,
    ledger::{self, BUCKET_COUNT},
    operation::Operation,
    rates::Rates,
};
use crate::{Error, content::Content};

pub(crate) struct LiveHashBanks {
    org: OrgId,
    publisher: Arc<BankPublisher>,
    /// Locked while the banks are brought up to date.
    state: tokio::sync::Mutex<State>,
    /// Revisions of the banks in the publisher, readable without waiting for `state`.
    revisions: Mutex<BTreeMap<BankId, i64>>,
    rates: Mutex<Rates>,
    quarantine_rules: Mutex<HashMap<BankId, Quarantine>>,
    reported_counts: Mutex<LookupCounts>,
    rebuild_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    documents: BankDocuments,
    heads: BTreeMap<BankId, BankHead>,
}

type BankDocuments = BTreeMap<BankId, documents::Bank>;

/// Collects the documents of the hash banks of a configuration.
pub(crate) fn collect_documents(content: &Content) -> BankDocuments {
    let banks = content.set.banks.values().map(|(_, document)| document);
    let hash_documents = banks.filter(|document| document.kind.hash_kind().is_some());
    hash_documents.map(|document| (document.key.clone(), document.clone())).collect()
}

impl LiveHashBanks {
    pub(crate) fn new(org: OrgId, settings: &Settings, now: Millis) -> Self {
        Self {
            org,
            publisher: Arc::new(BankPublisher::new(settings.clone())),
            state: tokio::sync::Mutex::default(),
            revisions: Mutex::default(),
            rates: Mutex::new(Rates::new(now)),
            quarantine_rules: Mutex::default(),
            reported_counts: Mutex::default(),
            rebuild_lock: Arc::default(),
        }
    }

    pub(crate) fn publisher(&self) -> Arc<BankPublisher> {
        Arc::clone(&self.publisher)
    }

    /// True if a bank has a newer revision than the one loaded here.
    pub(crate) fn is_behind(&self, latest_revisions: &BTreeMap<BankId, i64>) -> bool {
        let loaded_revisions = self.revisions.lock();
        loaded_revisions.iter().any(|(bank, revision)| {
            latest_revisions.get(bank).is_some_and(|latest_revision| latest_revision > revision)
        })
    }

    /// Loads the banks of a configuration with all of their entries.
    pub(crate) async fn configure(
        &self,
        store: &Store,
        documents: BankDocuments,
        now: Millis,
    ) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let is_same_kind = |bank: &BankId| {
            let kind = |all: &BankDocuments| all.get(bank).map(|it| it.kind);
            kind(&documents) == kind(&state.documents)
        };
        // Hashes of another kind cannot be compared, so a bank that changed its kind is loaded from scratch.
        let removed_banks: Vec<BankId> =
            state.heads.keys().filter(|bank| !is_same_kind(bank)).cloned().collect();
        removed_banks.iter().for_each(|bank| drop(state.heads.remove(bank)));
        let quarantine_rules =
            documents.values().filter_map(|it| Some((it.key.clone(), it.quarantine.clone()?)));
        *self.quarantine_rules.lock() = quarantine_rules.collect();
        state.documents = documents;
        self.publisher.set_time(now);
        self.update_banks(store, &mut state).await
    }

    /// Applies the changes of the banks since they were loaded.
    pub(crate) async fn catch_up(&self, store: &Store) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        self.update_banks(store, &mut state).await
    }

    async fn update_banks(&self, store: &Store, state: &mut State) -> Result<(), Error> {
        let mut heads = BTreeMap::new();
        for bank in state.documents.keys() {
            heads.insert(bank.clone(), ledger::load_head(store, &self.org, bank).await?);
        }
        let mut banks = banks_from_documents(&state.documents);
        for bank in &mut banks {
            bank.enabled = heads.get(&bank.id).is_none_or(|head| head.enabled);
        }
        self.publisher.configure(banks);
        for (bank, head) in heads {
            let Some(kind) = state.documents.get(&bank).and_then(|it| it.kind.hash_kind()) else { continue };
            let loaded_revision = state.heads.get(&bank).map(|head| head.revision);
            if loaded_revision != Some(head.revision)
                && !self.apply_feed(store, kind, loaded_revision, &head).await?
            {
                self.reload(store, kind, &head).await?;
            }
            state.heads.insert(bank, head);
        }
        let revisions = state.heads.iter().map(|(bank, head)| (bank.clone(), head.revision));
        *self.revisions.lock() = revisions.collect();
        Ok(())
    }

    /// Applies the feed; returns `false` if it does not reach back to the loaded revision.
    async fn apply_feed(
        &self,
        store: &Store,
        kind: HashKind,
        after: Option<i64>,
        head: &BankHead,
    ) -> Result<bool, Error> {
        let Some(after) = after.filter(|after| *after <= head.revision) else { return Ok(false) };
        let Some(changes) = ledger::read_changes(store, after, head).await? else { return Ok(false) };
        for (revision, change_id) in changes {
            let operations =
                match ledger::read_operations(store, &head.org, &head.bank, revision, change_id).await {
                    Ok(operations) => operations,
                    // The rows of the change cannot be read. A reload needs none of the settled ones.
                    Err(Error::Bank { .. }) => return Ok(false),
                    Err(error) => return Err(error),
                };
            let changes = operations.into_iter().filter_map(|operation| hash_change(kind, operation));
            self.publisher.apply(&head.bank, changes.collect::<Vec<_>>());
        }
        Ok(true)
    }

    /// Loads all entries. A change that settles meanwhile may be read here and applied again later, without
    /// further effect.
    async fn reload(&self, store: &Store, kind: HashKind, head: &BankHead) -> Result<(), Error> {
        let mut bulk_load = BulkLoad::new(kind);
        // A bank without changes has no rows, so none of its partitions has to be read.
        if head.revision > 0 {
            for bucket in 0..BUCKET_COUNT {
                let partition = BankHash::partition(head.org.clone(), head.bank.clone(), bucket);
                let mut pages = store.scan::<BankHash>(&partition, RowRange::all());
                while let Some(rows) = pages.next_page().await? {
                    for row in rows {
                        if let (Some(hash), Some(entry)) =
                            parse_hash_entry(kind, ledger::entry_from_hash_row(row))
                        {
                            bulk_load.push(hash, entry);
                        }
                    }
                }
            }
        }
        if head.settled < head.revision {
            let unsettled_operations =
                ledger::read_operations(store, &head.org, &head.bank, head.revision, head.change_id).await?;
            for Change { hash, entry } in
                unsettled_operations.into_iter().filter_map(|operation| hash_change(kind, operation))
            {
                match entry {
                    Some(entry) => bulk_load.push(hash, entry),
                    None => bulk_load.remove(hash),
                }
            }
        }
        let count = bulk_load.len();
        let (publisher, bank) = (self.publisher(), head.bank.clone());
        // On a blocking thread, as sorting millions of hashes takes long. Unsorted entries are compared one
        // by one, so the index is rebuilt before the load counts as done.
        let loaded = tokio::task::spawn_blocking(move || {
            publisher.load(&bank, bulk_load);
            if publisher.needs_rebuild() {
                publisher.rebuild();
            }
        });
        if loaded.await.is_err() {
            let reason = "its entries could not be put in order".to_owned();
            let (org, bank, revision) = (head.org.clone(), head.bank.clone(), head.revision);
            return Err(Error::Bank { org, bank, revision, reason });
        }
        tracing::info!(org = %head.org, bank = %head.bank, count, "a bank of hashes is loaded");
        Ok(())
    }

    /// Runs regular maintenance: rebuilds worn parts, and quarantines entries after a match spike.
    pub(crate) fn run_maintenance(self: &Arc<Self>, store: &Store, banks: &Banks, now: Millis) {
        self.publisher.set_time(now);
        self.report_lookups();
        // A rebuild may take longer than the interval of this maintenance.
        if let Ok(rebuild_guard) = Arc::clone(&self.rebuild_lock).try_lock_owned()
            && self.publisher.needs_rebuild()
        {
            let publisher = self.publisher();
            tokio::task::spawn_blocking(move || {
                publisher.rebuild();
                drop(rebuild_guard);
            });
        }
        let spiking_entries = self.take_spiking_entries(now);
        if !spiking_entries.is_empty() {
            let (hashes, banks, store) = (Arc::clone(self), banks.clone(), store.clone());
            tokio::spawn(async move { hashes.quarantine_entries(&store, &banks, spiking_entries).await });
        }
    }

    fn take_spiking_entries(&self, now: Millis) -> BTreeMap<BankId, Vec<Uuid>> {
        let (quarantine_rules, mut rates) = (self.quarantine_rules.lock(), self.rates.lock());
        let mut spiking_entries: BTreeMap<BankId, Vec<Uuid>> = BTreeMap::new();
        for (bank, entry) in self.publisher.take_watched_matches() {
            if quarantine_rules.get(&bank).is_some_and(|rule| rates.record_match(&bank, entry, rule, now)) {
                spiking_entries.entry(bank).or_default().push(entry);
            }
        }
        let longest_period_ms =
            quarantine_rules.values().map(|rule| rule.within.seconds()).max().unwrap_or_default();
        let longest_period_ms =
            i64::try_from(longest_period_ms).unwrap_or_default().saturating_mul(RATE_HISTORY_PERIODS * 1_000);
        rates.forget_inactive(Millis(now.0.saturating_sub(longest_period_ms)));
        spiking_entries
    }

    async fn quarantine_entries(
        &self,
        store: &Store,
        banks: &Banks,
        spiking_entries: BTreeMap<BankId, Vec<Uuid>>,
    ) {
        for (bank, entries) in spiking_entries {
            match banks.quarantine(&self.org, &bank, &entries).await {
                Ok(EntryUpdate { changed_ids: switched_off, document_ids: kept_on, .. }) => {
                    crate::metrics::count_quarantined(switched_off.len());
                    for entry in &kept_on {
                        tracing::warn!(
                            org = %self.org, %bank, %entry,
                            "an entry matches much more often than before, but stays on because the bank's document lists it: remove it there to switch it off"
                        );
                    }
                    for entry in &switched_off {
                        tracing::warn!(
                            target: "audit", org = %self.org, by = super::QUARANTINE_AUTHOR, %bank, %entry,
                            "an entry was switched off because it matches much more often than before"
                        );
                    }
                }
                Err(error) => {
                    tracing::error!(tag = error.tag(), org = %self.org, %bank, "an entry that matches much more often than before cannot be switched off");
                }
            }
        }
        // At once rather than at the next poll: until then, the entries would still match.
        if let Err(error) = self.catch_up(store).await {
            tracing::debug!(tag = error.tag(), org = %self.org, "the switched-off entries match until the next poll");
        }
    }

    /// Reports the lookups since the last call: metrics counters take increments.
    fn report_lookups(&self) {
        let (counts, mut reported_counts) = (self.publisher.counts(), self.reported_counts.lock());
        crate::metrics::count_lookups(
            counts.lookups - reported_counts.lookups,
            counts.truncated - reported_counts.truncated,
            counts.verified - reported_counts.verified,
            counts.mismatches - reported_counts.mismatches,
        );
        if counts.mismatches > reported_counts.mismatches {
            tracing::error!(org = %self.org, "the index of a hash bank misses entries: a full comparison had another result");
        }
        *reported_counts = counts;
    }
}

/// Number of the longest configured periods after which an entry's earlier rate is forgotten.
const RATE_HISTORY_PERIODS: i64 = 16;

/// Converts the documents to banks, all of them enabled.
pub(crate) fn banks_from_documents(documents: &BankDocuments) -> Vec<Bank> {
    documents
        .values()
        .filter_map(|document| Some(bank_from_document(document, document.kind.hash_kind()?)))
        .collect()
}

fn bank_from_document(document: &documents::Bank, kind: HashKind) -> Bank {
    let full_sample = Percent::new(100.0).expect("it is a percentage");
    Bank {
        id: document.key.clone(),
        kind,
        enabled: true,
        distance: document.distance.unwrap_or(kind.default_distance()),
        sample: document.sample.unwrap_or(full_sample),
        suppresses: document.suppresses.clone(),
        watched: document.quarantine.is_some(),
        inline_hashes: document.entries.iter().filter_map(|text| Hash::parse(kind, text.trim())).collect(),
    }
}

/// Converts an operation; `None` if it belongs to a list bank or its value is no hash of the kind.
fn hash_change(kind: HashKind, operation: Operation) -> Option<Change> {
    match operation {
        Operation::PutHash(entry) => {
            let (hash, entry) = parse_hash_entry(kind, entry);
            Some(Change { hash: hash?, entry })
        }
        Operation::RemoveHash { value, .. } => Some(Change { hash: Hash::parse(kind, &value)?, entry: None }),
        Operation::Put(_) | Operation::Remove(_) => None,
    }
}

/// Parses an entry into its hash and the part that is compared, which is `None` for a switched-off entry.
fn parse_hash_entry(kind: HashKind, entry: Entry) -> (Option<Hash>, Option<HashEntry>) {
    let hash = Hash::parse(kind, &entry.value);
    let Entry { distance, labels, expires_at, .. } = entry;
    (hash, entry.enabled.then_some(HashEntry { distance, labels, expires_at }))
}
