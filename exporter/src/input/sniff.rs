//! What a file is, told by its first row.
//!
//! Names of files are hints at most: people rename them.

use std::io::Read as _;

use super::{Limits, Member, table::Table};
use crate::fault::{Fault, Wrong};

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
}

impl Role {
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
            Self::Unknown => "unused",
        }
    }
}

/// Enough for the header of a matrix with many thousand comments.
const ENOUGH: u64 = 1 << 20;

pub(crate) fn role(member: &Member, limits: &Limits) -> Result<Role, Fault> {
    let mut first = Vec::new();
    let mut stream = member.without_digest().open(limits, None)?;
    stream
        .by_ref()
        .take(ENOUGH)
        .read_to_end(&mut first)
        .map_err(|error| Fault::from_io(&member.name, error))?;
    let text = String::from_utf8_lossy(first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first)).into_owned();
    if text.trim_start().starts_with('{') {
        let bundle = text.contains("\"bundleId\"") || text.contains("\"phases\"");
        let format = text.contains("polis-export/") || text.contains("vote-convention");
        return Ok(if bundle {
            Role::Bundle
        } else if format {
            Role::PolisFormat
        } else {
            Role::Unknown
        });
    }
    Ok(text.lines().next().map_or(Role::Unknown, by_header))
}

fn by_header(line: &str) -> Role {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    let Some(Ok(header)) = reader.records().next() else { return Role::Unknown };
    let columns: Vec<_> = header.iter().map(|name| name.trim().to_lowercase()).collect();
    let has = |name: &str| columns.iter().any(|column| column == name);
    let all = |names: &[&str]| names.iter().all(|name| has(name));
    if all(&["comment-id", "voter-id", "vote"]) {
        Role::PolisVotes
    } else if all(&["comment-id", "comment-body"]) {
        Role::PolisComments
    } else if all(&["participant", "n-votes"]) {
        Role::PolisMatrix
    } else if all(&["comment-id", "comment", "total-votes"]) {
        Role::PolisGroups
    } else if all(&["comment-id", "comment_text"]) {
        Role::Tallies
    } else if all(&["n-votes", "n-comments", "n-visitors"]) {
        Role::PolisStats
    } else if all(&["statement_id", "text"]) {
        Role::PocketStatements
    } else if all(&["participant", "statement_id", "vote"]) {
        Role::PocketVotes
    } else if all(&["vote id", "winner id", "loser id"]) {
        Role::IdeasVotes
    } else if all(&["idea id", "idea text"]) {
        Role::Ideas
    } else if all(&["record type", "left choice id"]) {
        Role::IdeasNonVotes
    } else if columns.len() == 2
        && matches!(columns[0].as_str(), "topic" | "url" | "conversation-description")
    {
        Role::PolisSummary
    } else {
        Role::Unknown
    }
}

/// The lines `key,value` of a summary, which has no header.
pub(crate) fn pairs(member: &Member, limits: &Limits) -> Result<Vec<(String, String)>, Fault> {
    let mut table = Table::open(member.open(limits, None)?, limits, false)?;
    let mut found = Vec::new();
    while let Some(row) = table.next()? {
        if row.len() >= 2 {
            found.push((row.text(0)?.trim().to_owned(), row.text(1)?.to_owned()));
        }
    }
    Ok(found)
}

pub(crate) fn missing(what: &str) -> Fault {
    Fault::content("the input", None, Wrong::MissingFile, format!("{what} is not there"))
}

/// The one file of a role: two of a kind cannot both be right.
pub(crate) fn one_of(files: &[(Member, Role)], role: Role) -> Result<Option<&Member>, Fault> {
    let mut found = files.iter().filter(|file| file.1 == role).map(|file| &file.0);
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(second) => {
            let detail = format!("it is the second file of {}", role.name());
            Err(Fault::content(&second.name, None, Wrong::Duplicate, detail))
        }
    }
}
