//! The documents in a folder: which files they are.
//!
//! It reads no document (the catalog does), and does not know what was pulled (`pull_state` does).

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use tidegate_schemas::documents::{DocumentFault, Origin, named_files};

use super::encoding::{self, Unreadable};

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
    let (files, unread) = read_what_can_be(folder)?;
    whole(folder, &unread)?;
    Ok(files)
}

/// The same, with what is wrong with files that cannot be read: there may be more to say of the others.
pub(super) fn read_what_can_be(folder: &Path) -> anyhow::Result<(Vec<File>, Vec<DocumentFault>)> {
    let (mut files, mut unread) = found(folder)?;
    if files.is_empty() && unread.is_empty() {
        return Err(none_in(folder));
    }
    let pairs: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
    for name in named_files(&pairs) {
        match text(&folder.join(&name)) {
            Ok(text) => files.push(File { name, text }),
            Err(Unreadable::Failed(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(why) => unread.push(fault(&name, &why)),
        }
    }
    Ok((files, unread))
}

/// Every YAML and JSON file in the folder and below, in the order of their names. Hidden ones are left out.
pub(super) fn read_documents(folder: &Path) -> anyhow::Result<Vec<File>> {
    let files = all(folder)?;
    if files.is_empty() { Err(none_in(folder)) } else { Ok(files) }
}

/// Reads like `read_documents`, but allows an empty folder.
pub(super) fn all(folder: &Path) -> anyhow::Result<Vec<File>> {
    let (files, unread) = found(folder)?;
    whole(folder, &unread)?;
    Ok(files)
}

fn found(folder: &Path) -> anyhow::Result<(Vec<File>, Vec<DocumentFault>)> {
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    fs::read_dir(folder).with_context(|| unreadable(folder))?;
    walk(folder, Path::new(""), &mut BTreeMap::new(), &mut files, &mut unread);
    files.sort_by(|left, right| left.name.cmp(&right.name));
    unread.sort_by(|left, right| left.origin.file.cmp(&right.origin.file));
    Ok((files, unread))
}

/// Names all that cannot be read.
fn whole(folder: &Path, unread: &[DocumentFault]) -> anyhow::Result<()> {
    let named: Vec<_> = unread.iter().map(ToString::to_string).collect();
    if named.is_empty() { Ok(()) } else { Err(anyhow!(named.join("; ")).context(unreadable(folder))) }
}

fn unreadable(folder: &Path) -> String {
    format!("the documents in {} cannot be read", folder.display())
}

fn none_in(folder: &Path) -> anyhow::Error {
    anyhow!("there is no .yaml, .yml or .json file in {}", folder.display())
}

/// True if the file name ends like a document's, in either case.
fn is_document(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["yaml", "yml", "json"].iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// Reads a regular file: a pipe or a device may never end.
fn text(path: &Path) -> Result<String, Unreadable> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file").into());
    }
    Ok(encoding::text(fs::read(path)?)?)
}

fn fault(name: &str, why: &Unreadable) -> DocumentFault {
    let line = match why {
        Unreadable::NoText(misplaced) => misplaced.line,
        Unreadable::Failed(_) => 0,
    };
    DocumentFault::new(&Origin { file: name.to_owned(), line, index: None }, "", why.to_string())
}

/// The folder itself is below itself, too.
fn shown(folder: &Path) -> String {
    if folder == Path::new("") { ".".to_owned() } else { folder.display().to_string() }
}

/// Reads what is in a folder and below, through links too, but each folder once. `known` are those that were read.
fn walk(
    root: &Path,
    folder: &Path,
    known: &mut BTreeMap<PathBuf, String>,
    files: &mut Vec<File>,
    unread: &mut Vec<DocumentFault>,
) {
    let listed = fs::canonicalize(root.join(folder)).and_then(|place| {
        if let Some(known) = known.get(&place) {
            let why = format!("it is the folder `{known}`, which is read already");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut entries = fs::read_dir(&place)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        known.insert(place, shown(folder));
        Ok(entries)
    });
    let entries = match listed {
        Ok(entries) => entries,
        Err(why) => return unread.push(fault(&shown(folder), &why.into())),
    };
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = folder.join(entry.file_name());
        // What a link leads to may be a folder of documents, whatever the link is called.
        let text = match fs::metadata(root.join(&path)) {
            Ok(found) if found.is_dir() => {
                walk(root, &path, known, files, unread);
                continue;
            }
            Ok(_) if !is_document(&path) => continue,
            Ok(_) => text(&root.join(&path)),
            Err(why) => Err(why.into()),
        };
        let name = path.display().to_string();
        match text {
            Ok(text) => files.push(File { name, text }),
            Err(why) => unread.push(fault(&name, &why)),
        }
    }
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
        std::os::unix::fs::symlink("nowhere", folder.path().join("a.yaml")).unwrap();
        let error = format!("{:#}", read(folder.path()).unwrap_err());
        assert!(error.contains("cannot be read: a.yaml: No such file"), "{error}");
        assert!(error.ends_with("; z.yaml: it is no regular file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn folders_are_read_through_links_and_those_that_cannot_be_are_named() {
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
        let (read, unread) = found(&own).unwrap();
        assert_eq!(read.len(), 2);
        let told: Vec<_> = unread.iter().map(ToString::to_string).collect();
        assert_eq!(told[0], "deep/again: it is the folder `.`, which is read already");
        assert!(told[1].starts_with("gone: No such file"), "{told:?}");
    }
}
