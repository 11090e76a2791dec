//! The banks of hashes that run in this process: filled from their rows, kept up by the feed, compared without a plan.
//!
//! It changes no bank, except for switching off entries whose matches jump.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use tidegate_media::banks::{
    Bank, BankPublisher, BulkLoad, Change, Entry as Compared, Hash, LookupCounts, Settings,
};
use tidegate_schemas::{
    banks::HashKind,
    documents::{self, Percent, Quarantine},
    ids::{BankId, Millis, OrgId},
};
use tidegate_store::{
    At, Store,
    tables::catalog::banks::{BankHash, BankHead},
};
use uuid::Uuid;

use super::{
    Banks, Entry, Touched,
    ledger::{self, BUCKETS},
    operation::Operation,
    rates::Rates,
};
use crate::{Error, content::Content};

pub(crate) struct Hashes {
    org: OrgId,
    publisher: Arc<BankPublisher>,
    /// Whoever brings them up to date holds it.
    state: tokio::sync::Mutex<State>,
    /// Revisions of the banks in the publisher, for callers that only ask.
    revisions: Mutex<BTreeMap<BankId, i64>>,
    rates: Mutex<Rates>,
    watched: Mutex<HashMap<BankId, Quarantine>>,
    counted: Mutex<LookupCounts>,
    rebuilding: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    documents: Documents,
    heads: BTreeMap<BankId, BankHead>,
}

type Documents = BTreeMap<BankId, documents::Bank>;

/// The banks of hashes of a configuration.
pub(crate) fn documents(content: &Content) -> Documents {
    let banks = content.set.banks.values().map(|(_, document)| document);
    let of_hashes = banks.filter(|document| document.kind.hash().is_some());
    of_hashes.map(|document| (document.key.clone(), document.clone())).collect()
}

impl Hashes {
    pub(crate) fn new(org: OrgId, settings: &Settings, now: Millis) -> Self {
        Self {
            org,
            publisher: Arc::new(BankPublisher::new(settings.clone())),
            state: tokio::sync::Mutex::default(),
            revisions: Mutex::default(),
            rates: Mutex::new(Rates::new(now)),
            watched: Mutex::default(),
            counted: Mutex::default(),
            rebuilding: Arc::default(),
        }
    }

    pub(crate) fn publisher(&self) -> Arc<BankPublisher> {
        Arc::clone(&self.publisher)
    }

    /// True if a bank has other entries by now than those that run here.
    pub(crate) fn is_behind(&self, heads: &BTreeMap<BankId, i64>) -> bool {
        let here = self.revisions.lock();
        here.iter().any(|(bank, revision)| heads.get(bank).is_some_and(|now| now > revision))
    }

    /// Makes the banks of a configuration run here, with all that is in them.
    pub(crate) async fn configure(
        &self,
        store: &Store,
        documents: Documents,
        now: Millis,
    ) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let is_same_kind = |bank: &BankId| {
            let kind = |all: &Documents| all.get(bank).map(|it| it.kind);
            kind(&documents) == kind(&state.documents)
        };
        let gone: Vec<BankId> = state.heads.keys().filter(|bank| !is_same_kind(bank)).cloned().collect();
        gone.iter().for_each(|bank| drop(state.heads.remove(bank)));
        let watched = documents.values().filter_map(|it| Some((it.key.clone(), it.quarantine.clone()?)));
        *self.watched.lock() = watched.collect();
        state.documents = documents;
        self.publisher.set_time(now);
        self.bring_up(store, &mut state).await
    }

    /// Takes in what changed in the banks.
    pub(crate) async fn catch_up(&self, store: &Store) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        self.bring_up(store, &mut state).await
    }

    async fn bring_up(&self, store: &Store, state: &mut State) -> Result<(), Error> {
        let mut newest = BTreeMap::new();
        for bank in state.documents.keys() {
            newest.insert(bank.clone(), ledger::head(store, &self.org, bank).await?);
        }
        let mut configured = configured(&state.documents);
        for bank in &mut configured {
            bank.enabled = newest.get(&bank.id).is_none_or(|head| head.enabled);
        }
        self.publisher.configure(configured);
        for (bank, head) in newest {
            let Some(kind) = state.documents.get(&bank).and_then(|it| it.kind.hash()) else { continue };
            let after = state.heads.get(&bank).map(|known| known.revision);
            if after != Some(head.revision) && !self.follow(store, kind, after, &head).await? {
                self.load(store, kind, &head).await?;
            }
            state.heads.insert(bank, head);
        }
        let revisions = state.heads.iter().map(|(bank, head)| (bank.clone(), head.revision));
        *self.revisions.lock() = revisions.collect();
        Ok(())
    }

    /// Follows the feed; returns `false` if it does not reach back so far.
    async fn follow(
        &self,
        store: &Store,
        kind: HashKind,
        after: Option<i64>,
        head: &BankHead,
    ) -> Result<bool, Error> {
        let Some(after) = after.filter(|after| *after <= head.revision) else { return Ok(false) };
        let Some(changes) = ledger::changes(store, after, head).await? else { return Ok(false) };
        for (revision, change_id) in changes {
            let operations = match ledger::operations(store, &head.org, &head.bank, revision, change_id).await
            {
                Ok(operations) => operations,
                Err(Error::Bank { .. }) => return Ok(false),
                Err(error) => return Err(error),
            };
            let changes = operations.into_iter().filter_map(|operation| change(kind, operation));
            self.publisher.apply(&head.bank, changes.collect::<Vec<_>>());
        }
        Ok(true)
    }

    /// All of it anew. What is settled meanwhile may be read and then followed, which changes nothing.
    async fn load(&self, store: &Store, kind: HashKind, head: &BankHead) -> Result<(), Error> {
        let mut load = BulkLoad::new(kind);
        if head.revision > 0 {
            for bucket in 0..BUCKETS {
                let partition = BankHash::partition(head.org.clone(), head.bank.clone(), bucket);
                let mut pages = store.scan::<BankHash>(&partition, At::all());
                while let Some(rows) = pages.next_page().await? {
                    for row in rows {
                        if let (Some(hash), Some(entry)) = compared(kind, ledger::hash_entry(row)) {
                            load.push(hash, entry);
                        }
                    }
                }
            }
        }
        if head.settled < head.revision {
            let last =
                ledger::operations(store, &head.org, &head.bank, head.revision, head.change_id).await?;
            for Change { hash, entry } in last.into_iter().filter_map(|operation| change(kind, operation)) {
                match entry {
                    Some(entry) => load.push(hash, entry),
                    None => load.remove(hash),
                }
            }
        }
        let count = load.len();
        let (publisher, bank) = (self.publisher(), head.bank.clone());
        // Sorting millions takes a while, and nobody should look through them one by one for long.
        let loaded = tokio::task::spawn_blocking(move || {
            publisher.load(&bank, load);
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

    /// Runs regular maintenance: rebuilds worn parts and quarantines entries whose rate jumps.
    pub(crate) fn look_after(self: &Arc<Self>, store: &Store, banks: &Banks, now: Millis) {
        self.publisher.set_time(now);
        self.count_lookups();
        if let Ok(place) = Arc::clone(&self.rebuilding).try_lock_owned()
            && self.publisher.needs_rebuild()
        {
            let publisher = self.publisher();
            tokio::task::spawn_blocking(move || {
                publisher.rebuild();
                drop(place);
            });
        }
        let jumped = self.jumped(now);
        if !jumped.is_empty() {
            let (hashes, banks, store) = (Arc::clone(self), banks.clone(), store.clone());
            tokio::spawn(async move { hashes.put_aside(&store, &banks, jumped).await });
        }
    }

    fn jumped(&self, now: Millis) -> BTreeMap<BankId, Vec<Uuid>> {
        let (watched, mut rates) = (self.watched.lock(), self.rates.lock());
        let mut jumped: BTreeMap<BankId, Vec<Uuid>> = BTreeMap::new();
        for (bank, entry) in self.publisher.take_watched_matches() {
            if watched.get(&bank).is_some_and(|rule| rates.count(&bank, entry, rule, now)) {
                jumped.entry(bank).or_default().push(entry);
            }
        }
        let longest = watched.values().map(|rule| rule.within.seconds()).max().unwrap_or_default();
        let longest = i64::try_from(longest).unwrap_or_default().saturating_mul(KEPT_STRETCHES * 1_000);
        rates.forget(Millis(now.0.saturating_sub(longest)));
        jumped
    }

    async fn put_aside(&self, store: &Store, banks: &Banks, jumped: BTreeMap<BankId, Vec<Uuid>>) {
        for (bank, entries) in jumped {
            match banks.quarantine(&self.org, &bank, &entries).await {
                Ok(Touched { changed, written, .. }) => {
                    crate::metrics::entries_quarantined(changed.len());
                    for entry in &written {
                        tracing::warn!(
                            org = %self.org, %bank, %entry,
                            "an entry matches much more often than before and stays on: the bank's document holds it"
                        );
                    }
                    for entry in &changed {
                        tracing::warn!(
                            target: "audit", org = %self.org, by = super::QUARANTINE, %bank, %entry,
                            "switched an entry off: it matches much more often than before"
                        );
                    }
                }
                Err(error) => {
                    tracing::error!(tag = error.tag(), org = %self.org, %bank, "an entry that jumps cannot be switched off");
                }
            }
        }
        if let Err(error) = self.catch_up(store).await {
            tracing::debug!(tag = error.tag(), org = %self.org, "what was put aside is seen a little later");
        }
    }

    /// Counters say how much was added since.
    fn count_lookups(&self) {
        let (now, mut counted) = (self.publisher.counts(), self.counted.lock());
        crate::metrics::bank_lookups(
            now.lookups - counted.lookups,
            now.truncated - counted.truncated,
            now.verified - counted.verified,
            now.mismatches - counted.mismatches,
        );
        if now.mismatches > counted.mismatches {
            tracing::error!(org = %self.org, "the index of a bank of hashes misses entries; comparing all found others");
        }
        *counted = now;
    }
}

/// Number of longest time stretches for which an entry's earlier rate is remembered.
const KEPT_STRETCHES: i64 = 16;

/// Returns the banks of the documents, all of them enabled.
pub(crate) fn configured(documents: &Documents) -> Vec<Bank> {
    documents.values().filter_map(|document| Some(bank(document, document.kind.hash()?))).collect()
}

fn bank(document: &documents::Bank, kind: HashKind) -> Bank {
    let whole = Percent::new(100.0).expect("it is a percentage");
    Bank {
        id: document.key.clone(),
        kind,
        enabled: true,
        distance: document.distance.unwrap_or(kind.usual_distance()),
        sample: document.sample.unwrap_or(whole),
        suppresses: document.suppresses.clone(),
        watched: document.quarantine.is_some(),
        inline_hashes: document.entries.iter().filter_map(|text| Hash::parse(kind, text.trim())).collect(),
    }
}

/// `None`: the operation is none of a bank of hashes, or its value none of the kind.
fn change(kind: HashKind, operation: Operation) -> Option<Change> {
    match operation {
        Operation::PutHash(entry) => {
            let (hash, entry) = compared(kind, entry);
            Some(Change { hash: hash?, entry })
        }
        Operation::RemoveHash { value, .. } => Some(Change { hash: Hash::parse(kind, &value)?, entry: None }),
        Operation::Put(_) | Operation::Remove(_) => None,
    }
}

/// The entry is none if it is switched off.
fn compared(kind: HashKind, entry: Entry) -> (Option<Hash>, Option<Compared>) {
    let hash = Hash::parse(kind, &entry.value);
    let Entry { distance, labels, expires_at, .. } = entry;
    (hash, entry.enabled.then_some(Compared { distance, labels, expires_at }))
}
