//! What versions of rules came to: hits, actions, suppressions, and how moderators judged.
//!
//! It evaluates and decides nothing. Counts of items are for judging rules: a crash loses, or counts twice, what was
//! under way for some seconds. Verdicts are exact: each is a row that a replay writes again.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{ItemKey, Millis, OrgId, RuleId};
use tidegate_store::{
    At, Batch, Store, WriteTime,
    tables::items::{
        limits::RuleAlarm,
        rules::{RuleCount, RuleVerdict},
    },
};
use uuid::Uuid;

use crate::Error;

/// A match of a version of a rule: where its verdict is booked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHit {
    pub rule: RuleId,
    pub version: String,
    /// When the log took the item.
    pub at: Millis,
}

/// What moderators made of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// They acted, or stood by an action.
    Confirmed,
    /// They found nothing wrong.
    Rejected,
    /// They accepted an appeal against the action.
    Overturned,
}

impl Finding {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Rejected => "rejected",
            Self::Overturned => "overturned",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Confirmed, Self::Rejected, Self::Overturned].into_iter().find(|it| it.as_str() == text)
    }
}

/// What a rule came to on one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOutcome {
    pub rule: RuleId,
    pub version: String,
    pub kind: OutcomeKind,
}

/// Why a rule that matched does not act. The first one is the most telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suppressed {
    /// It matched more often than its author expected.
    Alarm,
    /// The day's places are taken.
    Limit,
    /// It acted on the user lately.
    Cooldown,
    /// The item is not in the part that it acts for.
    Rollout,
    /// It is not live.
    Background,
}

impl Suppressed {
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
    Suppressed(Suppressed),
    /// It could not be evaluated; what that counts as is told apart.
    Errored,
}

impl OutcomeKind {
    /// As metrics name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acted => "live",
            Self::Suppressed(why) => why.as_str(),
            Self::Errored => "errored",
        }
    }
}

/// Numbers of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub hits: i64,
    pub acted: i64,
    pub background: i64,
    pub rollout: i64,
    pub limit: i64,
    pub cooldown: i64,
    pub alarm: i64,
    pub errored: i64,
}

impl Counts {
    fn count(&mut self, kind: OutcomeKind) {
        let place = match kind {
            OutcomeKind::Errored => {
                self.errored += 1;
                return;
            }
            OutcomeKind::Acted => &mut self.acted,
            OutcomeKind::Suppressed(Suppressed::Background) => &mut self.background,
            OutcomeKind::Suppressed(Suppressed::Rollout) => &mut self.rollout,
            OutcomeKind::Suppressed(Suppressed::Limit) => &mut self.limit,
            OutcomeKind::Suppressed(Suppressed::Cooldown) => &mut self.cooldown,
            OutcomeKind::Suppressed(Suppressed::Alarm) => &mut self.alarm,
        };
        *place += 1;
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
struct Line {
    org: OrgId,
    day: i64,
    rule: RuleId,
    version: String,
}

/// Counts of a process that are not all written yet; pure.
#[derive(Debug)]
pub struct Book {
    writer: Uuid,
    lines: HashMap<Line, Counts>,
    unwritten: HashSet<Line>,
}

/// Lines that a process keeps. Beyond them it begins a new book, whose rows stand beside those of the last one.
const MOST_LINES: usize = 100_000;

impl Default for Book {
    fn default() -> Self {
        Self { writer: new_writer(), lines: HashMap::new(), unwritten: HashSet::new() }
    }
}

fn new_writer() -> Uuid {
    tidegate_schemas::ids::CauseId::random().0
}

/// Rows to be written, and how many lines of them there were.
#[derive(Debug, Default)]
pub struct Written {
    rows: Vec<RuleCount>,
    lines: Vec<Line>,
}

impl Book {
    pub fn count(&mut self, org: &OrgId, at: Millis, outcomes: &[RuleOutcome]) {
        for outcome in outcomes {
            let line = Line {
                org: org.clone(),
                day: at.day(),
                rule: outcome.rule.clone(),
                version: outcome.version.clone(),
            };
            self.lines.entry(line.clone()).or_default().count(outcome.kind);
            self.unwritten.insert(line);
        }
    }

    /// What changed since the last time.
    pub fn take(&mut self) -> Written {
        let lines: Vec<_> = std::mem::take(&mut self.unwritten).into_iter().collect();
        let rows = lines.iter().filter_map(|line| Some(self.row(line, self.lines.get(line)?))).collect();
        if self.lines.len() > MOST_LINES {
            self.lines.clear();
            self.writer = new_writer();
        }
        Written { rows, lines }
    }

    /// They were not written after all. Lines of a book that was ended meanwhile are lost with it.
    pub fn put_back(&mut self, written: Written) {
        self.unwritten.extend(written.lines.into_iter().filter(|line| self.lines.contains_key(line)));
    }

    fn row(&self, line: &Line, counts: &Counts) -> RuleCount {
        RuleCount {
            org: line.org.clone(),
            day: line.day,
            rule: line.rule.clone(),
            rule_version: line.version.clone(),
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

/// Writes what a book has counted.
pub async fn write(store: &Store, written: &Written, now: Millis) -> Result<(), Error> {
    const AT_ONCE: usize = 500;
    for rows in written.rows.chunks(AT_ONCE) {
        let mut batch = Batch::new();
        batch.put_all(WriteTime::of(now, 0), rows);
        store.write(batch).await?;
    }
    Ok(())
}

/// Who judged a match, on which item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) hit: &'a RuleHit,
    pub(crate) item: &'a ItemKey,
    pub(crate) finding: Finding,
    pub(crate) decision: Uuid,
    pub(crate) at: Millis,
}

pub(crate) async fn book(store: &Store, verdict: Verdict<'_>) -> Result<(), Error> {
    let row = RuleVerdict {
        org: verdict.org.clone(),
        day: verdict.hit.at.day(),
        rule: verdict.hit.rule.clone(),
        rule_version: verdict.hit.version.clone(),
        item: verdict.item.clone(),
        verdict: verdict.finding.as_str().to_owned(),
        decision_id: verdict.decision.into(),
        decided_at: verdict.at,
    };
    // The decision's own time: a replay of an earlier one is no later verdict.
    Ok(store.put(WriteTime::of(verdict.at, 0), &[row]).await?)
}

/// A version of a rule over some days.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    #[serde(flatten)]
    pub counts: Counts,
    pub confirmed: i64,
    pub rejected: i64,
    pub overturned: i64,
    /// The part of the judged matches that moderators stand by.
    pub precision: Option<f64>,
    /// Since then it acts no more, because it matched more often than was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarmed_at: Option<String>,
}

/// What versions of rules came to on these days. Without `only`, of all rules that came to anything.
pub async fn read(
    store: &Store,
    org: &OrgId,
    since: Millis,
    until: Millis,
    only: Option<&RuleId>,
) -> Result<BTreeMap<(RuleId, String), Stats>, Error> {
    let mut all: BTreeMap<(RuleId, String), Stats> = BTreeMap::new();
    for day in since.day()..=until.day() {
        let partition = (org.clone(), day);
        let range = || only.map_or_else(At::all, |rule| At::under((rule.clone(),)));
        let mut counts = store.scan::<RuleCount>(&partition, range());
        while let Some(rows) = counts.next_page().await? {
            for row in rows {
                let stats = all.entry((row.rule.clone(), row.rule_version.clone())).or_default();
                stats.counts.add(&row);
            }
        }
        let range = || only.map_or_else(At::all, |rule| At::under((rule.clone(),)));
        let mut verdicts = store.scan::<RuleVerdict>(&partition, range());
        while let Some(rows) = verdicts.next_page().await? {
            for row in rows {
                let stats = all.entry((row.rule, row.rule_version)).or_default();
                match Finding::parse(&row.verdict) {
                    Some(Finding::Confirmed) => stats.confirmed += 1,
                    Some(Finding::Rejected) => stats.rejected += 1,
                    Some(Finding::Overturned) => stats.overturned += 1,
                    None => {}
                }
            }
        }
    }
    for stats in all.values_mut() {
        stats.precision = precision(stats);
    }
    let keys: Vec<_> =
        all.keys().map(|(rule, version)| (org.clone(), rule.clone(), version.clone())).collect();
    let alarms = store.get_many::<RuleAlarm>(&keys).await?;
    for (stats, alarm) in all.values_mut().zip(alarms) {
        stats.alarmed_at = alarm.map(|alarm| alarm.raised_at.iso());
    }
    Ok(all)
}

fn precision(stats: &Stats) -> Option<f64> {
    let judged = stats.confirmed + stats.rejected + stats.overturned;
    (judged > 0).then(|| stats.confirmed as f64 / judged as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Millis = Millis(1_700_000_000_000);

    fn outcome(kind: OutcomeKind) -> RuleOutcome {
        RuleOutcome { rule: "r".into(), version: "v1".to_owned(), kind }
    }

    fn one(book: &mut Book) -> Vec<(i64, i64, i64)> {
        book.take().rows.iter().map(|row| (row.hits, row.acted, row.errored)).collect()
    }

    #[test]
    fn a_row_holds_all_that_its_process_counted_and_only_what_changed_is_written() {
        let (mut book, org) = (Book::default(), OrgId::new("acme"));
        let all = [OutcomeKind::Acted, OutcomeKind::Suppressed(Suppressed::Limit), OutcomeKind::Errored];
        book.count(&org, AT, &all.map(outcome));
        assert_eq!(one(&mut book), [(2, 1, 1)]);
        assert!(book.take().rows.is_empty());
        book.count(&org, AT, &[outcome(OutcomeKind::Acted)]);
        assert_eq!(one(&mut book), [(3, 2, 1)], "the whole number, not the difference");
    }

    #[test]
    fn what_could_not_be_written_is_written_the_next_time() {
        let (mut book, org) = (Book::default(), OrgId::new("acme"));
        book.count(&org, AT, &[outcome(OutcomeKind::Acted)]);
        let failed = book.take();
        book.put_back(failed);
        assert_eq!(one(&mut book), [(1, 1, 0)]);
    }

    #[test]
    fn a_full_book_is_ended_and_the_next_one_has_rows_of_its_own() {
        let (mut book, org) = (Book::default(), OrgId::new("acme"));
        for nth in 0..=MOST_LINES {
            let outcome = RuleOutcome { version: nth.to_string(), ..outcome(OutcomeKind::Acted) };
            book.count(&org, AT, &[outcome]);
        }
        let first = book.take();
        book.count(&org, AT, &[RuleOutcome { version: "0".to_owned(), ..outcome(OutcomeKind::Acted) }]);
        let second = book.take();
        assert_eq!((first.rows.len(), second.rows.len()), (MOST_LINES + 1, 1));
        assert_ne!(first.rows[0].writer, second.rows[0].writer);
        assert_eq!(second.rows[0].hits, 1);
    }
}
