//! Writes rows as Parquet. Values are buffered by column, because a row group holds its columns one after another.

mod column_buffer;
mod leaf;
mod schema;

use std::{io, sync::Arc};

use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use tidegate_history::{ColumnType, Value};

use self::{column_buffer::ColumnBuffer, schema::message_text};
use super::{
    ColumnSelection,
    output_file::{OutputFile, UnpublishedFile},
};
use crate::error::ConvertError;

/// Maximum rows of a row group.
const GROUP_ROWS: usize = 1 << 20;
/// Bytes of buffered values at which a row group ends early.
const GROUP_BYTES: usize = 64 << 20;

/// Writer of one Parquet file.
pub(super) struct ParquetWriter {
    writer: SerializedFileWriter<OutputFile>,
    /// Columns with their positions in rows.
    columns: Vec<(usize, ColumnBuffer)>,
    buffered_rows: usize,
    buffered_bytes: usize,
    name: String,
}

impl ParquetWriter {
    pub(super) fn new(file: OutputFile, selection: &ColumnSelection) -> Result<Self, ConvertError> {
        let name = file.name().to_owned();
        let writer = parse_message_type(&message_text(selection.columns()))
            .and_then(|schema| {
                SerializedFileWriter::new(file, Arc::new(schema), properties(selection).into())
            })
            .map_err(|error| unwrap_error(&name, error))?;
        let columns =
            selection.iter().map(|(column, position)| (position, ColumnBuffer::new(column))).collect();
        Ok(Self { writer, columns, buffered_rows: 0, buffered_bytes: 0, name })
    }

    /// Name of the file in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Buffers a row that `row_check` has accepted.
    pub(super) fn write_row(&mut self, row: &[Value<'_>]) -> Result<(), ConvertError> {
        for (position, column) in &mut self.columns {
            self.buffered_bytes += column.push(&row[*position]);
        }
        self.buffered_rows += 1;
        if self.buffered_rows == GROUP_ROWS || self.buffered_bytes >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), ConvertError> {
        if self.buffered_rows == 0 {
            return Ok(());
        }
        let mut write = || {
            let mut group = self.writer.next_row_group()?;
            for (_, column) in &mut self.columns {
                for leaf in column.leaves_mut() {
                    let writer = group.next_column()?;
                    leaf.write(writer.ok_or_else(|| ParquetError::General("missing column".to_owned()))?)?;
                }
            }
            group.close().map(drop)
        };
        write().map_err(|error| unwrap_error(&self.name, error))?;
        (self.buffered_rows, self.buffered_bytes) = (0, 0);
        Ok(())
    }

    pub(super) fn finish(mut self, rows: u64) -> Result<UnpublishedFile, ConvertError> {
        self.write_group()?;
        let file = self.writer.into_inner().map_err(|error| unwrap_error(&self.name, error))?;
        file.finish(rows)
    }
}

fn properties(selection: &ColumnSelection) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // A name with a version would change the file with every release.
        .set_created_by("tidegate".to_owned())
        // The metadata of a file is held in memory until its end. The bounds of a text would keep the buffer that the
        // text is a slice of, and ids in random order cannot be selected by bounds.
        .set_statistics_enabled(EnabledStatistics::None);
    for (column, position) in selection.iter() {
        let path = ColumnPath::from(column.name);
        if matches!(column.column_type, ColumnType::Time | ColumnType::Integer | ColumnType::Boolean) {
            properties = properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::Page);
        }
        if column.column_type == ColumnType::Time {
            properties = properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        // Row ids and times hardly repeat, so a dictionary would only cost time.
        if column.column_type == ColumnType::Time || position == 0 {
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    properties.build()
}

/// Returns the error of the output file, or wraps an error of the format.
fn unwrap_error(name: &str, error: ParquetError) -> ConvertError {
    let error = match error {
        ParquetError::External(error) => {
            error.downcast::<io::Error>().map_or_else(io::Error::other, |error| *error)
        }
        error => io::Error::other(error),
    };
    match error.downcast::<ConvertError>() {
        Ok(error) => error,
        Err(error) => ConvertError::Io { action: format!("writing {name}"), error },
    }
}
