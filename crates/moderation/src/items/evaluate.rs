//! Evaluates one item against the rules that are live: check, scan, look up what is missing, finish.
//!
//! It plans no effects (`effects::plan`) and looks nothing up: it is pure, and belongs on the compute pool.

use std::sync::Arc;

use tidegate_catalog::Compiled;
use tidegate_rules::{self as rules, Facts, Inquiry, On, Outcome, Scan};
use tidegate_schemas::{
    ids::{ItemKey, Millis, RuleId},
    item_types::{Mode, Values},
    records::{ItemEntry, Source, Variant},
    wire::Pointer,
};

use crate::{
    Error,
    media::{self, Judged, Signal, Wanted},
};

/// An item that fits its type, and the configuration that it is evaluated under.
#[derive(Debug)]
pub struct Prepared {
    pub config: Arc<Compiled>,
    pub key: ItemKey,
    /// Who is struck: the field with role creator, or the user that the item is.
    pub user: Option<ItemKey>,
    /// What is known of its media.
    pub media: Judged,
    values: Values,
    on: On,
    now: Millis,
    submission: tidegate_schemas::ids::SubmissionId,
}

/// How far an evaluation came without asking anybody.
#[derive(Debug)]
pub enum Begun {
    Finished(Outcome),
    /// The item adds to windows, or undecided rules wait for the scan's needs.
    Waiting(Scan),
}

/// Checks the item against its type. A fault is one of the content.
pub fn prepare(
    config: Arc<Compiled>,
    source: Source,
    entry: &ItemEntry,
    append_ms: Millis,
) -> Result<Prepared, Error> {
    let item_type = config.item_type(&entry.type_id).ok_or_else(|| Error::Content {
        tag: "unknown_type",
        detail: format!("there is no item type {}", entry.type_id),
    })?;
    let mode = if entry.variant == Variant::Partial { Mode::Partial } else { Mode::Strict };
    let values = item_type.check(&entry.data, mode, &Pointer::Root).map_err(|faults| Error::Content {
        tag: "unfit_data",
        // Titles name fields and types, never values.
        detail: faults.iter().take(3).map(|fault| fault.title).collect::<Vec<_>>().join("; "),
    })?;
    let key = entry.key();
    let user = if item_type.is_user() { Some(key.clone()) } else { values.creator() };
    Ok(Prepared {
        key,
        user,
        media: Judged::default(),
        values,
        on: match source {
            Source::Report => On::Report,
            Source::Appeal => On::Appeal,
            Source::Api | Source::PartialItems | Source::Retroact => On::Item,
        },
        now: append_ms,
        submission: entry.submission_id,
        config,
    })
}

/// Decides what can be decided from the item alone.
pub fn begin(prepared: &Prepared) -> Begun {
    let scan = prepared.config.plan().scan(&prepared.item());
    if scan.needs().is_empty() && scan.entries().is_empty() {
        Begun::Finished(prepared.config.plan().finish(scan, &Facts::new()))
    } else {
        Begun::Waiting(scan)
    }
}

/// Decides the rest.
pub fn finish(prepared: &Prepared, scan: Scan, facts: &Facts) -> Outcome {
    prepared.config.plan().finish(scan, facts)
}

/// What each condition of a rule comes to on the item, whether or not it matches, as far as the item tells.
pub fn inquire(prepared: &Prepared, rule: &RuleId) -> Option<Inquiry> {
    prepared.config.plan().inquire(&prepared.item(), rule)
}

impl Prepared {
    /// The media that are to be looked at.
    pub fn wanted(&self) -> Vec<Wanted> {
        media::wanted(&self.values)
    }

    /// Takes in what was found of them.
    pub fn judge(&mut self, found: &[Signal]) {
        self.media = media::judge(&self.config.hash_banks(), self.key.id.as_str(), found);
    }

    /// The same for an item of the past.
    pub(crate) fn judge_again(&mut self, found: &[Signal]) {
        self.media = media::judge_again(&self.config.hash_banks(), self.key.id.as_str(), found);
    }

    fn item(&self) -> rules::Item<'_> {
        rules::Item {
            type_id: &self.key.type_id,
            values: &self.values,
            user: self.user.as_ref(),
            on: self.on,
            now: self.now,
            submission: self.submission,
        }
    }
}
