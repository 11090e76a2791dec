//! Writes rows to one file or stream.

use std::{fmt, fs::File, path::PathBuf, sync::Arc};

use tidegate_history::Value;

use super::{
    ColumnSelection,
    csv::CsvFormatter,
    names::{FlatFormat, file_name},
    ndjson::NdjsonFormatter,
    output_file::{FileSummary, OutputFile, UnpublishedFile},
    parquet::ParquetWriter,
    row_check::check_row,
};
use crate::{
    error::{ConvertError, ErrorKind},
    tables::Cells,
};

/// Target of one file of rows.
#[derive(Clone, Debug)]
pub enum SinkTarget {
    /// The file has this name only when it is complete.
    File(PathBuf),
    /// Standard output, or another stream.
    Stream(Arc<File>),
}

#[derive(Clone, Debug)]
pub struct SinkOptions {
    pub target: SinkTarget,
    pub format: FlatFormat,
    pub columns: ColumnSelection,
    /// Treatment of texts in CSV that a spreadsheet could execute. Other formats ignore it.
    pub cells: Cells,
}

/// Writer of one file of rows. Dropped without [`RowSink::finish`], it leaves no file.
#[derive(Debug)]
pub struct RowSink {
    writer: RowWriter,
    columns: ColumnSelection,
    rows: u64,
}

enum RowWriter {
    Ndjson(OutputFile, NdjsonFormatter),
    Csv(OutputFile, CsvFormatter),
    Parquet(Box<ParquetWriter>),
}

impl RowSink {
    pub fn open(options: SinkOptions) -> Result<Self, ConvertError> {
        let SinkOptions { target, format, columns, cells } = options;
        let file = match target {
            SinkTarget::File(path) => OutputFile::create(&path, &file_name(&path))?,
            SinkTarget::Stream(stream) => OutputFile::to_stream(&stream)?,
        };
        Self::on_file(file, format, columns, cells)
    }

    pub(super) fn on_file(
        mut file: OutputFile,
        format: FlatFormat,
        columns: ColumnSelection,
        cells: Cells,
    ) -> Result<Self, ConvertError> {
        let writer = match format {
            FlatFormat::Ndjson => RowWriter::Ndjson(file, NdjsonFormatter::new(&columns)),
            FlatFormat::Csv => {
                let formatter = CsvFormatter::new(&columns, cells, file.buffer());
                RowWriter::Csv(file, formatter)
            }
            FlatFormat::Parquet => RowWriter::Parquet(Box::new(ParquetWriter::new(file, &columns)?)),
        };
        Ok(Self { writer, columns, rows: 0 })
    }

    /// Writes the selected values of a row. The row has a value for every column, selected or not.
    pub fn write_row(&mut self, row: &[Value<'_>]) -> Result<(), ConvertError> {
        self.rows += 1;
        check_row(&self.columns, row).map_err(|detail| self.row_error(detail))?;
        match &mut self.writer {
            RowWriter::Ndjson(file, formatter) => {
                formatter.write_row(row, file.buffer());
                file.write_full_buffer()
            }
            RowWriter::Csv(file, formatter) => {
                formatter.write_row(row, file.buffer());
                file.write_full_buffer()
            }
            RowWriter::Parquet(writer) => writer.write_row(row),
        }
    }

    #[cold]
    fn row_error(&self, detail: String) -> ConvertError {
        ConvertError::content(self.name(), self.rows, ErrorKind::Value, detail)
    }

    fn name(&self) -> &str {
        match &self.writer {
            RowWriter::Ndjson(file, _) | RowWriter::Csv(file, _) => file.name(),
            RowWriter::Parquet(writer) => writer.name(),
        }
    }

    /// Syncs the file, and gives it its final name.
    pub fn finish(self) -> Result<FileSummary, ConvertError> {
        self.finish_unpublished()?.publish()
    }

    /// Syncs the file, which keeps its temporary name until it is published.
    pub(super) fn finish_unpublished(self) -> Result<UnpublishedFile, ConvertError> {
        match self.writer {
            RowWriter::Ndjson(file, _) | RowWriter::Csv(file, _) => file.finish(self.rows),
            RowWriter::Parquet(writer) => writer.finish(self.rows),
        }
    }
}

impl fmt::Debug for RowWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ndjson(..) => "Ndjson",
            Self::Csv(..) => "Csv",
            Self::Parquet(_) => "Parquet",
        })
    }
}
