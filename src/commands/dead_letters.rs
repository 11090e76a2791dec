//! `tidegate dead-letters`: lists dead letters and replays them.
//!
//! Lists show origin and reason of a letter, not its content.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_moderation::dead_letters::ReplayResponse;

use crate::{client::Connection, output::print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// List dead letters, newest first, one JSON object per line
    List {
        #[command(flatten)]
        selection: Selection,
        /// Maximum number to list
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Replay dead letters into the topics that they came from
    Replay {
        #[command(flatten)]
        selection: Selection,
        /// Replay all dead letters that were not replayed yet
        #[arg(long)]
        all: bool,
        /// Also replay letters that were replayed before; a letter named by --id is always replayed
        #[arg(long)]
        again: bool,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Select letters from this topic, such as `items`
    #[arg(long)]
    topic: Option<String>,
    /// Select letters with this reason
    #[arg(long)]
    reason: Option<String>,
    /// Select the letter with this id
    #[arg(long)]
    id: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

/// Largest `limit` of one request.
const PAGE: usize = 100;

impl DeadLetters {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { selection, limit, connection } => {
                let client = connection.open()?;
                let (mut remaining, mut cursor) = (limit, None::<String>);
                while remaining > 0 {
                    let mut query = vec![("limit", remaining.min(PAGE).to_string())];
                    let Selection { topic, reason, id } = &selection;
                    for (name, value) in
                        [("topic", topic), ("reason", reason), ("id", id), ("cursor", &cursor)]
                    {
                        query.extend(value.clone().map(|value| (name, value)));
                    }
                    let page: Page = client.get("/dead-letters", &query).await?;
                    remaining = remaining.saturating_sub(page.items.len());
                    page.items.iter().for_each(print_line);
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Replay { selection: Selection { topic, reason, id }, all, again, connection } => {
                let body = json!({ "topic": topic, "reason": reason, "id": id, "all": all, "again": again });
                let ReplayResponse { replayed, skipped, refused } =
                    connection.open()?.post("/dead-letters/replay", &body).await?;
                let skipped_note = match skipped {
                    0 => String::new(),
                    _ => format!(
                        ", {skipped} skipped because they were replayed before (replay them with --again)"
                    ),
                };
                print_line(format!("{replayed} replayed, {refused} cannot be replayed{skipped_note}"));
                Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
        }
    }
}
