//! Leaf of a Parquet schema: values of one type with their definition and repetition levels.

use bytes::Bytes;
use parquet::{
    data_type::{BoolType, ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::writer::SerializedColumnWriter,
};
use tidegate_history::{ColumnType, Value};

/// Bytes of texts passed to the encoder at once. The encoder checks the size of its page only between such chunks, and
/// texts can have megabytes each.
const CHUNK_BYTES: usize = 1 << 20;
/// Levels passed to the encoder at once.
const CHUNK_LEVELS: usize = 8_192;

/// Buffered values of a leaf.
#[derive(Debug)]
pub(super) struct Leaf {
    values: LeafValues,
    /// Empty if all rows have a value.
    definitions: Vec<i16>,
    /// Empty outside of lists.
    repetitions: Vec<i16>,
    /// Definition level of a present value.
    value_level: i16,
    is_repeated: bool,
}

#[derive(Debug)]
enum LeafValues {
    /// Concatenated texts and the length of each.
    Texts {
        bytes: Vec<u8>,
        lengths: Vec<usize>,
    },
    Integers(Vec<i64>),
    Booleans(Vec<bool>),
}

impl Leaf {
    pub(super) fn new(column_type: ColumnType, value_level: i16, is_repeated: bool) -> Self {
        let values = match column_type {
            ColumnType::Integer | ColumnType::Time => LeafValues::Integers(Vec::new()),
            ColumnType::Boolean => LeafValues::Booleans(Vec::new()),
            ColumnType::Text | ColumnType::Texts | ColumnType::Structs(_) => {
                LeafValues::Texts { bytes: Vec::new(), lengths: Vec::new() }
            }
        };
        Self { values, definitions: Vec::new(), repetitions: Vec::new(), value_level, is_repeated }
    }

    /// Appends a value, and returns the bytes that it takes. `null_level` is the definition level of null.
    #[inline]
    pub(super) fn push(&mut self, value: &Value<'_>, null_level: i16, repetition: i16) -> usize {
        match (&mut self.values, value) {
            (LeafValues::Texts { .. }, Value::Text(text)) => return self.push_text(text, repetition),
            (LeafValues::Integers(integers), Value::Integer(integer)) => integers.push(*integer),
            (LeafValues::Integers(integers), Value::Time(time)) => integers.push(time.0),
            (LeafValues::Booleans(booleans), Value::Boolean(boolean)) => booleans.push(*boolean),
            // `row_check` accepts only null besides the type of the column.
            _ => return self.push_null(null_level, repetition),
        }
        size_of::<i64>() + self.push_levels(self.value_level, repetition)
    }

    #[inline]
    pub(super) fn push_text(&mut self, text: &str, repetition: i16) -> usize {
        if let LeafValues::Texts { bytes, lengths } = &mut self.values {
            bytes.extend_from_slice(text.as_bytes());
            lengths.push(text.len());
        }
        text.len() + size_of::<usize>() + self.push_levels(self.value_level, repetition)
    }

    /// Appends an entry without a value: null or an empty list.
    #[inline]
    pub(super) fn push_null(&mut self, level: i16, repetition: i16) -> usize {
        self.push_levels(level, repetition)
    }

    #[inline]
    fn push_levels(&mut self, definition: i16, repetition: i16) -> usize {
        let mut bytes = 0;
        if self.value_level > 0 {
            self.definitions.push(definition);
            bytes += size_of::<i16>();
        }
        if self.is_repeated {
            self.repetitions.push(repetition);
            bytes += size_of::<i16>();
        }
        bytes
    }

    /// Writes the column chunk, and empties the buffer.
    pub(super) fn write(&mut self, mut writer: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let definitions = (self.value_level > 0).then_some(self.definitions.as_slice());
        let repetitions = self.is_repeated.then_some(self.repetitions.as_slice());
        match &mut self.values {
            LeafValues::Texts { bytes, lengths } => {
                // Values are slices of one buffer.
                let text_bytes = Bytes::from(std::mem::take(bytes));
                let chunks = Chunks {
                    lengths,
                    definitions,
                    repetitions,
                    value_level: self.value_level,
                    end: ChunkEnd::default(),
                };
                let mut start = ChunkEnd::default();
                let mut values = Vec::with_capacity(CHUNK_LEVELS);
                for end in chunks {
                    let mut value_start = start.bytes;
                    values.extend(lengths[start.values..end.values].iter().map(|length| {
                        let value_end = value_start + length;
                        ByteArray::from(
                            text_bytes.slice(std::mem::replace(&mut value_start, value_end)..value_end),
                        )
                    }));
                    writer.typed::<ByteArrayType>().write_batch(
                        &values,
                        definitions.map(|levels| &levels[start.levels..end.levels]),
                        repetitions.map(|levels| &levels[start.levels..end.levels]),
                    )?;
                    values.clear();
                    start = end;
                }
                writer.close()?;
                // The encoder has dropped its slices, so this takes the allocation back for the next row group.
                *bytes = Vec::from(text_bytes);
                bytes.clear();
                lengths.clear();
            }
            LeafValues::Integers(values) => {
                writer.typed::<Int64Type>().write_batch(values, definitions, repetitions)?;
                writer.close()?;
                values.clear();
            }
            LeafValues::Booleans(values) => {
                writer.typed::<BoolType>().write_batch(values, definitions, repetitions)?;
                writer.close()?;
                values.clear();
            }
        }
        self.definitions.clear();
        self.repetitions.clear();
        Ok(())
    }
}

/// End of a chunk, as counts from the start of the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct ChunkEnd {
    levels: usize,
    values: usize,
    bytes: usize,
}

/// Splits the texts of a leaf at row boundaries into chunks of limited size.
struct Chunks<'l> {
    lengths: &'l [usize],
    definitions: Option<&'l [i16]>,
    repetitions: Option<&'l [i16]>,
    value_level: i16,
    end: ChunkEnd,
}

impl Iterator for Chunks<'_> {
    type Item = ChunkEnd;

    fn next(&mut self) -> Option<ChunkEnd> {
        let level_count = self.definitions.map_or(self.lengths.len(), <[i16]>::len);
        let (start, mut end) = (self.end, self.end);
        while end.levels < level_count {
            let is_full = end.levels - start.levels >= CHUNK_LEVELS || end.bytes - start.bytes >= CHUNK_BYTES;
            // A row with a long list stays in one chunk.
            if is_full && self.repetitions.is_none_or(|repetitions| repetitions[end.levels] == 0) {
                break;
            }
            if self.definitions.is_none_or(|definitions| definitions[end.levels] == self.value_level) {
                end.bytes += self.lengths[end.values];
                end.values += 1;
            }
            end.levels += 1;
        }
        self.end = end;
        (end.levels > start.levels).then_some(end)
    }
}
