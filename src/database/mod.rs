//! Folder of the embedded database: created completely or not at all, and checked for lost or damaged data before it is
//! opened.

mod access;
mod journal;
mod stop;
mod tables;
mod unflushed;

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use fjall::Database;
use tidegate_schemas::{DiskSpace, Durable, DurableMark};

pub(crate) use self::stop::OpenDatabase;

/// Name of the database folder inside the data folder.
const FOLDER: &str = "db";
/// Name of the database folder while it is created.
const UNFINISHED: &str = "db.new";
/// Folder inside the database folder with one folder per table.
const TABLES: &str = "keyspaces";
/// Folder of the table that lists all tables.
const LIST_OF_TABLES: &str = "0";
/// Empty file that is locked while the database is open.
const LOCK: &str = "lock";
/// File that the database writes into a new folder before it takes a row, and its length.
const MARKER: &str = "version";
const MARKER_BYTES: u64 = 4;
/// Empty table, created after the first mark is durable. A database that lists it must have a mark; databases of versions without
/// marks do not list it.
const HAS_MARKS: &str = "database.has_marks";
/// Bounds of the total size of finished journals above which the database flushes the tables that need the oldest one.
const MIN_JOURNAL_BYTES: u64 = 64 << 20;
const MAX_JOURNAL_BYTES: u64 = 128 << 20;

/// Returns the handle by which an opened database is closed.
pub(crate) fn handle(data: &Path, database: &Database) -> OpenDatabase {
    OpenDatabase::new(database, &folder_in(data))
}

pub(crate) fn folder_in(data: &Path) -> PathBuf {
    data.join(FOLDER)
}

/// True if the folder may hold a database with data.
pub(crate) fn is_in(data: &Path) -> bool {
    let folder = folder_in(data);
    (folder.exists() && !holds_no_data(&folder).unwrap_or_default()) || has_tables(&data.join(UNFINISHED))
}

/// Data folder, locked by this process during its start. The lock keeps two processes that start at once from creating two
/// master keys.
pub(crate) struct LockedDataFolder {
    data: PathBuf,
    /// `None` on systems where folders cannot be locked.
    _lock: Option<File>,
    mark: Arc<DurableMark>,
}

impl LockedDataFolder {
    /// Locks the folder. Fails if its database is missing, unless the loss is accepted.
    pub(crate) fn lock(data: &Path, accepts_loss: bool) -> anyhow::Result<Self> {
        let file = DurableMark::path_in(data);
        access::check(data, &folder_in(data), [file.clone(), unflushed::path_in(data)])?;
        let lock = lock(data)?;
        let mark = DurableMark::open(data, accepts_loss).with_context(|| {
            format!(
                "{}, which says how much of the data was durable, cannot be read: put it back, or start with \
                 --accept-loss to take the data as it is",
                file.display()
            )
        })?;
        let starting = Self { data: data.to_owned(), _lock: lock, mark: Arc::new(mark) };
        starting.check_database_exists()?;
        Ok(starting)
    }

    fn check_database_exists(&self) -> anyhow::Result<()> {
        let folder = folder_in(&self.data);
        let Some(durable) = self.mark.found().filter(|durable| !durable.is_empty()) else { return Ok(()) };
        if is_finished(&folder) || is_finished(&self.data.join(UNFINISHED)) {
            return Ok(());
        }
        if may_hold_rows(&folder).unwrap_or_default() {
            return Err(no_marker(&folder));
        }
        let lost = format!("{} is gone, and with it {}", folder.display(), describe_durable(durable));
        if !self.mark.accepts_loss() {
            bail!("{lost}: put it or a backup back, or start with --accept-loss to begin with nothing");
        }
        tracing::warn!("accepted as lost: {lost}");
        Ok(())
    }

    /// Opens the database, creating it if there is none. Returns it with the mark of the durable writes.
    pub(crate) fn open_database(self) -> anyhow::Result<(Database, Arc<DurableMark>)> {
        let (folder, unfinished) = (folder_in(&self.data), self.data.join(UNFINISHED));
        if !is_finished(&folder) {
            create(&self.data, &folder, &unfinished)?;
        }
        if unfinished.exists() {
            let (unused, used) = (unfinished.display(), folder.display());
            tracing::warn!("{unused} is not used, for {used} is: remove it unless something in it is wanted");
        }
        if has_lost_tables(&folder) {
            bail!(
                "{} lacks the list of its tables, so that none of its rows would be found: put a backup in its place, \
                 or move it away to begin with nothing",
                folder.display()
            );
        }
        let open_elsewhere =
            || anyhow::anyhow!("{} is open in {}", folder.display(), describe_other_process());
        let checked = {
            // No other process may write to the journals while they are checked.
            let path = folder.join(LOCK);
            let lock = File::options().create(true).append(true).open(&path);
            let lock = lock.with_context(|| format!("{} cannot be opened", path.display()))?;
            if !is_free(&lock) {
                return Err(open_elsewhere());
            }
            self.check(&folder)?
        };
        let began = Instant::now();
        tracing::info!(folder = %folder.display(), tables = checked.names.len(), "opening the database");
        let database = match open(&folder) {
            Ok(database) => database,
            Err(fjall::Error::Locked) => return Err(open_elsewhere()),
            Err(error) => return Err(cannot_open(&folder, &checked.names, error)),
        };
        tracing::info!(folder = %folder.display(), took_ms = began.elapsed().as_millis(), "the database is open");
        let Checked { accepted, versions, scan, .. } = checked;
        let watch = unflushed::Watch::start(&database, &self.data, accepted, &versions, &scan)?;
        self.mark.keep(Box::new(watch));
        if !database.keyspace_exists(HAS_MARKS)
            && let Err(error) = self.list_marks(&database)
        {
            tracing::warn!(
                error = format!("{error:#}"),
                "a later start will not notice if the mark is removed"
            );
        }
        Ok((database, self.mark))
    }

    /// Creates the table that says that there is a mark.
    fn list_marks(&self, database: &Database) -> anyhow::Result<()> {
        if self.mark.found().is_none() {
            // Promises nothing, and is synced because it is the first.
            let written = self.mark.store_synced(0);
            written.with_context(|| format!("{} cannot be written", self.mark_file().display()))?;
        }
        database.keyspace(HAS_MARKS, fjall::KeyspaceCreateOptions::default)?;
        Ok(())
    }

    fn mark_file(&self) -> PathBuf {
        DurableMark::path_in(&self.data)
    }

    /// Describes a lost mark. Without the mark, other losses stay hidden.
    fn lost_mark(&self, folder: &Path, names: &tables::Names) -> Option<String> {
        let has_marks = names.values().any(|name| name == HAS_MARKS);
        (has_marks && self.mark.found().is_none()).then(|| {
            format!(
                "{} is missing or empty, so {} cannot be checked for lost writes",
                self.mark_file().display(),
                folder.display()
            )
        })
    }

    /// Returns a warning if there are rows of a version that kept no mark.
    fn no_mark(&self, folder: &Path, names: &tables::Names) -> Option<String> {
        (self.mark.found().is_none() && has_rows(folder) && self.lost_mark(folder, names).is_none()).then(|| {
            format!(
                "{} is missing or empty, as it is before the first start of a version that keeps it: {} is opened, and \
                 cannot be compared with what was durable",
                self.mark_file().display(),
                folder.display()
            )
        })
    }

    /// Fails if tables or journals lack durable writes; opening the database would remove or truncate what is left of
    /// them. Bytes that a crash left after the last complete batch are truncated.
    fn check(&self, folder: &Path) -> anyhow::Result<Checked> {
        let read = || format!("the journals of {} cannot be read", folder.display());
        let mut names = tables::names(folder)?;
        if let Some(warning) = self.no_mark(folder, &names) {
            tracing::warn!("{warning}");
        }
        tables::check_manifests(folder, &names)?;
        let journal::Journals { numbered: journals, misnamed } =
            journal::journals(folder).with_context(read)?;
        if let Some(file) = misnamed.first() {
            bail!(
                "{} is no journal of this database, whose journals are numbered: move it out of the folder",
                file.display()
            );
        }
        let record = unflushed::Record::read(&self.data)
            .with_context(|| format!("{} cannot be read", unflushed::path_in(&self.data).display()))?;
        let wanted = record.as_ref().map(|record| record.wanted(folder)).unwrap_or_default();
        let bytes: u64 =
            journals.iter().filter_map(|(_, path)| fs::metadata(path).ok()).map(|file| file.len()).sum();
        tracing::info!(folder = %folder.display(), journals = journals.len(), mib = bytes >> 20, "reading the journals");
        let scan = journal::scan(&journals, self.mark.found(), wanted).with_context(read)?;
        let mut accepted = record.clone().unwrap_or_default();
        let mut lost: Vec<_> = self.lost_mark(folder, &names).into_iter().collect();
        let gone = tables::gone(folder, &names);
        lost.extend(gone.iter().map(|(_, name, path)| {
            format!("the table {name} is gone, because {} is missing", path.display())
        }));
        let gone: Vec<u64> = gone.into_iter().map(|(table, ..)| table).collect();
        lost.extend(lost_journals(folder, &journals, &scan, &mut accepted));
        let has_marks = (self.mark.found().is_some(), record.is_some());
        lost.extend(lost_rows(folder, &names, &journals, &scan, has_marks));
        lost.extend(scan.tails.iter().filter_map(|tail| tail.damage.clone()));
        if !lost.is_empty() && !self.mark.accepts_loss() {
            bail!(
                "{}. Put back the data folder as it was or a backup, or start with --accept-loss to go on without what \
                 is missing",
                lost.join("; ")
            );
        }
        for lost in lost {
            tracing::warn!("accepted as lost: {lost}");
        }
        for table in gone {
            self.keep_remains(folder, table)?;
            tables::forget(folder, table)?;
            names.remove(&table);
        }
        for tail in &scan.tails {
            self.truncate(tail).with_context(|| format!("{} cannot be cut off", tail.file.display()))?;
        }
        let versions = unflushed::Versions::read(folder, &names);
        Ok(Checked { names, accepted, versions, scan })
    }

    /// Moves what is left of a table that cannot be opened out of the way of the database, which would remove it.
    fn keep_remains(&self, folder: &Path, table: u64) -> anyhow::Result<()> {
        let (remains, kept) =
            (tables::folder_of(folder, table), self.data.join(format!("damaged-table-{table}")));
        if !remains.exists() {
            return Ok(());
        }
        fs::rename(&remains, &kept)
            .with_context(|| format!("{} cannot be moved to {}", remains.display(), kept.display()))?;
        tracing::warn!(folder = %kept.display(), "what is left of a table is kept");
        Ok(())
    }

    /// Truncates a journal after its last complete batch. A copy is kept if durable writes were lost.
    fn truncate(&self, tail: &journal::UnreadableTail) -> anyhow::Result<()> {
        if tail.is_loss {
            let name = tail.file.file_name().unwrap_or_default().to_string_lossy();
            let copy = self.data.join(format!("damaged-{name}"));
            fs::copy(&tail.file, &copy).with_context(|| format!("{} cannot be written", copy.display()))?;
            tracing::warn!(copy = %copy.display(), "the damaged journal is kept as a copy");
        }
        let file = File::options().write(true).open(&tail.file)?;
        file.set_len(tail.at)?;
        file.sync_all()?;
        Ok(())
    }
}

/// Results of the check that precedes opening the database.
struct Checked {
    names: tables::Names,
    /// Accepted losses, for the new record of unflushed rows.
    accepted: unflushed::Record,
    versions: unflushed::Versions,
    scan: journal::Scan,
}

/// Describes journals that are missing between others, or emptied, and notes them as accepted.
fn lost_journals(
    folder: &Path,
    journals: &[(u64, PathBuf)],
    scan: &journal::Scan,
    accepted: &mut unflushed::Record,
) -> Vec<String> {
    let mut lost = Vec::new();
    if journals.is_empty() {
        lost.push(format!(
            "{} has no journal (*.jnl), which every database has: what was written last is gone",
            folder.display()
        ));
    }
    for pair in journals.windows(2) {
        let [(before, _), (after, path)] = pair else { continue };
        let missing: Vec<_> = (before + 1..*after).collect();
        if let (Some(first), Some(last)) = (missing.first(), missing.last())
            && !missing.iter().all(|number| accepted.accepted_journals.contains(number))
        {
            lost.push(format!("the journals {first} to {last} before {} are gone", path.display()));
            accepted.accepted_journals.extend(missing);
        }
    }
    for (number, path) in &scan.emptied {
        if accepted.accepted_journals.insert(*number) {
            lost.push(format!("{} was emptied: a journal that another one follows is full", path.display()));
        }
    }
    for tail in scan.tails.iter().filter(|tail| tail.damage.is_some() && tail.at == 0) {
        // It is empty once its end is cut off.
        let journal = journals.iter().find(|(_, path)| *path == tail.file);
        accepted.accepted_journals.extend(journal.map(|(number, _)| *number));
    }
    let oldest = journals.first().map_or(u64::MAX, |(number, _)| *number);
    accepted.accepted_journals.retain(|number| *number >= oldest);
    lost
}

/// Describes rows that were in a journal only and are in none.
fn lost_rows(
    folder: &Path,
    names: &tables::Names,
    journals: &[(u64, PathBuf)],
    scan: &journal::Scan,
    (has_mark, has_record): (bool, bool),
) -> Option<String> {
    let (_, oldest) = journals.first()?;
    // What is missing at the end, log and store tell by the mark, with offsets.
    let is_before_the_end = |sequence: u64| !has_mark || scan.last.is_none_or(|last| sequence < last);
    let missing = scan.missing.iter().filter(|(_, sequence)| is_before_the_end(*sequence));
    let mut tables: Vec<u64> = missing.map(|(table, _)| *table).collect();
    if !has_record {
        // Each counter begins with 1, and one that is in no file of its table was in a journal.
        let later = scan.first_counters.values().filter(|(_, count)| *count > 1);
        tables.extend(later.map(|(table, _)| *table).filter(|table| !tables::has_files(folder, *table)));
    }
    if tables.is_empty() {
        return None;
    }
    let named = tables.iter().map(|table| names.get(table).cloned().unwrap_or_else(|| table.to_string()));
    Some(format!(
        "a journal before {} is gone, or one was cut off or emptied, and with it rows of {}",
        oldest.display(),
        named.collect::<Vec<_>>().join(", ")
    ))
}

fn cannot_open(folder: &Path, names: &tables::Names, error: fjall::Error) -> anyhow::Error {
    let cannot = format!("{} cannot be opened", folder.display());
    let unreadable = tables::unreadable(folder, names);
    if unreadable.is_empty() {
        return anyhow::Error::new(error).context(format!("{cannot}: put back a backup of the data folder"));
    }
    anyhow::anyhow!("{cannot}: {}. Put back a backup of the data folder", unreadable.join("; "))
}

fn no_marker(folder: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} is no database that can be opened, because its file `{MARKER}` is missing or cut off, and it is not empty: \
         put that file back from a backup, put a backup in the place of the folder, or move the folder away to begin \
         with nothing",
        folder.display()
    )
}

/// Returns true if the lock file can be locked. Retries as the database does: an ending process may still hold it.
#[expect(clippy::disallowed_methods, reason = "it runs on a thread that may block")]
fn is_free(lock: &File) -> bool {
    const TRIES: u32 = 3;
    for _ in 1..TRIES {
        if !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    !matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

/// Describes all durable writes.
fn describe_durable(durable: &Durable) -> String {
    let partitions = durable.ends.iter().flat_map(|(topic, ends)| {
        ends.iter().map(move |(partition, end)| format!(", {topic}[{partition}] offsets 0 to {}", end - 1))
    });
    format!("all {} writes of the store{}", durable.store_syncs, partitions.collect::<String>())
}

fn describe_other_process() -> &'static str {
    "another process: one process opens embedded data, every command reaches it through the admin API of that process"
}

fn open(folder: &Path) -> fjall::Result<Database> {
    if is_finished(folder) {
        // A backup may have left out the lock file.
        File::options().create(true).append(true).open(folder.join(LOCK))?;
    }
    let place = if folder.exists() { folder } else { folder.parent().unwrap_or(folder) };
    let total = DiskSpace::of(place).space().map_or(u64::MAX, |space| space.total);
    Database::builder(folder)
        .max_cached_files(Some(crate::open_files::tables()))
        // On a small disk, journals must not fill most of it before they are flushed.
        .max_journaling_size((total / 8).clamp(MIN_JOURNAL_BYTES, MAX_JOURNAL_BYTES))
        .open()
}

/// Creates the database in a temporary folder and renames it: a partly created one, as on a full disk, could not be opened.
fn create(data: &Path, folder: &Path, unfinished: &Path) -> anyhow::Result<()> {
    let cannot = || format!("{} cannot be made", folder.display());
    if fs::symlink_metadata(folder).is_ok() {
        return create_in_place(folder, unfinished).with_context(cannot);
    }
    let made = (|| {
        // A finished database from an earlier start is only renamed.
        if !is_finished(unfinished) {
            clear(unfinished)?;
            // Closing the database syncs it to disk.
            drop(open(unfinished).with_context(|| format!("{} cannot be made", unfinished.display()))?);
        }
        fs::rename(unfinished, folder)?;
        #[cfg(unix)]
        File::open(data)?.sync_all()?;
        anyhow::Ok(())
    })();
    made.inspect_err(|_| {
        // The disk may be full, so free the space.
        let _left_for_the_next_start = clear(unfinished).and_then(|()| Ok(fs::remove_dir(unfinished)?));
    })
    .with_context(cannot)
}

/// Creates the database in an existing folder, which may be a link or a mount point and cannot be replaced.
fn create_in_place(folder: &Path, unfinished: &Path) -> anyhow::Result<()> {
    if may_hold_rows(unfinished).with_context(|| format!("{} cannot be read", unfinished.display()))? {
        bail!(
            "what may be a database that lacks its name only is in {}: give it that name, or move it away to begin with \
             nothing",
            unfinished.display()
        );
    }
    if !folder.exists() {
        bail!("it leads to nothing: put back what it is to lead to, or remove it to begin with nothing");
    }
    // Another data folder may link to the same database folder.
    let _lock = lock(folder)?;
    if !is_finished(folder) {
        clear(folder)?;
        drop(open(folder)?);
    }
    Ok(())
}

/// Removes the remains of a database without data, except the folder itself.
fn clear(folder: &Path) -> anyhow::Result<()> {
    if !folder.exists() || is_finished(folder) {
        return Ok(());
    }
    if !holds_no_data(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        return Err(no_marker(folder));
    }
    let cleared = || {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_file() {
                tracing::warn!(file = %path.display(), "what is left of a database that holds nothing is removed");
                fs::remove_file(path)?;
            }
        }
        match fs::remove_dir_all(folder.join(TABLES)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    };
    cleared().with_context(|| format!("{} cannot be cleared", folder.display()))
}

/// Locks the folder against other processes that would create a database. Where folders cannot be locked, it does
/// nothing.
fn lock(folder: &Path) -> anyhow::Result<Option<File>> {
    let Ok(lock) = File::open(folder) else { return Ok(None) };
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => {
            bail!("{} is being opened by {}", folder.display(), describe_other_process())
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// True if the folder is a finished database with at least one table besides the list of tables.
fn has_tables(folder: &Path) -> bool {
    let Ok(tables) = fs::read_dir(folder.join(TABLES)) else { return false };
    is_finished(folder) && tables.filter_map(Result::ok).any(|table| table.file_name() != LIST_OF_TABLES)
}

/// True if the list of tables was removed. It is written before any table and before the marker; without it the database
/// would open as an empty one.
fn has_lost_tables(folder: &Path) -> bool {
    let tables = folder.join(TABLES);
    let has_list = || tables.join(LIST_OF_TABLES).join("current").exists();
    !tables.is_dir() || (!has_list() && has_rows(folder))
}

/// True if the folder has a table, or a journal that would create one.
fn has_rows(folder: &Path) -> bool {
    has_tables(folder) || has_journal(folder)
}

/// True if a journal has content. New journals consist of zeros.
fn has_journal(folder: &Path) -> bool {
    let Ok(files) = fs::read_dir(folder) else { return false };
    let paths = files.filter_map(Result::ok).map(|file| file.path());
    paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "jnl"))
        .any(|path| !is_zero(&path).unwrap_or_default())
}

fn may_hold_rows(folder: &Path) -> io::Result<bool> {
    if !folder.exists() {
        return Ok(false);
    }
    if is_finished(folder) { Ok(has_rows(folder)) } else { Ok(!holds_no_data(folder)?) }
}

fn is_finished(folder: &Path) -> bool {
    fs::metadata(folder.join(MARKER)).is_ok_and(|marker| marker.len() >= MARKER_BYTES)
}

/// True if the folder holds only remains of a database that was never finished or was removed under a process: a lock,
/// a journal of zeros, folders of empty tables. Such a folder holds no data.
fn holds_no_data(folder: &Path) -> io::Result<bool> {
    if is_finished(folder) {
        return Ok(false);
    }
    let marker = folder.join(MARKER);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let found = fs::symlink_metadata(&path)?;
            if found.is_dir() {
                folders.push(path);
            } else if !found.is_file() || !(path == marker || is_table_manifest(&path) || is_zero(&path)?) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// True if the path is the manifest of a table (a list of its files) in a folder of its own.
fn is_table_manifest(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_list =
        name == "current" || name.strip_prefix('v').is_some_and(|number| number.parse::<u64>().is_ok());
    is_list && path.parent().and_then(Path::parent).is_some_and(|above| above.ends_with(TABLES))
}

fn is_zero(path: &Path) -> io::Result<bool> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(true),
            read if buffer[..read].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod tests;
