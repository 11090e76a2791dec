//! Detects a list of votes that was cut off at the end of a line, by the tables beside it.
//!
//! A short list is still converted, with a note; only an empty one is refused.

use super::vote_sign::SignCheck;
use crate::{
    error::{ConvertError, ErrorKind},
    plural::counted,
    privacy::participants::ParticipantRegistry,
};

/// Names of the files.
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
        let (silent, statements) = (people.silent(), check.unanswered());
        let Self { votes, comments, matrix } = self;
        let matrix = matrix.filter(|_| silent.said > 0);
        let comments = Some(*comments).filter(|_| statements > 0);
        if rows == 0 && (matrix.is_some() || comments.is_some()) {
            let others: Vec<_> = matrix.into_iter().chain(comments).collect();
            let (others, have) = (others.join(" and "), if others.len() == 1 { "has" } else { "have" });
            let detail = format!("it holds no answers, and {others} {have} some: it may have been cut off");
            return Err(ConvertError::content(votes, None, ErrorKind::Value, detail));
        }
        let who = matrix.map(|matrix| {
            let (told, were) = people.hidden_below.counted(silent.said, "participant");
            let has = if were == "was" { "has" } else { "have" };
            // Of few people, many votes tell that they are no fewer.
            let answers = if people.hidden_below.hides_any() {
                "votes".to_owned()
            } else {
                counted(silent.answers, "vote")
            };
            format!("{told} with {answers} in {matrix} {has} none in it and {were} left out")
        });
        let what = comments.map(|comments| {
            let has = if statements == 1 { "has" } else { "have" };
            let told = counted(statements, "statement");
            format!("{told} with agrees or disagrees in {comments} {has} none in it")
        });
        let found: Vec<_> = who.into_iter().chain(what).collect();
        Ok((!found.is_empty()).then(|| format!("{votes} may have been cut off: {}.", found.join("; "))))
    }
}
