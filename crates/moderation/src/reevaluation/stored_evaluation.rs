//! Evaluates stored items again with the facts of their arrival time. Read-only.

use std::{collections::BTreeSet, sync::Arc};

use tidegate_catalog::Compiled;
use tidegate_rules::{Explained, Facts, Need, Omissions, Outcome};
use tidegate_schemas::{
    ids::{Millis, OrgId, RuleId, WindowId},
    records::{ItemEntry, Source},
};
use tidegate_store::{Store, tables::items::items::Item};

use crate::{
    Error,
    effects::strike_points,
    items::evaluate::{self, PreparedItem, ScanResult},
    media,
    rules::windows::{self, RowBudget, SubmissionPosition},
    scores,
};

/// Source of facts about past items.
#[derive(Clone, Copy)]
pub struct Archive<'a> {
    pub store: &'a Store,
    pub org: &'a OrgId,
    /// Windows without rows yet.
    pub uncounted: &'a BTreeSet<WindowId>,
    /// Maximum number of rows read per window.
    pub window_rows: usize,
}

/// Outcome of an evaluation with past facts.
#[derive(Debug)]
pub struct PastOutcome {
    pub outcome: Outcome,
    /// True if a fact is unknown: scores of models, media never fetched, or windows without rows.
    pub is_guessed: bool,
}

/// Checks a stored item against the present version of its type.
fn prepare(config: Arc<Compiled>, row: &Item) -> Result<PreparedItem, Error> {
    let corrupt = |detail: &str| Error::Corrupt { what: "item", detail: detail.to_owned() };
    let source = row.source.as_known().ok_or_else(|| corrupt("unknown source"))?;
    let variant = row.variant.as_known().ok_or_else(|| corrupt("unknown variant"))?;
    let entry = ItemEntry {
        submission_id: row.submission_id,
        type_id: row.type_id.clone(),
        id: row.item_id.clone(),
        type_version: row.type_version.clone(),
        variant,
        data: row.data.clone(),
        origin: None,
        keyed: false,
    };
    evaluate::prepare(config, source, &entry, row.append_ms)
}

/// Matches the media of a stored item against the present banks.
async fn recall_media(
    archive: Archive<'_>,
    prepared: &mut PreparedItem,
    row_media: &str,
) -> Result<(), Error> {
    if prepared.config.compares_media() {
        let inspected = media::recall(archive.store, row_media).await?;
        prepared.match_past_media(&inspected);
    }
    Ok(())
}

/// Looks up the needed facts as of the item's arrival.
async fn look_up_facts(
    archive: Archive<'_>,
    prepared: &PreparedItem,
    needs: &[Need],
    moment: SubmissionPosition,
) -> Result<(Facts, bool), Error> {
    let arrived_at = moment.append_ms();
    let (mut facts, mut is_guessed) = (Facts::new(), false);
    let (budget, select) =
        (RowBudget::new(archive.window_rows), |rows: &mut _| windows::retain_up_to(moment, rows));
    for need in needs {
        match need {
            Need::Strikes { user, within } => {
                let period_start = within.map_or(Millis(0), |within| within.start(arrived_at));
                // As of the arrival, because later strikes must not change the outcome.
                let points =
                    strike_points::load_total_at(archive.store, archive.org, user, period_start, arrived_at)
                        .await?;
                facts.set_strikes(need.clone(), points);
            }
            Need::Count { window, key, at_least } if !archive.uncounted.contains(window) => {
                let Some(window) = prepared.config.plan().window(window) else { continue };
                let question = windows::WindowQuery {
                    org: archive.org,
                    window,
                    key,
                    at_least: *at_least,
                    times: window.up_to(arrived_at),
                    select: &select,
                    budget: &budget,
                };
                match windows::count_window(archive.store, &question).await? {
                    Some(amount) => facts.set_count(need.clone(), amount),
                    None => facts.set_failed(need.clone(), "too_many_rows"),
                }
            }
            Need::Media { url } => match prepared.media.facts_for(url) {
                Some(media_facts) => facts.set_media(need.clone(), media_facts.clone()),
                None => {
                    is_guessed = true;
                    facts.set_unknown(need.clone());
                }
            },
            // No model is called for the past, but its answer may still be stored.
            Need::Score { model, .. } => {
                let stored_scores = match prepared.config.signal(model) {
                    Some(signal) => {
                        let inputs = prepared.score_inputs(signal);
                        if inputs.is_empty() {
                            facts.set_unknown(need.clone());
                            continue;
                        }
                        scores::load_stored(archive.store, archive.org, signal, &inputs).await?
                    }
                    None => None,
                };
                match stored_scores {
                    Some(scores) => facts.set_scores(need.clone(), (*scores).clone()),
                    None => {
                        is_guessed = true;
                        facts.set_unknown(need.clone());
                    }
                }
            }
            // The window is new in this configuration and has no rows yet.
            Need::Count { .. } => {
                is_guessed = true;
                facts.set_unknown(need.clone());
            }
        }
    }
    Ok((facts, is_guessed))
}

/// Result of each condition of a rule on a stored item.
#[derive(Debug)]
pub struct Explanation {
    pub tree: Explained,
    /// True if the rule is not evaluated for such items.
    pub is_no_concern: bool,
    pub is_guessed: bool,
    pub left_out: Omissions,
}

/// Explains a rule on a stored item. `None` if the configuration lacks the rule.
pub async fn explain(
    archive: Archive<'_>,
    config: Arc<Compiled>,
    row: &Item,
    rule: &RuleId,
) -> Result<Option<Explanation>, Error> {
    let mut prepared = prepare(Arc::clone(&config), row)?;
    recall_media(archive, &mut prepared, &row.media).await?;
    let Some(pending) = evaluate::begin_explanation(&prepared, rule) else { return Ok(None) };
    let needs: Vec<Need> = pending.pending_needs().cloned().collect();
    let (facts, is_guessed) = look_up_facts(archive, &prepared, &needs, row.into()).await?;
    let (is_no_concern, left_out) = (!pending.is_triggered, config.plan().omissions(&pending, &facts));
    Ok(Some(Explanation {
        tree: config.plan().finish_explanation(pending, &facts),
        is_no_concern,
        is_guessed,
        left_out,
    }))
}

/// Evaluation of one item in one configuration.
#[derive(Debug)]
pub(crate) struct PastEvaluation {
    prepared: PreparedItem,
    scan: ScanResult,
    /// Media in the form of the item's row.
    media: String,
    /// True for a repeated submission: its row shows the media again, so they are matched even if no rule needs them.
    is_repeat: bool,
    facts: Facts,
    is_guessed: bool,
}

impl PastEvaluation {
    /// Starts the evaluation. CPU-bound, like [`PastEvaluation::finish`].
    pub(crate) fn begin(config: Arc<Compiled>, row: &Item) -> Result<Self, Error> {
        Ok(Self::with_scan(prepare(config, row)?, row.media.clone(), false))
    }

    /// Starts the evaluation of a repeated item. `now` and `media` are those of the original.
    pub(crate) fn begin_repeated(
        config: Arc<Compiled>,
        source: Source,
        entry: &ItemEntry,
        now: Millis,
        media: String,
    ) -> Result<Self, Error> {
        Ok(Self::with_scan(evaluate::prepare(config, source, entry, now)?, media, true))
    }

    fn with_scan(prepared: PreparedItem, media: String, is_repeat: bool) -> Self {
        let scan = evaluate::scan(&prepared);
        Self { prepared, scan, media, is_repeat, facts: Facts::new(), is_guessed: false }
    }

    pub(crate) async fn look_up(
        &mut self,
        archive: Archive<'_>,
        moment: SubmissionPosition,
    ) -> Result<(), Error> {
        let needs_media = |need: &Need| matches!(need, Need::Media { .. });
        if self.is_repeat
            || matches!(&self.scan, ScanResult::Waiting(scan) if scan.pending_needs().iter().any(needs_media))
        {
            recall_media(archive, &mut self.prepared, &self.media).await?;
        }
        if let ScanResult::Waiting(scan) = &self.scan {
            (self.facts, self.is_guessed) =
                look_up_facts(archive, &self.prepared, scan.pending_needs(), moment).await?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> (PreparedItem, PastOutcome) {
        let outcome = match self.scan {
            ScanResult::Finished(outcome) => outcome,
            ScanResult::Waiting(scan) => evaluate::finish(&self.prepared, scan, &self.facts),
        };
        (self.prepared, PastOutcome { outcome, is_guessed: self.is_guessed })
    }
}

/// Runs CPU-bound work outside the async threads.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(output) => output,
        // The task is never cancelled, so the error is a panic of `work`.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
