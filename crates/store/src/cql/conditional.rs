//! Conditional writes, and the resolution of their unknown outcomes.
//!
//! A conditional write can time out, or lose its connection, and be applied nevertheless. Each one therefore carries an
//! operation id, stored in the row's `ops` under the slot of the version that it writes. If the outcome is unknown, a
//! serial read completes any unfinished write of the row. Then there are three cases:
//!
//! - The slot of our version holds our id: the write was applied, even if others have replaced the row since.
//! - The row is unchanged: the write is repeated under the same id. If the first attempt arrives late, one of the two is
//!   refused and finds its own id.
//! - Otherwise another writer won.
//!
//! A slot is reused after [`SLOTS`] further replacements. A row that is replaced that often while an outcome is unknown
//! counts as refused, and the caller sees a version far ahead of its own.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use scylla::response::query_result::QueryRowsResult;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};
use uuid::Uuid;

use super::{
    Engine,
    cells::{BoundValue, Ops, RawRow},
    decode, faults,
    statements::{OPS, StatementKind},
    time_to_live, unreadable,
};
use crate::{Cell, Error, InsertOutcome, ReplaceOutcome, Row, Table, Version, Versioned, embedded::key};

/// Number of latest versions with a stored operation id.
const SLOTS: i64 = 16;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Locks that let this process send one conditional write at a time for each partition.
///
/// Correctness does not need them. Servers let contenders for one row time out, and many contenders from one process
/// would only delay each other.
pub(super) struct Stripes {
    locks: Vec<Mutex<()>>,
    hash: RandomState,
}

impl Stripes {
    pub(super) fn new() -> Self {
        Self { locks: (0..1_024).map(|_| Mutex::new(())).collect(), hash: RandomState::new() }
    }

    async fn lock(&self, table: &Table, partition: &[u8]) -> MutexGuard<'_, ()> {
        let stripes = self.locks.len() as u64;
        let stripe = self.hash.hash_one((table.name, partition)) % stripes;
        self.locks[usize::try_from(stripe).unwrap_or(0)].lock().await
    }
}

/// Row returned by a read or by the refusal of a conditional write: the cells of its table, and `ops`.
struct ServerRow {
    cells: Vec<Cell<'static>>,
    ops: Ops,
}

impl ServerRow {
    /// Returns the version, which is the last column of a versioned table.
    fn version(&self) -> Option<Version> {
        match self.cells.last() {
            Some(Cell::BigInt(version)) => Some(*version),
            _ => None,
        }
    }
}

/// Answer of the server to one attempt.
enum Attempt {
    Applied,
    /// Refused, with the row if the answer holds all of it.
    Refused(Option<ServerRow>),
}

/// Conditional write of one row, without the row's type.
struct ConditionalWrite<'a> {
    table: &'static Table,
    kind: StatementKind,
    /// Values in the order of the statement.
    values: Vec<BoundValue<'a>>,
    key: Vec<Cell<'a>>,
    op: Uuid,
    /// Version that the row has after the write.
    version: Version,
    /// Version that the row must have; `None`: it must not exist.
    expected_version: Option<Version>,
}

impl Engine {
    pub(crate) async fn insert_new<R: Versioned>(&self, row: &R) -> Result<InsertOutcome<R>, Error> {
        match self.insert_cells(R::TABLE, row_cells(row)).await? {
            WriteOutcome::Applied => Ok(InsertOutcome::New),
            WriteOutcome::Conflict(cells) => decode(cells).map(InsertOutcome::Existing),
            // Cannot happen: an insert that finds no row is repeated.
            WriteOutcome::Missing => {
                Err(Error::Engine("an insert was refused without an existing row".to_owned()))
            }
        }
    }

    pub(crate) async fn replace<R: Versioned>(
        &self,
        row: &R,
        expected_version: Version,
    ) -> Result<ReplaceOutcome<R>, Error> {
        match self.replace_cells(R::TABLE, row_cells(row), expected_version).await? {
            WriteOutcome::Applied => Ok(ReplaceOutcome::Done),
            WriteOutcome::Conflict(cells) => decode(cells).map(ReplaceOutcome::Conflict),
            WriteOutcome::Missing => Ok(ReplaceOutcome::Missing),
        }
    }

    fn insert_cells<'a>(
        &'a self,
        table: &'static Table,
        cells: Vec<Cell<'a>>,
    ) -> BoxFuture<'a, Result<WriteOutcome, Error>> {
        async move {
            let op = operation_id();
            let cells = set_version(cells, 1);
            self.check_row_size(table, &cells)?;
            let key = cells[..table.key_columns().len()].to_vec();
            let mut values: Vec<BoundValue<'_>> = cells.into_iter().map(BoundValue::Cell).collect();
            values.push(BoundValue::Ops(version_slot(1), op));
            values.extend(table.ttl_millis().map(time_to_live).map(BoundValue::Cell));
            let kind = StatementKind::InsertNew;
            let write = ConditionalWrite { table, kind, values, key, op, version: 1, expected_version: None };
            self.write_until_known(write).await
        }
        .boxed()
    }

    fn replace_cells<'a>(
        &'a self,
        table: &'static Table,
        cells: Vec<Cell<'a>>,
        expected_version: Version,
    ) -> BoxFuture<'a, Result<WriteOutcome, Error>> {
        async move {
            let op = operation_id();
            let version = expected_version.saturating_add(1);
            let mut cells = set_version(cells, version);
            self.check_row_size(table, &cells)?;
            let key = cells[..table.key_columns().len()].to_vec();
            let mut values_after_cells: Vec<BoundValue<'_>> =
                vec![Cell::Int(version_slot(version)).into(), Cell::Uuid(op).into()];
            let mut values: Vec<BoundValue<'_>> =
                table.ttl_millis().map(time_to_live).map(BoundValue::Cell).into_iter().collect();
            // Bound in the order of the statement: time to live, new cells, operation, key, condition.
            values_after_cells.extend(cells.drain(..key.len()).map(BoundValue::Cell));
            values_after_cells.push(Cell::BigInt(expected_version).into());
            values.extend(cells.drain(..).map(BoundValue::Cell));
            values.extend(values_after_cells);
            let (kind, expected_version) = (StatementKind::Replace, Some(expected_version));
            let write = ConditionalWrite { table, kind, values, key, op, version, expected_version };
            self.write_until_known(write).await
        }
        .boxed()
    }

    /// Repeats the write until its outcome is known or `settle_timeout_ms` is over.
    async fn write_until_known(&self, write: ConditionalWrite<'_>) -> Result<WriteOutcome, Error> {
        let ConditionalWrite { table, kind, values, key, op, version, expected_version } = write;
        let statement = self.prepared(table, kind).await?;
        let mut partition = Vec::new();
        key::push_all(&mut partition, &key, table.partition_columns());
        // Held over all attempts, so that a second writer of this process does not collide with a retry.
        let _stripe_guard = self.0.stripes.lock(table, &partition).await;
        let deadline = Instant::now() + self.0.settings.settle_timeout();
        let mut backoff = Backoff { next: FIRST_PAUSE, seed: op.as_bytes()[0] };
        // True once an attempt may have been applied without an answer.
        let mut outcome_unknown = false;
        loop {
            let result = {
                // Released before the pauses, so that other statements run during them.
                let _permit = self.acquire_permit().await?;
                self.0.session.execute_unpaged(&statement, &values).await.map_err(faults::from_execution)
            };
            let attempt = match result {
                Ok(answer) => Some(read_attempt(table, &answer.into_rows_result().map_err(unreadable)?)?),
                Err(error) if error.is_outage() && Instant::now() < deadline => {
                    crate::metrics::unknown_outcome(table.name);
                    outcome_unknown = true;
                    None
                }
                Err(error) => return Err(error),
            };
            let current_row = match attempt {
                Some(Attempt::Applied) => return Ok(WriteOutcome::Applied),
                Some(Attempt::Refused(Some(current_row))) => Some(current_row),
                // Cassandra refuses without showing the row. No attempt has an unknown outcome, so a quorum read is
                // enough and spares a Paxos round.
                Some(Attempt::Refused(None)) if !outcome_unknown => {
                    self.read_current(table, StatementKind::Get, &key, deadline, &mut backoff).await?
                }
                Some(Attempt::Refused(None)) => {
                    self.read_current(table, StatementKind::SerialGet, &key, deadline, &mut backoff).await?
                }
                None => {
                    // A read at once would meet the same outage.
                    backoff.sleep_next().await;
                    self.read_current(table, StatementKind::SerialGet, &key, deadline, &mut backoff).await?
                }
            };
            match current_row {
                Some(current_row) if current_row.ops.get(&version_slot(version)) == Some(&op) => {
                    return Ok(WriteOutcome::Applied);
                }
                // The condition holds: the attempt was not applied, or its answer is older than the row. Try again.
                Some(current_row)
                    if expected_version.is_some() && expected_version == current_row.version() => {}
                Some(current_row) => return Ok(WriteOutcome::Conflict(current_row.cells)),
                None if expected_version.is_some() => return Ok(WriteOutcome::Missing),
                // An insert whose row does not exist was not applied, and its condition holds.
                None => {}
            }
            // Contenders can refuse every attempt although each answer arrives in time.
            if Instant::now() >= deadline {
                let detail = if outcome_unknown {
                    "the outcome of a conditional write stayed unknown"
                } else {
                    "contention"
                };
                return Err(Error::Timeout(format!("table {}: {detail}", table.name)));
            }
            backoff.sleep_next().await;
        }
    }

    /// Reads the present row, and repeats the read during an outage until the deadline.
    async fn read_current(
        &self,
        table: &'static Table,
        kind: StatementKind,
        key: &[Cell<'_>],
        deadline: Instant,
        backoff: &mut Backoff,
    ) -> Result<Option<ServerRow>, Error> {
        loop {
            match self.query_rows(table, kind, key.to_vec()).await {
                Ok(answer) => {
                    let row = answer.maybe_first_row::<RawRow<'_>>().map_err(unreadable)?;
                    return Ok(row.map(|mut row| {
                        // A serial read selects `ops` behind the columns of the table.
                        row.cells.truncate(table.columns.len());
                        ServerRow { cells: into_owned_cells(row.cells), ops: row.ops }
                    }));
                }
                Err(error) if error.is_outage() && Instant::now() < deadline => backoff.sleep_next().await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Known outcome of a conditional write.
enum WriteOutcome {
    Applied,
    /// Refused. The cells of the row as the server has it now.
    Conflict(Vec<Cell<'static>>),
    /// Refused, and there is no such row.
    Missing,
}

/// Decodes the answer to a conditional write. Its first column says whether the write was applied. Cassandra adds the row
/// only for a refused insert; ScyllaDB always adds it, with nulls for a missing row.
fn read_attempt(table: &Table, answer: &QueryRowsResult) -> Result<Attempt, Error> {
    let specs = answer.column_specs();
    let mut answer_row = answer
        .maybe_first_row::<RawRow<'_>>()
        .map_err(unreadable)?
        .ok_or_else(|| unreadable("no row in the answer to a conditional write"))?;
    match answer_row.cells.first() {
        Some(Cell::Bool(true)) => return Ok(Attempt::Applied),
        Some(Cell::Bool(false)) => {}
        _ => return Err(unreadable("no `[applied]` in the answer to a conditional write")),
    }
    // Without `ops` the answer holds only the columns of the condition, so the row has to be read.
    if specs.get_by_name(OPS).is_none() {
        return Ok(Attempt::Refused(None));
    }
    let mut cells = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        let Some((index, _)) = specs.get_by_name(column.name) else { return Ok(Attempt::Refused(None)) };
        cells.push(std::mem::replace(&mut answer_row.cells[index], Cell::Null));
    }
    // ScyllaDB answers with nulls in the key for a row that does not exist.
    if cells[..table.key_columns().len()].contains(&Cell::Null) {
        return Ok(Attempt::Refused(None));
    }
    Ok(Attempt::Refused(Some(ServerRow { cells: into_owned_cells(cells), ops: answer_row.ops })))
}

fn row_cells<R: Row>(row: &R) -> Vec<Cell<'_>> {
    let mut cells = Vec::with_capacity(R::TABLE.columns.len());
    row.cells(&mut cells);
    cells
}

/// Puts this version in place of the version in the row's cells.
fn set_version(mut cells: Vec<Cell<'_>>, version: Version) -> Vec<Cell<'_>> {
    // The version is the last column; callers may pass any value in the row.
    cells.pop();
    cells.push(Cell::BigInt(version));
    cells
}

fn into_owned_cells(cells: Vec<Cell<'_>>) -> Vec<Cell<'static>> {
    cells.into_iter().map(Cell::into_owned).collect()
}

fn version_slot(version: Version) -> i32 {
    i32::try_from(version.rem_euclid(SLOTS)).unwrap_or(0)
}

#[allow(
    clippy::disallowed_methods,
    reason = "an operation id names one call, and no other id is derived from it"
)]
fn operation_id() -> Uuid {
    Uuid::new_v4()
}

/// Growing pauses with jitter, so that contenders do not collide again.
struct Backoff {
    next: Duration,
    seed: u8,
}

impl Backoff {
    async fn sleep_next(&mut self) {
        // A small generator, seeded with the operation id, is enough jitter.
        self.seed = self.seed.wrapping_mul(167).wrapping_add(13);
        let pause = self.next.mul_f64(0.5 + f64::from(self.seed) / 255.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}
