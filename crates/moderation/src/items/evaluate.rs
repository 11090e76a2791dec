//! Evaluates one item against the live rules: check, scan, and finish with facts. Pure computation for the compute
//! pool; the caller looks up the facts, and `effects::plan` plans the effects.

use std::sync::Arc;

use tidegate_catalog::{Compiled, ScoreSignal};
use tidegate_rules::{self as rules, Facts, Interrupt, Need, Outcome, PendingExplanation, Scan, Trigger};
use tidegate_schemas::{
    ids::{ItemKey, Millis, RuleId, SubmissionId},
    item_types::{Mode, Values},
    records::{ItemEntry, Source, Variant},
    validation_error::Pointer,
};

use crate::{
    Error,
    media::{self, InspectedMedium, MatchedMedia, MediumRequest},
    metrics, scores,
};

/// Valid item with the configuration for its evaluation.
#[derive(Debug)]
pub struct PreparedItem {
    pub config: Arc<Compiled>,
    pub key: ItemKey,
    /// Receives the strikes: the item in the creator field, or the item itself if it is a user.
    pub user: Option<ItemKey>,
    /// States and bank matches of the item's media, once they are inspected.
    pub media: MatchedMedia,
    values: Values,
    on: Trigger,
    now: Millis,
    submission: SubmissionId,
}

/// Result of an evaluation from the item's own data.
#[derive(Debug)]
pub enum ScanResult {
    /// Every rule is decided, and the item adds to no window.
    Finished(Outcome),
    /// The item adds to windows, or undecided rules wait for facts.
    Waiting(Scan),
}

/// Checks the item against its type. Every error is an error of the content.
pub fn prepare(
    config: Arc<Compiled>,
    source: Source,
    entry: &ItemEntry,
    append_ms: Millis,
) -> Result<PreparedItem, Error> {
    let current_type = config.item_type(&entry.type_id).ok_or_else(|| Error::Content {
        tag: "unknown_type",
        detail: format!("there is no item type {}", entry.type_id),
    })?;
    // A retired version was valid when the item was accepted.
    let item_type =
        config.item_type_at(&entry.type_id, entry.type_version.as_deref()).unwrap_or(current_type);
    let mode = if entry.variant == Variant::Partial { Mode::Partial } else { Mode::Strict };
    let values = item_type.check(&entry.data, mode, &Pointer::Root).map_err(|faults| Error::Content {
        tag: "unfit_data",
        // Titles contain names of fields and types only, never values.
        detail: faults.iter().take(3).map(|fault| fault.title).collect::<Vec<_>>().join("; "),
    })?;
    // Rules refer to the fields of the current version, so fields of another form are left out.
    let values = values.without_changed_fields(current_type);
    let key = entry.key();
    let user = if item_type.is_user() { Some(key.clone()) } else { values.creator() };
    Ok(PreparedItem {
        key,
        user,
        media: MatchedMedia::default(),
        values,
        on: match source {
            Source::Report => Trigger::Report,
            Source::Appeal => Trigger::Appeal,
            Source::Api | Source::PartialItems | Source::Retroact => Trigger::Item,
        },
        now: append_ms,
        submission: entry.submission_id,
        config,
    })
}

/// Decides the rules as far as the item's own data allow.
pub fn scan(prepared: &PreparedItem) -> ScanResult {
    scan_result(prepared, prepared.config.plan().scan(&prepared.rule_item()))
}

/// Like [`scan`]. Returns `None` if it was interrupted.
pub fn scan_until(prepared: &PreparedItem, interrupt: &Interrupt) -> Option<ScanResult> {
    let scan = prepared.config.plan().scan_until(&prepared.rule_item(), interrupt)?;
    Some(scan_result(prepared, scan))
}

fn scan_result(prepared: &PreparedItem, scan: Scan) -> ScanResult {
    if scan.ran_out_of_time() {
        metrics::evaluation_left_out("cpu_time");
        tracing::warn!(submission = %prepared.submission, item_type = %prepared.key.type_id,
            "rules took all CPU time of an item, so some ended as `errored: deadline`: look for costly patterns with \
             `tidegate lint`, or raise `catalog.rules.cpu_ms_per_item`");
    }
    if scan.pending_needs().is_empty() && scan.entries().is_empty() {
        ScanResult::Finished(prepared.config.plan().finish(scan, &Facts::new()))
    } else {
        ScanResult::Waiting(scan)
    }
}

/// Decides the remaining rules. `None` if they need facts.
pub(crate) fn finish_without_facts(prepared: &PreparedItem, scan: Scan) -> Option<Outcome> {
    scan.pending_needs().is_empty().then(|| finish(prepared, scan, &Facts::new()))
}

/// Returns the scores on which each rule still depends; see [`tidegate_rules::Plan::undecided_scores`].
pub fn undecided_scores(config: &Compiled, scan: &Scan, facts: &Facts) -> Vec<Vec<Need>> {
    config.plan().undecided_scores(scan, facts)
}

/// Decides the remaining rules with the facts.
pub fn finish(prepared: &PreparedItem, scan: Scan, facts: &Facts) -> Outcome {
    prepared.config.plan().finish(scan, facts)
}

/// Evaluates every condition of a rule for an explanation, as far as the item's own data allow.
pub fn begin_explanation(prepared: &PreparedItem, rule: &RuleId) -> Option<PendingExplanation> {
    prepared.config.plan().begin_explanation(&prepared.rule_item(), rule)
}

impl PreparedItem {
    /// True if the item contains media.
    pub(crate) fn has_media(&self) -> bool {
        !self.values.media().is_empty()
    }

    /// Lists the media to be inspected.
    pub fn media_to_inspect(&self) -> Vec<MediumRequest> {
        media::list_media(&self.values)
    }

    /// Matches inspected media against the hash banks.
    pub fn match_media(&mut self, inspected: &[InspectedMedium]) {
        self.media = media::match_media(&self.config.hash_banks(), self.key.id.as_str(), inspected);
    }

    /// Like `match_media`, for media of a stored item.
    pub(crate) fn match_past_media(&mut self, inspected: &[InspectedMedium]) {
        self.media = media::match_past_media(&self.config.hash_banks(), self.key.id.as_str(), inspected);
    }

    /// Returns the field values that conditions read.
    pub fn fields(&self) -> &dyn rules::Fields {
        &self.values
    }

    /// Returns the inputs for a model. Empty if the item has none.
    pub fn score_inputs(&self, signal: &ScoreSignal) -> Vec<serde_json::Value> {
        let fields =
            self.config.item_type(&self.key.type_id).map(|item_type| item_type.fields()).unwrap_or_default();
        scores::model_inputs(signal, fields, &self.key, &self.values)
    }

    fn rule_item(&self) -> rules::Item<'_> {
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
