//! Writes the content of a finished bundle in other formats: tables for other tools, NDJSON and Parquet.

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
        write::output::{self, beside, fresh},
    },
    error::Fault,
    meter::Meter,
    plural::counted,
};

/// Shapes that a bundle can be turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Votes, comments, participants and summary, as Polis' own tools read them.
    PolisCsv,
    /// One table of counts.
    SensemakingCsv,
    Ndjson,
    Parquet,
}

/// Treatment of cells that a spreadsheet may take for a formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cells {
    /// An apostrophe stands before `=`, `+`, `-`, `@`, tabs and carriage returns.
    #[default]
    Guarded,
    Exact,
}

/// Naming of participants in a table of votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VoterIds {
    /// Numbers from 0, in the order of first appearance, as most tools expect.
    #[default]
    Numbers,
    /// References of the bundle.
    References,
}

/// A file that has no name yet, and vanishes unless it gets one.
pub(crate) struct Growing {
    path: PathBuf,
    partial: TempPath,
    file: BufWriter<File>,
    guarded: u64,
}

/// A file that lacks only its name.
#[must_use]
pub(crate) struct Whole {
    path: PathBuf,
    partial: TempPath,
    /// Cells that got an apostrophe.
    guarded: u64,
}

impl Growing {
    pub(crate) fn create(path: PathBuf) -> Result<Self, Fault> {
        let partial = beside(&path, ".partial");
        let failed = |error| Fault::io("writing", &partial, error);
        let file = fresh(&partial).map_err(failed)?;
        let partial = TempPath::try_from_path(&partial).map_err(failed)?;
        Ok(Self { path, partial, file: BufWriter::with_capacity(1 << 18, file), guarded: 0 })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.file.write_all(bytes).map_err(|error| Fault::io("writing", &self.partial, error))
    }

    pub(crate) fn finish(self) -> Result<Whole, Fault> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.map_err(|error| Fault::io("writing", &self.partial, error))?;
        Ok(Whole { path: self.path, partial: self.partial, guarded: self.guarded })
    }

    fn inner(&mut self) -> &mut BufWriter<File> {
        &mut self.file
    }
}

/// Gives files their names, once all of them are whole; tells which.
pub(crate) fn publish(files: Vec<Whole>) -> Result<Vec<PathBuf>, Fault> {
    let named = files.into_iter().map(|Whole { path, partial, .. }| {
        output::publish(&partial, &path)?;
        Ok(path)
    });
    named.collect()
}

/// Result of an export.
pub(crate) struct Exported {
    pub(crate) files: Vec<PathBuf>,
    /// Notes about content that the format leaves out.
    pub(crate) notes: Vec<String>,
}

/// Turns the bundle into files of a folder; tells which. `memory` is for what has to be put in another order.
pub(crate) fn export(
    bundle: &Path,
    folder: &Path,
    shape: Shape,
    cells: Cells,
    voters: VoterIds,
    memory: usize,
    meter: &Meter,
) -> Result<Exported, Fault> {
    let new = !folder.exists();
    fs::create_dir_all(folder).map_err(|error| Fault::io("making the folder", folder, error))?;
    let named = |name: &str| folder.join(name);
    let whole = |files: Vec<Whole>| (files, Vec::new());
    let with_card = |(mut files, notes): (Vec<Whole>, Vec<String>)| {
        files.push(card(bundle, named(CARD), meter)?);
        Ok((files, notes))
    };
    let written = match shape {
        Shape::PolisCsv => polis_csv::write(bundle, folder, cells, voters, memory, meter),
        Shape::SensemakingCsv => sensemaking_csv::write(bundle, named(sensemaking_csv::FILE), cells, meter),
        Shape::Ndjson => ndjson::write(bundle, named, meter).map(whole).and_then(with_card),
        Shape::Parquet => parquet::write(bundle, named, meter).and_then(with_card),
    };
    let published = written.and_then(|(files, mut notes)| {
        notes.extend(guarded(files.iter().map(|file| file.guarded).sum()));
        // From here on it takes no time.
        meter.go_on()?;
        Ok(Exported { files: publish(files)?, notes })
    });
    if published.is_err() && new {
        // It stays if there is something in it after all.
        let _left = fs::remove_dir(folder);
    }
    published
}

fn guarded(cells: u64) -> Option<String> {
    let (told, begin) = (counted(cells, "cell"), if cells == 1 { "begins" } else { "begin" });
    (cells > 0).then(|| {
        format!(
            "{told} {begin} with an apostrophe that was put there, for a spreadsheet would compute what stands behind it: \
             --exact-cells leaves it out."
        )
    })
}

/// Number of times that the bundle is read.
pub(crate) fn readings(shape: Shape) -> u64 {
    match shape {
        Shape::SensemakingCsv => 1,
        Shape::PolisCsv | Shape::Ndjson | Shape::Parquet => 2,
    }
}

/// The files that a shape has, or may have.
pub(crate) fn names(shape: Shape) -> Vec<&'static str> {
    let with_card = |files: &[&'static str]| [files, &[CARD]].concat();
    match shape {
        Shape::PolisCsv => polis_csv::FILES.to_vec(),
        Shape::SensemakingCsv => vec![sensemaking_csv::FILE],
        Shape::Ndjson => with_card(&ndjson::FILES),
        Shape::Parquet => with_card(&parquet::FILES),
    }
}

const CARD: &str = "card.json";

/// One row of a table. What a spreadsheet would take for a formula gets an apostrophe wherever it stands: of ids, names
/// and references nobody knows who has made them up.
pub(crate) fn csv_row(file: &mut Growing, row: &[&str], cells: Cells) -> Result<(), Fault> {
    let mut line = Vec::new();
    for (at, cell) in row.iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        let is_guarded = cells == Cells::Guarded && is_formula(cell);
        file.guarded += u64::from(is_guarded);
        let guard = if is_guarded { "'" } else { "" };
        // Some spreadsheets part cells at semicolons or tabs.
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

/// Also behind apostrophes, so that no two cells become one. A disagreement (`-1`) is a number.
fn is_formula(cell: &str) -> bool {
    cell != "-1" && cell.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r', '\n'])
}

/// Everything but the lists, so that what a bundle says of itself goes along.
pub(crate) fn card(bundle_path: &Path, path: PathBuf, meter: &Meter) -> Result<Whole, Fault> {
    let rest = read::bundle(bundle_path, &mut (), meter)?;
    let mut text =
        serde_json::to_vec_pretty(&rest).map_err(|error| Fault::io("writing", &path, error.into()))?;
    text.push(b'\n');
    let mut file = Growing::create(path)?;
    file.write(&text)?;
    file.finish()
}
