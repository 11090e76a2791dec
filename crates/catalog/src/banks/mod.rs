//! The entries of an organisation's banks: added, removed and switched at any time, without a new configuration.
//!
//! What a bank is stands in its document; what its entries mean to a rule is up to `tidegate-rules`.

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

pub(crate) use self::lists::{AllHeld, all, catch_up, entries};
use self::operation::Operation;
pub use self::{
    entry::{Entry, Given},
    origin::{Origin, Withdrawn},
    pages::Place,
};
use crate::{
    Error, Settings,
    compile::compile,
    content::{Content, joined},
    contents::{Contents, Current},
    org_work::Turn,
    orgs, snapshots,
};

/// Result of handing in entries. The counts add up to the number of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub added: usize,
    /// They were there, with other labels, source or expiry.
    pub changed: usize,
    pub unchanged: usize,
    /// Reasons of refusals, by the entry's index in the request.
    pub rejected: Vec<(usize, String)>,
    /// Warnings about changes that were made and hardly meant, such as rules that can no longer be evaluated with all
    /// that the bank has now.
    pub warnings: Vec<String>,
    /// Revision of the bank with these entries.
    pub revision: i64,
}

/// Entries of a bank, and where those after them begin.
#[derive(Debug)]
pub struct Page {
    pub entries: Vec<Entry>,
    pub next: Option<Place>,
    /// Entries from the bank's document, beside or among its own entries, by their ids. Comes with the first page.
    pub document: Option<BTreeMap<Uuid, String>>,
}

/// A bank, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankInfo {
    pub bank: BankId,
    /// Creation time of the organisation: another one of the same name is another.
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
    /// Together with everything else the entries exceed what the rules may hold.
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

/// Changes banks. Cloning it is cheap.
#[derive(Clone)]
pub struct Banks {
    store: Store,
    contents: Contents,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Author of changes that switch off entries which match too much.
pub(crate) const QUARANTINE: &str = "quarantine";

/// Warnings of one change.
const WARNINGS: usize = 20;

/// Entries that were to be taken out or switched.
#[derive(Debug)]
pub struct Touched {
    /// Number of entries that were there.
    pub found: usize,
    pub changed: Vec<Uuid>,
    /// Those that the bank's document holds: they count whatever is done to rows.
    pub written: Vec<Uuid>,
}

/// Returns the entries of the bank's document, by the ids that entries of the same value have.
fn held(content: &Content, bank: &BankId, kind: BankKind) -> BTreeMap<Uuid, String> {
    let document = content.set.banks.get(bank).map(|(_, document)| document);
    let values = document.into_iter().flat_map(|document| &document.entries);
    let canonical = values.filter_map(|value| kind.canonical(value).ok());
    canonical.map(|value| (entry_id(bank, kind, &value), value)).collect()
}

/// A bank as the current configuration has it.
struct Known {
    content: Arc<Content>,
    /// Length of the documents, by which work with them is judged.
    bytes: usize,
    kind: BankKind,
}

/// Entries that compile with all others.
struct Tried {
    warnings: Vec<String>,
    /// Revision of the bank that they were added to.
    revision: Option<i64>,
    turn: Turn,
}

/// Number of bytes whose reading takes as long as to check a value and find its id, whatever its length.
const VALUE_BYTES: usize = 64;

/// The same of a regex, which is compiled.
const REGEX_BYTES: usize = 4 << 10;

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

    pub async fn list(&self, org: &OrgId) -> Result<Vec<BankInfo>, BankError> {
        let Current { content, .. } = self.contents.current(org).await?;
        let heads = ledger::heads_of(&self.store, org, content.set.banks.keys()).await?;
        let org_since = orgs::get(&self.store, org).await?.map(|org| org.created_at);
        let mut banks = Vec::new();
        for ((bank, (_, document)), head) in content.set.banks.iter().zip(heads) {
            let ever = head.revision > 0;
            banks.push(BankInfo {
                bank: bank.clone(),
                org_since,
                kind: document.kind,
                name: document.display_name().to_owned(),
                enabled: head.enabled,
                revision: head.revision,
                changed_at: ever.then_some(head.changed_at),
                author: ever.then_some(head.author),
            });
        }
        Ok(banks)
    }

    /// A page of a bank's entries, in the order of their ids.
    pub async fn entries(
        &self,
        org: &OrgId,
        bank: &BankId,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Page, BankError> {
        let known = self.known(org, bank).await?;
        let kind = known.kind;
        self.settled(org, bank).await?;
        let document = match from {
            None => Some(self.held(org, bank, &known).await?),
            Some(_) => None,
        };
        let (entries, next) = pages::page(&self.store, (org, bank), kind, from, limit).await?;
        Ok(Page { entries, next, document })
    }

    /// Adds entries, or changes what stands beside them: what is given of them, nothing else. What cannot be an entry is
    /// left out and named.
    pub async fn add(
        &self,
        org: &OrgId,
        bank: &BankId,
        given: Vec<Given>,
        author: &str,
    ) -> Result<Taken, BankError> {
        let Known { content, kind, .. } = self.known(org, bank).await?;
        let now = (self.clock)();
        let each = if kind == BankKind::Regex { REGEX_BYTES } else { VALUE_BYTES };
        let bytes = given.iter().map(|given| given.value.len() + each).sum();
        let (of, settings) = (bank.clone(), Arc::clone(&self.settings));
        let check = move || {
            let (mut checked, mut rejected) = (Vec::new(), Vec::new());
            for (place, given) in given.into_iter().enumerate() {
                match given.check((&of, kind), &settings.rules) {
                    Ok(entry) => checked.push(entry),
                    Err(reason) => rejected.push((place, reason)),
                }
            }
            (checked, rejected)
        };
        let (checked, rejected) = self.contents.work().run(org, bytes, check).await?;
        loop {
            let mut taken = Taken { rejected: rejected.clone(), ..Taken::default() };
            let head = self.settled(org, bank).await?;
            let there = self.there((org, bank), kind, checked.iter().map(|entry| entry.id)).await?;
            let mut wanted: BTreeMap<Uuid, Entry> = BTreeMap::new();
            for entry in checked.iter().cloned() {
                let id = entry.id;
                let before = wanted.get(&id).or_else(|| there.get(&id));
                let entry = entry.over(before, author, now);
                match before {
                    None => taken.added += 1,
                    Some(before) if before.is_same(&entry) => taken.unchanged += 1,
                    Some(_) => taken.changed += 1,
                }
                wanted.insert(id, entry);
            }
            wanted.retain(|id, entry| there.get(id).is_none_or(|old| !old.is_same(entry)));
            let goes_over = kind.hash().is_some() || wanted.keys().any(|id| there.contains_key(id));
            let operations: Vec<_> = wanted.into_values().map(|entry| Operation::put(kind, entry)).collect();
            if operations.is_empty() {
                return Ok(Taken { revision: head.revision, ..taken });
            }
            // What was switched since it was read stays so, and who else lists a hash since then is not forgotten.
            let made_for = goes_over.then_some(head.revision);
            let change = (&operations[..], None, made_for);
            if let Some((revision, warnings)) =
                self.change((org, bank), &content, change, author, now).await?
            {
                return Ok(Taken { revision, warnings, ..taken });
            }
        }
    }

    /// Takes entries out, by id.
    pub async fn remove(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        author: &str,
    ) -> Result<Touched, BankError> {
        let known = self.known(org, bank).await?;
        // Before the change, so that nobody is refused who has made one.
        let written = self.written(org, bank, &known, ids).await?;
        let (content, kind) = (&known.content, known.kind);
        self.settled(org, bank).await?;
        let there = self.there((org, bank), kind, ids.iter().copied()).await?;
        let changed: Vec<Uuid> = there.keys().copied().collect();
        let operations: Vec<_> = there.into_values().map(|entry| Operation::remove(kind, entry)).collect();
        if !operations.is_empty() {
            let change = (&operations[..], None, None);
            self.change((org, bank), content, change, author, (self.clock)()).await?;
        }
        Ok(Touched { found: changed.len(), changed, written })
    }

    /// Takes out what somebody who listed entries takes back: an entry goes with the last who did. Tells of each in order.
    pub async fn withdraw(
        &self,
        org: &OrgId,
        bank: &BankId,
        withdrawals: &[(Uuid, Origin)],
        author: &str,
    ) -> Result<Vec<Withdrawn>, BankError> {
        let Known { content, kind, .. } = self.known(org, bank).await?;
        loop {
            let head = self.settled(org, bank).await?;
            let there = self.there((org, bank), kind, withdrawals.iter().map(|(id, _)| *id)).await?;
            let mut wanted: HashMap<Uuid, Option<Entry>> = HashMap::new();
            let mut told = Vec::with_capacity(withdrawals.len());
            for (id, origin) in withdrawals {
                let before = wanted.get(id).map_or_else(|| there.get(id), Option::as_ref);
                let (what, left) = before.map_or((Withdrawn::Missing, None), |entry| entry.without(origin));
                told.push(what);
                if what != Withdrawn::Missing {
                    wanted.insert(*id, left);
                }
            }
            let operation = |(id, left): (Uuid, Option<Entry>)| match left {
                Some(entry) => Some(Operation::put(kind, entry)),
                None => Some(Operation::remove(kind, there.get(&id)?.clone())),
            };
            let operations: Vec<_> = wanted.into_iter().filter_map(operation).collect();
            let change = (&operations[..], None, Some(head.revision));
            if operations.is_empty()
                || self.change((org, bank), &content, change, author, (self.clock)()).await?.is_some()
            {
                return Ok(told);
            }
        }
    }

    /// Switches entries on or off, by id.
    pub async fn switch(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        enabled: bool,
        author: &str,
    ) -> Result<Touched, BankError> {
        self.set(org, bank, ids, author, |entry, _| Entry { enabled, quarantined_at: None, ..entry }).await
    }

    /// Switches entries off because they match so much all at once, but for those that would match all the same.
    pub(crate) async fn quarantine(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
    ) -> Result<Touched, BankError> {
        let now = Some((self.clock)());
        let put_aside = |entry: Entry, is_written: bool| match entry.enabled && !is_written {
            true => Entry { enabled: false, quarantined_at: now, ..entry },
            false => entry,
        };
        self.set(org, bank, ids, QUARANTINE, put_aside).await
    }

    /// `set` is told whether the bank's document holds the entry.
    async fn set(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        author: &str,
        set: impl Fn(Entry, bool) -> Entry,
    ) -> Result<Touched, BankError> {
        let known = self.known(org, bank).await?;
        let written = self.written(org, bank, &known, ids).await?;
        let Known { content, kind, .. } = known;
        loop {
            let head = self.settled(org, bank).await?;
            let there = self.there((org, bank), kind, ids.iter().copied()).await?;
            let found = there.len();
            let other = there.into_iter().filter_map(|(id, old)| {
                let new = set(old.clone(), written.contains(&id));
                (new != old).then(|| (id, Operation::put(kind, new)))
            });
            let (changed, operations): (Vec<Uuid>, Vec<Operation>) = other.unzip();
            let change = (&operations[..], None, Some(head.revision));
            if operations.is_empty()
                || self.change((org, bank), &content, change, author, (self.clock)()).await?.is_some()
            {
                return Ok(Touched { found, changed, written });
            }
        }
    }

    /// Switches a bank as a whole: its entries stay as they are.
    pub async fn switch_bank(
        &self,
        org: &OrgId,
        bank: &BankId,
        enabled: bool,
        author: &str,
    ) -> Result<(), BankError> {
        let Known { content, .. } = self.known(org, bank).await?;
        while self.settled(org, bank).await?.enabled != enabled {
            let change = (&[][..], Some(enabled), None);
            if self.change((org, bank), &content, change, author, (self.clock)()).await?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// The ids that values have in a bank, each if it can be an entry of it.
    pub async fn ids_of(
        &self,
        org: &OrgId,
        bank: &BankId,
        values: &[String],
    ) -> Result<Vec<Option<Uuid>>, BankError> {
        let Known { kind, .. } = self.known(org, bank).await?;
        let bytes = values.iter().map(|value| value.len() + VALUE_BYTES).sum();
        let (bank, values) = (bank.clone(), values.to_vec());
        let ids = move || {
            let id = |value: &String| kind.canonical(value).ok().map(|value| entry_id(&bank, kind, &value));
            values.iter().map(id).collect()
        };
        Ok(self.contents.work().run(org, bytes, ids).await?)
    }

    async fn known(&self, org: &OrgId, bank: &BankId) -> Result<Known, BankError> {
        let Current { content, bytes, .. } = self.contents.current(org).await?;
        let kind = content.set.banks.get(bank).map(|(_, document)| document.kind);
        let kind = kind.ok_or_else(|| BankError::NoSuchBank(bank.clone()))?;
        Ok(Known { content, bytes, kind })
    }

    /// Returns the entries of the bank's document, by the ids that entries of the same value have.
    async fn held(
        &self,
        org: &OrgId,
        bank: &BankId,
        known: &Known,
    ) -> Result<BTreeMap<Uuid, String>, BankError> {
        let (content, bank, kind) = (Arc::clone(&known.content), bank.clone(), known.kind);
        let held = move || held(&content, &bank, kind);
        Ok(self.contents.work().run(org, known.bytes, held).await?)
    }

    /// Those of the entries that the bank's document holds.
    async fn written(
        &self,
        org: &OrgId,
        bank: &BankId,
        known: &Known,
        ids: &[Uuid],
    ) -> Result<Vec<Uuid>, BankError> {
        let held = self.held(org, bank, known).await?;
        Ok(ids.iter().copied().filter(|id| held.contains_key(id)).collect())
    }

    /// The head, once the entries' rows hold all that it says.
    async fn settled(&self, org: &OrgId, bank: &BankId) -> Result<BankHead, BankError> {
        let head = ledger::head(&self.store, org, bank).await?;
        if head.settled < head.revision {
            ledger::settle(&self.store, &head).await?;
        }
        Ok(head)
    }

    async fn there(
        &self,
        (org, bank): (&OrgId, &BankId),
        kind: BankKind,
        ids: impl Iterator<Item = Uuid>,
    ) -> Result<HashMap<Uuid, Entry>, BankError> {
        let ids: BTreeSet<Uuid> = ids.collect();
        if kind.hash().is_some() {
            let key = |id: Uuid| BankHash::key(org.clone(), bank.clone(), ledger::bucket(id), id);
            let keys: Vec<_> = ids.into_iter().map(key).collect();
            let rows = self.store.get_many::<BankHash>(&keys).await?;
            return Ok(rows.into_iter().flatten().map(|row| (row.entry, ledger::hash_entry(row))).collect());
        }
        let keys: Vec<_> = ids.into_iter().map(|id| BankEntry::key(org.clone(), bank.clone(), id)).collect();
        let rows = self.store.get_many::<BankEntry>(&keys).await?;
        Ok(rows.into_iter().flatten().map(|row| (row.entry, ledger::entry(row))).collect())
    }

    /// Returns the new revision, and warnings. `None`: it was made for or tried out with another revision than the bank is at.
    async fn change(
        &self,
        (org, bank): (&OrgId, &BankId),
        content: &Arc<Content>,
        (operations, enabled, made_for): (&[Operation], Option<bool>, Option<i64>),
        author: &str,
        now: Millis,
    ) -> Result<Option<(i64, Vec<String>)>, BankError> {
        let adds = operations.iter().any(|it| matches!(it, Operation::Put(_))) || enabled == Some(true);
        // Rules do not hold hashes.
        let is_list = content.set.banks.get(bank).is_some_and(|(_, it)| it.kind.hash().is_none());
        // The turn is kept to the end of the change, so that no two of one process are tried out with the same entries.
        let tried = if adds && is_list {
            Some(self.try_out((org, bank), Arc::clone(content), operations, enabled, now).await?)
        } else {
            None
        };
        let (warnings, made_for, _turn) = match tried {
            None => (Vec::new(), made_for, None),
            Some(Tried { warnings, revision, turn }) => (warnings, made_for.or(revision), Some(turn)),
        };
        let by = (author, now);
        let made = ledger::change(&self.store, (org, bank), operations, enabled, made_for, by).await?;
        let Some(revision) = made else { return Ok(None) };
        // The change is made: without the bump it is seen a little later.
        if let Err(error) = snapshots::bump(&self.store, now).await {
            tracing::warn!(tag = error.tag(), %org, %bank, revision, "processes see the change late");
        }
        tracing::info!(%org, %bank, revision, changes = operations.len(), "a bank changed");
        Ok(Some((revision, warnings)))
    }

    /// Refuses what would leave the organisation with rules that do not compile, and names those that the bank's patterns
    /// bring to the end of their steps.
    async fn try_out(
        &self,
        (org, bank): (&OrgId, &BankId),
        content: Arc<Content>,
        operations: &[Operation],
        enabled: Option<bool>,
        now: Millis,
    ) -> Result<Tried, BankError> {
        // Before the entries are read: they may be many, and whoever waits must not hold them.
        let turn = self.contents.work().turn(org).await?;
        let mut all = all(&self.store, org, &content).await?;
        let revision = all.get(bank).map(|held| held.revision);
        if let Some(held) = all.get_mut(bank) {
            let held = Arc::make_mut(held);
            held.apply(operations.to_vec());
            held.enabled = enabled.unwrap_or(held.enabled);
        }
        let (settings, org, bank) = (Arc::clone(&self.settings), org.clone(), bank.clone());
        let try_out = move || {
            let (entries, _) = entries(&all, now);
            let version = tidegate_schemas::ids::ConfigVersion(0);
            let prefix = &settings.header_variable_prefix;
            let compiled = compile(&org, version, &content, &entries, &settings.rules, prefix);
            compiled.map(|compiled| {
                let overloads = compiled.plan().overloads();
                let of_bank = overloads.iter().filter(|it| it.banks.contains(&bank));
                of_bank.map(|it| format!("rule {}: {it}", it.rule)).take(WARNINGS).collect()
            })
        };
        // The banks of all may be long, so that no length of documents is a bound of the work.
        let (tried, turn) = match turn.run(usize::MAX, try_out).await {
            Err(Error::Panicked(panic)) => {
                return Err(BankError::Unusable(format!("the compiler failed: {panic}")));
            }
            tried => tried?,
        };
        let warnings = tried.map_err(|faults| BankError::Unusable(joined(&faults)))?;
        Ok(Tried { warnings, revision, turn })
    }
}
