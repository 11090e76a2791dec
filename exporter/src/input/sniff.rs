//! Detects the role of a file by its first row.
//!
//! File names are hints at most, since people rename files.

use std::{collections::BTreeSet, io::Read as _};

use super::{Limits, Member, table::Table};
use crate::error::{ConvertError, ErrorKind};

/// The part that a file plays in its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    PolisVotes,
    PolisComments,
    PolisMatrix,
    PolisGroups,
    PolisSummary,
    PolisStats,
    PolisFormat,
    PocketStatements,
    PocketVotes,
    IdeasVotes,
    Ideas,
    IdeasNonVotes,
    Tallies,
    Bundle,
    Unknown,
    /// It cannot be unpacked.
    Broken,
}

impl Role {
    /// True if some of the file goes into a bundle.
    pub(crate) fn is_used(self) -> bool {
        !matches!(self, Self::PolisGroups | Self::PolisStats | Self::Unknown | Self::Broken)
    }

    /// The name in the list of artifacts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PolisVotes | Self::PocketVotes | Self::IdeasVotes => "votes",
            Self::PolisComments => "comments",
            Self::PolisMatrix => "participants",
            Self::PolisGroups => "comment-groups",
            Self::PolisSummary => "summary",
            Self::PolisStats => "stats-history",
            Self::PolisFormat => "format",
            Self::PocketStatements => "statements",
            Self::Ideas => "ideas",
            Self::IdeasNonVotes => "non-votes",
            Self::Tallies => "tallies",
            Self::Bundle => "bundle",
            Self::Unknown | Self::Broken => "unused",
        }
    }
}

/// A table that is known by its columns.
pub(super) struct KnownHeader {
    pub(super) role: Role,
    /// It is none without them.
    pub(super) columns: &'static [&'static str],
    /// Names that the tools give the file.
    pub(super) names: &'static [&'static str],
}

impl KnownHeader {
    pub(super) fn missing(&self, columns: &[String]) -> Vec<&'static str> {
        let is_there = |name: &str| columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        self.columns.iter().copied().filter(|name| !is_there(name)).collect()
    }
}

const fn known(role: Role, columns: &'static [&'static str], names: &'static [&'static str]) -> KnownHeader {
    KnownHeader { role, columns, names }
}

/// Known headers; the first match counts.
pub(super) static KNOWN_HEADERS: [KnownHeader; 11] = [
    known(Role::PolisVotes, &["comment-id", "voter-id", "vote"], &["votes"]),
    known(Role::PolisComments, &["comment-id", "comment-body"], &["comments"]),
    known(Role::PolisMatrix, &["participant", "n-votes"], &["participants-votes", "participant-votes"]),
    known(Role::PolisGroups, &["comment-id", "comment", "total-votes"], &["comment-groups"]),
    known(Role::Tallies, &["comment-id", "comment_text"], &["comments"]),
    known(Role::PolisStats, &["n-votes", "n-comments", "n-visitors"], &["stats-history"]),
    known(Role::PocketStatements, &["statement_id", "text"], &["statements"]),
    known(Role::PocketVotes, &["participant", "statement_id", "vote"], &["votes"]),
    known(Role::IdeasVotes, &["vote id", "winner id", "loser id"], &["votes"]),
    known(Role::Ideas, &["idea id", "idea text"], &["ideas"]),
    known(Role::IdeasNonVotes, &["record type", "left choice id"], &["non_votes", "non-votes"]),
];

/// Keys that the rows of a summary begin with, as [`key`] normalizes them.
const KEYS: [&str; 11] = [
    "topic",
    "url",
    "conversationdescription",
    "description",
    "views",
    "voters",
    "votersinconv",
    "commenters",
    "comments",
    "groups",
    "voteconvention",
];
/// A table of two columns that begins like this is a summary, whatever else is in it.
const FIRST_KEYS: [&str; 3] = ["topic", "url", "conversationdescription"];

/// The letters of what a row of a summary begins with.
fn key(written: &str) -> String {
    let letters = written.chars().filter(|sign| sign.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// True if the file is called like a tool's summary.
pub(super) fn is_called_summary(member: &Member) -> bool {
    let name = member.name.to_lowercase();
    name.split_once(".csv").is_some_and(|(name, _)| name.ends_with("summary"))
}

pub(super) fn is_called_format(member: &Member) -> bool {
    let name = member.name.rsplit('/').next().unwrap_or_default().to_lowercase();
    name.split_once(".json").is_some_and(|(name, _)| name == "format")
}

/// The beginning of a file as text.
pub(super) struct HeaderRow {
    pub(super) text: String,
    /// Encoding of the file, if it is one that is not supported.
    pub(super) wide: Option<&'static str>,
}

/// Enough for the header of a matrix with many thousand comments.
const ENOUGH: u64 = 1 << 20;

impl HeaderRow {
    pub(super) fn of(member: &Member, limits: &Limits) -> Result<Self, ConvertError> {
        let mut first = Vec::new();
        let stream = member.without_digest().open(limits, None)?;
        let read = stream.take(ENOUGH).read_to_end(&mut first);
        match read.map_err(|error| ConvertError::from_io(&member.name, error)) {
            Err(error) if !(member.in_part && error.is_damage()) => return Err(error),
            _ => {}
        }
        // Without a mark they are known by letters of which other bytes are nothing.
        let (wide, text) = match first[..] {
            [0xff, 0xfe, 0, 0, ..] | [1..=255, 0, 0, 0, ..] => utf32(&first, u32::from_le_bytes),
            [0, 0, 0xfe, 0xff, ..] | [0, 0, 0, 1..=255, ..] => utf32(&first, u32::from_be_bytes),
            [0xff, 0xfe, ..] | [1..=255, 0, 1..=255, 0, ..] => utf16(&first, u16::from_le_bytes),
            [0xfe, 0xff, ..] | [0, 1..=255, 0, 1..=255, ..] => utf16(&first, u16::from_be_bytes),
            _ => (None, String::from_utf8_lossy(&first).into_owned()),
        };
        Ok(Self { text: text.trim_start_matches('\u{feff}').to_owned(), wide })
    }

    /// The names of the columns, if it is a table.
    pub(super) fn columns(&self) -> Vec<String> {
        let line = self.text.lines().next().unwrap_or_default();
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
        let header = reader.records().next().and_then(Result::ok).unwrap_or_default();
        header.iter().map(|name| name.trim().to_owned()).collect()
    }

    /// True if its rows are those of a summary; one key is enough if the file is called so.
    fn is_summary(&self, called_so: bool) -> bool {
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(self.text.as_bytes());
        let rows = reader.records().map_while(Result::ok).filter(|row| row.len() > 1);
        let keys = rows.map(|row| key(&row[0])).filter(|key| KEYS.contains(&key.as_str()));
        let keys: BTreeSet<_> = keys.collect();
        let columns = self.columns();
        let begins_so = columns.len() == 2 && FIRST_KEYS.contains(&key(&columns[0]).as_str());
        keys.contains("voteconvention") || keys.len() > usize::from(!called_so) || begins_so
    }

    fn role(&self, member: &Member) -> Role {
        if self.text.trim_start().starts_with('{') {
            let bundle = self.text.contains("\"bundleId\"") || self.text.contains("\"phases\"");
            let text = self.text.to_lowercase();
            let format = text.contains("polis-export/") || text.contains("vote-convention");
            return if bundle {
                Role::Bundle
            } else if format {
                Role::PolisFormat
            } else {
                Role::Unknown
            };
        }
        let columns = self.columns();
        match KNOWN_HEADERS.iter().find(|known| known.missing(&columns).is_empty()) {
            Some(known) => known.role,
            None if self.is_summary(is_called_summary(member)) => Role::PolisSummary,
            None => Role::Unknown,
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> (Option<&'static str>, String) {
    let units: Vec<_> = bytes.as_chunks().0.iter().map(|pair| unit(*pair)).collect();
    (Some("UTF-16"), String::from_utf16_lossy(&units))
}

fn utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32) -> (Option<&'static str>, String) {
    let signs = bytes.as_chunks().0.iter().map(|four| char::from_u32(unit(*four)));
    (Some("UTF-32"), signs.map(|sign| sign.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

pub(crate) fn role(member: &Member, limits: &Limits) -> Result<Role, ConvertError> {
    let head = HeaderRow::of(member, limits)?;
    let called = is_called_format(member);
    match (head.role(member), head.wide) {
        (Role::Unknown, _) if !called => Ok(Role::Unknown),
        (_, Some(encoding)) => Err(wide(member, encoding)),
        // However it is written: what is not understood of a declaration is told.
        (Role::Unknown, None) => Ok(Role::PolisFormat),
        (role, None) => Ok(role),
    }
}

/// Role of a damaged file, by its readable beginning.
pub(crate) fn role_in_part(member: &Member, limits: &Limits) -> Result<Role, ConvertError> {
    Ok(HeaderRow::of(&member.in_part(), limits)?.role(member))
}

pub(super) fn wide(member: &Member, encoding: &str) -> ConvertError {
    ConvertError::content(&member.name, 1, ErrorKind::Encoding, format!("it is {encoding}: save it as UTF-8"))
}

/// Passes on the lines `key,value` of a summary, which has no header; of the keys only the letters.
pub(crate) fn pairs(
    member: &Member,
    limits: &Limits,
    mut each: impl FnMut(&str, &str),
) -> Result<(), ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, false)?;
    while let Some(row) = table.next()? {
        if row.len() < 2 {
            continue;
        }
        for more in 2..row.len() {
            if !row.text(more)?.trim().is_empty() {
                let detail =
                    "a row of a summary is a name and a value, and a value with commas stands in quotes";
                return Err(row.wrong(ErrorKind::Columns, detail));
            }
        }
        each(&key(row.text(0)?), row.text(1)?);
    }
    Ok(())
}

/// Checks that a file called a summary is one: the sign of votes may be declared in it.
pub(crate) fn check_summary(files: &[(Member, Role)], limits: &Limits) -> Result<(), ConvertError> {
    let Some((member, _)) =
        files.iter().find(|(member, role)| *role == Role::Unknown && is_called_summary(member))
    else {
        return Ok(());
    };
    let head = HeaderRow::of(member, limits)?;
    if let Some(encoding) = head.wide {
        return Err(wide(member, encoding));
    }
    let begins = |line: &str| line.split([';', '\t']).next().map(key);
    let separated =
        head.text.lines().any(|line| begins(line).is_some_and(|key| KEYS.contains(&key.as_str())));
    let detail = if head.text.trim().is_empty() {
        "the file is empty"
    } else if separated {
        "its columns are not separated by commas: save it with commas"
    } else {
        "none of its rows is a summary's, such as topic, url or vote-convention"
    };
    Err(ConvertError::content(&member.name, 1, ErrorKind::Format, detail))
}

/// The one file of a role: two of a kind cannot both be right.
pub(crate) fn one_of(files: &[(Member, Role)], role: Role) -> Result<Option<&Member>, ConvertError> {
    let mut found = files.iter().filter(|file| file.1 == role).map(|file| &file.0);
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(second) => {
            let detail = format!("it is the second file of {}", role.name());
            Err(ConvertError::content(&second.name, None, ErrorKind::Duplicate, detail))
        }
    }
}
