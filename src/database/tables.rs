//! Tables of the database as its list names them. Opening the database removes a table without its file `current`, and
//! passes over one whose folder is gone.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use lsm_tree::{AbstractTree as _, Guard as _, SequenceNumberCounter};

use super::{LIST_OF_TABLES, TABLES};

/// File of a table that names its newest manifest, and the length of that number.
const CURRENT: &str = "current";
const CURRENT_NUMBER_BYTES: usize = 8;
/// Folder of a table with the files that hold its rows.
const FILES: &str = "tables";
/// First byte of the rows of the list that hold names. The number of the table follows.
const NAME: u8 = b'n';

/// Names of all tables by their numbers.
pub(super) type Names = BTreeMap<u64, String>;

pub(super) fn folder_of(folder: &Path, table: u64) -> PathBuf {
    folder.join(TABLES).join(table.to_string())
}

/// Reads the list of tables. A database that was never finished has none.
pub(super) fn names(folder: &Path) -> anyhow::Result<Names> {
    let list = folder.join(TABLES).join(LIST_OF_TABLES);
    if !list.join(CURRENT).exists() {
        return Ok(Names::new());
    }
    if let Some(damage) = manifest_damage(&list)? {
        bail!("{damage}: put back a backup of the data folder");
    }
    let read = || -> lsm_tree::Result<Names> {
        let tree = open(&list)?;
        let mut names = Names::new();
        for row in tree.prefix([NAME], lsm_tree::SeqNo::MAX, None) {
            let (key, name) = row.into_inner()?;
            if let Ok(number) = key[1..].try_into() {
                names.insert(u64::from_be_bytes(number), String::from_utf8_lossy(&name).into_owned());
            }
        }
        Ok(names)
    };
    read().with_context(|| {
        format!("the list of tables in {} is damaged: put back a backup of the data folder", list.display())
    })
}

fn open(table: &Path) -> lsm_tree::Result<lsm_tree::AnyTree> {
    open_with(table, SequenceNumberCounter::default())
}

/// Opens a table whose changes get their numbers from `sequence`.
fn open_with(table: &Path, sequence: SequenceNumberCounter) -> lsm_tree::Result<lsm_tree::AnyTree> {
    lsm_tree::Config::new(table, sequence, SequenceNumberCounter::default()).open()
}

/// Finds tables that are named in the list and gone. A table gets its folder and its file `current` before it gets into the
/// list, and leaves the list before they are removed.
pub(super) fn gone<'a>(folder: &Path, names: &'a Names) -> Vec<(u64, &'a str, PathBuf)> {
    let paths = names.iter().map(|(table, name)| {
        let own = folder_of(folder, *table);
        let missing = if own.exists() { own.join(CURRENT) } else { own };
        (*table, name.as_str(), missing)
    });
    paths.filter(|(_, _, missing)| !missing.exists()).collect()
}

/// Takes a table that is gone out of the list. The database would give its rows in journals to the table that is made anew under
/// its name, and could not tell the rows of the two apart.
pub(super) fn forget(folder: &Path, table: u64) -> anyhow::Result<()> {
    let list = folder.join(TABLES).join(LIST_OF_TABLES);
    let forget = || -> lsm_tree::Result<()> {
        let sequence = SequenceNumberCounter::default();
        let tree = open_with(&list, sequence.clone())?;
        // Above the row that it hides.
        sequence.fetch_max(tree.get_highest_seqno().map_or(0, |last| last + 1));
        let mut change = tree.ingestion()?;
        change.write_tombstone([&[NAME][..], &table.to_be_bytes()].concat())?;
        change.finish()
    };
    forget().with_context(|| format!("the list of tables in {} cannot be written", list.display()))
}

/// Fails if a table cannot be opened because of its manifest.
pub(super) fn check_manifests(folder: &Path, names: &Names) -> anyhow::Result<()> {
    for (table, name) in names {
        let own = folder_of(folder, *table);
        if own.join(CURRENT).exists()
            && let Some(damage) = manifest_damage(&own)?
        {
            bail!(
                "the table {name} cannot be opened, because {damage}: put back a backup of the data folder"
            );
        }
    }
    Ok(())
}

/// Describes what is wrong with `current` or with the manifest that it names.
fn manifest_damage(table: &Path) -> anyhow::Result<Option<String>> {
    let current = table.join(CURRENT);
    let content = fs::read(&current).with_context(|| format!("{} cannot be read", current.display()))?;
    let Some(number) = content.first_chunk::<CURRENT_NUMBER_BYTES>() else {
        return Ok(Some(format!("{} is cut off", current.display())));
    };
    let manifest = table.join(format!("v{}", u64::from_le_bytes(*number)));
    match fs::metadata(&manifest) {
        Ok(found) if found.len() > 0 => Ok(None),
        Ok(_) => Ok(Some(format!("{} is empty", manifest.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Some(format!("{} is missing, which {} names", manifest.display(), current.display())))
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", manifest.display())),
    }
}

/// Names the tables that cannot be opened, after the database could not be.
pub(super) fn unreadable(folder: &Path, names: &Names) -> Vec<String> {
    let tables = names.iter().map(|(table, name)| (folder_of(folder, *table), name));
    let opened = tables.filter_map(|(own, name)| {
        let error = open(&own).err()?;
        let damaged =
            files(&own).into_iter().find_map(|file| check_file(&file).err().map(|error| (file, error)));
        Some(match (foreign_file(&own), damaged) {
            (Some(foreign), _) => format!(
                "the table {name} in {} cannot be opened, because {} is no file of it",
                own.display(),
                foreign.display()
            ),
            (None, Some((file, damage))) => describe_damage(name, &file, &damage),
            (None, None) => {
                format!("the table {name} in {} has a missing or damaged file ({error})", own.display())
            }
        })
    });
    opened.collect()
}

/// Names the files of tables in which rows cannot be read. It reads all rows, so it is for an error that was met.
pub(super) fn damaged_files(database: &fjall::Database) -> Vec<String> {
    let mut damaged = Vec::new();
    for name in database.list_keyspace_names() {
        let Ok(table) = database.keyspace(&name, fjall::KeyspaceCreateOptions::default) else { continue };
        for file in table.tree.current_version().iter_tables() {
            let path = table.path().join(FILES).join(file.id().to_string());
            if let Err(damage) = check_file(&path) {
                damaged.push(describe_damage(&name, &path, &damage));
            }
        }
    }
    damaged
}

fn describe_damage(table: &str, file: &Path, damage: &lsm_tree::Error) -> String {
    let what = match damage {
        lsm_tree::Error::Io(error) => format!("it cannot be read: {error}"),
        _ => "its bytes are not those that were written".to_owned(),
    };
    format!("the file {} of the table {table} is damaged: {what}", file.display())
}

/// Reads all rows of a file.
fn check_file(file: &Path) -> lsm_tree::Result<()> {
    // Unused: the rows are read past the cache, and the checksum of the whole file is known to its manifest only.
    let (cache, checksum) =
        (Arc::new(lsm_tree::Cache::with_capacity_bytes(1 << 20)), lsm_tree::Checksum::from_raw(0));
    let table = lsm_tree::Table::recover(file.to_owned(), checksum, 0, 0, cache, None, true, true)?;
    table.scan()?.try_for_each(|row| row.map(drop))
}

/// Finds the files of a table that hold its rows.
fn files(table: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(table.join(FILES)).into_iter().flatten().filter_map(Result::ok);
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort_unstable();
    files
}

/// Finds a file among those of a table that is not named as one.
fn foreign_file(table: &Path) -> Option<PathBuf> {
    files(table).into_iter().find(|file| {
        file.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.parse::<u64>().is_err())
    })
}

/// True if the table has a file with rows.
pub(super) fn has_files(folder: &Path, table: u64) -> bool {
    !files(&folder_of(folder, table)).is_empty()
}

/// Returns what tells versions of a table apart: each flush and each compaction gives it a new one.
pub(super) fn version(table: &Path) -> Option<String> {
    let content = fs::read(table.join(CURRENT)).ok()?;
    (content.len() > CURRENT_NUMBER_BYTES).then(|| tidegate_schemas::hex(&content))
}
