//! Items and responses as Parquet, for databases.
//!
//! Outcomes have members of any kind and stay JSON.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{WriterProperties, WriterPropertiesPtr},
        writer::SerializedFileWriter,
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};

use super::{
    Growing, Whole,
    read::{Item, Reader, Response, bundle},
};
use crate::{fault::Fault, moment::Moment};

const ITEMS: &str = "message items {
    required binary id (UTF8); required binary phaseId (UTF8); required binary type (UTF8);
    required binary text (UTF8); required binary status (UTF8); required binary origin (UTF8);
    optional int64 createdAt (TIMESTAMP(MILLIS,true)); }";

const RESPONSES: &str = "message responses {
    required binary id (UTF8); required binary phaseId (UTF8); required binary subjectRef (UTF8);
    optional binary objectRef (UTF8); optional binary participantRef (UTF8); required binary response (UTF8);
    required int64 count; optional int64 occurredAt (TIMESTAMP(MILLIS,true)); }";

/// Rows of a row group: what is held in memory at a time.
const GROUP: usize = 65_536;

/// A column that grows until its row group is written.
enum Column {
    Text(Vec<ByteArray>),
    MaybeText(Vec<ByteArray>, Vec<i16>),
    Whole(Vec<i64>),
    MaybeTime(Vec<i64>, Vec<i16>),
}

impl Column {
    fn text(&mut self, text: String) {
        if let Self::Text(values) = self {
            values.push(text.into_bytes().into());
        }
    }

    fn maybe_text(&mut self, text: Option<String>) {
        if let Self::MaybeText(values, levels) = self {
            levels.push(i16::from(text.is_some()));
            values.extend(text.map(|text| ByteArray::from(text.into_bytes())));
        }
    }

    fn whole(&mut self, value: u64) {
        if let Self::Whole(values) = self {
            values.push(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    fn time(&mut self, text: Option<&str>) {
        if let Self::MaybeTime(values, levels) = self {
            let at = text.and_then(Moment::parse);
            levels.push(i16::from(at.is_some()));
            values.extend(at.map(|at| at.millis));
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Text(values) => values.clear(),
            Self::Whole(values) => values.clear(),
            Self::MaybeText(values, levels) => {
                values.clear();
                levels.clear();
            }
            Self::MaybeTime(values, levels) => {
                values.clear();
                levels.clear();
            }
        }
    }
}

fn text() -> Column {
    Column::Text(Vec::new())
}

fn time() -> Column {
    Column::MaybeTime(Vec::new(), Vec::new())
}

fn maybe_text() -> Column {
    Column::MaybeText(Vec::new(), Vec::new())
}

struct Table<'t> {
    writer: SerializedFileWriter<&'t mut BufWriter<File>>,
    columns: Vec<Column>,
    rows: usize,
}

struct Tables<'t> {
    items: Table<'t>,
    responses: Table<'t>,
}

pub(crate) const FILES: [&str; 2] = ["items.parquet", "responses.parquet"];

/// `named` makes paths of the names of the files.
pub(crate) fn write(from: &Path, named: impl Fn(&str) -> PathBuf) -> Result<Vec<Whole>, Fault> {
    let [items, responses] = FILES.map(|name| Growing::create(named(name)));
    let (mut items, mut responses) = (items?, responses?);
    fill(from, &mut items, &mut responses)?;
    Ok(vec![items.finish()?, responses.finish()?])
}

fn fill(from: &Path, items: &mut Growing, responses: &mut Growing) -> Result<(), Fault> {
    let item_columns = vec![text(), text(), text(), text(), text(), text(), time()];
    let response_columns =
        vec![text(), text(), text(), maybe_text(), maybe_text(), text(), Column::Whole(Vec::new()), time()];
    let mut tables = Tables {
        items: Table::new(items, ITEMS, item_columns)?,
        responses: Table::new(responses, RESPONSES, response_columns)?,
    };
    bundle(from, &mut tables)?;
    tables.items.finish()?;
    tables.responses.finish()
}

fn properties() -> WriterPropertiesPtr {
    Arc::new(
        WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            // The name of the program would change the bytes with every release.
            .set_created_by("tidegate".to_owned())
            // Ids are all different: a dictionary of them would only be filled in vain.
            .set_column_dictionary_enabled(ColumnPath::from("id"), false)
            .build(),
    )
}

fn failed(error: ParquetError) -> Fault {
    Fault::Io { doing: "writing Parquet".to_owned(), error: std::io::Error::other(error) }
}

impl<'t> Table<'t> {
    fn new(file: &'t mut Growing, schema: &str, columns: Vec<Column>) -> Result<Self, Fault> {
        let schema = parse_message_type(schema).map_err(failed)?;
        let writer =
            SerializedFileWriter::new(file.inner(), Arc::new(schema), properties()).map_err(failed)?;
        Ok(Self { writer, columns, rows: 0 })
    }

    fn row(&mut self) -> Result<(), Fault> {
        self.rows += 1;
        if self.rows == GROUP { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            let Some(mut into) = group.next_column().map_err(failed)? else { break };
            let written = match column {
                Column::Text(values) => into.typed::<ByteArrayType>().write_batch(values, None, None),
                Column::MaybeText(values, levels) => {
                    into.typed::<ByteArrayType>().write_batch(values, Some(levels), None)
                }
                Column::Whole(values) => into.typed::<Int64Type>().write_batch(values, None, None),
                Column::MaybeTime(values, levels) => {
                    into.typed::<Int64Type>().write_batch(values, Some(levels), None)
                }
            };
            written.map_err(failed)?;
            into.close().map_err(failed)?;
            column.clear();
        }
        group.close().map_err(failed)?;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<(), Fault> {
        self.flush()?;
        self.writer.close().map(drop).map_err(failed)
    }
}

impl Reader for Tables<'_> {
    const ITEMS: bool = true;
    const RESPONSES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), Fault> {
        let table = &mut self.items;
        let created = item.created_at;
        let texts = [item.id, item.phase_id, item.kind, item.text, item.status, item.origin];
        table.columns.iter_mut().zip(texts).for_each(|(column, text)| column.text(text));
        table.columns[6].time(created.as_deref());
        table.row()
    }

    fn response(&mut self, response: Response) -> Result<(), Fault> {
        let table = &mut self.responses;
        let columns = &mut table.columns;
        columns[0].text(response.id);
        columns[1].text(response.phase_id);
        columns[2].text(response.subject_ref);
        columns[3].maybe_text(response.object_ref);
        columns[4].maybe_text(response.participant_ref);
        columns[5].text(response.response);
        columns[6].whole(response.count);
        columns[7].time(response.occurred_at.as_deref());
        table.row()
    }
}
