//! Output file or stream of a bundle: counts and hashes bytes, can be truncated to a mark, and is patched with the
//! bundle's id at the end. `writeback` flushes the file to disk in the background.

use std::{
    fs::{self, File},
    io::{self, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::writeback::Writeback;
use crate::error::{ConvertError, ErrorKind};

/// State of the output to which [`Output::truncate`] returns.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) bytes: u64,
    hash: Sha256,
}

/// Output of one bundle.
#[derive(Debug)]
pub(crate) struct Output {
    /// Path of the file; `None` for a stream.
    path: Option<PathBuf>,
    file: File,
    bytes: u64,
    /// Hash of all bytes after the id. The id contains its digest.
    hash: Sha256,
    writeback: Writeback,
}

impl Output {
    /// Writes to an open file; `path` is for errors.
    pub(crate) fn to_file(path: &Path, file: &File) -> Result<Self, ConvertError> {
        let file = file.try_clone().map_err(|error| ConvertError::io("writing", path, error))?;
        Ok(Self::new(Some(path), file))
    }

    /// Writes to a stream, which can be neither truncated nor patched.
    pub(crate) fn to_stream(stream: &File) -> Result<Self, ConvertError> {
        Ok(Self::new(None, stream.try_clone().map_err(ConvertError::stream)?))
    }

    fn new(path: Option<&Path>, file: File) -> Self {
        let path = path.map(Path::to_owned);
        Self { path, file, bytes: 0, hash: Sha256::new(), writeback: Writeback::default() }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ConvertError> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        let write_result = self.file.write_all(bytes);
        let write_result = write_result.and_then(|()| match &self.path {
            Some(_) => self.writeback.record_write(&self.file, bytes.len() as u64),
            // Streams are not synced: a pipe or terminal has no pages on disk.
            None => Ok(()),
        });
        write_result.map_err(|error| self.write_error(error))
    }

    /// Restarts the digest at the current end of the output.
    pub(crate) fn hash_from_here(&mut self) {
        self.hash = Sha256::new();
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes, hash: self.hash.clone() }
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }

    /// Removes all bytes after the mark. An error for a stream: its bytes cannot be taken back.
    pub(crate) fn truncate(&mut self, mark: &Mark) -> Result<(), ConvertError> {
        if self.path.is_none() {
            // Rows of a stream are checked for their order in a first reading, so they can only be out of order if the
            // input changed since.
            let detail = "it changed while it was read: convert it again";
            return Err(ConvertError::content("the input", None, ErrorKind::Value, detail));
        }
        let truncate_result =
            self.file.set_len(mark.bytes).and_then(|()| self.file.seek(SeekFrom::Start(mark.bytes)));
        truncate_result.map_err(|error| self.write_error(error))?;
        self.bytes = mark.bytes;
        self.hash = mark.hash.clone();
        Ok(())
    }

    /// Overwrites the bytes from the offset `at` on, and returns to the end of the file.
    pub(crate) fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), ConvertError> {
        let end = self.bytes;
        let patch_result = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.write_all(bytes));
        let patch_result = patch_result.and_then(|()| self.file.seek(SeekFrom::Start(end)));
        patch_result.map(drop).map_err(|error| self.write_error(error))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Syncs the file to disk; a stream is left alone.
    pub(crate) fn sync(&mut self) -> Result<(), ConvertError> {
        if self.path.is_none() {
            return Ok(());
        }
        let sync_result = self.writeback.finish().and_then(|()| self.file.sync_all());
        sync_result.map_err(|error| self.write_error(error))
    }

    fn write_error(&self, error: io::Error) -> ConvertError {
        match &self.path {
            Some(path) => ConvertError::io("writing", path, error),
            None => ConvertError::stream(error),
        }
    }
}

/// Renames a finished file to its final name, and syncs the folder so that the name survives a crash.
pub(crate) fn publish(partial: &Path, path: &Path) -> Result<(), ConvertError> {
    let naming_error = |error| ConvertError::io("naming", path, error);
    fs::rename(partial, path).map_err(naming_error)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(naming_error)
}

/// Path with `ending` appended to its file name. A trailing slash is dropped.
pub(crate) fn append_to_name(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Replaces a file by a new, empty one. Removed first rather than truncated, because the old file may have other hard
/// links.
pub(crate) fn replace_with_new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)
}
