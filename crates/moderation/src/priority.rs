//! Computes the priority of review jobs from what is known about their subject.
//!
//! A job's row stores the parts, so a later cause adds to them; the priority of an open job only rises.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::{MOST_PRIORITY, QueueOrder, Severity},
    ids::{PolicyId, QueueId},
    records::JobClass,
};
use tidegate_store::tables::review::jobs::Job;

use crate::Error;

/// Number of different reporters from which more of them no longer raise the priority. It bounds the rows that a join
/// reads.
pub const MOST_REPORTERS: usize = 256;

/// Parts of a job's priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Signals {
    /// Highest severity of the policies that were named.
    pub severity: Severity,
    /// Number of different users who reported the item since its last decision, up to [`MOST_REPORTERS`].
    pub reporters: usize,
    /// Largest reach of the item in the versions that causes brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<u64>,
}

impl Signals {
    /// Returns the parts that the job's row stores. Jobs of earlier versions have none.
    pub(crate) fn of(job: &Job) -> Result<Option<Self>, Error> {
        let stored = job.signals.as_deref().map(serde_json::from_str).transpose();
        stored.map_err(Error::corrupt("job"))
    }

    /// Combines the parts of a job with those of a further cause.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            severity: self.severity.max(other.severity),
            reporters: self.reporters.max(other.reporters),
            reach: self.reach.max(other.reach),
        }
    }

    /// Returns the signals with which a job of the class is ranked. A child-safety job counts as severe, since most of its causes
    /// name no policy.
    #[must_use]
    pub fn of_class(self, class: JobClass) -> Self {
        match class {
            JobClass::ChildSafety => Self { severity: Severity::Severe, ..self },
            JobClass::Review | JobClass::Appeal => self,
        }
    }

    pub fn priority(&self, order: &QueueOrder) -> i64 {
        let reporters = self.reporters.max(1).ilog2();
        let reach = self.reach.unwrap_or(0).max(1).ilog10();
        let reach_weight = order.reach.as_ref().map_or(0, |reach| reach.weight);
        let sum = i64::from(order.severity) * self.severity as i64
            + i64::from(order.reporters) * i64::from(reporters)
            + i64::from(reach_weight) * i64::from(reach);
        sum.clamp(0, MOST_PRIORITY)
    }
}

/// Returns the highest severity of policies; those that are unknown have none.
pub fn severity<'a>(config: &Compiled, policies: impl IntoIterator<Item = &'a PolicyId>) -> Severity {
    let known = policies.into_iter().filter_map(|id| config.policy(id));
    known.map(|policy| policy.severity).max().unwrap_or_default()
}

/// Returns the item's number in the field that the queue takes for its reach.
pub fn reach(config: &Compiled, queue: &QueueId, data: &[u8]) -> Option<u64> {
    let field = &config.queue(queue)?.document.order.reach.as_ref()?.field;
    let data: Value = serde_json::from_slice(data).ok()?;
    let number = data.get(field)?;
    // Negative numbers reach nobody; fractions are cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    number.as_u64().or_else(|| number.as_f64().map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_schemas::documents::Reach;

    #[test]
    fn priority_grows_with_severity_reporters_and_reach_and_is_bounded() {
        let order =
            QueueOrder { reach: Some(Reach { field: "views".into(), weight: 1 }), ..QueueOrder::default() };
        let of = |severity, reporters, reach| Signals { severity, reporters, reach }.priority(&order);
        assert_eq!(of(Severity::None, 0, None), 0);
        assert_eq!(of(Severity::None, 1, Some(9)), 0);
        assert_eq!(of(Severity::High, 1, None), 6);
        assert_eq!(of(Severity::None, 8, None), 3);
        assert_eq!(of(Severity::Low, 2, Some(1_000)), 6);
        assert_eq!(of(Severity::Severe, 256, Some(u64::MAX)), MOST_PRIORITY);
        let flat = QueueOrder { severity: 0, reporters: 0, reach: None, ..order };
        assert_eq!(Signals { severity: Severity::Severe, reporters: 99, reach: Some(9) }.priority(&flat), 0);
    }

    #[test]
    fn joined_signals_keep_the_highest_of_each() {
        let report = Signals { severity: Severity::Low, reporters: 4, reach: None };
        let rule = Signals { severity: Severity::High, reporters: 0, reach: Some(7) };
        let joined = Signals { severity: Severity::High, reporters: 4, reach: Some(7) };
        assert_eq!(report.joined(rule), joined);
        assert_eq!(rule.joined(report), joined);
    }
}
