//! Record of rows that are only in journals, kept beside the database: if a row is in no journal at the next start, journals were
//! removed or cut off.
//!
//! The database removes a journal once all of its rows are in tables. Before that, a flush gives the table a new version.
//! So a row that was seen in the memory of a table must be in a journal as long as the table keeps the version from
//! before the row was seen. Rows of a table with a newer version are not checked.

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

use crate::{
    journals::{RowId, Scan},
    tables::{self, Names},
};

/// Name of the file in the data folder.
const FILE_NAME: &str = "unflushed.mark";
const HEADER: &str = "tidegate unflushed rows 1";
/// Interval between two updates of the record in a service.
pub(super) const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Total size of all journals above which a table is flushed. It bounds the time of a start, which reads the journals twice. It lies
/// above the database's own bound of finished journals plus two in use, so that flushes of small tables stay rare.
pub(super) const MAX_JOURNAL_BYTES: u64 = 320 << 20;

/// Row of a table that must be in a journal as long as the table has the version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnflushedRow {
    version: String,
    sequence: u64,
}

/// Contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    rows: BTreeMap<u64, UnflushedRow>,
    /// Numbers of lost journals that an operator accepted as lost.
    pub(super) accepted_journals: BTreeSet<u64>,
}

pub(super) fn path_in(data: &Path) -> PathBuf {
    data.join(FILE_NAME)
}

impl Record {
    /// Reads the record. Returns `None` if it is missing or damaged.
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
    pub(super) fn expected_rows(&self, database: &Path) -> BTreeSet<RowId> {
        let unchanged = self.rows.iter().filter(|(table, row)| {
            tables::read_version(&tables::folder_of(database, **table)).as_ref() == Some(&row.version)
        });
        unchanged.map(|(table, row)| (*table, row.sequence)).collect()
    }

    /// Replaces the file. The rename is not synced: after a loss of power, the previous record is valid as well.
    fn write(&self, path: &Path) -> io::Result<()> {
        let temporary_path = path.with_extension("mark.new");
        let mut file = File::create(&temporary_path)?;
        file.write_all(self.encode().as_bytes())?;
        // Synced before the rename: a crash must not leave an empty file under the final name.
        file.sync_data()?;
        fs::rename(temporary_path, path)
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
                // Lines of later versions are ignored.
                _ => {}
            }
        }
        Some(record)
    }
}

fn checksum(text: &str) -> String {
    tidegate_schemas::hex(&Sha256::digest(text.as_bytes())[..16])
}

/// Versions of all tables before the database was opened.
pub(super) struct Versions(BTreeMap<u64, String>);

impl Versions {
    pub(super) fn read(database: &Path, names: &Names) -> Self {
        let versions = names
            .keys()
            .filter_map(|table| Some((*table, tables::read_version(&tables::folder_of(database, *table))?)));
        Self(versions.collect())
    }
}

/// Handle of the thread that keeps the record while the database is open. Dropping it ends the thread.
pub(super) struct WatcherHandle {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WatcherHandle {
    /// Writes the record of a newly opened database and starts the thread that keeps it up to date.
    pub(super) fn start(
        database: &Database,
        data: &Path,
        interval: Duration,
        accepted_losses: Record,
        versions: &Versions,
        scan: &Scan,
    ) -> anyhow::Result<Self> {
        let mut watcher = Watcher {
            database: database.clone(),
            file: path_in(data),
            // The rows of the earlier record were checked by this start. The journals give the new ones.
            record: Record { rows: BTreeMap::new(), ..accepted_losses },
            written_record: None,
            memtables: HashMap::new(),
            versions: HashMap::new(),
        };
        watcher.record_journal_rows(versions, scan);
        watcher.update_record();
        let (stop, stop_receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("unflushed rows".to_owned()).spawn(move || {
            while stop_receiver.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                watcher.update_record();
                watcher.bound_journals();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for WatcherHandle {
    fn drop(&mut self) {
        // The thread ends when its channel is closed, so the sender goes first.
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
    /// Record in the file. `None` after a failed write.
    written_record: Option<Record>,
    /// By table: id of its active memtable, and the highest sequence number in it when it was first seen.
    memtables: HashMap<u64, (u64, u64)>,
    /// By table: id of its version in memory, and the version in its file, read after that id.
    versions: HashMap<u64, (u64, Option<String>)>,
}

impl Watcher {
    /// Records the first journal row of each table that is in no table file. The versions are those from before the start: if the start
    /// flushed a table, its version differs and the row is not checked.
    fn record_journal_rows(&mut self, versions: &Versions, scan: &Scan) {
        for keyspace in self.keyspaces() {
            let table = keyspace.id();
            let persisted = keyspace.tree.get_highest_persisted_seqno();
            let first_rows = scan.first_rows.iter().filter_map(|first_rows| first_rows.get(&table).copied());
            let first_sequence =
                first_rows.filter(|first| persisted.is_none_or(|persisted| *first > persisted)).min();
            if let (Some(sequence), Some(version)) = (first_sequence, versions.0.get(&table).cloned()) {
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

    /// Returns the version of a table. Reads its file only after a change: there are many tables, and few change.
    fn table_version(&mut self, keyspace: &fjall::Keyspace) -> Option<String> {
        // Read before the file, so that the next call notices a change in between.
        let version_id = keyspace.tree.current_version().id();
        match self.versions.get(&keyspace.id()) {
            Some((known_id, version)) if *known_id == version_id => version.clone(),
            _ => {
                let version = tables::read_version(keyspace.path());
                self.versions.insert(keyspace.id(), (version_id, version.clone()));
                version
            }
        }
    }

    /// Flushes the largest table in memory if the journals exceed their bound. The database then begins another journal and flushes the
    /// tables that need the oldest one. On its own it does so only when a single table holds 64 MiB in memory, no matter how many
    /// others have rows in the journal.
    fn bound_journals(&self) {
        if self.database.journal_disk_space().is_ok_and(|bytes| bytes <= MAX_JOURNAL_BYTES) {
            return;
        }
        let largest_table =
            self.keyspaces().into_iter().max_by_key(|keyspace| keyspace.tree.active_memtable().size());
        if let Some(Err(error)) = largest_table.map(|keyspace| keyspace.rotate_memtable()) {
            tracing::warn!(%error, "journals cannot be made smaller: a table cannot be flushed");
        }
    }

    fn update_record(&mut self) {
        for keyspace in self.keyspaces() {
            let table = keyspace.id();
            // The version is read before the memtable: if a flush in between moves the rows to a file, the table has another version and
            // its row is not checked.
            let version = self.table_version(&keyspace);
            let memtable = keyspace.tree.active_memtable();
            if let Some(sequence) = memtable.get_highest_seqno()
                && self.memtables.get(&table).is_none_or(|(memtable_id, _)| *memtable_id != memtable.id())
            {
                self.memtables.insert(table, (memtable.id(), sequence));
            }
            // Without a version, a later flush of the row could not be detected.
            let Some(version) = version else {
                self.record.rows.remove(&table);
                continue;
            };
            // Keep the older row: it is in a journal as long as the version stays, and also reveals the loss of an older journal.
            if self.record.rows.get(&table).is_some_and(|row| row.version == version) {
                continue;
            }
            match self.memtables.get(&table) {
                Some((memtable_id, sequence)) if *memtable_id == memtable.id() => {
                    self.record.rows.insert(table, UnflushedRow { version, sequence: *sequence });
                }
                _ => {
                    self.record.rows.remove(&table);
                }
            }
        }
        if self.written_record.as_ref() == Some(&self.record) {
            return;
        }
        // Only durable rows are recorded: otherwise a loss of power would look like a removed journal.
        if self.database.persist(PersistMode::SyncAll).is_err() {
            return;
        }
        match self.record.write(&self.file) {
            Ok(()) => self.written_record = Some(self.record.clone()),
            Err(error) => {
                // Warns once, until a write succeeds again.
                if self.written_record.take().is_some() {
                    tracing::warn!(%error, file = %self.file.display(), "the record of unflushed rows cannot be written");
                }
            }
        }
    }
}
