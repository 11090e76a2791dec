//! The list of votes: the long file, so it is split by hand.
//!
//! A row is one line. Lines with quotes take the slow way.

use std::sync::{Arc, atomic::Ordering};

use memchr::{memchr, memchr_iter};

use super::matrix::turn;
use crate::{
    fault::{Fault, Wrong},
    form::Answer,
    input::{Limits, Member, lines::Lines},
    meter::Meter,
    model::Keys,
    moment::Moment,
    privacy::people::People,
    rows::{NO_OBJECT, Read, Row, order::Flow},
};

/// Where the columns are.
#[derive(Clone, Copy, Debug)]
struct Places {
    timestamp: Option<usize>,
    comment: usize,
    voter: usize,
    vote: usize,
    last: usize,
}

/// More columns than this, and the slow way is taken.
const COLUMNS: usize = 16;

pub(super) fn rows(
    member: &Member,
    limits: &Limits,
    meter: &Arc<Meter>,
    keys: &Keys,
    turned: bool,
    people: &mut People,
    mut each: impl FnMut(Row) -> Result<Flow, Fault>,
) -> Result<Read, Fault> {
    let mut lines = Lines::new(member.open(limits, Some(meter))?, limits.record);
    let name = member.name.as_str();
    let mut places = None;
    let (mut number, mut rows) = (0_u64, 0_u64);
    let mut reading = Reading { keys, turned, people, comment: Vec::new(), item: 0 };
    while let Some(block) = lines.next()? {
        if let Some(at) = memchr(0, block) {
            let before = memchr_iter(b'\n', &block[..at]).count() as u64;
            return Err(Fault::content(name, number + before + 1, Wrong::Nul, "there is a NUL byte in it"));
        }
        let quotes = memchr(b'"', block).is_some();
        let mut rest = block;
        let before = rows;
        while !rest.is_empty() {
            let (line, next) = match memchr(b'\n', rest) {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, &[][..]),
            };
            rest = next;
            number += 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(places) = &places else {
                places = Some(header(line, name)?);
                continue;
            };
            if line.is_empty() {
                continue;
            }
            let wrong = |(wrong, detail): Said| Fault::content(name, number, wrong, detail);
            let row = if quotes && memchr(b'"', line).is_some() {
                reading.slow(line, places).map_err(wrong)?
            } else {
                reading.fast(line, places).map_err(wrong)?
            };
            rows += 1;
            if each(row)? == Flow::Enough {
                return Ok(Read { flow: Flow::Enough, rows, ended: None });
            }
        }
        meter.rows.fetch_add(rows - before, Ordering::Relaxed);
    }
    if places.is_none() {
        return Err(Fault::content(name, 1, Wrong::MissingColumn, "the file is empty"));
    }
    Ok(Read { flow: Flow::More, rows, ended: Some(lines.finish()?) })
}

fn header(line: &[u8], name: &str) -> Result<Places, Fault> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let columns: Vec<_> = line
        .split(|byte| *byte == b',')
        .map(|column| String::from_utf8_lossy(column).trim().trim_matches('"').to_lowercase())
        .collect();
    let place = |wanted: &str| columns.iter().position(|column| column == wanted);
    let need = |wanted: &str| {
        place(wanted).ok_or_else(|| {
            Fault::content(name, 1, Wrong::MissingColumn, format!("the column {wanted} is missing"))
        })
    };
    let (timestamp, comment) = (place("timestamp"), need("comment-id")?);
    let (voter, vote) = (need("voter-id")?, need("vote")?);
    let last = comment.max(voter).max(vote).max(timestamp.unwrap_or_default());
    Ok(Places { timestamp, comment, voter, vote, last })
}

type Said = (Wrong, &'static str);

struct Reading<'r> {
    keys: &'r Keys,
    turned: bool,
    people: &'r mut People,
    /// The comment of the row before, which most rows share.
    comment: Vec<u8>,
    item: u32,
}

const FEW: Said = (Wrong::MissingColumn, "the row has too few columns");

impl Reading<'_> {
    #[inline]
    fn fast(&mut self, line: &[u8], places: &Places) -> Result<Row, Said> {
        if places.last >= COLUMNS {
            return self.slow(line, places);
        }
        let mut fields: [&[u8]; COLUMNS] = [&[]; COLUMNS];
        let mut rest = line;
        for (at, field) in fields.iter_mut().enumerate().take(places.last + 1) {
            match memchr(b',', rest) {
                Some(comma) => {
                    *field = &rest[..comma];
                    rest = &rest[comma + 1..];
                }
                None if at == places.last => *field = rest,
                None => return Err(FEW),
            }
        }
        let timestamp = places.timestamp.map_or(&[][..], |at| fields[at]);
        self.row(timestamp, fields[places.comment], fields[places.voter], fields[places.vote])
    }

    #[cold]
    fn slow(&mut self, line: &[u8], places: &Places) -> Result<Row, Said> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
        let mut record = csv::ByteRecord::new();
        if !matches!(reader.read_byte_record(&mut record), Ok(true)) {
            return Err((Wrong::Value, "not readable as CSV"));
        }
        let field = |at: usize| record.get(at).ok_or(FEW);
        let timestamp = places.timestamp.map_or(Ok(&[][..]), field)?;
        self.row(timestamp, field(places.comment)?, field(places.voter)?, field(places.vote)?)
    }

    #[inline]
    fn row(&mut self, timestamp: &[u8], comment: &[u8], voter: &[u8], vote: &[u8]) -> Result<Row, Said> {
        let answer = match vote {
            b"1" | b"+1" => Answer::Agree,
            b"-1" => Answer::Disagree,
            b"0" => Answer::Pass,
            _ => return Err((Wrong::Value, "vote is none of 1, 0 and -1")),
        };
        if comment != self.comment || self.comment.is_empty() {
            let missing = (Wrong::UnknownItem, "comment-id is not among the comments");
            self.item = self.keys.find(comment).ok_or(missing)?;
            comment.clone_into(&mut self.comment);
        }
        if voter.is_empty() {
            return Err((Wrong::Value, "voter-id is empty"));
        }
        let at = match timestamp {
            [] => None,
            digits => {
                let moment = whole(digits).and_then(Moment::from_epoch);
                Some(moment.ok_or((Wrong::Value, "timestamp is no time since 1970"))?)
            }
        };
        let (who, group) = self.people.see(voter);
        Ok(Row::new(who, self.item, NO_OBJECT, turn(answer, self.turned), at, group))
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
