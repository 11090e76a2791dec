//! `tidegate rules run`: prints the matches of each item of a file as one JSON line.
//!
//! No store is read, so users have no strikes.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tidegate_schemas::ids::Millis;

use super::{Folder, evaluate, items};
use crate::output::print_line;

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    folder: Folder,
    /// File with one item per line; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    items: PathBuf,
    /// Also print why each rule matched
    #[arg(long)]
    explain: bool,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(config) = self.folder.compile()? else { return Ok(ExitCode::FAILURE) };
        let (now, mut has_faults) = (Millis::now(), false);
        for line in items::lines(&self.items)? {
            let (number, line) = line?;
            let line = items::parse_line(&config, &line, now);
            let mut output = Map::new();
            match &line.key {
                Some(key) => {
                    output.insert("id".to_owned(), json!(key.id));
                    output.insert("typeId".to_owned(), json!(key.type_id));
                }
                None => {
                    output.insert("line".to_owned(), json!(number));
                }
            }
            match line.item {
                Ok(prepared) => {
                    let outcome = evaluate(&prepared);
                    let matched_rules: Vec<_> =
                        outcome.matched.iter().map(|rule_match| &rule_match.rule).collect();
                    let errored = outcome
                        .errored
                        .iter()
                        .map(|error| json!({"rule": error.rule, "reason": error.reason}));
                    output.insert("matched".to_owned(), json!(matched_rules));
                    output.insert("errored".to_owned(), errored.collect());
                    if let Json::Object(left_out) = json!(outcome.omissions()) {
                        output.extend(left_out);
                    }
                    if self.explain {
                        let trees = outcome
                            .matched
                            .iter()
                            .map(|rule_match| (rule_match.rule.to_string(), json!(rule_match.tree)));
                        output.insert("trees".to_owned(), Json::Object(trees.collect()));
                    }
                }
                Err(fault) => {
                    has_faults = true;
                    output.insert("refused".to_owned(), json!(fault));
                }
            }
            print_line(Json::Object(output));
        }
        Ok(if has_faults { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
