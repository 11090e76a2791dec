//! Reports input columns that have no counterpart in a bundle.

use super::{Limits, Member, Role, sniff::HeaderRow};
use crate::error::ConvertError;

/// Columns that are converted or redundant; `None` for roles without a note.
fn converted_columns(role: Role) -> Option<&'static [&'static str]> {
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
        // The columns of a matrix are comments, and the other roles are no tables or are not converted.
        _ => return None,
    })
}

/// Column names defined by tools, which are safe to list in a public bundle.
const TOOL_COLUMNS: [&str; 7] = [
    "is-meta",
    "importance",
    "important",
    "velocity",
    "lang",
    "group-informed-consensus",
    "response time (s)",
];
/// Number of columns listed in one note; the others are counted.
const MAX_LISTED_COLUMNS: usize = 20;
const MAX_NAME_CHARS: usize = 40;

/// Notes about columns that are not converted. For a public bundle, they list only names defined by tools.
pub(crate) fn note_dropped_columns(
    files: &[(Member, Role)],
    limits: &Limits,
    is_public: bool,
) -> Result<Vec<String>, ConvertError> {
    let mut notes = Vec::new();
    for (member, role) in files {
        let Some(converted) = converted_columns(*role) else { continue };
        let columns = HeaderRow::read(member, limits)?.columns();
        let is_count = |name: &str| {
            *role == Role::Tallies
                && ["-agree-count", "-disagree-count", "-pass-count"]
                    .iter()
                    .any(|ending| name.ends_with(ending))
        };
        let is_converted =
            |name: &str| name.is_empty() || is_count(name) || contains_ignoring_case(converted, name);
        let dropped_columns: Vec<_> = columns.iter().filter(|name| !is_converted(name)).collect();
        notes.extend(format_note(&member.name, &dropped_columns, is_public));
    }
    Ok(notes)
}

fn contains_ignoring_case(names: &[&str], name: &str) -> bool {
    names.iter().any(|candidate| candidate.eq_ignore_ascii_case(name))
}

fn format_note(file: &str, dropped_columns: &[&String], is_public: bool) -> Option<String> {
    let may_list = |name: &str| {
        // A column name can itself identify a person, so a public note lists only names defined by tools.
        if is_public {
            contains_ignoring_case(&TOOL_COLUMNS, name)
        } else {
            // Long or unprintable names would garble the note.
            name.chars().count() <= MAX_NAME_CHARS && !name.contains(char::is_control)
        }
    };
    let mut listed_names: Vec<_> =
        dropped_columns.iter().filter(|name| may_list(name)).map(|name| (*name).clone()).collect();
    listed_names.truncate(MAX_LISTED_COLUMNS);
    let unlisted_count = dropped_columns.len() - listed_names.len();
    match (listed_names.is_empty(), unlisted_count) {
        (_, 0) => {}
        (true, 1) => listed_names.push("1 column".to_owned()),
        (true, count) => listed_names.push(format!("{count} columns")),
        (false, count) => listed_names.push(format!("{count} more")),
    }
    (!dropped_columns.is_empty()).then(|| {
        format!(
            "Columns of {file} without a counterpart in a bundle were left out: {}.",
            listed_names.join(", ")
        )
    })
}
