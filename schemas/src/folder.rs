//! A folder that data was opened in: whether it is still where it was.
//!
//! Files that were removed or moved go on taking everything and keep nothing, and another process may write to their
//! names.

#[cfg(unix)]
use std::fs::File;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub struct Folder {
    path: PathBuf,
    #[cfg(unix)]
    number: (u64, u64),
    /// Handle that keeps the folder's number from being given to another one.
    #[cfg(unix)]
    _opened: File,
}

#[cfg(unix)]
fn number(found: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (found.dev(), found.ino())
}

impl Folder {
    pub fn open(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        let opened = File::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            #[cfg(unix)]
            number: number(&opened.metadata()?),
            #[cfg(unix)]
            _opened: opened,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(unix)]
    pub fn is_in_place(&self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(found) if number(&found) == self.number => Ok(()),
            Ok(_) => Err(io::Error::other("another folder is in its place")),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(error)
            }
            // It could not be looked at, which says nothing.
            Err(_) => Ok(()),
        }
    }

    #[cfg(not(unix))]
    pub fn is_in_place(&self) -> io::Result<()> {
        fs::metadata(&self.path).map(drop)
    }
}
