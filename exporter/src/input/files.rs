//! Which files there are, and how each is opened again and again.
//!
//! It looks at no row.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::NamedTempFile;
use zip::ZipArchive;

use super::{
    Limits,
    stream::{Stream, Whence},
};
use crate::{
    fault::{Fault, Wrong},
    meter::Meter,
    unpack::Packed,
};

/// Everything that was given to be read.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) members: Vec<Member>,
    /// The archives that members come from; they are listed as artifacts, too.
    pub(crate) archives: Vec<Member>,
    /// Kept until the end: standard input can be read only once.
    _spooled: Vec<NamedTempFile>,
}

/// One file, or one file of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    whence: Whence,
    hashed: bool,
}

impl Input {
    /// `spool` is the folder for what has to be kept while it is read.
    pub(crate) fn open(paths: &[PathBuf], spool: &Path) -> Result<Self, Fault> {
        let mut input = Self { members: Vec::new(), archives: Vec::new(), _spooled: Vec::new() };
        for path in paths {
            if path.as_os_str() == "-" {
                let kept = spooled(spool)?;
                input.add("stdin".to_owned(), kept.path())?;
                input._spooled.push(kept);
            } else if fs::metadata(path).map_err(|error| Fault::io("opening", path, error))?.is_dir() {
                input.add_folder(path)?;
            } else {
                input.add(name_of(path), path)?;
            }
        }
        if input.members.is_empty() {
            return Err(Fault::Refused("there is no file in the input".to_owned()));
        }
        Ok(input)
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), Fault> {
        let unread = |error| Fault::io("reading the folder", folder, error);
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            let hidden = name_of(&path).starts_with('.');
            if !hidden && fs::metadata(&path).map_err(unread)?.is_file() {
                files.push(path);
            }
        }
        // A folder lists its files in no order, and equal input has to give equal bytes.
        files.sort();
        files.iter().try_for_each(|path| self.add(name_of(path), path))
    }

    fn add(&mut self, name: String, path: &Path) -> Result<(), Fault> {
        let path: Arc<Path> = Arc::from(path);
        let file = Member { name, whence: Whence::File { path: Arc::clone(&path) }, hashed: true };
        if packed(&path)? != Packed::Zip {
            self.members.push(file);
            return Ok(());
        }
        let broken = |error: &dyn std::fmt::Display| {
            Fault::content(&file.name, None, Wrong::Archive, format!("not a whole zip archive: {error}"))
        };
        let opened = File::open(&path).map_err(|error| Fault::io("opening", &path, error))?;
        let mut archive = ZipArchive::new(opened).map_err(|error| broken(&error))?;
        for index in 0..archive.len() {
            let entry = archive.by_index_raw(index).map_err(|error| broken(&error))?;
            let name = entry.name().map_err(|error| broken(&error))?.into_owned();
            // Folders of a desktop's making hold no data.
            if entry.is_dir() || name.starts_with("__MACOSX/") || name.ends_with(".DS_Store") {
                continue;
            }
            let whence = Whence::Zip { path: Arc::clone(&path), index, packed: entry.compressed_size() };
            self.members.push(Member { name, whence, hashed: true });
        }
        self.archives.push(file);
        Ok(())
    }
}

impl Member {
    /// Reads from the beginning.
    pub(crate) fn open(&self, limits: &Limits, meter: Option<&Arc<Meter>>) -> Result<Stream, Fault> {
        Stream::start(&self.name, &self.whence, limits, meter, self.hashed)
    }

    /// The same file, read without a digest.
    pub(crate) fn without_digest(&self) -> Self {
        Self { hashed: false, ..self.clone() }
    }

    /// Where it lies, if it can be read there as it is.
    pub(crate) fn plain_path(&self) -> Result<Option<PathBuf>, Fault> {
        let Whence::File { path } = &self.whence else { return Ok(None) };
        Ok((packed(path)? == Packed::No).then(|| path.to_path_buf()))
    }

    /// The bytes as they lie on disk, packed or not.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.whence {
            Whence::File { path } => fs::metadata(path).map_or(0, |found| found.len()),
            Whence::Zip { packed, .. } => *packed,
        }
    }

    /// The name without folders and endings, as a title of last resort.
    pub(crate) fn stem(&self) -> String {
        let name = self.name.rsplit('/').next().unwrap_or(&self.name);
        name.split('.').find(|part| !part.is_empty()).unwrap_or("input").to_owned()
    }

    /// The archive that it stands in.
    pub(crate) fn archive_name(&self) -> Option<String> {
        match &self.whence {
            Whence::File { .. } => None,
            Whence::Zip { path, .. } => Some(name_of(path)),
        }
    }
}

fn packed(path: &Path) -> Result<Packed, Fault> {
    let looked = File::open(path).and_then(|mut file| Packed::of(&mut file));
    let (packed, _) = looked.map_err(|error| Fault::io("opening", path, error))?;
    Ok(packed)
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn spooled(folder: &Path) -> Result<NamedTempFile, Fault> {
    let failed = |error| Fault::io("keeping standard input in", folder, error);
    let mut kept = NamedTempFile::new_in(folder).map_err(failed)?;
    io::copy(&mut io::stdin().lock(), kept.as_file_mut()).map_err(failed)?;
    Ok(kept)
}
