//! The rows of a bank: how a change gets into them, and how a process that has an older revision catches up.
//!
//! It judges no entry, and compiles nothing.
//!
//! A change is written beside the bank first, under an id of its own. One `replace` of the head makes it the next
//! revision; whoever loses that race leaves rows behind that nobody names, and tries again. Then the entries' rows follow,
//! and the head says so. A crash in between leaves a revision that is not settled: readers add it from its own rows, and
//! whoever comes next settles it first, so there is never more than one.

use std::sync::Arc;

use tidegate_schemas::ids::{BankId, Millis, OrgId};
use tidegate_store::{
    At, Batch, Inserted, Replaced, Split, Store, WriteTime,
    tables::catalog::banks::{BankChange, BankEntry, BankHash, BankHead, BankRevision},
};
use uuid::Uuid;

use super::{
    Entry,
    held::{Held, HeldRows},
    operation::Operation,
};
use crate::{Error, snapshots};

/// Entries that are written together.
const AT_ONCE: usize = 500;

/// A bank whose head nobody has written yet.
fn unwritten(org: &OrgId, bank: &BankId) -> BankHead {
    BankHead {
        org: org.clone(),
        bank: bank.clone(),
        revision: 0,
        settled: 0,
        change_id: Uuid::nil(),
        enabled: true,
        changed_at: Millis(0),
        author: String::new(),
        version: 0,
    }
}

pub(crate) async fn head(store: &Store, org: &OrgId, bank: &BankId) -> Result<BankHead, Error> {
    let found = store.get::<BankHead>(&BankHead::key(org.clone(), bank.clone())).await?;
    Ok(found.unwrap_or_else(|| unwritten(org, bank)))
}

/// The heads of these banks, in their order.
pub(crate) async fn heads_of(
    store: &Store,
    org: &OrgId,
    banks: impl Iterator<Item = &BankId> + Clone,
) -> Result<Vec<BankHead>, Error> {
    let keys: Vec<_> = banks.clone().map(|bank| BankHead::key(org.clone(), bank.clone())).collect();
    let found = store.get_many::<BankHead>(&keys).await?;
    Ok(found
        .into_iter()
        .zip(banks)
        .map(|(head, bank)| head.unwrap_or_else(|| unwritten(org, bank)))
        .collect())
}

/// The heads of all banks that ever had a change.
pub(crate) async fn heads(store: &Store) -> Result<Vec<BankHead>, Error> {
    Ok(store.scan_all::<BankHead>(&Split::whole()).all().await?)
}

/// Makes operations the next revision and settles it. `enabled` changes the bank as a whole. `None`: the bank is not at the
/// revision any more that the operations were made for, if that matters to them.
pub(crate) async fn change(
    store: &Store,
    (org, bank): (&OrgId, &BankId),
    operations: &[Operation],
    enabled: Option<bool>,
    made_for: Option<i64>,
    (author, now): (&str, Millis),
) -> Result<Option<i64>, Error> {
    let change_id = tidegate_schemas::ids::CauseId::random().0;
    loop {
        let head = head(store, org, bank).await?;
        if head.settled < head.revision {
            settle(store, &head).await?;
            continue;
        }
        if made_for.is_some_and(|revision| revision != head.revision) {
            return Ok(None);
        }
        let next = BankHead {
            revision: head.revision + 1,
            settled: head.revision,
            change_id,
            enabled: enabled.unwrap_or(head.enabled),
            changed_at: now,
            author: author.to_owned(),
            ..head.clone()
        };
        write(store, &next, operations, now).await?;
        let won = if head.version == 0 {
            matches!(store.insert_new(&next).await?, Inserted::New)
        } else {
            matches!(store.replace(&next, head.version).await?, Replaced::Yes)
        };
        if won {
            settle(store, &BankHead { version: head.version + 1, ..next.clone() }).await?;
            return Ok(Some(next.revision));
        }
    }
}

/// The change's rows, which no head names yet.
async fn write(store: &Store, head: &BankHead, operations: &[Operation], now: Millis) -> Result<(), Error> {
    let text = serde_json::to_string(operations).expect("entries have string keys and finite numbers only");
    let parts = snapshots::split(&text);
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    for (part, operations) in (0..).zip(parts) {
        let row = BankChange {
            org: head.org.clone(),
            bank: head.bank.clone(),
            revision: head.revision,
            change_id: head.change_id,
            part,
            parts: count,
            operations: operations.to_owned(),
        };
        let mut batch = Batch::new();
        batch.put_owned(WriteTime::after(None, now), row).durable();
        store.write(batch).await?;
    }
    Ok(())
}

/// Brings the entries' rows to the head's revision. Done by several at once it is done once.
pub(crate) async fn settle(store: &Store, head: &BankHead) -> Result<(), Error> {
    let (org, bank, revision) = (&head.org, &head.bank, head.revision);
    let operations = operations(store, org, bank, revision, head.change_id).await?;
    let at = WriteTime(revision);
    for operations in operations.chunks(AT_ONCE) {
        let mut entries = Batch::new();
        for operation in operations {
            match operation {
                Operation::Put(entry) => entries.put_owned(at, row(org, bank, entry)),
                Operation::PutHash(entry) => entries.put_owned(at, hash_row(org, bank, entry)),
                Operation::RemoveHash { id, .. } => {
                    let key = BankHash::key(org.clone(), bank.clone(), bucket(*id), *id);
                    entries.delete::<BankHash>(at, &key)
                }
                Operation::Remove(id) => {
                    entries.delete::<BankEntry>(at, &BankEntry::key(org.clone(), bank.clone(), *id))
                }
            };
        }
        store.write(entries).await?;
    }
    let named = BankRevision { org: org.clone(), bank: bank.clone(), revision, change_id: head.change_id };
    let mut batch = Batch::new();
    batch.put_owned(WriteTime::after(None, head.changed_at), named).durable();
    store.write(batch).await?;
    // Lost to somebody who settled it too, which is as well.
    store.replace(&BankHead { settled: revision, ..head.clone() }, head.version).await?;
    Ok(())
}

/// The bank as its head has it: what is held already and what came since, or all of it.
pub(crate) async fn catch_up(
    store: &Store,
    org: &OrgId,
    bank: &BankId,
    held: Option<&Arc<Held>>,
) -> Result<Arc<Held>, Error> {
    let head = head(store, org, bank).await?;
    if let Some(held) = held.filter(|held| held.revision <= head.revision)
        && let Some(newer) = since(store, held, &head).await?
    {
        return Ok(newer);
    }
    whole(store, &head).await.map(Arc::new)
}

/// `None`: the feed does not reach back so far.
async fn since(store: &Store, held: &Arc<Held>, head: &BankHead) -> Result<Option<Arc<Held>>, Error> {
    if held.revision == head.revision {
        return Ok(Some(Arc::clone(held)));
    }
    let Some(changes) = changes(store, held.revision, head).await? else { return Ok(None) };
    let mut all = Vec::new();
    for (revision, change_id) in changes {
        match operations(store, &head.org, &head.bank, revision, change_id).await {
            Ok(operations) => all.extend(operations),
            Err(Error::Bank { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut newer = Held::clone(held);
    newer.apply(all);
    (newer.revision, newer.enabled) = (head.revision, head.enabled);
    Ok(Some(Arc::new(newer)))
}

/// The changes after a revision, by revision and id. `None`: the feed does not reach back so far.
pub(super) async fn changes(
    store: &Store,
    after: i64,
    head: &BankHead,
) -> Result<Option<Vec<(i64, Uuid)>>, Error> {
    let partition = BankRevision::partition(head.org.clone(), head.bank.clone());
    let range = At::range((), after + 1..=head.settled);
    let mut changes: Vec<_> = store
        .scan::<BankRevision>(&partition, range)
        .all()
        .await?
        .into_iter()
        .map(|row| (row.revision, row.change_id))
        .collect();
    if head.settled < head.revision {
        changes.push((head.revision, head.change_id));
    }
    let reaches = (after + 1..=head.revision).eq(changes.iter().map(|(revision, _)| *revision));
    Ok(reaches.then_some(changes))
}

/// Reads the whole bank. A change that is settled meanwhile may be of a later revision; it is then applied a second
/// time, which changes nothing.
async fn whole(store: &Store, head: &BankHead) -> Result<Held, Error> {
    let partition = BankEntry::partition(head.org.clone(), head.bank.clone());
    let mut rows = HeldRows::default();
    let mut pages = store.scan::<BankEntry>(&partition, At::all());
    while let Some(page) = pages.next_page().await? {
        page.into_iter().for_each(|row| rows.add(entry(row)));
    }
    let mut held = rows.held(head.revision, head.enabled);
    if head.settled < head.revision {
        held.apply(operations(store, &head.org, &head.bank, head.revision, head.change_id).await?);
    }
    Ok(held)
}

pub(super) async fn operations(
    store: &Store,
    org: &OrgId,
    bank: &BankId,
    revision: i64,
    change_id: Uuid,
) -> Result<Vec<Operation>, Error> {
    let unreadable = |reason: String| Error::Bank { org: org.clone(), bank: bank.clone(), revision, reason };
    let partition = BankChange::partition(org.clone(), bank.clone(), revision);
    let rows = store.scan::<BankChange>(&partition, At::under((change_id,))).all().await?;
    if !rows.first().is_some_and(|row| usize::try_from(row.parts) == Ok(rows.len())) {
        return Err(unreadable(format!("{} of its parts are there", rows.len())));
    }
    let text: String = rows.iter().map(|row| row.operations.as_str()).collect();
    serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
}

pub(crate) fn row(org: &OrgId, bank: &BankId, entry: &Entry) -> BankEntry {
    BankEntry {
        org: org.clone(),
        bank: bank.clone(),
        entry: entry.id,
        value: entry.value.clone(),
        enabled: entry.enabled,
        labels: serde_json::to_string(&entry.labels).expect("texts are JSON"),
        source: entry.source.clone(),
        added_at: entry.added_at,
        expires_at: entry.expires_at,
        author: entry.author.clone(),
    }
}

/// Returns the part of a bank of hashes that an entry lies in: the first bits of its id, so that parts follow each
/// other as ids do.
pub(crate) fn bucket(id: Uuid) -> i64 {
    i64::from(id.as_bytes()[0] >> 2)
}

pub(crate) const BUCKETS: i64 = 64;

fn hash_row(org: &OrgId, bank: &BankId, entry: &Entry) -> BankHash {
    BankHash {
        org: org.clone(),
        bank: bank.clone(),
        bucket: bucket(entry.id),
        entry: entry.id,
        value: entry.value.clone(),
        enabled: entry.enabled,
        distance: entry.distance.map(i64::from),
        labels: serde_json::to_string(&entry.labels).expect("texts are JSON"),
        source: entry.source.clone(),
        reference: entry.reference.clone(),
        also: (!entry.also.is_empty()).then(|| serde_json::to_string(&entry.also).expect("texts are JSON")),
        note: entry.note.clone(),
        added_at: entry.added_at,
        expires_at: entry.expires_at,
        quarantined_at: entry.quarantined_at,
        author: entry.author.clone(),
    }
}

pub(crate) fn hash_entry(row: BankHash) -> Entry {
    Entry {
        id: row.entry,
        value: row.value,
        enabled: row.enabled,
        // Written by `hash_row`, as those of `row` below.
        labels: serde_json::from_str(&row.labels).unwrap_or_default(),
        source: row.source,
        distance: row.distance.and_then(|distance| u8::try_from(distance).ok()),
        reference: row.reference,
        also: row.also.and_then(|also| serde_json::from_str(&also).ok()).unwrap_or_default(),
        note: row.note,
        quarantined_at: row.quarantined_at,
        added_at: row.added_at,
        expires_at: row.expires_at,
        author: row.author,
    }
}

pub(crate) fn entry(row: BankEntry) -> Entry {
    Entry {
        id: row.entry,
        value: row.value,
        enabled: row.enabled,
        // Written by `row`; what cannot be read is shown as none rather than hiding the entry.
        labels: serde_json::from_str(&row.labels).unwrap_or_default(),
        source: row.source,
        distance: None,
        reference: None,
        also: Vec::new(),
        note: None,
        quarantined_at: None,
        added_at: row.added_at,
        expires_at: row.expires_at,
        author: row.author,
    }
}
