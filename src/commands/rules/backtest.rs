//! `tidegate rules backtest`: evaluates stored items with the documents in a folder, and compares with the live ones.
//!
//! The running service evaluates items for a few seconds per request; this command adds up and prints the results.

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
use tidegate_moderation::reevaluation::backtest::{
    BacktestFindings, ComparedRule, RuleFindings, VerdictCounts,
};
use tidegate_rules::Lookback;
use tidegate_schemas::{
    documents::{DocumentKind, parse},
    ids::{DAY_MS, Millis, RuleId},
    item_types::datetime,
};

use super::report_unknown_rule;
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

/// Range of the times at which items arrived.
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
        let end = self.until.as_deref().map_or(Ok(now), |text| parse_time_or_age(text, now))?;
        let start = parse_time_or_age(&self.since, now)?;
        if start >= end {
            bail!("`--since` {} is not before `--until` {}", start.iso(), end.iso());
        }
        Ok((start, end))
    }
}

pub(in crate::commands) fn parse_time_or_age(text: &str, now: Millis) -> anyhow::Result<Millis> {
    match (Lookback::parse(text), datetime::parse(text)) {
        (Some(age), _) => Ok(age.start(now)),
        (None, Some(at)) => Ok(at),
        (None, None) => {
            bail!("`{text}` is neither an instant such as 2026-01-31T12:00:00Z nor a time such as 7d")
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StepResponse {
    version: i64,
    changes: Vec<Change>,
    warnings: Vec<String>,
    uncounted_windows: Vec<String>,
    rules: BTreeMap<RuleId, ComparedRule>,
    findings: BacktestFindings,
    next: Option<String>,
    through: String,
}

/// Accumulated results of all steps.
struct Run {
    version: i64,
    changes: Vec<Change>,
    warnings: Vec<String>,
    uncounted_windows: Vec<String>,
    heads: BTreeMap<RuleId, ComparedRule>,
    findings: BacktestFindings,
    /// Part of the requested range that the items cover.
    covered_range: Range<Millis>,
    /// Factor by which numbers are scaled up.
    scale: f64,
}

impl Backtest {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read(&self.folder)?;
        let (since, until) = self.span.resolve(Millis::now())?;
        let client = self.connection.open()?;
        let request = BacktestRequest { files: &files, prune: self.prune, since, until, sample: self.sample };
        if let Some(exit_code) = check_rules_exist(&self.rule, &files, &client).await? {
            return Ok(exit_code);
        }
        let run = request.run(&client).await?;
        run.warnings.iter().for_each(|warning| print_error(format!("warning: {warning}")));
        let reports: Vec<_> = run.reports(&self.rule, self.all).collect();
        if self.json {
            print_line(run.json(since, until, self.sample, &reports));
        } else {
            run.print(since, until, self.sample, &reports);
        }
        if self.record {
            let rule_count = run.record(&client, self.sample).await?;
            print_error(format!("recorded the match rates of {rule_count} rules"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reports the first selected rule that is neither in the folder nor live.
async fn check_rules_exist(
    selected_rules: &[RuleId],
    files: &[File],
    client: &Client,
) -> anyhow::Result<Option<ExitCode>> {
    let mut rules = rules_of(files);
    let is_known = |rules: &BTreeSet<String>| selected_rules.iter().all(|rule| rules.contains(rule.as_str()));
    // The live rules are only requested if a selected rule is not in the folder.
    if !is_known(&rules) {
        let live: LiveConfig = client.get("/config", &[]).await?;
        rules.extend(rules_of(&live.files));
    }
    let unknown = selected_rules.iter().find(|rule| !rules.contains(rule.as_str()));
    Ok(unknown.map(|rule| report_unknown_rule(rule.as_str(), rules.iter().map(String::as_str))))
}

/// Returns the rules of the files. Unreadable files are skipped, because the service reports them.
fn rules_of(files: &[File]) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for file in files {
        let documents = parse(&[(file.name.clone(), file.text.clone())]).unwrap_or_default();
        let rule_documents = documents.iter().filter(|(_, document)| document.kind() == DocumentKind::Rule);
        rules.extend(rule_documents.map(|(_, document)| document.key().to_owned()));
    }
    rules
}

/// Live documents.
#[derive(Deserialize)]
struct LiveConfig {
    files: Vec<File>,
}

struct BacktestRequest<'a> {
    files: &'a [File],
    prune: bool,
    since: Millis,
    until: Millis,
    sample: f64,
}

impl BacktestRequest<'_> {
    async fn run(&self, client: &Client) -> anyhow::Result<Run> {
        let first = self.run_step(client, None).await?;
        let mut next = first.next.clone();
        let mut run = Run {
            version: first.version,
            changes: first.changes,
            warnings: first.warnings,
            uncounted_windows: first.uncounted_windows,
            heads: first.rules,
            findings: first.findings,
            covered_range: self.since..self.until,
            scale: 100.0 / self.sample,
        };
        show_progress(&format!("{} items, through {}", run.findings.items, first.through));
        while let Some(cursor) = next {
            let answer = self.run_step(client, Some(cursor)).await?;
            // Findings of different versions must not be added up.
            if answer.version != run.version {
                bail!(
                    "the configuration changed from version {} to {} during the backtest: run it again",
                    run.version,
                    answer.version
                );
            }
            run.heads.extend(answer.rules);
            run.findings.join(answer.findings);
            show_progress(&format!("{} items, through {}", run.findings.items, answer.through));
            next = answer.next;
        }
        // Clears the progress line before the results are printed.
        show_progress("");
        run.covered_range = run.findings.covered(self.since..self.until).unwrap_or(self.since..self.since);
        Ok(run)
    }

    async fn run_step(&self, client: &Client, cursor: Option<String>) -> anyhow::Result<StepResponse> {
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

/// Shows a line that the next one overwrites; only on a terminal.
pub(super) fn show_progress(line: &str) {
    let mut out = io::stderr().lock();
    if out.is_terminal() {
        let _reader_gone = write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush());
    }
}

/// A rule in the report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleReport {
    rule: RuleId,
    #[serde(flatten)]
    head: ComparedRule,
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
    decided: VerdictCounts,
    live_decided: VerdictCounts,
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
    /// Records the match rates of all rules, including unchanged ones, which may have an alarm as well.
    async fn record(&self, client: &Client, sample: f64) -> anyhow::Result<u64> {
        let Range { start: since, end: until } = self.covered_range;
        if until.0 - since.0 < DAY_MS {
            bail!(
                "the items cover {:.1} hours, but a record needs a day: quiet hours would lower the expected rate",
                (until.0 - since.0) as f64 / 3_600_000.0
            );
        }
        let no_findings = RuleFindings::default();
        let rules = self.heads.iter().filter_map(|(rule, head)| {
            let rule_findings = self.findings.rules.get(rule).unwrap_or(&no_findings);
            let version = head.version.as_ref()?;
            Some(json!({"rule": rule, "version": version, "hits": rule_findings.candidate, "busiestHour": rule_findings.busiest()}))
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

    fn reports(
        &self,
        selected_rules: &[RuleId],
        include_unchanged: bool,
    ) -> impl Iterator<Item = RuleReport> {
        self.heads
            .iter()
            .map(|(rule, head)| (rule, head, self.findings.rules.get(rule).cloned().unwrap_or_default()))
            .filter(move |(rule, head, rule_findings)| {
                let matches_differ =
                    head.changed || rule_findings.new_hits() > 0 || rule_findings.lost_hits() > 0;
                let errors_differ = rule_findings.errored != rule_findings.live_errored;
                // Rules that were selected are always reported, even without a difference.
                if selected_rules.is_empty() {
                    include_unchanged || matches_differ || errors_differ
                } else {
                    selected_rules.contains(rule)
                }
            })
            .map(|(rule, head, rule_findings)| self.report(rule, head, &rule_findings))
    }

    fn per_day(&self, count: u64) -> f64 {
        let days = (self.covered_range.end.0 - self.covered_range.start.0) as f64 / DAY_MS as f64;
        // The range is empty if there are no items, and has no days to divide by.
        if count == 0 { 0.0 } else { count as f64 * self.scale / days }
    }

    fn report(&self, rule: &RuleId, head: &ComparedRule, rule_findings: &RuleFindings) -> RuleReport {
        let actions_per_day = self.per_day(rule_findings.acting);
        let mut overlaps: Vec<_> = self
            .findings
            .overlaps
            .get(rule)
            .into_iter()
            .flatten()
            .map(|(other_rule, both)| Overlap {
                rule: other_rule.clone(),
                both: *both,
                jaccard: self.findings.jaccard(rule, other_rule),
            })
            .collect();
        // Equal counts are sorted by name, so that the output is stable.
        overlaps.sort_by(|left, right| right.both.cmp(&left.both).then_with(|| left.rule.cmp(&right.rule)));
        RuleReport {
            rule: rule.clone(),
            head: head.clone(),
            hits: rule_findings.candidate,
            live_hits: rule_findings.live,
            new_hits: rule_findings.new_hits(),
            lost_hits: rule_findings.lost_hits(),
            errored: rule_findings.errored,
            live_errored: rule_findings.live_errored,
            hits_per_day: self.per_day(rule_findings.candidate),
            busiest_hour: rule_findings.busiest() as f64 * self.scale,
            actions_per_day: head
                .most_a_day
                .map_or(actions_per_day, |limit| actions_per_day.min(limit as f64)),
            decided: rule_findings.decided,
            live_decided: rule_findings.live_decided,
            precision: rule_findings.decided.precision(),
            live_precision: rule_findings.live_decided.precision(),
            overlaps,
        }
    }

    fn json(&self, since: Millis, until: Millis, sample: f64, reports: &[RuleReport]) -> serde_json::Value {
        let findings = &self.findings;
        json!({
            "version": self.version,
            "since": since.iso(),
            "until": until.iso(),
            "covered": {"since": self.covered_range.start.iso(), "until": self.covered_range.end.iso()},
            "samplePercent": sample,
            "changes": self.changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "uncountedWindows": self.uncounted_windows,
            "items": findings.items,
            "unfit": findings.unfit,
            "guessed": findings.guessed,
            "unlisted": findings.unlisted,
            "differing": findings.differing,
            "overlapsLeftOut": findings.overlaps_left_out,
            "rules": reports,
        })
    }

    fn print(&self, since: Millis, until: Millis, sample: f64, reports: &[RuleReport]) {
        self.changes.iter().for_each(print_line);
        let findings = &self.findings;
        let sample_note = if sample < 100.0 { format!(" ({sample} % of them)") } else { String::new() };
        print_line(format!(
            "{} items from {} until {}{sample_note}, against version {}: {} match other rules",
            findings.items,
            since.iso(),
            until.iso(),
            self.version,
            findings.differing
        ));
        // The stored items may not reach back to the start of the range.
        if findings.items > 0 && self.covered_range != (since..until) {
            print_line(format!(
                "  they cover only {} until {}; numbers per day are computed from this time",
                self.covered_range.start.iso(),
                self.covered_range.end.iso()
            ));
        }
        for (count, label) in [
            (findings.unfit, "do not fit their item type any more"),
            (findings.guessed, "depend on media, models or new windows without past values"),
            (
                findings.unlisted,
                "match or fail more rules than are listed (`catalog.rules.matched`, `.errored`)",
            ),
            (
                findings.overlaps_left_out,
                "common matches of pairs of rules were not counted, because they are too many",
            ),
        ] {
            if count > 0 {
                print_line(format!("  {count} {label}"));
            }
        }
        if !self.uncounted_windows.is_empty() {
            print_line(format!("  windows without counts so far: {}", self.uncounted_windows.join(", ")));
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
    let (live_status, new_status) = (status(report.head.live_status), status(report.head.status));
    let status =
        if live_status == new_status { new_status } else { format!("{live_status} -> {new_status}") };
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
    let precision = |opinion: VerdictCounts| {
        let decision_count = opinion.confirmed + opinion.rejected;
        opinion.precision().map(|share| format!("{:.0} % of {decision_count}", share * 100.0))
    };
    match (precision(report.decided), precision(report.live_decided)) {
        (None, None) => {}
        (now, before) => {
            let no_decisions = || "no decisions".to_owned();
            print_line(format!(
                "  moderators agreed: {} (live: {})",
                now.unwrap_or_else(no_decisions),
                before.unwrap_or_else(no_decisions)
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
