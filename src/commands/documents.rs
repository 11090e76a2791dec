//! The documents in a folder: which files they are.
//!
//! It reads no document (the catalog does), and does not know what was pulled (`pulled` does).

use std::{fs, io, path::Path};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tidegate_schemas::documents::named_files;

/// A file as the admin API takes it: its path below the folder, and its text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) text: String,
}

/// One change of a document.
#[derive(Debug, Deserialize)]
pub(super) struct Change {
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) how: String,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.how.as_str() {
            "added" => '+',
            "removed" => '-',
            _ => '~',
        };
        write!(f, "{sign} {}: {}", self.kind, self.key)
    }
}

/// The documents in a folder, and the files of entries that their banks name. A file that is not there is left out, and
/// told as a fault of its bank.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = read_documents(folder)?;
    let pairs: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
    for name in named_files(&pairs) {
        let path = folder.join(&name);
        match text(&path) {
            Ok(text) => files.push(File { name, text }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }
    Ok(files)
}

/// Every YAML and JSON file in the folder and below, in the order of their names. Hidden ones are left out.
pub(super) fn read_documents(folder: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = all(folder)?;
    if files.is_empty() {
        bail!("there is no .yaml, .yml or .json file in {}", folder.display());
    }
    files.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(files)
}

/// As `read_documents`, where there may be none.
pub(super) fn all(folder: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    walk(folder, folder, &mut files)
        .with_context(|| format!("the documents in {} cannot be read", folder.display()))?;
    Ok(files)
}

/// By its ending, in either case.
fn is_document(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["yaml", "yml", "json"].iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// Of a file that has an end: a pipe or a device may have none.
fn text(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    fs::read_to_string(path)
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(root, &path, files)?;
        } else if is_document(&path) {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let text =
                text(&path).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
            files.push(File { name, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("q.yaml"), "queue: q\n").unwrap();
        assert_eq!(read(folder.path()).unwrap().len(), 1);
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("z.yaml")).unwrap();
        let error = format!("{:#}", read(folder.path()).unwrap_err());
        assert!(error.ends_with("z.yaml: it is no regular file"), "{error}");
    }
}
