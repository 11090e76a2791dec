//! `tidegate rules ...`: what authors of rules need: most of it before anything is applied, and without a server.
//!
//! It judges no document itself: the catalog does, as it will when the documents are applied.

mod backtest;
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
use tidegate_moderation::items::evaluate::{self, Prepared, ScanResult};
use tidegate_rules::{ExampleFacts, Explained, Facts, Omissions, Outcome};
use tidegate_schemas::{ids::RuleId, nearest};

use super::{alone, documents, lint::Lint};
use crate::{
    output::{REFUSED, complain, counted},
    settings,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Rules {
    /// Check the documents in a folder: their faults, and what is hardly meant; the same as `tidegate lint`
    Lint(Lint),
    /// Evaluate items from a file against the rules in a folder: one JSON line an item
    Run(run::Run),
    /// Say what each condition of a rule comes to, on items from a file or on a stored one
    Explain(explain::Explain),
    /// Compare the documents of two folders, and what their rules match (exit code 2: they differ)
    Diff(diff::Diff),
    /// Write the documents of a folder in canonical form
    Fmt(fmt::Fmt),
    /// Run the examples beside the rules, and files of items with what they should match
    Test(test::Test),
    /// Measure the rules in a folder on items from a file
    Bench(bench::Bench),
    /// Compare the documents in a folder with the live ones on stored items
    Backtest(backtest::Backtest),
    /// Say what rules came to, and how moderators judged
    Stats(stats::Stats),
    /// Let live rules act on items that came in before
    Retroact(retroact::Retroact),
}

impl Rules {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Lint(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Explain(command) => alone(command.run()),
            Self::Diff(command) => command.run(),
            Self::Fmt(command) => command.run(),
            Self::Test(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Backtest(command) => alone(command.run()),
            Self::Stats(command) => alone(command.run()),
            Self::Retroact(command) => alone(command.run()),
        }
    }
}

/// Says which rule was meant, perhaps.
fn no_such_rule<'a>(rule: &str, rules: impl IntoIterator<Item = &'a str>) -> ExitCode {
    let near = nearest(rule, rules).map_or_else(String::new, |it| format!(" (did you mean \"{it}\"?)"));
    complain(format!("error: no rule \"{rule}\" is evaluated{near}"));
    ExitCode::from(REFUSED)
}

/// Folder of the rules.
#[derive(Debug, Args)]
struct Folder {
    /// The folder of documents
    #[arg(long = "config", value_name = "DIR")]
    folder: PathBuf,
    /// The settings file; ./tidegate.toml if it is there and none is named
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    settings: Option<PathBuf>,
}

impl Folder {
    /// The documents as they would run; their faults are printed.
    fn compile(&self) -> anyhow::Result<Option<Arc<Compiled>>> {
        Ok(self.compiled()?.ok())
    }

    /// The same, with the faults.
    fn compiled(&self) -> anyhow::Result<Result<Arc<Compiled>, Vec<String>>> {
        let settings = settings::load(self.settings.as_deref(), Vec::new())?.settings.catalog;
        let files: Vec<_> =
            documents::read(&self.folder)?.into_iter().map(|file| (file.name, file.text)).collect();
        match change::offline(&files, &settings) {
            Ok((compiled, _)) => Ok(Ok(Arc::new(compiled))),
            Err(faults) => {
                faults.iter().for_each(complain);
                complain(counted(faults.len(), "fault"));
                Ok(Err(faults.iter().map(ToString::to_string).collect()))
            }
        }
    }
}

/// Evaluates an item without a store: nobody has strikes, windows have counted nothing, media and scores are unknown.
fn evaluate(prepared: &Prepared) -> Outcome {
    evaluate_among(prepared, &ExampleFacts::default())
}

/// Evaluates an item with what is said to be known.
fn evaluate_among(prepared: &Prepared, facts: &ExampleFacts) -> Outcome {
    match evaluate::scan(prepared) {
        ScanResult::Finished(outcome) => outcome,
        ScanResult::Waiting(scan) => {
            let facts = facts.answers(scan.needs());
            evaluate::finish(prepared, scan, &facts)
        }
    }
}

/// Explains a rule without a service to ask: the result of each condition, as in `evaluate`; whether the rule is
/// evaluated for such an item; and the conditions that were skipped.
fn explain(prepared: &Prepared, rule: &RuleId) -> Option<(Explained, bool, Omissions)> {
    let pending = evaluate::begin_explanation(prepared, rule)?;
    let needs: Vec<_> = pending.needs().cloned().collect();
    let (concerns, left_out) = (pending.concerns, pending.left_out.clone());
    Some((prepared.config.plan().finish_explanation(pending, &Facts::offline(&needs)), concerns, left_out))
}
