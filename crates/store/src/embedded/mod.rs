//! The engine on one machine: every table is a keyspace `store.<name>` of a fjall database that the caller opened,
//! and that the log shares.
//!
//! It does not open or place the database, and does not know which tables exist beyond the list it is given.
//!
//! Point reads run on the caller's thread: they are some microseconds, a cold one is a few block reads. Scans go
//! to a blocking thread after their first entries (see [`walk`]). Writes all go through one thread (see [`writer`]).

mod bounds;
pub(crate) mod key;
mod layout;
mod settings;
mod sweep;
mod syncs;
mod value;
pub(crate) mod walk;
mod write_queue;
mod writer;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    thread::JoinHandle,
};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, UserKey, UserValue};
use parking_lot::Mutex;
use tidegate_scheduler::OrgPermits;
use tidegate_schemas::{DiskSpace, DurableMark, ids::OrgId};
use tokio::sync::{Semaphore, oneshot};

use self::{
    layout::{Descriptor, Layout},
    syncs::Syncs,
    value::Header,
    walk::{Entry, Walk},
    write_queue::{Owner, Puts, Request, Work, WriteQueue, WriteResult},
};
pub use self::{settings::Settings, syncs::SYNCS_KEY};
use crate::{
    Cell, Corrupt, Error, Inserted, Mode, Replaced, Row, Table, Version, Versioned, WriteTime,
    batch::{Batch, Change},
    range::{Cells, Span},
    split::{Extent, Split},
    tables,
    time::{Clock, system_clock},
};

/// Version of the stored format. Newer data is refused by name; older data is read.
const FORMAT: u32 = 1;
const META: &str = "store.meta";
/// Longest key that fjall takes.
const KEY_LIMIT: usize = 65_535;
/// The unit in which room in the writer's queue is counted.
const ROOM: usize = 1_024;

/// A declared table and where its rows are.
pub(crate) struct Slot {
    pub(crate) table: &'static Table,
    /// Made with the first row: making one costs a dozen syncs, and an installation uses few of all tables at first.
    keyspace: OnceLock<Keyspace>,
    layout: Layout,
}

impl Slot {
    /// `None`: the table never had a row.
    fn keyspace(&self) -> Option<&Keyspace> {
        self.keyspace.get()
    }

    /// Returns the keyspace for the one thread that writes.
    fn writable(&self, db: &Database) -> fjall::Result<&Keyspace> {
        if let Some(keyspace) = self.keyspace.get() {
            return Ok(keyspace);
        }
        let made = db.keyspace(&keyspace_name(self.table), KeyspaceCreateOptions::default)?;
        Ok(self.keyspace.get_or_init(|| made))
    }

    fn get(&self, key: &[u8]) -> fjall::Result<Option<UserValue>> {
        self.keyspace().map_or(Ok(None), |keyspace| keyspace.get(key))
    }
}

fn keyspace_name(table: &Table) -> String {
    format!("store.{}", table.name)
}

#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    slots: HashMap<&'static str, Arc<Slot>>,
    queue: WriteQueue,
    room: OrgPermits,
    settings: Settings,
    clock: Clock,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    writer: JoinHandle<()>,
    sweep: JoinHandle<()>,
    stop_sweep: std::sync::mpsc::Sender<()>,
}

impl Engine {
    /// Opens every declared table, and makes the ones that are missing.
    pub fn open(db: &Database, settings: Settings) -> Result<Self, Error> {
        Self::open_tables(db, settings, tables::ALL, system_clock())
    }

    /// Opens it like `open`, and refuses a database that lacks what the mark says was durable.
    pub fn open_marked(
        db: &Database,
        settings: Settings,
        mark: Arc<DurableMark>,
        disk: Arc<DiskSpace>,
    ) -> Result<Self, Error> {
        Self::open_with(db, settings, tables::ALL, system_clock(), Some((mark, disk)))
    }

    /// The same with tables of one's own and a clock of one's own.
    pub fn open_tables(
        db: &Database,
        settings: Settings,
        tables: &[&'static Table],
        clock: Clock,
    ) -> Result<Self, Error> {
        Self::open_with(db, settings, tables, clock, None)
    }

    fn open_with(
        db: &Database,
        settings: Settings,
        tables: &[&'static Table],
        clock: Clock,
        guards: Option<(Arc<DurableMark>, Arc<DiskSpace>)>,
    ) -> Result<Self, Error> {
        settings.validate()?;
        let (mark, disk) = guards.unzip();
        let syncs = Syncs::open(db, mark)?;
        let slots = open_slots(db, tables)?;
        let queue = WriteQueue::default();
        let (stop_sweep, stop) = std::sync::mpsc::channel();
        let failed = |error: std::io::Error| Error::Engine(format!("no thread for the store: {error}"));
        let writer = writer::Writer::new(db.clone(), Arc::clone(&clock), syncs, disk)?;
        let writer = writer::start(writer, settings.group_bytes, queue.clone()).map_err(failed)?;
        let sweep = sweep::Sweep {
            slots: slots.values().map(Arc::clone).collect(),
            queue: queue.clone(),
            clock: Arc::clone(&clock),
            settings: settings.clone(),
            stop,
        };
        let sweep = sweep.start().map_err(failed)?;
        let room = OrgPermits::new(settings.queue_bytes.div_ceil(ROOM).min(Semaphore::MAX_PERMITS));
        let threads = Mutex::new(Some(Threads { writer, sweep, stop_sweep }));
        Ok(Self(Arc::new(Inner { slots, queue, room, settings, clock, threads })))
    }

    pub(crate) fn page_rows(&self) -> usize {
        self.0.settings.page_rows
    }

    pub(crate) async fn write(&self, batch: Batch<'_>) -> Result<(), Error> {
        let (durable, new_rows) = (batch.durable, batch.new_rows);
        let owner = batch.changes.iter().find_map(owner_of_change);
        let puts = self.encode(&batch)?;
        drop(batch);
        let bytes = puts.iter().flat_map(|puts| &puts.rows).map(|(key, value)| key.len() + value.len()).sum();
        if bytes == 0 {
            return Ok(());
        }
        self.run(owner, Work::Put { puts, durable, new_rows }, bytes).await.map(|_| ())
    }

    pub(crate) async fn get<R: Row>(&self, key: &R::Key) -> Result<Option<R>, Error> {
        let slot = self.slot(R::TABLE)?;
        self.read(slot, &key_bytes(slot, key)?)
    }

    pub(crate) async fn get_many<R: Row>(&self, keys: &[R::Key]) -> Result<Vec<Option<R>>, Error> {
        /// Gets between two chances for other tasks of the same worker.
        const BURST: usize = 32;
        let slot = self.slot(R::TABLE)?;
        let mut rows = Vec::with_capacity(keys.len());
        for burst in keys.chunks(BURST) {
            for key in burst {
                rows.push(self.read(slot, &key_bytes(slot, key)?)?);
            }
            if rows.len() < keys.len() {
                tokio::task::yield_now().await;
            }
        }
        Ok(rows)
    }

    pub(crate) async fn insert_new<R: Versioned>(&self, row: &R) -> Result<Inserted<R>, Error> {
        let (slot, owner, key, value) = self.encode_version(row, 1)?;
        let bytes = key.len() + value.len();
        let work = Work::Insert { slot: Arc::clone(slot), key: key.clone(), value };
        match self.run(owner, work, bytes).await? {
            WriteResult::Written => Ok(Inserted::New),
            WriteResult::Refused(Some(old)) => Ok(Inserted::Existing(decode(slot, &(key, old))?)),
            WriteResult::Refused(None) => Err(Error::Engine("an insert was refused by no row".to_owned())),
        }
    }

    pub(crate) async fn replace<R: Versioned>(&self, row: &R, was: Version) -> Result<Replaced<R>, Error> {
        let (slot, owner, key, value) = self.encode_version(row, was.saturating_add(1))?;
        let bytes = key.len() + value.len();
        let work = Work::Replace { slot: Arc::clone(slot), key: key.clone(), value, was };
        match self.run(owner, work, bytes).await? {
            WriteResult::Written => Ok(Replaced::Yes),
            WriteResult::Refused(Some(old)) => Ok(Replaced::No(decode(slot, &(key, old))?)),
            WriteResult::Refused(None) => Ok(Replaced::Gone),
        }
    }

    pub(crate) fn scan<R: Row>(&self, partition: &R::Partition, span: &Span) -> Result<Walk, Error> {
        let slot = self.slot(R::TABLE)?;
        let mut start = Vec::new();
        push_key(slot.table.partition_columns(), partition, &mut start);
        let (low, high) = bounds::of_span(slot.table, start, span)?;
        Ok(Walk::new(Arc::clone(slot), Arc::clone(&self.0.clock), low, high))
    }

    pub(crate) fn scan_all<R: Row>(&self, split: &Split) -> Result<Walk, Error> {
        let slot = self.slot(R::TABLE)?;
        let (low, high) = bounds::of_split(split)?;
        Ok(Walk::new(Arc::clone(slot), Arc::clone(&self.0.clock), low, high))
    }

    pub(crate) fn splits<R: Row>(&self, parts: usize) -> Result<Vec<Split>, Error> {
        let slot = self.slot(R::TABLE)?;
        let key =
            |entry: Option<fjall::Guard>| entry.map(fjall::Guard::key).transpose().map_err(engine_error);
        let Some(keyspace) = slot.keyspace() else { return Ok(vec![Split(Extent::Whole)]) };
        let (first, last) = (key(keyspace.first_key_value())?, key(keyspace.last_key_value())?);
        Ok(match (first, last) {
            (Some(first), Some(last)) => bounds::split(&first, &last, parts),
            _ => vec![Split(Extent::Whole)],
        })
    }

    /// The writer answers, its folder is in place, and it has not failed before: fjall refuses every write after one
    /// failed.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        self.run(None, Work::Put { puts: Vec::new(), durable: false, new_rows: false }, 0).await.map(|_| ())
    }

    /// Carries out what was queued, syncs, and ends the threads. Later calls are answered with [`Error::Closed`].
    pub(crate) async fn close(&self) -> Result<(), Error> {
        let Some(threads) = self.0.threads.lock().take() else { return Ok(()) };
        drop(threads.stop_sweep);
        self.0.queue.close();
        let joined =
            tokio::task::spawn_blocking(move || threads.sweep.join().and(threads.writer.join())).await;
        match joined {
            Ok(Ok(())) => Ok(()),
            _ => Err(Error::Engine("a thread of the store had panicked".to_owned())),
        }
    }

    fn slot(&self, table: &'static Table) -> Result<&Arc<Slot>, Error> {
        self.0.slots.get(table.name).ok_or(Error::UnknownTable(table.name))
    }

    fn read<R: Row>(&self, slot: &Slot, key: &[u8]) -> Result<Option<R>, Error> {
        let Some(value) = slot.get(key).map_err(engine_error)? else { return Ok(None) };
        let value = Bytes::from(value);
        if Header::read(&value).is_some_and(|(header, _)| !header.is_visible((self.0.clock)().0)) {
            return Ok(None);
        }
        decode(slot, &(UserKey::from(key), value)).map(Some)
    }

    async fn run(&self, owner: Owner, work: Work, bytes: usize) -> Result<WriteResult, Error> {
        let room = match &owner {
            Some(org) => Some(self.0.room.acquire_many(org, bytes.div_ceil(ROOM).max(1)).await),
            None => None,
        };
        let (reply, answer) = oneshot::channel();
        self.0.queue.push(&owner, Request { work, bytes, reply, room })?;
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Rows grouped by table, sorted by key, the winner of each key.
    fn encode(&self, batch: &Batch<'_>) -> Result<Vec<Puts>, Error> {
        let now = (self.0.clock)().0;
        let mut tables: Vec<Puts> = Vec::new();
        let widest = batch.changes.iter().map(|change| change.table().columns.len()).max().unwrap_or(0);
        let mut cells = Vec::with_capacity(widest);
        for change in &batch.changes {
            let table = change.table();
            let index = match tables.iter().position(|puts| puts.slot.table.name == table.name) {
                Some(index) => index,
                None => {
                    tables.push(Puts { slot: Arc::clone(self.slot(table)?), rows: Vec::new() });
                    tables.len() - 1
                }
            };
            let Puts { slot, rows } = &mut tables[index];
            cells.clear();
            change.cells(&mut cells);
            let expires = expiry(slot.table, change.at());
            if expires.is_some_and(|expires| expires <= now) && !matches!(change, Change::Delete { .. }) {
                // A put from long ago, processed again: nobody would see the row, and no older one can be seen.
                continue;
            }
            let value = match change {
                Change::Delete { .. } => header_bytes(Header {
                    tombstone: true,
                    written: change.at().0,
                    expires: None,
                    version: None,
                }),
                _ => {
                    let header = Header { tombstone: false, written: change.at().0, expires, version: None };
                    value_bytes(slot, header, &cells)
                }
            };
            let key = whole_key(slot, &cells)?;
            self.fits(slot, &key, &value)?;
            rows.push((key, value));
        }
        for Puts { rows, .. } in &mut tables {
            if rows.len() > 1 {
                rows.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
                rows.dedup_by(|next, kept| {
                    let same = next.0 == kept.0;
                    if same && value::wins(&next.1, &kept.1) {
                        std::mem::swap(next, kept);
                    }
                    same
                });
            }
        }
        Ok(tables)
    }

    fn encode_version<R: Versioned>(
        &self,
        row: &R,
        version: Version,
    ) -> Result<(&Arc<Slot>, Owner, UserKey, UserValue), Error> {
        let slot = self.slot(R::TABLE)?;
        let written = WriteTime::after(None, (self.0.clock)());
        let expires = expiry(slot.table, written);
        let mut cells = Vec::with_capacity(slot.table.columns.len());
        row.cells(&mut cells);
        // The last cell is the version, which the header carries.
        cells.pop();
        let header = Header { tombstone: false, written: written.0, expires, version: Some(version) };
        let (key, value) = (whole_key(slot, &cells)?, value_bytes(slot, header, &cells));
        self.fits(slot, &key, &value)?;
        Ok((slot, owner_of_row(slot.table, &cells), key, value))
    }

    fn fits(&self, slot: &Slot, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let (bytes, limit) = (key.len() + value.len(), self.0.settings.max_row_bytes);
        if bytes > limit { Err(Error::TooLarge { table: slot.table.name, bytes, limit }) } else { Ok(()) }
    }
}

fn open_slots(db: &Database, tables: &[&'static Table]) -> Result<HashMap<&'static str, Arc<Slot>>, Error> {
    let meta = meta(db).map_err(engine_error)?;
    match meta.get("format").map_err(engine_error)? {
        None => meta.insert("format", FORMAT.to_be_bytes()).map_err(engine_error)?,
        Some(found) => {
            let found = found.as_ref().try_into().map_or(u32::MAX, u32::from_be_bytes);
            if found > FORMAT {
                return Err(Error::NewerFormat { found, known: FORMAT });
            }
        }
    }
    let mut slots = HashMap::with_capacity(tables.len());
    for table in tables {
        if table.mode == Mode::View {
            let detail = "a view is no table of its own".to_owned();
            return Err(Error::Schema { table: table.name.to_owned(), detail });
        }
        let name = format!("table/{}", table.name);
        let stored = meta.get(&name).map_err(engine_error)?;
        let stored = stored.map(|text| {
            std::str::from_utf8(&text).ok().and_then(Descriptor::parse).ok_or_else(|| Error::Schema {
                table: table.name.to_owned(),
                detail: "its stored descriptor cannot be read".to_owned(),
            })
        });
        let stored = stored.transpose()?;
        let (descriptor, layout) = Descriptor::adopt(stored.as_ref(), table)?;
        if stored.as_ref() != Some(&descriptor) {
            meta.insert(name, descriptor.text()).map_err(engine_error)?;
        }
        let name = keyspace_name(table);
        let keyspace = OnceLock::new();
        if db.keyspace_exists(&name) {
            let existing = db.keyspace(&name, KeyspaceCreateOptions::default).map_err(engine_error)?;
            keyspace.get_or_init(|| existing);
        }
        if slots.insert(table.name, Arc::new(Slot { table, keyspace, layout })).is_some() {
            return Err(Error::Schema { table: table.name.to_owned(), detail: "declared twice".to_owned() });
        }
    }
    // Rows are written with the ids that the descriptors just gave: those must not be lost behind the rows.
    db.persist(PersistMode::SyncAll).map_err(engine_error)?;
    Ok(slots)
}

fn meta(db: &Database) -> fjall::Result<Keyspace> {
    db.keyspace(META, KeyspaceCreateOptions::default)
}

/// Returns the organisation that a row belongs to, if its table says so.
fn owner_of_row(table: &Table, cells: &[Cell<'_>]) -> Owner {
    let place = table.columns.iter().position(|column| column.name == "org")?;
    match cells.get(place) {
        Some(Cell::Text(org)) => Some(OrgId::new(&**org)),
        _ => None,
    }
}

fn owner_of_change(change: &Change<'_>) -> Owner {
    let mut cells = Vec::with_capacity(change.table().columns.len());
    change.cells(&mut cells);
    owner_of_row(change.table(), &cells)
}

/// Returns the time in milliseconds at which a row written then expires.
fn expiry(table: &Table, at: WriteTime) -> Option<i64> {
    table.ttl_millis().map(|ttl| at.millis().0.saturating_add(ttl))
}

fn whole_key(slot: &Slot, cells: &[Cell<'_>]) -> Result<UserKey, Error> {
    let mut bytes = Vec::with_capacity(96);
    key::push_all(&mut bytes, cells, slot.table.key_columns());
    checked(slot, &bytes)?;
    Ok(UserKey::from(bytes))
}

fn key_bytes(slot: &Slot, key: &impl Cells) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(96);
    push_key(slot.table.key_columns(), key, &mut bytes);
    checked(slot, &bytes)?;
    Ok(bytes)
}

fn push_key(columns: &[crate::ColumnDef], tuple: &impl Cells, out: &mut Vec<u8>) {
    let mut cells = Vec::with_capacity(columns.len());
    tuple.cells(&mut cells);
    key::push_all(out, &cells, columns);
}

fn checked(slot: &Slot, bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() > KEY_LIMIT {
        return Err(Error::KeyTooLong { table: slot.table.name, bytes: bytes.len(), limit: KEY_LIMIT });
    }
    Ok(())
}

fn header_bytes(header: Header) -> UserValue {
    let mut bytes = Vec::with_capacity(9);
    header.write(&mut bytes);
    UserValue::from(bytes)
}

fn value_bytes(slot: &Slot, header: Header, cells: &[Cell<'_>]) -> UserValue {
    let values = &cells[slot.table.key_columns().len()..];
    let size = values.iter().map(|cell| match cell {
        Cell::Text(text) => text.len() + 6,
        Cell::Blob(bytes) => bytes.len() + 6,
        _ => 18,
    });
    let mut bytes = Vec::with_capacity(25 + size.sum::<usize>());
    header.write(&mut bytes);
    value::push_cells(&mut bytes, values, &slot.layout);
    UserValue::from(bytes)
}

/// The row that the bytes hold.
pub(crate) fn decode<R: Row>(slot: &Slot, (key, value): &Entry) -> Result<R, Error> {
    let corrupt = |column, reason| Error::Corrupt(Corrupt { table: slot.table.name, column, reason });
    let mut cells = Vec::with_capacity(slot.table.columns.len());
    let mut rest = key.as_ref();
    key::pull_all(&mut rest, slot.table.key_columns(), &mut cells)
        .filter(|()| rest.is_empty())
        .ok_or_else(|| corrupt("(key)", "key bytes that are none of this table"))?;
    let (header, body) =
        Header::read(value).ok_or_else(|| corrupt("(header)", "the stored value ends too early"))?;
    value::pull_cells(value, body, &slot.layout, &mut cells)
        .map_err(|mismatch| corrupt("(value)", mismatch.0))?;
    if R::TABLE.mode == Mode::View {
        return Ok(R::from_cells(pick(slot.table, R::TABLE, cells))?);
    }
    if let Some(version) = header.version {
        cells.push(Cell::BigInt(version));
    }
    Ok(R::from_cells(cells)?)
}

/// The cells of a view's columns. What it leaves out was never copied.
fn pick<'a>(table: &'static Table, view: &'static Table, mut cells: Vec<Cell<'a>>) -> Vec<Cell<'a>> {
    let mut picked = Vec::with_capacity(view.columns.len());
    for wanted in view.columns {
        let place = table.columns.iter().position(|column| column.name == wanted.name);
        let cell = place.and_then(|place| cells.get_mut(place));
        picked.push(cell.map_or(Cell::Null, |cell| std::mem::replace(cell, Cell::Null)));
    }
    picked
}

/// Every failure of the database is a defect or a broken disk: none passes by waiting in this process.
#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn engine_error(error: fjall::Error) -> Error {
    of_engine(&error)
}

fn of_engine(error: &fjall::Error) -> Error {
    match error {
        fjall::Error::Poisoned => Error::Lost,
        error => Error::Engine(error.to_string()),
    }
}
