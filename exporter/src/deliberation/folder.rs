//! Reads the lines of a folder that `tidegate export ... --format ndjson` has written.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use tidegate_history::Dataset;

use super::{DATASETS, Line, LineSource, Policy};
use crate::{
    error::{ConvertError, ErrorKind},
    input::{Limits, name_of},
    meter::{Meter, Metered},
    unpack::unpack,
};

const ENDINGS: [&str; 3] = [".ndjson", ".ndjson.gz", ".ndjson.zst"];

/// Folder with a file or a folder for each dataset, and `policies.json`.
#[derive(Clone, Debug)]
pub struct HistoryFolder {
    /// Files of each dataset, with their names relative to the folder.
    files: Vec<(Dataset, PathBuf, String)>,
    policies: PathBuf,
    max_row_bytes: usize,
    meter: Arc<Meter>,
}

impl HistoryFolder {
    /// Lists the files. Each dataset has to have a file or a folder, even if it has no rows.
    pub fn open(folder: &Path, limits: &Limits, meter: &Arc<Meter>) -> Result<Self, ConvertError> {
        let mut files = Vec::new();
        for dataset in DATASETS {
            let name = dataset.as_str();
            let mut is_missing = true;
            for entry in list_entries(folder)? {
                if entry.is_dir() && name_of(&entry) == name {
                    is_missing = false;
                    list_lines_files(&entry, name, &mut |path, label| files.push((dataset, path, label)))?;
                } else if is_file_of(&name_of(&entry), name) {
                    is_missing = false;
                    let label = name_of(&entry);
                    files.push((dataset, entry, label));
                }
            }
            if is_missing {
                let detail = format!(
                    "it has no rows of the dataset {name}: write them with `tidegate export {name} --format ndjson`"
                );
                return Err(ConvertError::content(&name_of(folder), None, ErrorKind::MissingFile, detail));
            }
        }
        let sizes = files.iter().filter_map(|(_, path, _)| fs::metadata(path).ok());
        meter.expect(sizes.map(|metadata| metadata.len()).sum());
        Ok(Self {
            files,
            policies: folder.join("policies.json"),
            max_row_bytes: limits.max_row_bytes,
            meter: Arc::clone(meter),
        })
    }

    /// Files of the folder, which an export must not overwrite.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(_, path, _)| path.clone()).chain([self.policies.clone()]).collect()
    }

    /// Reads the policies.
    pub fn policies(&self) -> Result<Vec<Policy>, ConvertError> {
        read_policies(&self.policies)
    }

    fn read_file(
        &self,
        path: &Path,
        name: &str,
        on_line: &mut dyn FnMut(Line<'_>) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let io_error = |error| ConvertError::from_io(name, error);
        let file = fs::File::open(path).map_err(|error| ConvertError::io("opening", path, error))?;
        let unpacked = unpack(Metered::new(file, &self.meter)).map_err(io_error)?;
        let mut reader = BufReader::with_capacity(1 << 18, unpacked);
        let (mut text, mut number) = (Vec::new(), 0);
        // One byte more than allowed shows that a line is too long.
        let max_bytes = self.max_row_bytes as u64 + 1;
        loop {
            text.clear();
            number += 1;
            if reader.by_ref().take(max_bytes).read_until(b'\n', &mut text).map_err(io_error)? == 0 {
                return Ok(());
            }
            if text.len() > self.max_row_bytes {
                let detail = "the line is too long (--max-record allows more)";
                return Err(ConvertError::content(name, number, ErrorKind::LongRecord, detail));
            }
            if !text.trim_ascii().is_empty() {
                on_line(Line { text: &text, source: name, number })?;
            }
        }
    }
}

impl LineSource for HistoryFolder {
    fn read_lines(
        &mut self,
        dataset: Dataset,
        on_line: &mut dyn FnMut(Line<'_>) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let files = self.files.iter().filter(|(file_dataset, ..)| *file_dataset == dataset);
        files.into_iter().try_for_each(|(_, path, name)| self.read_file(path, name, on_line))
    }
}

/// True for `reports.ndjson` and for parts such as `reports-part-0001-of-0004.ndjson`.
fn is_file_of(file_name: &str, dataset: &str) -> bool {
    file_name.strip_prefix(dataset).is_some_and(|tail| {
        ENDINGS.iter().any(|ending| tail == *ending || tail.starts_with('-') && tail.ends_with(ending))
    })
}

/// Lists the files of lines in a folder and its subfolders, such as those of days.
fn list_lines_files(
    folder: &Path,
    label: &str,
    on_file: &mut dyn FnMut(PathBuf, String),
) -> Result<(), ConvertError> {
    for entry in list_entries(folder)? {
        let entry_label = format!("{label}/{}", name_of(&entry));
        if entry.is_dir() {
            list_lines_files(&entry, &entry_label, on_file)?;
        } else if ENDINGS.iter().any(|ending| entry_label.ends_with(ending)) {
            on_file(entry, entry_label);
        }
    }
    Ok(())
}

fn list_entries(folder: &Path) -> Result<Vec<PathBuf>, ConvertError> {
    let entries = fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    let mut entries = entries.map_err(|error| ConvertError::io("reading the folder", folder, error))?;
    entries.sort();
    Ok(entries)
}

pub(super) fn read_policies(path: &Path) -> Result<Vec<Policy>, ConvertError> {
    let text = fs::read(path).map_err(|error| ConvertError::io("reading", path, error))?;
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum PolicyList {
        List(Vec<Policy>),
        Object { policies: Vec<Policy> },
    }
    match serde_json::from_slice(&text) {
        Ok(PolicyList::List(policies) | PolicyList::Object { policies }) => Ok(policies),
        Err(_) => {
            let detail = "it is not a list of policies: a JSON array of objects with id, name and parentId";
            Err(ConvertError::content(&name_of(path), None, ErrorKind::Value, detail))
        }
    }
}
