//! Conditional writes, and how an unknown outcome becomes a known one.
//!
//! It does not decide what to do about a refusal.
//!
//! A conditional write can time out, or lose its connection, although it was or will be applied. So every one carries
//! an operation id, kept in the row's `ops` under the slot of the version it wrote. When the outcome is unknown, a
//! serial read first ends what was left unfinished. Then either the slot of our version holds our id (applied, even
//! if others have replaced the row since), or the row is still as it was (tried again under the same id: should
//! the first try arrive late, one of the two is refused, and finds its own id), or someone else won.
//!
//! A slot is given to another version after [`SLOTS`] further replacements. A row replaced that often while one
//! outcome was unknown counts as refused, and the caller sees a version far ahead of its own.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use scylla::response::query_result::QueryRowsResult;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};
use uuid::Uuid;

use super::{
    Engine,
    cells::{Bind, Cells as RawRow, Ops},
    decode, faults,
    statements::{OPS, Shape},
    time_to_live, unreadable,
};
use crate::{
    Cell, Error, Inserted, Replaced, Row, Table, Version, Versioned, embedded::key, range::Cells as _,
};

/// Number of latest versions whose writers can be told apart.
const SLOTS: i64 = 16;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One conditional write at a time for each partition of this process.
///
/// It is no part of the correctness, which is the servers': they make contenders for one row time out, and a crowd of
/// them from one process would only keep each other from the row.
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

/// A row as a serial read, or the refusal of an insert, shows it.
struct Seen<R> {
    row: R,
    ops: Ops,
}

enum Attempt<R> {
    Applied,
    /// Refused. The row, where the answer held all of it.
    Refused(Option<Seen<R>>),
}

impl Engine {
    pub(crate) async fn insert_new<R: Versioned>(&self, row: &R) -> Result<Inserted<R>, Error> {
        let op = operation_id();
        let mut cells = all_cells(row, 1);
        self.fits(R::TABLE, &cells)?;
        let ttl = R::TABLE.ttl_millis().map(time_to_live);
        let mut values: Vec<Bind<'_>> = cells.drain(..).map(Bind::Cell).collect();
        values.push(Bind::Ops(slot(1), op));
        values.extend(ttl.map(Bind::Cell));
        let seen = self.decide(row, Shape::InsertNew, &values, op, 1, None).await?;
        Ok(match seen {
            Decided::Ours => Inserted::New,
            Decided::Theirs(row) => Inserted::Existing(row),
            // Never decided for an insert: a missing row is one to insert.
            Decided::Gone => return Err(Error::Engine("an insert was refused by no row".to_owned())),
        })
    }

    pub(crate) async fn replace<R: Versioned>(&self, row: &R, was: Version) -> Result<Replaced<R>, Error> {
        let op = operation_id();
        let version = was.saturating_add(1);
        let mut cells = all_cells(row, version);
        self.fits(R::TABLE, &cells)?;
        let mut tail: Vec<Bind<'_>> = vec![Cell::Int(slot(version)).into(), Cell::Uuid(op).into()];
        let keys = R::TABLE.key_columns().len();
        let mut values: Vec<Bind<'_>> =
            R::TABLE.ttl_millis().map(time_to_live).map(Bind::Cell).into_iter().collect();
        tail.extend(cells.drain(..keys).map(Bind::Cell));
        tail.push(Cell::BigInt(was).into());
        values.extend(cells.drain(..).map(Bind::Cell));
        values.extend(tail);
        let seen = self.decide(row, Shape::Replace, &values, op, version, Some(was)).await?;
        Ok(match seen {
            Decided::Ours => Replaced::Yes,
            Decided::Theirs(row) => Replaced::No(row),
            Decided::Gone => Replaced::Gone,
        })
    }

    /// Tries until the outcome is known, or the time for it is over.
    async fn decide<R: Versioned>(
        &self,
        row: &R,
        shape: Shape,
        values: &[Bind<'_>],
        op: Uuid,
        version: Version,
        was: Option<Version>,
    ) -> Result<Decided<R>, Error> {
        let statement = self.prepared(R::TABLE, shape).await?;
        let key = row.to_key();
        let mut key_cells = Vec::new();
        key.cells(&mut key_cells);
        let mut partition = Vec::new();
        key::push_all(&mut partition, &key_cells, R::TABLE.partition_columns());
        let _turn = self.0.stripes.lock(R::TABLE, &partition).await;
        let deadline = Instant::now() + self.0.settings.settle_timeout();
        let mut pauses = Pauses { next: FIRST_PAUSE, seed: op.as_bytes()[0] };
        // True once one of our tries may have been applied without our knowing.
        let mut unsure = false;
        loop {
            let tried = {
                let _place = self.place().await?;
                self.0.session.execute_unpaged(&statement, values).await.map_err(faults::execution)
            };
            let attempt = match tried {
                Ok(answer) => Some(read_attempt::<R>(&answer.into_rows_result().map_err(unreadable)?)?),
                Err(error) if error.is_outage() && Instant::now() < deadline => {
                    crate::metrics::unknown_outcome(R::TABLE.name);
                    unsure = true;
                    None
                }
                Err(error) => return Err(error),
            };
            let seen = match attempt {
                Some(Attempt::Applied) => return Ok(Decided::Ours),
                Some(Attempt::Refused(Some(seen))) => Some(seen),
                // Refused by a row that Cassandra does not show. No try of ours is in doubt, so the row as a
                // quorum knows it is enough, and spares another round of the servers' agreement.
                Some(Attempt::Refused(None)) if !unsure => {
                    self.look(Shape::Get, &key_cells, deadline, &mut pauses).await?
                }
                Some(Attempt::Refused(None)) => {
                    self.look(Shape::Settle, &key_cells, deadline, &mut pauses).await?
                }
                None => {
                    pauses.wait().await;
                    self.look(Shape::Settle, &key_cells, deadline, &mut pauses).await?
                }
            };
            match seen {
                Some(seen) if seen.ops.get(&slot(version)) == Some(&op) => return Ok(Decided::Ours),
                // The condition holds (again): the try was not applied, or the answer to it was older than the row.
                Some(seen) if was == Some(seen.row.version()) => {}
                Some(seen) => return Ok(Decided::Theirs(seen.row)),
                None if was.is_some() => return Ok(Decided::Gone),
                None => {}
            }
            if Instant::now() >= deadline {
                let detail =
                    if unsure { "the outcome of a conditional write stayed unknown" } else { "contention" };
                return Err(Error::Timeout(format!("table {}: {detail}", R::TABLE.name)));
            }
            pauses.wait().await;
        }
    }

    /// The row at present, read until there is an answer.
    async fn look<R: Versioned>(
        &self,
        shape: Shape,
        key: &[Cell<'_>],
        deadline: Instant,
        pauses: &mut Pauses,
    ) -> Result<Option<Seen<R>>, Error> {
        loop {
            match self.ask(R::TABLE, shape, key).await {
                Ok(answer) => {
                    let row = answer.maybe_first_row::<RawRow<'_>>().map_err(unreadable)?;
                    let seen = row.map(|mut row| {
                        // `ops`, where it was asked for, comes last.
                        row.cells.truncate(R::TABLE.columns.len());
                        Ok::<_, Error>(Seen { row: decode(row.cells)?, ops: row.ops })
                    });
                    return seen.transpose();
                }
                Err(error) if error.is_outage() && Instant::now() < deadline => pauses.wait().await,
                Err(error) => return Err(error),
            }
        }
    }
}

enum Decided<R> {
    Ours,
    Theirs(R),
    Gone,
}

/// The first column says whether the write was applied. Whether the row follows differs: Cassandra gives it with a
/// refused insert only, ScyllaDB always, with nulls where it was not there.
fn read_attempt<R: Versioned>(answer: &QueryRowsResult) -> Result<Attempt<R>, Error> {
    let specs = answer.column_specs();
    let mut found = answer
        .maybe_first_row::<RawRow<'_>>()
        .map_err(unreadable)?
        .ok_or_else(|| unreadable("no row in the answer to a conditional write"))?;
    match found.cells.first() {
        Some(Cell::Bool(true)) => return Ok(Attempt::Applied),
        Some(Cell::Bool(false)) => {}
        _ => return Err(unreadable("no `[applied]` in the answer to a conditional write")),
    }
    if specs.get_by_name(OPS).is_none() {
        return Ok(Attempt::Refused(None));
    }
    let mut cells = Vec::with_capacity(R::TABLE.columns.len());
    for column in R::TABLE.columns {
        let Some((index, _)) = specs.get_by_name(column.name) else { return Ok(Attempt::Refused(None)) };
        cells.push(std::mem::replace(&mut found.cells[index], Cell::Null));
    }
    if cells[..R::TABLE.key_columns().len()].contains(&Cell::Null) {
        return Ok(Attempt::Refused(None));
    }
    Ok(Attempt::Refused(Some(Seen { row: decode(cells)?, ops: found.ops })))
}

/// The cells of a row, at this version whatever the row says.
fn all_cells<R: Row>(row: &R, version: Version) -> Vec<Cell<'_>> {
    let mut cells = Vec::with_capacity(R::TABLE.columns.len() + 3);
    row.cells(&mut cells);
    cells.pop();
    cells.push(Cell::BigInt(version));
    cells
}

fn slot(version: Version) -> i32 {
    i32::try_from(version.rem_euclid(SLOTS)).unwrap_or(0)
}

#[allow(
    clippy::disallowed_methods,
    reason = "an operation id names one call, not a thing: nothing is derived from it"
)]
fn operation_id() -> Uuid {
    Uuid::new_v4()
}

/// Growing pauses, spread so that contenders do not meet again.
struct Pauses {
    next: Duration,
    seed: u8,
}

impl Pauses {
    async fn wait(&mut self) {
        self.seed = self.seed.wrapping_mul(167).wrapping_add(13);
        let pause = self.next.mul_f64(0.5 + f64::from(self.seed) / 255.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}
