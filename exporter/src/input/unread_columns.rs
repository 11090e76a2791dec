//! Notes about columns that no bundle has, so that nobody misses them unawares.

use super::{Limits, Member, Role, sniff::HeaderRow};
use crate::error::ConvertError;

/// Columns that are read, or say again what others say.
fn read(role: Role) -> Option<&'static [&'static str]> {
    Some(match role {
        Role::PolisVotes => &["timestamp", "datetime", "comment-id", "voter-id", "vote"],
        Role::PolisComments => &[
            "timestamp",
            "datetime",
            "comment-id",
            "author-id",
            "agrees",
            "disagrees",
            "passes",
            "pass",
            "moderated",
            "is-seed",
            "comment-body",
        ],
        Role::PocketStatements => {
            &["statement_id", "text", "status", "is_seed", "created_at", "agrees", "disagrees", "passes"]
        }
        Role::PocketVotes => &["participant", "statement_id", "vote", "updated_at"],
        Role::Ideas => &[
            "wikisurvey id",
            "question id",
            "ideamarketplace id",
            "idea id",
            "idea text",
            "idea",
            "wins",
            "losses",
            "times involved in cant decide",
            "score",
            "user submitted",
            "created at",
            "active",
        ],
        Role::IdeasVotes | Role::IdeasNonVotes => &[
            "vote id",
            "record id",
            "record type",
            "reason",
            "session id",
            "session identifier",
            "wikisurvey id",
            "question id",
            "ideamarketplace id",
            "winner id",
            "winner text",
            "loser id",
            "loser text",
            "left choice id",
            "left choice text",
            "right choice id",
            "right choice text",
            "created at",
            "valid",
        ],
        Role::Tallies => &[
            "comment-id",
            "comment_text",
            "agrees",
            "disagrees",
            "passes",
            "moderated",
            "topics",
            "topic",
            "subtopic",
        ],
        // A matrix may have no others, and the rest are no tables or not used at all.
        _ => return None,
    })
}

/// Column names given by tools, which notes of a public bundle may show.
const OF_TOOLS: [&str; 7] = [
    "is-meta",
    "importance",
    "important",
    "velocity",
    "lang",
    "group-informed-consensus",
    "response time (s)",
];
/// Number of columns that a note lists by name.
const TOLD: usize = 20;
const LONGEST: usize = 40;

/// Notes about columns that are not converted. With `for_all`, only names that no person can have made up are shown.
pub(crate) fn unread(
    files: &[(Member, Role)],
    limits: &Limits,
    for_all: bool,
) -> Result<Vec<String>, ConvertError> {
    let mut notes = Vec::new();
    for (member, role) in files {
        let Some(read) = read(*role) else { continue };
        let columns = HeaderRow::of(member, limits)?.columns();
        let is_count = |name: &str| {
            *role == Role::Tallies
                && ["-agree-count", "-disagree-count", "-pass-count"]
                    .iter()
                    .any(|ending| name.ends_with(ending))
        };
        let is_read = |name: &str| name.is_empty() || is_count(name) || among(read, name);
        let gone: Vec<_> = columns.iter().filter(|name| !is_read(name)).collect();
        notes.extend(note(&member.name, &gone, for_all));
    }
    Ok(notes)
}

fn among(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn note(file: &str, gone: &[&String], for_all: bool) -> Option<String> {
    let is_told = |name: &str| {
        if for_all {
            among(&OF_TOOLS, name)
        } else {
            name.chars().count() <= LONGEST && !name.contains(char::is_control)
        }
    };
    let mut told: Vec<_> = gone.iter().filter(|name| is_told(name)).map(|name| (*name).clone()).collect();
    told.truncate(TOLD);
    let others = gone.len() - told.len();
    match (told.is_empty(), others) {
        (_, 0) => {}
        (true, 1) => told.push("1 column".to_owned()),
        (true, others) => told.push(format!("{others} columns")),
        (false, others) => told.push(format!("{others} more")),
    }
    (!gone.is_empty()).then(|| {
        format!("Columns of {file} that a bundle has no place for were left out: {}.", told.join(", "))
    })
}
