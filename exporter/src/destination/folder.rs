//! Folder as a destination: files are written beside their final name, synced and renamed.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::DestinationError;

/// Ending of an incomplete file.
const PARTIAL: &str = "partial";

/// Existing folder. It is not created, because a folder on an unmounted disk would then fill another disk.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    root: Arc<Path>,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: Arc::from(root) }
    }

    pub(super) fn describe(&self) -> String {
        format!("folder {}", self.root.display())
    }

    pub(super) async fn put_file(&self, key: &str, file: &Path) -> Result<(), DestinationError> {
        let (place, key_text) = (self.describe(), key.to_owned());
        let file = file.to_owned();
        self.run(key, move |root, path| {
            let mut source =
                File::open(&file).map_err(|error| DestinationError::local_file(place, &key_text, &error))?;
            Ok(write_file(root, path, |target| io::copy(&mut source, target).map(drop)))
        })
        .await
    }

    pub(super) async fn put_bytes(&self, key: &str, bytes: Bytes) -> Result<(), DestinationError> {
        self.run(key, move |root, path| Ok(write_file(root, path, |target| target.write_all(&bytes)))).await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Bytes>, DestinationError> {
        self.run(key, |root, path| {
            Ok(match fs::read(path) {
                Ok(bytes) => Ok(Some(Bytes::from(bytes))),
                // A missing root is an error, not a missing object.
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::metadata(root).map(|_| None),
                Err(error) => Err(error),
            })
        })
        .await
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<String>, DestinationError> {
        let prefix_key = prefix.to_owned();
        self.run(prefix, move |root, path| {
            let mut keys = Vec::new();
            let list_result = match collect_keys(path, &prefix_key, &mut keys) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::metadata(root).map(drop),
                list_result => list_result,
            };
            Ok(list_result.map(|()| keys))
        })
        .await
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), DestinationError> {
        self.run(key, |root, path| {
            Ok(match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => fs::metadata(root).map(|_| remove_empty_folders(root, path)),
            })
        })
        .await
    }

    /// Runs blocking work with the root and the path of a key.
    async fn run<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Path, &Path) -> Result<io::Result<T>, DestinationError> + Send + 'static,
    ) -> Result<T, DestinationError> {
        let root = Arc::clone(&self.root);
        let path = self.root.join(key);
        let result = tokio::task::spawn_blocking(move || work(&root, &path)).await;
        // Blocking work is aborted only if the runtime ends.
        let result = result.map_err(|_| io::Error::other("the process stops"));
        match result {
            Ok(result) => result?.map_err(|error| DestinationError::io(self.describe(), key, &error)),
            Err(error) => Err(DestinationError::io(self.describe(), key, &error)),
        }
    }
}

fn write_file(root: &Path, path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    fs::metadata(root)?;
    let folder = path.parent().unwrap_or(root);
    fs::create_dir_all(folder)?;
    let mut partial: PathBuf = path.to_owned();
    partial.as_mut_os_string().push(format!(".{PARTIAL}"));
    let write_result = File::create(&partial).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()
    });
    let write_result = write_result.and_then(|()| fs::rename(&partial, path));
    if let Err(error) = write_result {
        // The first error is reported; a partial file that stays is overwritten by the next attempt.
        let _removed = fs::remove_file(&partial);
        return Err(error);
    }
    // Folders up to the root may be new, and their names must survive a crash as well.
    for folder in folder.ancestors().take_while(|folder| folder.starts_with(root)) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn collect_keys(folder: &Path, prefix: &str, keys: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        // Names in another encoding are files of other programs.
        let Some(name) = name.to_str() else { continue };
        let key = format!("{prefix}/{name}");
        if entry.file_type()?.is_dir() {
            collect_keys(&entry.path(), &key, keys)?;
        } else if Path::new(name).extension() != Some(OsStr::new(PARTIAL)) {
            keys.push(key);
        }
    }
    Ok(())
}

/// Removes the folders of a deleted file that are empty now.
fn remove_empty_folders(root: &Path, path: &Path) {
    for folder in path.ancestors().skip(1).take_while(|folder| *folder != root && folder.starts_with(root)) {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}
