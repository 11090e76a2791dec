//! Lists the entries of a bank page by page, in the order of their ids.
//!
//! It judges no entry, and settles no change.

use std::{fmt, str::FromStr};

use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, OrgId},
};
use tidegate_store::{
    At, Cursor, Store,
    tables::catalog::banks::{BankEntry, BankHash},
};

use super::{
    Entry,
    ledger::{self, BUCKETS},
};
use crate::Error;

/// Start of a page. Clients carry it along as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Part of a bank of hashes; the other banks have one part.
    bucket: i64,
    after: Option<Cursor>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.bucket)?;
        self.after.as_ref().map_or(Ok(()), |cursor| cursor.fmt(f))
    }
}

impl FromStr for Place {
    type Err = tidegate_store::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (bucket, after) = text.split_once('.').ok_or(tidegate_store::Error::BadCursor)?;
        let bucket = bucket.parse().ok().filter(|bucket| (0..BUCKETS).contains(bucket));
        let bucket = bucket.ok_or(tidegate_store::Error::BadCursor)?;
        let after = if after.is_empty() { None } else { Some(after.parse()?) };
        Ok(Self { bucket, after })
    }
}

pub(super) async fn page(
    store: &Store,
    (org, bank): (&OrgId, &BankId),
    kind: BankKind,
    from: Option<Place>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<Place>), Error> {
    let Place { mut bucket, mut after } = from.unwrap_or(Place { bucket: 0, after: None });
    if kind.hash().is_none() {
        let partition = BankEntry::partition(org.clone(), bank.clone());
        let range = At::all().limit(limit).page_size(limit).after(after);
        let mut pages = store.scan::<BankEntry>(&partition, range);
        let rows = pages.all().await?;
        let next = pages.cursor().map(|cursor| Place { bucket: 0, after: Some(cursor) });
        return Ok((rows.into_iter().map(ledger::entry).collect(), next));
    }
    let mut entries = Vec::new();
    while bucket < BUCKETS {
        let left = limit - entries.len();
        if left == 0 {
            return Ok((entries, Some(Place { bucket, after })));
        }
        let partition = BankHash::partition(org.clone(), bank.clone(), bucket);
        let range = At::all().limit(left).page_size(left).after(after.take());
        let mut pages = store.scan::<BankHash>(&partition, range);
        entries.extend(pages.all().await?.into_iter().map(ledger::hash_entry));
        after = pages.cursor();
        if after.is_none() {
            bucket += 1;
        }
    }
    Ok((entries, None))
}
