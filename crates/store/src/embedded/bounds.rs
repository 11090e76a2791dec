//! Computes byte ranges of keys for typed ranges, cursors and splits.

use std::ops::Bound;

use super::key;
use crate::{
    Error, Order, Table,
    range::Span,
    split::{Extent, Split},
};

type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns the key range of a span in the partition with the key bytes `start`.
pub(super) fn span_bounds(table: &Table, start: Vec<u8>, span: &Span) -> Result<Range, Error> {
    let cluster = table.cluster_columns();
    let mut prefix_bytes = start.clone();
    key::push_all(&mut prefix_bytes, &span.prefix, cluster);
    let next = cluster.get(span.prefix.len());
    let order = next.map_or(Order::Asc, |column| column.order);
    let bytes_with = |cell: &crate::Cell<'_>| {
        let mut bytes = prefix_bytes.clone();
        key::push(&mut bytes, cell, order);
        bytes
    };
    let prefix_end = |bytes: &[u8]| key::after_prefix(bytes).map_or(Bound::Unbounded, Bound::Excluded);
    // In a descending column greater values sort first, so the bounds change places.
    let (first, last) = if order == Order::Asc { (&span.low, &span.high) } else { (&span.high, &span.low) };
    let mut low = match first {
        Bound::Unbounded => Bound::Included(prefix_bytes.clone()),
        Bound::Included(cell) => Bound::Included(bytes_with(cell)),
        Bound::Excluded(cell) => {
            // Skips all rows that share the excluded value in this column.
            key::after_prefix(&bytes_with(cell))
                .map_or_else(|| Bound::Excluded(vec![0xFF; 1]), Bound::Included)
        }
    };
    let high = match last {
        Bound::Unbounded => prefix_end(&prefix_bytes),
        Bound::Included(cell) => prefix_end(&bytes_with(cell)),
        Bound::Excluded(cell) => Bound::Excluded(bytes_with(cell)),
    };
    if let Some(cursor) = &span.after {
        let mut remaining_bytes = cursor.0.as_slice();
        if key::pull_all(&mut remaining_bytes, cluster, &mut Vec::new()).is_none()
            || !remaining_bytes.is_empty()
        {
            return Err(Error::BadCursor);
        }
        let mut cursor_key = start;
        cursor_key.extend_from_slice(&cursor.0);
        let is_after_low = match &low {
            Bound::Included(low) | Bound::Excluded(low) => cursor_key >= *low,
            Bound::Unbounded => true,
        };
        // A cursor before the range must not widen it.
        if is_after_low {
            low = Bound::Excluded(cursor_key);
        }
    }
    Ok((low, high))
}

pub(super) fn split_bounds(split: &Split) -> Result<Range, Error> {
    match &split.0 {
        Extent::Whole => Ok((Bound::Unbounded, Bound::Unbounded)),
        Extent::Keys { low, high } => Ok((
            low.clone().map_or(Bound::Unbounded, Bound::Included),
            high.clone().map_or(Bound::Unbounded, Bound::Excluded),
        )),
        Extent::Tokens { .. } => Err(Error::Engine("a split of another engine".to_owned())),
    }
}

/// Splits the key space into at most `parts` ranges, with boundaries between `first` and `last`.
///
/// The boundaries are even in the eight bytes after the common prefix, but may be uneven in rows: one process reads all
/// parts, so an even split is not worth reading the data.
pub(super) fn split(first: &[u8], last: &[u8], parts: usize) -> Vec<Split> {
    let common_len = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let leading_number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let tail = &key[common_len..];
        let length = tail.len().min(8);
        bytes[..length].copy_from_slice(&tail[..length]);
        u64::from_be_bytes(bytes)
    };
    let (from, to) = (leading_number(first), leading_number(last));
    let parts = parts.max(1) as u128;
    let mut boundaries: Vec<Vec<u8>> = (1..parts)
        .filter_map(|part| {
            let boundary = u128::from(from) + u128::from(to.saturating_sub(from)) * part / parts;
            let boundary = u64::try_from(boundary).ok()?;
            // A boundary at the first key would make an empty part.
            (boundary > from).then(|| [&first[..common_len], boundary.to_be_bytes().as_slice()].concat())
        })
        .collect();
    // More parts than distinct key prefixes make equal boundaries.
    boundaries.dedup();
    let lows = std::iter::once(None).chain(boundaries.iter().cloned().map(Some));
    let highs = boundaries.iter().cloned().map(Some).chain(std::iter::once(None));
    lows.zip(highs).map(|(low, high)| Split(Extent::Keys { low, high })).collect()
}
