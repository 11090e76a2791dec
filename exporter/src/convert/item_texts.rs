//! Keeps, redacts or omits the texts of items, and describes them for the data card.
//!
//! Whole items are suppressed in `aggregates`.

use std::collections::HashSet;

use serde_json::Value;

use super::Job;
use crate::{
    bundle::write::document::ItemLine,
    error::ConvertError,
    form::{TEXT_REVIEWED_BY, TextAuthor},
    meter::Meter,
    model::{BundleHeader, Item, Origin},
    plural::HiddenBelow,
    privacy::{
        Profile, TextTreatment,
        data_card::Content,
        identifying_text::{identifies, redact},
        participants::mentions_participant,
    },
};

#[derive(Debug)]
pub(super) struct ItemTexts {
    pub(super) lines: Vec<ItemLine>,
    pub(super) redacted: u64,
    is_reviewed: bool,
}

/// Prepares the texts. The organizer's texts are kept unchanged: they were written for publication.
pub(super) fn prepare_texts(
    head: &BundleHeader,
    job: &Job,
    meter: &Meter,
) -> Result<ItemTexts, ConvertError> {
    let mut redacted = 0;
    let lines = head.items.iter().map(|item| {
        meter.check_stop()?;
        let text = match job.texts() {
            _ if item.origin == Origin::Organizer => item.text.clone(),
            TextTreatment::Keep => item.text.clone(),
            TextTreatment::Redact => {
                let (text, count) = redact(&item.text);
                redacted += count;
                text
            }
            TextTreatment::Omit => String::new(),
        };
        Ok(ItemLine { text, created_at: item.created, is_published: true })
    });
    let lines = lines.collect::<Result<_, ConvertError>>()?;
    Ok(ItemTexts { lines, redacted, is_reviewed: job.text_reviewed_by.is_some() })
}

/// Replaces item ids that identify or refer to a person by numbers, and returns a note about them.
pub(super) fn replace_identifying_ids(
    items: &mut [Item],
    meter: &Meter,
) -> Result<Option<String>, ConvertError> {
    let existing_keys: HashSet<_> = items.iter().map(|item| item.key.clone()).collect();
    // A replacement must not collide with a key of the source.
    let mut free_keys =
        (1_u64..).map(|number| format!("hidden-{number}")).filter(|key| !existing_keys.contains(key));
    let mut replaced_ids = 0_u64;
    for item in items {
        meter.check_stop()?;
        if !is_identifying_id(&item.id) {
            continue;
        }
        let Some(key) = free_keys.next() else { break };
        // Only the key is replaced: the prefix of the id (`statement:`) belongs to the format.
        item.id.truncate(item.id.len() - item.key.len());
        item.id.push_str(&key);
        item.key = key;
        replaced_ids += 1;
    }
    Ok(match replaced_ids {
        0 => None,
        1 => Some("1 item id that looks like a personal identifier was replaced by a number.".to_owned()),
        _ => Some(format!(
            "{replaced_ids} item ids that look like personal identifiers were replaced by numbers."
        )),
    })
}

fn is_identifying_id(id: &str) -> bool {
    identifies(id, TextAuthor::Reference) || mentions_participant(id.as_bytes())
}

/// Notes about the treatment of the texts.
pub(super) fn notes(texts: &ItemTexts, job: &Job) -> Vec<String> {
    let mut notes = Vec::new();
    match job.texts() {
        TextTreatment::Keep => {}
        // The singular reveals the exact count, so it needs a private bundle.
        TextTreatment::Redact if texts.redacted == 1 && job.hidden_below() == HiddenBelow::default() => notes
            .push(
                "1 address, number, link or handle in participants' texts was replaced by a token."
                    .to_owned(),
            ),
        TextTreatment::Redact => {
            let nouns = "addresses, numbers, links and handles in participants' texts";
            let count = job
                .hidden_below()
                .hidden_phrase(texts.redacted)
                .unwrap_or_else(|| texts.redacted.to_string());
            notes.push(format!("{count} {nouns} were replaced by tokens."));
        }
        TextTreatment::Omit => notes.push("Participants' texts were left out.".to_owned()),
    }
    if let Some(by) = &job.text_reviewed_by {
        notes.push(format!("{TEXT_REVIEWED_BY}{by}"));
    }
    notes
}

impl ItemTexts {
    /// Describes the disclosed items and all texts about them for the data card.
    pub(super) fn describe_content(
        &self,
        head: &BundleHeader,
        job: &Job,
        meter: &Meter,
    ) -> Result<Content, ConvertError> {
        let source_texts = [head.source.title.as_str(), &head.source.description];
        let mut content = Content {
            identifying_text: source_texts.iter().any(|text| identifies(text, TextAuthor::People))
                || tool_texts(head, job).any(|text| identifies(text, TextAuthor::Tool))
                || published_values(head, job).any(value_identifies),
            refers: tool_texts(head, job)
                .chain(source_texts)
                .any(|text| mentions_participant(text.as_bytes())),
            text_reviewed: self.is_reviewed,
            ..Content::default()
        };
        for (item, line) in head.items.iter().zip(&self.lines).filter(|(_, line)| line.is_published) {
            meter.check_stop()?;
            content.participant_text |= item.origin == Origin::Participant && !line.text.is_empty();
            // The search is slow, and one identifying text decides.
            content.identifying_text = content.identifying_text
                || identifies(&line.text, TextAuthor::People)
                || identifies(&item.id, TextAuthor::Reference);
            content.refers = content.refers || mentions_participant(item.id.as_bytes());
        }
        Ok(content)
    }
}

/// Texts written by tools or the operator: all except statements, title and description.
fn tool_texts<'h>(head: &'h BundleHeader, job: &'h Job) -> impl Iterator<Item = &'h str> {
    let source = &head.source;
    let source = [&source.tool, &source.schema, &source.id, &source.url];
    let artifacts = head.artifacts.iter().flat_map(|artifact| {
        [Some(artifact.role), Some(artifact.name.as_str()), artifact.archive_name.as_deref()]
    });
    let lists = [&head.notes, &head.groups, &job.limitations].into_iter().flatten();
    source
        .into_iter()
        .chain(&job.bundle_id)
        .chain(lists)
        .map(String::as_str)
        .chain([head.adapter.as_str()])
        .chain(artifacts.flatten())
        .chain(head.items.iter().map(|item| item.status.as_str()))
}

/// Values of published outcomes. Public bundles omit those about people.
fn published_values<'h>(head: &'h BundleHeader, job: &Job) -> impl Iterator<Item = (&'h String, &'h Value)> {
    let is_private = job.profile == Profile::Private;
    let outcomes = head.items.iter().flat_map(|item| &item.outcomes);
    let outcomes = outcomes.filter(move |outcome| is_private || outcome.is_public);
    outcomes.flat_map(|outcome| outcome.counts.iter().chain(&outcome.other_members))
}

fn value_identifies((name, value): (&String, &Value)) -> bool {
    let in_value = match value {
        Value::String(text) => identifies(text, TextAuthor::Tool),
        Value::Array(values) => values.iter().any(|value| value_identifies((name, value))),
        Value::Object(members) => members.iter().any(value_identifies),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    in_value || identifies(name, TextAuthor::Tool)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{convert::Target, model::Source};

    #[test]
    fn text_preparation_stops_on_request() {
        let item = Item {
            key: "1".to_owned(),
            row: 1,
            id: "statement:1".to_owned(),
            text: "text".to_owned(),
            status: "approved".to_owned(),
            origin: Origin::Participant,
            phase: 0,
            created: None,
            author: None,
            outcomes: Vec::new(),
        };
        let mut head = BundleHeader::of_statements("adapter", Source::default(), vec![item]);
        let (job, meter) = (Job::new(Vec::new(), Target::File("out".into())), Meter::default());
        let texts = prepare_texts(&head, &job, &meter).unwrap();
        assert!(texts.describe_content(&head, &job, &meter).unwrap().participant_text);
        meter.stop();
        let results = [
            prepare_texts(&head, &job, &meter).map(drop),
            texts.describe_content(&head, &job, &meter).map(drop),
            replace_identifying_ids(&mut head.items, &meter).map(drop),
        ];
        assert!(results.into_iter().all(|error| error.is_err_and(|error| error.tag() == "stopped")));
    }
}
