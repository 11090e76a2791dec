//! `.tidegate.json`: organisation and version from which a folder was pulled, and the hash of each pulled file.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidegate_schemas::hex;

/// Names of files, each with the SHA-256 of its content.
pub(super) type FileHashes = BTreeMap<String, String>;

/// State of the last pull. `apply` refuses to replace another version, or another organisation.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PullState {
    pub(super) version: i64,
    /// Organisation of the pull. Missing in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org: Option<String>,
    /// Files that `pull` wrote. Missing in files of earlier versions.
    #[serde(default)]
    pub(super) files: FileHashes,
    /// Files that an unfinished pull was writing. If present, the folder may hold files of two versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) writing: Option<FileHashes>,
}

const FILE_NAME: &str = ".tidegate.json";

impl PullState {
    pub(super) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(FILE_NAME);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("{} is damaged: remove it, and pull again", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Reads the state like `read`, and fails if the last pull was not finished.
    pub(super) fn read_complete(folder: &Path) -> anyhow::Result<Option<Self>> {
        let state = Self::read(folder)?;
        if state.as_ref().is_some_and(|state| state.writing.is_some()) {
            bail!(
                "the last pull into {} was interrupted, so it holds files of two versions: pull again",
                folder.display()
            );
        }
        Ok(state)
    }

    /// Returns the files that pulls wrote, with their hashes. An unfinished pull leaves either of two contents.
    pub(super) fn written_files(&self) -> impl Iterator<Item = (&String, &String)> {
        self.files.iter().chain(self.writing.iter().flatten())
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        write_atomically(&folder.join(FILE_NAME), &serde_json::to_vec(self)?)
    }
}

pub(super) fn sha256_hex(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// Writes a file atomically: after a crash it has its old or its new content.
pub(super) fn write_atomically(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    // A hidden name: a file left behind by a crash must not be read as a document.
    let temporary_path: PathBuf = path.with_file_name(format!(".{file_name}.new"));
    let write = || {
        let mut file = fs::File::create(&temporary_path)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary_path, path)?;
        // Syncs the folder, so that files reach the disk in the order in which they were written.
        #[cfg(unix)]
        fs::File::open(path.parent().unwrap_or(path))?.sync_all()?;
        Ok::<_, io::Error>(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
