//! Lists the entries of a bank page by page, ordered by id.

use std::{fmt, str::FromStr};

use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, OrgId},
};
use tidegate_store::{
    CursorPartition, PartitionCursor, RowRange, Store,
    tables::catalog::banks::{BankEntry, BankHash},
};

use super::{
    Entry,
    ledger::{self, BUCKET_COUNT},
};
use crate::Error;

/// Cursor of a page, passed through clients as text.
pub type PageCursor = PartitionCursor<Bucket>;

/// Bucket of a hash bank; 0 for list banks, which have one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(i64);

impl CursorPartition for Bucket {
    const SEPARATOR: char = '.';
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Bucket {
    type Err = tidegate_store::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.parse().ok().filter(|number| (0..BUCKET_COUNT).contains(number));
        number.map(Self).ok_or(tidegate_store::Error::BadCursor)
    }
}

pub(super) async fn read_page(
    store: &Store,
    (org, bank): (&OrgId, &BankId),
    kind: BankKind,
    from: Option<PageCursor>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<PageCursor>), Error> {
    let PageCursor { partition: Bucket(mut bucket), mut after } =
        from.unwrap_or(PageCursor::start_of(Bucket(0)));
    // A list bank is one partition, so one scan with a limit is a page.
    if kind.hash_kind().is_none() {
        let partition = BankEntry::partition(org.clone(), bank.clone());
        let range = RowRange::all().limit(limit).page_size(limit).after(after);
        let mut pages = store.scan::<BankEntry>(&partition, range);
        let rows = pages.all().await?;
        let next = pages.cursor().map(|cursor| PageCursor { partition: Bucket(0), after: Some(cursor) });
        return Ok((rows.into_iter().map(ledger::entry_from_row).collect(), next));
    }
    // Buckets are ordered like ids, so reading them one after the other keeps the order.
    let mut entries = Vec::new();
    while bucket < BUCKET_COUNT {
        let remaining_limit = limit - entries.len();
        if remaining_limit == 0 {
            return Ok((entries, Some(PageCursor { partition: Bucket(bucket), after })));
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
