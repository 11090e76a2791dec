//! The folder of the embedded database: made whole or not at all, and told from what only looks like one.
//!
//! It does not know what is kept in the database.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use fjall::Database;

/// Inside the data folder.
const FOLDER: &str = "db";
/// The same while it is made.
const UNFINISHED: &str = "db.new";
/// Inside it, a folder for each table.
const TABLES: &str = "keyspaces";
/// The first of these.
const LIST_OF_TABLES: &str = "0";
/// Empty; locked while it is open.
const LOCK: &str = "lock";
/// File that the database writes into a new folder before it takes a row, and its length.
const MARKER: &str = "version";
const MARKER_BYTES: u64 = 4;

pub(crate) fn folder_in(data: &Path) -> PathBuf {
    data.join(FOLDER)
}

/// True if the folder may hold a database with data.
pub(crate) fn is_in(data: &Path) -> bool {
    let folder = folder_in(data);
    (folder.exists() && !is_husk(&folder).unwrap_or_default()) || has_tables(&data.join(UNFINISHED))
}

/// The data folder while a process makes what it lacks. Of two that start at once, one is refused before it makes
/// anything: a key that another one made over it would open nothing.
pub(crate) struct Starting {
    data: PathBuf,
    /// None where folders cannot be locked.
    _lock: Option<File>,
}

impl Starting {
    pub(crate) fn on(data: &Path) -> anyhow::Result<Self> {
        Ok(Self { data: data.to_owned(), _lock: lock(data)? })
    }

    /// Opens the database, making it if there is none.
    pub(crate) fn open_database(self) -> anyhow::Result<Database> {
        let (folder, unfinished) = (folder_in(&self.data), self.data.join(UNFINISHED));
        if !is_finished(&folder) {
            make(&self.data, &folder, &unfinished)?;
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
        match open(&folder) {
            Ok(database) => Ok(database),
            Err(fjall::Error::Locked) => bail!("{} is open in {}", folder.display(), another()),
            Err(error) => Err(error).with_context(|| format!("{} cannot be opened", folder.display())),
        }
    }
}

fn another() -> &'static str {
    "another process: one process opens embedded data, every command reaches it through the admin API of that process"
}

fn open(folder: &Path) -> fjall::Result<Database> {
    if is_finished(folder) {
        // A backup may have left it out.
        File::options().create(true).append(true).open(folder.join(LOCK))?;
    }
    Database::builder(folder).max_cached_files(Some(crate::open_files::tables())).open()
}

/// Creates the database in a temporary folder: one that is half made, as on a full disk, could not be opened by
/// anybody.
fn make(data: &Path, folder: &Path, unfinished: &Path) -> anyhow::Result<()> {
    let cannot = || format!("{} cannot be made", folder.display());
    if fs::symlink_metadata(folder).is_ok() {
        return make_in_place(folder, unfinished).with_context(cannot);
    }
    let made = (|| {
        // A whole one lacked its name only.
        if !is_finished(unfinished) {
            clear(unfinished)?;
            // What it holds is on the disk when it is closed.
            drop(open(unfinished).with_context(|| format!("{} cannot be made", unfinished.display()))?);
        }
        fs::rename(unfinished, folder)?;
        #[cfg(unix)]
        File::open(data)?.sync_all()?;
        anyhow::Ok(())
    })();
    made.inspect_err(|_| {
        // Room is what may be missing.
        let _left_for_the_next_start = clear(unfinished).and_then(|()| Ok(fs::remove_dir(unfinished)?));
    })
    .with_context(cannot)
}

/// It may be a link, or a disk of its own: what is there stays, and the database is made in it.
fn make_in_place(folder: &Path, unfinished: &Path) -> anyhow::Result<()> {
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
    // Another data folder may lead to the same.
    let _lock = lock(folder)?;
    if !is_finished(folder) {
        clear(folder)?;
        drop(open(folder)?);
    }
    Ok(())
}

/// Takes away what is left of a database that holds nothing, but for the folder itself.
fn clear(folder: &Path) -> anyhow::Result<()> {
    if !folder.exists() || is_finished(folder) {
        return Ok(());
    }
    if !is_husk(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        bail!(
            "{} is no database that can be opened, because its file `{MARKER}` is missing or cut off, and it is not \
             empty: put a backup in its place, or move it away to begin with nothing",
            folder.display()
        );
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
        Err(TryLockError::WouldBlock) => bail!("{} is being opened by {}", folder.display(), another()),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// A whole database with a table at least: one that was just made has none but the list of them.
fn has_tables(folder: &Path) -> bool {
    let Ok(tables) = fs::read_dir(folder.join(TABLES)) else { return false };
    is_finished(folder) && tables.filter_map(Result::ok).any(|table| table.file_name() != LIST_OF_TABLES)
}

/// The list is there before any table and any row is, and the folder for both before the marker; where one was removed, the
/// database opens as an empty one.
fn has_lost_tables(folder: &Path) -> bool {
    let tables = folder.join(TABLES);
    let has_list = || tables.join(LIST_OF_TABLES).join("current").exists();
    !tables.is_dir() || (!has_list() && has_rows(folder))
}

/// A table was made, or something was written down that makes one.
fn has_rows(folder: &Path) -> bool {
    has_tables(folder) || has_journal(folder)
}

/// A journal with something in it: it is made of zeros.
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
    if is_finished(folder) { Ok(has_rows(folder)) } else { Ok(!is_husk(folder)?) }
}

fn is_finished(folder: &Path) -> bool {
    fs::metadata(folder.join(MARKER)).is_ok_and(|marker| marker.len() >= MARKER_BYTES)
}

/// True if the folder holds only remains of a database that was never finished or was removed under a process: a lock,
/// a journal of zeros, folders of empty tables. Such a folder holds no data.
fn is_husk(folder: &Path) -> io::Result<bool> {
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
            } else if !found.is_file() || !(path == marker || is_of_an_empty_table(&path) || is_zero(&path)?)
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The list of a table's files, which are in a folder of their own.
fn is_of_an_empty_table(path: &Path) -> bool {
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
