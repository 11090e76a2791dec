//! Encodes key cells as bytes that sort like the typed keys, and decodes them. Cursors of both engines use the same bytes.
//!
//! Text: `00` becomes `00 FF`, and `00 00` ends it, so that a text sorts before every longer one and no text is
//! a prefix of another key's. Integers: big-endian with the sign bit flipped. UUIDs: raw. A descending column: every
//! byte inverted. Every encoding marks its own end, so a prefix of the columns is a prefix of the bytes.

use std::borrow::Cow;

use bytes::Bytes;
use uuid::Uuid;

use crate::{Cell, ColumnDef, Kind, Order};

/// Appends the bytes of one key cell.
pub(crate) fn push(out: &mut Vec<u8>, cell: &Cell<'_>, order: Order) {
    let start = out.len();
    match cell {
        Cell::Text(text) => push_terminated(out, text.as_bytes()),
        Cell::Blob(bytes) => push_terminated(out, bytes),
        Cell::BigInt(number) | Cell::Timestamp(number) => {
            out.extend_from_slice(&(number.cast_unsigned() ^ (1 << 63)).to_be_bytes());
        }
        Cell::Int(number) => out.extend_from_slice(&(number.cast_unsigned() ^ (1 << 31)).to_be_bytes()),
        Cell::Bool(yes) => out.push(u8::from(*yes)),
        Cell::Uuid(id) => out.extend_from_slice(id.as_bytes()),
        // Neither type is a `KeyColumn`, so no declared key holds one.
        Cell::Double(_) | Cell::Null => {}
    }
    if order == Order::Desc {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

pub(crate) fn push_all(out: &mut Vec<u8>, cells: &[Cell<'_>], columns: &[ColumnDef]) {
    for (cell, column) in cells.iter().zip(columns) {
        push(out, cell, column.order);
    }
}

fn push_terminated(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut remaining_bytes = bytes;
    while let Some(zero) = remaining_bytes.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&remaining_bytes[..zero]);
        out.extend_from_slice(&[0, 0xFF]);
        remaining_bytes = &remaining_bytes[zero + 1..];
    }
    out.extend_from_slice(remaining_bytes);
    out.extend_from_slice(&[0, 0]);
}

/// Decodes the cells of `columns` from the front of `bytes`. `None`: the bytes are no key of these columns.
pub(crate) fn pull_all<'a>(
    bytes: &mut &'a [u8],
    columns: &[ColumnDef],
    out: &mut Vec<Cell<'a>>,
) -> Option<()> {
    for column in columns {
        out.push(pull(bytes, column.kind, column.order)?);
    }
    Some(())
}

fn pull<'a>(bytes: &mut &'a [u8], kind: Kind, order: Order) -> Option<Cell<'a>> {
    Some(match kind {
        Kind::Text => Cell::Text(match pull_terminated(bytes, order)? {
            Cow::Borrowed(text) => Cow::Borrowed(std::str::from_utf8(text).ok()?),
            Cow::Owned(text) => Cow::Owned(String::from_utf8(text).ok()?),
        }),
        Kind::Blob => Cell::Blob(Bytes::from(pull_terminated(bytes, order)?.into_owned())),
        Kind::BigInt => Cell::BigInt(pull_i64(bytes, order)?),
        Kind::Timestamp => Cell::Timestamp(pull_i64(bytes, order)?),
        Kind::Int => Cell::Int((u32::from_be_bytes(pull_array(bytes, order)?) ^ (1 << 31)).cast_signed()),
        Kind::Bool => match pull_array(bytes, order)? {
            // Other bytes come from a forged cursor.
            [0] => Cell::Bool(false),
            [1] => Cell::Bool(true),
            _ => return None,
        },
        Kind::Uuid => Cell::Uuid(Uuid::from_bytes(pull_array(bytes, order)?)),
        Kind::Double => return None,
    })
}

fn pull_i64(bytes: &mut &[u8], order: Order) -> Option<i64> {
    Some((u64::from_be_bytes(pull_array(bytes, order)?) ^ (1 << 63)).cast_signed())
}

fn pull_array<const N: usize>(bytes: &mut &[u8], order: Order) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(if order == Order::Desc { head.map(|byte| !byte) } else { *head })
}

fn pull_terminated<'a>(bytes: &mut &'a [u8], order: Order) -> Option<Cow<'a, [u8]>> {
    let mask = if order == Order::Desc { 0xFF } else { 0 };
    let encoded_bytes = *bytes;
    let mut has_escapes = false;
    let mut position = 0;
    let end = loop {
        position += encoded_bytes.get(position..)?.iter().position(|byte| byte ^ mask == 0)?;
        match encoded_bytes.get(position + 1)? ^ mask {
            0 => break position,
            0xFF => has_escapes = true,
            _ => return None,
        }
        position += 2;
    };
    *bytes = &encoded_bytes[end + 2..];
    // Ascending text without zero bytes is stored unchanged, so it needs no copy.
    if mask == 0 && !has_escapes {
        return Some(Cow::Borrowed(&encoded_bytes[..end]));
    }
    let mut decoded = Vec::with_capacity(end);
    let mut unmasked = encoded_bytes[..end].iter().map(|byte| byte ^ mask);
    while let Some(byte) = unmasked.next() {
        decoded.push(byte);
        if byte == 0 {
            // Skips the `FF` of the escape.
            unmasked.next();
        }
    }
    Some(Cow::Owned(decoded))
}

/// Returns the lowest bytes above every key with this prefix; `None` if the prefix holds only `FF`.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    const KINDS: [Kind; 6] = [Kind::Text, Kind::BigInt, Kind::Int, Kind::Bool, Kind::Uuid, Kind::Timestamp];

    fn columns() -> impl Strategy<Value = Vec<ColumnDef>> {
        prop::collection::vec(
            (prop::sample::select(&KINDS[..]), any::<bool>()).prop_map(|(kind, desc)| ColumnDef {
                name: "c",
                kind,
                nullable: false,
                order: if desc { Order::Desc } else { Order::Asc },
            }),
            1..5,
        )
    }

    fn cell(kind: Kind) -> BoxedStrategy<Cell<'static>> {
        // Few different values, extremes among them, so that equal columns and common prefixes are frequent.
        let long = || prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(1), Just(i64::MAX), any::<i64>()];
        match kind {
            Kind::Text => prop::collection::vec(
                prop::sample::select(vec![
                    '\0',
                    '\u{1}',
                    'a',
                    'b',
                    '/',
                    '\u{7f}',
                    'ß',
                    '\u{ffff}',
                    '\u{10ffff}',
                ]),
                0..4,
            )
            .prop_map(|text| Cell::Text(Cow::Owned(text.into_iter().collect())))
            .boxed(),
            Kind::BigInt => long().prop_map(Cell::BigInt).boxed(),
            Kind::Timestamp => long().prop_map(Cell::Timestamp).boxed(),
            Kind::Int => prop_oneof![Just(i32::MIN), Just(-1), Just(0), Just(i32::MAX), any::<i32>()]
                .prop_map(Cell::Int)
                .boxed(),
            Kind::Bool => any::<bool>().prop_map(Cell::Bool).boxed(),
            _ => prop_oneof![Just(0), Just(u128::MAX), any::<u128>()]
                .prop_map(|id| Cell::Uuid(Uuid::from_u128(id)))
                .boxed(),
        }
    }

    fn compare(left: &Cell<'_>, right: &Cell<'_>) -> Ordering {
        match (left, right) {
            (Cell::Text(a), Cell::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Cell::BigInt(a), Cell::BigInt(b)) | (Cell::Timestamp(a), Cell::Timestamp(b)) => a.cmp(b),
            (Cell::Int(a), Cell::Int(b)) => a.cmp(b),
            (Cell::Bool(a), Cell::Bool(b)) => a.cmp(b),
            (Cell::Uuid(a), Cell::Uuid(b)) => a.cmp(b),
            _ => unreachable!("both are of the column's kind"),
        }
    }

    fn two_rows() -> impl Strategy<Value = (Vec<ColumnDef>, Vec<Cell<'static>>, Vec<Cell<'static>>)> {
        columns().prop_flat_map(|columns| {
            let row = || columns.iter().map(|column| cell(column.kind)).collect::<Vec<_>>();
            (Just(columns.clone()), row(), row())
        })
    }

    fn encoded(cells: &[Cell<'_>], columns: &[ColumnDef]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_all(&mut bytes, cells, columns);
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn key_bytes_sort_like_the_typed_tuples((columns, left, right) in two_rows()) {
            let typed = left.iter().zip(&right).zip(&columns).map(|((left, right), column)| {
                let order = compare(left, right);
                if column.order == Order::Desc { order.reverse() } else { order }
            }).find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
            prop_assert_eq!(encoded(&left, &columns).cmp(&encoded(&right, &columns)), typed);
        }

        #[test]
        fn key_bytes_decode_to_the_original_cells((columns, row, _) in two_rows()) {
            let bytes = encoded(&row, &columns);
            let (mut rest, mut back) = (bytes.as_slice(), Vec::new());
            pull_all(&mut rest, &columns, &mut back).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert!(back == row);
        }

        #[test]
        fn prefix_range_holds_exactly_the_rows_with_the_prefix((columns, left, right) in two_rows()) {
            let prefix = encoded(&left[..1], &columns);
            let key = encoded(&right, &columns);
            let inside = key >= prefix && after_prefix(&prefix).is_none_or(|end| key < end);
            prop_assert_eq!(inside, left[0] == right[0]);
        }

        #[test]
        fn invalid_key_bytes_do_not_panic(
            columns in columns(), bytes in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            let _ = pull_all(&mut bytes.as_slice(), &columns, &mut Vec::new());
        }
    }
}
