//! Checks that this process may read and write the files of the database, so that missing permissions are not reported as lost data.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::bail;
use rustix::fs::{Access, access};

use crate::layout::{LOCK, MARKER, TABLES};

/// Fails with the path of the first file or folder that this process may not use in the way that the database needs.
pub(super) fn check(data: &Path, database: &Path, marks: [PathBuf; 2]) -> anyhow::Result<()> {
    check_folder(data)?;
    for mark in marks {
        check_file(&mark, Access::READ_OK | Access::WRITE_OK)?;
    }
    for file in check_folder(database)? {
        if file.extension().is_some_and(|kind| kind == "jnl") {
            check_file(&file, Access::READ_OK | Access::WRITE_OK)?;
        }
    }
    check_file(&database.join(MARKER), Access::READ_OK)?;
    check_file(&database.join(LOCK), Access::READ_OK | Access::WRITE_OK)?;
    let tables = check_folder(&database.join(TABLES))?;
    for table in tables.iter().filter(|table| table.is_dir()) {
        for file in check_folder(table)? {
            if file.is_dir() {
                for file in check_folder(&file)? {
                    check_file(&file, Access::READ_OK)?;
                }
            } else {
                check_file(&file, Access::READ_OK)?;
            }
        }
    }
    Ok(())
}

/// Checks a folder and returns the paths in it; an empty list if the folder is missing.
fn check_folder(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    check_file(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
    // A missing folder is a loss and no lack of permissions: the checks for lost data report it.
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
}

fn check_file(path: &Path, required_access: Access) -> anyhow::Result<()> {
    let Err(error) = access(path, required_access) else { return Ok(()) };
    let error = io::Error::from(error);
    // A missing file is a loss and no lack of permissions: the checks for lost data report it.
    if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return Ok(());
    }
    bail!(
        "{} cannot be used ({error}): the user of this process (uid {}) needs read and write access to the data folder \
         and all files in it. The data was not changed",
        path.display(),
        rustix::process::geteuid().as_raw()
    )
}
