//! Heads, snapshots and the epoch in the store.
//!
//! It does not understand what a snapshot holds.

use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::{
    At, Batch, Inserted, Replaced, Split, Store, WriteTime,
    tables::catalog::configs::{CatalogEpoch, ConfigHead, ConfigSnapshot, EPOCH},
};
use uuid::Uuid;

use crate::Error;

/// Far below what a Cassandra mutation may hold, and few enough rows for one page.
const PART_BYTES: usize = 256 << 10;

pub(crate) async fn head(store: &Store, org: &OrgId) -> Result<Option<ConfigHead>, Error> {
    Ok(store.get::<ConfigHead>(&ConfigHead::key(org.clone())).await?)
}

pub(crate) async fn heads(store: &Store) -> Result<Vec<ConfigHead>, Error> {
    Ok(store.scan_all::<ConfigHead>(&Split::whole()).all().await?)
}

/// Writes a snapshot that no head names yet. If nothing ever does, it stays behind unseen.
pub(crate) async fn write(
    store: &Store,
    org: &OrgId,
    version: ConfigVersion,
    text: &str,
    author: &str,
    now: Millis,
) -> Result<Uuid, Error> {
    let snapshot_id = tidegate_schemas::ids::CauseId::random().0;
    let parts = split(text);
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
        batch.put_owned(WriteTime::after(None, now), row).durable();
        store.write(batch).await?;
    }
    Ok(snapshot_id)
}

pub(crate) async fn read(store: &Store, head: &ConfigHead) -> Result<String, Error> {
    let partition = ConfigSnapshot::partition(head.org.clone(), head.config_version);
    let rows = store.scan::<ConfigSnapshot>(&partition, At::under((head.snapshot_id,))).all().await?;
    let whole = rows.first().is_some_and(|row| usize::try_from(row.parts) == Ok(rows.len()));
    if !whole {
        return Err(Error::Unreadable {
            org: head.org.clone(),
            version: head.config_version,
            reason: format!("{} of its parts are there", rows.len()),
        });
    }
    Ok(rows.iter().map(|row| row.documents.as_str()).collect())
}

pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > PART_BYTES {
        let (part, tail) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
        parts.push(part);
        rest = tail;
    }
    parts.push(rest);
    parts
}

pub(crate) async fn epoch(store: &Store) -> Result<i64, Error> {
    let row = store.get::<CatalogEpoch>(&CatalogEpoch::key(EPOCH)).await?;
    Ok(row.map_or(0, |row| row.version))
}

/// Tells every process that a head moved; answers with an epoch at which the move is seen.
pub(crate) async fn bump(store: &Store, now: Millis) -> Result<i64, Error> {
    let mut row = CatalogEpoch { name: EPOCH.to_owned(), changed_at: now, version: 0 };
    let was = match epoch(store).await? {
        0 => match store.insert_new(&row).await? {
            Inserted::New => return Ok(1),
            // Made after we had looked, so after our head moved.
            Inserted::Existing(newer) => return Ok(newer.version),
        },
        was => was,
    };
    row.version = was;
    match store.replace(&row, was).await? {
        Replaced::Yes => Ok(was + 1),
        Replaced::No(newer) => Ok(newer.version),
        Replaced::Gone => Err(tidegate_store::Error::Engine("the epoch row is gone".to_owned()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_loses_nothing() {
        let text = "é".repeat(PART_BYTES) + "x";
        let parts = split(&text);
        assert!(parts.len() >= 3 && parts.iter().all(|part| part.len() <= PART_BYTES));
        assert_eq!(parts.concat(), text);
        assert_eq!(split(""), [""]);
    }
}
