//! What becomes of the items' texts.
//!
//! Which items are shown at all is `tables`'s.

use super::Job;
use crate::{
    form::TEXT_REVIEWED_BY,
    model::Head,
    privacy::{
        Texts,
        card::Content,
        text::{identifies, redact},
    },
    write::document::Line,
};

#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) lines: Vec<Line>,
    pub(super) redacted: u64,
    reviewed: bool,
}

/// The organizer's texts stay as they are: they were written to be read.
pub(super) fn texts(head: &Head, job: &Job) -> Prepared {
    let mut redacted = 0;
    let lines = head.items.iter().map(|item| {
        let text = match job.texts() {
            _ if item.organizer => item.text.clone(),
            Texts::Keep => item.text.clone(),
            Texts::Redact => {
                let (text, count) = redact(&item.text);
                redacted += count;
                text
            }
            Texts::Omit => String::new(),
        };
        Line { text, created: item.created, kept: true }
    });
    let lines = lines.collect();
    Prepared { lines, redacted, reviewed: job.text_reviewed_by.is_some() }
}

/// What is said of the treatment of texts.
pub(super) fn notes(prepared: &Prepared, job: &Job) -> Vec<String> {
    let mut notes = Vec::new();
    match job.texts() {
        Texts::Keep => {}
        Texts::Redact if prepared.redacted == 1 => notes.push(
            "1 address, number, link or handle in participants' texts was replaced by a token.".to_owned(),
        ),
        Texts::Redact => notes.push(format!(
            "{} addresses, numbers, links and handles in participants' texts were replaced by tokens.",
            prepared.redacted
        )),
        Texts::Omit => notes.push("Participants' texts were left out.".to_owned()),
    }
    if let Some(by) = &job.text_reviewed_by {
        notes.push(format!("{TEXT_REVIEWED_BY}{by}"));
    }
    notes
}

impl Prepared {
    /// What the items that are shown bring into a bundle.
    pub(super) fn content(&self, head: &Head) -> Content {
        let shown = || head.items.iter().zip(&self.lines).filter(|(_, line)| line.kept);
        Content {
            participant_text: shown().any(|(item, line)| !item.organizer && !line.text.is_empty()),
            identifying_text: identifies(&head.source.title)
                || identifies(&head.source.description)
                || shown().any(|(_, line)| identifies(&line.text)),
            text_reviewed: self.reviewed,
            ..Content::default()
        }
    }
}
