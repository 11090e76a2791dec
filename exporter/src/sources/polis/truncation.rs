//! Detects a list of votes that was truncated at the end of a line, by comparison with the other tables.
//!
//! A truncated list is converted with a note; an empty one is refused.

use super::vote_sign::SignCheck;
use crate::{
    error::{ConvertError, ErrorKind},
    plural::format_count,
    privacy::participants::ParticipantRegistry,
};

/// Names of the compared files.
pub(super) struct FileNames<'n> {
    pub(super) votes: &'n str,
    pub(super) comments: &'n str,
    pub(super) matrix: Option<&'n str>,
}

impl FileNames<'_> {
    pub(super) fn note(
        &self,
        rows: u64,
        people: &ParticipantRegistry,
        check: &SignCheck<'_>,
    ) -> Result<Option<String>, ConvertError> {
        let (without_answers, unanswered) = (people.count_silent(), check.count_unanswered_items());
        let Self { votes, comments, matrix } = self;
        let matrix = matrix.filter(|_| without_answers.with_stated_answers > 0);
        let comments = Some(*comments).filter(|_| unanswered > 0);
        if rows == 0 && (matrix.is_some() || comments.is_some()) {
            let names: Vec<_> = matrix.into_iter().chain(comments).collect();
            let (names, have) = (names.join(" and "), if names.len() == 1 { "has" } else { "have" });
            let detail = format!("it holds no answers, and {names} {have} some: it may have been cut off");
            return Err(ConvertError::content(votes, None, ErrorKind::Value, detail));
        }
        let participants_part = matrix.map(|matrix| {
            let (phrase, were) =
                people.hidden_below.format_count(without_answers.with_stated_answers, "participant");
            let has = if were == "was" { "has" } else { "have" };
            // A large number of votes would reveal that the few participants are not fewer.
            let answers = if people.hidden_below.hides_any() {
                "votes".to_owned()
            } else {
                format_count(without_answers.missing_answers, "vote")
            };
            format!("{phrase} with {answers} in {matrix} {has} none in it and {were} left out")
        });
        let statements_part = comments.map(|comments| {
            let has = if unanswered == 1 { "has" } else { "have" };
            let phrase = format_count(unanswered, "statement");
            format!("{phrase} with agrees or disagrees in {comments} {has} none in it")
        });
        let findings: Vec<_> = participants_part.into_iter().chain(statements_part).collect();
        Ok((!findings.is_empty()).then(|| format!("{votes} may have been cut off: {}.", findings.join("; "))))
    }
}
