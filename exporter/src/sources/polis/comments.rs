//! Reads the statements of an export, in every known style of quoting.
//!
//! Texts are kept byte by byte, without the quotes that belong to the format.

use std::{collections::HashSet, io::Read as _};

use serde_json::Map;

use super::{Variant, vote_sign::VoteSign};
use crate::{
    error::{ConvertError, ErrorKind},
    form::SOURCE_RESPONSE_COUNTS,
    input::{
        Limits, Member,
        table::{NOT_UTF8, Table, find_column, missing_column},
    },
    model::{Item, Origin, PublishedOutcome},
    plural::{format_count, was_or_were},
    privacy::participants::ParticipantRegistry,
    timestamp::Timestamp,
};

/// Properties of the comment file that distinguish the export variants.
#[derive(Debug, Default)]
pub(super) struct CommentHints {
    datetime: bool,
    /// Time texts have the zone format of the second server (`GMT+`).
    has_second_server_zone: bool,
    seconds: bool,
    ragged: bool,
    /// More than half of the rows have a quoted cell.
    quoted: bool,
    crlf: bool,
    wrapped: bool,
}

impl CommentHints {
    pub(super) fn variant(&self, declared: bool, named_old: bool, views: bool) -> Variant {
        if declared {
            Variant::E
        } else if self.wrapped && self.crlf {
            Variant::F
        } else if self.seconds && self.ragged && !self.quoted {
            Variant::C
        } else if self.seconds {
            Variant::D
        } else if !self.datetime {
            Variant::B
        } else if named_old || views || !self.has_second_server_zone {
            Variant::A
        } else {
            Variant::D
        }
    }
}

const MAX_HINT_BYTES: u64 = 1 << 20;

/// Reads the beginning of the file to detect its variant.
pub(super) fn read_hints(member: &Member, limits: &Limits) -> Result<CommentHints, ConvertError> {
    let mut bytes = Vec::new();
    let mut stream = member.without_digest().open(limits, None)?.take(MAX_HINT_BYTES);
    stream.read_to_end(&mut bytes).map_err(|error| ConvertError::from_io(&member.name, error))?;
    let is_complete = (bytes.len() as u64) < MAX_HINT_BYTES;
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes.as_slice());
    let mut records = reader.byte_records().map_while(Result::ok);
    let Some(header) = records.next() else { return Ok(CommentHints::default()) };
    let find_column_index = |name: &[u8]| header.iter().position(|column| column.eq_ignore_ascii_case(name));
    let (timestamp, body) = (find_column_index(b"timestamp"), find_column_index(b"comment-body"));
    let datetime = find_column_index(b"datetime");
    let mut hints = CommentHints {
        datetime: datetime.is_some(),
        crlf: memchr::memmem::find(&bytes, b"\r\n").is_some(),
        ..CommentHints::default()
    };
    let mut records: Vec<_> = records.collect();
    // The last record may be cut off at the limit.
    if !is_complete {
        records.pop();
    }
    let (mut bodies, mut wrapped) = (0, 0);
    for record in &records {
        hints.ragged |= record.len() != header.len();
        let field = |at: Option<usize>| at.and_then(|at| record.get(at));
        if let Some(count) = field(timestamp).filter(|text| text.iter().all(u8::is_ascii_digit)) {
            // Seconds have at most 11 digits until the year 5138; milliseconds have 13.
            hints.seconds |= (1..=11).contains(&count.len());
        }
        hints.has_second_server_zone |=
            field(datetime).is_some_and(|text| memchr::memmem::find(text, b"GMT+").is_some());
        if let Some(text) = field(body) {
            bodies += 1;
            wrapped += usize::from(is_wrapped(text));
        }
    }
    let lines = bytes.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    let (lines, quoted) = lines.fold((0, 0), |(lines, quoted), line| {
        (lines + 1, quoted + usize::from(memchr::memmem::find(line, b",\"").is_some()))
    });
    hints.quoted = quoted * 2 > lines;
    hints.wrapped = bodies > 0 && wrapped == bodies;
    Ok(hints)
}

fn is_wrapped(text: &[u8]) -> bool {
    text.len() >= 2 && text.starts_with(b"\"") && text.ends_with(b"\"")
}

#[derive(Debug)]
pub(super) struct Comments {
    pub(super) items: Vec<Item>,
    /// Number of rows, without the header.
    pub(super) rows: u64,
    pub(super) notes: Vec<String>,
}

impl Comments {
    pub(super) fn read(
        member: &Member,
        limits: &Limits,
        variant: Variant,
        sign: VoteSign,
        organizers: &[String],
        people: &ParticipantRegistry,
    ) -> Result<Self, ConvertError> {
        let context = ItemContext { variant, sign, organizers, people };
        let mut comments = if variant == Variant::C {
            context.read_unquoted(member, limits)
        } else {
            context.read_quoted(member, limits)
        }?;
        comments.notes.extend(context.note_unknown_organizers(&comments.items));
        if comments.items.iter().any(|item| item.author.is_some()) {
            comments.notes.push(format!(
                "Authors of statements (author-id of {}) were left out: a bundle has no field for them.",
                member.name
            ));
        }
        Ok(comments)
    }
}

struct ItemContext<'m> {
    variant: Variant,
    sign: VoteSign,
    organizers: &'m [String],
    people: &'m ParticipantRegistry,
}

impl ItemContext<'_> {
    /// Note about organizer ids without statements. The ids may belong to participants, so the note only counts them.
    fn note_unknown_organizers(&self, items: &[Item]) -> Option<String> {
        let authors: HashSet<_> = items.iter().filter_map(|item| item.author).collect();
        let is_unknown = |id: &&String| !authors.contains(&self.people.pseudonym(id.as_bytes()));
        let (unknown, all) =
            (self.organizers.iter().filter(is_unknown).count(), self.organizers.len() as u64);
        (unknown > 0)
            .then(|| format!("--organizer: no statement is by {unknown} of {}.", format_count(all, "id")))
    }

    fn read_quoted(&self, member: &Member, limits: &Limits) -> Result<Comments, ConvertError> {
        let mut table = Table::open(member.open(limits, None)?, limits, true)?;
        let columns = ColumnIndex::find(&table.columns, &table.name)?;
        let (mut items, mut empty_rows) = (Vec::new(), 0_u64);
        while let Some(row) = table.next()? {
            // The CSV reader skips empty lines, but not a line of two quotes.
            if row.len() == 1 && row.bytes(0)?.is_empty() {
                empty_rows += 1;
                continue;
            }
            let error = |kind, detail: &str| row.error(kind, detail);
            items.push(self.make_item(&columns, row.number, &|at| row.text(at), &error)?);
        }
        let mut notes = columns.notes(&table.name);
        if empty_rows > 0 {
            let rows = format_count(empty_rows, "empty row");
            notes.push(format!("{rows} of {} {} left out.", table.name, was_or_were(empty_rows)));
        }
        Ok(Comments { items, rows: table.rows(), notes })
    }

    /// Reads a file with an unquoted and unescaped last column, which may contain commas, quotes and line ends. A
    /// line that does not start like a row continues the text of the row before.
    fn read_unquoted(&self, member: &Member, limits: &Limits) -> Result<Comments, ConvertError> {
        let text = read_text(member, limits)?;
        let mut lines = text.strip_suffix('\n').unwrap_or(&text).split('\n').enumerate();
        let header = lines.next().map_or("", |(_, line)| line.trim_end_matches('\r'));
        let names: Vec<_> = header.split(',').map(|name| name.trim().to_owned()).collect();
        let columns = ColumnIndex::find(&names, &member.name)?;
        if columns.body + 1 != names.len() {
            let detail = "unquoted texts must be in the last column";
            return Err(ConvertError::content(&member.name, 1, ErrorKind::Format, detail));
        }
        let starts_row = |line: &str| {
            // The text is the last field and may contain commas.
            let fields: Vec<_> = line.splitn(names.len(), ',').collect();
            let is_digits = |at: usize| {
                let field = fields.get(at).filter(|field| !field.is_empty());
                field.is_some_and(|field| field.bytes().all(|byte| byte.is_ascii_digit()))
            };
            fields.len() == names.len() && is_digits(columns.id) && columns.timestamp.is_none_or(is_digits)
        };
        let mut rows: Vec<(u64, String)> = Vec::new();
        for (at, line) in lines {
            member.check_stop()?;
            match rows.last_mut() {
                Some((_, row)) if !starts_row(line) => {
                    row.push('\n');
                    row.push_str(line);
                }
                _ => rows.push((at as u64 + 1, line.to_owned())),
            }
        }
        let mut items = Vec::new();
        for (number, row) in &rows {
            member.check_stop()?;
            let fields: Vec<_> = row.trim_end_matches('\r').splitn(names.len(), ',').collect();
            let error = |kind, detail: &str| ConvertError::content(&member.name, *number, kind, detail);
            let field = |at: usize| {
                fields
                    .get(at)
                    .copied()
                    .ok_or_else(|| error(ErrorKind::MissingColumn, "the row has too few columns"))
            };
            items.push(self.make_item(&columns, *number, &field, &error)?);
        }
        let mut notes = columns.notes(&member.name);
        notes.push("Texts had neither quotes nor escapes; lines of one text were joined.".to_owned());
        Ok(Comments { items, rows: rows.len() as u64, notes })
    }

    fn make_item<'r>(
        &self,
        columns: &ColumnIndex,
        row: u64,
        field: &dyn Fn(usize) -> Result<&'r str, ConvertError>,
        error: &dyn Fn(ErrorKind, &str) -> ConvertError,
    ) -> Result<Item, ConvertError> {
        let optional_text =
            |at: Option<usize>| at.map(field).transpose().map(|text| text.unwrap_or_default().trim());
        let number = |at: Option<usize>, column_name: &str| -> Result<Option<u64>, ConvertError> {
            let text = optional_text(at)?;
            if text.is_empty() {
                return Ok(None);
            }
            let number = text.parse().ok();
            number.map(Some).ok_or_else(|| error(ErrorKind::Value, &format!("{column_name} is not a count")))
        };
        let key = field(columns.id)?.trim();
        if key.is_empty() {
            return Err(error(ErrorKind::Value, "comment-id is empty"));
        }
        let created_at =
            match optional_text(columns.timestamp)? {
                "" => None,
                text => {
                    let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok());
                    let count = digits.flatten().and_then(Timestamp::from_epoch);
                    Some(count.ok_or_else(|| {
                        error(ErrorKind::Value, "timestamp is not a time from 1970 to 9999")
                    })?)
                }
            };
        let status = match optional_text(columns.moderated)? {
            "1" => "approved",
            "0" => "pending",
            "-1" => "rejected",
            // Exports without the column have no moderation.
            "" if columns.moderated.is_none() => "approved",
            _ => return Err(error(ErrorKind::Value, "moderated is none of 1, 0 and -1")),
        };
        let author = optional_text(columns.author)?;
        let is_seed = matches!(optional_text(columns.is_seed)?, "1" | "true" | "True" | "TRUE" | "t");
        let is_organizer = !author.is_empty() && self.organizers.iter().any(|organizer| organizer == author);
        let body = field(columns.body)?;
        let is_text_wrapped = self.variant == Variant::F && is_wrapped(body.as_bytes());
        let text = if is_text_wrapped { &body[1..body.len() - 1] } else { body };
        let (mut agrees, mut disagrees) =
            (number(columns.agrees, "agrees")?, number(columns.disagrees, "disagrees")?);
        if self.sign == VoteSign::AgreeIsMinus {
            // Counts have the sign of the votes, so both columns are swapped as well.
            std::mem::swap(&mut agrees, &mut disagrees);
        }
        let passes = number(columns.passes, "passes")?;
        let mut counts = Map::new();
        for (name, count) in [("agree", agrees), ("disagree", disagrees), ("pass", passes)] {
            if let Some(count) = count {
                counts.insert(name.to_owned(), count.into());
            }
        }
        let outcomes = if counts.is_empty() {
            Vec::new()
        } else {
            vec![PublishedOutcome::counts(SOURCE_RESPONSE_COUNTS, counts)]
        };
        Ok(Item {
            id: format!("statement:{key}"),
            key: key.to_owned(),
            row,
            text: text.to_owned(),
            status: status.to_owned(),
            origin: Origin::organizer_if(is_seed || is_organizer),
            phase: 0,
            created: created_at,
            author: (!author.is_empty()).then(|| self.people.pseudonym(author.as_bytes())),
            outcomes,
        })
    }
}

fn read_text(member: &Member, limits: &Limits) -> Result<String, ConvertError> {
    let mut bytes = Vec::new();
    // The file is held in memory, so its limit follows the one of a row.
    let max_bytes = limits.max_row_bytes.saturating_mul(16);
    let too_long = |row: Option<u64>, detail: &str| {
        ConvertError::content(&member.name, row, ErrorKind::LongRecord, detail)
    };
    // Start of the current line in `bytes`, and its number.
    let (mut line_start, mut line) = (0, 1);
    member.open(limits, None)?.for_each_block(|block| {
        let block_start = bytes.len();
        bytes.extend_from_slice(block);
        if let Some(last_newline) = memchr::memrchr(b'\n', block) {
            line_start = block_start + last_newline + 1;
            line += memchr::memchr_iter(b'\n', block).count() as u64;
        }
        if bytes.len() - line_start > limits.max_row_bytes {
            return Err(too_long(Some(line), "a line is too long (--max-record allows more)"));
        }
        if bytes.len() > max_bytes {
            return Err(too_long(None, "it is too large without quotes (--max-record allows more)"));
        }
        Ok(())
    })?;
    let text = String::from_utf8(bytes)
        .map_err(|_| ConvertError::content(&member.name, None, ErrorKind::Encoding, NOT_UTF8))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Indexes of the columns.
struct ColumnIndex {
    id: usize,
    body: usize,
    timestamp: Option<usize>,
    author: Option<usize>,
    moderated: Option<usize>,
    is_seed: Option<usize>,
    agrees: Option<usize>,
    disagrees: Option<usize>,
    passes: Option<usize>,
}

impl ColumnIndex {
    fn find(columns: &[String], file: &str) -> Result<Self, ConvertError> {
        let find = |name: &str| find_column(file, columns, name);
        let require = |name: &str| find(name)?.ok_or_else(|| missing_column(file, name, columns));
        Ok(Self {
            id: require("comment-id")?,
            body: require("comment-body")?,
            timestamp: find("timestamp")?,
            author: find("author-id")?,
            moderated: find("moderated")?,
            is_seed: find("is-seed")?,
            agrees: find("agrees")?,
            disagrees: find("disagrees")?,
            // Exports differ in the name of this column.
            passes: find("passes")?.map_or_else(|| find("pass"), |at| Ok(Some(at)))?,
        })
    }

    /// Notes about missing columns and the mapping of statuses.
    fn notes(&self, file: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if self.timestamp.is_none() {
            notes.push(format!("{file} has no column timestamp: the times of statements are unknown."));
        }
        notes.push(if self.moderated.is_some() {
            "Statuses approved, pending and rejected stand for moderated 1, 0 and -1 of the source."
                .to_owned()
        } else {
            format!("{file} has no column moderated: all statements count as approved.")
        });
        notes
    }
}

/// Published agree and disagree counts of an item.
pub(super) fn published_counts(item: &Item) -> Option<(u64, u64)> {
    let counts = &item.outcomes.iter().find(|outcome| outcome.kind == SOURCE_RESPONSE_COUNTS)?.counts;
    Some((counts.get("agree")?.as_u64()?, counts.get("disagree")?.as_u64()?))
}
