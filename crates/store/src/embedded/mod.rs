//! The embedded engine: every table is a keyspace `store.<name>` of a fjall database that the caller opens and that the
//! log shares.
//!
//! Point reads run on the caller's thread: they take microseconds, a cold one a few block reads. Scans move to a blocking
//! thread after their first entries (see [`walk`]). One thread makes all writes (see [`writer`]).

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
use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tidegate_embedded_data::{DiskSpace, DurableMark};
use tidegate_scheduler::OrgPermits;
use tidegate_schemas::ids::OrgId;
use tokio::sync::{Semaphore, oneshot};

pub use self::settings::Settings;
use self::{
    layout::{Descriptor, Layout},
    syncs::SyncCounter,
    value::Header,
    walk::{Entry, KeyRangeScan},
    write_queue::{Owner, Puts, Request, Work, WriteQueue, WriteResult},
};
use crate::{
    Cell, CorruptCell, Error, InsertOutcome, Mode, ReplaceOutcome, Row, Table, Version, Versioned, WriteTime,
    batch::{AnyRow, Batch, Change},
    range::{Cells, Span},
    split::{Extent, Split},
    tables,
    time::{Clock, system_clock},
};

/// Version of the stored format. Newer data is refused by name; older data is read.
const FORMAT_VERSION: u32 = 1;
const META_KEYSPACE: &str = "store.meta";
/// Longest key of fjall, in bytes.
const MAX_KEY_BYTES: usize = 65_535;
/// Bytes of one permit of the writer's queue.
const QUEUE_UNIT_BYTES: usize = 1_024;

/// Declared table with its keyspace and the layout of its values.
pub(crate) struct Slot {
    pub(crate) table: &'static Table,
    /// Created with the first row: creation takes a dozen syncs, and a new installation uses few tables.
    keyspace: OnceLock<Keyspace>,
    layout: Layout,
}

impl Slot {
    /// Returns the keyspace; `None` if the table never had a row.
    fn keyspace(&self) -> Option<&Keyspace> {
        self.keyspace.get()
    }

    /// Returns the keyspace and creates it if needed. Called only by the writer thread.
    fn writable(&self, db: &Database) -> fjall::Result<&Keyspace> {
        if let Some(keyspace) = self.keyspace.get() {
            return Ok(keyspace);
        }
        let new_keyspace = db.keyspace(&keyspace_name(self.table), KeyspaceCreateOptions::default)?;
        Ok(self.keyspace.get_or_init(|| new_keyspace))
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

/// Versioned row as the writer stores it.
struct EncodedVersion<'a> {
    slot: &'a Arc<Slot>,
    owner: Owner,
    key: UserKey,
    value: UserValue,
    bytes: usize,
}

struct Threads {
    writer: JoinHandle<()>,
    sweep: JoinHandle<()>,
    stop_sweep: std::sync::mpsc::Sender<()>,
}

impl Engine {
    /// Opens every declared table and creates missing ones.
    pub fn open(db: &Database, settings: Settings) -> Result<Self, Error> {
        Self::open_tables(db, settings, tables::ALL, system_clock())
    }

    /// Opens the tables like `open`, and refuses a database with fewer synced writes than the mark records.
    pub fn open_marked(
        db: &Database,
        settings: Settings,
        mark: Arc<DurableMark>,
        disk: Arc<DiskSpace>,
    ) -> Result<Self, Error> {
        Self::open_with(db, settings, tables::ALL, system_clock(), Some((mark, disk)))
    }

    /// Opens other tables or uses another clock, for tests.
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
        let syncs = SyncCounter::open(db, mark)?;
        let slots = open_slots(db, tables)?;
        let queue = WriteQueue::default();
        let (stop_sweep, stop) = std::sync::mpsc::channel();
        let thread_error = |error: std::io::Error| Error::Engine(format!("no thread for the store: {error}"));
        let writer = writer::Writer::new(db.clone(), Arc::clone(&clock), syncs, disk)?;
        let writer = writer::start(writer, settings.group_bytes, queue.clone()).map_err(thread_error)?;
        let sweep = sweep::Sweep {
            slots: slots.values().map(Arc::clone).collect(),
            queue: queue.clone(),
            clock: Arc::clone(&clock),
            settings: settings.clone(),
            stop,
        };
        let sweep = sweep.start().map_err(thread_error)?;
        let room =
            OrgPermits::new(settings.queue_bytes.div_ceil(QUEUE_UNIT_BYTES).min(Semaphore::MAX_PERMITS));
        let threads = Mutex::new(Some(Threads { writer, sweep, stop_sweep }));
        Ok(Self(Arc::new(Inner { slots, queue, room, settings, clock, threads })))
    }

    pub(crate) fn page_rows(&self) -> usize {
        self.0.settings.page_rows
    }

    pub(crate) async fn write(&self, batch: Batch<'_>) -> Result<(), Error> {
        let (durable, new_rows) = (batch.durable, batch.new_rows);
        // The first row with an organisation stands for the batch in the fair queue.
        let owner = batch.changes.iter().find_map(owner_of_change);
        let puts = self.encode(&batch)?;
        drop(batch);
        let bytes = puts.iter().flat_map(|puts| &puts.rows).map(|(key, value)| key.len() + value.len()).sum();
        // Every row of the batch was expired already.
        if bytes == 0 {
            return Ok(());
        }
        self.submit(owner, Work::Put { puts, durable, new_rows }, bytes).await.map(|_| ())
    }

    /// Reads a row on the caller's thread.
    pub(crate) fn get<R: Row>(&self, key: &R::Key) -> Result<Option<R>, Error> {
        let slot = self.find_slot(R::TABLE)?;
        self.read_row(slot, &key_bytes(slot, key)?)
    }

    pub(crate) async fn get_many<R: Row>(&self, keys: &[R::Key]) -> Result<Vec<Option<R>>, Error> {
        /// Reads between two yields to other tasks of the worker.
        const BURST: usize = 32;
        let slot = self.find_slot(R::TABLE)?;
        let mut rows = Vec::with_capacity(keys.len());
        for burst in keys.chunks(BURST) {
            for key in burst {
                rows.push(self.read_row(slot, &key_bytes(slot, key)?)?);
            }
            if rows.len() < keys.len() {
                // Reads never wait, so a long list would block the other tasks of the worker.
                tokio::task::yield_now().await;
            }
        }
        Ok(rows)
    }

    pub(crate) async fn insert_new<R: Versioned>(&self, row: &R) -> Result<InsertOutcome<R>, Error> {
        let EncodedVersion { slot, owner, key, value, bytes } = self.encode_version(row, 1)?;
        let work = Work::Insert { slot: Arc::clone(slot), key: key.clone(), value };
        match self.submit(owner, work, bytes).await? {
            WriteResult::Written => Ok(InsertOutcome::New),
            WriteResult::Refused(Some(old)) => Ok(InsertOutcome::Existing(decode(slot, &(key, old))?)),
            WriteResult::Refused(None) => {
                Err(Error::Engine("an insert was refused without an existing row".to_owned()))
            }
        }
    }

    pub(crate) async fn replace<R: Versioned>(
        &self,
        row: &R,
        was: Version,
    ) -> Result<ReplaceOutcome<R>, Error> {
        let EncodedVersion { slot, owner, key, value, bytes } =
            self.encode_version(row, was.saturating_add(1))?;
        let work = Work::Replace { slot: Arc::clone(slot), key: key.clone(), value, was };
        match self.submit(owner, work, bytes).await? {
            WriteResult::Written => Ok(ReplaceOutcome::Done),
            WriteResult::Refused(Some(old)) => Ok(ReplaceOutcome::Conflict(decode(slot, &(key, old))?)),
            WriteResult::Refused(None) => Ok(ReplaceOutcome::Missing),
        }
    }

    pub(crate) fn scan<R: Row>(&self, partition: &R::Partition, span: &Span) -> Result<KeyRangeScan, Error> {
        let slot = self.find_slot(R::TABLE)?;
        let mut start = Vec::new();
        push_key(slot.table.partition_columns(), partition, &mut start);
        let (low, high) = bounds::span_bounds(slot.table, start, span)?;
        Ok(KeyRangeScan::new(Arc::clone(slot), Arc::clone(&self.0.clock), low, high))
    }

    pub(crate) fn scan_all<R: Row>(&self, split: &Split) -> Result<KeyRangeScan, Error> {
        let slot = self.find_slot(R::TABLE)?;
        let (low, high) = bounds::split_bounds(split)?;
        Ok(KeyRangeScan::new(Arc::clone(slot), Arc::clone(&self.0.clock), low, high))
    }

    pub(crate) fn splits<R: Row>(&self, parts: usize) -> Result<Vec<Split>, Error> {
        let slot = self.find_slot(R::TABLE)?;
        let key =
            |entry: Option<fjall::Guard>| entry.map(fjall::Guard::key).transpose().map_err(engine_error);
        let Some(keyspace) = slot.keyspace() else { return Ok(vec![Split(Extent::Whole)]) };
        let (first, last) = (key(keyspace.first_key_value())?, key(keyspace.last_key_value())?);
        Ok(match (first, last) {
            (Some(first), Some(last)) => bounds::split(&first, &last, parts),
            _ => vec![Split(Extent::Whole)],
        })
    }

    /// Checks that the writer answers, that its folder is in place, and that no write failed before: fjall refuses all
    /// writes after a failed one.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        self.submit(None, Work::Put { puts: Vec::new(), durable: false, new_rows: false }, 0)
            .await
            .map(|_| ())
    }

    /// Executes the queued requests, syncs, and stops the threads. Later calls fail with [`Error::Closed`].
    pub(crate) async fn close(&self) -> Result<(), Error> {
        let Some(threads) = self.0.threads.lock().take() else { return Ok(()) };
        // Stops the sweep first, because it sends requests to the writer.
        drop(threads.stop_sweep);
        self.0.queue.close();
        let join_result =
            tokio::task::spawn_blocking(move || threads.sweep.join().and(threads.writer.join())).await;
        match join_result {
            Ok(Ok(())) => Ok(()),
            _ => Err(Error::Engine("a thread of the store had panicked".to_owned())),
        }
    }

    fn find_slot(&self, table: &'static Table) -> Result<&Arc<Slot>, Error> {
        self.0.slots.get(table.name).ok_or(Error::UnknownTable(table.name))
    }

    fn read_row<R: Row>(&self, slot: &Slot, key: &[u8]) -> Result<Option<R>, Error> {
        self.read_entry(slot, key)?.map(|entry| decode(slot, &entry)).transpose()
    }

    fn read_entry(&self, slot: &Slot, key: &[u8]) -> Result<Option<Entry>, Error> {
        let Some(value) = slot.get(key).map_err(engine_error)? else { return Ok(None) };
        let value = Bytes::from(value);
        // An unreadable header is reported as corrupt by `decode`.
        if Header::read(&value).is_some_and(|(header, _)| !header.is_visible((self.0.clock)().0)) {
            return Ok(None);
        }
        Ok(Some((UserKey::from(key), value)))
    }

    /// Hands work to the writer's queue and waits for its result. Boxed: it is compiled here only, and not with every row type.
    fn submit(&self, owner: Owner, work: Work, bytes: usize) -> BoxFuture<'_, Result<WriteResult, Error>> {
        async move {
            let room = match &owner {
                Some(org) => {
                    Some(self.0.room.acquire_many(org, bytes.div_ceil(QUEUE_UNIT_BYTES).max(1)).await)
                }
                // Requests of the service need no permits, so a full queue does not block the sweep.
                None => None,
            };
            let (reply, answer) = oneshot::channel();
            self.0.queue.push(&owner, Request { work, bytes, reply, room })?;
            answer.await.map_err(|_| Error::Closed)?
        }
        .boxed()
    }

    /// Encodes a batch as rows by table, sorted by key, with only the winner of each key.
    fn encode(&self, batch: &Batch<'_>) -> Result<Vec<Puts>, Error> {
        let now_ms = (self.0.clock)().0;
        let mut tables: Vec<Puts> = Vec::new();
        let max_columns = batch.changes.iter().map(|change| change.table().columns.len()).max().unwrap_or(0);
        let mut cells = Vec::with_capacity(max_columns);
        for change in &batch.changes {
            let table = change.table();
            let index = match tables.iter().position(|puts| puts.slot.table.name == table.name) {
                Some(index) => index,
                None => {
                    tables.push(Puts { slot: Arc::clone(self.find_slot(table)?), rows: Vec::new() });
                    tables.len() - 1
                }
            };
            let Puts { slot, rows } = &mut tables[index];
            cells.clear();
            change.cells(&mut cells);
            let expires_at = expiry(slot.table, change.at());
            if expires_at.is_some_and(|expires_at| expires_at <= now_ms)
                && !matches!(change, Change::Delete { .. })
            {
                // A late replay of an old put: the row is expired already, and so is any older row of its key.
                continue;
            }
            let value = match change {
                Change::Delete { .. } => header_bytes(Header {
                    is_tombstone: true,
                    written_at: change.at().0,
                    expires_at: None,
                    version: None,
                }),
                _ => {
                    let header =
                        Header { is_tombstone: false, written_at: change.at().0, expires_at, version: None };
                    value_bytes(slot, header, &cells)
                }
            };
            let key = row_key(slot, &cells)?;
            self.check_row_size(slot, &key, &value)?;
            rows.push((key, value));
        }
        for Puts { rows, .. } in &mut tables {
            if rows.len() > 1 {
                // Reads of one batch do not see its own rows, so only the winner of each key may enter it.
                rows.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
                rows.dedup_by(|next, kept| {
                    let is_same_key = next.0 == kept.0;
                    if is_same_key && value::wins(&next.1, &kept.1) {
                        std::mem::swap(next, kept);
                    }
                    is_same_key
                });
            }
        }
        Ok(tables)
    }

    fn encode_version(&self, row: &dyn AnyRow, version: Version) -> Result<EncodedVersion<'_>, Error> {
        let slot = self.find_slot(row.table())?;
        let written_at = WriteTime::after(None, (self.0.clock)());
        let expires_at = expiry(slot.table, written_at);
        let mut cells = Vec::with_capacity(slot.table.columns.len());
        row.push_cells(&mut cells);
        // The last cell is the version, which is stored in the header.
        cells.pop();
        let header =
            Header { is_tombstone: false, written_at: written_at.0, expires_at, version: Some(version) };
        let (key, value) = (row_key(slot, &cells)?, value_bytes(slot, header, &cells));
        self.check_row_size(slot, &key, &value)?;
        let bytes = key.len() + value.len();
        Ok(EncodedVersion { slot, owner: owner_of_row(slot.table, &cells), key, value, bytes })
    }

    fn check_row_size(&self, slot: &Slot, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let (bytes, limit) = (key.len() + value.len(), self.0.settings.max_row_bytes);
        if bytes > limit { Err(Error::TooLarge { table: slot.table.name, bytes, limit }) } else { Ok(()) }
    }
}

fn open_slots(db: &Database, tables: &[&'static Table]) -> Result<HashMap<&'static str, Arc<Slot>>, Error> {
    let meta = meta(db).map_err(engine_error)?;
    match meta.get("format").map_err(engine_error)? {
        None => meta.insert("format", FORMAT_VERSION.to_be_bytes()).map_err(engine_error)?,
        Some(bytes) => {
            // An unreadable format counts as newer.
            let stored_format = bytes.as_ref().try_into().map_or(u32::MAX, u32::from_be_bytes);
            if stored_format > FORMAT_VERSION {
                return Err(Error::NewerFormat { found: stored_format, known: FORMAT_VERSION });
            }
        }
    }
    let mut slots = HashMap::with_capacity(tables.len());
    for table in tables {
        // Its rows are those of its table, which is opened under the same name.
        if table.mode == Mode::View {
            let detail = "a view cannot be opened as a table".to_owned();
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
        // A missing keyspace is created with the first row, not here.
        if db.keyspace_exists(&name) {
            let existing = db.keyspace(&name, KeyspaceCreateOptions::default).map_err(engine_error)?;
            keyspace.get_or_init(|| existing);
        }
        if slots.insert(table.name, Arc::new(Slot { table, keyspace, layout })).is_some() {
            return Err(Error::Schema { table: table.name.to_owned(), detail: "declared twice".to_owned() });
        }
    }
    // Rows use the column ids of these descriptors, so the descriptors must be durable before any row.
    db.persist(PersistMode::SyncAll).map_err(engine_error)?;
    Ok(slots)
}

fn meta(db: &Database) -> fjall::Result<Keyspace> {
    db.keyspace(META_KEYSPACE, KeyspaceCreateOptions::default)
}

/// Returns the organisation of a row if its table has a column `org`.
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

/// Returns the expiry of a row written at this time, in milliseconds.
fn expiry(table: &Table, at: WriteTime) -> Option<i64> {
    table.ttl_millis().map(|ttl| at.millis().0.saturating_add(ttl))
}

fn row_key(slot: &Slot, cells: &[Cell<'_>]) -> Result<UserKey, Error> {
    let mut bytes = Vec::with_capacity(96);
    key::push_all(&mut bytes, cells, slot.table.key_columns());
    check_key_size(slot, &bytes)?;
    Ok(UserKey::from(bytes))
}

fn key_bytes(slot: &Slot, key: &impl Cells) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(96);
    push_key(slot.table.key_columns(), key, &mut bytes);
    check_key_size(slot, &bytes)?;
    Ok(bytes)
}

fn push_key(columns: &[crate::ColumnDef], tuple: &impl Cells, out: &mut Vec<u8>) {
    let mut cells = Vec::with_capacity(columns.len());
    tuple.cells(&mut cells);
    key::push_all(out, &cells, columns);
}

fn check_key_size(slot: &Slot, bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() > MAX_KEY_BYTES {
        return Err(Error::KeyTooLong { table: slot.table.name, bytes: bytes.len(), limit: MAX_KEY_BYTES });
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

/// Decodes the row of an entry.
pub(crate) fn decode<R: Row>(slot: &Slot, entry: &Entry) -> Result<R, Error> {
    Ok(R::from_cells(decode_cells(slot, R::TABLE, entry)?)?)
}

/// Decodes the cells of an entry: those of its table, or of a view on it.
fn decode_cells<'a>(
    slot: &Slot,
    table: &'static Table,
    (key, value): &'a Entry,
) -> Result<Vec<Cell<'a>>, Error> {
    let corrupt = |column, reason| Error::Corrupt(CorruptCell { table: slot.table.name, column, reason });
    let mut cells = Vec::with_capacity(slot.table.columns.len());
    let mut rest = key.as_ref();
    key::pull_all(&mut rest, slot.table.key_columns(), &mut cells)
        // Trailing bytes belong to the key of another table.
        .filter(|()| rest.is_empty())
        .ok_or_else(|| corrupt("(key)", "key bytes that are none of this table"))?;
    let (header, body) =
        Header::read(value).ok_or_else(|| corrupt("(header)", "the stored value ends too early"))?;
    value::pull_cells(value, body, &slot.layout, &mut cells)
        .map_err(|mismatch| corrupt("(value)", mismatch.0))?;
    if table.mode == Mode::View {
        return Ok(select_view_cells(slot.table, table, cells));
    }
    if let Some(version) = header.version {
        cells.push(Cell::BigInt(version));
    }
    Ok(cells)
}

/// Selects the cells of a view's columns. Blobs of the other columns were never copied.
fn select_view_cells<'a>(
    table: &'static Table,
    view: &'static Table,
    mut cells: Vec<Cell<'a>>,
) -> Vec<Cell<'a>> {
    let mut view_cells = Vec::with_capacity(view.columns.len());
    for view_column in view.columns {
        let place = table.columns.iter().position(|column| column.name == view_column.name);
        let cell = place.and_then(|place| cells.get_mut(place));
        view_cells.push(cell.map_or(Cell::Null, |cell| std::mem::replace(cell, Cell::Null)));
    }
    view_cells
}

/// Converts an error of the database. All of them are defects or disk failures, so a retry in this process cannot help.
#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn engine_error(error: fjall::Error) -> Error {
    classify_engine_error(&error)
}

fn classify_engine_error(error: &fjall::Error) -> Error {
    match error {
        fjall::Error::Poisoned => Error::DatabasePoisoned,
        error => Error::Engine(error.to_string()),
    }
}
