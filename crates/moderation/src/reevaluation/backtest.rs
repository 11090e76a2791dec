//! Compares a candidate configuration with the live one on stored items: which matches come and go, how often the rules
//! would act, and how often moderators agreed.
//!
//! Findings of consecutive periods add up, so a long run is split into many short ones, and only numbers per rule are
//! kept. `items::history` finds the items.

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

use super::stored_evaluation::{Archive, PastEvaluation, PastOutcome, compute};
use crate::{Error, items::evaluate::Prepared, review::decisions::StoredDecision, rules::windows::Moment};

/// Number of items whose facts are looked up at once.
const AT_ONCE: usize = 16;

/// Number of rule pairs whose common matches are counted.
const MOST_PAIRS: usize = 100_000;

/// The two configurations of a backtest.
#[derive(Debug)]
pub struct Trial {
    pub live: Arc<Compiled>,
    pub candidate: Arc<Compiled>,
    /// Windows that are new or changed in the candidate, for which no item was counted yet.
    pub uncounted: BTreeSet<WindowId>,
    changed: HashSet<RuleId>,
}

/// A rule in both configurations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// Its status in the candidate; absent where the rule is not in it.
    pub status: Option<Status>,
    pub live_status: Option<Status>,
    /// Version of its document in the candidate.
    pub version: Option<String>,
    /// True if its document differs, or is in one configuration only.
    pub changed: bool,
    /// Limit of actions a day.
    pub most_a_day: Option<i64>,
}

/// Numbers of items by result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Findings {
    pub items: u64,
    /// Times at which the first and the last of them came in.
    pub first: Option<Millis>,
    pub last: Option<Millis>,
    /// Items that do not fit their type in one of the configurations.
    pub unfit: u64,
    /// Items for which a fact is unknown: media, models, windows that were not counted.
    pub guessed: u64,
    /// Items on which the two configurations match different rules.
    pub differing: u64,
    /// Items on which more rules matched than are listed.
    pub unlisted: u64,
    pub rules: BTreeMap<RuleId, RuleFindings>,
    /// Number of items that both rules match, by a changed rule and another one.
    pub overlaps: BTreeMap<RuleId, BTreeMap<RuleId, u64>>,
    /// Common matches of pairs beyond those that are counted.
    pub overlaps_left_out: u64,
}

/// Numbers of items of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleFindings {
    /// Matched by the live configuration, by the candidate, and by both.
    pub live: u64,
    pub candidate: u64,
    pub both: u64,
    /// Items on which the rule would act if it were live, within its rollout.
    pub acting: u64,
    pub errored: u64,
    pub live_errored: u64,
    /// Decisions of moderators about matched items, where the rule or its matches changed.
    pub decided: Opinion,
    pub live_decided: Opinion,
    /// Matches of the candidate in the hours that may continue; ended hours only leave the largest number.
    pub hours: BTreeMap<i64, u64>,
    pub busiest_hour: u64,
}

/// Decisions of moderators about items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Opinion {
    /// Decisions to act.
    pub confirmed: u64,
    /// Decisions to ignore.
    pub rejected: u64,
}

impl Opinion {
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
        let decided = self.confirmed + self.rejected;
        (decided > 0).then(|| self.confirmed as f64 / decided as f64)
    }
}

impl RuleFindings {
    /// Matches that only the candidate has.
    pub fn new_hits(&self) -> u64 {
        self.candidate - self.both
    }

    /// Matches that only the live configuration has.
    pub fn lost_hits(&self) -> u64 {
        self.live - self.both
    }

    /// Matches of the candidate in the hour in which it had most.
    pub fn busiest(&self) -> u64 {
        self.hours.values().copied().fold(self.busiest_hour, u64::max)
    }

    fn join(&mut self, later: Self) {
        self.live += later.live;
        self.candidate += later.candidate;
        self.both += later.both;
        self.acting += later.acting;
        self.errored += later.errored;
        self.live_errored += later.live_errored;
        self.decided.join(later.decided);
        self.live_decided.join(later.live_decided);
        for (hour, count) in later.hours {
            *self.hours.entry(hour).or_default() += count;
        }
        self.busiest_hour = self.busiest_hour.max(later.busiest_hour);
        self.settle();
    }

    /// Drops ended hours. Items come hour by hour, so only the last hour can continue.
    fn settle(&mut self) {
        self.busiest_hour = self.busiest();
        while self.hours.len() > 1 {
            self.hours.pop_first();
        }
    }
}

impl Findings {
    /// Adds what came of later items.
    pub fn join(&mut self, later: Self) {
        self.first = self.first.into_iter().chain(later.first).min();
        self.last = self.last.max(later.last);
        self.items += later.items;
        self.unfit += later.unfit;
        self.guessed += later.guessed;
        self.differing += later.differing;
        self.unlisted += later.unlisted;
        self.overlaps_left_out += later.overlaps_left_out;
        for (rule, found) in later.rules {
            self.rules.entry(rule).or_default().join(found);
        }
        for (rule, others) in later.overlaps {
            for (other, count) in others {
                self.overlap(&rule, &other, count);
            }
        }
    }

    /// Returns the part of the requested period that the items cover, in whole hours and with their mean distance added at
    /// either end: an hour of items does not stand for a day. `None` if there are no items.
    pub fn covered(&self, asked: Range<Millis>) -> Option<Range<Millis>> {
        let (first, last) = self.first.zip(self.last)?;
        let between = i64::try_from(self.items.saturating_sub(1)).unwrap_or(i64::MAX).max(1);
        let gap = (last.0 - first.0) / between;
        let ends = Millis((Millis(last.0 + gap).hour() + 1) * HOUR_MS).min(asked.end);
        let begins = Millis((Millis(first.0 - gap).hour() * HOUR_MS).min(ends.0 - HOUR_MS));
        Some(begins.max(asked.start)..ends)
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

    /// Share of the items that both rules match among those that at least one does.
    pub fn jaccard(&self, rule: &RuleId, other: &RuleId) -> f64 {
        let hits = |rule| self.rules.get(rule).map_or(0, |found| found.candidate);
        let both = self.overlaps.get(rule).and_then(|others| others.get(other)).copied().unwrap_or(0);
        let either = (hits(rule) + hits(other)).saturating_sub(both);
        if either == 0 { 0.0 } else { both as f64 / either as f64 }
    }
}

/// An item with its outcome under both configurations.
struct Pair {
    row: Item,
    live: PastOutcome,
    prepared: Prepared,
    candidate: PastOutcome,
}

impl Trial {
    pub fn new(live: Arc<Compiled>, candidate: Arc<Compiled>, uncounted: BTreeSet<WindowId>) -> Self {
        let version = |config: &Compiled, rule: &RuleId| config.rule(rule).map(|head| head.version.clone());
        let all = live.plan().rules().chain(candidate.plan().rules()).map(|head| &head.rule);
        let changed = all.filter(|rule| version(&live, rule) != version(&candidate, rule)).cloned().collect();
        Self { live, candidate, uncounted, changed }
    }

    /// Returns the changed rules and the given ones.
    pub fn heads<'a>(&'a self, rules: impl Iterator<Item = &'a RuleId>) -> BTreeMap<RuleId, Head> {
        let named: BTreeSet<_> = self.changed.iter().chain(rules).collect();
        named.into_iter().map(|rule| (rule.clone(), self.head(rule))).collect()
    }

    fn head(&self, rule: &RuleId) -> Head {
        let (head, live) = (self.candidate.rule(rule), self.live.rule(rule));
        Head {
            status: head.map(|head| head.status),
            live_status: live.map(|head| head.status),
            version: head.map(|head| head.version.clone()),
            changed: self.changed.contains(rule),
            most_a_day: head.and_then(|head| head.enforcement.limits.actions_per_day),
        }
    }

    /// Evaluates the items under both configurations and adds up the findings.
    pub async fn compare(
        self: &Arc<Self>,
        store: &Store,
        org: &OrgId,
        items: Vec<Item>,
        window_rows: usize,
    ) -> Result<Findings, Error> {
        let mut findings = Findings {
            items: items.len() as u64,
            first: items.iter().map(|row| row.append_ms).min(),
            last: items.iter().map(|row| row.append_ms).max(),
            ..Findings::default()
        };
        let own = Arc::clone(self);
        let begun = compute(move || items.into_iter().map(|row| own.begin(row)).collect::<Vec<_>>()).await;
        let fitting: Vec<_> = begun.into_iter().collect::<Result<Vec<_>, Error>>()?;
        findings.unfit = fitting.iter().filter(|it| it.is_none()).count() as u64;
        let archive = Archive { store, org, uncounted: &self.uncounted, window_rows };
        let nothing = BTreeSet::new();
        let live_archive = Archive { uncounted: &nothing, ..archive };
        let known: Vec<_> = stream::iter(fitting.into_iter().flatten().map(Ok::<_, Error>))
            .map_ok(|(row, mut live, mut candidate)| async move {
                let moment = Moment::from(&row);
                live.look_up(live_archive, moment).await?;
                candidate.look_up(archive, moment).await?;
                Ok((row, live, candidate))
            })
            .try_buffered(AT_ONCE)
            .try_collect()
            .await?;
        let finish = |(row, live, candidate): (Item, PastEvaluation, PastEvaluation)| {
            let ((_, live), (prepared, candidate)) = (live.finish(), candidate.finish());
            Pair { row, live, prepared, candidate }
        };
        let judged = compute(move || known.into_iter().map(finish).collect::<Vec<_>>()).await;
        for pair in judged {
            self.count(store, &pair, &mut findings).await?;
        }
        Ok(findings)
    }

    /// Starts both evaluations. `None` if the item does not fit its type any more.
    fn begin(&self, row: Item) -> Result<Option<(Item, PastEvaluation, PastEvaluation)>, Error> {
        let live = PastEvaluation::begin(Arc::clone(&self.live), &row);
        let candidate = PastEvaluation::begin(Arc::clone(&self.candidate), &row);
        match (live, candidate) {
            (Ok(live), Ok(candidate)) => Ok(Some((row, live, candidate))),
            (Err(Error::Content { .. }), _) | (_, Err(Error::Content { .. })) => Ok(None),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    async fn count(&self, store: &Store, pair: &Pair, findings: &mut Findings) -> Result<(), Error> {
        let Pair { row, live, prepared, candidate } = pair;
        findings.guessed += u64::from(live.is_guessed || candidate.is_guessed);
        let more = |outcome: &Outcome| outcome.matched_more > 0 || outcome.errored_more > 0;
        findings.unlisted += u64::from(more(&live.outcome) || more(&candidate.outcome));
        let (before, after) = (matched(&live.outcome), matched(&candidate.outcome));
        findings.differing += u64::from(before != after);
        let is_of_interest =
            |rule: &&RuleId| self.changed.contains(*rule) || before.contains(*rule) != after.contains(*rule);
        let concerned: BTreeSet<&RuleId> = before.union(&after).copied().filter(is_of_interest).collect();
        let verdict =
            if concerned.is_empty() { None } else { verdict(store, &row.org, &prepared.key).await? };
        for rule in before.union(&after).copied() {
            let found = findings.rules.entry(rule.clone()).or_default();
            let (was, is) = (before.contains(rule), after.contains(rule));
            found.live += u64::from(was);
            found.candidate += u64::from(is);
            found.both += u64::from(was && is);
            let verdict = verdict.filter(|_| concerned.contains(rule));
            if was {
                found.live_decided.add(verdict);
            }
            if is {
                found.decided.add(verdict);
                *found.hours.entry(row.append_ms.hour()).or_default() += 1;
                let life = self.candidate.rule(rule).map(|head| &head.enforcement);
                let acts =
                    life.is_some_and(|life| life.includes(rule, &prepared.key, prepared.user.as_ref()));
                found.acting += u64::from(acts);
            }
        }
        for failed in &live.outcome.errored {
            findings.rules.entry(failed.rule.clone()).or_default().live_errored += 1;
        }
        for failed in &candidate.outcome.errored {
            findings.rules.entry(failed.rule.clone()).or_default().errored += 1;
        }
        for rule in after.iter().filter(|rule| self.changed.contains(**rule)) {
            for other in after.iter().filter(|other| *other != rule) {
                findings.overlap(rule, other, 1);
            }
        }
        Ok(())
    }
}

fn matched(outcome: &Outcome) -> BTreeSet<&RuleId> {
    outcome.matched.iter().map(|found| &found.rule).collect()
}

/// Returns true if moderators acted at the last decided review of the item, `None` without a decision.
async fn verdict(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Option<bool>, Error> {
    let key = (org.clone(), JobClass::Review.as_str().to_owned(), item.type_id.clone(), item.id.clone());
    let Some(pointer) = store.get::<SubjectJob>(&key).await? else { return Ok(None) };
    for job_id in [Some(pointer.job_id), pointer.previous_job_id].into_iter().flatten() {
        let Some(job) = store.get::<Job>(&(org.clone(), job_id)).await? else { continue };
        let Some(decision) = job.decision.filter(|_| job.state == JobState::Decided) else { continue };
        let decided: StoredDecision = serde_json::from_str(&decision).map_err(Error::corrupt("job"))?;
        match decided.verdict {
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

    fn found(hours: &[(i64, u64)]) -> Findings {
        let mut rule = RuleFindings { hours: hours.iter().copied().collect(), ..RuleFindings::default() };
        rule.candidate = hours.iter().map(|(_, count)| count).sum();
        Findings { rules: BTreeMap::from([("r".into(), rule)]), ..Findings::default() }
    }

    #[test]
    fn an_hour_that_lies_in_two_pieces_is_one() {
        let mut all = Findings::default();
        for piece in [found(&[(1, 5), (2, 3)]), found(&[(2, 4)]), found(&[(2, 1), (3, 2)])] {
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
            let found = Findings {
                items,
                first: Some(Millis(first)),
                last: Some(Millis(last)),
                ..Findings::default()
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
        let seconds = Findings {
            items: 9,
            first: Some(Millis(DAY_MS + 1)),
            last: Some(Millis(DAY_MS + 9)),
            ..Findings::default()
        };
        let covered = seconds.covered(Millis(0)..Millis(DAY_MS + 10)).unwrap();
        assert_eq!(covered.end.0 - covered.start.0, HOUR_MS, "an hour is the least, also at its turn");
        assert_eq!(Findings::default().covered(asked), None);
        let mut all = Findings::default();
        for at in [5, 3, 4] {
            all.join(Findings { first: Some(Millis(at)), last: Some(Millis(at + 1)), ..Findings::default() });
        }
        assert_eq!((all.first, all.last), (Some(Millis(3)), Some(Millis(6))));
    }

    #[test]
    fn pairs_beyond_the_limit_are_counted_as_left_out() {
        let mut all = Findings::default();
        let rule = RuleId::new("r");
        for nth in 0..MOST_PAIRS + 10 {
            all.overlap(&rule, &RuleId::new(format!("other-{nth}")), 2);
        }
        all.overlap(&rule, &RuleId::new("other-0"), 1);
        assert_eq!((all.overlaps[&rule].len(), all.overlaps_left_out), (MOST_PAIRS, 20));
        assert_eq!(all.overlaps[&rule]["other-0"], 3);
    }

    #[test]
    fn an_overlap_is_the_jaccard_index_of_two_rules() {
        let mut all = Findings::default();
        for (rule, candidate) in [("a", 6), ("b", 4)] {
            all.rules.insert(rule.into(), RuleFindings { candidate, ..RuleFindings::default() });
        }
        all.overlap(&"a".into(), &"b".into(), 2);
        assert!((all.jaccard(&"a".into(), &"b".into()) - 0.25).abs() < 1e-9);
        assert!(all.jaccard(&"a".into(), &"c".into()).abs() < 1e-9);
    }
}
