//! List of votes, the long file, which is therefore split by hand.
//!
//! A row is one line; a cell with a line break is refused. Nearly all rows take the fast path (`fast_rows`), others
//! are read field by field, and lines with quotes as CSV.

use std::sync::{Arc, atomic::Ordering};

use memchr::{memchr, memchr_iter, memchr2};

use super::{
    fast_rows::{Column, Columns, FastRow},
    matrix::turn,
};
use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    input::{
        Limits, MOST_CELLS, Member,
        lines::Lines,
        of_line,
        table::{LONGER, NOT_UTF8, canonical_number, column, no_column},
    },
    meter::Meter,
    model::ItemIndex,
    privacy::participants::ParticipantRegistry,
    storage::rows::{NO_OBJECT, Read, Row, order::Flow},
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
    /// All columns.
    count: usize,
}

/// More columns than this, and the slow way is taken.
const COLUMNS: usize = 16;
/// Rows whose participants are looked up together: a look waits for memory, and many looks at once wait no longer.
const TOGETHER: usize = 64;

pub(super) fn rows(
    member: &Member,
    limits: &Limits,
    meter: &Arc<Meter>,
    keys: &ItemIndex,
    turned: bool,
    people: &mut ParticipantRegistry,
    mut each: impl FnMut(Row) -> Result<Flow, ConvertError>,
) -> Result<Read, ConvertError> {
    let mut lines = Lines::new(member.open(limits, Some(meter))?, limits.record);
    let name = member.name.as_str();
    let (mut places, mut columns) = (None, None);
    let (mut number, mut rows) = (0_u64, 0_u64);
    let mut reading = VoteReader { keys, turned, people, comment: Vec::new(), comment_number: None, item: 0 };
    let mut waiting = RowBatch::default();
    while let Some(block) = lines.next(number + 1)? {
        let quotes = match memchr2(0, b'"', block) {
            Some(first) => {
                if let Some(at) = memchr(0, &block[first..]) {
                    let before = memchr_iter(b'\n', &block[..first + at]).count() as u64;
                    let detail = "there is a NUL byte in it";
                    return Err(ConvertError::content(name, number + before + 1, ErrorKind::Nul, detail));
                }
                true
            }
            None => false,
        };
        let mut rest = block;
        let before = rows;
        while !rest.is_empty() {
            if !quotes
                && let Some(columns) = &columns
                && let Some((glance, length)) = FastRow::at(rest, columns)
                && let Some(row) = reading.at_a_glance(&glance)
            {
                rest = &rest[length..];
                number += 1;
                rows += 1;
                if waiting.add(glance.voter, row) && waiting.pass(&mut reading, &mut each)? == Flow::Enough {
                    return Ok(Read { flow: Flow::Enough, rows, ended: None });
                }
                continue;
            }
            let (line, next) = match memchr(b'\n', rest) {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, &[][..]),
            };
            rest = next;
            number += 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(places) = &places else {
                let found = header(line, name)?;
                columns = found.columns();
                places = Some(found);
                continue;
            };
            if line.is_empty() {
                continue;
            }
            let wrong = |(wrong, detail): BadRow| ConvertError::content(name, number, wrong, detail);
            let row = if quotes && memchr(b'"', line).is_some() {
                reading.slow(line, places).map_err(wrong)?
            } else {
                reading.fast(line, places).map_err(wrong)?
            };
            rows += 1;
            if waiting.pass(&mut reading, &mut each)? == Flow::Enough || each(row)? == Flow::Enough {
                return Ok(Read { flow: Flow::Enough, rows, ended: None });
            }
        }
        meter.rows.fetch_add(rows - before, Ordering::Relaxed);
    }
    if waiting.pass(&mut reading, &mut each)? == Flow::Enough {
        return Ok(Read { flow: Flow::Enough, rows, ended: None });
    }
    if places.is_none() {
        return Err(ConvertError::content(name, 1, ErrorKind::MissingColumn, "the file is empty"));
    }
    Ok(Read { flow: Flow::More, rows, ended: Some(lines.finish()?) })
}

fn header(line: &[u8], name: &str) -> Result<ColumnIndex, ConvertError> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if memchr_iter(b',', line).count() as u64 > MOST_CELLS {
        let detail = format!("the row has more than {MOST_CELLS} cells");
        return Err(ConvertError::content(name, 1, ErrorKind::Columns, detail));
    }
    of_line(line).map_err(|why| ConvertError::content(name, 1, ErrorKind::Quote, why))?;
    let mut record = csv::ByteRecord::new();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .terminator(csv::Terminator::Any(b'\n'))
        .from_reader(line);
    // What cannot be read has no columns, either.
    let _none = reader.read_byte_record(&mut record);
    let columns: Vec<_> =
        record.iter().map(|column| String::from_utf8_lossy(column).trim().to_lowercase()).collect();
    let place = |wanted: &str| column(name, &columns, wanted);
    let need = |wanted: &str| place(wanted)?.ok_or_else(|| no_column(name, wanted, &columns));
    let (timestamp, comment) = (place("timestamp")?, need("comment-id")?);
    let (voter, vote) = (need("voter-id")?, need("vote")?);
    let last = comment.max(voter).max(vote).max(timestamp.unwrap_or_default());
    Ok(ColumnIndex { timestamp, comment, voter, vote, last, count: columns.len() })
}

impl ColumnIndex {
    fn columns(&self) -> Option<Columns> {
        let named = [(self.timestamp, Column::Timestamp), (Some(self.comment), Column::Comment)];
        let named =
            named.into_iter().chain([(Some(self.voter), Column::Voter), (Some(self.vote), Column::Vote)]);
        Columns::new(self.last + 1, self.count, named.filter_map(|(at, column)| Some((at?, column))))
    }
}

/// Rows whose participants were not looked up yet.
#[derive(Debug)]
struct RowBatch {
    voters: [u64; TOGETHER],
    rows: [Row; TOGETHER],
    count: usize,
}

impl Default for RowBatch {
    fn default() -> Self {
        Self { voters: [0; TOGETHER], rows: [Row::NONE; TOGETHER], count: 0 }
    }
}

impl RowBatch {
    /// Adds a row; true if the batch is full.
    #[inline]
    fn add(&mut self, voter: u64, row: Row) -> bool {
        self.voters[self.count] = voter;
        self.rows[self.count] = row;
        self.count += 1;
        self.count == TOGETHER
    }

    fn pass(
        &mut self,
        reading: &mut VoteReader<'_>,
        each: &mut impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<Flow, ConvertError> {
        let rows = &mut self.rows[..std::mem::take(&mut self.count)];
        for (row, voter) in rows.iter_mut().zip(&self.voters) {
            let (who, group) = reading.people.look_up_number(*voter);
            *row = row.by(who, group);
        }
        for row in rows {
            if each(*row)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }
}

type BadRow = (ErrorKind, &'static str);

struct VoteReader<'r> {
    keys: &'r ItemIndex,
    turned: bool,
    people: &'r mut ParticipantRegistry,
    /// The comment of the row before, which most rows share.
    comment: Vec<u8>,
    comment_number: Option<u64>,
    item: u32,
}

const FEW: BadRow = (ErrorKind::MissingColumn, "the row has too few columns");
const MANY: BadRow = (ErrorKind::Columns, LONGER);

impl VoteReader<'_> {
    /// A row without its participant, if it is about the same comment as the one before.
    #[inline]
    fn at_a_glance(&self, glance: &FastRow) -> Option<Row> {
        if Some(glance.comment) != self.comment_number {
            return None;
        }
        let at = match glance.timestamp {
            Some(count) => Some(Timestamp::from_epoch(count)?),
            None => None,
        };
        Some(Row::new(0, self.item, NO_OBJECT, turn(glance.answer, self.turned), at, 0))
    }

    #[inline]
    fn fast(&mut self, line: &[u8], places: &ColumnIndex) -> Result<Row, BadRow> {
        if places.last >= COLUMNS {
            return self.slow(line, places);
        }
        let mut fields: [&[u8]; COLUMNS] = [&[]; COLUMNS];
        let (mut rest, mut more) = (line, 1);
        for (at, field) in fields.iter_mut().enumerate().take(places.last + 1) {
            match memchr(b',', rest) {
                Some(comma) => {
                    *field = &rest[..comma];
                    rest = &rest[comma + 1..];
                }
                None if at == places.last => {
                    *field = rest;
                    more = 0;
                }
                None => return Err(FEW),
            }
        }
        if more > 0 {
            more += memchr_iter(b',', rest).count();
        }
        if places.last + 1 + more > places.count {
            return Err(MANY);
        }
        let timestamp = places.timestamp.map_or(&[][..], |at| fields[at]);
        self.row(timestamp, fields[places.comment], fields[places.voter], fields[places.vote])
    }

    #[cold]
    fn slow(&mut self, line: &[u8], places: &ColumnIndex) -> Result<Row, BadRow> {
        of_line(line).map_err(|why| (ErrorKind::Quote, why))?;
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
        let mut record = csv::ByteRecord::new();
        if !matches!(reader.read_byte_record(&mut record), Ok(true)) {
            return Err((ErrorKind::Value, "not readable as CSV"));
        }
        if record.len() > places.count {
            return Err(MANY);
        }
        let field = |at: usize| record.get(at).ok_or(FEW);
        let timestamp = places.timestamp.map_or(Ok(&[][..]), field)?;
        self.row(timestamp, field(places.comment)?, field(places.voter)?, field(places.vote)?)
    }

    #[inline]
    fn row(&mut self, timestamp: &[u8], comment: &[u8], voter: &[u8], vote: &[u8]) -> Result<Row, BadRow> {
        // Else two ids could become one where they are written.
        if [timestamp, comment, voter, vote].iter().any(|field| std::str::from_utf8(field).is_err()) {
            return Err((ErrorKind::Encoding, NOT_UTF8));
        }
        let answer = answer(vote).ok_or((ErrorKind::Value, "vote is none of 1, 0 and -1"))?;
        if comment != self.comment || self.comment.is_empty() {
            let missing = (ErrorKind::UnknownItem, "comment-id is not among the comments");
            self.item = self.keys.find(comment).ok_or(missing)?;
            comment.clone_into(&mut self.comment);
            self.comment_number = canonical_number(comment);
        }
        if voter.is_empty() {
            return Err((ErrorKind::Value, "voter-id is empty"));
        }
        let at = match timestamp {
            [] => None,
            digits => {
                let moment = whole(digits).and_then(Timestamp::from_epoch);
                Some(moment.ok_or((ErrorKind::Value, "timestamp is no time from 1970 to 9999"))?)
            }
        };
        let (who, group) = self.people.see(voter);
        Ok(Row::new(who, self.item, NO_OBJECT, turn(answer, self.turned), at, group))
    }
}

fn answer(vote: &[u8]) -> Option<Answer> {
    match vote {
        b"1" | b"+1" => Some(Answer::Agree),
        b"-1" => Some(Answer::Disagree),
        b"0" => Some(Answer::Pass),
        _ => None,
    }
}

/// A count without a sign; all that a time may be is far from overflowing.
#[inline]
fn whole(digits: &[u8]) -> Option<i64> {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    if digits.len() - zeros > 18 {
        return None;
    }
    let (mut sum, mut other) = (0_i64, 0_u8);
    for digit in &digits[zeros..] {
        let digit = digit.wrapping_sub(b'0');
        other |= u8::from(digit > 9);
        sum = sum * 10 + i64::from(digit);
    }
    (other == 0).then_some(sum)
}
