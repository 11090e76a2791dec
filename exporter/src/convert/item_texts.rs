//! Keeps, redacts or omits the items' texts.
//!
//! Suppression of whole items is decided in `aggregates`.

use std::collections::HashSet;

use serde_json::Value;

use super::Job;
use crate::{
    bundle::write::document::ItemLine,
    error::ConvertError,
    form::{Hand, TEXT_REVIEWED_BY},
    meter::Meter,
    model::{BundleHeader, Item},
    plural::HiddenBelow,
    privacy::{
        Profile, Texts,
        data_card::Content,
        identifying_text::{identifies, redact},
        participants::refers,
    },
};

#[derive(Debug)]
pub(super) struct ItemTexts {
    pub(super) lines: Vec<ItemLine>,
    pub(super) redacted: u64,
    reviewed: bool,
}

/// The organizer's texts stay as they are: they were written to be read.
pub(super) fn texts(head: &BundleHeader, job: &Job, meter: &Meter) -> Result<ItemTexts, ConvertError> {
    let mut redacted = 0;
    let lines = head.items.iter().map(|item| {
        meter.check_stop()?;
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
        Ok(ItemLine { text, created: item.created, kept: true })
    });
    let lines = lines.collect::<Result<_, ConvertError>>()?;
    Ok(ItemTexts { lines, redacted, reviewed: job.text_reviewed_by.is_some() })
}

/// Replaces ids that would identify or refer to a person by numbers, and returns a note about it.
pub(super) fn hide_ids(items: &mut [Item], meter: &Meter) -> Result<Option<String>, ConvertError> {
    let taken: HashSet<_> = items.iter().map(|item| item.key.clone()).collect();
    let mut free = (1_u64..).map(|number| format!("hidden-{number}")).filter(|key| !taken.contains(key));
    let mut hidden = 0_u64;
    for item in items {
        meter.check_stop()?;
        if !names_one(&item.id) {
            continue;
        }
        let Some(key) = free.next() else { break };
        item.id.truncate(item.id.len() - item.key.len());
        item.id.push_str(&key);
        item.key = key;
        hidden += 1;
    }
    Ok(match hidden {
        0 => None,
        1 => Some("1 id of an item that looks like somebody's was replaced by a number.".to_owned()),
        _ => Some(format!("{hidden} ids of items that look like somebody's were replaced by numbers.")),
    })
}

fn names_one(id: &str) -> bool {
    identifies(id, Hand::Reference) || refers(id.as_bytes())
}

/// Notes about the treatment of texts.
pub(super) fn notes(prepared: &ItemTexts, job: &Job) -> Vec<String> {
    let mut notes = Vec::new();
    match job.texts() {
        Texts::Keep => {}
        Texts::Redact if prepared.redacted == 1 && job.hidden_below() == HiddenBelow::default() => notes
            .push(
                "1 address, number, link or handle in participants' texts was replaced by a token."
                    .to_owned(),
            ),
        Texts::Redact => {
            let what = "addresses, numbers, links and handles in participants' texts";
            let told = job
                .hidden_below()
                .hidden_phrase(prepared.redacted)
                .unwrap_or_else(|| prepared.redacted.to_string());
            notes.push(format!("{told} {what} were replaced by tokens."));
        }
        Texts::Omit => notes.push("Participants' texts were left out.".to_owned()),
    }
    if let Some(by) = &job.text_reviewed_by {
        notes.push(format!("{TEXT_REVIEWED_BY}{by}"));
    }
    notes
}

impl ItemTexts {
    /// Content of the shown items and of everything said about them, for the data card.
    pub(super) fn content(
        &self,
        head: &BundleHeader,
        job: &Job,
        meter: &Meter,
    ) -> Result<Content, ConvertError> {
        let said = [head.source.title.as_str(), &head.source.description];
        let mut content = Content {
            identifying_text: said.iter().any(|text| identifies(text, Hand::People))
                || of_tools(head, job).any(|text| identifies(text, Hand::Tool))
                || published(head, job).any(names_somebody),
            refers: of_tools(head, job).chain(said).any(|text| refers(text.as_bytes())),
            text_reviewed: self.reviewed,
            ..Content::default()
        };
        for (item, line) in head.items.iter().zip(&self.lines).filter(|(_, line)| line.kept) {
            meter.check_stop()?;
            content.participant_text |= !item.organizer && !line.text.is_empty();
            content.identifying_text = content.identifying_text
                || identifies(&line.text, Hand::People)
                || identifies(&item.id, Hand::Reference);
            content.refers = content.refers || refers(item.id.as_bytes());
        }
        Ok(content)
    }
}

/// Everything that is neither a statement nor about one.
fn of_tools<'h>(head: &'h BundleHeader, job: &'h Job) -> impl Iterator<Item = &'h str> {
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

/// Values of published outcomes, which appear in private bundles only.
fn published<'h>(head: &'h BundleHeader, job: &Job) -> impl Iterator<Item = (&'h String, &'h Value)> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{convert::Target, model::Source};

    #[test]
    fn texts_are_looked_through_until_somebody_says_stop() {
        let item = Item {
            key: "1".to_owned(),
            row: 1,
            id: "statement:1".to_owned(),
            text: "text".to_owned(),
            status: "approved".to_owned(),
            organizer: false,
            created: None,
            author: None,
            outcomes: Vec::new(),
        };
        let mut head = BundleHeader::of_statements("adapter", Source::default(), vec![item]);
        let (job, meter) = (Job::new(Vec::new(), Target::File("out".into())), Meter::default());
        let prepared = texts(&head, &job, &meter).unwrap();
        assert!(prepared.content(&head, &job, &meter).unwrap().participant_text);
        meter.stop();
        let faults = [
            texts(&head, &job, &meter).map(drop),
            prepared.content(&head, &job, &meter).map(drop),
            hide_ids(&mut head.items, &meter).map(drop),
        ];
        assert!(faults.into_iter().all(|error| error.is_err_and(|error| error.tag() == "stopped")));
    }
}
