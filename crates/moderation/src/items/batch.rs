//! Evaluates the items of a batch. Items without effects beyond their rows finish here.

use std::sync::Arc;

use tidegate_catalog::Compiled;
use tidegate_rules::{Interrupt, Outcome, WindowEntry};

use super::{
    evaluate::{self, ScanResult},
    stored::Submission,
    submissions::EvaluatedRows,
};
use crate::{Error, effects::Findings, rules::windows::SubmissionPosition};

/// Result for one item of a batch.
#[derive(Debug)]
pub struct BatchItem {
    pub moment: SubmissionPosition,
    /// Window entries of the item.
    pub entries: Vec<WindowEntry>,
    /// `None` if the item needs media, facts or limits, or has effects beyond its rows.
    pub rows: Option<EvaluatedRows>,
}

/// Evaluates an item as far as its own data allow. Returns `None` if it was interrupted.
pub fn evaluate(
    config: &Arc<Compiled>,
    submission: &Submission<'_>,
    interrupt: &Interrupt,
) -> Result<Option<BatchItem>, Error> {
    let (entry, at) = (submission.entry, submission.at);
    let prepared = evaluate::prepare(Arc::clone(config), submission.header.source, entry, at.append_ms)?;
    let moment = SubmissionPosition::new(at, entry.submission_id);
    let Some(scan) = evaluate::scan_until(&prepared, interrupt) else { return Ok(None) };
    let (entries, outcome) = match scan {
        ScanResult::Finished(outcome) => (Vec::new(), Some(outcome)),
        ScanResult::Waiting(scan) => {
            let entries = scan.entries().to_vec();
            (entries, evaluate::finish_without_facts(&prepared, scan))
        }
    };
    // An outcome without matches and failures has no effects, and none of it is published or counted.
    let is_quiet = outcome.is_some_and(|outcome| outcome == Outcome::default()) && !prepared.has_media();
    let rows = is_quiet.then(|| {
        let findings = Findings::empty(at.append_ms, prepared.user.clone());
        EvaluatedRows::new(submission, prepared.config.version(), &findings)
    });
    Ok(Some(BatchItem { moment, entries, rows }))
}
