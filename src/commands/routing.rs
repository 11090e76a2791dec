//! `tidegate routing ...`: explains the queue that routing lists choose for a job.
//!
//! The running service answers, because it has the items.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Map, Value as Json, json};

use super::documents;
use crate::{client::Server, output::print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Routing {
    /// Explain which entry of a routing list takes a job, and why the others do not
    Explain(Explain),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["item", "cause"])))]
pub(crate) struct Explain {
    /// Routing list: reports, rules or appeals
    #[arg(long, value_name = "LIST")]
    list: String,
    /// Stored item, in its newest version
    #[arg(long, value_name = "TYPE/ID")]
    item: Option<String>,
    /// JSON file with `item` (`typeId`, `data`) and known facts (`report`, `appeal`, `rules`, `media`); `-` reads standard
    /// input
    #[arg(long, value_name = "FILE")]
    cause: Option<PathBuf>,
    /// Folder with documents to test instead of the live ones
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Settings file; default: ./tidegate.toml if it exists
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
}

impl Routing {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Explain(options) = self;
        let mut body = match (&options.item, &options.cause) {
            (Some(item), _) => item_body(item)?,
            (None, Some(file)) => read_body(file)?,
            // The command line requires one of the two.
            (None, None) => anyhow::bail!("--item or --cause is needed"),
        };
        body.insert("list".to_owned(), options.list.into());
        if let Some(folder) = &options.config {
            body.insert("files".to_owned(), json!(documents::read(folder)?));
        }
        let client = options.server.open(options.settings.as_deref())?;
        print_line(client.post::<Json>("/routing/explain", &Json::Object(body)).await?);
        Ok(ExitCode::SUCCESS)
    }
}

fn item_body(item: &str) -> anyhow::Result<Map<String, Json>> {
    let (type_id, id) =
        item.split_once('/').context("--item needs an item type and an id, as in post/1234")?;
    Ok([("item".to_owned(), json!({"typeId": type_id, "id": id}))].into_iter().collect())
}

fn read_body(file: &Path) -> anyhow::Result<Map<String, Json>> {
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    }
    serde_json::from_str(&text).with_context(|| format!("{}: a JSON object is needed", file.display()))
}
