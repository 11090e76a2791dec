//! Detects the role of a file from its first rows.
//!
//! File names are only hints, since people rename files.

use std::{collections::BTreeSet, io::Read as _};

use super::{Limits, Member, table::Table};
use crate::error::{ConvertError, ErrorKind};

/// Role of a file in its format.
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
    /// Damaged file.
    Broken,
}

impl Role {
    /// True if content of the file is converted.
    pub(crate) fn is_used(self) -> bool {
        !matches!(self, Self::PolisGroups | Self::PolisStats | Self::Unknown | Self::Broken)
    }

    /// Role name in the list of artifacts.
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

/// Table recognised by its columns.
pub(super) struct KnownHeader {
    pub(super) role: Role,
    /// Required columns.
    pub(super) columns: &'static [&'static str],
    /// File names that the tools use for the table.
    pub(super) names: &'static [&'static str],
}

impl KnownHeader {
    pub(super) fn missing_columns(&self, columns: &[String]) -> Vec<&'static str> {
        let is_present = |name: &str| columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        self.columns.iter().copied().filter(|name| !is_present(name)).collect()
    }
}

const fn header(role: Role, columns: &'static [&'static str], names: &'static [&'static str]) -> KnownHeader {
    KnownHeader { role, columns, names }
}

/// Known headers; the first match wins.
pub(super) static KNOWN_HEADERS: [KnownHeader; 11] = [
    header(Role::PolisVotes, &["comment-id", "voter-id", "vote"], &["votes"]),
    header(Role::PolisComments, &["comment-id", "comment-body"], &["comments"]),
    header(Role::PolisMatrix, &["participant", "n-votes"], &["participants-votes", "participant-votes"]),
    header(Role::PolisGroups, &["comment-id", "comment", "total-votes"], &["comment-groups"]),
    header(Role::Tallies, &["comment-id", "comment_text"], &["comments"]),
    header(Role::PolisStats, &["n-votes", "n-comments", "n-visitors"], &["stats-history"]),
    header(Role::PocketStatements, &["statement_id", "text"], &["statements"]),
    header(Role::PocketVotes, &["participant", "statement_id", "vote"], &["votes"]),
    header(Role::IdeasVotes, &["vote id", "winner id", "loser id"], &["votes"]),
    header(Role::Ideas, &["idea id", "idea text"], &["ideas"]),
    header(Role::IdeasNonVotes, &["record type", "left choice id"], &["non_votes", "non-votes"]),
];

/// First cells of the rows of a summary, normalized by [`normalize_key`].
const SUMMARY_KEYS: [&str; 11] = [
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
/// A two-column table that starts with one of these keys is a summary.
const FIRST_KEYS: [&str; 3] = ["topic", "url", "conversationdescription"];

/// Normalizes a summary key to its lowercase letters and digits.
fn normalize_key(text: &str) -> String {
    let letters = text.chars().filter(|character| character.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// True if the file name is that of a summary.
pub(super) fn is_called_summary(member: &Member) -> bool {
    let name = member.name.to_lowercase();
    name.split_once(".csv").is_some_and(|(name, _)| name.ends_with("summary"))
}

pub(super) fn is_called_format(member: &Member) -> bool {
    let name = member.name.rsplit('/').next().unwrap_or_default().to_lowercase();
    name.split_once(".json").is_some_and(|(name, _)| name == "format")
}

/// Beginning of a file as text.
pub(super) struct HeaderRow {
    pub(super) text: String,
    /// Encoding of the file if it is not supported.
    pub(super) unsupported_encoding: Option<&'static str>,
}

/// Bytes read to detect a role: enough for the header of a matrix with many thousand comments.
const MAX_HEADER_BYTES: u64 = 1 << 20;

impl HeaderRow {
    pub(super) fn read(member: &Member, limits: &Limits) -> Result<Self, ConvertError> {
        let mut bytes = Vec::new();
        let stream = member.without_digest().open(limits, None)?;
        let result = stream.take(MAX_HEADER_BYTES).read_to_end(&mut bytes);
        match result.map_err(|error| ConvertError::from_io(&member.name, error)) {
            Err(error) if !(member.allows_damage && error.is_damage()) => return Err(error),
            _ => {}
        }
        // Without a byte order mark, UTF-16 and UTF-32 are recognised by their zero bytes around ASCII letters.
        let (encoding, text) = match bytes[..] {
            [0xff, 0xfe, 0, 0, ..] | [1..=255, 0, 0, 0, ..] => utf32(&bytes, u32::from_le_bytes),
            [0, 0, 0xfe, 0xff, ..] | [0, 0, 0, 1..=255, ..] => utf32(&bytes, u32::from_be_bytes),
            [0xff, 0xfe, ..] | [1..=255, 0, 1..=255, 0, ..] => utf16(&bytes, u16::from_le_bytes),
            [0xfe, 0xff, ..] | [0, 1..=255, 0, 1..=255, ..] => utf16(&bytes, u16::from_be_bytes),
            _ => (None, String::from_utf8_lossy(&bytes).into_owned()),
        };
        Ok(Self { text: text.trim_start_matches('\u{feff}').to_owned(), unsupported_encoding: encoding })
    }

    /// Column names, if the file is a table.
    pub(super) fn columns(&self) -> Vec<String> {
        let line = self.text.lines().next().unwrap_or_default();
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
        let header = reader.records().next().and_then(Result::ok).unwrap_or_default();
        header.iter().map(|name| name.trim().to_owned()).collect()
    }

    /// True if the rows are those of a summary. One known key suffices if the file name matches.
    fn is_summary(&self, is_named_summary: bool) -> bool {
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(self.text.as_bytes());
        let rows = reader.records().map_while(Result::ok).filter(|row| row.len() > 1);
        let keys = rows.map(|row| normalize_key(&row[0])).filter(|key| SUMMARY_KEYS.contains(&key.as_str()));
        let keys: BTreeSet<_> = keys.collect();
        let columns = self.columns();
        let starts_like_summary =
            columns.len() == 2 && FIRST_KEYS.contains(&normalize_key(&columns[0]).as_str());
        // This key alone suffices: ignoring the declaration could invert all votes.
        keys.contains("voteconvention") || keys.len() > usize::from(!is_named_summary) || starts_like_summary
    }

    fn detect_role(&self, member: &Member) -> Role {
        if self.text.trim_start().starts_with('{') {
            // The document may be cut off at the limit, so it is searched as text.
            let is_bundle = self.text.contains("\"bundleId\"") || self.text.contains("\"phases\"");
            let text = self.text.to_lowercase();
            let is_format = text.contains("polis-export/") || text.contains("vote-convention");
            return if is_bundle {
                Role::Bundle
            } else if is_format {
                Role::PolisFormat
            } else {
                Role::Unknown
            };
        }
        let columns = self.columns();
        match KNOWN_HEADERS.iter().find(|header| header.missing_columns(&columns).is_empty()) {
            Some(header) => header.role,
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
    let characters = bytes.as_chunks().0.iter().map(|unit_bytes| char::from_u32(unit(*unit_bytes)));
    (Some("UTF-32"), characters.map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

pub(crate) fn detect_role(member: &Member, limits: &Limits) -> Result<Role, ConvertError> {
    let header_row = HeaderRow::read(member, limits)?;
    let is_named_format = is_called_format(member);
    match (header_row.detect_role(member), header_row.unsupported_encoding) {
        (Role::Unknown, _) if !is_named_format => Ok(Role::Unknown),
        (_, Some(encoding)) => Err(encoding_error(member, encoding)),
        // A file named `format.json` is a declaration in any form; unknown content is reported when it is read.
        (Role::Unknown, None) => Ok(Role::PolisFormat),
        (role, None) => Ok(role),
    }
}

/// Role of a damaged file, from its readable beginning.
pub(crate) fn detect_damaged_role(member: &Member, limits: &Limits) -> Result<Role, ConvertError> {
    Ok(HeaderRow::read(&member.readable_part(), limits)?.detect_role(member))
}

pub(super) fn encoding_error(member: &Member, encoding: &str) -> ConvertError {
    ConvertError::content(&member.name, 1, ErrorKind::Encoding, format!("it is {encoding}: save it as UTF-8"))
}

/// Reads the `key,value` rows of a summary, which has no header. Keys are normalized.
pub(crate) fn read_pairs(
    member: &Member,
    limits: &Limits,
    mut on_pair: impl FnMut(&str, &str),
) -> Result<(), ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, false)?;
    while let Some(row) = table.next()? {
        if row.len() < 2 {
            continue;
        }
        // An unquoted comma would truncate the value silently.
        for column in 2..row.len() {
            if !row.text(column)?.trim().is_empty() {
                let detail = "a summary row has a name and a value: put a value with commas in quotes";
                return Err(row.error(ErrorKind::Columns, detail));
            }
        }
        on_pair(&normalize_key(row.text(0)?), row.text(1)?);
    }
    Ok(())
}

/// Checks that a file named as a summary is one. An unread summary could declare the sign of votes.
pub(crate) fn check_summary(files: &[(Member, Role)], limits: &Limits) -> Result<(), ConvertError> {
    let Some((member, _)) =
        files.iter().find(|(member, role)| *role == Role::Unknown && is_called_summary(member))
    else {
        return Ok(());
    };
    let header_row = HeaderRow::read(member, limits)?;
    if let Some(encoding) = header_row.unsupported_encoding {
        return Err(encoding_error(member, encoding));
    }
    let first_key = |line: &str| line.split([';', '\t']).next().map(normalize_key);
    let has_other_separator = header_row
        .text
        .lines()
        .any(|line| first_key(line).is_some_and(|key| SUMMARY_KEYS.contains(&key.as_str())));
    let detail = if header_row.text.trim().is_empty() {
        "the file is empty"
    } else if has_other_separator {
        "its columns are not separated by commas: save it with commas"
    } else {
        "it has no summary row such as topic, url or vote-convention"
    };
    Err(ConvertError::content(&member.name, 1, ErrorKind::Format, detail))
}

/// Returns the single file of a role. A second one is an error, since only one of them can be right.
pub(crate) fn find_single(files: &[(Member, Role)], role: Role) -> Result<Option<&Member>, ConvertError> {
    let mut members = files.iter().filter(|file| file.1 == role).map(|file| &file.0);
    let first = members.next();
    match members.next() {
        None => Ok(first),
        Some(second) => {
            let detail = format!("it is a second file of {}", role.name());
            Err(ConvertError::content(&second.name, None, ErrorKind::Duplicate, detail))
        }
    }
}
