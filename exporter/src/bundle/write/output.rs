//! Output of a bundle: counts and hashes bytes, can be cut back to a mark, and gets its id filled in at the end.
//!
//! Writing to disk in the background is `writeback`'s job.

use std::{
    fs::{self, File},
    io::{self, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::writeback::Writeback;
use crate::error::{ConvertError, ErrorKind};

/// A place to come back to.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) bytes: u64,
    hash: Sha256,
}

#[derive(Debug)]
pub(crate) struct Output {
    /// Path of a file; `None` for a stream.
    path: Option<PathBuf>,
    file: File,
    bytes: u64,
    /// Hash of everything behind the id, from which the id is made.
    hash: Sha256,
    settling: Writeback,
}

impl Output {
    /// Writes to an open file with this path.
    pub(crate) fn file(path: &Path, file: &File) -> Result<Self, ConvertError> {
        let file = file.try_clone().map_err(|error| ConvertError::io("writing", path, error))?;
        Ok(Self::of(Some(path), file))
    }

    /// Writes to a stream, which can neither be cut back nor patched.
    pub(crate) fn stream(stream: &File) -> Result<Self, ConvertError> {
        Ok(Self::of(None, stream.try_clone().map_err(ConvertError::stream)?))
    }

    fn of(path: Option<&Path>, file: File) -> Self {
        let path = path.map(Path::to_owned);
        Self { path, file, bytes: 0, hash: Sha256::new(), settling: Writeback::default() }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ConvertError> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        let written = self.file.write_all(bytes);
        let written = written.and_then(|()| match &self.path {
            Some(_) => self.settling.written(&self.file, bytes.len() as u64),
            None => Ok(()),
        });
        written.map_err(|error| self.failed(error))
    }

    /// Restarts the digest, so that it covers only what follows.
    pub(crate) fn hash_from_here(&mut self) {
        self.hash = Sha256::new();
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes, hash: self.hash.clone() }
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }

    /// Forgets everything behind the mark.
    pub(crate) fn cut(&mut self, mark: &Mark) -> Result<(), ConvertError> {
        if self.path.is_none() {
            let detail = "it has changed while it was read";
            return Err(ConvertError::content("the input", None, ErrorKind::Value, detail));
        }
        let cut = self.file.set_len(mark.bytes).and_then(|()| self.file.seek(SeekFrom::Start(mark.bytes)));
        cut.map_err(|error| self.failed(error))?;
        self.bytes = mark.bytes;
        self.hash = mark.hash.clone();
        Ok(())
    }

    /// Overwrites as many bytes at `at`.
    pub(crate) fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), ConvertError> {
        let end = self.bytes;
        let patched = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.write_all(bytes));
        let patched = patched.and_then(|()| self.file.seek(SeekFrom::Start(end)));
        patched.map(drop).map_err(|error| self.failed(error))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it durable under its present name, if it has one.
    pub(crate) fn sync(&mut self) -> Result<(), ConvertError> {
        if self.path.is_none() {
            return Ok(());
        }
        let settled = self.settling.finish().and_then(|()| self.file.sync_all());
        settled.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> ConvertError {
        match &self.path {
            Some(path) => ConvertError::io("writing", path, error),
            None => ConvertError::stream(error),
        }
    }
}

/// Gives a finished file its name, durably.
pub(crate) fn publish(partial: &Path, path: &Path) -> Result<(), ConvertError> {
    let failed = |error| ConvertError::io("naming", path, error);
    fs::rename(partial, path).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Path with an ending behind its name, also if a slash follows that.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Creates a new file in place of an existing one, which may have other names.
pub(crate) fn fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)
}
