//! Facts of several tables, written in one call.
//!
//! It does not promise that all or none of them are seen: on the embedded engine that is so, on CQL each partition's
//! rows are.

use crate::{Cell, Fact, Row, Table, WriteTime, range::owned};

/// Puts and deletions, each with its own write time. Rows are borrowed where the caller keeps them.
#[derive(Default)]
pub struct Batch<'a> {
    pub(crate) changes: Vec<Change<'a>>,
    pub(crate) durable: bool,
}

pub(crate) enum Change<'a> {
    Ref { at: WriteTime, row: &'a dyn AnyFact },
    Own { at: WriteTime, row: Box<dyn AnyFact> },
    Delete { at: WriteTime, table: &'static Table, key: Vec<Cell<'static>> },
}

/// A fact without its type.
pub(crate) trait AnyFact: Send + Sync {
    fn table(&self) -> &'static Table;
    fn push_cells<'a>(&'a self, out: &mut Vec<Cell<'a>>);
}

impl<R: Fact> AnyFact for R {
    fn table(&self) -> &'static Table {
        R::TABLE
    }

    fn push_cells<'a>(&'a self, out: &mut Vec<Cell<'a>>) {
        Row::cells(self, out);
    }
}

impl<'a> Batch<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn put<R: Fact>(&mut self, at: WriteTime, row: &'a R) -> &mut Self {
        self.changes.push(Change::Ref { at, row });
        self
    }

    pub fn put_all<R: Fact>(&mut self, at: WriteTime, rows: &'a [R]) -> &mut Self {
        self.changes.extend(rows.iter().map(|row| Change::Ref { at, row }));
        self
    }

    pub fn put_owned<R: Fact>(&mut self, at: WriteTime, row: R) -> &mut Self {
        self.changes.push(Change::Own { at, row: Box::new(row) });
        self
    }

    pub fn delete<R: Fact>(&mut self, at: WriteTime, key: &R::Key) -> &mut Self {
        self.changes.push(Change::Delete { at, table: R::TABLE, key: owned(key) });
        self
    }

    /// Answered only after a sync to disk, where the engine leaves that to the caller (the embedded one).
    pub fn durable(&mut self) -> &mut Self {
        self.durable = true;
        self
    }

    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Change<'_> {
    pub(crate) fn at(&self) -> WriteTime {
        match self {
            Self::Ref { at, .. } | Self::Own { at, .. } | Self::Delete { at, .. } => *at,
        }
    }

    pub(crate) fn table(&self) -> &'static Table {
        match self {
            Self::Ref { row, .. } => row.table(),
            Self::Own { row, .. } => row.table(),
            Self::Delete { table, .. } => table,
        }
    }

    /// All cells of a put, the key's cells of a deletion.
    pub(crate) fn cells<'s>(&'s self, out: &mut Vec<Cell<'s>>) {
        match self {
            Self::Ref { row, .. } => row.push_cells(out),
            Self::Own { row, .. } => row.push_cells(out),
            Self::Delete { key, .. } => out.extend(key.iter().cloned()),
        }
    }
}
