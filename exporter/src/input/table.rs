//! Rows of a table with named columns, read in bounded memory and checked to be UTF-8.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

use csv::{ByteRecord, ReaderBuilder};

use super::{FileDigest, Limits, Stream, quotes::Quotes};
use crate::error::{ConvertError, ErrorKind};

/// A table whose columns are found by name, never by position.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    reader: csv::Reader<BoundedReader>,
    since_row: Rc<Cell<usize>>,
    record: ByteRecord,
    row: u64,
}

/// A row, whose number counts the header as the first.
pub(crate) struct Row<'t> {
    pub(crate) table: &'t str,
    pub(crate) number: u64,
    record: &'t ByteRecord,
}

/// Refuses to go on when too much was read for one row, or its quotes do not belong together.
struct BoundedReader {
    inner: Stream,
    quotes: Quotes,
    since_row: Rc<Cell<usize>>,
    limit: usize,
    begun: bool,
}

impl Read for BoundedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut count = self.inner.read(into)?;
        if !self.begun && count > 0 {
            self.begun = true;
            if into[..count].starts_with(b"\xef\xbb\xbf") {
                into.copy_within(3..count, 0);
                count -= 3;
                if count == 0 {
                    count = self.inner.read(into)?;
                }
            }
        }
        let file = &self.inner.name;
        let judged = if count == 0 { self.quotes.end(file) } else { self.quotes.pass(file, &into[..count]) };
        judged.map_err(ConvertError::into_io)?;
        let since = self.since_row.get() + count;
        self.since_row.set(since);
        if since > self.limit {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(count)
    }
}

/// Error for cells beyond the header: the cells before them may be in wrong columns.
pub(crate) const LONGER: &str = "the row has more cells than the header";

pub(crate) const NOT_UTF8: &str = "it is not UTF-8; convert the file first";

const READ_AHEAD: usize = 64 << 10;

impl Table {
    /// Reads the names of the columns; `named` is false for a table without a header.
    pub(crate) fn open(stream: Stream, limits: &Limits, named: bool) -> Result<Self, ConvertError> {
        let name = stream.name.clone();
        let since_row = Rc::new(Cell::new(0));
        let limit = limits.record.saturating_add(READ_AHEAD);
        let bounded = BoundedReader {
            inner: stream,
            quotes: Quotes::default(),
            since_row: Rc::clone(&since_row),
            limit,
            begun: false,
        };
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(READ_AHEAD)
            .from_reader(bounded);
        let (record, row) = (ByteRecord::new(), 0);
        let mut table = Self { name, columns: Vec::new(), reader, since_row, record, row };
        if named {
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
        self.since_row.set(0);
        let number = self.row + 1;
        let found =
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
                other => ConvertError::content(
                    &self.name,
                    number,
                    ErrorKind::Value,
                    format!("not readable as CSV: {other:?}"),
                ),
            })?;
        if !found {
            return Ok(None);
        }
        self.row = number;
        if !self.columns.is_empty() && self.record.len() > self.columns.len() {
            return Err(ConvertError::content(&self.name, number, ErrorKind::Columns, LONGER));
        }
        if memchr::memchr(0, self.record.as_slice()).is_some() {
            return Err(ConvertError::content(
                &self.name,
                number,
                ErrorKind::Nul,
                "there is a NUL byte in it",
            ));
        }
        Ok(Some(Row { table: &self.name, number, record: &self.record }))
    }

    /// The first of the columns that is there.
    pub(crate) fn find(&self, names: &[&str]) -> Result<Option<usize>, ConvertError> {
        let mut found = names.iter().filter_map(|name| column(&self.name, &self.columns, name).transpose());
        found.next().transpose()
    }

    pub(crate) fn need(&self, names: &[&str]) -> Result<usize, ConvertError> {
        self.find(names)?.ok_or_else(|| no_column(&self.name, &names.join(" or "), &self.columns))
    }

    /// Rows read, without the header.
    pub(crate) fn rows(&self) -> u64 {
        self.row - u64::from(!self.columns.is_empty())
    }

    pub(crate) fn finish(self) -> Result<FileDigest, ConvertError> {
        self.reader.into_inner().inner.finish()
    }
}

/// Number of columns that a message lists.
const SHOWN: usize = 20;
const LONGEST_NAME: usize = 40;

/// Index of the column with this name; an error if there are two.
pub(crate) fn column(file: &str, columns: &[String], name: &str) -> Result<Option<usize>, ConvertError> {
    let mut named = columns.iter().enumerate().filter(|column| column.1.eq_ignore_ascii_case(name));
    match (named.next(), named.next()) {
        (Some((first, _)), Some((second, _))) => Err(twice(file, name, first, second)),
        (first, _) => Ok(first.map(|(at, _)| at)),
    }
}

/// Error for a repeated column; messages count columns from 1.
pub(crate) fn twice(file: &str, name: &str, first: usize, second: usize) -> ConvertError {
    let detail = format!("the columns {} and {} are both called {name}", first + 1, second + 1);
    ConvertError::content(file, 1, ErrorKind::Duplicate, detail)
}

/// Error for a missing column, with the existing ones, among which the renamed column may be found.
pub(crate) fn no_column(file: &str, wanted: &str, columns: &[String]) -> ConvertError {
    if columns.iter().any(|column| column.contains(char::is_control)) {
        let detail =
            format!("the column {wanted} is missing; its lines may end in another way than others' do");
        return ConvertError::content(file, 1, ErrorKind::MissingColumn, detail);
    }
    let name =
        |column: &String| column.chars().take(LONGEST_NAME).collect::<String>().escape_debug().to_string();
    let mut shown: Vec<_> = columns.iter().take(SHOWN).map(name).collect();
    if columns.len() > SHOWN {
        shown.push(format!("and {} more", columns.len() - SHOWN));
    }
    let detail = format!("the column {wanted} is missing; there are {}", shown.join(", "));
    ConvertError::content(file, 1, ErrorKind::MissingColumn, detail)
}

impl Row<'_> {
    pub(crate) fn len(&self) -> usize {
        self.record.len()
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], ConvertError> {
        self.record
            .get(column)
            .ok_or_else(|| self.wrong(ErrorKind::MissingColumn, "the row has too few columns"))
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, ConvertError> {
        std::str::from_utf8(self.bytes(column)?).map_err(|_| self.wrong(ErrorKind::Encoding, NOT_UTF8))
    }

    /// An optional column, empty where it is missing.
    pub(crate) fn maybe(&self, column: Option<usize>) -> Result<&str, ConvertError> {
        match column {
            Some(column) if column < self.len() => self.text(column),
            _ => Ok(""),
        }
    }

    /// A whole number, or the fault that names the column.
    pub(crate) fn number<N: std::str::FromStr>(
        &self,
        column: usize,
        called: &str,
    ) -> Result<N, ConvertError> {
        let text = self.text(column)?.trim();
        text.parse().map_err(|_| self.wrong(ErrorKind::Value, format!("{called} is not a number that fits")))
    }

    pub(crate) fn wrong(&self, wrong: ErrorKind, detail: impl Into<String>) -> ConvertError {
        ConvertError::content(self.table, self.number, wrong, detail)
    }
}

/// A number in the one way in which it can be written; other digits are text like any other.
pub(crate) fn canonical_number(key: &[u8]) -> Option<u64> {
    let plain = match key {
        [b'0'] => true,
        [] | [b'0', ..] => false,
        digits => digits.len() <= 18,
    };
    if !plain {
        return None;
    }
    key.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| sum * 10 + u64::from(digit))
    })
}
