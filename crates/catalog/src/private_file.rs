//! Writes files that only their owner may read.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// Writes a file atomically: after a crash, a reader finds either the old content or the new one.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary_path = path.with_extension("new");
    // Left by a crashed call. `create_new` below would refuse it, and its mode is not known.
    match fs::remove_file(&temporary_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary_path)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary_path, path)?;
    // The folder is synced too: otherwise a crash could undo the rename.
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}
