//! `tidegate dead-letters`: lists what could not be processed, and sends it back.
//!
//! Lists show where a letter comes from and why it failed, never its content.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{client::Connection, output::say};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// List them, the newest first, one JSON object a line
    List {
        #[command(flatten)]
        selection: Selection,
        /// How many at most
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Send them back to where they came from
    Replay {
        #[command(flatten)]
        selection: Selection,
        /// All of them that were not sent back yet
        #[arg(long)]
        all: bool,
        /// Also those that were sent back before; one that is named by --id always is
        #[arg(long)]
        again: bool,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Only from this topic, such as `items`
    #[arg(long)]
    topic: Option<String>,
    /// Only with this reason
    #[arg(long)]
    reason: Option<String>,
    /// Only this one
    #[arg(long)]
    id: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Replayed {
    replayed: u64,
    skipped: u64,
    refused: u64,
}

/// What one request may ask for.
const PAGE: usize = 100;

impl DeadLetters {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { selection, limit, connection } => {
                let client = connection.open()?;
                let (mut left, mut cursor) = (limit, None::<String>);
                while left > 0 {
                    let mut query = vec![("limit", left.min(PAGE).to_string())];
                    let Selection { topic, reason, id } = &selection;
                    for (name, value) in
                        [("topic", topic), ("reason", reason), ("id", id), ("cursor", &cursor)]
                    {
                        query.extend(value.clone().map(|value| (name, value)));
                    }
                    let page: Page = client.get("/dead-letters", &query).await?;
                    left = left.saturating_sub(page.items.len());
                    page.items.iter().for_each(say);
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Replay { selection: Selection { topic, reason, id }, all, again, connection } => {
                let body = json!({ "topic": topic, "reason": reason, "id": id, "all": all, "again": again });
                let Replayed { replayed, skipped, refused } =
                    connection.open()?.post("/dead-letters/replay", &body).await?;
                let before = match skipped {
                    0 => String::new(),
                    _ => format!(", {skipped} were sent back before: `--again` sends them, too"),
                };
                say(format!("{replayed} sent back, {refused} cannot be{before}"));
                Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
        }
    }
}
