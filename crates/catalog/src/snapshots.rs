//! Reads and writes configuration heads, snapshots and the catalog epoch. `content` decodes the snapshots.

use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::{
    Batch, InsertOutcome, ReplaceOutcome, RowRange, Split, Store, WriteTime,
    tables::catalog::configs::{CatalogEpoch, ConfigHead, ConfigSnapshot, EPOCH},
};
use uuid::Uuid;

use crate::Error;

/// Greatest length of one row of a snapshot: far below the limit of a Cassandra mutation, with few rows for
/// each snapshot.
const MAX_PART_BYTES: usize = 256 << 10;

pub(crate) async fn load_head(store: &Store, org: &OrgId) -> Result<Option<ConfigHead>, Error> {
    Ok(store.get::<ConfigHead>(&ConfigHead::key(org.clone())).await?)
}

pub(crate) async fn load_heads(store: &Store) -> Result<Vec<ConfigHead>, Error> {
    Ok(store.scan_all::<ConfigHead>(&Split::whole_table()).all().await?)
}

/// Writes a snapshot that no head refers to yet. A crash before the head is written leaves it behind, unused.
pub(crate) async fn write_snapshot(
    store: &Store,
    org: &OrgId,
    version: ConfigVersion,
    text: &str,
    author: &str,
    now: Millis,
) -> Result<Uuid, Error> {
    let snapshot_id = tidegate_schemas::ids::CauseId::random().0;
    let parts = split_text(text);
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    for (part, documents) in (0..).zip(parts) {
        let row = ConfigSnapshot {
            org: org.clone(),
            config_version: version,
            snapshot_id,
            part,
            parts: count,
            documents: documents.to_owned(),
            author: author.to_owned(),
            created_at: now,
        };
        let mut batch = Batch::new();
        // Durable, because a head must never refer to rows that a crash can lose.
        batch.put_owned(WriteTime::after(None, now), row).require_sync();
        store.write(batch).await?;
    }
    Ok(snapshot_id)
}

pub(crate) async fn read_snapshot(store: &Store, head: &ConfigHead) -> Result<String, Error> {
    let partition = ConfigSnapshot::partition(head.org.clone(), head.config_version);
    let rows =
        store.scan::<ConfigSnapshot>(&partition, RowRange::with_prefix((head.snapshot_id,))).all().await?;
    let is_complete = rows.first().is_some_and(|row| usize::try_from(row.parts) == Ok(rows.len()));
    if !is_complete {
        return Err(Error::Unreadable {
            org: head.org.clone(),
            version: head.config_version,
            reason: format!("{} of its parts exist", rows.len()),
        });
    }
    Ok(rows.iter().map(|row| row.documents.as_str()).collect())
}

pub(crate) fn split_text(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > MAX_PART_BYTES {
        let (part, tail) = rest.split_at(rest.floor_char_boundary(MAX_PART_BYTES));
        parts.push(part);
        rest = tail;
    }
    parts.push(rest);
    parts
}

pub(crate) async fn read_epoch(store: &Store) -> Result<i64, Error> {
    let row = store.get::<CatalogEpoch>(&CatalogEpoch::key(EPOCH)).await?;
    Ok(row.map_or(0, |row| row.version))
}

/// Tells all processes that a head changed. Returns an epoch at which the change is visible.
pub(crate) async fn bump_epoch(store: &Store, now: Millis) -> Result<i64, Error> {
    let mut row = CatalogEpoch { name: EPOCH.to_owned(), changed_at: now, version: 0 };
    let current_epoch = match read_epoch(store).await? {
        0 => match store.insert_new(&row).await? {
            InsertOutcome::New => return Ok(1),
            // Inserted after our read, and so after our head was written.
            InsertOutcome::Existing(newer) => return Ok(newer.version),
        },
        epoch => epoch,
    };
    row.version = current_epoch;
    match store.replace(&row, current_epoch).await? {
        ReplaceOutcome::Done => Ok(current_epoch + 1),
        ReplaceOutcome::Conflict(newer) => Ok(newer.version),
        ReplaceOutcome::Missing => {
            Err(tidegate_store::Error::Engine("the epoch row is missing".to_owned()).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_split_between_characters() {
        let text = "é".repeat(MAX_PART_BYTES) + "x";
        let parts = split_text(&text);
        assert!(parts.len() >= 3 && parts.iter().all(|part| part.len() <= MAX_PART_BYTES));
        assert_eq!(parts.concat(), text);
        assert_eq!(split_text(""), [""]);
    }
}
