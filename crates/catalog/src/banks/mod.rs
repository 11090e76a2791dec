//! Adds, removes and switches entries of an organisation's banks, without a new configuration version.
//!
//! The bank's document is part of the configuration; `tidegate-rules` and `tidegate-media` match the entries.

mod entry;
pub(crate) mod hashes;
mod held;
pub(crate) mod ledger;
mod lists;
mod operation;
mod origin;
mod pages;
pub(crate) mod rates;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use async_recursion::async_recursion as boxed;
use tidegate_media::banks::entry_id;
use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, Millis, OrgId},
};
use tidegate_store::{
    Clock, Store, system_clock,
    tables::catalog::banks::{BankEntry, BankHash, BankHead},
};
use uuid::Uuid;

pub(crate) use self::lists::{LoadedBanks, active_entries, load_all, load_current};
use self::operation::Operation;
pub use self::{
    entry::{Entry, EntryInput},
    origin::{Origin, WithdrawalResult},
    pages::PageCursor,
};
use crate::{
    Error, Settings,
    compile::compile,
    content::{Content, join_faults},
    contents::{Contents, CurrentConfig},
    org_work::ComputePermit,
    orgs, snapshots,
};

/// Result of adding entries. The counts add up to the number of entries in the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddOutcome {
    pub added: usize,
    /// Entries that existed with other labels, source or expiry.
    pub changed: usize,
    pub unchanged: usize,
    /// Reasons of refusals, by the entry's index in the request.
    pub rejected: Vec<(usize, String)>,
    /// Warnings about the stored change, such as rules that can no longer be evaluated with all entries of
    /// the bank.
    pub warnings: Vec<String>,
    /// Revision of the bank with these entries.
    pub revision: i64,
}

/// Page of a bank's entries, with the cursor of the next page.
#[derive(Debug)]
pub struct Page {
    pub entries: Vec<Entry>,
    pub next: Option<PageCursor>,
    /// Values listed in the bank's document, by entry id. Present on the first page only.
    pub document: Option<BTreeMap<Uuid, String>>,
}

/// Bank in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankInfo {
    pub bank: BankId,
    /// Creation time of the organisation, which distinguishes it from an earlier organisation of the same name.
    pub org_since: Option<Millis>,
    pub kind: BankKind,
    pub name: String,
    pub enabled: bool,
    pub revision: i64,
    pub changed_at: Option<Millis>,
    pub author: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum BankError {
    #[error("there is no bank {0}")]
    NoSuchBank(BankId),
    /// The rules would exceed a limit of the rule engine with these entries.
    #[error("the rules would not compile with these entries: {0}")]
    Unusable(String),
    #[error(transparent)]
    Catalog(#[from] Error),
}

impl BankError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::NoSuchBank(_) => "no_such_bank",
            Self::Unusable(_) => "bank_unusable",
            Self::Catalog(error) => error.tag(),
        }
    }
}

impl From<tidegate_store::Error> for BankError {
    fn from(error: tidegate_store::Error) -> Self {
        Self::Catalog(error.into())
    }
}

/// Service that changes banks. Clones share one cache.
#[derive(Clone)]
pub struct Banks {
    store: Store,
    contents: Contents,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Author of changes that switch off entries because of a match spike.
pub(crate) const QUARANTINE_AUTHOR: &str = "quarantine";

/// Greatest number of warnings in one response.
const MAX_WARNINGS: usize = 20;

/// Result of removing or switching entries.
#[derive(Debug)]
pub struct EntryUpdate {
    /// Number of entries that existed.
    pub existing_count: usize,
    pub changed_ids: Vec<Uuid>,
    /// Entries that the bank's document lists as well. They stay active after any change of the stored entry.
    pub document_ids: Vec<Uuid>,
}

/// Collects the values of the bank's document, by the id that a stored entry of the same value has.
fn document_entries(content: &Content, bank: &BankId, kind: BankKind) -> BTreeMap<Uuid, String> {
    let document = content.set.banks.get(bank).map(|(_, document)| document);
    let values = document.into_iter().flat_map(|document| &document.entries);
    let canonical = values.filter_map(|value| kind.canonical(value).ok());
    canonical.map(|value| (entry_id(bank, kind, &value), value)).collect()
}

/// Bank in the current configuration.
struct ConfiguredBank {
    content: Arc<Content>,
    /// Length of the configuration's documents, used as the cost of work with them.
    document_bytes: usize,
    kind: BankKind,
}

/// Result of compiling the configuration with the changed entries.
struct TrialCompilation {
    warnings: Vec<String>,
    /// Revision of the bank that the change was compiled against.
    base_revision: Option<i64>,
    permit: ComputePermit,
}

/// Fixed cost of canonicalising one value and deriving its id, in bytes of input that take the same time.
const VALUE_COST_BYTES: usize = 64;

/// Fixed cost of checking one regex, which is compiled, in the same unit.
const REGEX_COST_BYTES: usize = 4 << 10;

impl Banks {
    pub fn new(store: Store, settings: &Settings) -> Self {
        Self::with_clock(store, settings, system_clock())
    }

    pub fn with_clock(store: Store, settings: &Settings, clock: Clock) -> Self {
        let contents = Contents::new(store.clone(), settings);
        Self::with_contents(store, contents, settings, clock)
    }

    pub(crate) fn with_contents(store: Store, contents: Contents, settings: &Settings, clock: Clock) -> Self {
        Self { store, contents, settings: Arc::new(settings.clone()), clock }
    }

    #[boxed]
    pub async fn list(&self, org: &OrgId) -> Result<Vec<BankInfo>, BankError> {
        let CurrentConfig { content, .. } = self.contents.load_current(org).await?;
        let heads = ledger::load_heads_of(&self.store, org, content.set.banks.keys()).await?;
        let org_since = orgs::get(&self.store, org).await?.map(|org| org.created_at);
        let mut banks = Vec::new();
        for ((bank, (_, document)), head) in content.set.banks.iter().zip(heads) {
            let has_changes = head.revision > 0;
            banks.push(BankInfo {
                bank: bank.clone(),
                org_since,
                kind: document.kind,
                name: document.display_name().to_owned(),
                enabled: head.enabled,
                revision: head.revision,
                changed_at: has_changes.then_some(head.changed_at),
                author: has_changes.then_some(head.author),
            });
        }
        Ok(banks)
    }

    /// Returns a page of a bank's entries, ordered by id.
    #[boxed]
    pub async fn entries(
        &self,
        org: &OrgId,
        bank: &BankId,
        from: Option<PageCursor>,
        limit: usize,
    ) -> Result<Page, BankError> {
        let configured_bank = self.load_configured_bank(org, bank).await?;
        let kind = configured_bank.kind;
        self.load_settled_head(org, bank).await?;
        let document = match from {
            None => Some(self.load_document_entries(org, bank, &configured_bank).await?),
            Some(_) => None,
        };
        let (entries, next) = pages::read_page(&self.store, (org, bank), kind, from, limit).await?;
        Ok(Page { entries, next, document })
    }

    /// Adds entries, or updates the given parts of existing ones. Invalid entries are skipped and reported.
    #[boxed]
    pub async fn add(
        &self,
        org: &OrgId,
        bank: &BankId,
        inputs: Vec<EntryInput>,
        author: &str,
    ) -> Result<AddOutcome, BankError> {
        let ConfiguredBank { content, kind, .. } = self.load_configured_bank(org, bank).await?;
        let now = (self.clock)();
        let cost_per_value = if kind == BankKind::Regex { REGEX_COST_BYTES } else { VALUE_COST_BYTES };
        let work_bytes = inputs.iter().map(|input| input.value.len() + cost_per_value).sum();
        let (bank_id, settings) = (bank.clone(), Arc::clone(&self.settings));
        let check_inputs = move || {
            let (mut valid_entries, mut rejections) = (Vec::new(), Vec::new());
            for (index, input) in inputs.into_iter().enumerate() {
                match input.validate((&bank_id, kind), &settings.rules) {
                    Ok(entry) => valid_entries.push(entry),
                    Err(reason) => rejections.push((index, reason)),
                }
            }
            (valid_entries, rejections)
        };
        let (valid_entries, rejections) = self.contents.work().run(org, work_bytes, check_inputs).await?;
        loop {
            let mut outcome = AddOutcome { rejected: rejections.clone(), ..AddOutcome::default() };
            let head = self.load_settled_head(org, bank).await?;
            let stored_entries = self
                .load_stored_entries((org, bank), kind, valid_entries.iter().map(|entry| entry.id))
                .await?;
            let mut updated_entries: BTreeMap<Uuid, Entry> = BTreeMap::new();
            for entry in valid_entries.iter().cloned() {
                let id = entry.id;
                let previous_entry = updated_entries.get(&id).or_else(|| stored_entries.get(&id));
                let entry = entry.into_entry(previous_entry, author, now);
                match previous_entry {
                    None => outcome.added += 1,
                    Some(previous_entry) if previous_entry.has_same_content(&entry) => outcome.unchanged += 1,
                    Some(_) => outcome.changed += 1,
                }
                updated_entries.insert(id, entry);
            }
            updated_entries
                .retain(|id, entry| stored_entries.get(id).is_none_or(|old| !old.has_same_content(entry)));
            let depends_on_revision = kind.hash_kind().is_some()
                || updated_entries.keys().any(|id| stored_entries.contains_key(id));
            let operations: Vec<_> =
                updated_entries.into_values().map(|entry| Operation::for_put(kind, entry)).collect();
            if operations.is_empty() {
                return Ok(AddOutcome { revision: head.revision, ..outcome });
            }
            // An update is derived from the stored entry. Writing it over a newer revision would undo a
            // switch made in the meantime, or drop a source that listed the hash since.
            let expected_revision = depends_on_revision.then_some(head.revision);
            let change = (&operations[..], None, expected_revision);
            if let Some((revision, warnings)) =
                self.commit_change((org, bank), &content, change, author, now).await?
            {
                return Ok(AddOutcome { revision, warnings, ..outcome });
            }
        }
    }

    /// Removes entries by id.
    #[boxed]
    pub async fn remove(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        author: &str,
    ) -> Result<EntryUpdate, BankError> {
        let configured_bank = self.load_configured_bank(org, bank).await?;
        // Read before the change: an error after it would report a committed change as failed.
        let document_ids = self.find_document_ids(org, bank, &configured_bank, ids).await?;
        let (content, kind) = (&configured_bank.content, configured_bank.kind);
        self.load_settled_head(org, bank).await?;
        let stored_entries = self.load_stored_entries((org, bank), kind, ids.iter().copied()).await?;
        let removed_ids: Vec<Uuid> = stored_entries.keys().copied().collect();
        let operations: Vec<_> =
            stored_entries.into_values().map(|entry| Operation::for_remove(kind, entry)).collect();
        if !operations.is_empty() {
            let change = (&operations[..], None, None);
            self.commit_change((org, bank), content, change, author, (self.clock)()).await?;
        }
        Ok(EntryUpdate { existing_count: removed_ids.len(), changed_ids: removed_ids, document_ids })
    }

    /// Withdraws sources from entries. An entry is removed with its last source. Returns one result per
    /// withdrawal, in order.
    #[boxed]
    pub async fn withdraw_entries(
        &self,
        org: &OrgId,
        bank: &BankId,
        withdrawals: &[(Uuid, Origin)],
        author: &str,
    ) -> Result<Vec<WithdrawalResult>, BankError> {
        let ConfiguredBank { content, kind, .. } = self.load_configured_bank(org, bank).await?;
        loop {
            let head = self.load_settled_head(org, bank).await?;
            let stored_entries =
                self.load_stored_entries((org, bank), kind, withdrawals.iter().map(|(id, _)| *id)).await?;
            let mut updates: HashMap<Uuid, Option<Entry>> = HashMap::new();
            let mut results = Vec::with_capacity(withdrawals.len());
            for (id, origin) in withdrawals {
                let current_entry = updates.get(id).map_or_else(|| stored_entries.get(id), Option::as_ref);
                let (result, remaining_entry) = current_entry
                    .map_or((WithdrawalResult::Missing, None), |entry| entry.without_origin(origin));
                results.push(result);
                if result != WithdrawalResult::Missing {
                    updates.insert(*id, remaining_entry);
                }
            }
            let operation = |(id, remaining_entry): (Uuid, Option<Entry>)| match remaining_entry {
                Some(entry) => Some(Operation::for_put(kind, entry)),
                None => Some(Operation::for_remove(kind, stored_entries.get(&id)?.clone())),
            };
            let operations: Vec<_> = updates.into_iter().filter_map(operation).collect();
            let change = (&operations[..], None, Some(head.revision));
            if operations.is_empty()
                || self.commit_change((org, bank), &content, change, author, (self.clock)()).await?.is_some()
            {
                return Ok(results);
            }
        }
    }

    /// Switches entries on or off by id.
    #[boxed]
    pub async fn switch_entries(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        enabled: bool,
        author: &str,
    ) -> Result<EntryUpdate, BankError> {
        self.update_entries(org, bank, ids, author, |entry, _| Entry {
            enabled,
            quarantined_at: None,
            ..entry
        })
        .await
    }

    /// Switches off entries because of a match spike. Entries listed in the bank's document would match
    /// anyway and stay on.
    pub(crate) async fn quarantine(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
    ) -> Result<EntryUpdate, BankError> {
        let quarantined_at = Some((self.clock)());
        let quarantine_entry = |entry: Entry, is_in_document: bool| match entry.enabled && !is_in_document {
            true => Entry { enabled: false, quarantined_at, ..entry },
            false => entry,
        };
        self.update_entries(org, bank, ids, QUARANTINE_AUTHOR, quarantine_entry).await
    }

    /// Applies `update` to stored entries. Its second argument is true if the bank's document lists the entry.
    async fn update_entries(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        author: &str,
        update: impl Fn(Entry, bool) -> Entry,
    ) -> Result<EntryUpdate, BankError> {
        let configured_bank = self.load_configured_bank(org, bank).await?;
        let document_ids = self.find_document_ids(org, bank, &configured_bank, ids).await?;
        let ConfiguredBank { content, kind, .. } = configured_bank;
        loop {
            let head = self.load_settled_head(org, bank).await?;
            let stored_entries = self.load_stored_entries((org, bank), kind, ids.iter().copied()).await?;
            let existing_count = stored_entries.len();
            let updates = stored_entries.into_iter().filter_map(|(id, old)| {
                let updated_entry = update(old.clone(), document_ids.contains(&id));
                (updated_entry != old).then(|| (id, Operation::for_put(kind, updated_entry)))
            });
            let (changed_ids, operations): (Vec<Uuid>, Vec<Operation>) = updates.unzip();
            let change = (&operations[..], None, Some(head.revision));
            if operations.is_empty()
                || self.commit_change((org, bank), &content, change, author, (self.clock)()).await?.is_some()
            {
                return Ok(EntryUpdate { existing_count, changed_ids, document_ids });
            }
        }
    }

    /// Switches a whole bank. Its entries keep their own state.
    #[boxed]
    pub async fn switch_bank(
        &self,
        org: &OrgId,
        bank: &BankId,
        enabled: bool,
        author: &str,
    ) -> Result<(), BankError> {
        let ConfiguredBank { content, .. } = self.load_configured_bank(org, bank).await?;
        while self.load_settled_head(org, bank).await?.enabled != enabled {
            let change = (&[][..], Some(enabled), None);
            if self.commit_change((org, bank), &content, change, author, (self.clock)()).await?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Derives the entry ids of values; `None` for a value that cannot be an entry of the bank.
    #[boxed]
    pub async fn derive_ids(
        &self,
        org: &OrgId,
        bank: &BankId,
        values: &[String],
    ) -> Result<Vec<Option<Uuid>>, BankError> {
        let ConfiguredBank { kind, .. } = self.load_configured_bank(org, bank).await?;
        let bytes = values.iter().map(|value| value.len() + VALUE_COST_BYTES).sum();
        let (bank, values) = (bank.clone(), values.to_vec());
        let derive_ids = move || {
            let id = |value: &String| kind.canonical(value).ok().map(|value| entry_id(&bank, kind, &value));
            values.iter().map(id).collect()
        };
        Ok(self.contents.work().run(org, bytes, derive_ids).await?)
    }

    async fn load_configured_bank(&self, org: &OrgId, bank: &BankId) -> Result<ConfiguredBank, BankError> {
        let CurrentConfig { content, text_bytes, .. } = self.contents.load_current(org).await?;
        let kind = content.set.banks.get(bank).map(|(_, document)| document.kind);
        let kind = kind.ok_or_else(|| BankError::NoSuchBank(bank.clone()))?;
        Ok(ConfiguredBank { content, document_bytes: text_bytes, kind })
    }

    /// Collects the values of the bank's document in an org work permit, because a document may be large.
    async fn load_document_entries(
        &self,
        org: &OrgId,
        bank: &BankId,
        configured_bank: &ConfiguredBank,
    ) -> Result<BTreeMap<Uuid, String>, BankError> {
        let (content, bank, kind) =
            (Arc::clone(&configured_bank.content), bank.clone(), configured_bank.kind);
        let collect_entries = move || document_entries(&content, &bank, kind);
        Ok(self.contents.work().run(org, configured_bank.document_bytes, collect_entries).await?)
    }

    /// Returns the ids that the bank's document lists.
    async fn find_document_ids(
        &self,
        org: &OrgId,
        bank: &BankId,
        configured_bank: &ConfiguredBank,
        ids: &[Uuid],
    ) -> Result<Vec<Uuid>, BankError> {
        let document_entries = self.load_document_entries(org, bank, configured_bank).await?;
        Ok(ids.iter().copied().filter(|id| document_entries.contains_key(id)).collect())
    }

    /// Loads the head. A change without its entry rows is settled first.
    async fn load_settled_head(&self, org: &OrgId, bank: &BankId) -> Result<BankHead, BankError> {
        let head = ledger::load_head(&self.store, org, bank).await?;
        if head.settled < head.revision {
            ledger::settle(&self.store, &head).await?;
        }
        Ok(head)
    }

    async fn load_stored_entries(
        &self,
        (org, bank): (&OrgId, &BankId),
        kind: BankKind,
        ids: impl Iterator<Item = Uuid>,
    ) -> Result<HashMap<Uuid, Entry>, BankError> {
        let ids: BTreeSet<Uuid> = ids.collect();
        if kind.hash_kind().is_some() {
            let key = |id: Uuid| BankHash::key(org.clone(), bank.clone(), ledger::hash_bucket(id), id);
            let keys: Vec<_> = ids.into_iter().map(key).collect();
            let rows = self.store.get_many::<BankHash>(&keys).await?;
            return Ok(rows
                .into_iter()
                .flatten()
                .map(|row| (row.entry, ledger::entry_from_hash_row(row)))
                .collect());
        }
        let keys: Vec<_> = ids.into_iter().map(|id| BankEntry::key(org.clone(), bank.clone(), id)).collect();
        let rows = self.store.get_many::<BankEntry>(&keys).await?;
        Ok(rows.into_iter().flatten().map(|row| (row.entry, ledger::entry_from_row(row))).collect())
    }

    /// Commits a change and returns the new revision with warnings; `None` if the bank is no longer at the
    /// expected revision.
    async fn commit_change(
        &self,
        (org, bank): (&OrgId, &BankId),
        content: &Arc<Content>,
        (operations, enabled, expected_revision): (&[Operation], Option<bool>, Option<i64>),
        author: &str,
        now: Millis,
    ) -> Result<Option<(i64, Vec<String>)>, BankError> {
        let adds_entries =
            operations.iter().any(|it| matches!(it, Operation::Put(_))) || enabled == Some(true);
        // Hash banks are not part of the rule plan, so their changes cannot break compilation.
        let is_list = content.set.banks.get(bank).is_some_and(|(_, it)| it.kind.hash_kind().is_none());
        // The permit is held until the commit: two changes of one process are never compiled against the same
        // entries.
        let trial = if adds_entries && is_list {
            Some(self.trial_compile((org, bank), Arc::clone(content), operations, enabled, now).await?)
        } else {
            None
        };
        let (warnings, expected_revision, _permit) = match trial {
            None => (Vec::new(), expected_revision, None),
            Some(TrialCompilation { warnings, base_revision, permit }) => {
                (warnings, expected_revision.or(base_revision), Some(permit))
            }
        };
        let authorship = (author, now);
        let committed_revision = ledger::commit_change(
            &self.store,
            (org, bank),
            operations,
            enabled,
            expected_revision,
            authorship,
        )
        .await?;
        let Some(revision) = committed_revision else { return Ok(None) };
        // The change is committed. Without the bump, other processes notice it at their next full read.
        if let Err(error) = snapshots::bump_epoch(&self.store, now).await {
            tracing::warn!(tag = error.tag(), %org, %bank, revision, "processes see the change late");
        }
        tracing::info!(%org, %bank, revision, changes = operations.len(), "a bank changed");
        Ok(Some((revision, warnings)))
    }

    /// Compiles the organisation's rules with the changed entries. Fails if they do not compile; warns about
    /// rules with patterns that exhaust their step budget because of this bank.
    async fn trial_compile(
        &self,
        (org, bank): (&OrgId, &BankId),
        content: Arc<Content>,
        operations: &[Operation],
        enabled: Option<bool>,
        now: Millis,
    ) -> Result<TrialCompilation, BankError> {
        // Acquired before loading: waiting requests must not keep millions of entries in memory.
        let permit = self.contents.work().acquire(org).await?;
        let mut bank_lists = load_all(&self.store, org, &content).await?;
        let revision = bank_lists.get(bank).map(|loaded_bank| loaded_bank.revision);
        if let Some(loaded_bank) = bank_lists.get_mut(bank) {
            let loaded_bank = Arc::make_mut(loaded_bank);
            loaded_bank.apply(operations.to_vec());
            loaded_bank.enabled = enabled.unwrap_or(loaded_bank.enabled);
        }
        let (settings, org, bank) = (Arc::clone(&self.settings), org.clone(), bank.clone());
        let compile_rules = move || {
            let (entries, _) = active_entries(&bank_lists, now);
            let version = tidegate_schemas::ids::ConfigVersion(0);
            let prefix = &settings.header_variable_prefix;
            let compiled = compile(&org, version, &content, &entries, &settings.rules, prefix);
            compiled.map(|compiled| {
                let overloads = compiled.plan().overloads();
                let bank_overloads = overloads.iter().filter(|it| it.banks.contains(&bank));
                bank_overloads.map(|it| format!("rule {}: {it}", it.rule)).take(MAX_WARNINGS).collect()
            })
        };
        // Banks can be far larger than the documents, so the document length does not bound the work.
        let (trial_result, permit) = match permit.run(usize::MAX, compile_rules).await {
            Err(Error::Panicked(panic)) => {
                return Err(BankError::Unusable(format!("the compiler failed: {panic}")));
            }
            result => result?,
        };
        let warnings = trial_result.map_err(|faults| BankError::Unusable(join_faults(&faults)))?;
        Ok(TrialCompilation { warnings, base_revision: revision, permit })
    }
}
