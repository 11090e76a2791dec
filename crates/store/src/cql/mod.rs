//! The engine for ScyllaDB and Apache Cassandra.
//!
//! It does not create or change tables by itself: `migrate` does, when asked.
//!
//! Reads and puts are LOCAL_QUORUM, conditions LOCAL_SERIAL. Statements are prepared at their first use, so that a
//! store can be opened before its tables exist.

mod cells;
mod chunks;
mod conditional;
mod faults;
mod migrate;
mod scan;
mod settings;
mod statements;
mod tls;

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use parking_lot::RwLock;
use scylla::{
    client::{
        PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    policies::{load_balancing::DefaultPolicy, retry::FallthroughRetryPolicy},
    response::query_result::QueryRowsResult,
    statement::{
        Consistency, SerialConsistency,
        batch::{Batch as CqlBatch, BatchType},
        prepared::PreparedStatement,
    },
};
use tokio::sync::Semaphore;

pub(crate) use self::scan::{Walk, splits};
use self::{
    cells::{Bind, Cells as RawRow},
    chunks::Chunks,
    conditional::Stripes,
    statements::Shape,
    tls::Objection,
};
pub use self::{
    settings::{Replication, Secret, Settings},
    tls::Tls,
};
use crate::{
    Cell, Error, Row, Table,
    batch::{Batch, Change},
    embedded::key,
    range::Cells,
    tables,
    time::{Clock, system_clock},
};

#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    session: Session,
    settings: Settings,
    tables: Vec<&'static Table>,
    clock: Clock,
    prepared: RwLock<HashMap<(&'static str, &'static str, Shape), PreparedStatement>>,
    in_flight: Semaphore,
    stripes: Stripes,
    closed: AtomicBool,
}

struct Write<'a> {
    statement: PreparedStatement,
    values: Vec<Bind<'a>>,
    bytes: usize,
}

impl Engine {
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        Self::connect_tables(settings, tables::ALL, system_clock()).await
    }

    /// The same with tables of one's own and a clock of one's own.
    pub async fn connect_tables(
        settings: Settings,
        tables: &[&'static Table],
        clock: Clock,
    ) -> Result<Self, Error> {
        settings.validate()?;
        let mut nodes = DefaultPolicy::builder().token_aware(true);
        if let Some(center) = &settings.local_dc {
            nodes = nodes.prefer_datacenter(center.clone());
        }
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .serial_consistency(Some(SerialConsistency::LocalSerial))
            .request_timeout(Some(settings.request_timeout()))
            .load_balancing_policy(nodes.build())
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&settings.contact_points)
            .connection_timeout(settings.connect_timeout())
            .pool_size(PoolSize::PerShard(const { NonZeroUsize::new(1).expect("one is not zero") }))
            .keyspaces_to_fetch([settings.keyspace.clone()])
            .default_execution_profile_handle(profile.into_handle());
        if let (Some(username), Some(password)) = (&settings.username, settings.password()?) {
            builder = builder.user(username.clone(), password.reveal());
        }
        let objection = Objection::default();
        if let Some(tls) = &settings.tls {
            builder = tls::secure(builder, tls, &objection)?;
        }
        let session = Box::pin(builder.build()).await;
        let session = session.map_err(|error| faults::session(&error, &settings, objection.raised()))?;
        Ok(Self(Arc::new(Inner {
            in_flight: Semaphore::new(settings.max_in_flight.min(Semaphore::MAX_PERMITS)),
            session,
            settings,
            tables: tables.to_vec(),
            clock,
            prepared: RwLock::default(),
            stripes: Stripes::new(),
            closed: AtomicBool::new(false),
        })))
    }

    pub(crate) fn page_rows(&self) -> usize {
        self.0.settings.page_rows
    }

    pub(crate) async fn write(&self, batch: Batch<'_>) -> Result<(), Error> {
        // Everything is encoded before anything is sent: a row that does not fit keeps the others from being written.
        let mut steps = Vec::new();
        for step in batch.steps() {
            steps.push(self.encode(step).await?);
        }
        for chunks in steps {
            // Boxed and collected: a lazy map over borrowed futures is not `Send` enough for a caller that spawns.
            let sends: Vec<_> = chunks.into_iter().map(|chunk| self.send(chunk).boxed()).collect();
            stream::iter(sends).buffer_unordered(self.0.settings.max_in_flight).try_collect::<()>().await?;
        }
        Ok(())
    }

    /// The writes of each partition, in chunks that go together.
    async fn encode<'b>(&self, changes: &'b [Change<'_>]) -> Result<Vec<Vec<Write<'b>>>, Error> {
        let now = (self.0.clock)().0;
        let mut chunks = Chunks::new(self.0.settings.batch_bytes);
        for change in changes {
            let table = change.table();
            let mut cells = Vec::with_capacity(table.columns.len() + 2);
            change.cells(&mut cells);
            let bytes = self.fits(table, &cells)?;
            let mut partition = Vec::new();
            key::push_all(&mut partition, &cells, table.partition_columns());
            let at = Cell::BigInt(change.at().0);
            let shape = if let Change::Delete { .. } = change {
                cells.insert(0, at);
                Shape::Delete
            } else {
                cells.push(at);
                if let Some(ttl) = table.ttl_millis() {
                    let left = change.at().millis().0.saturating_add(ttl).saturating_sub(now);
                    if left <= 0 {
                        // A put from long ago, processed again: nobody would see the row.
                        continue;
                    }
                    cells.push(time_to_live(left));
                }
                Shape::Put
            };
            let statement = self.prepared(table, shape).await?;
            let write = Write { statement, values: cells.into_iter().map(Bind::Cell).collect(), bytes };
            chunks.push((table.name, partition), bytes, write);
        }
        Ok(chunks.into_all())
    }

    async fn send(&self, mut chunk: Vec<Write<'_>>) -> Result<(), Error> {
        let _place = self.place().await?;
        let session = &self.0.session;
        crate::metrics::batch_sent(chunk.iter().map(|write| write.bytes).sum::<usize>());
        if chunk.len() == 1
            && let Some(Write { statement, values, .. }) = chunk.pop()
        {
            session.execute_unpaged(&statement, values).await.map_err(faults::execution)?;
            return Ok(());
        }
        let mut batch = CqlBatch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        let mut values = Vec::with_capacity(chunk.len());
        for write in chunk {
            batch.append_statement(write.statement);
            values.push(write.values);
        }
        session.batch(&batch, values).await.map_err(faults::execution)?;
        Ok(())
    }

    pub(crate) async fn get<R: Row>(&self, key: &R::Key) -> Result<Option<R>, Error> {
        let mut cells = Vec::new();
        key.cells(&mut cells);
        let answer = self.ask(R::TABLE, Shape::Get, &cells).await?;
        first::<R>(&answer)
    }

    pub(crate) async fn get_many<R: Row>(&self, keys: &[R::Key]) -> Result<Vec<Option<R>>, Error> {
        let gets: Vec<_> = keys.iter().map(|key| self.get::<R>(key).boxed()).collect();
        stream::iter(gets).buffered(self.0.settings.max_in_flight).try_collect().await
    }

    pub(crate) async fn ping(&self) -> Result<(), Error> {
        let _place = self.place().await?;
        let asked = self.0.session.query_unpaged("SELECT key FROM system.local", ());
        asked.await.map(|_| ()).map_err(faults::execution)
    }

    /// Waits until nothing is in flight; later calls are answered with [`Error::Closed`].
    pub(crate) async fn close(&self) -> Result<(), Error> {
        self.0.closed.store(true, Ordering::Release);
        let all = u32::try_from(self.0.settings.max_in_flight).unwrap_or(u32::MAX);
        if let Ok(everything) = self.0.in_flight.acquire_many(all).await {
            self.0.in_flight.close();
            drop(everything);
        }
        Ok(())
    }

    /// The size of a row that is to be written. Checked here, because servers refuse what is too large in ways that look
    /// like an outage. The key's cells come first.
    fn fits(&self, table: &Table, cells: &[Cell<'_>]) -> Result<usize, Error> {
        key_fits(table, cells)?;
        let (bytes, limit) = (cells.iter().map(size).sum(), self.0.settings.max_row_bytes);
        if bytes > limit { Err(Error::TooLarge { table: table.name, bytes, limit }) } else { Ok(bytes) }
    }

    async fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Error> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.0.in_flight.acquire().await.map_err(|_| Error::Closed)
    }

    async fn ask(
        &self,
        table: &'static Table,
        shape: Shape,
        cells: &[Cell<'_>],
    ) -> Result<QueryRowsResult, Error> {
        key_fits(table, cells)?;
        let statement = self.prepared(table, shape).await?;
        let _place = self.place().await?;
        let answer = self.0.session.execute_unpaged(&statement, cells).await.map_err(faults::execution)?;
        answer.into_rows_result().map_err(unreadable)
    }

    async fn prepared(&self, table: &'static Table, shape: Shape) -> Result<PreparedStatement, Error> {
        if let Some(statement) = self.0.prepared.read().get(&(table.name, table.row, shape)) {
            return Ok(statement.clone());
        }
        if !self.0.tables.iter().any(|known| known.name == table.name) {
            return Err(Error::UnknownTable(table.name));
        }
        let text = statements::text(&self.0.settings.keyspace, table, shape);
        let mut statement = self.0.session.prepare(text).await.map_err(faults::prepare)?;
        match shape {
            // The driver must not repeat what may have been applied: its second try would be refused by its first.
            Shape::InsertNew | Shape::Replace => {
                statement.set_is_idempotent(false);
                statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
            }
            // A serial read ends what a conditional write left unfinished.
            Shape::Settle => {
                statement.set_is_idempotent(true);
                statement.set_consistency(Consistency::LocalSerial);
            }
            // Puts and deletions carry their write time: again is the same as once.
            _ => statement.set_is_idempotent(true),
        }
        self.0.prepared.write().insert((table.name, table.row, shape), statement.clone());
        Ok(statement)
    }
}

/// The first row of an answer whose columns are those of the table, in order.
fn first<R: Row>(answer: &QueryRowsResult) -> Result<Option<R>, Error> {
    let row = answer.maybe_first_row::<RawRow<'_>>().map_err(unreadable)?;
    row.map(|row| decode::<R>(row.cells)).transpose()
}

fn decode<R: Row>(cells: Vec<Cell<'_>>) -> Result<R, Error> {
    R::from_cells(cells).map_err(Error::Corrupt)
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Unreadable(error.to_string())
}

/// Whole seconds, rounded up: a row may live a second longer, never shorter.
fn time_to_live(left_millis: i64) -> Cell<'static> {
    /// Greatest time to live of both servers: twenty years.
    const LONGEST: i64 = 20 * 365 * 86_400;
    let seconds = left_millis.div_euclid(1_000) + i64::from(left_millis.rem_euclid(1_000) != 0);
    Cell::Int(i32::try_from(seconds.clamp(1, LONGEST)).unwrap_or(i32::MAX))
}

/// Servers take less of some keys; this is what the other engine takes as well.
fn key_fits(table: &Table, cells: &[Cell<'_>]) -> Result<(), Error> {
    const LIMIT: usize = 65_535;
    let bytes = cells.iter().take(table.key_columns().len()).map(size).sum();
    if bytes > LIMIT { Err(Error::KeyTooLong { table: table.name, bytes, limit: LIMIT }) } else { Ok(()) }
}

/// About what a cell takes in a request.
fn size(cell: &Cell<'_>) -> usize {
    4 + match cell {
        Cell::Null => 0,
        Cell::Text(text) => text.len(),
        Cell::Blob(bytes) => bytes.len(),
        Cell::Bool(_) => 1,
        Cell::Int(_) => 4,
        Cell::BigInt(_) | Cell::Timestamp(_) | Cell::Double(_) => 8,
        Cell::Uuid(_) => 16,
    }
}
