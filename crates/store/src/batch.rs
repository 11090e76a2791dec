//! Facts of several tables, written in one call.
//!
//! It does not promise that all or none of them are seen: on the embedded engine that is so, on CQL each partition's
//! rows are.

use crate::{Cell, Fact, Row, Table, WriteTime, range::owned};

/// Puts and deletions, each with its own write time. Rows are borrowed where the caller keeps them.
#[derive(Default)]
pub struct Batch<'a> {
    pub(crate) changes: Vec<Change<'a>>,
    /// Numbers of changes that are written before any later one, ascending.
    steps: Vec<usize>,
    pub(crate) durable: bool,
    pub(crate) new_rows: bool,
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

    /// Writes what follows only after everything that was added so far is stored, where an engine writes a batch in pieces
    /// (CQL). The embedded engine writes all of a batch at once.
    pub fn then(&mut self) -> &mut Self {
        self.steps.push(self.changes.len());
        self
    }

    /// Changes in the steps in which they are to be written.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &[Change<'a>]> {
        let ends = self.steps.iter().copied().chain([self.changes.len()]);
        let starts = [0].into_iter().chain(self.steps.iter().copied());
        starts.zip(ends).map(|(start, end)| &self.changes[start..end]).filter(|step| !step.is_empty())
    }

    /// Answered only after a sync to disk, where the engine leaves that to the caller (the embedded one).
    pub fn durable(&mut self) -> &mut Self {
        self.durable = true;
        self
    }

    /// Promises that no row, and no deletion, has ever been written at a key of this batch. The embedded engine then skips
    /// the look-up of an older row, which costs as much as the write.
    pub fn of_new_rows(&mut self) -> &mut Self {
        self.new_rows = true;
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

#[cfg(test)]
mod tests {
    use super::*;

    crate::table! { Fact Thing in "things" ttl None;
    partition { name: String } values { text: String } }

    fn sizes(build: impl Fn(&mut Batch<'_>)) -> Vec<usize> {
        let mut batch = Batch::new();
        build(&mut batch);
        batch.steps().map(<[Change<'_>]>::len).collect()
    }

    #[test]
    fn steps_hold_every_change_in_order() {
        let add = |batch: &mut Batch<'_>| {
            let thing = Thing { name: "n".to_owned(), text: "t".to_owned() };
            batch.put_owned(WriteTime(0), thing);
        };
        assert_eq!(sizes(|_| {}), [0_usize; 0]);
        assert_eq!(sizes(|batch| add(batch)), [1]);
        let two = |batch: &mut Batch<'_>| {
            batch.then();
            add(batch);
            add(batch);
            batch.then().then();
            add(batch);
            batch.then();
        };
        assert_eq!(sizes(two), [2, 1], "a step without changes is none");
    }
}
