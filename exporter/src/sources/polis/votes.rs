//! Reads the list of votes. It is the largest file of an export, so its rows are split without a CSV reader.
//!
//! A row is one line; cells with line breaks are refused. Typical rows take the fast path (`fast_rows`), others are
//! parsed field by field, and lines with quotes as CSV.

use std::sync::{Arc, atomic::Ordering};

use memchr::{memchr, memchr_iter, memchr2};

use super::{
    fast_rows::{Column, Columns, FastRow},
    matrix::apply_sign,
};
use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    input::{
        Limits, MAX_CELLS, Member, check_line,
        lines::Lines,
        table::{EXTRA_CELLS, NOT_UTF8, canonical_number, find_column, missing_column},
    },
    meter::Meter,
    model::ItemIndex,
    privacy::participants::ParticipantRegistry,
    storage::rows::{NO_OBJECT, ReadResult, Row, order::Flow},
    timestamp::Timestamp,
};

/// Indexes of the columns.
#[derive(Clone, Copy, Debug)]
struct ColumnIndex {
    timestamp: Option<usize>,
    comment: usize,
    voter: usize,
    vote: usize,
    last: usize,
    /// Number of columns.
    count: usize,
}

/// Number of columns that the field-by-field parser supports. Tables with needed columns beyond them are parsed as CSV.
const MAX_FAST_COLUMNS: usize = 16;
/// Rows per batch of participant lookups. Lookups wait for memory, and a batch overlaps these waits.
const BATCH_ROWS: usize = 64;

pub(super) fn read_rows(
    member: &Member,
    limits: &Limits,
    meter: &Arc<Meter>,
    item_index: &ItemIndex,
    is_reversed: bool,
    people: &mut ParticipantRegistry,
    mut on_row: impl FnMut(Row) -> Result<Flow, ConvertError>,
) -> Result<ReadResult, ConvertError> {
    let mut lines = Lines::new(member.open(limits, Some(meter))?, limits.max_row_bytes);
    let name = member.name.as_str();
    let (mut column_index, mut fast_columns) = (None, None);
    let (mut line_number, mut rows) = (0_u64, 0_u64);
    let mut reader =
        VoteReader { item_index, is_reversed, people, comment: Vec::new(), comment_number: None, item: 0 };
    let mut batch = RowBatch::default();
    while let Some(block) = lines.next(line_number + 1)? {
        let has_quotes = match memchr2(0, b'"', block) {
            Some(first) => {
                if let Some(at) = memchr(0, &block[first..]) {
                    let lines_before = memchr_iter(b'\n', &block[..first + at]).count() as u64;
                    let detail = "it contains a NUL byte";
                    return Err(ConvertError::content(
                        name,
                        line_number + lines_before + 1,
                        ErrorKind::Nul,
                        detail,
                    ));
                }
                true
            }
            None => false,
        };
        let mut unread = block;
        let rows_before = rows;
        while !unread.is_empty() {
            // Without quotes in the block, rows can be split at bare commas.
            if !has_quotes
                && let Some(fast_columns) = &fast_columns
                && let Some((fast_row, length)) = FastRow::parse(unread, fast_columns)
                && let Some(row) = reader.finish_fast_row(&fast_row)
            {
                unread = &unread[length..];
                line_number += 1;
                rows += 1;
                if batch.add(fast_row.voter, row) && batch.flush(&mut reader, &mut on_row)? == Flow::Stop {
                    return Ok(ReadResult { flow: Flow::Stop, rows, file_digest: None });
                }
                continue;
            }
            let (line, next) = match memchr(b'\n', unread) {
                Some(at) => (&unread[..at], &unread[at + 1..]),
                None => (unread, &[][..]),
            };
            unread = next;
            line_number += 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(index) = &column_index else {
                let header = parse_header(line, name)?;
                fast_columns = header.fast_columns();
                column_index = Some(header);
                continue;
            };
            // A blank line is no row, as for a CSV reader.
            if line.is_empty() {
                continue;
            }
            let bad_row = |(kind, detail): BadRow| ConvertError::content(name, line_number, kind, detail);
            let row = if has_quotes && memchr(b'"', line).is_some() {
                reader.parse_quoted(line, index).map_err(bad_row)?
            } else {
                reader.parse_plain(line, index).map_err(bad_row)?
            };
            rows += 1;
            // The batch precedes this row in the file.
            if batch.flush(&mut reader, &mut on_row)? == Flow::Stop || on_row(row)? == Flow::Stop {
                return Ok(ReadResult { flow: Flow::Stop, rows, file_digest: None });
            }
        }
        // Once per block: an atomic addition per row would slow down the fast path.
        meter.rows_read.fetch_add(rows - rows_before, Ordering::Relaxed);
    }
    if batch.flush(&mut reader, &mut on_row)? == Flow::Stop {
        return Ok(ReadResult { flow: Flow::Stop, rows, file_digest: None });
    }
    if column_index.is_none() {
        return Err(ConvertError::content(name, 1, ErrorKind::MissingColumn, "the file is empty"));
    }
    Ok(ReadResult { flow: Flow::Continue, rows, file_digest: Some(lines.finish()?) })
}

fn parse_header(line: &[u8], name: &str) -> Result<ColumnIndex, ConvertError> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if memchr_iter(b',', line).count() as u64 > MAX_CELLS {
        let detail = format!("the row has more than {MAX_CELLS} cells");
        return Err(ConvertError::content(name, 1, ErrorKind::Columns, detail));
    }
    check_line(line).map_err(|detail| ConvertError::content(name, 1, ErrorKind::Quote, detail))?;
    let mut record = csv::ByteRecord::new();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .terminator(csv::Terminator::Any(b'\n'))
        .from_reader(line);
    // An unreadable header has no columns, which is reported below.
    let _result = reader.read_byte_record(&mut record);
    let columns: Vec<_> =
        record.iter().map(|column| String::from_utf8_lossy(column).trim().to_lowercase()).collect();
    let find = |column: &str| find_column(name, &columns, column);
    let require = |column: &str| find(column)?.ok_or_else(|| missing_column(name, column, &columns));
    let (timestamp, comment) = (find("timestamp")?, require("comment-id")?);
    let (voter, vote) = (require("voter-id")?, require("vote")?);
    let last = comment.max(voter).max(vote).max(timestamp.unwrap_or_default());
    Ok(ColumnIndex { timestamp, comment, voter, vote, last, count: columns.len() })
}

impl ColumnIndex {
    fn fast_columns(&self) -> Option<Columns> {
        let assignments = [(self.timestamp, Column::Timestamp), (Some(self.comment), Column::Comment)];
        let assignments = assignments
            .into_iter()
            .chain([(Some(self.voter), Column::Voter), (Some(self.vote), Column::Vote)]);
        Columns::new(self.last + 1, self.count, assignments.filter_map(|(at, column)| Some((at?, column))))
    }
}

/// Rows without their participants, which are looked up in batches.
#[derive(Debug)]
struct RowBatch {
    voters: [u64; BATCH_ROWS],
    rows: [Row; BATCH_ROWS],
    count: usize,
}

impl Default for RowBatch {
    fn default() -> Self {
        Self { voters: [0; BATCH_ROWS], rows: [Row::PLACEHOLDER; BATCH_ROWS], count: 0 }
    }
}

impl RowBatch {
    /// Adds a row; true if the batch is full.
    #[inline]
    fn add(&mut self, voter: u64, row: Row) -> bool {
        self.voters[self.count] = voter;
        self.rows[self.count] = row;
        self.count += 1;
        self.count == BATCH_ROWS
    }

    fn flush(
        &mut self,
        reader: &mut VoteReader<'_>,
        on_row: &mut impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<Flow, ConvertError> {
        let rows = &mut self.rows[..std::mem::take(&mut self.count)];
        for (row, voter) in rows.iter_mut().zip(&self.voters) {
            let (pseudonym, group) = reader.people.look_up_number(*voter);
            *row = row.with_participant(pseudonym, group);
        }
        for row in rows {
            if on_row(*row)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }
}

type BadRow = (ErrorKind, &'static str);

struct VoteReader<'r> {
    item_index: &'r ItemIndex,
    is_reversed: bool,
    people: &'r mut ParticipantRegistry,
    /// Comment of the previous row, shared by most rows.
    comment: Vec<u8>,
    comment_number: Option<u64>,
    item: u32,
}

const TOO_FEW_CELLS: BadRow = (ErrorKind::MissingColumn, "the row has too few columns");
const TOO_MANY_CELLS: BadRow = (ErrorKind::Columns, EXTRA_CELLS);

impl VoteReader<'_> {
    /// Completes a fast row except for its participant. `None` if its comment differs from the previous row's.
    #[inline]
    fn finish_fast_row(&self, fast_row: &FastRow) -> Option<Row> {
        if Some(fast_row.comment) != self.comment_number {
            return None;
        }
        let answered_at = match fast_row.timestamp {
            // The other parsers report an invalid time.
            Some(count) => Some(Timestamp::from_epoch(count)?),
            None => None,
        };
        Some(Row::new(0, self.item, NO_OBJECT, apply_sign(fast_row.answer, self.is_reversed), answered_at, 0))
    }

    #[inline]
    fn parse_plain(&mut self, line: &[u8], columns: &ColumnIndex) -> Result<Row, BadRow> {
        // A needed cell lies beyond the array below.
        if columns.last >= MAX_FAST_COLUMNS {
            return self.parse_quoted(line, columns);
        }
        let mut fields: [&[u8]; MAX_FAST_COLUMNS] = [&[]; MAX_FAST_COLUMNS];
        // At least one cell follows the needed ones, unless the line ends with the last of them.
        let (mut unread, mut extra_cells) = (line, 1);
        for (at, field) in fields.iter_mut().enumerate().take(columns.last + 1) {
            match memchr(b',', unread) {
                Some(comma) => {
                    *field = &unread[..comma];
                    unread = &unread[comma + 1..];
                }
                None if at == columns.last => {
                    *field = unread;
                    extra_cells = 0;
                }
                None => return Err(TOO_FEW_CELLS),
            }
        }
        if extra_cells > 0 {
            extra_cells += memchr_iter(b',', unread).count();
        }
        if columns.last + 1 + extra_cells > columns.count {
            return Err(TOO_MANY_CELLS);
        }
        let timestamp = columns.timestamp.map_or(&[][..], |at| fields[at]);
        self.make_row(timestamp, fields[columns.comment], fields[columns.voter], fields[columns.vote])
    }

    #[cold]
    fn parse_quoted(&mut self, line: &[u8], columns: &ColumnIndex) -> Result<Row, BadRow> {
        check_line(line).map_err(|detail| (ErrorKind::Quote, detail))?;
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
        let mut record = csv::ByteRecord::new();
        if !matches!(reader.read_byte_record(&mut record), Ok(true)) {
            return Err((ErrorKind::Value, "not readable as CSV"));
        }
        if record.len() > columns.count {
            return Err(TOO_MANY_CELLS);
        }
        let field = |at: usize| record.get(at).ok_or(TOO_FEW_CELLS);
        let timestamp = columns.timestamp.map_or(Ok(&[][..]), field)?;
        self.make_row(timestamp, field(columns.comment)?, field(columns.voter)?, field(columns.vote)?)
    }

    #[inline]
    fn make_row(
        &mut self,
        timestamp: &[u8],
        comment: &[u8],
        voter: &[u8],
        vote: &[u8],
    ) -> Result<Row, BadRow> {
        // Invalid UTF-8 would be replaced on output, which could make two ids equal.
        if [timestamp, comment, voter, vote].iter().any(|field| std::str::from_utf8(field).is_err()) {
            return Err((ErrorKind::Encoding, NOT_UTF8));
        }
        let answer = parse_answer(vote).ok_or((ErrorKind::Value, "vote is none of 1, 0 and -1"))?;
        // Rows are mostly grouped by comment, which saves the lookup.
        if comment != self.comment || self.comment.is_empty() {
            let unknown_comment = (ErrorKind::UnknownItem, "comment-id is not among the comments");
            self.item = self.item_index.find(comment).ok_or(unknown_comment)?;
            comment.clone_into(&mut self.comment);
            self.comment_number = canonical_number(comment);
        }
        if voter.is_empty() {
            return Err((ErrorKind::Value, "voter-id is empty"));
        }
        let answered_at = match timestamp {
            [] => None,
            digits => {
                let moment = parse_count(digits).and_then(Timestamp::from_epoch);
                Some(moment.ok_or((ErrorKind::Value, "timestamp is not a time from 1970 to 9999"))?)
            }
        };
        let (pseudonym, group) = self.people.look_up(voter);
        Ok(Row::new(
            pseudonym,
            self.item,
            NO_OBJECT,
            apply_sign(answer, self.is_reversed),
            answered_at,
            group,
        ))
    }
}

fn parse_answer(vote: &[u8]) -> Option<Answer> {
    match vote {
        b"1" | b"+1" => Some(Answer::Agree),
        b"-1" => Some(Answer::Disagree),
        b"0" => Some(Answer::Pass),
        _ => None,
    }
}

/// Parses a count without a sign. 18 digits cannot overflow and cover all valid times.
#[inline]
fn parse_count(digits: &[u8]) -> Option<i64> {
    // Leading zeros cannot overflow, so they do not count against the limit.
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    if digits.len() - zeros > 18 {
        return None;
    }
    let (mut sum, mut non_digits) = (0_i64, 0_u8);
    for digit in &digits[zeros..] {
        let digit = digit.wrapping_sub(b'0');
        non_digits |= u8::from(digit > 9);
        sum = sum * 10 + i64::from(digit);
    }
    (non_digits == 0).then_some(sum)
}
