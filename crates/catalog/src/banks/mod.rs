//! The entries of an organisation's banks: added, removed and switched at any time, without a new configuration.
//!
//! What a bank is stands in its document; what its entries mean to a rule is up to `tidegate-rules`.

pub(crate) mod hashes;
pub(crate) mod ledger;
mod pages;
pub(crate) mod rates;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_media::banks::entry_id;
use tidegate_rules::{Limits, Plan, RuleSource, Shape, Vocabulary};
use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, Millis, OrgId, TypeId},
};
use tidegate_store::{
    Clock, Store, system_clock,
    tables::catalog::banks::{BankEntry, BankHash, BankHead},
};
use uuid::Uuid;

use self::ledger::{Held, Operation};
pub use self::pages::Place;
use crate::{
    Error, Settings,
    compile::{BankEntries, Labelled, compile},
    content::{self, Content, joined},
    snapshots,
};

/// An entry as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Derived from bank and value: the same entry is the same in every environment.
    pub id: Uuid,
    pub value: String,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Of hashes: how many bits may differ, if it is not as the bank says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<u8>,
    /// Of hashes: what the source calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Of hashes: when it was switched off because it matched so much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined_at: Option<Millis>,
    pub added_at: Millis,
    /// From then on it counts as switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
    pub author: String,
}

impl Entry {
    fn counts(&self, now: Millis) -> bool {
        self.enabled && self.expires_at.is_none_or(|end| end > now)
    }
}

/// An entry as somebody hands it in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub value: String,
    pub labels: Vec<String>,
    pub source: Option<String>,
    pub expires_at: Option<Millis>,
    /// Of hashes only, as the next two.
    pub distance: Option<u32>,
    pub reference: Option<String>,
    pub note: Option<String>,
    /// It is in the bank, but does not count.
    pub disabled: bool,
}

/// What became of entries that were handed in. The counts add up to how many they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub added: usize,
    /// They were there, with other labels, source or expiry.
    pub changed: usize,
    pub unchanged: usize,
    /// By their place among those handed in: why.
    pub rejected: Vec<(usize, String)>,
    /// Of the bank, with all of it.
    pub revision: i64,
}

/// A bank, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankInfo {
    pub bank: BankId,
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
    settings: Arc<Settings>,
    clock: Clock,
}

/// Who switches entries off that match too much.
pub(crate) const QUARANTINE: &str = "quarantine";

/// Labels of an entry, and their length in bytes.
const LABELS: (usize, usize) = (16, 64);
const LONGEST_SOURCE: usize = 256;

impl Banks {
    pub fn new(store: Store, settings: &Settings) -> Self {
        Self::with_clock(store, settings, system_clock())
    }

    pub fn with_clock(store: Store, settings: &Settings, clock: Clock) -> Self {
        Self { store, settings: Arc::new(settings.clone()), clock }
    }

    pub async fn list(&self, org: &OrgId) -> Result<Vec<BankInfo>, BankError> {
        let (_, content) = content::current(&self.store, org).await?;
        let heads = ledger::heads_of(&self.store, org, content.set.banks.keys()).await?;
        let mut banks = Vec::new();
        for ((bank, (_, document)), head) in content.set.banks.iter().zip(heads) {
            let ever = head.revision > 0;
            banks.push(BankInfo {
                bank: bank.clone(),
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
    ) -> Result<(Vec<Entry>, Option<Place>), BankError> {
        let (_, kind) = self.known(org, bank).await?;
        self.settled(org, bank).await?;
        Ok(pages::page(&self.store, (org, bank), kind, from, limit).await?)
    }

    /// Adds entries, or changes what stands beside them. What cannot be an entry is left out and named.
    pub async fn add(
        &self,
        org: &OrgId,
        bank: &BankId,
        given: Vec<Given>,
        author: &str,
    ) -> Result<Taken, BankError> {
        let (content, kind) = self.known(org, bank).await?;
        let now = (self.clock)();
        let mut taken = Taken::default();
        let mut wanted: BTreeMap<Uuid, Entry> = BTreeMap::new();
        for (place, given) in given.into_iter().enumerate() {
            match self.read(bank, kind, given, author, now) {
                Ok(entry) => {
                    if wanted.insert(entry.id, entry).is_some() {
                        taken.unchanged += 1;
                    }
                }
                Err(reason) => taken.rejected.push((place, reason)),
            }
        }
        let head = self.settled(org, bank).await?;
        let there = self.there((org, bank), kind, wanted.keys().copied()).await?;
        let mut operations = Vec::new();
        for (id, entry) in wanted {
            match there.get(&id) {
                Some(old) if same(old, &entry) => taken.unchanged += 1,
                Some(old) => {
                    taken.changed += 1;
                    operations.push(Operation::put(kind, Entry { added_at: old.added_at, ..entry }));
                }
                None => {
                    taken.added += 1;
                    operations.push(Operation::put(kind, entry));
                }
            }
        }
        taken.revision = head.revision;
        if !operations.is_empty() {
            taken.revision = self.change((org, bank), content, operations, None, author, now).await?;
        }
        Ok(taken)
    }

    /// Takes entries out, by id; says how many were there.
    pub async fn remove(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        author: &str,
    ) -> Result<usize, BankError> {
        let (content, kind) = self.known(org, bank).await?;
        self.settled(org, bank).await?;
        let there = self.there((org, bank), kind, ids.iter().copied()).await?;
        let operations: Vec<_> = there.into_values().map(|entry| Operation::remove(kind, entry)).collect();
        let count = operations.len();
        if count > 0 {
            self.change((org, bank), content, operations, None, author, (self.clock)()).await?;
        }
        Ok(count)
    }

    /// Switches entries on or off, by id; says how many were there.
    pub async fn switch(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        enabled: bool,
        author: &str,
    ) -> Result<usize, BankError> {
        self.set(org, bank, ids, author, |entry| Entry { enabled, quarantined_at: None, ..entry }).await
    }

    /// Switches entries off because they match so much all at once; says how many were there.
    pub(crate) async fn quarantine(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
    ) -> Result<usize, BankError> {
        let now = Some((self.clock)());
        let put_aside = |entry: Entry| match entry.enabled {
            true => Entry { enabled: false, quarantined_at: now, ..entry },
            false => entry,
        };
        self.set(org, bank, ids, QUARANTINE, put_aside).await
    }

    async fn set(
        &self,
        org: &OrgId,
        bank: &BankId,
        ids: &[Uuid],
        author: &str,
        set: impl Fn(Entry) -> Entry,
    ) -> Result<usize, BankError> {
        let (content, kind) = self.known(org, bank).await?;
        self.settled(org, bank).await?;
        let there = self.there((org, bank), kind, ids.iter().copied()).await?;
        let count = there.len();
        let other = there.into_values().filter_map(|old| {
            let new = set(old.clone());
            (new != old).then(|| Operation::put(kind, new))
        });
        let operations: Vec<_> = other.collect();
        if !operations.is_empty() {
            self.change((org, bank), content, operations, None, author, (self.clock)()).await?;
        }
        Ok(count)
    }

    /// Switches a bank as a whole: its entries stay as they are.
    pub async fn switch_bank(
        &self,
        org: &OrgId,
        bank: &BankId,
        enabled: bool,
        author: &str,
    ) -> Result<(), BankError> {
        let (content, _) = self.known(org, bank).await?;
        if self.settled(org, bank).await?.enabled != enabled {
            self.change((org, bank), content, Vec::new(), Some(enabled), author, (self.clock)()).await?;
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
        let (_, kind) = self.known(org, bank).await?;
        let id = |value: &String| kind.canonical(value).ok().map(|value| entry_id(bank, kind, &value));
        Ok(values.iter().map(id).collect())
    }

    /// The current configuration, and what the bank is in it.
    async fn known(&self, org: &OrgId, bank: &BankId) -> Result<(Content, BankKind), BankError> {
        let (_, content) = content::current(&self.store, org).await?;
        let kind = content.set.banks.get(bank).map(|(_, document)| document.kind);
        Ok((content, kind.ok_or_else(|| BankError::NoSuchBank(bank.clone()))?))
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

    fn read(
        &self,
        bank: &BankId,
        kind: BankKind,
        given: Given,
        author: &str,
        now: Millis,
    ) -> Result<Entry, String> {
        let limits = &self.settings.rules;
        let value = kind.canonical(&given.value)?;
        let longest = if kind == BankKind::Regex { limits.regex_source_bytes } else { limits.word_bytes };
        if value.len() > longest {
            return Err(format!("it is longer than {longest} bytes"));
        }
        if kind == BankKind::Regex {
            check_pattern(&value, limits)?;
        }
        let distance = check_hash(kind, &given)?;
        let (most, bytes) = LABELS;
        if given.labels.len() > most || given.labels.iter().any(|label| label.len() > bytes) {
            return Err(format!("an entry has at most {most} labels of {bytes} bytes"));
        }
        if given.source.as_ref().is_some_and(|source| source.len() > LONGEST_SOURCE) {
            return Err(format!("its source is longer than {LONGEST_SOURCE} bytes"));
        }
        Ok(Entry {
            id: entry_id(bank, kind, &value),
            value,
            enabled: !given.disabled,
            labels: given.labels,
            source: given.source,
            distance,
            reference: given.reference,
            note: given.note,
            quarantined_at: None,
            added_at: now,
            expires_at: given.expires_at,
            author: author.to_owned(),
        })
    }

    async fn change(
        &self,
        (org, bank): (&OrgId, &BankId),
        content: Content,
        operations: Vec<Operation>,
        enabled: Option<bool>,
        author: &str,
        now: Millis,
    ) -> Result<i64, BankError> {
        let adds = operations.iter().any(|it| matches!(it, Operation::Put(_))) || enabled == Some(true);
        // Rules do not hold hashes.
        let is_list = content.set.banks.get(bank).is_some_and(|(_, it)| it.kind.hash().is_none());
        if adds && is_list {
            self.try_out((org, bank), content, &operations, enabled, now).await?;
        }
        let revision = ledger::change(&self.store, (org, bank), &operations, enabled, (author, now)).await?;
        // The change is made: without the bump it is seen a little later.
        if let Err(error) = snapshots::bump(&self.store, now).await {
            tracing::warn!(tag = error.tag(), %org, %bank, revision, "processes see the change late");
        }
        tracing::info!(%org, %bank, revision, changes = operations.len(), "a bank changed");
        Ok(revision)
    }

    /// Refuses what would leave the organisation with rules that do not compile.
    async fn try_out(
        &self,
        (org, bank): (&OrgId, &BankId),
        content: Content,
        operations: &[Operation],
        enabled: Option<bool>,
        now: Millis,
    ) -> Result<(), BankError> {
        let mut all = all(&self.store, org, &content).await?;
        if let Some(held) = all.get_mut(bank) {
            let held = Arc::make_mut(held);
            held.apply(operations.to_vec());
            held.enabled = enabled.unwrap_or(held.enabled);
        }
        let (settings, org) = (Arc::clone(&self.settings), org.clone());
        let tried = tokio::task::spawn_blocking(move || {
            let (entries, _) = entries(&all, now);
            let version = tidegate_schemas::ids::ConfigVersion(0);
            let prefix = &settings.header_variable_prefix;
            compile(&org, version, &content, &entries, &settings.rules, prefix).map(drop)
        });
        match tried.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(faults)) => Err(BankError::Unusable(joined(&faults))),
            Err(panic) => Err(BankError::Unusable(format!("the compiler failed: {panic}"))),
        }
    }
}

/// What is held of an organisation's banks.
pub(crate) type AllHeld = HashMap<BankId, Arc<Held>>;

/// All banks of a configuration, read anew.
pub(crate) async fn all(store: &Store, org: &OrgId, content: &Content) -> Result<AllHeld, Error> {
    catch_up(store, org, content, &AllHeld::new()).await
}

/// All banks of a configuration, from what is held of them already.
pub(crate) async fn catch_up(
    store: &Store,
    org: &OrgId,
    content: &Content,
    held: &AllHeld,
) -> Result<AllHeld, Error> {
    let mut all = AllHeld::new();
    let lists = content.set.banks.iter().filter(|(_, (_, document))| document.kind.hash().is_none());
    for (bank, _) in lists {
        let known = held.get(bank);
        let newer = ledger::catch_up(store, org, bank, known.map(|held| &**held)).await?;
        let kept = known.filter(|known| known.revision == newer.revision).cloned();
        all.insert(bank.clone(), kept.unwrap_or_else(|| Arc::new(newer)));
    }
    Ok(all)
}

/// What compiles, and when the first of it expires.
pub(crate) fn entries(held: &AllHeld, now: Millis) -> (BankEntries, Option<Millis>) {
    let mut expires = None;
    let counting = held.iter().map(|(bank, held)| {
        let entries = held.entries.values().filter(|entry| held.enabled && entry.counts(now));
        let entries: Vec<_> = entries
            .map(|entry| {
                let sooner = |end: Millis| expires.is_none_or(|first| end < first);
                if let Some(end) = entry.expires_at.filter(|end| sooner(*end)) {
                    expires = Some(end);
                }
                let labels = entry.labels.clone().into();
                (entry.id, Labelled { value: entry.value.clone(), labels })
            })
            .collect();
        (bank.clone(), entries)
    });
    let counting = counting.collect();
    (counting, expires)
}

/// Apart from who handed it in, and when.
fn same(old: &Entry, new: &Entry) -> bool {
    old.enabled == new.enabled
        && old.labels == new.labels
        && old.source == new.source
        && (old.distance, &old.reference, &old.note) == (new.distance, &new.reference, &new.note)
        && old.expires_at == new.expires_at
}

/// What only entries of hashes have beside them.
fn check_hash(kind: BankKind, given: &Given) -> Result<Option<u8>, String> {
    let Some(hash) = kind.hash() else {
        let has_more = given.distance.is_some() || given.reference.is_some() || given.note.is_some();
        return if has_more {
            Err("only hashes have a distance, a reference and a note".to_owned())
        } else {
            Ok(None)
        };
    };
    let most = hash.most_distance();
    if given.distance.is_some_and(|distance| distance > most) {
        return Err(format!("hashes of kind {} may differ in at most {most} bits", hash.name()));
    }
    for (name, text) in [("reference", &given.reference), ("note", &given.note)] {
        if text.as_ref().is_some_and(|text| text.len() > LONGEST_SOURCE) {
            return Err(format!("its {name} is longer than {LONGEST_SOURCE} bytes"));
        }
    }
    Ok(given.distance.and_then(|distance| u8::try_from(distance).ok()))
}

/// As a rule would be held to it that has the pattern.
fn check_pattern(pattern: &str, limits: &Limits) -> Result<(), String> {
    let mut vocabulary = Vocabulary::new();
    let shape = Shape { kind: tidegate_rules::Kind::Text, container: tidegate_rules::Container::One };
    vocabulary.add(TypeId::new("item"), [("text", shape)]);
    let rule = json!({"rule": "entry", "when": {"text": {"in": ["text"], "regex": pattern}}});
    let compiled = Plan::compile(&[RuleSource { document: &rule, version: "" }], &vocabulary, limits);
    match compiled {
        Ok(_) => Ok(()),
        Err(faults) => Err(faults.first().map_or_else(String::new, |fault| fault.detail.clone())),
    }
}
