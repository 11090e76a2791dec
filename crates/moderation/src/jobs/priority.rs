//! Computes the priority of review jobs from severity, reporters and reach.
//!
//! A job's row stores these signals, so that later causes add to them. The priority of an open job only rises.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::{MAX_PRIORITY, QueueOrder, Severity},
    ids::{PolicyId, QueueId},
    records::JobClass,
};
use tidegate_store::tables::review::jobs::Job;

use crate::Error;

/// Number of reporters beyond which the priority does not rise. Bounds the rows that a join reads.
pub const MOST_REPORTERS: usize = 256;

/// Inputs of a job's priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrioritySignals {
    /// Highest severity of the violated policies.
    pub severity: Severity,
    /// Number of distinct reporters since the item's last decision, up to [`MOST_REPORTERS`].
    pub reporters: usize,
    /// Largest reach of the item among the versions of the causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<u64>,
}

impl PrioritySignals {
    /// Parses the signals in the job's row. Jobs of earlier versions have none.
    pub(crate) fn parse_from(job: &Job) -> Result<Option<Self>, Error> {
        let stored = job.signals.as_deref().map(serde_json::from_str).transpose();
        stored.map_err(Error::corrupt("job"))
    }

    /// Combines the signals of a job with those of another cause.
    #[must_use]
    pub fn combined_with(self, other: Self) -> Self {
        Self {
            severity: self.severity.max(other.severity),
            reporters: self.reporters.max(other.reporters),
            reach: self.reach.max(other.reach),
        }
    }

    /// Returns the signals for a job of the class. A child-safety job counts as severe, because most of its causes
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
        // Bounded, because every priority is a partition of the queue index.
        sum.clamp(0, MAX_PRIORITY)
    }
}

/// Returns the highest severity of the policies. Unknown policies count as none.
pub fn highest_severity<'a>(config: &Compiled, policies: impl IntoIterator<Item = &'a PolicyId>) -> Severity {
    let configured = policies.into_iter().filter_map(|id| config.policy(id));
    configured.map(|policy| policy.severity).max().unwrap_or_default()
}

/// Returns the item's value in the reach field of the queue.
pub fn read_reach(config: &Compiled, queue: &QueueId, data: &[u8]) -> Option<u64> {
    let field = &config.queue(queue)?.document.order.reach.as_ref()?.field;
    let data: Value = serde_json::from_slice(data).ok()?;
    let number = data.get(field)?;
    // Saturating: a negative number has no reach. Fractions are cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    number.as_u64().or_else(|| number.as_f64().map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_schemas::documents::Reach;

    #[test]
    fn priority_grows_with_its_signals_and_is_bounded() {
        let order =
            QueueOrder { reach: Some(Reach { field: "views".into(), weight: 1 }), ..QueueOrder::default() };
        let of = |severity, reporters, reach| PrioritySignals { severity, reporters, reach }.priority(&order);
        assert_eq!(of(Severity::None, 0, None), 0);
        assert_eq!(of(Severity::None, 1, Some(9)), 0);
        assert_eq!(of(Severity::High, 1, None), 6);
        assert_eq!(of(Severity::None, 8, None), 3);
        assert_eq!(of(Severity::Low, 2, Some(1_000)), 6);
        assert_eq!(of(Severity::Severe, 256, Some(u64::MAX)), MAX_PRIORITY);
        let flat = QueueOrder { severity: 0, reporters: 0, reach: None, ..order };
        assert_eq!(
            PrioritySignals { severity: Severity::Severe, reporters: 99, reach: Some(9) }.priority(&flat),
            0
        );
    }

    #[test]
    fn combined_signals_keep_the_highest_of_each() {
        let report = PrioritySignals { severity: Severity::Low, reporters: 4, reach: None };
        let rule = PrioritySignals { severity: Severity::High, reporters: 0, reach: Some(7) };
        let joined = PrioritySignals { severity: Severity::High, reporters: 4, reach: Some(7) };
        assert_eq!(report.combined_with(rule), joined);
        assert_eq!(rule.combined_with(report), joined);
    }
}
