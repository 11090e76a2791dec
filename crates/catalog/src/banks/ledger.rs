//! Rows of a bank: commits changes and lets processes catch up from an older revision.
//!
//! A change is first written to rows of its own, under a unique id. One conditional write of the head then
//! makes it the next revision. The loser of that race leaves unreferenced rows behind and tries again. The
//! winner settles the change: it writes the entry rows, then marks the head as settled. A crash before that
//! leaves one unsettled revision. Readers add it from the change's rows, and the next writer settles it
//! first, so at most one revision is ever unsettled.

use std::sync::Arc;

use tidegate_schemas::ids::{BankId, Millis, OrgId};
use tidegate_store::{
    Batch, InsertOutcome, ReplaceOutcome, RowRange, Split, Store, WriteTime,
    tables::catalog::banks::{BankChange, BankEntry, BankHash, BankHead, BankRevision},
};
use uuid::Uuid;

use super::{
    Entry,
    held::{LoadedBank, LoadedBankBuilder},
    operation::Operation,
};
use crate::{Error, snapshots};

/// Number of entries in one batch.
const ENTRIES_PER_BATCH: usize = 500;

/// Returns the head of a bank that never had a change.
fn initial_head(org: &OrgId, bank: &BankId) -> BankHead {
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

pub(crate) async fn load_head(store: &Store, org: &OrgId, bank: &BankId) -> Result<BankHead, Error> {
    let row = store.get::<BankHead>(&BankHead::key(org.clone(), bank.clone())).await?;
    Ok(row.unwrap_or_else(|| initial_head(org, bank)))
}

/// Loads the heads of these banks, in their order.
pub(crate) async fn load_heads_of(
    store: &Store,
    org: &OrgId,
    banks: impl Iterator<Item = &BankId> + Clone,
) -> Result<Vec<BankHead>, Error> {
    let keys: Vec<_> = banks.clone().map(|bank| BankHead::key(org.clone(), bank.clone())).collect();
    let rows = store.get_many::<BankHead>(&keys).await?;
    Ok(rows
        .into_iter()
        .zip(banks)
        .map(|(head, bank)| head.unwrap_or_else(|| initial_head(org, bank)))
        .collect())
}

/// Loads the heads of all banks that ever had a change.
pub(crate) async fn load_heads(store: &Store) -> Result<Vec<BankHead>, Error> {
    Ok(store.scan_all::<BankHead>(&Split::whole_table()).all().await?)
}

/// Commits operations as the next revision and settles it. `enabled` switches the whole bank. Returns `None`
/// if the bank is no longer at the expected revision.
pub(crate) async fn commit_change(
    store: &Store,
    (org, bank): (&OrgId, &BankId),
    operations: &[Operation],
    enabled: Option<bool>,
    expected_revision: Option<i64>,
    (author, now): (&str, Millis),
) -> Result<Option<i64>, Error> {
    let change_id = tidegate_schemas::ids::CauseId::random().0;
    loop {
        let head = load_head(store, org, bank).await?;
        // A second change on top of an unsettled one would leave two revisions that readers have to add.
        if head.settled < head.revision {
            settle(store, &head).await?;
            continue;
        }
        if expected_revision.is_some_and(|revision| revision != head.revision) {
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
        write_change(store, &next, operations, now).await?;
        // The first change creates the head.
        let is_committed = if head.version == 0 {
            matches!(store.insert_new(&next).await?, InsertOutcome::New)
        } else {
            matches!(store.replace(&next, head.version).await?, ReplaceOutcome::Done)
        };
        // Otherwise another change took the revision, and this one is written again as the next.
        if is_committed {
            settle(store, &BankHead { version: head.version + 1, ..next.clone() }).await?;
            return Ok(Some(next.revision));
        }
    }
}

/// Writes the rows of a change, which no head refers to yet.
async fn write_change(
    store: &Store,
    head: &BankHead,
    operations: &[Operation],
    now: Millis,
) -> Result<(), Error> {
    let text = serde_json::to_string(operations).expect("entries have string keys and finite numbers only");
    let parts = snapshots::split_text(&text);
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
        // Durable, because a head must never refer to rows that a crash can lose.
        batch.put_owned(WriteTime::after(None, now), row).require_sync();
        store.write(batch).await?;
    }
    Ok(())
}

/// Writes the entry rows of the head's revision. Repeated and concurrent calls have the same effect as one.
pub(crate) async fn settle(store: &Store, head: &BankHead) -> Result<(), Error> {
    let (org, bank, revision) = (&head.org, &head.bank, head.revision);
    let operations = read_operations(store, org, bank, revision, head.change_id).await?;
    // The revision as write time makes a late write of this change lose against newer revisions.
    let write_time = WriteTime(revision);
    for operations in operations.chunks(ENTRIES_PER_BATCH) {
        let mut entries = Batch::new();
        for operation in operations {
            match operation {
                Operation::Put(entry) => entries.put_owned(write_time, entry_row(org, bank, entry)),
                Operation::PutHash(entry) => entries.put_owned(write_time, hash_entry_row(org, bank, entry)),
                Operation::RemoveHash { id, .. } => {
                    let key = BankHash::key(org.clone(), bank.clone(), hash_bucket(*id), *id);
                    entries.delete::<BankHash>(write_time, &key)
                }
                Operation::Remove(id) => {
                    entries.delete::<BankEntry>(write_time, &BankEntry::key(org.clone(), bank.clone(), *id))
                }
            };
        }
        store.write(entries).await?;
    }
    // The feed row precedes the settled mark: a reader that sees the mark must find the revision in the feed.
    let feed_row = BankRevision { org: org.clone(), bank: bank.clone(), revision, change_id: head.change_id };
    let mut batch = Batch::new();
    batch.put_owned(WriteTime::after(None, head.changed_at), feed_row).require_sync();
    store.write(batch).await?;
    // A conflict means that another process settled the same revision.
    store.replace(&BankHead { settled: revision, ..head.clone() }, head.version).await?;
    Ok(())
}

/// Returns the bank at its current revision: the loaded bank with the changes since, or a full read.
pub(crate) async fn load_current_bank(
    store: &Store,
    org: &OrgId,
    bank: &BankId,
    loaded_bank: Option<&Arc<LoadedBank>>,
) -> Result<Arc<LoadedBank>, Error> {
    let head = load_head(store, org, bank).await?;
    if let Some(loaded_bank) = loaded_bank.filter(|bank| bank.revision <= head.revision)
        && let Some(updated_bank) = apply_feed(store, loaded_bank, &head).await?
    {
        return Ok(updated_bank);
    }
    load_bank(store, &head).await.map(Arc::new)
}

/// Applies the changes since the loaded revision. `None` if the feed does not reach back to it.
async fn apply_feed(
    store: &Store,
    loaded_bank: &Arc<LoadedBank>,
    head: &BankHead,
) -> Result<Option<Arc<LoadedBank>>, Error> {
    if loaded_bank.revision == head.revision {
        return Ok(Some(Arc::clone(loaded_bank)));
    }
    let Some(changes) = read_changes(store, loaded_bank.revision, head).await? else { return Ok(None) };
    let mut pending_operations = Vec::new();
    for (revision, change_id) in changes {
        match read_operations(store, &head.org, &head.bank, revision, change_id).await {
            Ok(operations) => pending_operations.extend(operations),
            // The rows of the change cannot be read. A full read needs none of the settled ones.
            Err(Error::Bank { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut updated_bank = LoadedBank::clone(loaded_bank);
    updated_bank.apply(pending_operations);
    (updated_bank.revision, updated_bank.enabled) = (head.revision, head.enabled);
    Ok(Some(Arc::new(updated_bank)))
}

/// Reads revision and id of the changes after a revision. `None` if the feed does not reach back to it.
pub(super) async fn read_changes(
    store: &Store,
    after: i64,
    head: &BankHead,
) -> Result<Option<Vec<(i64, Uuid)>>, Error> {
    let partition = BankRevision::partition(head.org.clone(), head.bank.clone());
    let range = RowRange::range((), after + 1..=head.settled);
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
    // A gap means that rows of the feed expired.
    let is_complete = (after + 1..=head.revision).eq(changes.iter().map(|(revision, _)| *revision));
    Ok(is_complete.then_some(changes))
}

/// Reads the whole list bank. Entry rows may already contain a later revision that settles meanwhile; applying it
/// again later has no further effect.
async fn load_bank(store: &Store, head: &BankHead) -> Result<LoadedBank, Error> {
    let partition = BankEntry::partition(head.org.clone(), head.bank.clone());
    let mut rows = LoadedBankBuilder::default();
    let mut pages = store.scan::<BankEntry>(&partition, RowRange::all());
    while let Some(page) = pages.next_page().await? {
        page.into_iter().for_each(|row| rows.add(entry_from_row(row)));
    }
    let mut loaded_bank = rows.build(head.revision, head.enabled);
    if head.settled < head.revision {
        loaded_bank
            .apply(read_operations(store, &head.org, &head.bank, head.revision, head.change_id).await?);
    }
    Ok(loaded_bank)
}

pub(super) async fn read_operations(
    store: &Store,
    org: &OrgId,
    bank: &BankId,
    revision: i64,
    change_id: Uuid,
) -> Result<Vec<Operation>, Error> {
    let unreadable_change =
        |reason: String| Error::Bank { org: org.clone(), bank: bank.clone(), revision, reason };
    let partition = BankChange::partition(org.clone(), bank.clone(), revision);
    let rows = store.scan::<BankChange>(&partition, RowRange::with_prefix((change_id,))).all().await?;
    if !rows.first().is_some_and(|row| usize::try_from(row.parts) == Ok(rows.len())) {
        return Err(unreadable_change(format!("{} of its parts exist", rows.len())));
    }
    let text: String = rows.iter().map(|row| row.operations.as_str()).collect();
    serde_json::from_str(&text).map_err(|error| unreadable_change(error.to_string()))
}

pub(crate) fn entry_row(org: &OrgId, bank: &BankId, entry: &Entry) -> BankEntry {
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

/// Returns the bucket of an entry in a hash bank: the first bits of its id, so that buckets are ordered like
/// ids.
pub(crate) fn hash_bucket(id: Uuid) -> i64 {
    i64::from(id.as_bytes()[0] >> 2)
}

/// Number of buckets of a hash bank: one for each value of the six bits in [`hash_bucket`].
pub(crate) const BUCKET_COUNT: i64 = 64;

fn hash_entry_row(org: &OrgId, bank: &BankId, entry: &Entry) -> BankHash {
    BankHash {
        org: org.clone(),
        bank: bank.clone(),
        bucket: hash_bucket(entry.id),
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

pub(crate) fn entry_from_hash_row(row: BankHash) -> Entry {
    Entry {
        id: row.entry,
        value: row.value,
        enabled: row.enabled,
        // Written by `hash_entry_row`; unreadable values fall back to empty, like in `entry_from_row`.
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

pub(crate) fn entry_from_row(row: BankEntry) -> Entry {
    Entry {
        id: row.entry,
        value: row.value,
        enabled: row.enabled,
        // Written by `entry_row`. Unreadable labels are shown as none, so that the entry stays visible.
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
