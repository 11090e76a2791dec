//! Writes items and responses as Parquet.
//!
//! Outcomes have members of varying types and remain in the JSON.

use std::{
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{WriterProperties, WriterPropertiesPtr},
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};

use super::{FinishedFile, PartialFile};
use crate::{
    bundle::row_reader::{RowReceiver, read_rows},
    bundle::validate::Row,
    error::{ConvertError, ErrorKind},
    input::name_of,
    json::Number,
    meter::Meter,
    plural,
    timestamp::Timestamp,
};

// Columns in the order of the schema's fields.
const ITEMS: &str = "message items {
    required binary id (UTF8); required binary phaseId (UTF8); required binary type (UTF8);
    required binary text (UTF8); required binary status (UTF8); required binary origin (UTF8);
    optional int64 createdAt (TIMESTAMP(MILLIS,true)); }";

const RESPONSES: &str = "message responses {
    required binary id (UTF8); required binary phaseId (UTF8); required binary subjectRef (UTF8);
    optional binary objectRef (UTF8); optional binary participantRef (UTF8); required binary response (UTF8);
    required int64 count; optional int64 occurredAt (TIMESTAMP(MILLIS,true)); }";

/// Rows per row group. A row group is held in memory.
const GROUP_ROWS: usize = 65_536;

/// Column buffer of the current row group.
enum Column {
    /// Concatenated values, the end of each, and, for an optional column, a presence level per row.
    Texts {
        bytes: Vec<u8>,
        ends: Vec<usize>,
        levels: Option<Vec<i16>>,
    },
    Integers(Vec<i64>),
    OptionalTimes(Vec<i64>, Vec<i16>),
}

impl Column {
    /// Makes the column optional.
    fn optional(self) -> Self {
        match self {
            Self::Texts { bytes, ends, .. } => Self::Texts { bytes, ends, levels: Some(Vec::new()) },
            other => other,
        }
    }

    /// Appends a text. False if it is not a string, or missing in a required column.
    fn push_text(&mut self, row: &Row, field: usize) -> bool {
        let Self::Texts { bytes, ends, levels } = self else { return false };
        let text = row.text(field);
        // Present but not a string: the bundle is invalid.
        if text.is_none() && row.has(field) && !row.is_null(field) {
            return false;
        }
        if let Some(levels) = levels {
            levels.push(i16::from(text.is_some()));
        } else if text.is_none() {
            // A required text is missing or null: the bundle is invalid.
            return false;
        }
        if let Some(text) = text {
            bytes.extend_from_slice(text);
            ends.push(bytes.len());
        }
        true
    }

    /// Appends a count. `Some(false)` if it is not a whole number, `None` if it exceeds 64 bits.
    fn push_count(&mut self, number: Option<Number>) -> Option<bool> {
        let (Self::Integers(values), Some(number)) = (self, number) else { return Some(false) };
        values.push(i64::try_from(number.saturating_count()).ok()?);
        Some(number.is_whole)
    }

    /// Appends an optional time; false if the text is not a valid time.
    fn push_time(&mut self, text: Option<&[u8]>) -> bool {
        let Self::OptionalTimes(values, levels) = self else { return false };
        let time = text.and_then(|text| std::str::from_utf8(text).ok()).and_then(Timestamp::parse);
        levels.push(i16::from(time.is_some()));
        values.extend(time.map(|at| at.millis));
        text.is_none() || time.is_some()
    }

    fn write(&mut self, mut writer: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Texts { bytes, ends, levels } => {
                // Values are slices of one buffer. The next row group needs about as much memory.
                let shared_bytes = Bytes::from(std::mem::replace(bytes, Vec::with_capacity(bytes.len())));
                let mut start = 0;
                let values: Vec<ByteArray> = ends
                    .drain(..)
                    .map(|end| ByteArray::from(shared_bytes.slice(std::mem::replace(&mut start, end)..end)))
                    .collect();
                writer.typed::<ByteArrayType>().write_batch(&values, levels.as_deref(), None)?;
                levels.iter_mut().for_each(Vec::clear);
            }
            Self::Integers(values) => {
                writer.typed::<Int64Type>().write_batch(values, None, None)?;
                values.clear();
            }
            Self::OptionalTimes(values, levels) => {
                writer.typed::<Int64Type>().write_batch(values, Some(levels), None)?;
                values.clear();
                levels.clear();
            }
        }
        writer.close()
    }
}

fn text_column() -> Column {
    Column::Texts { bytes: Vec::new(), ends: Vec::new(), levels: None }
}

fn time_column() -> Column {
    Column::OptionalTimes(Vec::new(), Vec::new())
}

struct Table<'t> {
    writer: SerializedFileWriter<&'t mut BufWriter<File>>,
    columns: Vec<Column>,
    rows: usize,
    name: String,
}

struct Tables<'t> {
    items: Table<'t>,
    responses: Table<'t>,
    outcomes: u64,
    /// Name of the bundle's file.
    name: String,
}

pub(crate) const FILES: [&str; 2] = ["items.parquet", "responses.parquet"];

/// Writes the files, and returns notes about omitted content. `path_of` maps a file name to its path.
pub(crate) fn write(
    bundle_path: &Path,
    path_of: impl Fn(&str) -> PathBuf,
    meter: &Meter,
) -> Result<(Vec<FinishedFile>, Vec<String>), ConvertError> {
    let [items, responses] = FILES.map(|name| PartialFile::create(path_of(name)));
    let (mut items, mut responses) = (items?, responses?);
    let outcomes = write_tables(bundle_path, &mut items, &mut responses, meter)?;
    Ok((vec![items.finish()?, responses.finish()?], outcomes_note(outcomes).into_iter().collect()))
}

/// Note about omitted outcomes.
pub(crate) fn outcomes_note(outcomes: u64) -> Option<String> {
    let are = if outcomes == 1 { "is" } else { "are" };
    let outcomes = (outcomes > 0).then(|| plural::format_count(outcomes, "outcome"))?;
    Some(format!("Parquet files hold items and responses: {outcomes} {are} not in them."))
}

/// Writes both tables, and returns the number of outcomes in the bundle.
fn write_tables(
    bundle_path: &Path,
    items: &mut PartialFile,
    responses: &mut PartialFile,
    meter: &Meter,
) -> Result<u64, ConvertError> {
    let item_columns = vec![
        text_column(),
        text_column(),
        text_column(),
        text_column(),
        text_column(),
        text_column(),
        time_column(),
    ];
    let response_columns = vec![
        text_column(),
        text_column(),
        text_column(),
        text_column().optional(),
        text_column().optional(),
        text_column(),
        Column::Integers(Vec::new()),
        time_column(),
    ];
    let mut tables = Tables {
        items: Table::new(items, ITEMS, item_columns)?,
        responses: Table::new(responses, RESPONSES, response_columns)?,
        outcomes: 0,
        name: name_of(bundle_path),
    };
    read_rows(bundle_path, &mut tables, meter)?;
    tables.items.finish()?;
    tables.responses.finish()?;
    Ok(tables.outcomes)
}

fn properties() -> WriterPropertiesPtr {
    Arc::new(
        WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            // A name with a version would change the file with every release.
            .set_created_by("tidegate".to_owned())
            // Ids are unique, so a dictionary would only cost time.
            .set_column_dictionary_enabled(ColumnPath::from("id"), false)
            .build(),
    )
}

fn write_error(name: &str, error: ParquetError) -> ConvertError {
    ConvertError::Io { action: format!("writing {name}"), error: io::Error::other(error) }
}

impl<'t> Table<'t> {
    fn new(file: &'t mut PartialFile, schema: &str, columns: Vec<Column>) -> Result<Self, ConvertError> {
        let name = name_of(&file.partial);
        let writer = parse_message_type(schema)
            .and_then(|schema| SerializedFileWriter::new(file.inner(), Arc::new(schema), properties()))
            .map_err(|error| write_error(&name, error))?;
        Ok(Self { writer, columns, rows: 0, name })
    }

    /// Completes a row; all of its cells were appended.
    fn end_row(&mut self) -> Result<(), ConvertError> {
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ConvertError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut write = || {
            let mut group = self.writer.next_row_group()?;
            for column in &mut self.columns {
                if let Some(writer) = group.next_column()? {
                    column.write(writer)?;
                }
            }
            group.close().map(drop)
        };
        write().map_err(|error| write_error(&self.name, error))?;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<(), ConvertError> {
        self.flush()?;
        self.writer.close().map(drop).map_err(|error| write_error(&self.name, error))
    }
}

fn no_time_error(name: &str, list: &str, row: &Row, field: &str) -> ConvertError {
    let detail = format!("/{list}/{}: {field} is not a time of the years 0000 to 9999", row.index);
    ConvertError::content(name, None, ErrorKind::Value, detail)
}

impl RowReceiver for Tables<'_> {
    fn outcome(&mut self) {
        self.outcomes += 1;
    }

    fn item(&mut self, row: &Row) -> Result<bool, ConvertError> {
        let table = &mut self.items;
        // The first six fields are texts.
        let (texts, times) = table.columns.split_at_mut(6);
        let is_complete = texts.iter_mut().enumerate().all(|(field, column)| column.push_text(row, field));
        if !times[0].push_time(row.text(6)) {
            return Err(no_time_error(&self.name, "items", row, "createdAt"));
        }
        if is_complete { table.end_row().map(|()| true) } else { Ok(false) }
    }

    fn response(&mut self, row: &Row) -> Result<bool, ConvertError> {
        let table = &mut self.responses;
        let (texts, numbers) = table.columns.split_at_mut(6);
        let mut is_complete =
            texts.iter_mut().enumerate().all(|(field, column)| column.push_text(row, field));
        let Some(is_count) = numbers[0].push_count(row.number(6)) else {
            let (index, max) = (row.index, i64::MAX);
            let detail =
                format!("/responses/{index}: its count is more than {max}, the most that Parquet holds");
            return Err(ConvertError::content(&self.name, None, ErrorKind::Value, detail));
        };
        is_complete &= is_count;
        if !numbers[1].push_time(row.text(7)) {
            return Err(no_time_error(&self.name, "responses", row, "occurredAt"));
        }
        if is_complete { table.end_row().map(|()| true) } else { Ok(false) }
    }
}
