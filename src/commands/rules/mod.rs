//! `tidegate rules ...`: tools for authors of rules, most of them without a server.
//!
//! Documents are checked by the catalog, exactly as when they are applied.

pub(in crate::commands) mod backtest;
mod bench;
mod diff;
mod explain;
mod fixtures;
mod fmt;
mod items;
mod retroact;
mod run;
mod stats;
mod test;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, Subcommand};
use tidegate_catalog::{Compiled, change};
use tidegate_moderation::items::evaluate::{self, PreparedItem, ScanResult};
use tidegate_rules::{ExampleFacts, Explained, Facts, Omissions, Outcome};
use tidegate_schemas::{ids::RuleId, nearest};

use super::{documents, lint::Lint, run_single_threaded};
use crate::{
    output::{REFUSED, format_count, print_error},
    settings,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Rules {
    /// Check the documents in a folder for errors and likely mistakes; the same as `tidegate lint`
    Lint(Lint),
    /// Evaluate items from a file against the rules in a folder; prints one JSON line per item
    Run(run::Run),
    /// Show the result of each condition of a rule, for items from a file or for a stored item
    Explain(explain::Explain),
    /// Compare the documents of two folders and the matches of their rules (exit code 2: they differ)
    Diff(diff::Diff),
    /// Rewrite the documents of a folder in canonical form
    Fmt(fmt::Fmt),
    /// Run the examples of the rules, and files of items with expected matches
    Test(test::Test),
    /// Measure how fast the rules in a folder evaluate items from a file
    Bench(bench::Bench),
    /// Evaluate stored items with the documents in a folder, and compare with the live ones
    Backtest(backtest::Backtest),
    /// Show how often rules matched, and the decisions of moderators
    Stats(stats::Stats),
    /// Apply live rules to items that were stored before
    Retroact(retroact::Retroact),
}

impl Rules {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Lint(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Explain(command) => run_single_threaded(command.run()),
            Self::Diff(command) => command.run(),
            Self::Fmt(command) => command.run(),
            Self::Test(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Backtest(command) => run_single_threaded(command.run()),
            Self::Stats(command) => run_single_threaded(command.run()),
            Self::Retroact(command) => run_single_threaded(command.run()),
        }
    }
}

/// Reports an unknown rule, with the most similar name.
fn report_unknown_rule<'a>(rule: &str, rules: impl IntoIterator<Item = &'a str>) -> ExitCode {
    let suggestion =
        nearest(rule, rules).map_or_else(String::new, |name| format!(" (did you mean \"{name}\"?)"));
    print_error(format!("error: no rule \"{rule}\" is evaluated{suggestion}"));
    ExitCode::from(REFUSED)
}

/// Folder of the rules.
#[derive(Debug, Args)]
struct Folder {
    /// Folder with the documents
    #[arg(long = "config", value_name = "DIR")]
    folder: PathBuf,
    /// Settings file; default: ./tidegate.toml if it exists
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    settings: Option<PathBuf>,
}

impl Folder {
    /// Compiles the documents and prints their errors.
    fn compile(&self) -> anyhow::Result<Option<Arc<Compiled>>> {
        Ok(self.compile_with_faults()?.ok())
    }

    /// Compiles the documents, prints their errors and returns them.
    fn compile_with_faults(&self) -> anyhow::Result<Result<Arc<Compiled>, Vec<String>>> {
        let settings = settings::load(self.settings.as_deref(), Vec::new())?.settings.catalog;
        let files: Vec<_> =
            documents::read(&self.folder)?.into_iter().map(|file| (file.name, file.text)).collect();
        match change::compile_offline(&files, &settings) {
            Ok((compiled, _)) => Ok(Ok(Arc::new(compiled))),
            Err(faults) => {
                faults.iter().for_each(print_error);
                print_error(format_count(faults.len(), "fault"));
                Ok(Err(faults.iter().map(ToString::to_string).collect()))
            }
        }
    }
}

/// Evaluates an item without a store: no strikes, empty windows, unknown media and scores.
fn evaluate(prepared: &PreparedItem) -> Outcome {
    evaluate_with(prepared, &ExampleFacts::default())
}

/// Evaluates an item with the given facts.
fn evaluate_with(prepared: &PreparedItem, facts: &ExampleFacts) -> Outcome {
    match evaluate::scan(prepared) {
        ScanResult::Finished(outcome) => outcome,
        ScanResult::Waiting(scan) => {
            let facts = facts.answer_needs(scan.pending_needs());
            evaluate::finish(prepared, scan, &facts)
        }
    }
}

/// Explains a rule without a service: the result of each condition, as in `evaluate`; whether the rule is evaluated for such an
/// item; and the skipped conditions.
fn explain(prepared: &PreparedItem, rule: &RuleId) -> Option<(Explained, bool, Omissions)> {
    let pending = evaluate::begin_explanation(prepared, rule)?;
    let needed_facts: Vec<_> = pending.pending_needs().cloned().collect();
    let (concerns, omissions) = (pending.is_triggered, pending.omissions.clone());
    Some((
        prepared.config.plan().finish_explanation(pending, &Facts::offline(&needed_facts)),
        concerns,
        omissions,
    ))
}
