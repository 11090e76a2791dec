//! The folder that the log was opened in: whether it is still where it was.
//!
//! Files that were removed or moved go on taking everything and keep nothing, and another process may write to their
//! names.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

pub(super) struct Folder {
    path: PathBuf,
    /// As long as it is open, no other folder gets its number.
    #[cfg(unix)]
    opened: File,
}

impl Folder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            #[cfg(unix)]
            opened: File::open(path)?,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(unix)]
    pub(super) fn is_in_place(&self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt as _;
        let (found, opened) = (fs::metadata(&self.path)?, self.opened.metadata()?);
        if (found.dev(), found.ino()) == (opened.dev(), opened.ino()) {
            return Ok(());
        }
        Err(io::Error::other("another folder is in its place"))
    }

    #[cfg(not(unix))]
    pub(super) fn is_in_place(&self) -> io::Result<()> {
        fs::metadata(&self.path).map(drop)
    }
}
