//! Export of one dataset to a file, a stream or a folder, with its manifest.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use tidegate_history::{Column, Dataset, Part, Value};
use tidegate_schemas::ids::Millis;

use super::{
    ColumnSelection, FlatFormat, MANIFEST_VERSION, Manifest, ManifestColumn, Partition, RowFilter, RowSink,
    dsa::{self, StatementMapper},
    folder::ExportFolder,
    manifest::format_time,
    names::{file_name, part_option},
    output_file::{OutputFile, UnpublishedFile},
};
use crate::{
    error::{ConvertError, ErrorKind},
    tables::Cells,
    timestamp::{MAX_MILLIS, MIN_MILLIS},
};

/// Position of the time by which rows are sorted and partitioned.
const TIME_POSITION: usize = 1;

/// Target of an export.
#[derive(Clone, Debug)]
pub enum ExportTarget {
    /// One file without a manifest beside it.
    File(PathBuf),
    /// Standard output, or another stream.
    Stream(Arc<File>),
    Folder {
        path: PathBuf,
        partition: Partition,
    },
}

#[derive(Clone, Debug)]
pub struct ExportOptions {
    pub dataset: Dataset,
    pub target: ExportTarget,
    pub format: FlatFormat,
    /// Written columns, see [`ExportOptions::select_columns`].
    pub columns: ColumnSelection,
    /// Conditions on rows of the dataset.
    pub filter: RowFilter,
    /// Writes statements of reasons instead of the dataset's rows.
    pub dsa: bool,
    /// Treatment of texts in CSV that a spreadsheet could execute.
    pub cells: Cells,
    pub part: Part,
    /// First instant of the range.
    pub since: Millis,
    /// End of the range, exclusive.
    pub until: Millis,
    /// Replaces a finished export.
    pub force: bool,
}

/// Result of an export.
#[derive(Clone, Debug)]
pub struct ExportSummary {
    pub manifest: Manifest,
    /// Path of the manifest, for a folder.
    pub manifest_path: Option<PathBuf>,
}

/// Running export. Dropped without [`Export::finish`], it leaves no file under a final name.
#[derive(Debug)]
pub struct Export {
    // Open and finished files are dropped before the folder, which removes empty folders.
    sink: Option<RowSink>,
    finished_files: Vec<UnpublishedFile>,
    folder: Option<ExportFolder>,
    /// Day of the open file.
    day: Option<i64>,
    partition: Partition,
    filter: RowFilter,
    mapper: Option<StatementMapper>,
    columns: ColumnSelection,
    cells: Cells,
    /// Manifest without files.
    manifest: Manifest,
    rows: u64,
}

impl ExportOptions {
    /// Options for all rows of a dataset, without a filter or profile.
    pub fn new(dataset: Dataset, target: ExportTarget, format: FlatFormat) -> Self {
        Self {
            dataset,
            target,
            format,
            columns: ColumnSelection::default_of(dataset),
            filter: RowFilter::default(),
            dsa: false,
            cells: Cells::Exact,
            part: Part::WHOLE,
            since: Millis(MIN_MILLIS),
            until: Millis(MAX_MILLIS),
            force: false,
        }
    }

    /// Selects the columns of `--columns`, or all by default: of statements if `dsa` is set, otherwise of the dataset.
    pub fn select_columns(&mut self, list: Option<&str>) -> Result<(), ConvertError> {
        let columns = if self.dsa { dsa::columns(self.dataset)? } else { self.dataset.columns() };
        self.columns = match list {
            Some(list) => ColumnSelection::parse(columns, list)?,
            None if self.dsa => ColumnSelection::all(columns),
            None => ColumnSelection::default_of(self.dataset),
        };
        Ok(())
    }

    fn check(&self) -> Result<(), ConvertError> {
        if self.since >= self.until {
            return Err(ConvertError::Refused(format!(
                "the time range is empty: --since {} is not before --until {}",
                format_time(self.since),
                format_time(self.until)
            )));
        }
        let is_folder = matches!(self.target, ExportTarget::Folder { .. });
        if self.part.count() > 1 && !is_folder {
            let part = part_option(self.part);
            return Err(ConvertError::Refused(format!("{part} needs a folder as output: name one with -o")));
        }
        if let ExportTarget::File(path) = &self.target {
            check_file(path, self.force)?;
        }
        Ok(())
    }

    fn manifest(&self) -> Manifest {
        let partition = match &self.target {
            ExportTarget::Folder { partition, .. } => *partition,
            ExportTarget::File(_) | ExportTarget::Stream(_) => Partition::Whole,
        };
        let unknown_fields = if self.dsa { dsa::UNKNOWN_FIELDS } else { &[] };
        Manifest {
            schema_version: MANIFEST_VERSION,
            dataset: self.dataset,
            profile: self.dsa.then(|| dsa::PROFILE.to_owned()),
            format: self.format,
            partition_by: partition,
            columns: self.columns.columns().iter().map(ManifestColumn::from).collect(),
            conditions: self.filter.texts(),
            since: format_time(self.since),
            until: format_time(self.until),
            parts: self.part.count(),
            part: (self.part.count() > 1).then(|| self.part.number()),
            rows: 0,
            bytes: 0,
            files: Vec::new(),
            unknown_fields: unknown_fields.iter().copied().map(str::to_owned).collect(),
        }
    }
}

fn check_file(path: &Path, force: bool) -> Result<(), ConvertError> {
    let name = file_name(path);
    if path.is_dir() {
        return Err(ConvertError::Refused(format!(
            "{name} is a folder: name a file, or add --partition-by day"
        )));
    }
    if path.exists() && !force {
        return Err(ConvertError::Refused(format!("{name} exists already: replace it with --force")));
    }
    Ok(())
}

impl Export {
    pub fn open(options: ExportOptions) -> Result<Self, ConvertError> {
        options.check()?;
        let mapper = options.dsa.then(|| StatementMapper::new(options.dataset)).transpose()?;
        let manifest = options.manifest();
        let folder = match &options.target {
            ExportTarget::Folder { path, .. } => {
                Some(ExportFolder::open(path, options.part, &manifest, options.force)?)
            }
            ExportTarget::File(_) | ExportTarget::Stream(_) => None,
        };
        let mut export = Self {
            sink: None,
            finished_files: Vec::new(),
            folder,
            day: None,
            partition: manifest.partition_by,
            filter: options.filter,
            mapper,
            columns: options.columns,
            cells: options.cells,
            manifest,
            rows: 0,
        };
        // Without a partition, an export of no rows is a file without rows.
        match &options.target {
            ExportTarget::File(path) => export.open_sink(OutputFile::create(path, &file_name(path))?)?,
            ExportTarget::Stream(stream) => export.open_sink(OutputFile::to_stream(stream)?)?,
            ExportTarget::Folder { partition: Partition::Whole, .. } => export.open_file(None)?,
            ExportTarget::Folder { partition: Partition::Day, .. } => {}
        }
        Ok(export)
    }

    fn open_sink(&mut self, file: OutputFile) -> Result<(), ConvertError> {
        self.sink = Some(RowSink::on_file(file, self.manifest.format, self.columns.clone(), self.cells)?);
        Ok(())
    }

    fn open_file(&mut self, day: Option<i64>) -> Result<(), ConvertError> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        let file = folder.create_file(day)?;
        self.open_sink(file)
    }

    /// Columns of the written rows.
    pub fn columns(&self) -> &[Column] {
        self.columns.columns()
    }

    /// Writes a row of the dataset, which has a value for every column. Returns false if the filter or the profile
    /// excludes the row. Rows must be in order of time if the export is partitioned by day.
    pub fn write_row(&mut self, row: &[Value<'_>]) -> Result<bool, ConvertError> {
        if !self.filter.matches(row) {
            return Ok(false);
        }
        let statement = match &self.mapper {
            Some(mapper) => match mapper.map_row(row) {
                Some(statement) => Some(statement),
                None => return Ok(false),
            },
            None => None,
        };
        if self.partition == Partition::Day {
            self.select_day(row)?;
        }
        if let Some(sink) = &mut self.sink {
            sink.write_row(statement.as_deref().unwrap_or(row))?;
        }
        self.rows += 1;
        Ok(true)
    }

    /// Opens the file of the row's day, unless it is open.
    fn select_day(&mut self, row: &[Value<'_>]) -> Result<(), ConvertError> {
        let day = match row.get(TIME_POSITION) {
            Some(Value::Time(time)) if (MIN_MILLIS..=MAX_MILLIS).contains(&time.0) => time.day(),
            _ => return Err(self.row_error("the row has no valid time")),
        };
        match self.day {
            Some(open_day) if open_day == day => return Ok(()),
            Some(open_day) if open_day > day => {
                return Err(self.row_error("the row is older than the day of the row before it"));
            }
            _ => self.close_file()?,
        }
        self.open_file(Some(day))?;
        self.day = Some(day);
        Ok(())
    }

    fn row_error(&self, detail: &str) -> ConvertError {
        let dataset = format!("dataset {}", self.manifest.dataset);
        ConvertError::content(&dataset, self.rows + 1, ErrorKind::Value, detail)
    }

    fn close_file(&mut self) -> Result<(), ConvertError> {
        if let Some(sink) = self.sink.take() {
            self.finished_files.push(sink.finish_unpublished()?);
        }
        Ok(())
    }

    /// Number of rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Gives all files their final names, and writes the manifest of a folder last.
    pub fn finish(mut self) -> Result<ExportSummary, ConvertError> {
        self.close_file()?;
        let (files, mut manifest) = (std::mem::take(&mut self.finished_files), self.manifest.clone());
        let manifest_path = match self.folder.take() {
            Some(folder) => Some(folder.publish(files, &mut manifest)?),
            None => {
                for file in files {
                    manifest.push_file(file.publish()?);
                }
                None
            }
        };
        Ok(ExportSummary { manifest, manifest_path })
    }
}
