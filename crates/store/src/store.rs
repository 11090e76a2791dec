//! Operations on tables, dispatched to the CQL or the embedded engine.

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use tidegate_embedded_data::{DiskSpace, DurableMark};

use crate::{
    Batch, Difference, Error, Fact, InsertOutcome, Migration, Pages, ReplaceOutcome, Row, RowRange, Split,
    Version, Versioned, WriteTime, cql, embedded, pages::Source,
};

/// Store of rows. Cloning it is cheap: all clones are one store.
///
/// Operations have one core for each engine that knows no row type and returns a boxed future. Futures of the CQL driver take
/// some kilobytes, which callers then do not carry in their own; and they are compiled in this crate, not once more in each
/// caller's. What depends on the row's type only converts cells.
#[derive(Clone)]
pub enum Store {
    Cql(cql::Engine),
    Embedded(embedded::Engine),
}

impl Store {
    /// Opens the tables of this version in a database that the log may share.
    pub fn open_embedded(db: &fjall::Database, settings: embedded::Settings) -> Result<Self, Error> {
        embedded::Engine::open(db, settings).map(Self::Embedded)
    }

    /// Opens the tables like `open_embedded`, refuses a database with fewer synced writes than the mark records, and keeps the
    /// mark up to date.
    pub fn open_embedded_marked(
        db: &fjall::Database,
        settings: embedded::Settings,
        mark: Arc<DurableMark>,
        disk: Arc<DiskSpace>,
    ) -> Result<Self, Error> {
        embedded::Engine::open_marked(db, settings, mark, disk).map(Self::Embedded)
    }

    /// Connects to a cluster. [`Store::migrate`] checks the tables.
    pub fn open_cql(settings: cql::Settings) -> BoxFuture<'static, Result<Self, Error>> {
        async move { cql::Engine::connect(settings).await.map(Self::Cql) }.boxed()
    }

    /// Puts whole rows. Of two puts of one row the later write time wins, in any order of arrival. A row that is expired
    /// already (write time plus the table's `ttl`) is not written.
    pub fn put_rows<'a, R: Fact>(&'a self, at: WriteTime, rows: &'a [R]) -> BoxFuture<'a, Result<(), Error>> {
        let mut batch = Batch::new();
        batch.put_all(at, rows);
        self.write(batch)
    }

    /// Puts and deletes facts of several tables.
    pub fn write<'a>(&'a self, batch: Batch<'a>) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            if batch.is_empty() {
                return Ok(());
            }
            match self {
                Self::Cql(engine) => engine.write(batch).await,
                Self::Embedded(engine) => engine.write(batch).await,
            }
        }
        .boxed()
    }

    /// Removes a row, unless it was put with a later write time.
    pub fn delete<R: Fact>(&self, at: WriteTime, key: &R::Key) -> BoxFuture<'_, Result<(), Error>> {
        let mut batch = Batch::new();
        batch.delete::<R>(at, key);
        self.write(batch)
    }

    pub async fn get<R: Row>(&self, key: &R::Key) -> Result<Option<R>, Error> {
        match self {
            Self::Cql(engine) => engine.get(key).await,
            Self::Embedded(engine) => engine.get(key),
        }
    }

    /// Reads the rows of these keys, in their order, with a bounded number of concurrent reads.
    pub async fn get_many<R: Row>(&self, keys: &[R::Key]) -> Result<Vec<Option<R>>, Error> {
        match self {
            Self::Cql(engine) => engine.get_many(keys).await,
            Self::Embedded(engine) => engine.get_many(keys).await,
        }
    }

    /// Scans a range of one partition's rows, in the table's order.
    pub fn scan<R: Row>(&self, partition: &R::Partition, range: RowRange<R::Cluster>) -> Pages<R> {
        let RowRange { span, limit, page_rows, .. } = range;
        match self {
            Self::Cql(engine) => Pages::new(
                engine.scan::<R>(partition, &span).map(Source::Cql),
                page_rows.unwrap_or(engine.page_rows()),
                limit,
                true,
            ),
            Self::Embedded(engine) => Pages::new(
                engine.scan::<R>(partition, &span).map(Source::Embedded),
                page_rows.unwrap_or(engine.page_rows()),
                limit,
                true,
            ),
        }
    }

    /// Splits a table into about `parts` parts for [`Store::scan_all`].
    pub async fn splits<R: Row>(&self, parts: usize) -> Result<Vec<Split>, Error> {
        match self {
            Self::Cql(_) => Ok(cql::split_ring(parts)),
            Self::Embedded(engine) => engine.splits::<R>(parts),
        }
    }

    /// Scans every row of a part of a table, in no particular order.
    pub fn scan_all<R: Row>(&self, split: &Split) -> Pages<R> {
        match self {
            Self::Cql(engine) => {
                Pages::new(engine.scan_all::<R>(split).map(Source::Cql), engine.page_rows(), None, false)
            }
            Self::Embedded(engine) => {
                Pages::new(engine.scan_all::<R>(split).map(Source::Embedded), engine.page_rows(), None, false)
            }
        }
    }

    /// Writes a row at version 1 if it does not exist. Durable on return.
    pub async fn insert_new<R: Versioned>(&self, row: &R) -> Result<InsertOutcome<R>, Error> {
        match self {
            Self::Cql(engine) => engine.insert_new(row).await,
            Self::Embedded(engine) => engine.insert_new(row).await,
        }
    }

    /// Writes a whole row at version `expected_version + 1` if the stored row is at `expected_version`. Durable on return.
    pub async fn replace<R: Versioned>(
        &self,
        row: &R,
        expected_version: Version,
    ) -> Result<ReplaceOutcome<R>, Error> {
        match self {
            Self::Cql(engine) => engine.replace(row, expected_version).await,
            Self::Embedded(engine) => engine.replace(row, expected_version).await,
        }
    }

    /// Creates missing tables and columns, or lists them. A column with another type, order or place in the key than declared
    /// is an error. The embedded engine migrates on opening, so its list is always empty.
    pub fn migrate(&self, mode: Migration) -> BoxFuture<'_, Result<Vec<Difference>, Error>> {
        async move {
            match self {
                Self::Cql(engine) => engine.migrate(mode).await,
                // Opening has migrated the tables already.
                Self::Embedded(_) => Ok(Vec::new()),
            }
        }
        .boxed()
    }

    /// Checks that the store answers, for readiness.
    pub fn ping(&self) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            match self {
                Self::Cql(engine) => engine.ping().await,
                Self::Embedded(engine) => engine.ping().await,
            }
        }
        .boxed()
    }

    /// Finishes running operations and closes the engine. Later calls fail with [`Error::Closed`].
    pub fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            match self {
                Self::Cql(engine) => engine.close().await,
                Self::Embedded(engine) => engine.close().await,
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_schemas::ids::{ApiKeyId, OrgId};

    use super::*;
    use crate::tables::{items::items::Item, review::jobs::Job};

    fn spawnable<T: Send + 'static>(_: impl FnOnce(Store) -> T) {}

    #[test]
    fn every_operation_can_be_spawned() {
        let (org, job) = (OrgId::new("o"), ApiKeyId::random().0);
        let key = (org, job.into());
        let (one, many) = (key.clone(), vec![key]);
        spawnable(|store| async move { store.put_rows::<Item>(WriteTime(0), &[]).await });
        spawnable(|store| async move { store.get::<Job>(&one).await });
        spawnable(|store| async move { store.get_many::<Job>(&many).await });
        spawnable(|store| async move { store.write(Batch::new()).await });
    }
}
