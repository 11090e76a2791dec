//! Writes the content of a finished bundle in other formats: tables of other tools, NDJSON and Parquet.

pub(crate) mod license;
pub(crate) mod ndjson;
mod opinions;
pub(crate) mod package;
pub(crate) mod parquet;
pub(crate) mod polis_csv;
mod polis_groups;
mod polis_matrix;
pub(crate) mod sensemaking_csv;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use tempfile::TempPath;

pub(crate) use self::opinions::NO_VOTES;

use crate::{
    bundle::{
        read,
        write::output::{self, append_to_name, replace_with_new_file},
    },
    error::ConvertError,
    meter::Meter,
    plural::format_count,
};

/// Output formats other than a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Votes, comments, participants and summary in Polis' format.
    PolisCsv,
    /// One table of counts in the format of the sensemaking tools.
    SensemakingCsv,
    Ndjson,
    Parquet,
}

/// Treatment of cells that a spreadsheet could execute as formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cells {
    /// Prefixes an apostrophe to cells that start with `=`, `+`, `-`, `@`, a tab or a line end.
    #[default]
    Guarded,
    Exact,
}

/// Naming of participants in a table of votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VoterIds {
    /// Numbers from 0 in order of first appearance, as most tools expect.
    #[default]
    Numbers,
    /// Participant references of the bundle.
    References,
}

/// File under construction, deleted on drop unless it is published.
pub(crate) struct PartialFile {
    path: PathBuf,
    partial: TempPath,
    file: BufWriter<File>,
    guarded_cells: u64,
}

/// Complete file that still has its temporary name.
#[must_use]
pub(crate) struct FinishedFile {
    path: PathBuf,
    partial: TempPath,
    /// Number of cells with an added apostrophe.
    guarded_cells: u64,
}

impl PartialFile {
    pub(crate) fn create(path: PathBuf) -> Result<Self, ConvertError> {
        let partial = append_to_name(&path, ".partial");
        let io_error = |error| ConvertError::io("writing", &partial, error);
        let file = replace_with_new_file(&partial).map_err(io_error)?;
        let partial = TempPath::try_from_path(&partial).map_err(io_error)?;
        Ok(Self { path, partial, file: BufWriter::with_capacity(1 << 18, file), guarded_cells: 0 })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ConvertError> {
        self.file.write_all(bytes).map_err(|error| ConvertError::io("writing", &self.partial, error))
    }

    pub(crate) fn finish(self) -> Result<FinishedFile, ConvertError> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.map_err(|error| ConvertError::io("writing", &self.partial, error))?;
        Ok(FinishedFile { path: self.path, partial: self.partial, guarded_cells: self.guarded_cells })
    }

    fn inner(&mut self) -> &mut BufWriter<File> {
        &mut self.file
    }
}

/// Renames complete files to their final names, and returns the paths.
pub(crate) fn publish(files: Vec<FinishedFile>) -> Result<Vec<PathBuf>, ConvertError> {
    let paths = files.into_iter().map(|FinishedFile { path, partial, .. }| {
        output::publish(&partial, &path)?;
        Ok(path)
    });
    paths.collect()
}

/// Result of an export.
pub(crate) struct Exported {
    pub(crate) files: Vec<PathBuf>,
    /// Notes about omitted content.
    pub(crate) notes: Vec<String>,
}

/// Writes the bundle in another format into a folder. `memory` limits the bytes sorted in memory.
pub(crate) fn export(
    bundle: &Path,
    folder: &Path,
    shape: TableFormat,
    cells: Cells,
    voters: VoterIds,
    memory: usize,
    meter: &Meter,
) -> Result<Exported, ConvertError> {
    let is_new_folder = !folder.exists();
    fs::create_dir_all(folder).map_err(|error| ConvertError::io("making the folder", folder, error))?;
    let path_of = |name: &str| folder.join(name);
    let without_notes = |files: Vec<FinishedFile>| (files, Vec::new());
    let with_card = |(mut files, notes): (Vec<FinishedFile>, Vec<String>)| {
        files.push(write_card(bundle, path_of(CARD), meter)?);
        Ok((files, notes))
    };
    let result = match shape {
        TableFormat::PolisCsv => polis_csv::write(bundle, folder, cells, voters, memory, meter),
        TableFormat::SensemakingCsv => {
            sensemaking_csv::write(bundle, path_of(sensemaking_csv::FILE), cells, meter)
        }
        TableFormat::Ndjson => ndjson::write(bundle, path_of, meter).map(without_notes).and_then(with_card),
        TableFormat::Parquet => parquet::write(bundle, path_of, meter).and_then(with_card),
    };
    let exported = result.and_then(|(files, mut notes)| {
        notes.extend(guarded_note(files.iter().map(|file| file.guarded_cells).sum()));
        // Last stop: only renames follow.
        meter.check_stop()?;
        Ok(Exported { files: publish(files)?, notes })
    });
    if exported.is_err() && is_new_folder {
        // Fails, as it should, if another process has created a file in the folder.
        let _result = fs::remove_dir(folder);
    }
    exported
}

fn guarded_note(cells: u64) -> Option<String> {
    let (phrase, begin) = (format_count(cells, "cell"), if cells == 1 { "begins" } else { "begin" });
    (cells > 0).then(|| {
        format!(
            "{phrase} {begin} with an added apostrophe, which keeps spreadsheets from executing the rest \
                as a formula: --exact-cells omits it."
        )
    })
}

/// Number of readings of the bundle, for the progress.
pub(crate) fn count_readings(shape: TableFormat) -> u64 {
    match shape {
        TableFormat::SensemakingCsv => 1,
        TableFormat::PolisCsv | TableFormat::Ndjson | TableFormat::Parquet => 2,
    }
}

/// Names of all files that a format may write.
pub(crate) fn file_names(shape: TableFormat) -> Vec<&'static str> {
    let with_card = |files: &[&'static str]| [files, &[CARD]].concat();
    match shape {
        TableFormat::PolisCsv => polis_csv::FILES.to_vec(),
        TableFormat::SensemakingCsv => vec![sensemaking_csv::FILE],
        TableFormat::Ndjson => with_card(&ndjson::FILES),
        TableFormat::Parquet => with_card(&parquet::FILES),
    }
}

const CARD: &str = "card.json";

/// Writes one row of a table. All columns are guarded against formulas: even ids and references may come from a
/// hostile author.
pub(crate) fn csv_row(file: &mut PartialFile, row: &[&str], cells: Cells) -> Result<(), ConvertError> {
    let mut line = Vec::new();
    for (at, cell) in row.iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        let is_guarded = cells == Cells::Guarded && is_formula(cell);
        file.guarded_cells += u64::from(is_guarded);
        // Within the quotes: spreadsheets remove the quotes before they look at the cell.
        let guard = if is_guarded { "'" } else { "" };
        // Some spreadsheets also separate cells at semicolons or tabs.
        if cell.bytes().any(|byte| matches!(byte, b',' | b';' | b'\t' | b'"' | b'\n' | b'\r')) {
            line.push(b'"');
            line.extend_from_slice(guard.as_bytes());
            line.extend_from_slice(cell.replace('"', "\"\"").as_bytes());
            line.push(b'"');
        } else {
            line.extend_from_slice(guard.as_bytes());
            line.extend_from_slice(cell.as_bytes());
        }
    }
    line.push(b'\n');
    file.write(&line)
}

/// True if a spreadsheet could execute the cell. Leading apostrophes are skipped, so that guarded cells stay
/// distinct. A disagreement (`-1`) is a number.
pub(crate) fn is_formula(cell: &str) -> bool {
    cell != "-1" && cell.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r', '\n'])
}

/// Writes the bundle without its lists, which keeps its description beside the tables.
pub(crate) fn write_card(
    bundle_path: &Path,
    path: PathBuf,
    meter: &Meter,
) -> Result<FinishedFile, ConvertError> {
    let card = read::read_bundle(bundle_path, &mut (), meter)?;
    let mut text =
        serde_json::to_vec_pretty(&card).map_err(|error| ConvertError::io("writing", &path, error.into()))?;
    text.push(b'\n');
    let mut file = PartialFile::create(path)?;
    file.write(&text)?;
    file.finish()
}
