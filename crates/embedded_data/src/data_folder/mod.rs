//! Folder of the embedded database: created completely or not at all, and checked for lost or damaged data before it is
//! opened.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use fjall::Database;

use crate::{
    disk_space::DiskSpace,
    durable_mark::{DurableMark, DurableState},
    journals,
    layout::{LIST_OF_TABLES, LOCK, MARKER, MARKER_BYTES, TABLES, UNFINISHED, folder_in},
    open_database::OpenDatabase,
    permissions, tables, unflushed_rows,
};

/// Empty table, created after the first mark is durable. A database that lists it must have a mark; databases of versions without
/// marks do not list it.
const HAS_MARKS: &str = "database.has_marks";
/// Bounds of the total size of finished journals above which the database flushes the tables that need the oldest one.
const MIN_JOURNAL_BYTES: u64 = 64 << 20;
const MAX_JOURNAL_BYTES: u64 = 128 << 20;

/// Settings of the opened database.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseSettings {
    /// Maximum number of tables that are kept open.
    pub max_open_tables: usize,
    /// Interval between two updates of the record of unflushed rows.
    pub record_interval: Duration,
}

impl DatabaseSettings {
    /// Returns settings with an update of the record every second.
    pub const fn new(max_open_tables: usize) -> Self {
        Self { max_open_tables, record_interval: unflushed_rows::UPDATE_INTERVAL }
    }
}

/// Returns the handle that closes an opened database.
pub fn closing_handle(data: &Path, database: &Database) -> OpenDatabase {
    OpenDatabase::new(database, &folder_in(data))
}

/// True if the folder may hold a database with data.
pub fn may_hold_data(data: &Path) -> bool {
    let folder = folder_in(data);
    (folder.exists() && !holds_no_data(&folder).unwrap_or_default()) || has_tables(&data.join(UNFINISHED))
}

/// Data folder, locked by this process during its start. The lock keeps two processes that start at once from creating two
/// master keys.
pub struct LockedDataFolder {
    data: PathBuf,
    /// `None` on systems where folders cannot be locked.
    _lock: Option<File>,
    mark: Arc<DurableMark>,
}

impl LockedDataFolder {
    /// Locks the folder. Fails if its database is missing, unless the loss is accepted.
    pub fn lock(data: &Path, accepts_loss: bool) -> anyhow::Result<Self> {
        let file = DurableMark::path_in(data);
        // Checked first, because files without permissions would look lost.
        permissions::check(data, &folder_in(data), [file.clone(), unflushed_rows::path_in(data)])?;
        let lock = lock(data)?;
        let mark = DurableMark::open(data, accepts_loss).with_context(|| {
            format!(
                "{} cannot be read, so the data cannot be checked for lost writes: put the file back, or start with \
                 --accept-loss to use the data as it is",
                file.display()
            )
        })?;
        let locked_folder = Self { data: data.to_owned(), _lock: lock, mark: Arc::new(mark) };
        locked_folder.check_database_exists()?;
        Ok(locked_folder)
    }

    fn check_database_exists(&self) -> anyhow::Result<()> {
        let folder = folder_in(&self.data);
        let Some(durable) = self.mark.last_durable().filter(|durable| !durable.is_empty()) else {
            return Ok(());
        };
        // A finished `db.new` only lacks its rename, which opening makes up for.
        if is_finished(&folder) || is_finished(&self.data.join(UNFINISHED)) {
            return Ok(());
        }
        if may_hold_rows(&folder).unwrap_or_default() {
            return Err(missing_marker_error(&folder));
        }
        let loss = format!("{} is missing, and with it {}", folder.display(), describe_durable(durable));
        if !self.mark.accepts_loss() {
            bail!(
                "{loss}: put it or a backup back, or start with --accept-loss to begin with an empty database"
            );
        }
        tracing::warn!("accepted as lost: {loss}");
        Ok(())
    }

    /// Opens the database, creating it if it does not exist. Returns it with the mark of its durable writes.
    pub fn open_database(self, settings: DatabaseSettings) -> anyhow::Result<(Database, Arc<DurableMark>)> {
        let (folder, unfinished) = (folder_in(&self.data), self.data.join(UNFINISHED));
        if !is_finished(&folder) {
            create(&self.data, &folder, &unfinished, settings)?;
        }
        // It may hold rows of another installation, so it is not removed.
        if unfinished.exists() {
            let (ignored_folder, used_folder) = (unfinished.display(), folder.display());
            tracing::warn!(
                "{ignored_folder} is ignored because {used_folder} exists: remove it if it is not needed"
            );
        }
        if has_lost_tables(&folder) {
            bail!(
                "{} lacks the list of its tables, so none of its rows can be found: put a backup in its place, \
                 or move it away to begin with an empty database",
                folder.display()
            );
        }
        let open_elsewhere =
            || anyhow::anyhow!("{} is open in {}", folder.display(), describe_other_process());
        let check_result = {
            // No other process may write to the journals while they are checked.
            let path = folder.join(LOCK);
            let lock = File::options().create(true).append(true).open(&path);
            let lock = lock.with_context(|| format!("{} cannot be opened", path.display()))?;
            if !is_free(&lock) {
                return Err(open_elsewhere());
            }
            self.check(&folder)?
        };
        let started_at = Instant::now();
        tracing::info!(folder = %folder.display(), tables = check_result.names.len(), "opening the database");
        let database = match open(&folder, settings) {
            Ok(database) => database,
            // Another process opened the database after the check.
            Err(fjall::Error::Locked) => return Err(open_elsewhere()),
            Err(error) => return Err(describe_open_error(&folder, &check_result.names, error)),
        };
        tracing::info!(folder = %folder.display(), took_ms = started_at.elapsed().as_millis(), "the database is open");
        let FolderCheck { accepted, versions, scan, .. } = check_result;
        let watch = unflushed_rows::WatcherHandle::start(
            &database,
            &self.data,
            settings.record_interval,
            accepted,
            &versions,
            &scan,
        )?;
        self.mark.keep_until_drop(Box::new(watch));
        // A failure is no reason against the start: the data itself is complete.
        if !database.keyspace_exists(HAS_MARKS)
            && let Err(error) = self.create_marks_table(&database)
        {
            tracing::warn!(
                error = format!("{error:#}"),
                "a later start will not notice if the mark is removed"
            );
        }
        Ok((database, self.mark))
    }

    /// Creates the table that records that the data must have a mark.
    fn create_marks_table(&self, database: &Database) -> anyhow::Result<()> {
        if self.mark.last_durable().is_none() {
            // A count of 0 promises no durable write. The first write of a mark is synced in any case.
            let mark_result = self.mark.record_store_sync(0);
            mark_result.with_context(|| format!("{} cannot be written", self.mark_file().display()))?;
        }
        database.keyspace(HAS_MARKS, fjall::KeyspaceCreateOptions::default)?;
        Ok(())
    }

    fn mark_file(&self) -> PathBuf {
        DurableMark::path_in(&self.data)
    }

    /// Describes a lost mark: without it, other losses cannot be detected.
    fn describe_lost_mark(&self, folder: &Path, names: &tables::Names) -> Option<String> {
        let has_marks = names.values().any(|name| name == HAS_MARKS);
        (has_marks && self.mark.last_durable().is_none()).then(|| {
            format!(
                "{} is missing or empty, so {} cannot be checked for lost writes",
                self.mark_file().display(),
                folder.display()
            )
        })
    }

    /// Returns a warning if the data was written by a version without marks.
    fn warn_of_missing_mark(&self, folder: &Path, names: &tables::Names) -> Option<String> {
        (self.mark.last_durable().is_none() && has_rows(folder) && self.describe_lost_mark(folder, names).is_none()).then(|| {
            format!(
                "{} is missing or empty, as before the first start of a version that keeps it: {} is opened without a check \
                 for lost writes",
                self.mark_file().display(),
                folder.display()
            )
        })
    }

    /// Fails if tables or journals lack durable writes: opening the database would remove or truncate their remains. Truncates bytes
    /// that a crash left after the last complete batch.
    fn check(&self, folder: &Path) -> anyhow::Result<FolderCheck> {
        let describe_error = || format!("the journals of {} cannot be read", folder.display());
        let mut names = tables::read_names(folder)?;
        if let Some(warning) = self.warn_of_missing_mark(folder, &names) {
            tracing::warn!("{warning}");
        }
        // No loss that could be accepted: the database cannot be opened with such a table.
        tables::check_manifests(folder, &names)?;
        let journals::Journals { numbered: journals, misnamed } =
            journals::list_journals(folder).with_context(describe_error)?;
        // Refused here by name, because the database would not open the folder either.
        if let Some(file) = misnamed.first() {
            bail!(
                "{} is not a journal of this database, because its name is not a number: move it out of the folder",
                file.display()
            );
        }
        let record = unflushed_rows::Record::read(&self.data)
            .with_context(|| format!("{} cannot be read", unflushed_rows::path_in(&self.data).display()))?;
        let expected_rows = record.as_ref().map(|record| record.expected_rows(folder)).unwrap_or_default();
        let bytes: u64 =
            journals.iter().filter_map(|(_, path)| fs::metadata(path).ok()).map(|file| file.len()).sum();
        // Logged first, because large journals take a while to read.
        tracing::info!(folder = %folder.display(), journals = journals.len(), mib = bytes >> 20, "reading the journals");
        let scan = journals::scan(&journals, self.mark.last_durable(), expected_rows)
            .with_context(describe_error)?;
        let mut accepted_losses = record.clone().unwrap_or_default();
        let mut losses: Vec<_> = self.describe_lost_mark(folder, &names).into_iter().collect();
        let missing_tables = tables::find_missing_tables(folder, &names);
        losses.extend(missing_tables.iter().map(|(_, name, path)| {
            format!("the table {name} is lost, because {} is missing", path.display())
        }));
        let missing_ids: Vec<u64> = missing_tables.into_iter().map(|(table, ..)| table).collect();
        losses.extend(describe_lost_journals(folder, &journals, &scan, &mut accepted_losses));
        let has_marks = (self.mark.last_durable().is_some(), record.is_some());
        losses.extend(describe_lost_rows(folder, &names, &journals, &scan, has_marks));
        losses.extend(scan.tails.iter().filter_map(|tail| tail.damage.clone()));
        if !losses.is_empty() && !self.mark.accepts_loss() {
            bail!(
                "{}. Put back the data folder as it was or a backup, or start with --accept-loss to continue without \
                 the missing data",
                losses.join("; ")
            );
        }
        for loss in losses {
            tracing::warn!("accepted as lost: {loss}");
        }
        // The remains are moved away first: the database would remove the folder of a table that is not in its list.
        for table in missing_ids {
            self.keep_remains(folder, table)?;
            tables::remove_from_list(folder, table)?;
            names.remove(&table);
        }
        for tail in &scan.tails {
            self.truncate(tail).with_context(|| format!("{} cannot be cut off", tail.file.display()))?;
        }
        // Read before the database opens, because opening may flush tables.
        let versions = unflushed_rows::Versions::read(folder, &names);
        Ok(FolderCheck { names, accepted: accepted_losses, versions, scan })
    }

    /// Moves the remains of a table that cannot be opened out of the database folder, where the database would remove them.
    fn keep_remains(&self, folder: &Path, table: u64) -> anyhow::Result<()> {
        let (remains, target) =
            (tables::folder_of(folder, table), self.data.join(format!("damaged-table-{table}")));
        if !remains.exists() {
            return Ok(());
        }
        fs::rename(&remains, &target)
            .with_context(|| format!("{} cannot be moved to {}", remains.display(), target.display()))?;
        tracing::warn!(folder = %target.display(), "the remains of a lost table are kept");
        Ok(())
    }

    /// Truncates a journal after its last complete batch. A copy is kept if durable writes were lost.
    fn truncate(&self, tail: &journals::UnreadableTail) -> anyhow::Result<()> {
        if tail.is_loss {
            let name = tail.file.file_name().unwrap_or_default().to_string_lossy();
            let copy = self.data.join(format!("damaged-{name}"));
            // The bytes after the damage may still be recovered by hand.
            fs::copy(&tail.file, &copy).with_context(|| format!("{} cannot be written", copy.display()))?;
            tracing::warn!(copy = %copy.display(), "the damaged journal is kept as a copy");
        }
        let file = File::options().write(true).open(&tail.file)?;
        file.set_len(tail.offset)?;
        file.sync_all()?;
        Ok(())
    }
}

/// Results of the check that precedes opening the database.
struct FolderCheck {
    names: tables::Names,
    /// Accepted losses, for the new record of unflushed rows.
    accepted: unflushed_rows::Record,
    versions: unflushed_rows::Versions,
    scan: journals::Scan,
}

/// Describes journals that are missing between others or were emptied, and adds them to the accepted losses.
fn describe_lost_journals(
    folder: &Path,
    journals: &[(u64, PathBuf)],
    scan: &journals::Scan,
    accepted_losses: &mut unflushed_rows::Record,
) -> Vec<String> {
    let mut losses = Vec::new();
    if journals.is_empty() {
        losses.push(format!(
            "{} has no journal (*.jnl): every database has one, so the most recent writes are lost",
            folder.display()
        ));
    }
    for pair in journals.windows(2) {
        let [(previous, _), (following, path)] = pair else { continue };
        let missing_numbers: Vec<_> = (previous + 1..*following).collect();
        if let (Some(first), Some(last)) = (missing_numbers.first(), missing_numbers.last())
            && !missing_numbers.iter().all(|number| accepted_losses.accepted_journals.contains(number))
        {
            losses.push(format!("the journals {first} to {last} before {} are missing", path.display()));
            accepted_losses.accepted_journals.extend(missing_numbers);
        }
    }
    for (number, path) in &scan.emptied_journals {
        if accepted_losses.accepted_journals.insert(*number) {
            losses
                .push(format!("{} was emptied: it must be full, because a later one exists", path.display()));
        }
    }
    for tail in scan.tails.iter().filter(|tail| tail.damage.is_some() && tail.offset == 0) {
        // Truncation leaves the journal empty. Unless it is accepted, the next start would report it as emptied.
        let journal = journals.iter().find(|(_, path)| *path == tail.file);
        accepted_losses.accepted_journals.extend(journal.map(|(number, _)| *number));
    }
    let oldest = journals.first().map_or(u64::MAX, |(number, _)| *number);
    // Gaps are only looked for between existing journals, so older numbers are dropped.
    accepted_losses.accepted_journals.retain(|number| *number >= oldest);
    losses
}

/// Describes rows that were only in a journal and are in none now.
fn describe_lost_rows(
    folder: &Path,
    names: &tables::Names,
    journals: &[(u64, PathBuf)],
    scan: &journals::Scan,
    (has_mark, has_record): (bool, bool),
) -> Option<String> {
    let (_, oldest) = journals.first()?;
    // Log and store report losses at the end themselves: the mark gives them the offsets.
    let is_before_the_end =
        |sequence: u64| !has_mark || scan.last_sequence.is_none_or(|last| sequence < last);
    let missing_rows = scan.missing_rows.iter().filter(|(_, sequence)| is_before_the_end(*sequence));
    let mut tables: Vec<u64> = missing_rows.map(|(table, _)| *table).collect();
    if !has_record {
        // Counters begin with 1. A higher first counter means that earlier ones were in a lost journal, unless a file of the table has them.
        let later_counters = scan.first_counters.values().filter(|(_, count)| *count > 1);
        tables.extend(
            later_counters.map(|(table, _)| *table).filter(|table| !tables::has_files(folder, *table)),
        );
    }
    if tables.is_empty() {
        return None;
    }
    let table_names =
        tables.iter().map(|table| names.get(table).cloned().unwrap_or_else(|| table.to_string()));
    Some(format!(
        "a journal before {} is missing, truncated or emptied, so rows of {} are lost",
        oldest.display(),
        table_names.collect::<Vec<_>>().join(", ")
    ))
}

fn describe_open_error(folder: &Path, names: &tables::Names, error: fjall::Error) -> anyhow::Error {
    let problem = format!("{} cannot be opened", folder.display());
    let unreadable_tables = tables::describe_unreadable_tables(folder, names);
    if unreadable_tables.is_empty() {
        return anyhow::Error::new(error).context(format!("{problem}: put back a backup of the data folder"));
    }
    anyhow::anyhow!("{problem}: {}. Put back a backup of the data folder", unreadable_tables.join("; "))
}

fn missing_marker_error(folder: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} cannot be opened as a database: it is not empty, but its file `{MARKER}` is missing or cut off; \
         put that file back from a backup, replace the folder by a backup, or move it away to begin \
         with an empty database",
        folder.display()
    )
}

/// Returns true if the lock file can be locked. Retries as the database does, because an ending process may still hold the lock.
#[expect(clippy::disallowed_methods, reason = "it runs on a thread that may block")]
fn is_free(lock: &File) -> bool {
    const TRIES: u32 = 3;
    for _ in 1..TRIES {
        // Other errors, as of a file system without locks, do not mean that the lock is held.
        if !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    !matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

/// Describes all durable writes.
fn describe_durable(durable: &DurableState) -> String {
    let partitions = durable.ends.iter().flat_map(|(topic, ends)| {
        ends.iter().map(move |(partition, end)| format!(", {topic}[{partition}] offsets 0 to {}", end - 1))
    });
    format!("all {} writes of the store{}", durable.store_syncs, partitions.collect::<String>())
}

fn describe_other_process() -> &'static str {
    "another process: one process opens embedded data, every command reaches it through the admin API of that process"
}

fn open(folder: &Path, settings: DatabaseSettings) -> fjall::Result<Database> {
    if is_finished(folder) {
        // A backup may have left out the lock file.
        File::options().create(true).append(true).open(folder.join(LOCK))?;
    }
    // A new folder does not exist yet; its parent is on the same disk.
    let existing_folder = if folder.exists() { folder } else { folder.parent().unwrap_or(folder) };
    let total = DiskSpace::of(existing_folder).space().map_or(u64::MAX, |space| space.total);
    Database::builder(folder)
        .max_cached_files(Some(settings.max_open_tables))
        // On a small disk, journals must not fill most of it before they are flushed.
        .max_journaling_size((total / 8).clamp(MIN_JOURNAL_BYTES, MAX_JOURNAL_BYTES))
        .open()
}

/// Creates the database in a temporary folder and renames it: a partly created one, as on a full disk, could not be opened.
fn create(data: &Path, folder: &Path, unfinished: &Path, settings: DatabaseSettings) -> anyhow::Result<()> {
    let describe_failure = || format!("{} cannot be created", folder.display());
    if fs::symlink_metadata(folder).is_ok() {
        return create_in_place(folder, unfinished, settings).with_context(describe_failure);
    }
    let creation = (|| {
        // A finished database from an earlier start is only renamed.
        if !is_finished(unfinished) {
            clear(unfinished)?;
            // Closing the database syncs it to disk.
            drop(
                open(unfinished, settings)
                    .with_context(|| format!("{} cannot be created", unfinished.display()))?,
            );
        }
        fs::rename(unfinished, folder)?;
        #[cfg(unix)]
        // A loss of power could otherwise undo the rename after rows were acknowledged.
        File::open(data)?.sync_all()?;
        anyhow::Ok(())
    })();
    creation
        .inspect_err(|_| {
            // The disk may be full, so the space is freed.
            let _left_for_the_next_start = clear(unfinished).and_then(|()| Ok(fs::remove_dir(unfinished)?));
        })
        .with_context(describe_failure)
}

/// Creates the database in an existing folder, which may be a link or a mount point and cannot be replaced.
fn create_in_place(folder: &Path, unfinished: &Path, settings: DatabaseSettings) -> anyhow::Result<()> {
    if may_hold_rows(unfinished).with_context(|| format!("{} cannot be read", unfinished.display()))? {
        bail!(
            "{} may be a complete database that was not renamed yet: give it that name, or move it away to begin with \
             an empty database",
            unfinished.display()
        );
    }
    // The disk that the link leads to may not be mounted yet.
    if !folder.exists() {
        bail!(
            "the link has no target: put the target back, or remove the link to begin with an empty database"
        );
    }
    // Another data folder may link to the same database folder.
    let _lock = lock(folder)?;
    if !is_finished(folder) {
        clear(folder)?;
        drop(open(folder, settings)?);
    }
    Ok(())
}

/// Removes the remains of a database without data, except the folder itself.
fn clear(folder: &Path) -> anyhow::Result<()> {
    if !folder.exists() || is_finished(folder) {
        return Ok(());
    }
    if !holds_no_data(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        return Err(missing_marker_error(folder));
    }
    let remove_files = || {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            // Other folders stay, such as `lost+found` on a disk of its own.
            if path.is_file() {
                tracing::warn!(file = %path.display(), "removing a file of an unfinished database without data");
                fs::remove_file(path)?;
            }
        }
        match fs::remove_dir_all(folder.join(TABLES)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    };
    remove_files().with_context(|| format!("{} cannot be cleared", folder.display()))
}

/// Locks the folder against other processes that would create a database. Returns `None` where folders cannot be locked.
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
/// a journal of zeros, folders of empty tables.
fn holds_no_data(folder: &Path) -> io::Result<bool> {
    if is_finished(folder) {
        return Ok(false);
    }
    let marker = folder.join(MARKER);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                folders.push(path);
            } else if !metadata.is_file() || !(path == marker || is_table_manifest(&path) || is_zero(&path)?)
            {
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
mod tests;
