//! Accuracy of reporting users: the share of their decided reports that led to an action.

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    records::{self, Verdict},
};
use tidegate_store::{
    RowRange, Store, WriteTime,
    tables::review::{
        jobs::{Job, SubjectReporter},
        reports::ReporterFinding,
    },
};

use crate::{Error, child_safety::Clearance, jobs};

/// Number of newest decisions in the accuracy.
const MAX_DECISIONS: usize = 100;

/// Stores for every reporter of the job's item whether the decision upheld the report. A replay writes the same rows.
pub(crate) async fn record_outcome(store: &Store, decision: &records::Decision) -> Result<(), Error> {
    let is_upheld = match decision.verdict {
        Verdict::Act => true,
        // The item itself is ignored, but the report led to an action on a related item.
        Verdict::Ignore => !decision.related.is_empty(),
        Verdict::Accept | Verdict::Reject => return Ok(()),
    };
    // An action of the platform is a decision without a job.
    let Some(job) = store.get::<Job>(&(decision.org.clone(), decision.job_id)).await? else {
        return Ok(());
    };
    let subject = jobs::subject_key(&job.org, job.class, &job.item);
    let mut reporters = store.scan::<SubjectReporter>(&subject, RowRange::with_prefix((job.generation,)));
    while let Some(reporters) = reporters.next_page().await? {
        let rows: Vec<_> = reporters
            .into_iter()
            .map(|reporter| ReporterFinding {
                org: reporter.org,
                type_id: reporter.reporter_type,
                item_id: reporter.reporter_id,
                at: decision.decided_at,
                decision_id: decision.decision_id,
                upheld: is_upheld,
            })
            .collect();
        store.put_rows(WriteTime::from_append(decision.decided_at, 0), &rows).await?;
    }
    Ok(())
}

/// Outcome of the newest decisions on a user's reports, at most 100.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReporterRecord {
    pub decided: usize,
    /// Number of decisions with an action.
    pub upheld: usize,
    /// Share of `upheld` in `decided`; absent without a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
}

/// Loads the outcome of the newest decisions on a user's reports, except those beyond the clearance.
pub async fn load_outcome(
    store: &Store,
    org: &OrgId,
    reporter: &ItemKey,
    clearance: Clearance,
) -> Result<ReporterRecord, Error> {
    let partition = (org.clone(), reporter.type_id.clone(), reporter.id.clone());
    let mut rows =
        store.scan::<ReporterFinding>(&partition, RowRange::all().limit(MAX_DECISIONS)).all().await?;
    let decisions: Vec<_> = rows.iter().map(|row| (row.at, row.decision_id)).collect();
    let withheld = clearance.withheld_decisions(store, org, &decisions).await?;
    rows.retain(|row| !withheld.contains(&row.decision_id));
    let (decided, upheld) = (rows.len(), rows.iter().filter(|row| row.upheld).count());
    #[allow(clippy::cast_precision_loss, reason = "both are at most `MAX_DECISIONS`")]
    let share = (decided > 0).then(|| upheld as f64 / decided as f64);
    Ok(ReporterRecord { decided, upheld, accuracy: share })
}

/// Returns the share of the newest decisions on a user's reports that took an action. `None` without decisions.
#[boxed]
pub async fn load_accuracy(store: &Store, org: &OrgId, reporter: &ItemKey) -> Result<Option<f64>, Error> {
    Ok(load_outcome(store, org, reporter, Clearance::ChildSafety).await?.accuracy)
}
