//! What becomes of the items' texts.
//!
//! Which items are shown at all is `tables`'s.

use std::collections::HashSet;

use serde_json::Value;

use super::Job;
use crate::{
    form::{Hand, TEXT_REVIEWED_BY},
    model::{Head, Item},
    privacy::{
        Profile, Texts,
        card::Content,
        people::refers,
        text::{identifies, redact},
    },
    words::Few,
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

/// Ids that would identify or refer to somebody become numbers; what was done is said.
pub(super) fn hide_ids(items: &mut [Item]) -> Option<String> {
    let taken: HashSet<_> = items.iter().map(|item| item.key.clone()).collect();
    let mut free = (1_u64..).map(|number| format!("hidden-{number}")).filter(|key| !taken.contains(key));
    let mut hidden = 0_u64;
    for item in items.iter_mut().filter(|item| names_one(&item.id)) {
        let key = free.next()?;
        item.id.truncate(item.id.len() - item.key.len());
        item.id.push_str(&key);
        item.key = key;
        hidden += 1;
    }
    match hidden {
        0 => None,
        1 => Some("1 id of an item that looks like somebody's was replaced by a number.".to_owned()),
        _ => Some(format!("{hidden} ids of items that look like somebody's were replaced by numbers.")),
    }
}

fn names_one(id: &str) -> bool {
    identifies(id, Hand::Reference) || refers(id.as_bytes())
}

/// What is said of the treatment of texts.
pub(super) fn notes(prepared: &Prepared, job: &Job) -> Vec<String> {
    let mut notes = Vec::new();
    match job.texts() {
        Texts::Keep => {}
        Texts::Redact if prepared.redacted == 1 && job.few() == Few::default() => notes.push(
            "1 address, number, link or handle in participants' texts was replaced by a token.".to_owned(),
        ),
        Texts::Redact => {
            let what = "addresses, numbers, links and handles in participants' texts";
            let told = job.few().told(prepared.redacted).unwrap_or_else(|| prepared.redacted.to_string());
            notes.push(format!("{told} {what} were replaced by tokens."));
        }
        Texts::Omit => notes.push("Participants' texts were left out.".to_owned()),
    }
    if let Some(by) = &job.text_reviewed_by {
        notes.push(format!("{TEXT_REVIEWED_BY}{by}"));
    }
    notes
}

impl Prepared {
    /// What the items that are shown bring into a bundle, and what is said of all of it.
    pub(super) fn content(&self, head: &Head, job: &Job) -> Content {
        let shown = || head.items.iter().zip(&self.lines).filter(|(_, line)| line.kept);
        let source = &head.source;
        let by_people = [&source.title, &source.description].map(String::as_str);
        let mut by_people = by_people.into_iter().chain(shown().map(|(_, line)| line.text.as_str()));
        Content {
            participant_text: shown().any(|(item, line)| !item.organizer && !line.text.is_empty()),
            identifying_text: by_people.any(|text| identifies(text, Hand::People))
                || shown().any(|(item, _)| identifies(&item.id, Hand::Reference))
                || of_tools(head, job).any(|text| identifies(text, Hand::Tool))
                || published(head, job).any(names_somebody),
            refers: of_tools(head, job)
                .chain([source.title.as_str(), &source.description])
                .chain(shown().map(|(item, _)| item.id.as_str()))
                .any(|text| refers(text.as_bytes())),
            text_reviewed: self.reviewed,
            ..Content::default()
        }
    }
}

/// Everything that is neither a statement nor about one.
fn of_tools<'h>(head: &'h Head, job: &'h Job) -> impl Iterator<Item = &'h str> {
    let source = &head.source;
    let source = [&source.tool, &source.schema, &source.id, &source.url];
    let artifacts = head
        .artifacts
        .iter()
        .flat_map(|artifact| [Some(artifact.role), Some(artifact.name.as_str()), artifact.within.as_deref()]);
    let said = [&head.notes, &head.groups, &job.limitations].into_iter().flatten();
    source
        .into_iter()
        .chain(&job.bundle_id)
        .chain(said)
        .map(String::as_str)
        .chain([head.adapter.as_str()])
        .chain(artifacts.flatten())
        .chain(head.items.iter().map(|item| item.status.as_str()))
}

/// What the source says of items stands in private bundles only.
fn published<'h>(head: &'h Head, job: &Job) -> impl Iterator<Item = (&'h String, &'h Value)> {
    let shown = job.profile == Profile::Private;
    let outcomes = head.items.iter().filter(move |_| shown).flat_map(|item| &item.outcomes);
    outcomes.flat_map(|outcome| outcome.counts.iter().chain(&outcome.more))
}

fn names_somebody((name, value): (&String, &Value)) -> bool {
    let within = match value {
        Value::String(text) => identifies(text, Hand::Tool),
        Value::Array(values) => values.iter().any(|value| names_somebody((name, value))),
        Value::Object(members) => members.iter().any(names_somebody),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    within || identifies(name, Hand::Tool)
}
