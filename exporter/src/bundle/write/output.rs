//! What grows into a bundle: counted, hashed, and, if it is a file, cut back when needed, its id filled in at the end.
//!
//! It gives the file no final name. How what was written gets to disk meanwhile is `settle`'s.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{
    parts::{own, remove},
    writeback::Settling,
};
use crate::error::{Fault, Wrong};

/// A place to come back to.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) bytes: u64,
    hash: Sha256,
}

#[derive(Debug)]
pub(crate) struct Out {
    /// Of a stream there is none.
    path: Option<PathBuf>,
    file: File,
    bytes: u64,
    /// Of everything behind the id, so that the id can be made of it.
    hash: Sha256,
    settling: Settling,
}

impl Out {
    pub(crate) fn create(path: &Path) -> Result<Self, Fault> {
        // What lies there may be a link to something else.
        remove(path)?;
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|error| Fault::io("writing", path, error))?;
        Ok(Self::of(Some(path), file))
    }

    /// What is written to it is gone: it can neither be cut back nor patched.
    pub(crate) fn stream(stream: &File) -> Result<Self, Fault> {
        Ok(Self::of(None, stream.try_clone().map_err(Fault::stream)?))
    }

    fn of(path: Option<&Path>, file: File) -> Self {
        let path = path.map(Path::to_owned);
        Self { path, file, bytes: 0, hash: Sha256::new(), settling: Settling::default() }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        let written = self.file.write_all(bytes);
        let written = written.and_then(|()| match &self.path {
            Some(_) => self.settling.written(&self.file, bytes.len() as u64),
            None => Ok(()),
        });
        written.map_err(|error| self.failed(error))
    }

    /// What was written so far is not part of the digest.
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
    pub(crate) fn cut(&mut self, mark: &Mark) -> Result<(), Fault> {
        if self.path.is_none() {
            let detail = "it has changed while it was read";
            return Err(Fault::content("the input", None, Wrong::Value, detail));
        }
        let cut = self.file.set_len(mark.bytes).and_then(|()| self.file.seek(SeekFrom::Start(mark.bytes)));
        cut.map_err(|error| self.failed(error))?;
        self.bytes = mark.bytes;
        self.hash = mark.hash.clone();
        Ok(())
    }

    /// Opens what another process has left. It has to begin with `beginning` but for the id, which may be filled in
    /// already and is not hashed; of the lengths (in ascending order),
    /// the last one is taken whose digest fits, and what is behind it is cut off.
    pub(crate) fn reopen(
        path: &Path,
        beginning: &[u8],
        id: std::ops::Range<usize>,
        lengths: &[(u64, [u8; 32])],
    ) -> Result<Option<(Self, Mark, usize)>, Fault> {
        let failed = |error| Fault::io("going on with", path, error);
        let mut file = match own(File::options().read(true).write(true), path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut start = vec![0; beginning.len()];
        let begins = file.read_exact(&mut start).is_ok()
            && start[..id.start] == beginning[..id.start]
            && start[id.end..] == beginning[id.end..];
        if !begins {
            return Ok(None);
        }
        let mut hash = Sha256::new();
        hash.update(&start[id.end..]);
        let begun = Mark { bytes: beginning.len() as u64, hash: hash.clone() };
        let (mut at, mut found) = (beginning.len() as u64, None);
        let mut block = vec![0; 1 << 20];
        for (index, (length, digest)) in lengths.iter().enumerate() {
            while at < *length {
                let most = block.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
                let read = file.read(&mut block[..most]).map_err(failed)?;
                if read == 0 {
                    break;
                }
                hash.update(&block[..read]);
                at += read as u64;
            }
            if at != *length || hash.clone().finalize()[..] != digest[..] {
                break;
            }
            found = Some((index, Mark { bytes: at, hash: hash.clone() }));
        }
        let Some((index, mark)) = found else { return Ok(None) };
        let mut out = Self::of(Some(path), file);
        out.cut(&mark)?;
        Ok(Some((out, begun, index)))
    }

    /// Writes over what stands at `at`, in as many bytes.
    pub(crate) fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let end = self.bytes;
        let patched = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.write_all(bytes));
        let patched = patched.and_then(|()| self.file.seek(SeekFrom::Start(end)));
        patched.map(drop).map_err(|error| self.failed(error))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it durable under its present name, if it has one.
    pub(crate) fn sync(&mut self) -> Result<(), Fault> {
        if self.path.is_none() {
            return Ok(());
        }
        let settled = self.settling.finish().and_then(|()| self.file.sync_all());
        settled.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Fault {
        match &self.path {
            Some(path) => Fault::io("writing", path, error),
            None => Fault::stream(error),
        }
    }
}

/// Gives a finished file its name, durably.
pub(crate) fn publish(partial: &Path, path: &Path) -> Result<(), Fault> {
    let failed = |error| Fault::io("naming", path, error);
    std::fs::rename(partial, path).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}
