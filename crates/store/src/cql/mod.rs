//! The engine for ScyllaDB and Apache Cassandra. Only [`Engine::migrate`] creates or changes tables.
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

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
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

pub(crate) use self::scan::{CqlPage, CqlScan, split_ring};
use self::{
    cells::{BoundValue, RawRow},
    chunks::Chunks,
    conditional::Stripes,
    statements::StatementKind,
    tls::CertificateRefusal,
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
    prepared: RwLock<HashMap<(&'static str, &'static str, StatementKind), PreparedStatement>>,
    in_flight: Semaphore,
    stripes: Stripes,
    closed: AtomicBool,
}

struct Write<'a> {
    statement: PreparedStatement,
    values: Vec<BoundValue<'a>>,
    bytes: usize,
}

impl Engine {
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        Self::connect_tables(settings, tables::ALL, system_clock()).await
    }

    /// Connects with other tables or another clock, for tests.
    pub async fn connect_tables(
        settings: Settings,
        tables: &[&'static Table],
        clock: Clock,
    ) -> Result<Self, Error> {
        settings.validate()?;
        let mut load_balancing = DefaultPolicy::builder().token_aware(true);
        if let Some(center) = &settings.local_dc {
            // Quorums are local, so a coordinator in another datacenter would only add latency.
            load_balancing = load_balancing.prefer_datacenter(center.clone());
        }
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .serial_consistency(Some(SerialConsistency::LocalSerial))
            .request_timeout(Some(settings.request_timeout()))
            .load_balancing_policy(load_balancing.build())
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&settings.contact_points)
            .connection_timeout(settings.connect_timeout())
            // One connection carries thousands of concurrent requests, and ScyllaDB wants one for each shard.
            .pool_size(PoolSize::PerShard(const { NonZeroUsize::new(1).expect("one is not zero") }))
            // Limits the metadata that the driver reads to our keyspace.
            .keyspaces_to_fetch([settings.keyspace.clone()])
            .default_execution_profile_handle(profile.into_handle());
        if let (Some(username), Some(password)) = (&settings.username, settings.password()?) {
            builder = builder.user(username.clone(), password.reveal());
        }
        let refusal = CertificateRefusal::default();
        if let Some(tls) = &settings.tls {
            builder = tls::secure(builder, tls, &refusal)?;
        }
        let session = Box::pin(builder.build()).await;
        let session = session.map_err(|error| faults::from_session(&error, &settings, refusal.reason()))?;
        Ok(Self(Arc::new(Inner {
            // The semaphore panics above its maximum.
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
        // Encode all steps before the first request: an oversized row must refuse the whole batch.
        let mut steps = Vec::new();
        for step in batch.steps() {
            steps.push(self.encode(step).await?);
        }
        for chunks in steps {
            // A step waits for all chunks of the step before it.
            // Boxed and collected, because the compiler cannot prove that a lazy map over borrowed futures is `Send`.
            let sends: Vec<_> = chunks.into_iter().map(|chunk| self.send(chunk).boxed()).collect();
            stream::iter(sends).buffer_unordered(self.0.settings.max_in_flight).try_collect::<()>().await?;
        }
        Ok(())
    }

    /// Encodes changes into chunks of writes of one partition.
    async fn encode<'b>(&self, changes: &'b [Change<'_>]) -> Result<Vec<Vec<Write<'b>>>, Error> {
        let now_ms = (self.0.clock)().0;
        let mut chunks = Chunks::new(self.0.settings.batch_bytes);
        for change in changes {
            let table = change.table();
            let mut cells = Vec::with_capacity(table.columns.len() + 2);
            change.cells(&mut cells);
            let bytes = self.check_row_size(table, &cells)?;
            let mut partition = Vec::new();
            key::push_all(&mut partition, &cells, table.partition_columns());
            let write_time = Cell::BigInt(change.at().0);
            let kind = if let Change::Delete { .. } = change {
                // Bound values stand in the order of the statement: a deletion begins with its write time.
                cells.insert(0, write_time);
                StatementKind::Delete
            } else {
                cells.push(write_time);
                if let Some(ttl) = table.ttl_millis() {
                    let remaining_ms = change.at().millis().0.saturating_add(ttl).saturating_sub(now_ms);
                    if remaining_ms <= 0 {
                        // A late replay of an old put: the row is expired already.
                        continue;
                    }
                    // The rest of the lifetime: a replayed put must not live longer than the first.
                    cells.push(time_to_live(remaining_ms));
                }
                StatementKind::Put
            };
            let statement = self.prepared(table, kind).await?;
            let write = Write { statement, values: cells.into_iter().map(BoundValue::Cell).collect(), bytes };
            chunks.push((table.name, partition), bytes, write);
        }
        Ok(chunks.into_chunks())
    }

    async fn send(&self, mut chunk: Vec<Write<'_>>) -> Result<(), Error> {
        let _permit = self.acquire_permit().await?;
        let session = &self.0.session;
        crate::metrics::batch_sent(chunk.iter().map(|write| write.bytes).sum::<usize>());
        // A single write needs no batch, and the driver routes it to a replica by its token.
        if chunk.len() == 1
            && let Some(Write { statement, values, .. }) = chunk.pop()
        {
            session.execute_unpaged(&statement, values).await.map_err(faults::from_execution)?;
            return Ok(());
        }
        let mut batch = CqlBatch::new(BatchType::Unlogged);
        // Every write carries its write time, so the driver may repeat the batch.
        batch.set_is_idempotent(true);
        let mut values = Vec::with_capacity(chunk.len());
        for write in chunk {
            // Statements and values stay in the same order.
            batch.append_statement(write.statement);
            values.push(write.values);
        }
        session.batch(&batch, values).await.map_err(faults::from_execution)?;
        Ok(())
    }

    pub(crate) async fn get<R: Row>(&self, key: &R::Key) -> Result<Option<R>, Error> {
        let answer = self.query_rows(R::TABLE, StatementKind::Get, key_cells(key)).await?;
        decode_first_row::<R>(&answer)
    }

    pub(crate) async fn get_many<R: Row>(&self, keys: &[R::Key]) -> Result<Vec<Option<R>>, Error> {
        let keys = keys.iter().map(key_cells).collect();
        let answers = self.query_keys(R::TABLE, keys).await?;
        answers.iter().map(decode_first_row::<R>).collect()
    }

    /// Reads the rows of these keys, in their order.
    fn query_keys<'a>(
        &'a self,
        table: &'static Table,
        keys: Vec<Vec<Cell<'a>>>,
    ) -> BoxFuture<'a, Result<Vec<QueryRowsResult>, Error>> {
        let gets = keys.into_iter().map(move |key| self.query_rows(table, StatementKind::Get, key));
        // Buffered in the order of the keys, which the caller relies on.
        stream::iter(gets).buffered(self.0.settings.max_in_flight).try_collect().boxed()
    }

    pub(crate) async fn ping(&self) -> Result<(), Error> {
        let _permit = self.acquire_permit().await?;
        let answer = self.0.session.query_unpaged("SELECT key FROM system.local", ());
        answer.await.map(|_| ()).map_err(faults::from_execution)
    }

    /// Waits for the requests in flight. Later calls fail with [`Error::Closed`].
    pub(crate) async fn close(&self) -> Result<(), Error> {
        // Set first: later requests are refused, so all permits return.
        self.0.closed.store(true, Ordering::Release);
        let permit_count = u32::try_from(self.0.settings.max_in_flight).unwrap_or(u32::MAX);
        // The semaphore is closed only after all permits are back, so running requests still end normally.
        if let Ok(all_permits) = self.0.in_flight.acquire_many(permit_count).await {
            self.0.in_flight.close();
            drop(all_permits);
        }
        Ok(())
    }

    /// Returns the size of a row, or an error if it is too large. The cells of the key stand first. Checked here, because
    /// servers refuse an oversized row with errors that look like an outage.
    fn check_row_size(&self, table: &Table, cells: &[Cell<'_>]) -> Result<usize, Error> {
        check_key_size(table, cells)?;
        let (bytes, limit) = (cells.iter().map(cell_size).sum(), self.0.settings.max_row_bytes);
        if bytes > limit { Err(Error::TooLarge { table: table.name, bytes, limit }) } else { Ok(bytes) }
    }

    async fn acquire_permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Error> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.0.in_flight.acquire().await.map_err(|_| Error::Closed)
    }

    /// Reads the rows of one key. Boxed: the driver's futures are compiled here only, and not with every row type.
    fn query_rows<'a>(
        &'a self,
        table: &'static Table,
        kind: StatementKind,
        cells: Vec<Cell<'a>>,
    ) -> BoxFuture<'a, Result<QueryRowsResult, Error>> {
        async move {
            check_key_size(table, &cells)?;
            let statement = self.prepared(table, kind).await?;
            let _permit = self.acquire_permit().await?;
            let answer =
                self.0.session.execute_unpaged(&statement, &cells).await.map_err(faults::from_execution)?;
            answer.into_rows_result().map_err(unreadable)
        }
        .boxed()
    }

    async fn prepared(&self, table: &'static Table, kind: StatementKind) -> Result<PreparedStatement, Error> {
        if let Some(statement) = self.0.prepared.read().get(&(table.name, table.row, kind)) {
            return Ok(statement.clone());
        }
        if !self.0.tables.iter().any(|declared| declared.name == table.name) {
            return Err(Error::UnknownTable(table.name));
        }
        let text = statements::statement_text(&self.0.settings.keyspace, table, kind);
        let mut statement = self.0.session.prepare(text).await.map_err(faults::from_prepare)?;
        match kind {
            // The driver must not repeat a conditional write: an applied first attempt would refuse the second.
            StatementKind::InsertNew | StatementKind::Replace => {
                statement.set_is_idempotent(false);
                statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
            }
            // A serial read completes an unfinished conditional write.
            StatementKind::SerialGet => {
                statement.set_is_idempotent(true);
                statement.set_consistency(Consistency::LocalSerial);
            }
            // Puts and deletions carry their write time, so a repeated one changes no data.
            _ => statement.set_is_idempotent(true),
        }
        // Two tasks may have prepared the same statement, which is harmless.
        self.0.prepared.write().insert((table.name, table.row, kind), statement.clone());
        Ok(statement)
    }
}

/// Decodes the first row of an answer with the columns of the table, in their order.
fn decode_first_row<R: Row>(answer: &QueryRowsResult) -> Result<Option<R>, Error> {
    first_row_cells(answer)?.map(decode::<R>).transpose()
}

fn first_row_cells(answer: &QueryRowsResult) -> Result<Option<Vec<Cell<'_>>>, Error> {
    let row = answer.maybe_first_row::<RawRow<'_>>().map_err(unreadable)?;
    Ok(row.map(|row| row.cells))
}

fn decode<R: Row>(cells: Vec<Cell<'_>>) -> Result<R, Error> {
    R::from_cells(cells).map_err(Error::Corrupt)
}

fn key_cells(key: &impl Cells) -> Vec<Cell<'_>> {
    let mut cells = Vec::new();
    key.cells(&mut cells);
    cells
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Unreadable(error.to_string())
}

/// Time to live in whole seconds, rounded up: a row may live up to a second too long, but never expires early.
fn time_to_live(ttl_ms: i64) -> Cell<'static> {
    /// Greatest time to live in Cassandra and ScyllaDB: twenty years.
    const MAX_TTL_SECONDS: i64 = 20 * 365 * 86_400;
    let seconds = ttl_ms.div_euclid(1_000) + i64::from(ttl_ms.rem_euclid(1_000) != 0);
    Cell::Int(i32::try_from(seconds.clamp(1, MAX_TTL_SECONDS)).unwrap_or(i32::MAX))
}

/// Checks the size of a key against the limit of the embedded engine. Servers may refuse some smaller keys.
fn check_key_size(table: &Table, cells: &[Cell<'_>]) -> Result<(), Error> {
    const LIMIT: usize = 65_535;
    let bytes = cells.iter().take(table.key_columns().len()).map(cell_size).sum();
    if bytes > LIMIT { Err(Error::KeyTooLong { table: table.name, bytes, limit: LIMIT }) } else { Ok(()) }
}

/// Approximate size of a cell in a request, in bytes.
fn cell_size(cell: &Cell<'_>) -> usize {
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
