//! `tidegate rules explain`: what each condition of one rule comes to on each item of a file.
//!
//! It reads no store: conditions that ask for a standing are shown as skipped.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::Args;
use serde_json::json;
use tidegate_moderation::evaluate;
use tidegate_schemas::ids::{Millis, RuleId};

use super::{Folder, items};
use crate::output::{complain, say};

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    folder: Folder,
    /// A file with one item a line; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    items: PathBuf,
    /// The rule
    #[arg(long, value_name = "RULE")]
    rule: String,
}

impl Explain {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(config) = self.folder.compile()? else { return Ok(ExitCode::FAILURE) };
        let (rule, now) = (RuleId::new(&self.rule), Millis::now());
        let mut refused = false;
        for line in items::lines(&self.items)? {
            let (number, line) = line?;
            let line = items::read(&config, &line, now);
            match line.item {
                Ok(prepared) => {
                    let Some(tree) = evaluate::explain(&prepared, &rule) else {
                        bail!("there is no rule `{rule}` that is evaluated");
                    };
                    say(
                        json!({"id": prepared.key.id, "typeId": prepared.key.type_id, "rule": rule, "tree": tree}),
                    );
                }
                Err(fault) => {
                    refused = true;
                    complain(format!("line {number}: {fault}"));
                }
            }
        }
        Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
