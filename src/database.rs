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
/// What the database writes last into a new folder of its own, before it takes a row.
const MARKER: &str = "version";

pub(crate) fn folder_in(data: &Path) -> PathBuf {
    data.join(FOLDER)
}

/// Whether there is one that may hold something.
pub(crate) fn is_in(data: &Path) -> bool {
    let folder = folder_in(data);
    folder.exists() && !is_husk(&folder).unwrap_or_default()
}

/// Opens the database, making it if there is none.
pub(crate) fn open_in(data: &Path) -> anyhow::Result<Database> {
    let folder = folder_in(data);
    if !is_finished(&folder) {
        make(data, &folder)?;
    }
    match open(&folder) {
        Ok(database) => Ok(database),
        Err(fjall::Error::Locked) => bail!(
            "{} is open in another process: one process opens embedded data, every command reaches it through the \
             admin API of that process",
            folder.display()
        ),
        Err(error) => Err(error).with_context(|| format!("{} cannot be opened", folder.display())),
    }
}

fn open(folder: &Path) -> fjall::Result<Database> {
    Database::builder(folder).open()
}

/// Beside its place: one that is half made, as on a full disk, could not be opened by anybody.
fn make(data: &Path, folder: &Path) -> anyhow::Result<()> {
    let _lock = lock(data)?;
    if is_finished(folder) {
        return Ok(());
    }
    let cannot = || format!("{} cannot be made", folder.display());
    if fs::symlink_metadata(folder).is_ok() {
        // It may be a link, or a disk of its own: what is there stays, and the database is made in it.
        if folder.exists() {
            clear(folder)?;
        }
        return open(folder).map(drop).with_context(cannot);
    }
    let unfinished = data.join(UNFINISHED);
    let made = (|| {
        // A whole one lacked its name only.
        if !is_finished(&unfinished) {
            remove(&unfinished)?;
            // What it holds is on the disk when it is closed.
            drop(open(&unfinished)?);
        }
        fs::rename(&unfinished, folder)?;
        #[cfg(unix)]
        File::open(data)?.sync_all()?;
        fjall::Result::Ok(())
    })();
    made.inspect_err(|_| {
        if !is_finished(&unfinished) {
            // Room is what may be missing.
            let _left_for_the_next_start = remove(&unfinished);
        }
    })
    .with_context(cannot)
}

/// Takes away what is left of a database that holds nothing, but for the folder itself.
fn clear(folder: &Path) -> anyhow::Result<()> {
    if !is_husk(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        bail!(
            "{} is no database that can be opened, because its file `{MARKER}` is missing or empty, and it is not \
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
        remove(&folder.join(TABLES))
    };
    cleared().with_context(|| format!("{} cannot be cleared", folder.display()))
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// As long as it is held, nobody else makes a database here. Where folders cannot be locked, nothing is.
fn lock(data: &Path) -> anyhow::Result<Option<File>> {
    let Ok(lock) = File::open(data) else { return Ok(None) };
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => {
            bail!("another process is making a database in {}", data.display())
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

fn is_finished(folder: &Path) -> bool {
    fs::metadata(folder.join(MARKER)).is_ok_and(|marker| marker.len() > 0)
}

/// What is left where no database was finished, or where one was removed under a process: a lock, a journal of zeros,
/// folders of empty tables. It holds nothing for certain.
fn is_husk(folder: &Path) -> io::Result<bool> {
    if is_finished(folder) {
        return Ok(false);
    }
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let found = fs::symlink_metadata(&path)?;
            if found.is_dir() {
                folders.push(path);
            } else if !found.is_file() || !(is_of_an_empty_table(&path) || is_zero(&path)?) {
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_was_never_finished_is_made_anew() {
        let data = tempfile::tempdir().unwrap();
        let (data, folder) = (data.path(), folder_in(data.path()));
        assert!(!is_in(data));
        // As a full disk left it, and as the last writes after a removal did.
        fs::create_dir_all(folder.join("keyspaces/7/tables")).unwrap();
        for (file, content) in [
            ("lock", &b""[..]),
            ("version", b""),
            ("0.jnl", &[0; 100_000]),
            ("keyspaces/7/v0", b"list"),
            ("keyspaces/7/current", b"list"),
        ] {
            fs::write(folder.join(file), content).unwrap();
        }
        fs::create_dir_all(data.join(UNFINISHED)).unwrap();
        fs::write(data.join(UNFINISHED).join("lock"), "").unwrap();
        assert!(!is_in(data));
        drop(open_in(data).unwrap());
        assert!(is_in(data));
    }

    #[test]
    fn one_that_lacks_its_name_only_gets_it_and_keeps_its_rows() {
        let data = tempfile::tempdir().unwrap();
        let table = fjall::KeyspaceCreateOptions::default;
        let database = open_in(data.path()).unwrap();
        database.keyspace("t", table).unwrap().insert("k", "v").unwrap();
        database.persist(fjall::PersistMode::SyncAll).unwrap();
        drop(database);
        fs::rename(folder_in(data.path()), data.path().join(UNFINISHED)).unwrap();
        let database = open_in(data.path()).unwrap();
        assert!(database.keyspace("t", table).unwrap().get("k").unwrap().is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_another_disk_stays_and_so_does_what_is_not_ours() {
        let (data, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = folder_in(data.path());
        std::os::unix::fs::symlink(disk.path(), &folder).unwrap();
        fs::create_dir(disk.path().join("lost+found")).unwrap();
        fs::write(disk.path().join(MARKER), "").unwrap();
        drop(open_in(data.path()).unwrap());
        assert!(fs::symlink_metadata(&folder).unwrap().is_symlink() && is_in(data.path()));
        assert!(disk.path().join("lost+found").exists() && is_finished(disk.path()));
    }

    #[test]
    fn what_may_hold_something_is_kept_and_told() {
        for file in ["0.jnl", "keyspaces/7/tables/3", "blob", "keyspaces/v1"] {
            let data = tempfile::tempdir().unwrap();
            let (data, path) = (data.path(), folder_in(data.path()).join(file));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, b"\0\0row").unwrap();
            assert!(is_in(data));
            let refused = format!("{:#}", open_in(data).err().unwrap());
            assert!(refused.contains("`version` is missing") && refused.contains("backup"), "{refused}");
            assert_eq!(fs::read(&path).unwrap(), b"\0\0row");
        }
    }

    #[test]
    fn rows_stay_and_two_do_not_open_it() {
        let data = tempfile::tempdir().unwrap();
        let database = open_in(data.path()).unwrap();
        let table = fjall::KeyspaceCreateOptions::default;
        database.keyspace("t", table).unwrap().insert("k", "v").unwrap();
        let refused = format!("{:#}", open_in(data.path()).err().unwrap());
        assert!(refused.contains("open in another process"), "{refused}");
        database.persist(fjall::PersistMode::SyncAll).unwrap();
        drop(database);
        let database = open_in(data.path()).unwrap();
        assert!(database.keyspace("t", table).unwrap().get("k").unwrap().is_some());
    }
}
