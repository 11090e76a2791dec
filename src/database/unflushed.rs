//! Record of rows that are only in journals, beside the database: a start that finds none of them in a journal knows that
//! journals were removed or cut off.
//!
//! The database removes a journal by itself once every row in it is in a table. A flush gives a table a new version before
//! that. So a row that was seen in the memory of a table must be in a journal for as long as the table has the version
//! that it had before the row was seen. The rows of a table with a newer version prove nothing.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::Duration,
};

use fjall::{AbstractTree as _, Database, KeyspaceCreateOptions, PersistMode};
use sha2::{Digest as _, Sha256};

use super::{
    journal::{RowId, Scan},
    tables::{self, Names},
};

/// File in the data folder.
const NAME: &str = "unflushed.mark";
const HEADER: &str = "tidegate unflushed rows 1";
/// Interval at which tables are looked at. Tests have no journals that are older.
const EVERY: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(1) };

/// Size of all journals from which on tables are flushed: a start reads them twice. Above the bound of the finished ones and two that
/// are being filled and flushed, so that small tables are rare.
pub(super) const MAX_JOURNAL_BYTES: u64 = 320 << 20;

/// Row of a table that is only in a journal as long as the table has the version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnflushedRow {
    version: String,
    sequence: u64,
}

/// Contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    rows: BTreeMap<u64, UnflushedRow>,
    /// Numbers of journals whose loss was accepted.
    pub(super) accepted_journals: BTreeSet<u64>,
}

pub(super) fn path_in(data: &Path) -> PathBuf {
    data.join(NAME)
}

impl Record {
    /// Reads the record. Without a whole one nothing can be told from it.
    pub(super) fn read(data: &Path) -> io::Result<Option<Self>> {
        let path = path_in(data);
        match fs::read(&path) {
            Ok(content) => {
                let record = std::str::from_utf8(&content).ok().and_then(Self::decode);
                if record.is_none() {
                    tracing::warn!(file = %path.display(), "the record of unflushed rows is damaged, so removed journals may not be noticed");
                }
                Ok(record)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the rows that must be in a journal of the database.
    pub(super) fn wanted(&self, database: &Path) -> BTreeSet<RowId> {
        let unchanged = self.rows.iter().filter(|(table, row)| {
            tables::version(&tables::folder_of(database, **table)).as_ref() == Some(&row.version)
        });
        unchanged.map(|(table, row)| (*table, row.sequence)).collect()
    }

    /// Replaces the file. Sound without a sync of its own, which a loss of power would need to have it at all.
    fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("mark.new");
        let mut file = File::create(&unfinished)?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_data()?;
        fs::rename(unfinished, path)
    }

    fn encode(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for (table, row) in &self.rows {
            let _infallible = writeln!(text, "row {table} {} {}", row.version, row.sequence);
        }
        for journal in &self.accepted_journals {
            let _infallible = writeln!(text, "accepted-journal {journal}");
        }
        let sum = checksum(&text);
        let _infallible = writeln!(text, "sum {sum}");
        text
    }

    fn decode(text: &str) -> Option<Self> {
        let (body, sum) = text.split_at(text.rfind("sum ")?);
        if sum.trim_end() != format!("sum {}", checksum(body)) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next() != Some(HEADER) {
            return None;
        }
        let mut record = Self::default();
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["row", table, version, sequence] => {
                    let row = UnflushedRow { version: version.to_owned(), sequence: sequence.parse().ok()? };
                    record.rows.insert(table.parse().ok()?, row);
                }
                ["accepted-journal", number] => {
                    record.accepted_journals.insert(number.parse().ok()?);
                }
                _ => {}
            }
        }
        Some(record)
    }
}

fn checksum(text: &str) -> String {
    tidegate_schemas::hex(&Sha256::digest(text.as_bytes())[..16])
}

/// Versions of all tables, read before the database is opened.
pub(super) struct Versions(BTreeMap<u64, String>);

impl Versions {
    pub(super) fn read(database: &Path, names: &Names) -> Self {
        let versions = names
            .keys()
            .filter_map(|table| Some((*table, tables::version(&tables::folder_of(database, *table))?)));
        Self(versions.collect())
    }
}

/// Keeps the record while the database is open. The thread ends when this is dropped.
pub(super) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Writes the record of a database that was just opened, and goes on with it in a thread.
    pub(super) fn start(
        database: &Database,
        data: &Path,
        accepted: Record,
        versions: &Versions,
        scan: &Scan,
    ) -> anyhow::Result<Self> {
        let mut watcher = Watcher {
            database: database.clone(),
            file: path_in(data),
            record: Record { rows: BTreeMap::new(), ..accepted },
            written: None,
            memory: HashMap::new(),
            versions: HashMap::new(),
        };
        watcher.read_journals(versions, scan);
        watcher.observe();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("unflushed rows".to_owned()).spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                watcher.observe();
                watcher.bound_journals();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

struct Watcher {
    database: Database,
    file: PathBuf,
    record: Record,
    /// Record as the file has it. `None`: the file could not be written.
    written: Option<Record>,
    /// By table: number of the memory that takes its rows, and a sequence number that was seen in it early.
    memory: HashMap<u64, (u64, u64)>,
    /// By table: number of its version in memory, and the version that its file had no earlier than that.
    versions: HashMap<u64, (u64, Option<String>)>,
}

impl Watcher {
    /// Takes the first row of each table in the journals that was in no table file after the start. One that was flushed
    /// by then gave its table another version than the one before the start.
    fn read_journals(&mut self, versions: &Versions, scan: &Scan) {
        for keyspace in self.keyspaces() {
            let table = keyspace.id();
            let persisted = keyspace.tree.get_highest_persisted_seqno();
            let first_rows = scan.first_rows.iter().filter_map(|first_rows| first_rows.get(&table).copied());
            let first = first_rows.filter(|row| persisted.is_none_or(|persisted| *row > persisted)).min();
            if let (Some(sequence), Some(version)) = (first, versions.0.get(&table).cloned()) {
                self.record.rows.insert(table, UnflushedRow { version, sequence });
            }
        }
    }

    fn keyspaces(&self) -> Vec<fjall::Keyspace> {
        let names = self.database.list_keyspace_names();
        names
            .iter()
            .filter_map(|name| self.database.keyspace(name, KeyspaceCreateOptions::default).ok())
            .collect()
    }

    /// Reads the file only if the table changed: there are many tables, and few change.
    fn version(&mut self, keyspace: &fjall::Keyspace) -> Option<String> {
        let number = keyspace.tree.current_version().id();
        match self.versions.get(&keyspace.id()) {
            Some((known, version)) if *known == number => version.clone(),
            _ => {
                let version = tables::version(keyspace.path());
                self.versions.insert(keyspace.id(), (number, version.clone()));
                version
            }
        }
    }

    /// Flushes the table that holds most in memory if the journals are too large. With that the database begins another journal, and
    /// flushes the tables that need the oldest one; by itself it does so only when one table holds 64 MiB in memory, however many
    /// others have rows in the journal.
    fn bound_journals(&self) {
        if self.database.journal_disk_space().is_ok_and(|bytes| bytes <= MAX_JOURNAL_BYTES) {
            return;
        }
        let largest =
            self.keyspaces().into_iter().max_by_key(|keyspace| keyspace.tree.active_memtable().size());
        if let Some(Err(error)) = largest.map(|keyspace| keyspace.rotate_memtable()) {
            tracing::warn!(%error, "journals cannot be made smaller: a table cannot be flushed");
        }
    }

    fn observe(&mut self) {
        for keyspace in self.keyspaces() {
            let table = keyspace.id();
            // Before the memory is looked at: what a flush takes away afterwards has another version.
            let version = self.version(&keyspace);
            let memory = keyspace.tree.active_memtable();
            if let Some(sequence) = memory.get_highest_seqno()
                && self.memory.get(&table).is_none_or(|(seen, _)| *seen != memory.id())
            {
                self.memory.insert(table, (memory.id(), sequence));
            }
            let Some(version) = version else {
                self.record.rows.remove(&table);
                continue;
            };
            // The older row is the better one, and it is in a journal for as long as the version stays.
            if self.record.rows.get(&table).is_some_and(|row| row.version == version) {
                continue;
            }
            match self.memory.get(&table) {
                Some((seen, sequence)) if *seen == memory.id() => {
                    self.record.rows.insert(table, UnflushedRow { version, sequence: *sequence });
                }
                _ => {
                    self.record.rows.remove(&table);
                }
            }
        }
        if self.written.as_ref() == Some(&self.record) {
            return;
        }
        // A row that a loss of power may take must not be asked for.
        if self.database.persist(PersistMode::SyncAll).is_err() {
            return;
        }
        match self.record.write(&self.file) {
            Ok(()) => self.written = Some(self.record.clone()),
            Err(error) => {
                if self.written.take().is_some() {
                    tracing::warn!(%error, file = %self.file.display(), "the record of unflushed rows cannot be written");
                }
            }
        }
    }
}
