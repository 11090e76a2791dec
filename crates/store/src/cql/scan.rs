//! Ranges of a partition and parts of a table, page by page.
//!
//! It does not hold a server-side cursor across restarts: places that leave the process are key bytes.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use scylla::response::PagingState;

use super::{
    Engine, Inner,
    cells::Cells as RawRow,
    decode, faults,
    statements::{Edge, Shape},
    unreadable,
};
use crate::{
    Cell, Error, Order, Row, Table,
    embedded::key,
    range::Span,
    split::{Extent, Split},
};

/// A running scan: the statements that are left, and where the first of them is.
pub(crate) struct Walk {
    engine: Arc<Inner>,
    table: &'static Table,
    /// Segments in reverse: the next one is the last.
    segments: Vec<Segment>,
    state: PagingState,
}

#[derive(Clone, Debug, PartialEq)]
struct Segment {
    shape: Shape,
    values: Vec<Cell<'static>>,
}

impl Engine {
    pub(crate) fn scan<R: Row>(&self, partition: &R::Partition, span: &Span) -> Result<Walk, Error> {
        let partition = crate::range::owned(partition);
        let mut segments = segments(R::TABLE, span)?;
        for segment in &mut segments {
            segment.values.splice(..0, partition.iter().cloned());
        }
        segments.reverse();
        Ok(self.walk(R::TABLE, segments))
    }

    pub(crate) fn scan_all<R: Row>(&self, split: &Split) -> Result<Walk, Error> {
        let (after, upto) = match split.0 {
            Extent::Whole => (i64::MIN, i64::MAX),
            Extent::Tokens { after, upto } => (after, upto),
            Extent::Keys { .. } => return Err(Error::Engine("a split of another engine".to_owned())),
        };
        let values = vec![Cell::BigInt(after), Cell::BigInt(upto)];
        Ok(self.walk(R::TABLE, vec![Segment { shape: Shape::ScanAll, values }]))
    }

    fn walk(&self, table: &'static Table, segments: Vec<Segment>) -> Walk {
        Walk { engine: Arc::clone(&self.0), table, segments, state: PagingState::start() }
    }
}

impl Walk {
    /// The next at most `want` rows. Fewer than `want`: the range is at its end.
    pub(crate) async fn page<R: Row>(&mut self, want: usize) -> Result<Vec<R>, Error> {
        let engine = Engine(Arc::clone(&self.engine));
        let mut rows = Vec::new();
        while rows.len() < want
            && let Some(segment) = self.segments.last()
        {
            let mut statement = engine.prepared(self.table, segment.shape).await?;
            statement.set_page_size(i32::try_from(want - rows.len()).unwrap_or(i32::MAX));
            let (answer, next) = {
                let _place = engine.place().await?;
                engine
                    .0
                    .session
                    .execute_single_page(&statement, segment.values.as_slice(), self.state.clone())
                    .await
                    .map_err(faults::execution)?
            };
            let answer = answer.into_rows_result().map_err(unreadable)?;
            for row in answer.rows::<RawRow<'_>>().map_err(unreadable)? {
                rows.push(decode(row.map_err(unreadable)?.cells)?);
            }
            match next.into_paging_control_flow() {
                ControlFlow::Continue(state) => self.state = state,
                ControlFlow::Break(()) => {
                    self.segments.pop();
                    self.state = PagingState::start();
                }
            }
        }
        Ok(rows)
    }
}

/// Even parts of the token ring. No row has the lowest token, so "above it" leaves none out.
pub(crate) fn splits(parts: usize) -> Vec<Split> {
    let parts = i128::try_from(parts.max(1)).unwrap_or(1);
    let width = i128::from(u64::MAX);
    let cut = |part: i128| i64::try_from(i128::from(i64::MIN) + width * part / parts).unwrap_or(i64::MAX);
    (0..parts).map(|part| Split(Extent::Tokens { after: cut(part), upto: cut(part + 1) })).collect()
}

/// The statements that together give the range, in the table's order.
///
/// Without a cursor it is one. After a cursor `(a, b, c)` it is up to three: the rows of `a, b` after `c`, then those
/// of `a` after `b`, then those after `a`. CQL's own comparison of tuples cannot say that where the columns' orders
/// differ, and a server's paging state is not to be handed to clients.
fn segments(table: &Table, span: &Span) -> Result<Vec<Segment>, Error> {
    let cluster = table.cluster_columns();
    let fixed = span.prefix.len();
    let segment = |equal: &[Cell<'static>], low: &Bound<Cell<'static>>, high: &Bound<Cell<'static>>| {
        let mut values = equal.to_vec();
        let mut edge = |bound: &Bound<Cell<'static>>| match bound {
            Bound::Unbounded => Edge::Open,
            Bound::Included(cell) => {
                values.push(cell.clone());
                Edge::Included
            }
            Bound::Excluded(cell) => {
                values.push(cell.clone());
                Edge::Excluded
            }
        };
        let (low, high) = (edge(low), edge(high));
        // A clustering key has at most five columns.
        let equal = u8::try_from(equal.len()).unwrap_or(u8::MAX);
        Segment { shape: Shape::Scan { equal, low, high }, values }
    };
    let whole = segment(&span.prefix, &span.low, &span.high);
    let Some(cursor) = &span.after else { return Ok(vec![whole]) };

    let mut rest = cursor.0.as_slice();
    let mut place = Vec::new();
    if key::pull_all(&mut rest, cluster, &mut place).is_none() || !rest.is_empty() {
        return Err(Error::BadCursor);
    }
    let place: Vec<Cell<'static>> = place.into_iter().map(Cell::into_owned).collect();
    let bytes = |cells: &[Cell<'_>]| {
        let mut bytes = Vec::new();
        key::push_all(&mut bytes, cells, cluster);
        bytes
    };
    match bytes(&place[..fixed]).cmp(&bytes(&span.prefix)) {
        std::cmp::Ordering::Less => return Ok(vec![whole]),
        std::cmp::Ordering::Greater => return Ok(Vec::new()),
        std::cmp::Ordering::Equal => {}
    }
    let mut found = Vec::new();
    for index in (fixed..cluster.len()).rev() {
        let past = Bound::Excluded(place[index].clone());
        let ascending = cluster[index].order == Order::Asc;
        if index > fixed {
            if !holds(&span.low, &span.high, &place[fixed]) {
                continue;
            }
            let (low, high) = if ascending { (past, Bound::Unbounded) } else { (Bound::Unbounded, past) };
            found.push(segment(&place[..index], &low, &high));
        } else if ascending {
            found.push(segment(&place[..index], &tighter(past, &span.low, false), &span.high));
        } else {
            found.push(segment(&place[..index], &span.low, &tighter(past, &span.high, true)));
        }
    }
    Ok(found)
}

fn ascending(cell: &Cell<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key::push(&mut bytes, cell, Order::Asc);
    bytes
}

fn holds(low: &Bound<Cell<'_>>, high: &Bound<Cell<'_>>, cell: &Cell<'_>) -> bool {
    let cell = ascending(cell);
    let above = match low {
        Bound::Unbounded => true,
        Bound::Included(low) => cell >= ascending(low),
        Bound::Excluded(low) => cell > ascending(low),
    };
    above
        && match high {
            Bound::Unbounded => true,
            Bound::Included(high) => cell <= ascending(high),
            Bound::Excluded(high) => cell < ascending(high),
        }
}

/// Returns the tighter of an exclusive bound and another one.
fn tighter(past: Bound<Cell<'static>>, other: &Bound<Cell<'static>>, upper: bool) -> Bound<Cell<'static>> {
    let (Bound::Excluded(cell), Bound::Included(limit) | Bound::Excluded(limit)) = (&past, other) else {
        return past;
    };
    let order = ascending(cell).cmp(&ascending(limit));
    let past_wins = if upper { order.is_le() } else { order.is_ge() };
    if past_wins { past } else { other.clone() }
}
