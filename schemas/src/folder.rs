//! Detects that a data folder was removed or replaced while it is open. Writes to removed files succeed and are lost,
//! and another process can write to a new folder of the same name.

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
    /// Open handle, so that the file system cannot reuse the inode number for another folder.
    #[cfg(unix)]
    _opened: File,
}

#[cfg(unix)]
fn folder_number(metadata: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

impl Folder {
    pub fn open(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        let opened = File::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            #[cfg(unix)]
            number: folder_number(&opened.metadata()?),
            #[cfg(unix)]
            _opened: opened,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(unix)]
    /// Checks that the path still leads to the opened folder.
    pub fn is_in_place(&self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(metadata) if folder_number(&metadata) == self.number => Ok(()),
            // A path can be reused, but device and inode identify the opened folder.
            Ok(_) => Err(io::Error::other("another folder has replaced it")),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(error)
            }
            // Other errors, such as a lack of permission, do not prove that the folder is gone.
            Err(_) => Ok(()),
        }
    }

    #[cfg(not(unix))]
    pub fn is_in_place(&self) -> io::Result<()> {
        fs::metadata(&self.path).map(drop)
    }
}
