//! Folder of an export: names of its files, and the check that it holds no other export.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tidegate_history::Part;

use super::{
    manifest::Manifest,
    names::{
        DAY_PREFIX, FlatFormat, MANIFEST_NAME, Partition, data_file_name, file_name, format_day,
        manifest_name, parse_data_name, parse_manifest_name,
    },
    output_file::{FileSummary, OutputFile, PARTIAL_ENDING, UnpublishedFile},
};
use crate::error::ConvertError;

/// Open folder of an export. Folders that it created are removed on drop if they are empty.
#[derive(Debug)]
pub(super) struct ExportFolder {
    path: PathBuf,
    part: Part,
    format: FlatFormat,
    created_folders: Vec<PathBuf>,
}

impl ExportFolder {
    /// Opens or creates the folder for the export that `manifest` describes.
    pub(super) fn open(
        path: &Path,
        part: Part,
        manifest: &Manifest,
        force: bool,
    ) -> Result<Self, ConvertError> {
        let mut folder =
            Self { path: path.to_owned(), part, format: manifest.format, created_folders: Vec::new() };
        if path.exists() && !path.is_dir() {
            let message = format!("{} is a file: name a folder for the export", file_name(path));
            return Err(ConvertError::Refused(message));
        }
        folder.create_folder(path)?;
        folder.check_content(manifest, force)?;
        Ok(folder)
    }

    fn create_folder(&mut self, path: &Path) -> Result<(), ConvertError> {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(path).map_err(|error| ConvertError::io("making the folder", path, error))?;
        self.created_folders.push(path.to_owned());
        Ok(())
    }

    /// Refuses a folder with files of another export: databases would read them as rows of this one.
    fn check_content(&self, manifest: &Manifest, force: bool) -> Result<(), ConvertError> {
        let folder = file_name(&self.path);
        for name in list_manifests(&self.path)? {
            let is_replaced = name == manifest_name(self.part) || name == MANIFEST_NAME;
            if is_replaced && !force {
                return Err(ConvertError::Refused(format!(
                    "{folder} holds a finished export ({name}): choose another folder, or replace it with --force"
                )));
            }
            if !is_replaced {
                let other_part = Manifest::read(&self.path.join(&name))?;
                if let Some(difference) = manifest.find_difference(&other_part) {
                    return Err(ConvertError::Refused(format!(
                        "{folder} holds a part of another export ({name}): here {difference}. Choose another folder"
                    )));
                }
            }
        }
        for name in list_data_files(&self.path)? {
            let is_in_day = name.contains('/');
            let (part, format) = parse_data_name(&name).unzip();
            let is_same_export = part.is_some_and(|part| part.count() == self.part.count())
                && format == Some(self.format)
                && is_in_day == (manifest.partition_by == Partition::Day);
            if !is_same_export {
                return Err(ConvertError::Refused(format!(
                    "{folder} holds {name} of another export: choose another folder, or delete that export"
                )));
            }
        }
        Ok(())
    }

    /// Creates the file of a day, or the only file of the part.
    pub(super) fn create_file(&mut self, day: Option<i64>) -> Result<OutputFile, ConvertError> {
        let file_name = data_file_name(self.part, self.format);
        let Some(day) = day else { return OutputFile::create(&self.path.join(&file_name), &file_name) };
        let day_name = format!("{DAY_PREFIX}{}", format_day(day));
        let day_folder = self.path.join(&day_name);
        self.create_folder(&day_folder)?;
        OutputFile::create(&day_folder.join(&file_name), &format!("{day_name}/{file_name}"))
    }

    /// Publishes the files, and then the manifest. An older export of the part is replaced.
    pub(super) fn publish(
        self,
        files: Vec<UnpublishedFile>,
        manifest: &mut Manifest,
    ) -> Result<PathBuf, ConvertError> {
        // Removed first: an interrupted replacement must not look complete.
        for name in [MANIFEST_NAME, &manifest_name(self.part)] {
            remove_if_present(&self.path.join(name))?;
        }
        for file in files {
            manifest.push_file(file.publish()?);
        }
        self.remove_old_files(&manifest.files)?;
        let manifest_path = self.path.join(manifest_name(self.part));
        manifest.write(&manifest_path)?;
        Ok(manifest_path)
    }

    /// Removes files of an older export of this part on days without rows in the new one, and files that a killed process
    /// left under their temporary names.
    fn remove_old_files(&self, files: &[FileSummary]) -> Result<(), ConvertError> {
        for name in list_files(&self.path)? {
            let final_name = name.strip_suffix(PARTIAL_ENDING).unwrap_or(&name);
            let is_own = parse_data_name(final_name).is_some_and(|(part, _)| part == self.part);
            if is_own && !files.iter().any(|file| file.name == name) {
                let path = self.path.join(&name);
                remove_if_present(&path)?;
                if let Some(day_folder) = path.parent().filter(|parent| *parent != self.path) {
                    // Fails, as it should, if the folder has files of other parts.
                    let _result = fs::remove_dir(day_folder);
                }
            }
        }
        Ok(())
    }
}

impl Drop for ExportFolder {
    fn drop(&mut self) {
        for folder in self.created_folders.iter().rev() {
            // Fails, as it should, if the folder has files.
            let _result = fs::remove_dir(folder);
        }
    }
}

fn remove_if_present(path: &Path) -> Result<(), ConvertError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ConvertError::io("removing", path, error))
        }
        _ => Ok(()),
    }
}

/// Names of the manifests in a folder, sorted.
pub(super) fn list_manifests(folder: &Path) -> Result<Vec<String>, ConvertError> {
    let names = list_folder(folder)?;
    Ok(names
        .into_iter()
        .filter(|name| name == MANIFEST_NAME || parse_manifest_name(name).is_some())
        .collect())
}

/// Names of the data files of any export in a folder, relative to it and sorted.
pub(super) fn list_data_files(folder: &Path) -> Result<Vec<String>, ConvertError> {
    let files = list_files(folder)?;
    Ok(files.into_iter().filter(|name| parse_data_name(name).is_some()).collect())
}

/// Names in a folder and in its day folders.
fn list_files(folder: &Path) -> Result<Vec<String>, ConvertError> {
    let mut files = Vec::new();
    for name in list_folder(folder)? {
        if name.starts_with(DAY_PREFIX) && folder.join(&name).is_dir() {
            let day_files = list_folder(&folder.join(&name))?;
            files.extend(day_files.into_iter().map(|file| format!("{name}/{file}")));
        } else {
            files.push(name);
        }
    }
    Ok(files)
}

/// Sorted names in a folder. Names outside of Unicode belong to no export.
fn list_folder(folder: &Path) -> Result<Vec<String>, ConvertError> {
    let read_error = |error| ConvertError::io("reading the folder", folder, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(read_error)? {
        names.extend(entry.map_err(read_error)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}
