//! Batch of facts of several tables, written in one call.
//!
//! The embedded engine makes the whole batch visible at once; CQL makes only the rows of one partition visible together.

use crate::{Cell, Fact, Row, Table, WriteTime, range::owned_cells};

/// Puts and deletions, each with its own write time. Rows are borrowed where the caller keeps them.
#[derive(Default)]
pub struct Batch<'a> {
    pub(crate) changes: Vec<Change<'a>>,
    /// Indexes of changes at which a new step begins, ascending.
    step_starts: Vec<usize>,
    pub(crate) durable: bool,
    pub(crate) new_rows: bool,
}

pub(crate) enum Change<'a> {
    Borrowed { at: WriteTime, row: &'a dyn AnyRow },
    Owned { at: WriteTime, row: Box<dyn AnyRow> },
    Delete { at: WriteTime, table: &'static Table, key: Vec<Cell<'static>> },
}

/// Row of any type.
pub(crate) trait AnyRow: Send + Sync {
    fn table(&self) -> &'static Table;
    fn push_cells<'a>(&'a self, out: &mut Vec<Cell<'a>>);
}

impl<R: Row> AnyRow for R {
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

    pub fn put_row<R: Fact>(&mut self, at: WriteTime, row: &'a R) -> &mut Self {
        self.changes.push(Change::Borrowed { at, row });
        self
    }

    pub fn put_all<R: Fact>(&mut self, at: WriteTime, rows: &'a [R]) -> &mut Self {
        self.changes.extend(rows.iter().map(|row| Change::Borrowed { at, row }));
        self
    }

    pub fn put_owned<R: Fact>(&mut self, at: WriteTime, row: R) -> &mut Self {
        self.changes.push(Change::Owned { at, row: Box::new(row) });
        self
    }

    pub fn delete<R: Fact>(&mut self, at: WriteTime, key: &R::Key) -> &mut Self {
        self.changes.push(Change::Delete { at, table: R::TABLE, key: owned_cells(key) });
        self
    }

    /// Begins a new step. CQL writes a batch in pieces and sends later changes only after all earlier ones are stored;
    /// the embedded engine writes the whole batch at once.
    pub fn begin_step(&mut self) -> &mut Self {
        self.step_starts.push(self.changes.len());
        self
    }

    /// Returns the changes of each step, in write order. Steps without changes are left out.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &[Change<'a>]> {
        let ends = self.step_starts.iter().copied().chain([self.changes.len()]);
        let starts = [0].into_iter().chain(self.step_starts.iter().copied());
        // `then` without changes makes empty steps, which must not become empty requests.
        starts.zip(ends).map(|(start, end)| &self.changes[start..end]).filter(|step| !step.is_empty())
    }

    /// Requires a sync to disk before the answer. CQL servers decide this themselves.
    pub fn require_sync(&mut self) -> &mut Self {
        self.durable = true;
        self
    }

    /// Promises that no row, and no deletion, has ever been written at a key of this batch. The embedded engine then skips
    /// the look-up of an older row, which costs as much as the write.
    pub fn assume_new_rows(&mut self) -> &mut Self {
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
            Self::Borrowed { at, .. } | Self::Owned { at, .. } | Self::Delete { at, .. } => *at,
        }
    }

    pub(crate) fn table(&self) -> &'static Table {
        match self {
            Self::Borrowed { row, .. } => row.table(),
            Self::Owned { row, .. } => row.table(),
            Self::Delete { table, .. } => table,
        }
    }

    /// All cells of a put, the key's cells of a deletion.
    pub(crate) fn cells<'s>(&'s self, out: &mut Vec<Cell<'s>>) {
        match self {
            Self::Borrowed { row, .. } => row.push_cells(out),
            Self::Owned { row, .. } => row.push_cells(out),
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
            batch.begin_step();
            add(batch);
            add(batch);
            batch.begin_step().begin_step();
            add(batch);
            batch.begin_step();
        };
        assert_eq!(sizes(two), [2, 1], "a step without changes is none");
    }
}
