//! `tidegate rules backtest`: evaluates stored items with the documents in a folder, and compares with the live ones.
//!
//! The running service evaluates a few seconds' worth of items per request; this command adds up and prints the results.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal as _, Write as _},
    ops::Range,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::bail;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_moderation::reevaluation::backtest::{Findings, Head, Opinion, RuleFindings};
use tidegate_rules::Within;
use tidegate_schemas::{
    documents::{DocumentKind, parse},
    ids::{DAY_MS, Millis, RuleId},
    item_types::datetime,
};

use super::no_such_rule;
use crate::{
    client::{Client, Connection},
    commands::documents::{self, Change, File},
    output::{print_error, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Backtest {
    /// Folder with the documents to test
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Test as `apply --prune` would apply them: without live documents that are not in the folder
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    span: Span,
    /// Percentage of the items to evaluate, always the same ones; results are scaled up
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    sample: f64,
    /// Test only these rules
    #[arg(long, value_name = "RULE")]
    rule: Vec<RuleId>,
    /// Include rules that did not change
    #[arg(long)]
    all: bool,
    /// Store the match rate of each rule for the alarm of these versions; needs at least one day of items
    #[arg(long)]
    record: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Range of time in which items came in.
#[derive(Debug, Args)]
pub(super) struct Span {
    /// Start of the range: a time (2026-01-31T12:00:00Z) or an age (7d, 12h)
    #[arg(long, value_name = "WHEN", default_value = "7d")]
    pub(super) since: String,
    /// End of the range; default: now
    #[arg(long, value_name = "WHEN")]
    pub(super) until: Option<String>,
}

impl Span {
    pub(super) fn resolve(&self, now: Millis) -> anyhow::Result<(Millis, Millis)> {
        let until = self.until.as_deref().map_or(Ok(now), |text| instant(text, now))?;
        let since = instant(&self.since, now)?;
        if since >= until {
            bail!("`--since` {} is not before `--until` {}", since.iso(), until.iso());
        }
        Ok((since, until))
    }
}

pub(super) fn instant(text: &str, now: Millis) -> anyhow::Result<Millis> {
    match (Within::parse(text), datetime::parse(text)) {
        (Some(ago), _) => Ok(ago.since(now)),
        (None, Some(at)) => Ok(at),
        (None, None) => {
            bail!("`{text}` is neither an instant such as 2026-01-31T12:00:00Z nor a time such as 7d")
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    version: i64,
    changes: Vec<Change>,
    warnings: Vec<String>,
    uncounted_windows: Vec<String>,
    rules: BTreeMap<RuleId, Head>,
    findings: Findings,
    next: Option<String>,
    through: String,
}

/// A whole run.
struct Run {
    version: i64,
    changes: Vec<Change>,
    warnings: Vec<String>,
    uncounted_windows: Vec<String>,
    heads: BTreeMap<RuleId, Head>,
    findings: Findings,
    /// Part of the requested range that the items cover.
    covered: Range<Millis>,
    /// Factor by which numbers are scaled up.
    scale: f64,
}

impl Backtest {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read(&self.folder)?;
        let (since, until) = self.span.resolve(Millis::now())?;
        let client = self.connection.open()?;
        let asked = Asked { files: &files, prune: self.prune, since, until, sample: self.sample };
        if let Some(refused) = unknown(&self.rule, &files, &client).await? {
            return Ok(refused);
        }
        let run = asked.run(&client).await?;
        run.warnings.iter().for_each(|warning| print_error(format!("warning: {warning}")));
        let reports: Vec<_> = run.reports(&self.rule, self.all).collect();
        if self.json {
            print_line(run.json(since, until, self.sample, &reports));
        } else {
            run.print(since, until, self.sample, &reports);
        }
        if self.record {
            let recorded = run.record(&client, self.sample).await?;
            print_error(format!("recorded how often {recorded} rules match"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses a rule that is neither in the folder nor live.
async fn unknown(only: &[RuleId], files: &[File], client: &Client) -> anyhow::Result<Option<ExitCode>> {
    let mut rules = rules_of(files);
    let is_known = |rules: &BTreeSet<String>| only.iter().all(|rule| rules.contains(rule.as_str()));
    if !is_known(&rules) {
        let live: Live = client.get("/config", &[]).await?;
        rules.extend(rules_of(&live.files));
    }
    let unknown = only.iter().find(|rule| !rules.contains(rule.as_str()));
    Ok(unknown.map(|rule| no_such_rule(rule.as_str(), rules.iter().map(String::as_str))))
}

/// Returns the rules of the files. The service reports what cannot be read.
fn rules_of(files: &[File]) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for file in files {
        let documents = parse(&[(file.name.clone(), file.text.clone())]).unwrap_or_default();
        let named = documents.iter().filter(|(_, document)| document.kind() == DocumentKind::Rule);
        rules.extend(named.map(|(_, document)| document.key().to_owned()));
    }
    rules
}

/// The documents that run.
#[derive(Deserialize)]
struct Live {
    files: Vec<File>,
}

struct Asked<'a> {
    files: &'a [File],
    prune: bool,
    since: Millis,
    until: Millis,
    sample: f64,
}

impl Asked<'_> {
    async fn run(&self, client: &Client) -> anyhow::Result<Run> {
        let first = self.step(client, None).await?;
        let mut next = first.next.clone();
        let mut run = Run {
            version: first.version,
            changes: first.changes,
            warnings: first.warnings,
            uncounted_windows: first.uncounted_windows,
            heads: first.rules,
            findings: first.findings,
            covered: self.since..self.until,
            scale: 100.0 / self.sample,
        };
        progress(&format!("{} items, through {}", run.findings.items, first.through));
        while let Some(cursor) = next {
            let answer = self.step(client, Some(cursor)).await?;
            if answer.version != run.version {
                bail!(
                    "the configuration went from version {} to {} while the backtest ran: run it again",
                    run.version,
                    answer.version
                );
            }
            run.heads.extend(answer.rules);
            run.findings.join(answer.findings);
            progress(&format!("{} items, through {}", run.findings.items, answer.through));
            next = answer.next;
        }
        progress("");
        run.covered = run.findings.covered(self.since..self.until).unwrap_or(self.since..self.since);
        Ok(run)
    }

    async fn step(&self, client: &Client, cursor: Option<String>) -> anyhow::Result<Answer> {
        let body = json!({
            "files": self.files,
            "prune": self.prune,
            "since": self.since.iso(),
            "until": self.until.iso(),
            "samplePercent": self.sample,
            "cursor": cursor,
        });
        client.post_in_turn("/rules/backtest", &body).await
    }
}

/// A line that the next one replaces; only for people who watch.
pub(super) fn progress(line: &str) {
    let mut out = io::stderr().lock();
    if out.is_terminal() {
        let _nobody_watches = write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush());
    }
}

/// A rule in the report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleReport {
    rule: RuleId,
    #[serde(flatten)]
    head: Head,
    hits: u64,
    live_hits: u64,
    new_hits: u64,
    lost_hits: u64,
    errored: u64,
    live_errored: u64,
    hits_per_day: f64,
    busiest_hour: f64,
    /// Number of actions a day as if the rule were live: with its rollout, and no more than its limit.
    actions_per_day: f64,
    decided: Opinion,
    live_decided: Opinion,
    precision: Option<f64>,
    live_precision: Option<f64>,
    overlaps: Vec<Overlap>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Overlap {
    rule: RuleId,
    both: u64,
    jaccard: f64,
}

impl Run {
    /// Also of rules that did not change: whoever runs them may want an alarm.
    async fn record(&self, client: &Client, sample: f64) -> anyhow::Result<u64> {
        let Range { start: since, end: until } = self.covered;
        if until.0 - since.0 < DAY_MS {
            bail!(
                "the items cover {:.1} hours, and a day is the least that is recorded: quiet hours would pass for all",
                (until.0 - since.0) as f64 / 3_600_000.0
            );
        }
        let nothing = RuleFindings::default();
        let rules = self.heads.iter().filter_map(|(rule, head)| {
            let found = self.findings.rules.get(rule).unwrap_or(&nothing);
            let version = head.version.as_ref()?;
            Some(json!({"rule": rule, "version": version, "hits": found.candidate, "busiestHour": found.busiest()}))
        });
        let body = json!({
            "since": since.iso(),
            "until": until.iso(),
            "samplePercent": sample,
            "items": self.findings.items,
            "rules": rules.collect::<Vec<_>>(),
        });
        let answer: serde_json::Value = client.post("/rules/baselines", &body).await?;
        Ok(answer["recorded"].as_u64().unwrap_or_default())
    }

    fn reports(&self, only: &[RuleId], all: bool) -> impl Iterator<Item = RuleReport> {
        self.heads
            .iter()
            .map(|(rule, head)| (rule, head, self.findings.rules.get(rule).cloned().unwrap_or_default()))
            .filter(move |(rule, head, found)| {
                let differs = head.changed || found.new_hits() > 0 || found.lost_hits() > 0;
                let errored = found.errored != found.live_errored;
                if only.is_empty() { all || differs || errored } else { only.contains(rule) }
            })
            .map(|(rule, head, found)| self.report(rule, head, &found))
    }

    fn per_day(&self, count: u64) -> f64 {
        let days = (self.covered.end.0 - self.covered.start.0) as f64 / DAY_MS as f64;
        if count == 0 { 0.0 } else { count as f64 * self.scale / days }
    }

    fn report(&self, rule: &RuleId, head: &Head, found: &RuleFindings) -> RuleReport {
        let acting = self.per_day(found.acting);
        let mut overlaps: Vec<_> = self
            .findings
            .overlaps
            .get(rule)
            .into_iter()
            .flatten()
            .map(|(other, both)| Overlap {
                rule: other.clone(),
                both: *both,
                jaccard: self.findings.jaccard(rule, other),
            })
            .collect();
        overlaps.sort_by(|left, right| right.both.cmp(&left.both).then_with(|| left.rule.cmp(&right.rule)));
        RuleReport {
            rule: rule.clone(),
            head: head.clone(),
            hits: found.candidate,
            live_hits: found.live,
            new_hits: found.new_hits(),
            lost_hits: found.lost_hits(),
            errored: found.errored,
            live_errored: found.live_errored,
            hits_per_day: self.per_day(found.candidate),
            busiest_hour: found.busiest() as f64 * self.scale,
            actions_per_day: head.most_a_day.map_or(acting, |most| acting.min(most as f64)),
            decided: found.decided,
            live_decided: found.live_decided,
            precision: found.decided.precision(),
            live_precision: found.live_decided.precision(),
            overlaps,
        }
    }

    fn json(&self, since: Millis, until: Millis, sample: f64, reports: &[RuleReport]) -> serde_json::Value {
        let found = &self.findings;
        json!({
            "version": self.version,
            "since": since.iso(),
            "until": until.iso(),
            "covered": {"since": self.covered.start.iso(), "until": self.covered.end.iso()},
            "samplePercent": sample,
            "changes": self.changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "uncountedWindows": self.uncounted_windows,
            "items": found.items,
            "unfit": found.unfit,
            "guessed": found.guessed,
            "unlisted": found.unlisted,
            "differing": found.differing,
            "overlapsLeftOut": found.overlaps_left_out,
            "rules": reports,
        })
    }

    fn print(&self, since: Millis, until: Millis, sample: f64, reports: &[RuleReport]) {
        self.changes.iter().for_each(print_line);
        let found = &self.findings;
        let of = if sample < 100.0 { format!(" ({sample} % of them)") } else { String::new() };
        print_line(format!(
            "{} items from {} until {}{of}, against version {}: {} match other rules",
            found.items,
            since.iso(),
            until.iso(),
            self.version,
            found.differing
        ));
        if found.items > 0 && self.covered != (since..until) {
            print_line(format!(
                "  they cover only {} until {}, which numbers a day are made from",
                self.covered.start.iso(),
                self.covered.end.iso()
            ));
        }
        for (count, what) in [
            (found.unfit, "do not fit their item type any more"),
            (found.guessed, "ask for media, models or new windows, of which nothing is known of the past"),
            (
                found.unlisted,
                "match or fail more rules than are listed (`catalog.rules.matched`, `.errored`)",
            ),
            (
                found.overlaps_left_out,
                "common matches of pairs of rules were not counted, because they are too many",
            ),
        ] {
            if count > 0 {
                print_line(format!("  {count} {what}"));
            }
        }
        if !self.uncounted_windows.is_empty() {
            print_line(format!(
                "  windows that nobody has counted for yet: {}",
                self.uncounted_windows.join(", ")
            ));
        }
        reports.iter().for_each(print_rule);
        if reports.is_empty() {
            print_line("no rule changed, and no match");
        }
    }
}

fn print_rule(report: &RuleReport) {
    let status = |status: Option<tidegate_rules::Status>| {
        status.map_or_else(|| "absent".to_owned(), |status| format!("{status:?}").to_lowercase())
    };
    let (was, is) = (status(report.head.live_status), status(report.head.status));
    let status = if was == is { is } else { format!("{was} -> {is}") };
    print_line(format!(
        "{} ({status}): {} hits, {} new, {} lost; {:.1} a day, {:.0} in its busiest hour; would act on {:.1} a day",
        report.rule,
        report.hits,
        report.new_hits,
        report.lost_hits,
        report.hits_per_day,
        report.busiest_hour,
        report.actions_per_day
    ));
    let precision = |opinion: Opinion| {
        let decided = opinion.confirmed + opinion.rejected;
        opinion.precision().map(|share| format!("{:.0} % of {decided}", share * 100.0))
    };
    match (precision(report.decided), precision(report.live_decided)) {
        (None, None) => {}
        (now, before) => {
            let none = || "nothing decided".to_owned();
            print_line(format!(
                "  moderators agreed: {} (live: {})",
                now.unwrap_or_else(none),
                before.unwrap_or_else(none)
            ));
        }
    }
    if report.errored > 0 || report.live_errored > 0 {
        print_line(format!("  could not be evaluated on {} (live: {})", report.errored, report.live_errored));
    }
    for overlap in report.overlaps.iter().take(5) {
        print_line(format!(
            "  {} matches {} of them, too ({:.2})",
            overlap.rule, overlap.both, overlap.jaccard
        ));
    }
}
