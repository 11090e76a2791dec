//! Checks the tables that the database lists: opening the database removes a table that lacks its file `current`, and skips
//! one that lacks its folder.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use lsm_tree::{AbstractTree as _, Guard as _, SequenceNumberCounter};

use crate::layout::{LIST_OF_TABLES, TABLES};

/// File of a table that names its newest manifest, and the length of that number.
const CURRENT: &str = "current";
const CURRENT_NUMBER_BYTES: usize = 8;
/// Folder of a table with the files that hold its rows.
const FILES: &str = "tables";
/// First byte of the rows in the list that hold names. The number of the table follows.
const NAME: u8 = b'n';

/// Names of all tables by their numbers.
pub(super) type Names = BTreeMap<u64, String>;

pub(super) fn folder_of(folder: &Path, table: u64) -> PathBuf {
    folder.join(TABLES).join(table.to_string())
}

/// Reads the list of tables. A database that was never finished has an empty one.
pub(super) fn read_names(folder: &Path) -> anyhow::Result<Names> {
    let list = folder.join(TABLES).join(LIST_OF_TABLES);
    if !list.join(CURRENT).exists() {
        return Ok(Names::new());
    }
    // Without a readable list, the database would open as an empty one.
    if let Some(damage) = manifest_damage(&list)? {
        bail!("{damage}: put back a backup of the data folder");
    }
    let read_list = || -> lsm_tree::Result<Names> {
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
    read_list().with_context(|| {
        format!("the list of tables in {} is damaged: put back a backup of the data folder", list.display())
    })
}

fn open(table: &Path) -> lsm_tree::Result<lsm_tree::AnyTree> {
    open_with(table, SequenceNumberCounter::default())
}

/// Opens a table; `sequence` numbers its changes.
fn open_with(table: &Path, sequence: SequenceNumberCounter) -> lsm_tree::Result<lsm_tree::AnyTree> {
    lsm_tree::Config::new(table, sequence, SequenceNumberCounter::default()).open()
}

/// Returns the listed tables that lack their folder or their file `current`, with the missing path. A table gets both before it
/// enters the list, and leaves the list before they are removed.
pub(super) fn find_missing_tables<'a>(folder: &Path, names: &'a Names) -> Vec<(u64, &'a str, PathBuf)> {
    let paths = names.iter().map(|(table, name)| {
        let table_folder = folder_of(folder, *table);
        let required_path = if table_folder.exists() { table_folder.join(CURRENT) } else { table_folder };
        (*table, name.as_str(), required_path)
    });
    paths.filter(|(_, _, path)| !path.exists()).collect()
}

/// Removes a lost table from the list. Otherwise the database would give the journal rows of the lost table to the next table of that
/// name, and could not tell the rows of the two apart.
pub(super) fn remove_from_list(folder: &Path, table: u64) -> anyhow::Result<()> {
    let list = folder.join(TABLES).join(LIST_OF_TABLES);
    let write_tombstone = || -> lsm_tree::Result<()> {
        let sequence = SequenceNumberCounter::default();
        let tree = open_with(&list, sequence.clone())?;
        // The tombstone needs a higher sequence number than the row that it hides.
        sequence.fetch_max(tree.get_highest_seqno().map_or(0, |last| last + 1));
        let mut change = tree.ingestion()?;
        change.write_tombstone([&[NAME][..], &table.to_be_bytes()].concat())?;
        change.finish()
    };
    write_tombstone().with_context(|| format!("the list of tables in {} cannot be written", list.display()))
}

/// Fails if a table cannot be opened because of its manifest.
pub(super) fn check_manifests(folder: &Path, names: &Names) -> anyhow::Result<()> {
    for (table, name) in names {
        let table_folder = folder_of(folder, *table);
        // A table without `current` is reported as lost elsewhere.
        if table_folder.join(CURRENT).exists()
            && let Some(damage) = manifest_damage(&table_folder)?
        {
            bail!(
                "the table {name} cannot be opened, because {damage}: put back a backup of the data folder"
            );
        }
    }
    Ok(())
}

/// Describes damage of `current` or of the manifest that it names.
fn manifest_damage(table: &Path) -> anyhow::Result<Option<String>> {
    let current = table.join(CURRENT);
    let content = fs::read(&current).with_context(|| format!("{} cannot be read", current.display()))?;
    let Some(number) = content.first_chunk::<CURRENT_NUMBER_BYTES>() else {
        return Ok(Some(format!("{} is cut off", current.display())));
    };
    let manifest = table.join(format!("v{}", u64::from_le_bytes(*number)));
    match fs::metadata(&manifest) {
        Ok(metadata) if metadata.len() > 0 => Ok(None),
        Ok(_) => Ok(Some(format!("{} is empty", manifest.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Some(format!("{} is missing, which {} names", manifest.display(), current.display())))
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", manifest.display())),
    }
}

/// Describes the tables that cannot be opened, once the database could not be opened.
pub(super) fn describe_unreadable_tables(folder: &Path, names: &Names) -> Vec<String> {
    let tables = names.iter().map(|(table, name)| (folder_of(folder, *table), name));
    let descriptions = tables.filter_map(|(table_folder, name)| {
        let error = open(&table_folder).err()?;
        let damaged_file = list_files(&table_folder)
            .into_iter()
            .find_map(|file| check_file(&file).err().map(|error| (file, error)));
        Some(match (foreign_file(&table_folder), damaged_file) {
            (Some(foreign), _) => format!(
                "the table {name} in {} cannot be opened, because {} is not one of its files",
                table_folder.display(),
                foreign.display()
            ),
            (None, Some((file, damage))) => describe_damage(name, &file, &damage),
            (None, None) => {
                format!(
                    "the table {name} in {} has a missing or damaged file ({error})",
                    table_folder.display()
                )
            }
        })
    });
    descriptions.collect()
}

/// Describes the files of tables that have unreadable rows. Reads all rows, so it is called only after an error.
pub(super) fn describe_damaged_files(database: &fjall::Database) -> Vec<String> {
    let mut descriptions = Vec::new();
    for name in database.list_keyspace_names() {
        let Ok(table) = database.keyspace(&name, fjall::KeyspaceCreateOptions::default) else { continue };
        for file in table.tree.current_version().iter_tables() {
            let path = table.path().join(FILES).join(file.id().to_string());
            if let Err(damage) = check_file(&path) {
                descriptions.push(describe_damage(&name, &path, &damage));
            }
        }
    }
    descriptions
}

fn describe_damage(table: &str, file: &Path, damage: &lsm_tree::Error) -> String {
    let problem = match damage {
        lsm_tree::Error::Io(error) => format!("it cannot be read: {error}"),
        _ => "its bytes differ from those that were written".to_owned(),
    };
    format!("the file {} of the table {table} is damaged: {problem}", file.display())
}

/// Reads all rows of a file.
fn check_file(file: &Path) -> lsm_tree::Result<()> {
    // Neither is used: rows are read past the cache, and only the manifest knows the checksum of the whole file.
    let (cache, checksum) =
        (Arc::new(lsm_tree::Cache::with_capacity_bytes(1 << 20)), lsm_tree::Checksum::from_raw(0));
    let table = lsm_tree::Table::recover(file.to_owned(), checksum, 0, 0, cache, None, true, true)?;
    table.scan()?.try_for_each(|row| row.map(drop))
}

/// Finds the files of a table that hold its rows.
fn list_files(table: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(table.join(FILES)).into_iter().flatten().filter_map(Result::ok);
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort_unstable();
    files
}

/// Returns a file in the folder of a table's files that has no number as its name.
fn foreign_file(table: &Path) -> Option<PathBuf> {
    list_files(table).into_iter().find(|file| {
        file.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.parse::<u64>().is_err())
    })
}

/// True if the table has a file with rows.
pub(super) fn has_files(folder: &Path, table: u64) -> bool {
    !list_files(&folder_of(folder, table)).is_empty()
}

/// Returns an identifier of the table's version, which each flush and each compaction changes.
pub(super) fn read_version(table: &Path) -> Option<String> {
    let content = fs::read(table.join(CURRENT)).ok()?;
    (content.len() > CURRENT_NUMBER_BYTES).then(|| tidegate_schemas::hex(&content))
}
