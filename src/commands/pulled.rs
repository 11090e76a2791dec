//! `.tidegate.json`: of which organisation, and in which version, a folder was pulled, and what each pulled file held.
//!
//! It decides nothing about files; `pull` does.

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
pub(super) type Hashes = BTreeMap<String, String>;

/// State of the last pull. `apply` refuses to replace another version, or another organisation.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pulled {
    pub(super) version: i64,
    /// Organisation of the pull. Earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org: Option<String>,
    /// The files that `pull` wrote. Earlier versions did not keep them.
    #[serde(default)]
    pub(super) files: Hashes,
    /// The files that a pull under way writes; if it broke off, the folder holds some of both versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) writing: Option<Hashes>,
}

const NAME: &str = ".tidegate.json";

impl Pulled {
    pub(super) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(NAME);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("{} is damaged: remove it, and pull again", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Reads like `read`, for callers that take the folder for one version.
    pub(super) fn read_whole(folder: &Path) -> anyhow::Result<Option<Self>> {
        let pulled = Self::read(folder)?;
        if pulled.as_ref().is_some_and(|pulled| pulled.writing.is_some()) {
            bail!(
                "the last pull into {} broke off, so it holds files of two versions: pull again",
                folder.display()
            );
        }
        Ok(pulled)
    }

    /// Returns the files that pulls wrote. A pull that broke off leaves either of two contents.
    pub(super) fn known(&self) -> impl Iterator<Item = (&String, &String)> {
        self.files.iter().chain(self.writing.iter().flatten())
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        write_whole(&folder.join(NAME), &serde_json::to_vec(self)?)
    }
}

pub(super) fn hash(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// A file has its old content or its new one, also after a crash.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let named = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden, so that one that is left behind is no document.
    let beside: PathBuf = path.with_file_name(format!(".{named}.new"));
    let write = || {
        let mut file = fs::File::create(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        // So that no later file is there after a loss of power, and this one is not.
        #[cfg(unix)]
        fs::File::open(path.parent().unwrap_or(path))?.sync_all()?;
        Ok::<_, io::Error>(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
