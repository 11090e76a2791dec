//! Lists the entries of a bank page by page, ordered by id.

use std::{fmt, str::FromStr};

use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, OrgId},
};
use tidegate_store::{
    Cursor, RowRange, Store,
    tables::catalog::banks::{BankEntry, BankHash},
};

use super::{
    Entry,
    ledger::{self, BUCKET_COUNT},
};
use crate::Error;

/// Cursor of a page, passed through clients as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCursor {
    /// Bucket of a hash bank; 0 for list banks, which have one partition.
    bucket: i64,
    after: Option<Cursor>,
}

impl fmt::Display for PageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.bucket)?;
        self.after.as_ref().map_or(Ok(()), |cursor| cursor.fmt(f))
    }
}

impl FromStr for PageCursor {
    type Err = tidegate_store::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (bucket, after) = text.split_once('.').ok_or(tidegate_store::Error::BadCursor)?;
        let bucket = bucket.parse().ok().filter(|bucket| (0..BUCKET_COUNT).contains(bucket));
        let bucket = bucket.ok_or(tidegate_store::Error::BadCursor)?;
        let after = if after.is_empty() { None } else { Some(after.parse()?) };
        Ok(Self { bucket, after })
    }
}

pub(super) async fn read_page(
    store: &Store,
    (org, bank): (&OrgId, &BankId),
    kind: BankKind,
    from: Option<PageCursor>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<PageCursor>), Error> {
    let PageCursor { mut bucket, mut after } = from.unwrap_or(PageCursor { bucket: 0, after: None });
    // A list bank is one partition, so one scan with a limit is a page.
    if kind.hash_kind().is_none() {
        let partition = BankEntry::partition(org.clone(), bank.clone());
        let range = RowRange::all().limit(limit).page_size(limit).after(after);
        let mut pages = store.scan::<BankEntry>(&partition, range);
        let rows = pages.all().await?;
        let next = pages.cursor().map(|cursor| PageCursor { bucket: 0, after: Some(cursor) });
        return Ok((rows.into_iter().map(ledger::entry_from_row).collect(), next));
    }
    // Buckets are ordered like ids, so reading them one after the other keeps the order.
    let mut entries = Vec::new();
    while bucket < BUCKET_COUNT {
        let remaining_limit = limit - entries.len();
        if remaining_limit == 0 {
            return Ok((entries, Some(PageCursor { bucket, after })));
        }
        let partition = BankHash::partition(org.clone(), bank.clone(), bucket);
        let range = RowRange::all().limit(remaining_limit).page_size(remaining_limit).after(after.take());
        let mut pages = store.scan::<BankHash>(&partition, range);
        entries.extend(pages.all().await?.into_iter().map(ledger::entry_from_hash_row));
        after = pages.cursor();
        if after.is_none() {
            bucket += 1;
        }
    }
    Ok((entries, None))
}
