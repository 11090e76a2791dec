//! Scans ranges of a partition and parts of a table, page by page.
//!
//! Cursors that leave the process are key bytes; the server's paging state is kept only in a running scan.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use scylla::response::{PagingState, query_result::QueryRowsResult};

use super::{
    Engine, Inner,
    cells::RawRow,
    decode, faults,
    statements::{Edge, StatementKind},
    unreadable,
};
use crate::{
    Cell, Error, Order, Row, Table,
    embedded::key,
    range::Span,
    split::{Extent, Split},
};

/// Running scan: the remaining statements, and the position in the first of them.
pub(crate) struct CqlScan {
    engine: Arc<Inner>,
    table: &'static Table,
    /// Remaining segments in reverse order.
    segments: Vec<Segment>,
    state: PagingState,
}

/// Undecoded rows of one page.
pub(crate) struct CqlPage {
    answers: Vec<QueryRowsResult>,
    pub(crate) rows: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Segment {
    kind: StatementKind,
    values: Vec<Cell<'static>>,
}

impl Engine {
    pub(crate) fn scan<R: Row>(&self, partition: &R::Partition, span: &Span) -> Result<CqlScan, Error> {
        let partition = crate::range::owned_cells(partition);
        let mut segments = plan_segments(R::TABLE, span)?;
        for segment in &mut segments {
            // Statements bind the partition first.
            segment.values.splice(..0, partition.iter().cloned());
        }
        // `read_page` takes the next segment from the end.
        segments.reverse();
        Ok(self.start_scan(R::TABLE, segments))
    }

    pub(crate) fn scan_all<R: Row>(&self, split: &Split) -> Result<CqlScan, Error> {
        let (after, upto) = match split.0 {
            Extent::Whole => (i64::MIN, i64::MAX),
            Extent::Tokens { after, upto } => (after, upto),
            Extent::Keys { .. } => return Err(Error::Engine("a split of another engine".to_owned())),
        };
        let values = vec![Cell::BigInt(after), Cell::BigInt(upto)];
        Ok(self.start_scan(R::TABLE, vec![Segment { kind: StatementKind::ScanAll, values }]))
    }

    fn start_scan(&self, table: &'static Table, segments: Vec<Segment>) -> CqlScan {
        CqlScan { engine: Arc::clone(&self.0), table, segments, state: PagingState::start() }
    }
}

impl CqlScan {
    /// Reads up to `max_rows` rows. Fewer rows: the range is at its end.
    pub(crate) async fn read_page(&mut self, max_rows: usize) -> Result<CqlPage, Error> {
        let engine = Engine(Arc::clone(&self.engine));
        let mut page = CqlPage { answers: Vec::new(), rows: 0 };
        while page.rows < max_rows
            && let Some(segment) = self.segments.last()
        {
            let mut statement = engine.prepared(self.table, segment.kind).await?;
            statement.set_page_size(i32::try_from(max_rows - page.rows).unwrap_or(i32::MAX));
            let (answer, next) = {
                let _permit = engine.acquire_permit().await?;
                engine
                    .0
                    .session
                    .execute_single_page(&statement, segment.values.as_slice(), self.state.clone())
                    .await
                    .map_err(faults::from_execution)?
            };
            let answer = answer.into_rows_result().map_err(unreadable)?;
            page.rows += answer.rows_num();
            page.answers.push(answer);
            match next.into_paging_control_flow() {
                ControlFlow::Continue(state) => self.state = state,
                ControlFlow::Break(()) => {
                    self.segments.pop();
                    // A paging state belongs to one statement.
                    self.state = PagingState::start();
                }
            }
        }
        Ok(page)
    }
}

impl CqlPage {
    pub(crate) fn decode<R: Row>(&self) -> Result<Vec<R>, Error> {
        let mut rows = Vec::with_capacity(self.rows);
        self.visit_rows(&mut |cells| {
            rows.push(decode(cells)?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Passes the cells of each row to the visitor, so that the driver's iterators are compiled here only.
    fn visit_rows(&self, visitor: &mut dyn FnMut(Vec<Cell<'_>>) -> Result<(), Error>) -> Result<(), Error> {
        for answer in &self.answers {
            for row in answer.rows::<RawRow<'_>>().map_err(unreadable)? {
                visitor(row.map_err(unreadable)?.cells)?;
            }
        }
        Ok(())
    }
}

/// Splits the token ring into even parts. No row has the lowest token, so a lower bound above it excludes none.
pub(crate) fn split_ring(parts: usize) -> Vec<Split> {
    let parts = i128::try_from(parts.max(1)).unwrap_or(1);
    // The ring is wider than an i64.
    let width = i128::from(u64::MAX);
    let boundary =
        |part: i128| i64::try_from(i128::from(i64::MIN) + width * part / parts).unwrap_or(i64::MAX);
    (0..parts).map(|part| Split(Extent::Tokens { after: boundary(part), upto: boundary(part + 1) })).collect()
}

/// Returns the statements that together read the range, in the table's order.
///
/// Without a cursor there is one. After a cursor `(a, b, c)` there are up to three: the rows of `a, b` after `c`, then
/// those of `a` after `b`, then those after `a`. A tuple comparison of CQL cannot replace them if the orders of the columns
/// differ, and the server's paging state must not be given to clients.
fn plan_segments(table: &Table, span: &Span) -> Result<Vec<Segment>, Error> {
    let cluster = table.cluster_columns();
    let prefix_len = span.prefix.len();
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
        Segment { kind: StatementKind::Scan { equal, low, high }, values }
    };
    let full_segment = segment(&span.prefix, &span.low, &span.high);
    let Some(cursor) = &span.after else { return Ok(vec![full_segment]) };

    let mut remaining_bytes = cursor.0.as_slice();
    let mut cursor_cells = Vec::new();
    if key::pull_all(&mut remaining_bytes, cluster, &mut cursor_cells).is_none()
        || !remaining_bytes.is_empty()
    {
        return Err(Error::BadCursor);
    }
    let cursor_cells: Vec<Cell<'static>> = cursor_cells.into_iter().map(Cell::into_owned).collect();
    let bytes = |cells: &[Cell<'_>]| {
        let mut bytes = Vec::new();
        key::push_all(&mut bytes, cells, cluster);
        bytes
    };
    // A cursor of another prefix lies before or behind the whole range.
    match bytes(&cursor_cells[..prefix_len]).cmp(&bytes(&span.prefix)) {
        std::cmp::Ordering::Less => return Ok(vec![full_segment]),
        std::cmp::Ordering::Greater => return Ok(Vec::new()),
        std::cmp::Ordering::Equal => {}
    }
    let mut remaining_segments = Vec::new();
    // The innermost column first: its rows directly follow the cursor.
    for index in (prefix_len..cluster.len()).rev() {
        let after_cursor = Bound::Excluded(cursor_cells[index].clone());
        // In a descending column the later rows have smaller values.
        let is_ascending = cluster[index].order == Order::Asc;
        if index > prefix_len {
            // The bounds of the range apply to the column after the prefix, which the deeper segments fix to the cursor.
            if !is_within(&span.low, &span.high, &cursor_cells[prefix_len]) {
                continue;
            }
            let (low, high) = if is_ascending {
                (after_cursor, Bound::Unbounded)
            } else {
                (Bound::Unbounded, after_cursor)
            };
            remaining_segments.push(segment(&cursor_cells[..index], &low, &high));
        } else if is_ascending {
            remaining_segments.push(segment(
                &cursor_cells[..index],
                &tighter_bound(after_cursor, &span.low, false),
                &span.high,
            ));
        } else {
            remaining_segments.push(segment(
                &cursor_cells[..index],
                &span.low,
                &tighter_bound(after_cursor, &span.high, true),
            ));
        }
    }
    Ok(remaining_segments)
}

fn ascending_bytes(cell: &Cell<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key::push(&mut bytes, cell, Order::Asc);
    bytes
}

fn is_within(low: &Bound<Cell<'_>>, high: &Bound<Cell<'_>>, cell: &Cell<'_>) -> bool {
    let cell = ascending_bytes(cell);
    let above = match low {
        Bound::Unbounded => true,
        Bound::Included(low) => cell >= ascending_bytes(low),
        Bound::Excluded(low) => cell > ascending_bytes(low),
    };
    above
        && match high {
            Bound::Unbounded => true,
            Bound::Included(high) => cell <= ascending_bytes(high),
            Bound::Excluded(high) => cell < ascending_bytes(high),
        }
}

/// Returns the tighter of an exclusive bound and another one.
fn tighter_bound(
    after_cursor: Bound<Cell<'static>>,
    other: &Bound<Cell<'static>>,
    upper: bool,
) -> Bound<Cell<'static>> {
    let (Bound::Excluded(cell), Bound::Included(limit) | Bound::Excluded(limit)) = (&after_cursor, other)
    else {
        return after_cursor;
    };
    let order = ascending_bytes(cell).cmp(&ascending_bytes(limit));
    let cursor_is_tighter = if upper { order.is_le() } else { order.is_ge() };
    if cursor_is_tighter { after_cursor } else { other.clone() }
}
