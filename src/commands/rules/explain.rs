//! `tidegate rules explain`: shows the result of each condition of one rule, for items of a file or a stored item.
//!
//! No store is read for a file, and all look-ups are empty, as for `run`. A stored item is evaluated by the running
//! service with the facts that were known when the item arrived.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args};
use serde_json::{Value as Json, json};
use tidegate_schemas::ids::{ItemKey, Millis, RuleId};

use super::{Folder, explain, items, report_unknown_rule};
use crate::{
    client::Server,
    commands::documents,
    output::{print_error, print_line},
};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["items", "item"])))]
pub(crate) struct Explain {
    /// File with one item per line; `-` reads standard input
    #[arg(long, value_name = "FILE", requires = "config")]
    items: Option<PathBuf>,
    /// Stored item, evaluated in its newest version by the running service
    #[arg(long, value_name = "TYPE/ID", value_parser = item_key)]
    item: Option<ItemKey>,
    /// Rule to explain
    #[arg(long, value_name = "RULE")]
    rule: RuleId,
    /// Folder with the documents; default for a stored item: the live documents
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Settings file; default: ./tidegate.toml if it exists
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
}

fn item_key(text: &str) -> Result<ItemKey, String> {
    match text.split_once('/') {
        Some((type_id, id)) if !type_id.is_empty() && !id.is_empty() => {
            Ok(ItemKey { type_id: type_id.into(), id: id.into() })
        }
        _ => Err("an item type and an id are needed, as in post/1234".to_owned()),
    }
}

impl Explain {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match (self.items, self.item) {
            (Some(file), _) => {
                let folder = self.config.context("--items needs --config")?;
                explain_file(&file, &Folder { folder, settings: self.settings }, &self.rule)
            }
            (None, Some(item)) => {
                let client = self.server.open(self.settings.as_deref())?;
                let files = self.config.as_deref().map(documents::read).transpose()?.unwrap_or_default();
                let request = json!({"item": item, "rule": self.rule, "files": files});
                print_line(client.post::<Json>("/rules/explain", &request).await?);
                Ok(ExitCode::SUCCESS)
            }
            // The command line requires one of the two.
            (None, None) => bail!("--items or --item is needed"),
        }
    }
}

fn explain_file(file: &Path, folder: &Folder, rule: &RuleId) -> anyhow::Result<ExitCode> {
    let Some(config) = folder.compile()? else { return Ok(ExitCode::FAILURE) };
    if config.plan().rule(rule).is_none() {
        return Ok(report_unknown_rule(rule.as_str(), config.plan().rules().map(|head| head.rule.as_str())));
    }
    let now = Millis::now();
    let mut has_faults = false;
    for line in items::lines(file)? {
        let (number, line) = line?;
        let line = items::parse_line(&config, &line, now);
        match line.item {
            Ok(prepared) => {
                let Some((tree, concerns, omissions)) = explain(&prepared, rule) else {
                    bail!("there is no rule `{rule}` that is evaluated");
                };
                let ItemKey { type_id, id } = prepared.key;
                let mut output = json!({
                    "id": id, "typeId": type_id, "rule": rule, "tree": tree, "isNoConcern": !concerns,
                });
                if let (Json::Object(fields), Json::Object(omitted_fields)) = (&mut output, json!(omissions))
                {
                    fields.extend(omitted_fields);
                }
                print_line(output);
            }
            Err(fault) => {
                has_faults = true;
                print_error(format!("line {number}: {fault}"));
            }
        }
    }
    Ok(if has_faults { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
