//! Byte ranges for typed ranges, cursors and splits.
//!
//! It does not read a database.

use std::ops::Bound;

use super::key;
use crate::{
    Error, Order, Table,
    range::Span,
    split::{Extent, Split},
};

type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys of a range of the partition whose key bytes are `start`.
pub(super) fn of_span(table: &Table, start: Vec<u8>, span: &Span) -> Result<Range, Error> {
    let cluster = table.cluster_columns();
    let mut base = start.clone();
    key::push_all(&mut base, &span.prefix, cluster);
    let next = cluster.get(span.prefix.len());
    let order = next.map_or(Order::Asc, |column| column.order);
    let with = |cell: &crate::Cell<'_>| {
        let mut bytes = base.clone();
        key::push(&mut bytes, cell, order);
        bytes
    };
    let end = |bytes: &[u8]| key::after_prefix(bytes).map_or(Bound::Unbounded, Bound::Excluded);
    // In a descending column the greater values stand first.
    let (first, last) = if order == Order::Asc { (&span.low, &span.high) } else { (&span.high, &span.low) };
    let mut low = match first {
        Bound::Unbounded => Bound::Included(base.clone()),
        Bound::Included(cell) => Bound::Included(with(cell)),
        Bound::Excluded(cell) => {
            key::after_prefix(&with(cell)).map_or_else(|| Bound::Excluded(vec![0xFF; 1]), Bound::Included)
        }
    };
    let high = match last {
        Bound::Unbounded => end(&base),
        Bound::Included(cell) => end(&with(cell)),
        Bound::Excluded(cell) => Bound::Excluded(with(cell)),
    };
    if let Some(cursor) = &span.after {
        let mut rest = cursor.0.as_slice();
        if key::pull_all(&mut rest, cluster, &mut Vec::new()).is_none() || !rest.is_empty() {
            return Err(Error::BadCursor);
        }
        let mut after = start;
        after.extend_from_slice(&cursor.0);
        let later = match &low {
            Bound::Included(low) | Bound::Excluded(low) => after >= *low,
            Bound::Unbounded => true,
        };
        if later {
            low = Bound::Excluded(after);
        }
    }
    Ok((low, high))
}

pub(super) fn of_split(split: &Split) -> Result<Range, Error> {
    match &split.0 {
        Extent::Whole => Ok((Bound::Unbounded, Bound::Unbounded)),
        Extent::Keys { low, high } => Ok((
            low.clone().map_or(Bound::Unbounded, Bound::Included),
            high.clone().map_or(Bound::Unbounded, Bound::Excluded),
        )),
        Extent::Tokens { .. } => Err(Error::Engine("a split of another engine".to_owned())),
    }
}

/// Cuts the keys from `first` to `last` into at most `parts` ranges that together hold every key there can be.
///
/// The cuts are even in the bytes after what the two have in common. They may be uneven in rows: one process reads
/// them all, so balance is not worth a look at the data.
pub(super) fn split(first: &[u8], last: &[u8], parts: usize) -> Vec<Split> {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let tail = &key[common..];
        let length = tail.len().min(8);
        bytes[..length].copy_from_slice(&tail[..length]);
        u64::from_be_bytes(bytes)
    };
    let (from, to) = (number(first), number(last));
    let parts = parts.max(1) as u128;
    let mut cuts: Vec<Vec<u8>> = (1..parts)
        .filter_map(|part| {
            let cut = u128::from(from) + u128::from(to.saturating_sub(from)) * part / parts;
            let cut = u64::try_from(cut).ok()?;
            (cut > from).then(|| [&first[..common], cut.to_be_bytes().as_slice()].concat())
        })
        .collect();
    cuts.dedup();
    let lows = std::iter::once(None).chain(cuts.iter().cloned().map(Some));
    let highs = cuts.iter().cloned().map(Some).chain(std::iter::once(None));
    lows.zip(highs).map(|(low, high)| Split(Extent::Keys { low, high })).collect()
}
