//! Finds and reads the files of documents in a folder.
//!
//! The catalog parses the documents; `pull_state` records the pulled files.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use tidegate_schemas::documents::{DocumentFault, Origin, named_files};

use super::encoding::{self, Unreadable};

/// File in the form of the admin API: its path below the folder, and its text.
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

/// Reads the documents in a folder and the entry files that their banks name. A missing entry file is left out, because the catalog
/// reports it as a fault of its bank.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<File>> {
    let (files, faults) = read_with_faults(folder)?;
    require_readable(folder, &faults)?;
    Ok(files)
}

/// Reads like `read`, but returns the faults of unreadable files, so that the other files can be checked as well.
pub(super) fn read_with_faults(folder: &Path) -> anyhow::Result<(Vec<File>, Vec<DocumentFault>)> {
    let (mut files, mut faults) = find_documents(folder)?;
    if files.is_empty() && faults.is_empty() {
        return Err(no_documents_error(folder));
    }
    let pairs: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
    for name in named_files(&pairs) {
        match read_text(&folder.join(&name)) {
            Ok(text) => files.push(File { name, text }),
            // The catalog reports a missing file with its place in the bank.
            Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => faults.push(unreadable_fault(&name, &error)),
        }
    }
    Ok((files, faults))
}

/// Reads every YAML and JSON file in the folder and below, in the order of their names. Hidden files are left out.
pub(super) fn read_documents(folder: &Path) -> anyhow::Result<Vec<File>> {
    let files = read_all(folder)?;
    if files.is_empty() { Err(no_documents_error(folder)) } else { Ok(files) }
}

/// Reads like `read_documents`, but allows an empty folder.
pub(super) fn read_all(folder: &Path) -> anyhow::Result<Vec<File>> {
    let (files, faults) = find_documents(folder)?;
    require_readable(folder, &faults)?;
    Ok(files)
}

fn find_documents(folder: &Path) -> anyhow::Result<(Vec<File>, Vec<DocumentFault>)> {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    // `walk` reports unreadable folders as faults of documents, but an unreadable root is an error of the command.
    fs::read_dir(folder).with_context(|| describe_read_error(folder))?;
    walk(folder, Path::new(""), &mut BTreeMap::new(), &mut files, &mut faults);
    // The order of the file system is arbitrary; messages and requests should not be.
    files.sort_by(|left, right| left.name.cmp(&right.name));
    faults.sort_by(|left, right| left.origin.file.cmp(&right.origin.file));
    Ok((files, faults))
}

/// Fails with all faults of unreadable files, if there are any.
fn require_readable(folder: &Path, faults: &[DocumentFault]) -> anyhow::Result<()> {
    let messages: Vec<_> = faults.iter().map(ToString::to_string).collect();
    if messages.is_empty() {
        Ok(())
    } else {
        Err(anyhow!(messages.join("; ")).context(describe_read_error(folder)))
    }
}

fn describe_read_error(folder: &Path) -> String {
    format!("the documents in {} cannot be read", folder.display())
}

fn no_documents_error(folder: &Path) -> anyhow::Error {
    anyhow!("there is no .yaml, .yml or .json file in {}", folder.display())
}

/// True if the file name has an extension of documents, in either case.
fn is_document(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["yaml", "yml", "json"].iter().any(|extension| ending.eq_ignore_ascii_case(extension))
}

/// Reads a regular file: reading a pipe or a device may not end.
fn read_text(path: &Path) -> Result<String, Unreadable> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file").into());
    }
    Ok(encoding::decode(fs::read(path)?)?)
}

fn unreadable_fault(name: &str, error: &Unreadable) -> DocumentFault {
    let line = match error {
        Unreadable::InvalidText(invalid_utf8) => invalid_utf8.line,
        Unreadable::Io(_) => 0,
    };
    DocumentFault::new(&Origin { file: name.to_owned(), line, index: None }, "", error.to_string())
}

/// Returns the path of a folder for messages; `.` for the root.
fn display_folder(folder: &Path) -> String {
    if folder == Path::new("") { ".".to_owned() } else { folder.display().to_string() }
}

/// Reads a folder and those below it, also through links, but each folder once. `visited` holds the folders that were read.
fn walk(
    root: &Path,
    folder: &Path,
    visited: &mut BTreeMap<PathBuf, String>,
    files: &mut Vec<File>,
    faults: &mut Vec<DocumentFault>,
) {
    // Links may lead to a folder more than once, or in a circle, so folders are told apart by their canonical path.
    let listing = fs::canonicalize(root.join(folder)).and_then(|place| {
        if let Some(first_path) = visited.get(&place) {
            let message = format!("it is the folder `{first_path}`, which is read already");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut entries = fs::read_dir(&place)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        visited.insert(place, display_folder(folder));
        Ok(entries)
    });
    let entries = match listing {
        Ok(entries) => entries,
        Err(error) => return faults.push(unreadable_fault(&display_folder(folder), &error.into())),
    };
    for entry in entries {
        // Hidden names include the temporary files of `pull` and `rules fmt`.
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = folder.join(entry.file_name());
        // Links are followed, because a link with any name may lead to a folder of documents.
        let text = match fs::metadata(root.join(&path)) {
            Ok(metadata) if metadata.is_dir() => {
                walk(root, &path, visited, files, faults);
                continue;
            }
            Ok(_) if !is_document(&path) => continue,
            Ok(_) => read_text(&root.join(&path)),
            Err(error) => Err(error.into()),
        };
        let name = path.display().to_string();
        match text {
            Ok(text) => files.push(File { name, text }),
            Err(error) => faults.push(unreadable_fault(&name, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("q.yaml"), "queue: q\n").unwrap();
        assert_eq!(read(folder.path()).unwrap().len(), 1);
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("z.yaml")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("a.yaml")).unwrap();
        let error = format!("{:#}", read(folder.path()).unwrap_err());
        assert!(error.contains("cannot be read: a.yaml: No such file"), "{error}");
        assert!(error.ends_with("; z.yaml: it is not a regular file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_unreadable_folders_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, own) = (folder.path().join("shared"), folder.path().join("own"));
        for folder in [&shared, &own] {
            fs::create_dir_all(folder.join("deep")).unwrap();
            fs::write(folder.join("deep/q.yaml"), "queue: q\n").unwrap();
        }
        std::os::unix::fs::symlink(&shared, own.join("link")).unwrap();
        let names: Vec<_> = read(&own).unwrap().into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["deep/q.yaml", "link/deep/q.yaml"]);
        std::os::unix::fs::symlink(&own, own.join("deep/again")).unwrap();
        std::os::unix::fs::symlink("nowhere", own.join("gone")).unwrap();
        let (read, unread) = find_documents(&own).unwrap();
        assert_eq!(read.len(), 2);
        let told: Vec<_> = unread.iter().map(ToString::to_string).collect();
        assert_eq!(told[0], "deep/again: it is the folder `.`, which is read already");
        assert!(told[1].starts_with("gone: No such file"), "{told:?}");
    }
}
