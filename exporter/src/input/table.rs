//! Reads the rows of a CSV table with named columns, in bounded memory and checked for UTF-8.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

use csv::{ByteRecord, ReaderBuilder};

use super::{FileDigest, Limits, Stream, quotes::QuoteChecker};
use crate::error::{ConvertError, ErrorKind};

/// Table with columns found by name, never by position.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    reader: csv::Reader<BoundedReader>,
    bytes_since_row: Rc<Cell<usize>>,
    record: ByteRecord,
    row: u64,
}

/// Row of a table; the header is row 1.
pub(crate) struct Row<'t> {
    pub(crate) table: &'t str,
    pub(crate) number: u64,
    record: &'t ByteRecord,
}

/// Reader that fails if a row exceeds the limit or its quotes are unbalanced.
struct BoundedReader {
    inner: Stream,
    quotes: QuoteChecker,
    bytes_since_row: Rc<Cell<usize>>,
    limit: usize,
    has_started: bool,
}

impl Read for BoundedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = self.inner.read(buffer)?;
        if !self.has_started && count > 0 {
            self.has_started = true;
            // A byte order mark would become part of the first column name.
            if buffer[..count].starts_with(b"\xef\xbb\xbf") {
                buffer.copy_within(3..count, 0);
                count -= 3;
                if count == 0 {
                    count = self.inner.read(buffer)?;
                }
            }
        }
        let file = &self.inner.name;
        let quote_check =
            if count == 0 { self.quotes.finish(file) } else { self.quotes.check(file, &buffer[..count]) };
        quote_check.map_err(ConvertError::into_io)?;
        let row_bytes = self.bytes_since_row.get() + count;
        self.bytes_since_row.set(row_bytes);
        if row_bytes > self.limit {
            // `next` converts this to an error with the row number.
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(count)
    }
}

/// Error for cells beyond the header: the cells before them may be in wrong columns.
pub(crate) const EXTRA_CELLS: &str = "the row has more cells than the header";

pub(crate) const NOT_UTF8: &str = "it is not UTF-8; convert the file first";

const READ_AHEAD: usize = 64 << 10;

impl Table {
    /// Opens a table. Reads the column names if it has a header.
    pub(crate) fn open(stream: Stream, limits: &Limits, has_header: bool) -> Result<Self, ConvertError> {
        let name = stream.name.clone();
        let bytes_since_row = Rc::new(Cell::new(0));
        // The CSV reader fetches up to one buffer beyond the row.
        let limit = limits.max_row_bytes.saturating_add(READ_AHEAD);
        let bounded = BoundedReader {
            inner: stream,
            quotes: QuoteChecker::default(),
            bytes_since_row: Rc::clone(&bytes_since_row),
            limit,
            has_started: false,
        };
        let reader = ReaderBuilder::new()
            .has_headers(false)
            // Missing cells are reported when they are read.
            .flexible(true)
            .buffer_capacity(READ_AHEAD)
            .from_reader(bounded);
        let (record, row) = (ByteRecord::new(), 0);
        let mut table = Self { name, columns: Vec::new(), reader, bytes_since_row, record, row };
        if has_header {
            let Some(header) = table.next()? else {
                return Err(ConvertError::content(
                    &table.name,
                    1,
                    ErrorKind::MissingColumn,
                    "the file is empty",
                ));
            };
            let count = header.len();
            let columns: Result<Vec<_>, _> =
                (0..count).map(|at| header.text(at).map(|name| name.trim().to_owned())).collect();
            table.columns = columns?;
        }
        Ok(table)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Row<'_>>, ConvertError> {
        // Restarts the limit of the bounded reader for this row.
        self.bytes_since_row.set(0);
        let number = self.row + 1;
        let has_record =
            self.reader.read_byte_record(&mut self.record).map_err(|error| match error.into_kind() {
                csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    ConvertError::content(
                        &self.name,
                        number,
                        ErrorKind::LongRecord,
                        "the row is too long, or a quote is never closed (--max-record allows more)",
                    )
                }
                csv::ErrorKind::Io(error) => ConvertError::from_io(&self.name, error),
                kind => ConvertError::content(
                    &self.name,
                    number,
                    ErrorKind::Value,
                    format!("not readable as CSV: {kind:?}"),
                ),
            })?;
        if !has_record {
            return Ok(None);
        }
        self.row = number;
        if !self.columns.is_empty() && self.record.len() > self.columns.len() {
            return Err(ConvertError::content(&self.name, number, ErrorKind::Columns, EXTRA_CELLS));
        }
        // A NUL byte indicates a damaged or binary file.
        if memchr::memchr(0, self.record.as_slice()).is_some() {
            return Err(ConvertError::content(&self.name, number, ErrorKind::Nul, "it contains a NUL byte"));
        }
        Ok(Some(Row { table: &self.name, number, record: &self.record }))
    }

    /// Index of the first existing column among `names`.
    pub(crate) fn find(&self, names: &[&str]) -> Result<Option<usize>, ConvertError> {
        let mut matches =
            names.iter().filter_map(|name| find_column(&self.name, &self.columns, name).transpose());
        matches.next().transpose()
    }

    pub(crate) fn require(&self, names: &[&str]) -> Result<usize, ConvertError> {
        self.find(names)?.ok_or_else(|| missing_column(&self.name, &names.join(" or "), &self.columns))
    }

    /// Number of rows read, without the header.
    pub(crate) fn rows(&self) -> u64 {
        self.row - u64::from(!self.columns.is_empty())
    }

    pub(crate) fn finish(self) -> Result<FileDigest, ConvertError> {
        self.reader.into_inner().inner.finish()
    }
}

/// Number of columns listed in one message.
const MAX_LISTED_COLUMNS: usize = 20;
const MAX_NAME_CHARS: usize = 40;

/// Index of the column with this name; an error if two columns have it.
pub(crate) fn find_column(file: &str, columns: &[String], name: &str) -> Result<Option<usize>, ConvertError> {
    let mut same_named = columns.iter().enumerate().filter(|column| column.1.eq_ignore_ascii_case(name));
    match (same_named.next(), same_named.next()) {
        (Some((first, _)), Some((second, _))) => Err(repeated_column(file, name, first, second)),
        (first, _) => Ok(first.map(|(at, _)| at)),
    }
}

/// Error for a repeated column; messages count columns from 1.
pub(crate) fn repeated_column(file: &str, name: &str, first: usize, second: usize) -> ConvertError {
    let detail = format!("the columns {} and {} are both called {name}", first + 1, second + 1);
    ConvertError::content(file, 1, ErrorKind::Duplicate, detail)
}

/// Error for a missing column. Lists the existing ones, since the column may have been renamed.
pub(crate) fn missing_column(file: &str, expected: &str, columns: &[String]) -> ConvertError {
    if columns.iter().any(|column| column.contains(char::is_control)) {
        let detail =
            format!("the column {expected} is missing; the header may end with an unsupported line end");
        return ConvertError::content(file, 1, ErrorKind::MissingColumn, detail);
    }
    let name =
        |column: &String| column.chars().take(MAX_NAME_CHARS).collect::<String>().escape_debug().to_string();
    let mut names: Vec<_> = columns.iter().take(MAX_LISTED_COLUMNS).map(name).collect();
    if columns.len() > MAX_LISTED_COLUMNS {
        names.push(format!("and {} more", columns.len() - MAX_LISTED_COLUMNS));
    }
    let detail = format!("the column {expected} is missing; there are {}", names.join(", "));
    ConvertError::content(file, 1, ErrorKind::MissingColumn, detail)
}

impl Row<'_> {
    pub(crate) fn len(&self) -> usize {
        self.record.len()
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], ConvertError> {
        self.record
            .get(column)
            .ok_or_else(|| self.error(ErrorKind::MissingColumn, "the row has too few columns"))
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, ConvertError> {
        std::str::from_utf8(self.bytes(column)?).map_err(|_| self.error(ErrorKind::Encoding, NOT_UTF8))
    }

    /// Text of an optional column; empty if the column or cell is missing.
    pub(crate) fn optional_text(&self, column: Option<usize>) -> Result<&str, ConvertError> {
        match column {
            Some(column) if column < self.len() => self.text(column),
            _ => Ok(""),
        }
    }

    /// Parses a whole number; the error names the column.
    pub(crate) fn number<N: std::str::FromStr>(
        &self,
        column: usize,
        column_name: &str,
    ) -> Result<N, ConvertError> {
        let text = self.text(column)?.trim();
        text.parse()
            .map_err(|_| self.error(ErrorKind::Value, format!("{column_name} is not a number that fits")))
    }

    pub(crate) fn error(&self, kind: ErrorKind, detail: impl Into<String>) -> ConvertError {
        ConvertError::content(self.table, self.number, kind, detail)
    }
}

/// Parses a number in its only canonical spelling; other digits count as text.
pub(crate) fn canonical_number(key: &[u8]) -> Option<u64> {
    let is_canonical = match key {
        [b'0'] => true,
        [] | [b'0', ..] => false,
        // 18 digits always fit into 64 bits.
        digits => digits.len() <= 18,
    };
    if !is_canonical {
        return None;
    }
    key.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| sum * 10 + u64::from(digit))
    })
}
