//! Compares a candidate configuration with the live one on stored items: new and lost matches, actions of the rules,
//! and agreement with moderators.
//!
//! Findings of consecutive periods can be added, so a long run consists of many short ones, and only numbers per rule
//! are stored. `items::history` finds the items.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
    sync::Arc,
};

use futures::{TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tidegate_catalog::Compiled;
use tidegate_rules::{Outcome, Status};
use tidegate_schemas::{
    ids::{HOUR_MS, ItemKey, Millis, OrgId, RuleId, WindowId},
    records::{JobClass, Verdict},
};
use tidegate_store::{
    Store,
    tables::{
        items::items::Item,
        review::jobs::{Job, JobState, SubjectJob},
    },
};

use super::stored_evaluation::{Archive, PastEvaluation, PastOutcome, run_blocking};
use crate::{
    Error,
    child_safety::Clearance,
    items::{
        evaluate::PreparedItem,
        history::{self, HistoryCursor, SampledPeriod},
    },
    jobs::stored_decision::StoredDecision,
    rules::windows::SubmissionPosition,
};

/// Maximum number of stored items read at once; one item can have a megabyte.
const MAX_BATCH_ITEMS: usize = 64;

/// Number of items with concurrent look-ups.
const CONCURRENT_ITEMS: usize = 16;

/// Maximum number of rule pairs with counted overlaps.
const MOST_PAIRS: usize = 100_000;

/// Configurations of a backtest.
#[derive(Debug)]
pub struct ConfigComparison {
    pub live: Arc<Compiled>,
    pub candidate: Arc<Compiled>,
    /// Windows that are new or changed in the candidate, so that they have no rows yet.
    pub uncounted: BTreeSet<WindowId>,
    changed_rules: HashSet<RuleId>,
}

/// Stored items that one request of a backtest compares.
pub struct BacktestStep<'a> {
    pub store: &'a Store,
    pub org: &'a OrgId,
    pub period: &'a SampledPeriod,
    /// Cursor of the previous step; `None` at the start of the period.
    pub from: Option<HistoryCursor>,
    /// Items beyond it are left out.
    pub clearance: Clearance,
    /// Maximum number of rows read per window.
    pub window_rows: usize,
}

/// Findings of a step. They are added to those of the other steps.
#[derive(Debug)]
pub struct BacktestProgress {
    pub findings: BacktestFindings,
    /// `None` at the end of the period.
    pub next: Option<HistoryCursor>,
    /// Time up to which all items of the period were compared.
    pub through: Millis,
}

/// Rule in both configurations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparedRule {
    /// Status in the candidate; absent if the candidate lacks the rule.
    pub status: Option<Status>,
    pub live_status: Option<Status>,
    /// Version of the rule's document in the candidate.
    pub version: Option<String>,
    /// True if the documents differ, or only one configuration has the rule.
    pub changed: bool,
    /// Limit of actions per day.
    pub most_a_day: Option<i64>,
}

/// Numbers of items by result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BacktestFindings {
    pub items: u64,
    /// Arrival times of the first and the last item.
    pub first: Option<Millis>,
    pub last: Option<Millis>,
    /// Items that do not fit their type in one of the configurations.
    pub unfit: u64,
    /// Items with an unknown fact: media, models, or windows without rows.
    pub guessed: u64,
    /// Items with different matches in the two configurations.
    pub differing: u64,
    /// Items with more matches than the outcome lists.
    pub unlisted: u64,
    pub rules: BTreeMap<RuleId, RuleFindings>,
    /// Number of items that both rules match, by a changed rule and another rule.
    pub overlaps: BTreeMap<RuleId, BTreeMap<RuleId, u64>>,
    /// Common matches of pairs beyond the counted ones.
    pub overlaps_left_out: u64,
}

/// Numbers of items for one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleFindings {
    /// Matches in the live configuration, in the candidate, and in both.
    pub live: u64,
    pub candidate: u64,
    pub both: u64,
    /// Items on which the rule would act if it were live, within its rollout.
    pub acting: u64,
    pub errored: u64,
    pub live_errored: u64,
    /// Decisions of moderators on matched items, where the rule or its matches changed.
    pub decided: VerdictCounts,
    pub live_decided: VerdictCounts,
    /// Matches of the candidate in hours that may continue. Of a finished hour only the maximum is kept.
    pub hours: BTreeMap<i64, u64>,
    pub busiest_hour: u64,
}

/// Decisions of moderators on items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerdictCounts {
    /// Decisions to act.
    pub confirmed: u64,
    /// Decisions to ignore.
    pub rejected: u64,
}

impl VerdictCounts {
    fn add(&mut self, verdict: Option<bool>) {
        match verdict {
            Some(true) => self.confirmed += 1,
            Some(false) => self.rejected += 1,
            None => {}
        }
    }

    fn join(&mut self, other: Self) {
        self.confirmed += other.confirmed;
        self.rejected += other.rejected;
    }

    /// Share of the decided items on which moderators acted.
    pub fn precision(self) -> Option<f64> {
        let decisions = self.confirmed + self.rejected;
        (decisions > 0).then(|| self.confirmed as f64 / decisions as f64)
    }
}

impl RuleFindings {
    /// Matches of the candidate only.
    pub fn new_hits(&self) -> u64 {
        self.candidate - self.both
    }

    /// Matches of the live configuration only.
    pub fn lost_hits(&self) -> u64 {
        self.live - self.both
    }

    /// Matches of the candidate in its busiest hour.
    pub fn busiest(&self) -> u64 {
        self.hours.values().copied().fold(self.busiest_hour, u64::max)
    }

    fn join(&mut self, other: Self) {
        self.live += other.live;
        self.candidate += other.candidate;
        self.both += other.both;
        self.acting += other.acting;
        self.errored += other.errored;
        self.live_errored += other.live_errored;
        self.decided.join(other.decided);
        self.live_decided.join(other.live_decided);
        for (hour, count) in other.hours {
            *self.hours.entry(hour).or_default() += count;
        }
        self.busiest_hour = self.busiest_hour.max(other.busiest_hour);
        self.settle();
    }

    /// Drops finished hours. Items are read hour by hour, so only the last hour can continue.
    fn settle(&mut self) {
        // Before the drop, so that the maximum of the dropped hours is kept.
        self.busiest_hour = self.busiest();
        while self.hours.len() > 1 {
            self.hours.pop_first();
        }
    }
}

impl BacktestFindings {
    /// Adds the findings of later items.
    pub fn join(&mut self, later: Self) {
        self.first = self.first.into_iter().chain(later.first).min();
        self.last = self.last.max(later.last);
        self.items += later.items;
        self.unfit += later.unfit;
        self.guessed += later.guessed;
        self.differing += later.differing;
        self.unlisted += later.unlisted;
        self.overlaps_left_out += later.overlaps_left_out;
        for (rule, rule_findings) in later.rules {
            self.rules.entry(rule).or_default().join(rule_findings);
        }
        for (rule, others) in later.overlaps {
            for (other, count) in others {
                self.overlap(&rule, &other, count);
            }
        }
    }

    /// Returns the covered part of the requested period: whole hours, extended by the mean distance of items at
    /// either end. So an hour of items does not count as a day. `None` without items.
    pub fn covered(&self, requested: Range<Millis>) -> Option<Range<Millis>> {
        let (first, last) = self.first.zip(self.last)?;
        let between = i64::try_from(self.items.saturating_sub(1)).unwrap_or(i64::MAX).max(1);
        let gap = (last.0 - first.0) / between;
        let ends = Millis((Millis(last.0 + gap).hour() + 1) * HOUR_MS).min(requested.end);
        // At least one hour, even if all items arrived within seconds.
        let begins = Millis((Millis(first.0 - gap).hour() * HOUR_MS).min(ends.0 - HOUR_MS));
        Some(begins.max(requested.start)..ends)
    }

    fn overlap(&mut self, rule: &RuleId, other: &RuleId, count: u64) {
        if let Some(both) = self.overlaps.get_mut(rule).and_then(|others| others.get_mut(other)) {
            *both += count;
        } else if self.overlaps.values().map(BTreeMap::len).sum::<usize>() < MOST_PAIRS {
            self.overlaps.entry(rule.clone()).or_default().insert(other.clone(), count);
        } else {
            self.overlaps_left_out += count;
        }
    }

    /// Jaccard index: items matched by both rules, divided by items matched by at least one.
    pub fn jaccard(&self, rule: &RuleId, other: &RuleId) -> f64 {
        let hits = |rule| self.rules.get(rule).map_or(0, |findings| findings.candidate);
        let both = self.overlaps.get(rule).and_then(|others| others.get(other)).copied().unwrap_or(0);
        let union = (hits(rule) + hits(other)).saturating_sub(both);
        if union == 0 { 0.0 } else { both as f64 / union as f64 }
    }
}

/// Item with its outcomes in both configurations.
struct ComparedItem {
    row: Item,
    live: PastOutcome,
    prepared: PreparedItem,
    candidate: PastOutcome,
}

impl ConfigComparison {
    pub fn new(live: Arc<Compiled>, candidate: Arc<Compiled>, uncounted: BTreeSet<WindowId>) -> Self {
        let version = |config: &Compiled, rule: &RuleId| config.rule(rule).map(|head| head.version.clone());
        let rules = live.plan().rules().chain(candidate.plan().rules()).map(|head| &head.rule);
        // A rule in only one configuration has no version in the other, so it counts as changed.
        let changed_rules =
            rules.filter(|rule| version(&live, rule) != version(&candidate, rule)).cloned().collect();
        Self { live, candidate, uncounted, changed_rules }
    }

    /// Returns the changed rules and those in `rules`.
    pub fn heads<'a>(&'a self, rules: impl Iterator<Item = &'a RuleId>) -> BTreeMap<RuleId, ComparedRule> {
        let rule_ids: BTreeSet<_> = self.changed_rules.iter().chain(rules).collect();
        rule_ids.into_iter().map(|rule| (rule.clone(), self.head(rule))).collect()
    }

    fn head(&self, rule: &RuleId) -> ComparedRule {
        let (head, live) = (self.candidate.rule(rule), self.live.rule(rule));
        ComparedRule {
            status: head.map(|head| head.status),
            live_status: live.map(|head| head.status),
            version: head.map(|head| head.version.clone()),
            changed: self.changed_rules.contains(rule),
            most_a_day: head.and_then(|head| head.enforcement.limits.actions_per_day),
        }
    }

    /// Compares items of the step until its time is spent or the period ends.
    pub async fn run_step(
        self: &Arc<Self>,
        step: BacktestStep<'_>,
        is_time_spent: impl Fn() -> bool,
    ) -> Result<BacktestProgress, Error> {
        let BacktestStep { store, org, period, from: mut position, clearance, window_rows } = step;
        let mut findings = BacktestFindings::default();
        // Slow rules take seconds per item: the time is checked after the first item, then after growing batches.
        let mut batch_items = 1;
        let next = loop {
            let page = history::load_page(store, org, period, position.take(), batch_items).await?;
            batch_items = (2 * batch_items).min(MAX_BATCH_ITEMS);
            // Filtered before the comparison, so that the findings do not depend on withheld items.
            let visible_items = clearance.visible_items(store, org, page.items).await?;
            findings.join(self.compare(store, org, visible_items, window_rows).await?);
            match page.next {
                Some(next) if !is_time_spent() => position = Some(next),
                next => break next,
            }
        };
        // The time of a cursor is the start of its hour, which can be before the period.
        let through =
            next.as_ref().map_or(period.time.end, |cursor| cursor.partition.at().max(period.time.start));
        Ok(BacktestProgress { findings, next, through })
    }

    /// Evaluates the items in both configurations and adds up the findings.
    pub async fn compare(
        self: &Arc<Self>,
        store: &Store,
        org: &OrgId,
        items: Vec<Item>,
        window_rows: usize,
    ) -> Result<BacktestFindings, Error> {
        let mut findings = BacktestFindings {
            items: items.len() as u64,
            first: items.iter().map(|row| row.append_ms).min(),
            last: items.iter().map(|row| row.append_ms).max(),
            ..BacktestFindings::default()
        };
        let trial = Arc::clone(self);
        let evaluations =
            run_blocking(move || items.into_iter().map(|row| trial.begin(row)).collect::<Vec<_>>()).await;
        let fitting: Vec<_> = evaluations.into_iter().collect::<Result<Vec<_>, Error>>()?;
        findings.unfit = fitting.iter().filter(|evaluation| evaluation.is_none()).count() as u64;
        let archive = Archive { store, org, uncounted: &self.uncounted, window_rows };
        let no_windows = BTreeSet::new();
        // The live configuration has rows for all of its windows.
        let live_archive = Archive { uncounted: &no_windows, ..archive };
        let looked_up: Vec<_> = stream::iter(fitting.into_iter().flatten().map(Ok::<_, Error>))
            .map_ok(|(row, mut live, mut candidate)| async move {
                let moment = SubmissionPosition::from(&row);
                live.look_up(live_archive, moment).await?;
                candidate.look_up(archive, moment).await?;
                Ok((row, live, candidate))
            })
            .try_buffered(CONCURRENT_ITEMS)
            .try_collect()
            .await?;
        let finish = |(row, live, candidate): (Item, PastEvaluation, PastEvaluation)| {
            let ((_, live), (prepared, candidate)) = (live.finish(), candidate.finish());
            ComparedItem { row, live, prepared, candidate }
        };
        let pairs = run_blocking(move || looked_up.into_iter().map(finish).collect::<Vec<_>>()).await;
        for pair in pairs {
            self.add_pair(store, &pair, &mut findings).await?;
        }
        Ok(findings)
    }

    /// Starts both evaluations. `None` if the item no longer fits its type.
    fn begin(&self, row: Item) -> Result<Option<(Item, PastEvaluation, PastEvaluation)>, Error> {
        let live = PastEvaluation::begin(Arc::clone(&self.live), &row);
        let candidate = PastEvaluation::begin(Arc::clone(&self.candidate), &row);
        match (live, candidate) {
            (Ok(live), Ok(candidate)) => Ok(Some((row, live, candidate))),
            // The type may have changed since the item was stored.
            (Err(Error::Content { .. }), _) | (_, Err(Error::Content { .. })) => Ok(None),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    async fn add_pair(
        &self,
        store: &Store,
        pair: &ComparedItem,
        findings: &mut BacktestFindings,
    ) -> Result<(), Error> {
        let ComparedItem { row, live, prepared, candidate } = pair;
        // Counted, because a result with an unknown fact is only an estimate.
        findings.guessed += u64::from(live.is_guessed || candidate.is_guessed);
        let has_omissions = |outcome: &Outcome| outcome.matched_more > 0 || outcome.errored_more > 0;
        findings.unlisted += u64::from(has_omissions(&live.outcome) || has_omissions(&candidate.outcome));
        let (live_rules, candidate_rules) = (matched_rules(&live.outcome), matched_rules(&candidate.outcome));
        findings.differing += u64::from(live_rules != candidate_rules);
        let is_affected = |rule: &&RuleId| {
            self.changed_rules.contains(*rule)
                || live_rules.contains(*rule) != candidate_rules.contains(*rule)
        };
        // Verdicts cost reads, so they are only loaded where a change could matter.
        let affected_rules: BTreeSet<&RuleId> =
            live_rules.union(&candidate_rules).copied().filter(is_affected).collect();
        let verdict = if affected_rules.is_empty() {
            None
        } else {
            load_verdict(store, &row.org, &prepared.key).await?
        };
        for rule in live_rules.union(&candidate_rules).copied() {
            let rule_findings = findings.rules.entry(rule.clone()).or_default();
            let (is_live_match, is_candidate_match) =
                (live_rules.contains(rule), candidate_rules.contains(rule));
            rule_findings.live += u64::from(is_live_match);
            rule_findings.candidate += u64::from(is_candidate_match);
            rule_findings.both += u64::from(is_live_match && is_candidate_match);
            let verdict = verdict.filter(|_| affected_rules.contains(rule));
            if is_live_match {
                rule_findings.live_decided.add(verdict);
            }
            if is_candidate_match {
                rule_findings.decided.add(verdict);
                *rule_findings.hours.entry(row.append_ms.hour()).or_default() += 1;
                let enforcement = self.candidate.rule(rule).map(|head| &head.enforcement);
                let would_act = enforcement.is_some_and(|enforcement| {
                    enforcement.includes(rule, &prepared.key, prepared.user.as_ref())
                });
                rule_findings.acting += u64::from(would_act);
            }
        }
        for failure in &live.outcome.errored {
            findings.rules.entry(failure.rule.clone()).or_default().live_errored += 1;
        }
        for failure in &candidate.outcome.errored {
            findings.rules.entry(failure.rule.clone()).or_default().errored += 1;
        }
        for rule in candidate_rules.iter().filter(|rule| self.changed_rules.contains(**rule)) {
            for other in candidate_rules.iter().filter(|other| *other != rule) {
                findings.overlap(rule, other, 1);
            }
        }
        Ok(())
    }
}

fn matched_rules(outcome: &Outcome) -> BTreeSet<&RuleId> {
    outcome.matched.iter().map(|rule_match| &rule_match.rule).collect()
}

/// Returns true if moderators acted in the last decided review of the item, `None` without a decision.
async fn load_verdict(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Option<bool>, Error> {
    let key = (org.clone(), JobClass::Review, item.type_id.clone(), item.id.clone());
    let Some(pointer) = store.get::<SubjectJob>(&key).await? else { return Ok(None) };
    // The newest job may still be open; its predecessor then has the last decision.
    for job_id in [Some(pointer.job_id), pointer.previous_job_id].into_iter().flatten() {
        let Some(job) = store.get::<Job>(&(org.clone(), job_id)).await? else { continue };
        let Some(decision) = job.decision.filter(|_| job.state == JobState::Decided) else { continue };
        let stored_decision: StoredDecision =
            serde_json::from_str(&decision).map_err(Error::corrupt("job"))?;
        match stored_decision.verdict {
            Verdict::Act => return Ok(Some(true)),
            Verdict::Ignore => return Ok(Some(false)),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::ids::DAY_MS;

    use super::*;

    fn findings(hours: &[(i64, u64)]) -> BacktestFindings {
        let mut rule = RuleFindings { hours: hours.iter().copied().collect(), ..RuleFindings::default() };
        rule.candidate = hours.iter().map(|(_, count)| count).sum();
        BacktestFindings { rules: BTreeMap::from([("r".into(), rule)]), ..BacktestFindings::default() }
    }

    #[test]
    fn hour_split_over_two_pieces_is_counted_as_one() {
        let mut all = BacktestFindings::default();
        for piece in [findings(&[(1, 5), (2, 3)]), findings(&[(2, 4)]), findings(&[(2, 1), (3, 2)])] {
            all.join(piece);
        }
        let rule = &all.rules["r"];
        assert_eq!((rule.candidate, rule.busiest_hour), (15, 8));
        assert_eq!(rule.hours.len(), 1, "hours that are over leave only a number");
    }

    #[test]
    fn items_cover_no_more_than_their_own_period() {
        let asked = Millis(0)..Millis(7 * DAY_MS);
        let of = |items: u64, first: i64, last: i64| {
            let found = BacktestFindings {
                items,
                first: Some(Millis(first)),
                last: Some(Millis(last)),
                ..BacktestFindings::default()
            };
            let covered = found.covered(asked.clone()).unwrap();
            (covered.start.0, covered.end.0)
        };
        assert_eq!(
            of(50, 5 * DAY_MS + 600_000, 5 * DAY_MS + 660_000),
            (5 * DAY_MS, 5 * DAY_MS + HOUR_MS),
            "an hour of seven days"
        );
        assert_eq!(of(10_000, 9, 7 * DAY_MS - 9), (0, 7 * DAY_MS));
        assert_eq!(of(7, DAY_MS / 2, 13 * DAY_MS / 2), (0, 7 * DAY_MS), "one a day covers its days");
        assert_eq!(of(1, DAY_MS, DAY_MS), (DAY_MS, DAY_MS + HOUR_MS));
        let seconds = BacktestFindings {
            items: 9,
            first: Some(Millis(DAY_MS + 1)),
            last: Some(Millis(DAY_MS + 9)),
            ..BacktestFindings::default()
        };
        let covered = seconds.covered(Millis(0)..Millis(DAY_MS + 10)).unwrap();
        assert_eq!(covered.end.0 - covered.start.0, HOUR_MS, "an hour is the least, also at its turn");
        assert_eq!(BacktestFindings::default().covered(asked), None);
        let mut all = BacktestFindings::default();
        for at in [5, 3, 4] {
            all.join(BacktestFindings {
                first: Some(Millis(at)),
                last: Some(Millis(at + 1)),
                ..BacktestFindings::default()
            });
        }
        assert_eq!((all.first, all.last), (Some(Millis(3)), Some(Millis(6))));
    }

    #[test]
    fn pairs_beyond_the_limit_are_counted_in_total_only() {
        let mut all = BacktestFindings::default();
        let rule = RuleId::new("r");
        for nth in 0..MOST_PAIRS + 10 {
            all.overlap(&rule, &RuleId::new(format!("other-{nth}")), 2);
        }
        all.overlap(&rule, &RuleId::new("other-0"), 1);
        assert_eq!((all.overlaps[&rule].len(), all.overlaps_left_out), (MOST_PAIRS, 20));
        assert_eq!(all.overlaps[&rule]["other-0"], 3);
    }

    #[test]
    fn overlap_is_the_jaccard_index_of_two_rules() {
        let mut all = BacktestFindings::default();
        for (rule, candidate) in [("a", 6), ("b", 4)] {
            all.rules.insert(rule.into(), RuleFindings { candidate, ..RuleFindings::default() });
        }
        all.overlap(&"a".into(), &"b".into(), 2);
        assert!((all.jaccard(&"a".into(), &"b".into()) - 0.25).abs() < 1e-9);
        assert!(all.jaccard(&"a".into(), &"c".into()).abs() < 1e-9);
    }
}
