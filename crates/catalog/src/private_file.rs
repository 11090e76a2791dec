//! Writes files that only their owner may read.
//!
//! It does not know what is in them.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// A reader sees the old file or the new one, whole, also after a crash.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}
