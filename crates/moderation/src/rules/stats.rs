//! Statistics of rule versions: hits, actions, suppressions, and findings of moderators.
//!
//! Counts are approximate: a crash loses or repeats those of the last seconds. Findings are exact: each is a row, and
//! a replay overwrites it.

use std::collections::{BTreeMap, HashMap, HashSet};

use async_recursion::async_recursion as boxed;
use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{ItemKey, Millis, OrgId, RuleId};
use tidegate_store::{
    Batch, RowRange, Store, WriteTime,
    tables::items::{
        limits::RuleAlarm,
        rules::{Finding, RuleCount, RuleVerdict},
    },
};
use uuid::Uuid;

use crate::{Error, child_safety::Clearance};

/// Match of a rule version, for which findings of moderators are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHit {
    pub rule: RuleId,
    pub version: String,
    /// Append time of the item.
    pub at: Millis,
}

/// Outcome of a rule on one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOutcome {
    pub rule: RuleId,
    pub version: String,
    pub kind: OutcomeKind,
}

/// Reason why a matched rule does not act, strongest first. The order decides which reason an action lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suppression {
    /// The rule version matched more often than its threshold.
    Alarm,
    /// The rule used up its actions of the day.
    Limit,
    /// The rule acted on the user within the cooldown.
    Cooldown,
    /// The item is outside the rollout.
    Rollout,
    /// The rule is not live.
    Background,
}

impl Suppression {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::Limit => "limit",
            Self::Cooldown => "cooldown",
            Self::Rollout => "rollout",
            Self::Background => "background",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    Acted,
    Suppressed(Suppression),
    /// The rule could not be evaluated.
    Errored,
}

impl OutcomeKind {
    /// Label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acted => "live",
            Self::Suppressed(reason) => reason.as_str(),
            Self::Errored => "errored",
        }
    }
}

/// Numbers of items by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeCounts {
    pub hits: i64,
    pub acted: i64,
    pub background: i64,
    pub rollout: i64,
    pub limit: i64,
    pub cooldown: i64,
    pub alarm: i64,
    pub errored: i64,
}

impl OutcomeCounts {
    fn count(&mut self, kind: OutcomeKind) {
        let counter = match kind {
            // An error is not a hit.
            OutcomeKind::Errored => {
                self.errored += 1;
                return;
            }
            OutcomeKind::Acted => &mut self.acted,
            OutcomeKind::Suppressed(Suppression::Background) => &mut self.background,
            OutcomeKind::Suppressed(Suppression::Rollout) => &mut self.rollout,
            OutcomeKind::Suppressed(Suppression::Limit) => &mut self.limit,
            OutcomeKind::Suppressed(Suppression::Cooldown) => &mut self.cooldown,
            OutcomeKind::Suppressed(Suppression::Alarm) => &mut self.alarm,
        };
        *counter += 1;
        self.hits += 1;
    }

    fn add(&mut self, row: &RuleCount) {
        self.hits += row.hits;
        self.acted += row.acted;
        self.background += row.background;
        self.rollout += row.rollout;
        self.limit += row.limited;
        self.cooldown += row.cooldown;
        self.alarm += row.alarm;
        self.errored += row.errored;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CounterKey {
    org: OrgId,
    day: i64,
    rule: RuleId,
    version: String,
}

/// Counters of one process, with the keys changed since the last write; pure.
#[derive(Debug)]
pub struct RuleCounters {
    writer: Uuid,
    counters: HashMap<CounterKey, OutcomeCounts>,
    unwritten: HashSet<CounterKey>,
}

/// Maximum number of counters in memory. Beyond it, counting restarts with rows of a new writer.
const MAX_COUNTERS: usize = 100_000;

impl Default for RuleCounters {
    fn default() -> Self {
        Self { writer: new_writer(), counters: HashMap::new(), unwritten: HashSet::new() }
    }
}

fn new_writer() -> Uuid {
    tidegate_schemas::ids::CauseId::random().0
}

/// Rows to write, with the keys of their counters.
#[derive(Debug, Default)]
pub struct PendingRows {
    rows: Vec<RuleCount>,
    keys: Vec<CounterKey>,
}

impl RuleCounters {
    pub fn count(&mut self, org: &OrgId, at: Millis, outcomes: &[RuleOutcome]) {
        for outcome in outcomes {
            let key = CounterKey {
                org: org.clone(),
                day: at.day(),
                rule: outcome.rule.clone(),
                version: outcome.version.clone(),
            };
            self.counters.entry(key.clone()).or_default().count(outcome.kind);
            self.unwritten.insert(key);
        }
    }

    /// Returns the rows of counters changed since the last call.
    pub fn take_changed(&mut self) -> PendingRows {
        let keys: Vec<_> = std::mem::take(&mut self.unwritten).into_iter().collect();
        let rows = keys.iter().filter_map(|key| Some(self.row(key, self.counters.get(key)?))).collect();
        // A new writer id, because rows hold totals: restarted counters would overwrite the old totals with smaller
        // ones.
        if self.counters.len() > MAX_COUNTERS {
            self.counters.clear();
            self.writer = new_writer();
        }
        PendingRows { rows, keys }
    }

    /// Marks rows as unwritten after a failed write. Counters cleared meanwhile are lost.
    pub fn put_back(&mut self, pending: PendingRows) {
        self.unwritten.extend(pending.keys.into_iter().filter(|key| self.counters.contains_key(key)));
    }

    fn row(&self, key: &CounterKey, counts: &OutcomeCounts) -> RuleCount {
        RuleCount {
            org: key.org.clone(),
            day: key.day,
            rule: key.rule.clone(),
            rule_version: key.version.clone(),
            writer: self.writer,
            hits: counts.hits,
            acted: counts.acted,
            background: counts.background,
            rollout: counts.rollout,
            limited: counts.limit,
            cooldown: counts.cooldown,
            alarm: counts.alarm,
            errored: counts.errored,
        }
    }
}

/// Writes the rows of counters.
#[boxed]
pub async fn write_rows(store: &Store, pending: &PendingRows, now: Millis) -> Result<(), Error> {
    const ROWS_PER_BATCH: usize = 500;
    for rows in pending.rows.chunks(ROWS_PER_BATCH) {
        let mut batch = Batch::new();
        batch.put_all(WriteTime::from_append(now, 0), rows);
        store.write(batch).await?;
    }
    Ok(())
}

/// Finding of a decision on one match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HitFinding<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) hit: &'a RuleHit,
    pub(crate) item: &'a ItemKey,
    pub(crate) finding: Finding,
    pub(crate) decision: Uuid,
    pub(crate) at: Millis,
}

pub(crate) async fn record_finding(store: &Store, finding: HitFinding<'_>) -> Result<(), Error> {
    let row = RuleVerdict {
        org: finding.org.clone(),
        day: finding.hit.at.day(),
        rule: finding.hit.rule.clone(),
        rule_version: finding.hit.version.clone(),
        item: finding.item.clone(),
        verdict: finding.finding,
        decision_id: finding.decision.into(),
        decided_at: finding.at,
    };
    // Written with the decision's own time, so that a replayed older decision does not overwrite a newer one.
    Ok(store.put_rows(WriteTime::from_append(finding.at, 0), &[row]).await?)
}

/// Statistics of a rule version over several days.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleVersionStats {
    #[serde(flatten)]
    pub counts: OutcomeCounts,
    pub confirmed: i64,
    pub rejected: i64,
    pub overturned: i64,
    /// Share of confirmed matches among the reviewed ones.
    pub precision: Option<f64>,
    /// Time of the alarm that stopped the rule version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarmed_at: Option<String>,
}

/// Loads statistics of rule versions for the days from `since` to `until`, for all rules or only one. Decisions on
/// items beyond the clearance are not counted.
#[boxed]
pub async fn load_stats(
    store: &Store,
    org: &OrgId,
    since: Millis,
    until: Millis,
    only_rule: Option<&RuleId>,
    clearance: Clearance,
) -> Result<BTreeMap<(RuleId, String), RuleVersionStats>, Error> {
    let mut stats_by_version: BTreeMap<(RuleId, String), RuleVersionStats> = BTreeMap::new();
    for day in since.day()..=until.day() {
        let partition = (org.clone(), day);
        let range = || only_rule.map_or_else(RowRange::all, |rule| RowRange::with_prefix((rule.clone(),)));
        let mut counts = store.scan::<RuleCount>(&partition, range());
        while let Some(rows) = counts.next_page().await? {
            for row in rows {
                let stats = stats_by_version.entry((row.rule.clone(), row.rule_version.clone())).or_default();
                stats.counts.add(&row);
            }
        }
        let range = || only_rule.map_or_else(RowRange::all, |rule| RowRange::with_prefix((rule.clone(),)));
        let mut verdicts = store.scan::<RuleVerdict>(&partition, range());
        while let Some(rows) = verdicts.next_page().await? {
            let items: Vec<_> = rows.iter().map(|row| row.item.clone()).collect();
            // A verdict would reveal a decision on a restricted item.
            let withheld = clearance.withheld_items(store, org, &items).await?;
            for row in rows.into_iter().filter(|row| !withheld.contains(&row.item)) {
                let stats = stats_by_version.entry((row.rule, row.rule_version)).or_default();
                match row.verdict {
                    Finding::Confirmed => stats.confirmed += 1,
                    Finding::Rejected => stats.rejected += 1,
                    Finding::Overturned => stats.overturned += 1,
                }
            }
        }
    }
    for stats in stats_by_version.values_mut() {
        stats.precision = precision(stats);
    }
    let keys: Vec<_> =
        stats_by_version.keys().map(|(rule, version)| (org.clone(), rule.clone(), version.clone())).collect();
    let alarms = store.get_many::<RuleAlarm>(&keys).await?;
    for (stats, alarm) in stats_by_version.values_mut().zip(alarms) {
        stats.alarmed_at = alarm.map(|alarm| alarm.raised_at.iso());
    }
    Ok(stats_by_version)
}

fn precision(stats: &RuleVersionStats) -> Option<f64> {
    let reviewed = stats.confirmed + stats.rejected + stats.overturned;
    (reviewed > 0).then(|| stats.confirmed as f64 / reviewed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Millis = Millis(1_700_000_000_000);

    fn outcome(kind: OutcomeKind) -> RuleOutcome {
        RuleOutcome { rule: "r".into(), version: "v1".to_owned(), kind }
    }

    fn take_counts(counters: &mut RuleCounters) -> Vec<(i64, i64, i64)> {
        counters.take_changed().rows.iter().map(|row| (row.hits, row.acted, row.errored)).collect()
    }

    #[test]
    fn only_changed_counters_are_written_with_their_totals() {
        let (mut counters, org) = (RuleCounters::default(), OrgId::new("acme"));
        let all = [OutcomeKind::Acted, OutcomeKind::Suppressed(Suppression::Limit), OutcomeKind::Errored];
        counters.count(&org, AT, &all.map(outcome));
        assert_eq!(take_counts(&mut counters), [(2, 1, 1)]);
        assert!(counters.take_changed().rows.is_empty());
        counters.count(&org, AT, &[outcome(OutcomeKind::Acted)]);
        assert_eq!(take_counts(&mut counters), [(3, 2, 1)], "the whole number, not the difference");
    }

    #[test]
    fn counters_are_written_again_after_a_failed_write() {
        let (mut counters, org) = (RuleCounters::default(), OrgId::new("acme"));
        counters.count(&org, AT, &[outcome(OutcomeKind::Acted)]);
        let failed = counters.take_changed();
        counters.put_back(failed);
        assert_eq!(take_counts(&mut counters), [(1, 1, 0)]);
    }

    #[test]
    fn full_counters_restart_under_a_new_writer() {
        let (mut counters, org) = (RuleCounters::default(), OrgId::new("acme"));
        for nth in 0..=MAX_COUNTERS {
            let outcome = RuleOutcome { version: nth.to_string(), ..outcome(OutcomeKind::Acted) };
            counters.count(&org, AT, &[outcome]);
        }
        let first = counters.take_changed();
        counters.count(&org, AT, &[RuleOutcome { version: "0".to_owned(), ..outcome(OutcomeKind::Acted) }]);
        let second = counters.take_changed();
        assert_eq!((first.rows.len(), second.rows.len()), (MAX_COUNTERS + 1, 1));
        assert_ne!(first.rows[0].writer, second.rows[0].writer);
        assert_eq!(second.rows[0].hits, 1);
    }
}
